"""The privacy statement of a stream: what is published, protected and spent, in words for everybody."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urljoin

from dpstream.core.errors import ConfigError
from dpstream.core.paths import parse_json
from dpstream.core.privacy import Budget, Event, PureDP, User, decimal_text, group, zcdp_to_epsilon
from dpstream.core.privacy.convert import best_guess
from dpstream.core.privacy.unit import Individual, InsertedRecord, Record
from dpstream.core.version import __version__
from dpstream.io.sinks import read_catalogue, read_manifest, read_table
from dpstream.project.planning import expected_facts, guarantee, told_base
from dpstream.stream.ledger.limit import budget_from_dict
from dpstream.stream.predecessor_cost import base_words, broken_words, covered, together
from dpstream.stream.release.verdicts import MEANING, PREDICTED, SIMULATED
from dpstream.stream.templates import sentence, words

if TYPE_CHECKING:
    from dpstream.core.contracts import StreamPlan
    from dpstream.io.sources.source_options import SourceOptions
    from dpstream.project.config import Config


#: The delta at which a rho is told as (epsilon, delta), as in the plan.
_DELTA = "1e-9"
#: Units of which one person may have many.
_RECORDS = (Event, Record, InsertedRecord)
_HARDLY_A_BOUND = 30


#: How far the stream is, as ``status_facts`` tells it.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Statement:
    """A title and sections; each section is a heading and its paragraphs (a list of items where ``bullets``)."""

    title: str
    sections: tuple[tuple[str, tuple[str, ...], bool], ...]

    def markdown(self) -> str:
        """One page of Markdown."""
        return self._page("# {}", lambda heading: f"## {_escape(heading)}", _escape)

    def plain(self) -> str:
        """The same for a terminal, without the signs of Markdown."""
        return self._page("{}", str.upper, str)

    def _page(self, title: str, shown: Callable[[str], str], text: Callable[[str], str]) -> str:
        lines = [title.format(text(self.title)), ""]
        for heading, paragraphs, bullets in self.sections:
            lines += [shown(heading), ""]
            for paragraph in paragraphs:
                lines += [f"* {text(paragraph)}"] if bullets else [text(paragraph), ""]
            lines += [""] if bullets else []
        return "\n".join(lines).rstrip() + "\n"


def statement(config: Config, facts: Facts, *, date: str, contact: str | None = None) -> Statement:
    """The statement, from the plan and from how far the stream is. Reads no data; all of it is public.

    Args:
        date: of the statement.
        contact: whom to ask; ``[statement] contact``, or a line to fill in, where it is None.
    """
    plan, told = config.plan(), config.publication
    base = told_base(config, plan)
    budget = covered(plan.budget, base)
    version = f"Version {told.version} of {date}" if told.version else f"As of {date}"
    about = "" if told.description is None else f" {told.description}"
    sections = [
        ("What is published", (f"{version}.{about}", *_published(config, plan, facts, base)), False),
        *((("What it is fit for", fit, False),) if (fit := _fit_for(config, plan, facts)) else ()),
        ("What is protected", (*_seeded(facts), *_protected(config, plan, base)), False),
        ("What a record, a stay and a person are protected with", _each(config, plan, budget), True),
        ("Whom one has to trust", _trust(told.publisher), False),
        ("What it costs", _costs(config, plan, facts, budget), False),
        ("Who decided, and why", _decided(told.decided_by, told.reason), False),
        *((("The stream before this one", _before(config, base), False),) if base else ()),
        ("If the stream is renewed", _renewed(config, plan, budget), False),
        ("What is not protected", limits_told(config, plan), True),
        ("Questions", (contact or told.contact or "Contact: ______________________________",), False),
    ]
    return Statement(f"Privacy statement: {told.title or config.name}", tuple(sections))


def _each(config: Config, plan: StreamPlan, budget: Budget) -> tuple[str, ...]:
    """The loss of everything that somebody may mean by "my data", whichever of the streams has seen it."""

    def line(what: str, loss: Budget) -> str:
        epsilon, delta = loss_of(config, loss)
        if epsilon > _HARDLY_A_BOUND:
            return f"{what}: {loss}, which protects hardly anything."
        return f"{what}: {loss}; a guess is right in at most {percent(epsilon, delta)} of 100 cases."

    if not isinstance(plan.unit, _RECORDS):
        return (line("One person, with everything that the stream holds of them", budget),)
    stay = isinstance(plan.unit, Record)
    lines = [line("One stay of a record, with all its changes" if stay else "One record", budget)]
    if config.source_options.deletions and isinstance(plan.unit, Event):
        lines.append(line("One record that is entered and later deleted", group(budget, 2)))
    what = "stays or records" if stay else "records"
    return (*lines, *(line(f"One person with {many} {what}", group(budget, many)) for many in (2, 10)))


def _trust(publisher: str | None) -> tuple[str, ...]:
    owner = publisher or "the owner of the original records"
    return (
        f"{owner[:1].upper()}{owner[1:]} runs the program, which reads the original records and adds the noise before "
        "anything leaves it (the central model). Who receives the tables need not be trusted with anything. Who runs "
        "it has to be: with the original records, with the program's secret state, and to run it as is said here.",
    )


def _decided(who: str | None, why: str | None) -> tuple[str, ...]:
    return (
        f"The budget was decided by {who}." if who else "Decided by: ______________________________",
        f"Why: {why}" if why else "Why: ______________________________",
    )


def _published(
    config: Config, plan: StreamPlan, facts: Facts, base: Mapping[str, Any] | None
) -> tuple[str, ...]:
    how = None
    if any(verdict["how"] == SIMULATED for verdict in facts["verdicts"]):
        how = SIMULATED
    elif any(verdict["how"] == PREDICTED and verdict["use"] == "columns" for verdict in facts["verdicts"]):
        how = PREDICTED
    known = {**plan.facts(), "how": how}
    counts = words(plan, "counts", **known)
    if base is not None and counts:
        counts = words(plan, "counts_unknown", how=how)
    steps = {0: "Nothing has been published yet.", 1: "One table has been published so far."}.get(
        facts["steps"], f"{facts['steps']} tables have been published so far."
    )
    period = "" if facts["holds"] is None else f" The newest one is made from {facts['holds']}."
    end = "" if plan.horizon is None else f" At most {plan.horizon} will be."
    return (
        words(plan, "published", **known, often=_often(config.source_options)),
        f"{steps}{period}{end} Published with each table: how it was made, what it cost, and "
        f"{words(plan, 'number', **known)}{counts}.",
    )


def _fit_for(config: Config, plan: StreamPlan, facts: Facts) -> tuple[str, ...]:
    """Of the newest table; before there is one, what the plan expects of the last one."""
    meaning = "; ".join(f"{word}: {what}" for word, what in MEANING.items())
    found = _words(facts)
    before: tuple[str, ...] = (f"DO NOT USE THE NEWEST TABLE: {facts['unfit']}.",)
    if not facts["steps"]:
        expected = expected_facts(config, plan)
        if expected is None:
            return ()
        found = tuple(one["words"] for one in expected["verdicts"])
        before = (
            f"Nothing has been published yet. What is expected of step {expected['steps'][-1]['step']}:",
        )
    elif facts["unfit"] is None:
        before = ()
    return (*before, *found, f"What the words mean: {meaning}.") if found else ()


def _words(facts: Facts) -> tuple[str, ...]:
    """What the newest table is fit for, in sentences."""
    return tuple(verdict["words"] for verdict in facts["verdicts"])


def _often(options: SourceOptions) -> str:
    if options.rows is not None:
        return f"after every {options.rows} records"
    if options.period_columns is not None:
        return "for every period"
    if options.every == "files":
        return "for every file of records that arrives"
    return f"for every {options.every or 'step of the records'}"


def _seeded(facts: Facts) -> tuple[str, ...]:
    if not facts["made_with_test_seed"]:
        return ()
    return (
        "THERE IS NO GUARANTEE: tables of this stream were made with predictable noise, for a test. Otherwise:",
    )


def _protected(config: Config, plan: StreamPlan, base: Mapping[str, Any] | None) -> tuple[str, ...]:
    broken = "" if base is None else broken_words(base.get("broken", ()))
    before = "" if base is None else " with those of the stream before, which they hold,"
    return (
        f"{broken}Protected is {plan.unit.describe()}.",
        *odds_told(config, plan),
        f"This holds for all published tables together, past and future,{before} against somebody who knows every "
        "other record and has any amount of computing power.",
        f"In exact terms: {guarantee(config, plan).removeprefix(broken)}",
    )


def odds_told(config: Config, plan: StreamPlan) -> tuple[str, ...]:
    """What the loss means for somebody who guesses."""
    budget, unit = covered(plan.budget, told_base(config, plan)), plan.unit
    epsilon, delta = loss_of(config, budget)
    if epsilon > _HARDLY_A_BOUND:
        return (f"The loss is so large (epsilon = {epsilon:.4g}) that it protects hardly anything.",)
    factor = math.ceil(math.exp(epsilon) * (1 + 1e-12) * 100) / 100
    but = f", up to an exception of probability {delta}" if delta else ""
    if unit.relation == "add-remove":
        cases, what = "with it than without it", "whether it is among the data"
    else:
        cases, what = "for one content of it than for another", "which of two contents it has"
    return (
        f"Whatever is published is at most {factor:g} times likelier {cases}{but}.",
        f"An example: somebody guesses {what}, and either is as likely as the other. Without the tables they are "
        "right in 50 of 100 cases. With all tables, and with the best method there is, in at most "
        f"{percent(epsilon, delta)} of 100.",
    )


def loss_of(config: Config, budget: Budget) -> tuple[float, str]:
    """(epsilon, delta as text) of a budget; delta is empty for pure DP."""
    if isinstance(budget, PureDP):
        return float(budget.epsilon), ""
    stated = config.budget.stated
    if stated is not None and budget == config.budget.budget:
        return float(stated[0]), decimal_text(stated[1])
    delta = _DELTA if stated is None else str(stated[1])
    return zcdp_to_epsilon(budget, delta), _DELTA if stated is None else decimal_text(stated[1])


def percent(epsilon: float, delta: str) -> str:
    """The chance of the best guess as a percentage, rounded up to a tenth; below 100 where the bound is."""
    rate = best_guess(epsilon, float(Fraction(delta.split(" ")[0])) if delta else 0.0)
    return f"{min(100.0, math.ceil(rate * 1000) / 10):g}"


def _costs(config: Config, plan: StreamPlan, facts: Facts, budget: Budget) -> tuple[str, ...]:
    spent = str(plan.budget) if facts["steps"] else "nothing"
    costs = words(plan, "costs", **plan.facts())
    if isinstance(plan.unit, User) and not isinstance(plan.unit, InsertedRecord):
        costs = (
            f"Each of the {plan.unit.max_events} events of a user that are counted at most costs "
            f"{plan.unit.per_event(plan.budget)}, and all of them together no more than what is planned. It is charged "
            "in full at the first step, and further tables cost nothing more."
        )
    return (
        f"Planned: {plan.budget}. Spent so far: {spent}.",
        costs,
        *((_several(config, plan, budget, 2),) if isinstance(plan.unit, _RECORDS) else ()),
    )


def _several(config: Config, plan: StreamPlan, budget: Budget, events: int) -> str:
    epsilon, delta = loss_of(config, group(budget, events))
    twice = config.source_options.deletions and isinstance(plan.unit, Event)
    deleted = ", or one record that is entered and later deleted," if twice else ""
    return (
        f"A person with {events} such records{deleted} has "
        f"{group(budget, events)}: the example above then reads {percent(epsilon, delta)} of 100."
    )


def _before(config: Config, base: Mapping[str, Any]) -> tuple[str, ...]:
    """What a stream that began with another one's release costs together with it."""
    both = budget_from_dict(base["composition"]["together"])
    epsilon, delta = loss_of(config, both)
    seeded = ("THE EARLIER STREAM HAS NO GUARANTEE: it was made with predictable noise, for a test.",)
    return (
        *(seeded if base["made_with_test_seed"] else ()),
        base_words(base),
        f"For both periods together the example above reads {percent(epsilon, delta)} of 100. A record of the "
        "earlier period that is deleted later is one more event, of this stream.",
    )


def _renewed(config: Config, plan: StreamPlan, budget: Budget) -> tuple[str, ...]:
    both = together([budget, plan.budget], "sum")
    epsilon, delta = loss_of(config, both)
    one = "A person" if isinstance(plan.unit, Individual) else "A record"
    return (
        f"A renewal is a new stream with a budget of its own. {one} that only one of the two streams has seen costs "
        f"what is said above. One that both have seen costs the sum: on the same terms {both}, and the example "
        f"reads {percent(epsilon, delta)} of 100.",
    )


def limits_told(config: Config, plan: StreamPlan) -> tuple[str, ...]:
    """What is not protected, in sentences."""
    declared = [sentence(text) for text in config.facts()["declared_public"]]
    return (
        *((_many_records(plan),) if isinstance(plan.unit, _RECORDS) else ()),
        "Facts about groups are what the tables are for. A fact about a group can be unwelcome to its members, whether "
        "or not they are among the data.",
        "Columns, their possible values and the times of the tables are public.",
        "When a table appears, and that one is withdrawn or late, is not protected.",
        *declared,
        "The original records are kept by their owner as before. This statement is about what is published.",
    )


def _many_records(plan: StreamPlan) -> str:
    """Group privacy in words: k times the epsilon, k^2 times the rho."""
    what = "records, or stays of a record," if isinstance(plan.unit, Record) else "records"
    pure = isinstance(plan.budget, PureDP)
    cost = (
        "epsilon is k times" if pure else "rho is k^2 times, and epsilon at the same delta at least k times,"
    )
    less = f"A person with many {what} is protected less, in proportion to their number"
    return f"{less}: with k of them {cost} as large."


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
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "isLiveDataset": "cr:isLiveDataset",
    "recordSet": "cr:recordSet",
    "source": "cr:source",
}


@dataclass(frozen=True)
class Newest:
    """The newest table of a folder of releases.

    Attributes:
        manifest: of its step.
        file: of the table, beside the manifest.
        columns: names and types of schema.org.
    """

    manifest: dict[str, Any]
    file: str
    columns: tuple[tuple[str, str], ...]


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
    return Newest(manifest, names[0], _columns(folder, manifest)) if names else None


def _columns(folder: Path, manifest: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and types, from the codebook; of a small table from itself: that of a classifier has its own columns."""
    if int(manifest["rows_in_table"]) <= _FEW:
        table = read_table(folder, int(manifest["step"]), ids=True)
        return tuple((field.name, _type(str(field.type))) for field in table.schema)
    fields = parse_json((folder / "codebook.json").read_bytes())["resources"][0]["schema"]["fields"]
    return tuple((field["name"], _type(field["type"].replace("number", "double"))) for field in fields)


def _type(arrow: str) -> str:
    """
    >>> _type("dictionary<values=string, indices=int32, ordered=0>"), _type("int64"), _type("timestamp[us]")
    ('sc:Text', 'sc:Integer', 'sc:DateTime')
    """
    return next((kind for start, kind in _TYPES.items() if arrow.startswith(start)), "sc:Text")


def registry(config: Config, facts: Facts, newest: Newest | None, date: str) -> dict[str, Any]:
    """What a public registry of deployments asks for: product, unit, loss, accounting, implementation."""
    plan, told = config.plan(), config.publication
    base = told_base(config, plan)
    budget = covered(plan.budget, base)
    epsilon, delta = loss_of(config, budget)
    pure = isinstance(budget, PureDP)
    stated = (
        {"epsilon": decimal_text(budget.epsilon)}
        if isinstance(budget, PureDP)
        else {"rho": decimal_text(budget.rho)}
    )
    pinned, manifest = config.facts(), None if newest is None else newest.manifest
    return {
        "format": _REGISTRY_FORMAT,
        "kind": "deployment of differential privacy",
        "statement": {"version": told.version, "date": date},
        "product": {
            "name": config.name,
            "title": told.title or config.name,
            "description": told.description,
            "publisher": told.publisher,
            "contact": told.contact,
            "url": told.url,
            "license": told.license,
            "type": "synthetic records, published again and again",
            "releases": facts["steps"],
            "last_period": facts["last_period"],
            "columns": list(config.schema().names),
        },
        "decision": {"decided_by": told.decided_by, "reason": told.reason},
        "unit": {
            "name": plan.unit.name,
            "words": plan.unit.describe(),
            "relation": plan.unit.relation,
            "person_level": isinstance(plan.unit, Individual) or plan.unit.name == "user",
        },
        "trust_model": {
            "name": "central",
            "words": "The owner's program reads the original records and adds the noise before anything leaves it.",
        },
        "loss": {
            "definition": "pure" if pure else "zCDP",
            **stated,
            "implies": {"epsilon": float(f"{epsilon:.6g}"), "delta": delta or "0"},
            "covers": "all releases of the stream together, past and future",
            "words": guarantee(config, plan),
            "guess": odds_told(config, plan),
        },
        "accounting": {
            "composition": None if manifest is None else manifest["spent"]["composition"],
            "spent": None if manifest is None else manifest["spent"]["total"],
            "planned": str(
                Fraction(plan.budget.epsilon if isinstance(plan.budget, PureDP) else plan.budget.rho)
            ),
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
        "accuracy": {"verdicts": list(_words(facts)), "unfit": facts["unfit"]},
        "not_covered": list(limits_told(config, plan)),
    }


def croissant(config: Config, facts: Facts, newest: Newest | None, date: str) -> dict[str, Any]:
    """Croissant 1.0 (schema.org with terms of ML Commons) of the newest table."""
    found = _needed(config, newest, "Croissant")
    manifest, file, stored = found.manifest, found.file, found.manifest["files"][found.file]
    told, label = config.publication, manifest["label"]
    return _without_none(
        {
            "@context": _CONTEXT,
            "@type": "sc:Dataset",
            "conformsTo": "http://mlcommons.org/croissant/1.0",
            **_described(config, manifest),
            "datePublished": date,
            "version": f"{manifest['step']}.0.0",
            "isLiveDataset": True,
            "license": told.license,
            "url": told.url,
            "creator": None
            if told.publisher is None
            else {"@type": "sc:Organization", "name": told.publisher},
            "citeAs": f"{label['title']}; stream {manifest['stream_id']}, dpstream {manifest['program']['version']}",
            "distribution": [
                {
                    "@type": "cr:FileObject",
                    "@id": file,
                    "name": file,
                    "contentUrl": _at(config, manifest, file),
                    "contentSize": f"{stored['bytes']} B",
                    "encodingFormat": _media(file),
                    "sha256": stored["sha256"],
                }
            ],
            "recordSet": [
                {
                    "@type": "cr:RecordSet",
                    "@id": "records",
                    "name": "records",
                    "description": label["words"],
                    "field": [
                        {
                            "@type": "cr:Field",
                            "@id": f"records/{quote(column)}",
                            "name": column,
                            "dataType": kind,
                            "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
                        }
                        for column, kind in found.columns
                    ],
                }
            ],
        }
    )


def dcat(config: Config, facts: Facts, newest: Newest | None, date: str) -> dict[str, Any]:
    """DCAT 3 (W3C) of the newest table, as JSON-LD."""
    manifest, told = _needed(config, newest, "DCAT").manifest, config.publication
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
            "@id": told.url or f"urn:dpstream:{manifest['stream_id']}",
            "dct:title": described["name"],
            "dct:description": described["description"],
            "dct:identifier": manifest["stream_id"],
            "dct:issued": {"@value": date, "@type": "xsd:date"},
            "dcat:version": str(manifest["step"]),
            "dct:provenance": {
                "@type": "dct:ProvenanceStatement",
                "dct:description": manifest["guarantee"]["words"],
            },
            "dct:publisher": None
            if told.publisher is None
            else {"@type": "foaf:Agent", "foaf:name": told.publisher},
            "dct:license": told.license,
            "dcat:contactPoint": None
            if told.contact is None
            else {"@type": "vcard:Kind", "vcard:fn": told.contact},
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
                    "dct:title": file,
                    "dcat:downloadURL": {"@id": _at(config, manifest, file)},
                    "dcat:mediaType": _media(file),
                    "dcat:byteSize": stored.get("bytes"),
                    "spdx:checksum": {
                        "@type": "spdx:Checksum",
                        "spdx:algorithm": "spdx:checksumAlgorithm_sha256",
                        "spdx:checksumValue": stored["sha256"],
                    },
                }
                for file, stored in manifest["files"].items()
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
        f"{what} describes a released table, and there is none",
        where=str(config.output.dir),
        allowed=f"dpstream run {config.path} first; or --format registry",
    )


def _media(file: str) -> str:
    return _MEDIA.get(file.rsplit(".", 1)[-1], "application/octet-stream")


def _described(config: Config, manifest: Mapping[str, Any]) -> dict[str, str]:
    told = config.publication
    about = "" if told.description is None else f"{told.description} "
    return {"name": told.title or config.name, "description": f"{about}{manifest['label']['words']}"}


def _at(config: Config, manifest: Mapping[str, Any], file: str) -> str:
    """A file's address, or its place in the folder of releases where the owner names no address."""
    url, path = config.publication.url, f"step-{int(manifest['step']):06d}/{file}"
    return path if url is None else urljoin(url.rstrip("/") + "/", path)


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one is not None}
