"""The files that explain a folder of releases: ``README.txt``, its page, ``counts.csv`` and descriptors (Frictionless,
Croissant, DCAT). All but the descriptors say what is in ``counts.csv``, or compare two periods of it.

They are made of what the folder holds and of what ``[statement]`` says. So they cost nothing, may be lost, and may be
made again at any time. ``README.txt`` is written last: its last line says of which releases the files speak.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import textwrap
from collections.abc import Sequence
from dataclasses import astuple, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import DpstreamError
from dpstream.core.paths import parse_json
from dpstream.core.showing import script_json, templates
from dpstream.core.version import __version__
from dpstream.io.sinks import Publisher, catalogue, readable_steps
from dpstream.io.sinks.period_tables import has_periods
from dpstream.io.sinks.table_files import to_bytes
from dpstream.io.sinks.target import CODEBOOK
from dpstream.project.statement import COUNT_COLUMNS, COUNTS, Newest, croissant, dcat, newest_release
from dpstream.stream.measured_counts import (
    CountsOf,
    Headline,
    compared,
    published_counts,
    to_rows,
    variances_add,
)
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.estimates import Estimate
from dpstream.stream.release.flows import Span, days_of
from dpstream.stream.release.manifest import COUNTED, CUT, pretty_json
from dpstream.stream.release.released_verdicts import table_measured, when_measured

if TYPE_CHECKING:
    from jinja2 import Environment

    from dpstream.project import Config
    from dpstream.project.keys import Publication


#: Rows that the page holds, changes that it lists.
_MOST_ROWS, _CHANGES = 8_000, 200


def page_facts(
    release: PublicRelease, counts: Sequence[CountsOf], flowing: Sequence[Headline]
) -> dict[str, Any]:
    """What the template needs beside the facts of the text."""
    scripts = ("folder/templates/page.js", "report/assets/sortable.js")
    script = "".join(files("dpstream.tools").joinpath(name).read_text("utf-8") for name in scripts)
    groups, cut = _groups(counts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        "script": script,
        "data": script_json(groups) if groups else None,
        "cut": cut,
        "cards": _cards(counts),
        **_changes(release, flowing),
    }


def _groups(counts: Sequence[CountsOf]) -> tuple[list[dict[str, Any]], list[str]]:
    """The counts of each column and kind, period after period; and the columns that are too long for the page."""
    found, cut, size = dict[tuple[str, str], list[CountsOf]](), list[str](), 0
    for one in counts:
        many = 1 if one.estimate is None else one.estimate.values.size
        column = " x ".join(one.columns) or "all"
        if column in cut or (column != "all" and size + many > _MOST_ROWS):
            cut += [] if column in cut else [column]
            found = {key: group for key, group in found.items() if key[0] != column}
            continue
        size += many
        found.setdefault((column, one.kind), []).append(one)
    groups = list[dict[str, Any]]()
    for (column, kind), group in found.items():
        known = [one.estimate.names for one in group if one.estimate is not None]
        if known:
            nothing = [None] * len(known[-1])
            parts = (_cells(one.estimate) if one.estimate else nothing for one in group)
            facts = {"column": column, "kind": kind, "values": known[-1]}
            spans = [_when(one.span, kind) for one in group]
            groups.append({**facts, "spans": spans, "cells": list(itertools.chain.from_iterable(parts))})
    return groups, cut


def _cells(estimate: Estimate) -> list[list[float | None] | None]:
    """The number of each cell, and half its interval; None where its value was discovered later."""
    table = estimate.to_table()
    columns = [table[name].to_pylist() for name in ("measured", "low", "high")]
    return [
        None if count is None else [round(count, 1), None if low is None else round(high - low, 1) / 2]
        for count, low, high in zip(*columns, strict=True)
    ]


def _when(span: Span, kind: str) -> str:
    """What a period is called; the name is its end where records are present."""
    first, last = span.first_day or span.first, span.last_day or span.last
    word = "" if span.first_day else "step " if first == last or kind == "present" else "steps "
    return f"{word}{last}" if kind == "present" or first == last else f"{word}{first} to {last}"


def _cards(counts: Sequence[CountsOf]) -> list[dict[str, str]]:
    """The newest number of records of each kind."""
    newest = {one.kind: one for one in counts if not one.columns and one.estimate and not one.estimate.chosen}
    return [
        {"kind": kind, "when": _when(one.span, kind), "count": figure(one.estimate.values.item())}
        | {"width": figure(one.estimate.half_widths().item())}
        for kind in ("came", "left", "present")
        if (one := newest.get(kind)) is not None and one.estimate is not None
    ]


def figure(number: float, digits: int = 0) -> str:
    """A number for people.

    >>> figure(-1234.56, 1), figure(-0.3)
    ('\u22121,234.6', '0')
    """
    return f"{round(number, digits) + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _changes(release: PublicRelease, found: Sequence[Headline]) -> dict[str, Any]:
    """Of the last whole period of each headline and the one before: records a day, and what is seen of their change."""
    made = [one for one in compared(release, found)[0] if one.rows[0]["seen"] is not None]
    rows = [
        {**row, "column": " x ".join(one.headline.columns) or "all", "kind": one.events}
        | {"before": row["earlier"] / one.days[0], "last": row["later"] / one.days[1]}
        for one in made
        for row in one.rows
    ]
    rows.sort(key=lambda row: (not row["seen"], -abs(row["last"] - row["before"])))
    return {
        "changes": rows[:_CHANGES],
        "hidden": sum(not row["seen"] for row in rows),
        "more_changes": len(rows[_CHANGES:]),
        "who": made[0].change.later.records if made else "",
        "unit": "step" if made and made[0].spans[1].days is None else "day",
    }


#: Frictionless types of columns other than texts; the values of columns that have few.
_TYPES = {"sc:Float": "number"}
_VALUES: dict[str, dict[str, Any]] = {
    "kind": {"enum": ["came", "left", "present"]},
    "status": {"pattern": "exact|approximate|least squares|not known|from step [0-9]+"},
}


def descriptors(config: Config, folder: Path, counts: bytes) -> dict[str, bytes]:
    """The files by name; empty objects where no whole table is there, such as after a withdrawal.

    Errors:
        StoreDamagedError: files that differ from the published hashes.
    """
    newest, made = newest_release(folder), dict[str, dict[str, Any]]()
    book = parse_json((folder / CODEBOOK).read_bytes())
    made["datapackage.json"] = _package(book, config.publication, newest)
    made["croissant.json"], made["catalog.json"] = {}, {}
    if newest is not None and "label" in newest.manifest:
        newest = replace(newest, counts=counts)
        days = days_of(newest.manifest.get("period"))
        date = None if days is None else days[1].isoformat()  # no clock: equal releases give equal files
        made["croissant.json"] = croissant(config, {}, newest, date)
        made["catalog.json"] = dcat(config, {}, newest, date)
    return {name: pretty_json(one) for name, one in made.items()}


def _package(book: dict[str, Any], publication: Publication, newest: Newest | None) -> dict[str, Any]:
    """The codebook's table as a resource beside the counts, and what the owner says.

    Source: Frictionless Data, "Data Package" (v1) and "Table Schema".
    """
    (table,) = book["resources"]
    form = table["path"].rpartition(".")[2]
    there = set() if newest is None else {name for name, _ in newest.columns}
    described = [field for field in table["schema"]["fields"] if field["name"] in there]  # of periods so far
    missing = [""]
    if form != "csv":  # the profile of tabular resources is for CSV
        table.pop("profile")
        labels = [label for field in described for label in field.get("constraints", {}).get("enum", ())]
        if not {"nan", "NaT"}.intersection(labels):
            missing += ["nan", "NaT"]  # null, as pandas writes it, by which Frictionless reads Parquet
    table = {**table, "format": form, "schema": {"fields": described, "missingValues": missing}}
    fields = [
        {
            "name": name,
            "type": _TYPES.get(kind, "string"),
            "description": meaning,
            **({"constraints": _VALUES[name]} if name in _VALUES else {}),
        }
        for name, kind, meaning in COUNT_COLUMNS
    ]
    measured = {
        "name": "counts",
        "path": COUNTS,
        "profile": "tabular-data-resource",
        "format": "csv",
        "schema": {"fields": fields, "missingValues": [""]},
    }
    package = {**book, "profile": "data-package", "title": publication.title or book["title"]}
    package["resources"] = [*([] if newest is None else [table]), measured]
    if publication.license is not None:
        named = "path" if "://" in publication.license else "name"
        package["licenses"] = [{named: publication.license}]
    if publication.publisher is not None:
        package["contributors"] = [{"title": publication.publisher, "role": "publisher"}]
    return package


README = "README.txt"
PAGE = "index.html"
#: The long report, where the owner puts it into every place of files.
REPORT = "report.html"
#: In the order in which they are written.
_FILES = (COUNTS, PAGE, "datapackage.json", "croissant.json", "catalog.json", README)
#: Signs of a line, and lines of a paragraph at most.
_WIDTH = 118


def explain(config: Config) -> str | None:
    """Write the files where the releases, or ``[statement]``, have changed since; in the folder, and in a bucket beside
    it. Never fails, because the steps are committed and published already.

    Returns:
        What the owner should know where the files are not there: a sentence without a private value.
    """
    try:
        sink = config.publisher()
        if files := explaining_files(sink, config):
            sink.write_index(catalogue.Catalogue(sink.directory).stream_id, files)
    except (DpstreamError, OSError, ValueError, ArithmeticError, LookupError, MemoryError) as error:
        why = error if isinstance(error, DpstreamError) else type(error).__name__
        return f"the files that explain the releases are not up to date: {why}"
    return None


def explaining_files(sink: Publisher, config: Config) -> dict[str, bytes]:
    """The files by name, to be written in this order; none without a release. Files that the folder has are given as
    they are: a place beside it may lack them.

    Errors:
        StoreDamagedError: files that differ from the published hashes.
    """
    folder = sink.directory
    if not (folder / catalogue.CATALOGUE).is_file():
        return {}
    publication = config.publication
    listed, readable = catalogue.Catalogue(folder), readable_steps(folder)
    entries = listed.entries()
    if not entries:
        return {}
    public = None if sink.signer is None else sink.signer.public
    report = all(place.indexed(REPORT) is not None for place in sink.targets if place.takes == "files")
    known = [__version__, listed.facts, entries, astuple(publication), *([public] if public else [])]
    known += [REPORT] if report else []
    about = json.dumps(known, sort_keys=True)
    edition = f"Edition {hashlib.sha256(about.encode()).hexdigest()[:16]} of these files"
    there = {name: (folder / name).read_bytes() for name in _FILES if (folder / name).is_file()}
    if len(there) == len(_FILES) and edition.encode() in there[README] and sink.signs(there):
        return there
    standing = [int(entry["step"]) for entry in entries if entry["state"] != "withdrawn"]
    release = PublicRelease(folder, (readable or standing or [int(entries[-1]["step"])])[-1])
    counts, left, flowing = published_counts(release) if standing else ([], [], [])
    rows = to_rows(counts)
    later = any(one.estimate is not None and one.estimate.began for one in counts)
    facts = {
        "edition": edition,
        "report": report,
        "chosen": any(one.estimate is not None and one.estimate.chosen for one in counts),
        "public": public,
        "left": left,
        "later": later,
        **_facts(release, publication),
        **_recipe(counts, rows),
    }
    data = to_bytes(rows, "csv")
    made = {
        COUNTS: data,
        **descriptors(config, folder, data),
        PAGE: _said("page.html", {**facts, **page_facts(release, counts, flowing)}),
        README: _said("readme.txt", facts),
    }
    return {name: made[name] for name in _FILES}


def _said(template: str, facts: dict[str, Any]) -> bytes:
    # A label may hold half of a surrogate pair, which no file can.
    return _templates().get_template(template).render(facts).encode("utf-8", "replace")


def _facts(release: PublicRelease, publication: Publication) -> dict[str, Any]:
    """What the text says of the newest release."""
    manifest, book = release.manifest(), parse_json((Path(str(release.folder)) / CODEBOOK).read_bytes())
    end = when_measured(*table_measured(manifest))
    accuracy, options = manifest.get("accuracy") or {}, manifest["mechanism"]["options"]
    cancels = options.get("deletions") and options.get("cancels")
    return {
        "title": publication.title or manifest["stream"],
        "description": publication.description,
        "row": book["description"],
        "holds": manifest["holds"],
        "left_out": accuracy.get(CUT, {}).get("words"),
        "measured": f"Counts are measured up to {end}.",
        "step": release.step,
        "table": book["resources"][0]["path"] if release.steps else None,
        "guarantee": manifest["guarantee"]["words"],
        "license": publication.license,
        "contact": publication.contact,
        "publisher": publication.publisher,
        "counted": "people" if has_periods(manifest) else accuracy.get(COUNTED, "records"),
        "files": manifest["files"],
        "unseen": "equal" if cancels else "census" if "last_census" in accuracy else None,
    }


def _recipe(counts: list[CountsOf], rows: Any) -> dict[str, Any]:
    """Which rows of the file the examples take: of the number of records, where it is there."""
    known = [one for one in counts if one.estimate is not None]
    known.sort(key=lambda one: (bool(one.columns), ("came", "left", "present").index(one.kind)))
    if not known:
        return {"kind": None, "column": None, "value": None, "adds": False, "newest": None}
    kind, column = known[0].kind, " x ".join(known[0].columns) or "all"
    found = zip(*(rows[name].to_pylist() for name in ("kind", "column", "value", "to")), strict=True)
    cells = [cell for cell in found if cell[:2] == (kind, column)]
    value, newest = cells[0][2], cells[-1][3] if kind == "present" else None
    flows = dict[tuple[str, tuple[str, ...]], list[CountsOf]]()
    for one in counts:
        if one.kind != "present":
            flows.setdefault((one.kind, one.columns), []).append(one)
    adds = kind != "present" and column == "all" and all(map(variances_add, flows.values()))
    return {
        "kind": kind,
        "column": column,
        "value": value if column != "all" else None,
        "adds": adds,
        "newest": newest,
    }


def _lines(text: str, most: int | None = None) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, max_lines=most, placeholder=" ...")


@cache
def _templates() -> Environment:
    made = templates(
        "dpstream.tools.folder",
        autoescape=lambda name: name is not None and name.endswith(".html"),
        finalize=lambda value: "" if value is None else value,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "lines": _lines,
        "figure": figure,
        "sql": lambda text: text.replace("'", "''"),
        "json": lambda text: json.dumps(text, ensure_ascii=False),
    }
    return made
