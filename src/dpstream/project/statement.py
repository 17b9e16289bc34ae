"""The privacy statement of a stream: what is published, protected and spent, in words for everybody."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin

from dpstream.core.errors import ConfigError
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.core.privacy import Individual, PureDP, decimal_text, group
from dpstream.core.version import __version__
from dpstream.io.sinks import read_catalogue, read_manifest, read_table
from dpstream.io.sinks.period_tables import has_periods
from dpstream.io.sinks.signing import Signer
from dpstream.project.planning import (
    expected_facts,
    guarantee,
    loss_facts,
    loss_of,
    odds_told,
    promised,
    told_base,
)
from dpstream.stream.predecessor_cost import base_words, broken_words, covered, together
from dpstream.stream.release.verdicts import MEANING, PREDICTED, SIMULATED
from dpstream.stream.templates import Words, said, words

if TYPE_CHECKING:
    from dpstream.core.contracts import StreamPlan
    from dpstream.io.sources.source_options import SourceOptions
    from dpstream.project.config import Config


_WORDS = Words(Path(__file__).with_name("words.j2"))
_FIRST = ("protected", "published", "fit", "costs", "decided")
_ANNEX = ("exact", "each", "words", "trust", "before", "renewed", "limits")
_LISTS = ("fit", "words", "each", "limits")


#: How far the stream is, as ``status_facts`` tells it.
Facts = Mapping[str, Any]


#: A heading and its paragraphs; a list of items where the last one is true.
Section = tuple[str, tuple[str, ...], bool]


@dataclass(frozen=True)
class Statement:
    """A title, the sections of a first page (400 words at most), and those of an annex."""

    title: str
    first: tuple[Section, ...]
    annex: tuple[Section, ...]

    @property
    def sections(self) -> tuple[Section, ...]:
        """All of them, in order."""
        return self.first + self.annex

    def markdown(self) -> str:
        """One page of Markdown, with the annex."""
        return self._page(self.sections, "# {}", lambda heading: f"## {_escape(heading)}", _escape)

    def plain(self) -> str:
        """The first page for a terminal."""
        return self._page(self.first, "{}", str.upper, lambda text: textwrap.fill(text, 98))

    def _page(
        self, sections: Sequence[Section], title: str, shown: Callable[[str], str], text: Callable[[str], str]
    ) -> str:
        lines = [title.format(text(self.title)), ""]
        for number, (heading, paragraphs, bullets) in enumerate(sections):
            if number == len(self.first):
                lines += [shown(f"Annex: {heading}"), ""]
            else:
                lines += [shown(heading), ""]
            for paragraph in paragraphs:
                lines += [f"* {text(paragraph)}"] if bullets else [text(paragraph), ""]
            lines += [""] if bullets else []
        return "\n".join(lines).rstrip() + "\n"


def statement(config: Config, facts: Facts, *, date: str) -> Statement:
    """The statement, from the plan and from how far the stream is. Reads no data; all of it is public.

    Args:
        date: of the statement.
    """
    plan = config.plan()
    known = _known(config, plan, facts) | {"date": date}

    def sections(names: Sequence[str]) -> tuple[Section, ...]:
        made = ((name, said(_WORDS.paragraphs(f"section_{name}", **known))) for name in names)
        return tuple((text[0], tuple(text[1:]), name in _LISTS) for name, text in made if text)

    title = f"Privacy statement: {config.publication.title or config.name}"
    return Statement(title, sections(_FIRST), sections(_ANNEX))


def _known(config: Config, plan: StreamPlan, facts: Facts) -> dict[str, Any]:
    """The facts of a statement."""
    base = told_base(config, plan)
    budget = covered(plan.budget, base)
    own = plan.facts()
    fit, step = _fit_for(config, plan, facts)
    how = _how_known(facts)
    counts = words(plan, "counts", **own, how=how)
    if base is not None and counts:
        counts = words(plan, "counts_unknown", how=how)
    return {
        **promised(config, plan),
        "told": config.publication,
        "protects": words(plan, "protects"),
        "signed": None if config.output.sign is None else Signer(config.output.sign).public,
        "steps": facts["steps"],
        "holds": facts["holds"],
        "cut": facts["cut"],
        "unfit": facts["unfit"],
        "seeded": facts["made_with_test_seed"],
        "published": words(plan, "published", **own, how=how, often=_often(config.source_options)),
        "number": words(plan, "number", **own, how=how),
        "counts": counts,
        "costs": words(plan, "costs", **own),
        "fit": fit,
        "expected_step": step,
        "meaning": MEANING,
        "base": base,
        "base_words": None if base is None else base_words(base),
        "broken": "" if base is None else broken_words(base.get("broken", ())),
        "doubled": loss_facts(config, group(budget, 2), plan.delta_of(2)),
        "tenfold": loss_facts(config, group(budget, 10), plan.delta_of(10)),
        "renewed": loss_facts(config, together([budget, plan.budget], "sum"), 2 * plan.delta),
    }


def _how_known(facts: Facts) -> str | None:
    """Where the errors of the newest table's counts come from."""
    known = {(verdict["how"], verdict["use"]) for verdict in facts["verdicts"]}
    if any(how == SIMULATED for how, _ in known):
        return SIMULATED
    return PREDICTED if (PREDICTED, "columns") in known else None


def _fit_for(config: Config, plan: StreamPlan, facts: Facts) -> tuple[list[str], int | None]:
    """What the newest table is fit for; before there is one, what the plan expects of the last one, and its step."""
    expected = None if facts["steps"] else expected_facts(config, plan)
    verdicts = facts["verdicts"] if expected is None else expected["verdicts"]
    step = None if expected is None else int(expected["steps"][-1]["step"])
    return [verdict["words"] for verdict in verdicts], step


def _often(options: SourceOptions) -> str:
    if options.rows is not None:
        return f"after every {options.rows} records"
    if options.period_columns is not None:
        return "for every period"
    if options.every == "files":
        return "for every file of records that arrives"
    return f"for every {options.every or 'step of the records'}"


def _escape(text: str) -> str:
    """Names are the owner's, and Markdown would read some of their signs."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|" else sign for sign in " ".join(text.split()))


_REGISTRY_FORMAT = 1
#: How the names of Arrow's types begin, and the types of schema.org.
_TYPES = {
    "bool": "sc:Boolean",
    "int": "sc:Integer",
    "uint": "sc:Integer",
    "float": "sc:Float",
    "double": "sc:Float",
    "datetime": "sc:DateTime",
    "date": "sc:Date",
    "timestamp": "sc:DateTime",
}
#: Rows of a table that is read for its columns.
_FEW = 10_000
_MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "json": "application/json"}
#: Terms of Croissant 1.0 (https://docs.mlcommons.org/croissant/docs/croissant-spec.html), as far as they are used.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "data": {"@id": "cr:data", "@type": "@json"},
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "isLiveDataset": "cr:isLiveDataset",
    "key": "cr:key",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "source": "cr:source",
}


@dataclass(frozen=True)
class Newest:
    """The newest table of a folder of releases.

    Attributes:
        manifest: of its step.
        file: of the table, beside the manifest.
        columns: names and types of schema.org.
        values: of the columns that have few, in their order.
        counts: ``counts.csv`` beside the releases, where it is there.
    """

    manifest: dict[str, Any]
    file: str
    columns: tuple[tuple[str, str], ...]
    values: dict[str, list[Any]]
    counts: bytes | None = None


def newest_release(folder: Path) -> Newest | None:
    """Of a folder of releases; None where nothing is released, or no whole table.

    Errors:
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    if not (folder / "catalogue.json").is_file():
        return None
    steps = [
        int(one["step"]) for one in read_catalogue(folder)["steps"] if one["state"] == "full" and one["kept"]
    ]
    if not steps:
        return None
    manifest = read_manifest(folder, max(steps))
    names = [name for name in manifest["files"] if name.startswith("table.") and "metadata" not in name]
    counts = (folder / COUNTS).read_bytes() if (folder / COUNTS).is_file() else None
    if not names:
        return None
    fields = parse_json((folder / "codebook.json").read_bytes())["resources"][0]["schema"]["fields"]
    values = {field["name"]: field.get("constraints", {}).get("enum", []) for field in fields}
    return Newest(manifest, names[0], _columns(folder, manifest, fields), values, counts)


def _columns(
    folder: Path, manifest: Mapping[str, Any], fields: Iterable[Mapping[str, Any]]
) -> tuple[tuple[str, str], ...]:
    """Names and types, from the codebook; of a small table from itself, as of a panel, which has the periods so far."""
    if int(manifest["rows_in_table"]) <= _FEW or has_periods(manifest):
        table = read_table(folder, int(manifest["step"]), ids=True)
        return tuple((field.name, _type(str(field.type))) for field in table.schema)
    return tuple((field["name"], _type(field["type"].replace("number", "double"))) for field in fields)


def _type(arrow: str) -> str:
    """
    >>> _type("dictionary<values=string, indices=int32, ordered=0>"), _type("int64"), _type("timestamp[us]")
    ('sc:Text', 'sc:Integer', 'sc:DateTime')
    """
    return next((kind for start, kind in _TYPES.items() if arrow.startswith(start)), "sc:Text")


#: The counts beside the releases, and what a catalogue says of them.
COUNTS = "counts.csv"
_COUNTS = "Measured numbers of records that came, left and are present, with 95 % intervals."
#: Their columns: name, type of schema.org, meaning.
COUNT_COLUMNS = (
    ("from", "sc:Text", "First day or step of the period; none for records that are present."),
    ("to", "sc:Text", "Last day or step."),
    ("kind", "sc:Text", "came, left or present."),
    ("column", "sc:Text", "Which column; all: the number of records."),
    ("value", "sc:Text", "Label of the value."),
    ("count", "sc:Float", "Measured number of records; noise may make it negative."),
    ("standard_error", "sc:Float", "Of the count."),
    ("low95", "sc:Float", "Lower end of a 95 % interval."),
    ("high95", "sc:Float", "Upper end of it."),
    ("status", "sc:Text", "exact, least squares (no interval) or not known."),
)


def registry(config: Config, facts: Facts, newest: Newest | None, date: str) -> dict[str, Any]:
    """What a public registry of deployments asks for: product, unit, loss, accounting, implementation."""
    plan, publication = config.plan(), config.publication
    base = told_base(config, plan)
    budget = covered(plan.budget, base)
    epsilon, delta = loss_of(config, budget)
    pure = isinstance(budget, PureDP)

    pinned, manifest = config.facts(), None if newest is None else newest.manifest
    return {
        "format": _REGISTRY_FORMAT,
        "kind": "deployment of differential privacy",
        "statement": {"version": publication.version, "date": date},
        "product": {
            "name": config.name,
            "title": publication.title or config.name,
            "description": publication.description,
            "publisher": publication.publisher,
            "contact": publication.contact,
            "url": publication.url,
            "license": publication.license,
            "type": "synthetic records, published again and again",
            "releases": facts["steps"],
            "last_period": facts["last_period"],
            "columns": list(config.schema().names),
        },
        "decision": {"decided_by": publication.decided_by, "reason": publication.reason},
        "unit": {
            "name": plan.unit.name,
            "words": plan.unit.describe(),
            "relation": plan.unit.relation,
            "person_level": isinstance(plan.unit, Individual) or plan.unit.name == "user",
        },
        "trust_model": {
            "name": "central",
            "words": _WORDS.text("central"),
        },
        "loss": {
            "definition": "pure" if pure else "zCDP",
            "epsilon" if pure else "rho": decimal_text(budget.amount),
            "implies": {"epsilon": float(f"{epsilon:.6g}"), "delta": delta or "0"},
            "covers": "all releases of the stream together, past and future",
            "words": guarantee(config, plan),
            "guess": odds_told(config, plan),
        },
        "accounting": {
            "composition": None if manifest is None else manifest["spent"]["composition"],
            "spent": None if manifest is None else manifest["spent"]["total"],
            "planned": str(plan.budget.amount),
            "parts": pinned["parts"],
            "base": base,
        },
        "implementation": {
            "name": "dpstream",
            "version": __version__,
            "mechanism": pinned["mechanism"],
            "options": pinned["options"],
            "noise": "exact discrete distributions, drawn with the operating system's randomness",
            "made_with_test_seed": facts["made_with_test_seed"],
        },
        "accuracy": {"verdicts": [one["words"] for one in facts["verdicts"]], "unfit": facts["unfit"]},
        "not_covered": said(_WORDS.paragraphs("limits", **promised(config, plan))),
    }


def croissant(config: Config, facts: Facts, newest: Newest | None, date: str | None) -> dict[str, Any]:
    """Croissant 1.0 (schema.org with terms of ML Commons) of the newest table."""
    found = _needed(config, newest, "Croissant")
    manifest, file = found.manifest, found.file
    publication, label = config.publication, manifest["label"]
    return _without_none(
        {
            "@context": _CONTEXT,
            "@type": "sc:Dataset",
            "conformsTo": "http://mlcommons.org/croissant/1.0",
            **_described(config, manifest),
            "datePublished": date,
            "version": f"{manifest['step']}.0.0",
            "isLiveDataset": True,
            "license": publication.license,
            "url": publication.url,
            "creator": None
            if publication.publisher is None
            else {"@type": "sc:Organization", "name": publication.publisher},
            "citeAs": f"{label['title']}; stream {manifest['stream_id']}, dpstream {manifest['program']['version']}",
            "distribution": [
                {
                    "@type": "cr:FileObject",
                    "@id": name,
                    "name": name,
                    "contentUrl": address,
                    "contentSize": f"{size} B",
                    # Croissant's readers know Parquet by this name.
                    "encodingFormat": "application/x-parquet" if name.endswith(".parquet") else _media(name),
                    "sha256": digest,
                }
                for name, address, size, digest in _files(config, found, [file])
            ],
            "recordSet": [
                _record_set(
                    "records",
                    file,
                    label["words"],
                    [(*column, None) for column in found.columns],
                    # In a CSV file labels such as 94102 may be read as numbers, which no text refers to.
                    {} if file.endswith(".csv") else found.values,
                ),
                *(
                    [_record_set("counts", COUNTS, _COUNTS, COUNT_COLUMNS, {})]
                    if found.counts is not None
                    else []
                ),
                *(
                    _value_set(name, kind, found.values[name])
                    for name, kind in found.columns
                    if found.values.get(name)
                ),
            ],
        }
    )


def dcat(config: Config, facts: Facts, newest: Newest | None, date: str | None) -> dict[str, Any]:
    """DCAT 3 (W3C) of the newest table, as JSON-LD."""
    found, publication = _needed(config, newest, "DCAT"), config.publication
    manifest = found.manifest
    described = _described(config, manifest)
    period = str(manifest["period"] or "").split("/")
    dated = len(period) == 2
    grid = config.source_options.grid
    # The table holds what came since the stream began, not the newest period alone.
    begin = None if grid is None or not dated else grid.period(1)
    first = period[0] if begin is None else str(begin[0])
    return _without_none(
        {
            "@context": {
                "dcat": "http://www.w3.org/ns/dcat#",
                "dct": "http://purl.org/dc/terms/",
                "foaf": "http://xmlns.com/foaf/0.1/",
                "spdx": "http://spdx.org/rdf/terms#",
                "vcard": "http://www.w3.org/2006/vcard/ns#",
                "xsd": "http://www.w3.org/2001/XMLSchema#",
            },
            "@type": "dcat:Dataset",
            "@id": publication.url or f"urn:dpstream:{manifest['stream_id']}",
            "dct:title": described["name"],
            "dct:description": described["description"],
            "dct:identifier": manifest["stream_id"],
            "dct:issued": None if date is None else {"@value": date, "@type": "xsd:date"},
            "dcat:version": str(manifest["step"]),
            "dct:provenance": {
                "@type": "dct:ProvenanceStatement",
                "dct:description": manifest["guarantee"]["words"],
            },
            "dct:publisher": None
            if publication.publisher is None
            else {"@type": "foaf:Agent", "foaf:name": publication.publisher},
            "dct:license": publication.license,
            "dcat:contactPoint": None
            if publication.contact is None
            else {"@type": "vcard:Kind", "vcard:fn": publication.contact},
            "dct:temporal": {
                "@type": "dct:PeriodOfTime",
                "dcat:startDate": {"@value": first, "@type": "xsd:date"},
                "dcat:endDate": {"@value": period[-1], "@type": "xsd:date"},
            }
            if dated
            else None,
            "dcat:distribution": [
                {
                    "@type": "dcat:Distribution",
                    "dct:title": name,
                    "dcat:downloadURL": {"@id": address},
                    "dcat:mediaType": _media(name),
                    "dcat:byteSize": size,
                    "spdx:checksum": {
                        "@type": "spdx:Checksum",
                        "spdx:algorithm": "spdx:checksumAlgorithm_sha256",
                        "spdx:checksumValue": digest,
                    },
                }
                for name, address, size, digest in _files(config, found, manifest["files"])
            ],
        }
    )


#: What makes each record, by the name of its format.
RECORDS: Final[Mapping[str, Callable[[Config, Facts, Newest | None, str], dict[str, Any]]]] = {
    "registry": registry,
    "croissant": croissant,
    "dcat": dcat,
}


def _needed(config: Config, newest: Newest | None, what: str) -> Newest:
    if newest is not None:
        return newest
    raise ConfigError(
        f"{what} needs a released table",
        where=str(config.output.dir),
        allowed=f"dpstream run {config.path} first; or --format registry",
    )


def _media(file: str) -> str:
    return _MEDIA.get(file.rsplit(".", 1)[-1], "application/octet-stream")


def _described(config: Config, manifest: Mapping[str, Any]) -> dict[str, str]:
    publication = config.publication
    about = "" if publication.description is None else f"{publication.description} "
    return {"name": publication.title or config.name, "description": f"{about}{manifest['label']['words']}"}


def _files(config: Config, newest: Newest, names: Iterable[str]) -> list[tuple[str, str, int | None, str]]:
    """Name, address, size and SHA-256 of some files of the newest step, and of the counts."""
    step, stored = f"step-{int(newest.manifest['step']):06d}", newest.manifest["files"]
    found = [(n, _at(config, f"{step}/{n}"), stored[n].get("bytes"), str(stored[n]["sha256"])) for n in names]
    if newest.counts is not None:
        digest = sha256_hex(newest.counts)
        found.append((COUNTS, _at(config, COUNTS), len(newest.counts), digest))
    return found


def _value_set(column: str, kind: str, values: Iterable[Any]) -> dict[str, Any]:
    """The values that a column has, in their order, as an enumeration of Croissant."""
    name = f"values/{quote(column)}"
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": f"The values of {column}, in their order.",
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{name}/value"},
        "field": [{"@type": "cr:Field", "@id": f"{name}/value", "name": f"{name}/value", "dataType": kind}],
        "data": [{f"{name}/value": value} for value in values],
    }


def _record_set(
    name: str,
    file: str,
    description: str,
    columns: Iterable[tuple[str, str, str | None]],
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """A record set of Croissant, from the columns of one file; those with few ``values`` refer to them."""
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{quote(column)}",
            "name": column,
            "description": meaning,
            "dataType": kind,
            "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
            "references": {"field": {"@id": f"values/{quote(column)}/value"}} if values.get(column) else None,
        }
        for column, kind, meaning in columns
    ]
    made = {"@type": "cr:RecordSet", "@id": name, "name": name, "description": description}
    return {**made, "field": [_without_none(field) for field in fields]}


def _at(config: Config, path: str) -> str:
    """A file's address, or its place in the folder of releases where the owner names no address."""
    url = config.publication.url
    return path if url is None else urljoin(url.rstrip("/") + "/", path)


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one is not None}
