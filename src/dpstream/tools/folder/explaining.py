"""The files that explain a folder of releases: ``README.txt``, ``index.html``, ``counts.csv`` and descriptors.

They are made of what the folder holds and of what ``[statement]`` says. So they cost nothing, may be lost, and may be
made again at any time. ``README.txt`` is written last: its last line says of which releases the files speak.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import DpstreamError
from dpstream.core.paths import parse_json
from dpstream.core.version import __version__
from dpstream.io.sinks import catalogue
from dpstream.io.sinks.release_reader import readable_steps
from dpstream.io.sinks.table_files import to_bytes
from dpstream.io.sinks.target import CODEBOOK
from dpstream.project.statement import COUNTS
from dpstream.stream.measured_counts import CountsOf, published_counts, to_rows, variances_add
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.manifest import COUNTED, CUT
from dpstream.stream.release.released_verdicts import table_measured, when_measured
from dpstream.tools.folder.descriptors import descriptors
from dpstream.tools.folder.page import figure, page_facts

if TYPE_CHECKING:
    from jinja2 import Environment

    from dpstream.io.sinks import Publisher
    from dpstream.project import Config
    from dpstream.project.keys import Publication

README = "README.txt"
PAGE = "index.html"
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
    known = [__version__, listed.facts, entries, astuple(publication), *([public] if public else [])]
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
        "counted": accuracy.get(COUNTED, "records"),
        "unseen": "equal" if cancels else "census" if "last_census" in accuracy else None,
    }


def _recipe(counts: list[CountsOf], rows: Any) -> dict[str, Any]:
    """Which rows of the file the examples take: of the number of records, where it is there."""
    known = [one for one in counts if one.estimate is not None]
    known.sort(key=lambda one: (bool(one.columns), ("came", "left", "present").index(one.kind)))
    if not known:
        return {"kind": None, "column": None, "value": None, "adds": False}
    kind, column = known[0].kind, " x ".join(known[0].columns) or "all"
    found = zip(*(rows[name].to_pylist() for name in ("kind", "column", "value")), strict=True)
    value = next(cell[2] for cell in found if cell[:2] == (kind, column))
    flows = dict[tuple[str, tuple[str, ...]], list[CountsOf]]()
    for one in counts:
        if one.kind != "present":
            flows.setdefault((one.kind, one.columns), []).append(one)
    adds = kind != "present" and column == "all" and all(map(variances_add, flows.values()))
    return {"kind": kind, "column": column, "value": value if column != "all" else None, "adds": adds}


def _lines(text: str, most: int | None = None) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, max_lines=most, placeholder=" ...")


@cache
def _templates() -> Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("dpstream.tools.folder"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
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
