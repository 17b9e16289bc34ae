"""What describes the newest whole table and the counts for programs: a Frictionless data package, Croissant, DCAT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpstream.core.paths import parse_json
from dpstream.io.sinks.target import CODEBOOK
from dpstream.project.statement import COUNT_COLUMNS, COUNTS, Newest, croissant, dcat, newest_release
from dpstream.stream.release.flows import days_of
from dpstream.stream.release.manifest import pretty_json

if TYPE_CHECKING:
    from pathlib import Path

    from dpstream.project import Config
    from dpstream.project.keys import Publication

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
