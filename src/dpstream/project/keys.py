"""Every section and key of ``dpstream.toml``, declared once: a dataclass a section, whose fields are its keys.

Reader, table of keys, JSON Schema and drafts come from here. The options of mechanisms are declared by their recipes,
which are loaded only where they are needed, the keys of ``[source]`` by its kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from dpstream.core.contracts import HEADLINE_SHARE, Family, Headline, Key, option, shown
from dpstream.core.contracts.expectations import VARIES
from dpstream.core.contracts.recipe_options import COUNT, NUMBER, TEXT, TEXTS, keys_of_recipes, words
from dpstream.core.errors import ConfigError, did_you_mean
from dpstream.core.privacy import ZCDP, PureDP, exact_amount
from dpstream.core.privacy.unit import CUT_SHARE, Returns
from dpstream.families.registry import DEFAULT_MECHANISM, families, family_of, mechanisms
from dpstream.io.sinks.target import SINKS
from dpstream.io.sources.source_keys import SOURCES, rows_of_source
from dpstream.project.base import BaseOptions
from dpstream.project.reader import Section
from dpstream.stream.arguments import NAMES
from dpstream.stream.release.publishing import FULL_EVERY, Publishing, RecordKind, TableKind
from dpstream.stream.store.encryption import StateKey

SECTIONS: dict[str, str] = {
    "": "",
    "stream": "Who is protected, and what may be public.",
    "source": "Where the private rows are, and how steps cut them.",
    "schema": "What the columns may hold; public.",
    "expect": "Public guesses (published), such as 100, 300 or 1000, from which `dpstream plan` predicts errors. "
    "Never compute them from the private table.",
    "mechanism": "How the synthetic copy is made.",
    "budget": "What all releases together may cost one unit of protection.",
    "accuracy": "Which counts are most exact, and whether errors are simulated; public.",
    "prior": "A public table that the private one may resemble (guide on priors).",
    "discovery": "How values are discovered; public.",
    "output": "Where releases go; public.",
    "statement": "The owner's texts in statements, reports and catalogues; public, free to change.",
    "state": "Where the secret state is kept.",
    "base": "The earlier stream's release to begin with (guide on evolution); without it a stream begins empty.",
}

#: What a link of a public page or record may lead to: no script, and no file of its reader.
WEB_ADDRESS = r"^(https?://|mailto:)[^\s<>\"{}|\\^`]+$"
#: A licence: the SPDX name of one that is made for data or for texts, or where any other one can be read.
LICENSE = (
    r"^(https://[^\s<>\"{}|\\^`]+|CC0-1\.0|CC-BY(-NC)?(-SA|-ND)?-(3\.0|4\.0)|PDDL-1\.0|ODC-By-1\.0|ODbL-1\.0"
    r"|CDLA-(Permissive-1\.0|Permissive-2\.0|Sharing-1\.0)|DL-DE-(BY|ZERO)-2\.0|etalab-2\.0|NLOD-[12]\.0"
    r"|OGL-(UK-[123]\.0|Canada-2\.0)|MIT|Apache-2\.0)$"
)


def _format(section: Section, given: Any, earlier: Mapping[str, Any]) -> int:
    value = section.raw("format") if section.has("format") else 1
    if isinstance(value, bool) or value != 1:
        raise section.wrong("format", f"unknown format {shown(value)}")
    section.note("format", "1", default=not section.has("format"))
    return 1


def _season(section: Section, given: Any, earlier: Mapping[str, Any]) -> str | int | None:
    season = section.raw("season")
    if season not in ("year", "week"):
        if isinstance(season, str):
            raise section.wrong("season", f"{shown(season)} is not a season")
        return section.count("season")
    return section.choice("season", ("year", "week"))


def _given(key: str, read: Callable[[Section, str], Any], section: Section, *_: Any) -> Any:
    """A key that the file may leave out."""
    return read(section, key) if section.has(key) else None


def _amount(key: str, read: Callable[[Any], Any]) -> Callable[..., Any]:
    """A part of a budget; ``read`` refuses what no guarantee allows."""
    return partial(_given, key, partial(Section.amount, read=read))


def _cut_share(section: Section, given: Any, earlier: Mapping[str, Any]) -> Fraction:
    if earlier["max_events"] is not None:
        zero = section.raw("cut_share") in (0, "0")
        return Fraction(0) if zero else section.share("cut_share", CUT_SHARE)
    if section.has("cut_share"):
        raise section.wrong("cut_share", "only max_events leaves events out", "leave it out")
    return CUT_SHARE


def _headline(section: Section, given: Any, earlier: Mapping[str, Any]) -> Headline:
    if not section.has("headline"):
        return ()
    marginals = section.raw("headline")
    if isinstance(marginals, list):
        marginals = [[one] if isinstance(one, str) else one for one in marginals]
    if not isinstance(marginals, list) or not all(
        isinstance(names, list) and names and all(isinstance(name, str) for name in names)
        for names in marginals
    ):
        raise section.wrong("headline", f"expected marginals, got {shown(marginals)}")
    if not marginals:
        raise section.wrong("headline", "the list is empty")
    section.note("headline", ", ".join(" x ".join(names) for names in marginals), default=False)
    return tuple(tuple(names) for names in marginals)


def _public(section: Section, given: Any, earlier: Mapping[str, Any]) -> bool:
    if section.required("public") is not True:
        raise section.wrong(
            "public",
            f"{shown(section.raw('public'))} does not confirm that the prior is public",
            "true, if everybody may know this file",
        )
    section.note("public", "true", default=False)
    return True


def _table(section: Section, given: Any, earlier: Mapping[str, Any]) -> str:
    return section.text("table") if section.has("table") else "synthetic"


def _sink(section: Section, given: Any, earlier: Mapping[str, Any]) -> str:
    return section.choice("sink", SINKS.names(), "folder")


def _may_change(
    section: Section, given: Any, earlier: Mapping[str, Any]
) -> Literal["any"] | tuple[str, ...] | None:
    if section.raw("may_change") == "any":
        section.note("may_change", "any", default=False)
        return "any"
    return section.columns("may_change") if section.has("may_change") else None


_WHOLE = "a whole number from 1"
#: Reads an exact delta: that of the guarantee, and that of discovery.
_DELTA = _amount("delta", partial(exact_amount, where="delta"))


@dataclass(frozen=True, kw_only=True)
class FileKeys:
    """What stands above all sections."""

    format: int = option(
        1,
        allowed="1",
        meaning="Version of the file's format.",
        reason="the only format",
        read=_format,
        fragment=words(1),
    )


UnitName = Literal[
    "event", "event-replace", "user", "record", "record-replace", "individual", "individual-replace"
]


@dataclass(frozen=True, kw_only=True)
class StreamKeys:
    """``[stream]``."""

    name: str = option(
        allowed=NAMES,
        meaning="Name of the stream, published in every manifest.",
        fragment={**TEXT, "maxLength": 200},
    )
    unit: UnitName | None = option(
        None,
        shown="event; record with census; individual with panels",
        meaning="Who is protected: a record at one step (`event`), a user id's records (`user`), a keyed record's "
        "whole stay (`record`), a panel's person (`individual`). `-replace`: the values only, numbers are public.",
        reason="sizes of steps stay private",
    )
    total: Literal["private", "public"] | None = option(
        None,
        shown="private",
        meaning="`public`: every step's number of records is public. The unit becomes its `-replace` form; the noise "
        "doubles.",
        reason="sizes are about people, too",
    )
    season: str | int | None = option(
        None,
        allowed="year, week, or a number of steps from 2 to 10,000",
        meaning="With pooled: after how long arrivals repeat, as is publicly known.",
        reason="only the owner knows it",
        read=_season,
        fragment={"anyOf": [words("year", "week"), {**COUNT, "minimum": 2, "maximum": 10_000}]},
    )
    returns: Returns | None = option(
        None,
        shown="new",
        meaning="With unit = record: a returning key is another record, with another loss (`new`), or stops the stream "
        "(`refuse`; hashes of all keys are kept).",
        reason="keys that left are forgotten",
    )
    same_unit: str | None = option(
        None,
        allowed="a sentence of up to 500 printable characters",
        meaning="Why the unit is that of streams added up with this one, although other columns name it (published).",
        reason="other columns name other units",
        fragment={**TEXT, "maxLength": 500},
    )
    max_events: int | None = option(
        None,
        allowed="a number from 1 to 1000000, with unit = user",
        meaning="Most events (inserts and deletes) of a user that count over the stream's life, or a period of `per`.",
        reason="needed with unit = user",
        fragment={**COUNT, "maximum": 1_000_000},
    )
    per: str | None = option(
        None,
        allowed='"month", "quarter", "year" (with a calendar), or steps such as "12 steps"',
        meaning="Protects what a user does in one such period; max_events counts anew. k periods lose k epsilon "
        "(k^2 rho), and more than k delta.",
        reason="the stream's whole life",
        shown="none",
        fragment={**TEXT, "pattern": "^(month|quarter|year|[1-9][0-9]{0,5} steps?)$"},
    )
    max_events_from: Literal["public", "data"] | None = option(
        None,
        shown="public",
        meaning="`data`: max_events was read off private records, as plan and manifests then say.",
        reason="a bound is public knowledge",
    )
    cut_share: Fraction = option(
        CUT_SHARE,
        allowed="an exact number from 0 to less than 1, with unit = user",
        meaning="Share of the budget for the published number of users beyond max_events; 0: none.",
        reason="a little is enough",
        read=_cut_share,
        fragment=NUMBER,
    )


@dataclass(frozen=True, kw_only=True)
class ExpectKeys:
    """``[expect]``."""

    size: int | None = option(
        None,
        allowed=_WHOLE,
        shown="10 times records_per_step, or 1000",
        meaning="About how many records the table holds (panel: people; growing table: at the horizon).",
        reason="a factor of three costs cells 4 to 15 %",
    )
    records_per_step: int | None = option(
        None,
        allowed=_WHOLE,
        shown="a tenth of size",
        meaning="About how many records come in a step; not for panels.",
        reason="it says how long records stay",
    )
    order: Literal["mixed", "sorted"] = option(
        "mixed",
        allowed="mixed, sorted (not where records or people are followed)",
        meaning="`sorted`: a step says little of the next, as records come place after place.",
        reason="most neighbouring steps are alike",
    )
    varies: float = option(
        VARIES,
        allowed="a number from 0 to 10 (not where people are followed)",
        meaning="Share by which numbers of new records usually differ between steps.",
        reason="months of real streams differ by .2 to .5",
        fragment={"type": "number", "minimum": 0, "maximum": 10},
    )


@dataclass(frozen=True, kw_only=True)
class BudgetKeys:
    """``[budget]``."""

    epsilon: PureDP | None = option(
        None,
        allowed='an exact positive number up to 1000, such as "1" or "0.5"',
        meaning="Pure differential privacy; with `delta`, the largest rho within it.",
        reason="write epsilon or rho",
        read=_amount("epsilon", PureDP.of),
        fragment=NUMBER,
    )
    rho: ZCDP | None = option(
        None,
        allowed="an exact positive number",
        meaning="Zero-concentrated differential privacy.",
        reason="write epsilon or rho",
        read=_amount("rho", ZCDP.of),
        fragment=NUMBER,
    )
    delta: Fraction | None = option(
        None,
        allowed='a number such as "1e-9", with epsilon',
        meaning="Makes the guarantee (epsilon, delta).",
        reason="without delta the guarantee has no exception",
        read=_DELTA,
        fragment=NUMBER,
    )
    horizon: int | None = option(
        None,
        allowed="none, or a number of steps from 1",
        meaning="Most steps of the stream; counters are tuned to it. Panels need it.",
        reason="tables run without end at the same cost",
        word="none",
    )
    account: Path | None = option(
        None,
        allowed="a file of dpstream ledger account create, outside of state and output",
        meaning="The account that adds up streams on one private source, within a limit.",
        reason="a single stream needs no sum",
    )


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """``[accuracy]``."""

    headline: Headline = option(
        (),
        allowed='columns, groups and levels, such as ["zip", ["zip", "cause"], "place.region"]; with pooled, or '
        "census (no levels)",
        meaning="Marginals measured once a period (a census: each time), with exact errors. Levels of a tree share its "
        "part.",
        reason="each takes budget from the others",
        read=_headline,
        shown="none",
        fragment={
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {**TEXTS, "minItems": 1}]},
            "minItems": 1,
        },
    )
    periods: str | None = option(
        None,
        allowed='"week", "month", "quarter", "year" (with a calendar), or steps such as "13 steps"; with pooled',
        meaning="Headlines are measured at the end of each; with a calendar the number of records every month.",
        reason="the shortest of month, quarter and year with mean counts above two standard errors by [expect]; "
        '"quarter" without [expect], each step without a calendar',
        shown="see the reason",
        fragment={**TEXT, "pattern": "^(week|month|quarter|year|[1-9][0-9]{0,5} steps?)$"},
    )
    year_begins: int = option(
        1,
        allowed="a month, 1 to 12",
        meaning="The month in which a year of `periods` and `per` begins; quarters follow it.",
        reason="a calendar year",
        fragment={**COUNT, "minimum": 1, "maximum": 12},
    )
    headline_share: Fraction = option(
        HEADLINE_SHARE,
        allowed="an exact number between 0 and 1, with a headline",
        meaning="Their share of the budget, in equal parts; the number of records gets a tenth of it.",
        reason="the rest gets most",
        needs=("headline",),
    )
    simulate: int | None = option(
        None,
        allowed="none, or a number of runs from 2 to 1000, such as 20",
        meaning="Runs that measure how far releases of steps 1, 2, 4, 8, ... are off (errors/).",
        reason="each repeats the whole stream; dpstream errors does so later",
        word="none",
        fragment={**COUNT, "minimum": 2, "maximum": 1000},
    )
    simulate_seconds: int = option(
        600,
        allowed=_WHOLE,
        meaning="With simulate: CPU seconds after which no further run begins; at least two are done.",
        reason="steps wait for them",
        needs=("simulate",),
    )


@dataclass(frozen=True, kw_only=True)
class PriorKeys:
    """``[prior]``."""

    file: Path = option(
        allowed="a .csv, .parquet or .ndjson file relative to this one; with pooled or census",
        meaning="The public table, in the schema's columns and values. Its hash is pinned.",
    )
    weight: str | None = option(
        None,
        allowed="a column outside the schema",
        shown="every row is one record",
        meaning="How many records a row stands for, from 0.",
        reason="most public tables are lists of records",
    )
    public: bool = option(
        allowed="true",
        meaning="Your word: the file is public, and made from private records only by accounted releases.",
        read=_public,
        fragment={"const": True},
    )


@dataclass(frozen=True, kw_only=True)
class DiscoveryKeys:
    """``[discovery]``."""

    share: Fraction = option(
        Fraction(1, 10),
        allowed="an exact number between 0 and 1",
        meaning="The part of the budget that finds values.",
        reason="the rest gets most",
    )
    delta: Fraction | None = option(
        None,
        allowed='a number such as "1e-9"; none where every column has a pattern',
        meaning="The largest probability that a value of only one unit is published.",
        reason="you decide",
        read=_DELTA,
        fragment=NUMBER,
    )
    at_most: int | None = option(
        None,
        allowed="a number from 1",
        meaning="Most values of a column; the most frequent enter.",
        reason="as many as fit",
    )


@dataclass(frozen=True, kw_only=True)
class Output:
    """``[output]``."""

    dir: Path = option(
        Path("releases"),
        allowed="a folder",
        meaning="Where releases are published.",
        reason="beside the configuration file",
        place="folder",
    )
    format: Literal["parquet", "csv"] = option(
        "parquet", meaning="Format of the released tables.", reason="it keeps the columns' types"
    )
    keep: int | None = option(
        None,
        allowed="all, or a number of tables from 1",
        meaning="How many full tables are kept; manifests always are.",
        reason="readers rely on releases",
        word="all",
    )
    records: RecordKind | None = option(
        None,
        shown="fresh",
        meaning="Each table is drawn anew, or changes as little as possible, with a `record_id` (panels always).",
        reason="each table is a sample by itself",
    )
    publish: TableKind = option(
        "full",
        allowed="full, changes, both (the last two with records = persistent)",
        meaning="A step's table, its changes against the step before, or both.",
        reason="a table can be read by itself",
    )
    full_every: int = option(
        FULL_EVERY,
        allowed="a number of steps from 1",
        meaning='With `publish = "changes"`: steps between full tables, at most.',
        reason="a reader then joins at most ten files",
        needs=("publish", "changes"),
    )
    may_change: Literal["any"] | tuple[str, ...] | None = option(
        None,
        allowed="any, or a list of columns; [] for none",
        shown="any with the unit record, else none; a begun feed stays",
        meaning="With persistent records: columns that may change under one `record_id`.",
        reason="a feed gets updates only when asked",
        read=_may_change,
        fragment={"anyOf": [words("any"), TEXTS]},
    )
    approve: bool = option(
        False,
        meaning="`true`: steps are held until `dpstream approve`. Deciding by private data is outside the "
        "guarantee.",
        reason="committed steps are published at once",
    )
    measurements: bool = option(
        True,
        meaning="Publish each step's noisy counts, for good (`measurements.ndjson`).",
        reason="the guarantee covers them; readers compute errors",
    )
    model: bool = option(
        True,
        meaning="Publish each step's model (`model.json`), also without `measurements`.",
        reason="the guarantee covers it",
    )
    sink: str = option(
        "folder",
        meaning="Where tables go besides the folder: the newest to a database, files to a bucket, NDJSON to stdout, "
        "partitions to Spark (instead).",
        reason="files need no program to be read",
        read=_sink,
        words=("folder", "duckdb", "postgresql", "bucket", "stdout", "spark"),
    )
    database: str | None = option(
        None,
        allowed="a DuckDB file, a PostgreSQL URL without a password (PGPASSWORD, ~/.pgpass), s3://bucket/releases, or "
        "(spark) a folder",
        shown="not set; releases.duckdb for duckdb, tables for spark",
        meaning="Where the sink writes; driver and executors see Spark's folder under one path.",
        reason="needed with sink = postgresql or bucket",
    )
    table: str = option(
        "synthetic",
        read=_table,
        allowed="a name of letters, digits and underscores",
        meaning="The table there; `<table>_steps` says which step it holds. Spark: a folder with "
        "partitions `step=...`.",
        reason="a plain name",
        fragment={**TEXT, "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,49}$"},
    )

    sign: Path | None = option(
        None,
        allowed="an Ed25519 key in PEM, not among the releases",
        meaning="Signs the releases for `dp.read(..., key=...)`.",
        reason="hashes find accidents",
    )

    @property
    def publishing(self) -> Publishing:
        """What is published of a step, and when.

        Errors:
            ConfigError: changes or ``may_change`` without persistent records.
        """
        return Publishing(
            keep=self.keep,
            records=self.records or "fresh",
            publish=self.publish,
            full_every=self.full_every,
            approve=self.approve,
            measurements=self.measurements,
            model=self.model,
            may_change=self.may_change,
        )


def _text_of_statement(meaning: str, allowed: str = "a text", pattern: str | None = None) -> Any:
    """A text that only the owner knows."""
    fragment = {**TEXT, **({} if pattern is None else {"pattern": pattern})}
    return option(None, allowed=allowed, meaning=meaning, reason="only the owner knows it", fragment=fragment)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """``[statement]``."""

    title: str | None = _text_of_statement(
        "What the data set is called; by default the stream's name.",
    )
    description: str | None = _text_of_statement(
        "What the data are about.",
    )
    publisher: str | None = _text_of_statement(
        "Who publishes the data.",
    )
    contact: str | None = _text_of_statement(
        "Whom to ask.",
    )
    decided_by: str | None = _text_of_statement(
        "Who decided on the budget, and when.",
    )
    reason: str | None = _text_of_statement(
        "Why this budget and this unit.",
    )
    version: str | None = _text_of_statement(
        "Version of the statement.",
    )
    license: str | None = _text_of_statement(
        "Licence of the data.",
        'an SPDX name such as "CC-BY-4.0", or an address in https://',
        LICENSE,
    )
    url: str | None = _text_of_statement(
        "Where the releases are.",
        "an address in http://, https:// or mailto:",
        WEB_ADDRESS,
    )


@dataclass(frozen=True, kw_only=True)
class StateKeys:
    """``[state]``: where the secret state is. A key is read when a store is opened, not before."""

    dir: Path = option(
        Path("state"),
        allowed="a folder outside of the output folder",
        meaning="The state's folder (mode 0700); `--state` overrides it.",
        reason="beside the configuration file",
        place="folder",
    )
    url: str | None = option(
        None,
        allowed="postgresql://user@host:5432/database, without a password",
        meaning="A PostgreSQL database for the store; reads PGHOST, PGPASSWORD and so on. `dir` keeps a witness "
        "against rollbacks.",
        reason="a file needs no server",
        read=partial(_given, "url", Section.server_url),
    )
    url_env: str | None = option(
        None,
        allowed="an environment variable",
        meaning="Holds the database's URL.",
        reason="a file needs no server",
        read=partial(_given, "url_env", Section.variable),
    )
    key_file: Path | None = option(
        None,
        allowed="a file of dpstream store key, outside of the state and output folders",
        meaning="Encrypts the store with this key (mode 0600); later by `dpstream store rekey --to`. "
        "Without the key the stream is lost.",
        reason="file modes protect the state",
    )
    key_env: str | None = option(
        None,
        allowed="an environment variable",
        meaning="Holds the key.",
        reason="file modes protect the state",
        read=partial(_given, "key_env", Section.variable),
    )

    def key(self) -> StateKey | None:
        """The key of the encrypted store, read now; None where it is not encrypted.

        Errors:
            ConfigError: the key is missing, is not a key, or other users may read it.
        """
        if self.key_file is not None:
            return StateKey.from_file(self.key_file)
        return None if self.key_env is None else StateKey.from_environment(self.key_env)


#: The sections whose keys are the same whatever runs.
DECLARED: Mapping[str, type[Any]] = {
    "": FileKeys,
    "stream": StreamKeys,
    "expect": ExpectKeys,
    "budget": BudgetKeys,
    "accuracy": Accuracy,
    "prior": PriorKeys,
    "discovery": DiscoveryKeys,
    "output": Output,
    "statement": Publication,
    "state": StateKeys,
    "base": BaseOptions,
}


@cache
def _declared(section: str) -> dict[str, Key]:
    return {row.name: row for row in keys_of_recipes(section, {"": DECLARED[section]})}


def keys_of(section: str) -> dict[str, Key]:
    """The keys of one section by name.

    >>> sorted(keys_of("budget"))
    ['account', 'delta', 'epsilon', 'horizon', 'rho']
    """
    if section == "mechanism":
        return _options(families())
    if section == "source":
        return rows_of_source(SOURCES.names())
    rows = dict(_declared(section)) if section in DECLARED else {}
    if section == "output":
        sinks = SINKS.names()
        rows["sink"] = replace(rows["sink"], allowed=", ".join(sinks), fragment=words(*sinks))
    return rows


def rows_of(section: str, table: Mapping[str, Any], mechanism: str = DEFAULT_MECHANISM) -> dict[str, Key]:
    """The keys that a section of a file is read by: of ``[mechanism]`` its family's, where it has no others (of
    ``mechanism`` where it names none), and of ``[source]`` its kind's."""
    if section == "mechanism":
        name = table.get("name", mechanism)
        own = _options([family_of(name)]) if name in mechanisms() else {}
        if own.keys() >= table.keys():
            return own
    if section == "source":
        return rows_of_source((table.get("kind"),))
    return keys_of(section)


def section_of(
    file: str,
    name: str,
    table: Mapping[str, Any] | None,
    folder: Path = Path(),
    mechanism: str = DEFAULT_MECHANISM,
    title: str = "",
) -> Section:
    """A section of a file, or its top level (name ``""``), before its values are read.

    Args:
        table: None where the file does not have it.
        folder: that paths are relative to.
        mechanism: whose options they are, where the table names no mechanism.
        title: what messages call it.

    Errors:
        ConfigError: no table, or an unknown key.
    """
    written, table = table is not None, {} if table is None else table
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"{name} = {shown(table)} has to be a table", where=file, allowed=f"a section [{name}]"
        )
    section = Section(file, name, table, rows_of(name, table, mechanism), folder, written, title=title)
    known = set(section.rows) if name else {*section.rows, *SECTIONS} - {""}
    for key in table:
        if key not in known:
            raise ConfigError(
                f"unknown key {key!r} ({shown(table[key])}){_belongs(name, key) or did_you_mean(key, known)}",
                where=section.place(),
                allowed=", ".join(sorted(known)),
            )
    return section


def _belongs(section: str, key: str) -> str:
    """Which other kinds of source have a key, as the end of a sentence; empty: none."""
    row = keys_of(section).get(key) if section == "source" else None
    kinds = () if row is None else row.mechanisms
    return f"; it belongs to kind = {' or '.join(map(json.dumps, kinds))} only" if kinds else ""


def _options(of: Iterable[Family]) -> dict[str, Key]:
    """``[mechanism]``: where several families have a key, the first one says what it means."""
    rows = {"name": _name()}
    for family in of:
        for key in family.keys:
            known = rows.get(key.name)
            mechanisms_with_it = () if known is None else known.mechanisms
            rows[key.name] = replace(known or key, mechanisms=(*mechanisms_with_it, *key.mechanisms))
    return rows


def _name() -> Key:
    return Key(
        "mechanism",
        "name",
        ", ".join(mechanisms()),
        DEFAULT_MECHANISM,
        "one measurement serves many steps",
        "Which mechanism runs; see the guide on choosing a method.",
        fragment=words(*mechanisms()),
    )
