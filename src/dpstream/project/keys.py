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
from dpstream.core.privacy.unit import Returns
from dpstream.families.registry import DEFAULT_MECHANISM, families, family_of, mechanisms
from dpstream.io.sinks.target import SINKS
from dpstream.io.sources.source_keys import SOURCES, rows_of_source
from dpstream.project.base import BaseOptions
from dpstream.project.reader import Section
from dpstream.stream.release.publishing import FULL_EVERY, Publishing, RecordKind, TableKind
from dpstream.stream.store.encryption import StateKey

SECTIONS: dict[str, str] = {
    "": "",
    "stream": "Who is protected, and what may be public.",
    "source": "Where the private rows are, and how they are cut into steps.",
    "schema": "What the columns may hold; public, written by the steward (see the schema's README).",
    "expect": "Public guesses about the table, from which `dpstream plan` predicts errors; published in every "
    "manifest, and part of what the stream is pinned to. Coarse values are enough: 1, 3, 10, 30, 100, ... They must "
    "not be computed from the private table.",
    "mechanism": "How the synthetic copy is made.",
    "budget": "What all releases together may cost one unit of protection.",
    "accuracy": "Which counts have to be most exact, and what is found out about errors; public.",
    "prior": "A public table that says what the private one may look like (see the guide on priors). It joins the "
    "measured counts that it is near to, and costs nothing of the budget.",
    "output": "Where releases go; public.",
    "statement": "What the owner says to readers in `dpstream statement` and its files for catalogues; public, and not "
    "part of what the stream is pinned to.",
    "state": "Where the stream's secret state is kept.",
    "base": "The last release of an earlier stream that this one begins with, and what becomes of its columns (see "
    "the guide on evolution). Without the section a stream begins empty.",
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


def _amount(key: str, read: Callable[[Any], Any], section: Section, *_: Any) -> Any:
    """A part of a budget; ``read`` refuses what no guarantee allows."""
    return section.amount(key, read) if section.has(key) else None


def _headline(section: Section, given: Any, earlier: Mapping[str, Any]) -> Headline:
    if not section.has("headline"):
        return ()
    marginals = section.raw("headline")
    if not isinstance(marginals, list) or not all(
        isinstance(names, list) and names and all(isinstance(name, str) for name in names)
        for names in marginals
    ):
        raise section.wrong("headline", f"{shown(marginals)} is no list of marginals")
    if not marginals:
        raise section.wrong("headline", "no marginal is named", "one marginal or more, or no headline")
    section.note("headline", ", ".join(" x ".join(names) for names in marginals), default=False)
    return tuple(tuple(names) for names in marginals)


def _public(section: Section, given: Any, earlier: Mapping[str, Any]) -> bool:
    if section.required("public") is not True:
        raise section.wrong(
            "public",
            f"{shown(section.raw('public'))} does not confirm that the prior is public",
            "true, as your word that everybody may know this file",
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


def _url(section: Section, given: Any, earlier: Mapping[str, Any]) -> str | None:
    return section.server_url("url") if section.has("url") else None


def _variable(key: str, section: Section, *_: Any) -> str | None:
    return section.variable(key) if section.has(key) else None


@dataclass(frozen=True, kw_only=True)
class FileKeys:
    """What stands above all sections."""

    format: int = option(
        1,
        allowed="1",
        meaning="Version of this file's format.",
        reason="the only format there is",
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
        allowed="1 to 200 printable characters",
        meaning="Name of the stream; it is published in every manifest.",
        fragment={**TEXT, "maxLength": 200},
    )
    unit: UnitName | None = option(
        None,
        allowed="event, event-replace, user; record, record-replace where records have keys; of a mechanism that "
        "follows people individual, individual-replace",
        shown="event; record of the mechanism census; individual where the mechanism follows people",
        meaning="Who is protected: one record at one step (`event`), or its values where the numbers of records "
        "are public (`event-replace`); all records of one user id (`user`, with `max_events` and `[source] "
        "user_column`). With `[source] key_column`: a record's whole stay in the table (`record`), or its "
        "values where it is public which keys are there (`record-replace`). Where the mechanism follows "
        "people: all that one person reports (`individual`), or its values where their number is public "
        "(`individual-replace`).",
        reason="batch sizes stay private unless the owner declares them public",
    )
    total: Literal["private", "public"] | None = option(
        None,
        shown="private",
        meaning="`public`: the owner declares the number of records of every step public. That switches the unit to "
        "`event-replace` (or `individual-replace`, or `record-replace`): a changed record then moves two cells, "
        "so the noise doubles.",
        reason="a number of records is information about people, too",
    )
    season: str | int | None = option(
        None,
        allowed="year, week, or a number of steps from 2 to 10,000",
        meaning="Public knowledge, with the mechanism pooled: what comes repeats itself after a year, a week (of a "
        "calendar), or so many steps. Columns and numbers of records may then follow a season, as far as "
        "noisy counts show one.",
        reason="nothing but the owner's knowledge says that a stream has a season",
        read=_season,
        fragment={"anyOf": [words("year", "week"), {**COUNT, "minimum": 2, "maximum": 10_000}]},
    )
    returns: Returns | None = option(
        None,
        shown="new",
        meaning="With unit = record: what a key is that comes back after it was absent. `new`: another record, with a "
        "loss of its own, so somebody whose key comes back often is protected less. `refuse`: the stream stops; "
        "the hashes of all keys that ever were there are kept, and a record is all that its key ever does.",
        reason="keys of records that left are forgotten, so nobody can tell that one comes back",
    )
    same_unit: str | None = option(
        None,
        allowed="a sentence of up to 500 printable characters",
        meaning="Why the unit is that of the streams which this one is added up with, in an account or under "
        '`[base]`, although other columns tell it, such as "person_id was renamed to pid". Manifests and '
        "the statement quote it. If it is wrong, the sums are.",
        reason="units that are told by different columns are taken for different ones",
        fragment={**TEXT, "maxLength": 500},
    )
    max_events: int | None = option(
        None,
        allowed="a number from 1 to 1000000, with unit = user",
        meaning="How many events (inserts and deletes together) of one user are counted over the whole life of the "
        "stream; further ones are left out. Each event gets its part of the budget: choose it from what a "
        "user typically does.",
        reason="it has to be written with the unit user, and means nothing without it",
        fragment={**COUNT, "maximum": 1_000_000},
    )


@dataclass(frozen=True, kw_only=True)
class ExpectKeys:
    """``[expect]``."""

    size: int | None = option(
        None,
        allowed="a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        shown="10 times records_per_step, or 1000",
        meaning="About how many records the table holds, as anybody may know or guess who never saw it; of a panel "
        "the number of people; of a table that only grows its last size, which takes a horizon (or say "
        "records_per_step).",
        reason="only its ratio to records_per_step counts, and three times too large or too small makes cells 4 to "
        "15 % worse",
    )
    records_per_step: int | None = option(
        None,
        allowed="a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        shown="a tenth of size",
        meaning="About how many records come in a step, as anybody may know or guess who never saw the table. Not for "
        "panels, where everybody reports in every period.",
        reason="it says how long records stay, and so how often they are counted again; three times too large or too "
        "small makes cells 4 to 15 % worse",
    )
    order: Literal["mixed", "sorted"] = option(
        "mixed",
        allowed="mixed, sorted (not where records or people are followed)",
        meaning="How records come. `sorted`: by columns of the table, such as place after place, so that one step "
        "says little of the next one, and `plan --compare` invents such streams.",
        reason="most streams come in the order of time, and neighbouring steps hold like records",
    )
    varies: float = option(
        VARIES,
        allowed="a number from 0 to 10 (not where people are followed)",
        meaning="By which share the number of records that come differs from one step to the next, as a rule. From "
        "it plan predicts how far off the number of records is between measurements.",
        reason="months of real streams differ by .2 to .5",
        fragment={"type": "number", "minimum": 0, "maximum": 10},
    )


@dataclass(frozen=True, kw_only=True)
class BudgetKeys:
    """``[budget]``."""

    epsilon: PureDP | None = option(
        None,
        allowed='an exact positive number up to 1000, such as "1" or "0.5"',
        meaning="Pure differential privacy; with `delta`, approximate: converted to the largest rho within it.",
        reason="one of epsilon and rho has to be written",
        read=partial(_amount, "epsilon", PureDP.of),
        fragment=NUMBER,
    )
    rho: ZCDP | None = option(
        None,
        allowed="an exact positive number",
        meaning="Zero-concentrated differential privacy.",
        reason="one of epsilon and rho has to be written",
        read=partial(_amount, "rho", ZCDP.of),
        fragment=NUMBER,
    )
    delta: Fraction | None = option(
        None,
        allowed='an exact number between 0 and 1, such as "1e-9", together with epsilon',
        meaning="The probability left out of an (epsilon, delta) guarantee.",
        reason="without delta the guarantee has no exception",
        read=partial(_amount, "delta", partial(exact_amount, where="delta")),
        fragment=NUMBER,
    )
    horizon: int | None = option(
        None,
        allowed="none, or a number of steps from 1",
        meaning="Most steps the stream may have; counters with a horizon are tuned to it. Where the mechanism follows "
        "people it is needed: the noise is made for so many periods.",
        reason="the mechanisms for tables run without end at the same cost",
        word="none",
    )
    account: Path | None = option(
        None,
        allowed="a file that dpstream ledger account create made, outside of state and output",
        meaning="The account in which several streams on one private source add up. A stream is charged its whole "
        "budget there when it is started, and refused where the account's limit would be passed.",
        reason="a single stream on a private source needs no sum",
    )


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """``[accuracy]``."""

    headline: Headline = option(
        (),
        allowed='a list of marginals such as [["zip"], ["zip", "cause"]], with name = "pooled" or "census"',
        meaning="Marginals that are measured by themselves whenever anything is, so that their counts have exact "
        "errors. The synthetic tables keep to them as far as noise allows.",
        reason="every number that is measured for itself takes budget from the others",
        read=_headline,
        shown="none",
        fragment={"type": "array", "items": {**TEXTS, "minItems": 1}, "minItems": 1},
    )
    headline_share: Fraction = option(
        HEADLINE_SHARE,
        allowed="an exact number between 0 and 1, with a headline",
        meaning="Share of the budget for the headlines, in equal parts.",
        reason="the headlines stand out, and the rest of the table has most of the budget",
        needs=("headline",),
    )
    simulate: int | None = option(
        None,
        allowed="none, or a number of runs from 2 to 1000; 20 are usual",
        meaning="How many runs find out by simulation, after steps 1, 2, 4, 8, ..., how far the releases are off. "
        "Results are in errors/ beside the releases. They read public files only and cost no budget.",
        reason="it takes as many runs of the whole stream; dpstream errors does the same when it is called",
        word="none",
        fragment={**COUNT, "minimum": 2, "maximum": 1000},
    )
    simulate_seconds: int = option(
        600,
        allowed="a whole number from 1, with simulate",
        meaning="CPU seconds after which a simulation begins no further run; at least two are done. Public: it "
        "depends on releases only.",
        reason="steps should not wait for long",
        needs=("simulate",),
    )


@dataclass(frozen=True, kw_only=True)
class PriorKeys:
    """``[prior]``."""

    file: Path = option(
        allowed='a file of a known format (.csv, .parquet, .ndjson) relative to this one, with name = "pooled" or '
        '"census"',
        meaning="The public table: records, or counts with `weight`, in columns and values of the schema. Other "
        "columns are left out. The hash of the file is part of what the stream is pinned to.",
    )
    weight: str | None = option(
        None,
        allowed="a column of numbers from 0 that is not in the schema",
        shown="every row is one record",
        meaning="The column of the file that says how many records a row stands for.",
        reason="most public tables are lists of records",
    )
    public: bool = option(
        allowed="true",
        meaning="Your word that the file is public and was not made from this stream's private records in any "
        "other way than by a release whose cost is accounted for.",
        read=_public,
        fragment={"const": True},
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
        meaning="How many full tables are kept; manifests are always kept.",
        reason="a release that readers use should not vanish",
        word="all",
    )
    records: RecordKind | None = option(
        None,
        shown="fresh",
        meaning="Whether a table is drawn anew at every step (`fresh`), or changed as little as the new model allows "
        "(`persistent`): records then have a `record_id` and stay until the model has no place for them. "
        "Synthetic people who are followed are always `persistent`.",
        reason="every table is then a sample of its own; synthetic people who are followed always persist",
    )
    publish: TableKind = option(
        "full",
        allowed="full, changes, both (the last two with records = persistent)",
        meaning="What is published of a step: its table, the changes against the step before, or both.",
        reason="a table can be read by itself",
    )
    full_every: int = option(
        FULL_EVERY,
        allowed="a number of steps from 1",
        meaning='With `publish = "changes"`: a full table at the first step, and again after at most this many steps.',
        reason="a reader then puts at most ten files together",
        needs=("publish", "changes"),
    )
    may_change: Literal["any"] | tuple[str, ...] | None = option(
        None,
        allowed="any, or a list of columns; [] for none",
        shown="any with the unit record, else none; a feed that has begun stays as it is",
        meaning='With `records = "persistent"`: the columns in which a synthetic record may change and keep its '
        "`record_id`, if most of its columns stay. The changes then have the operation `update`. It says "
        "that the model moved, not that a private record was updated.",
        reason="readers of a feed without updates are not given any unasked",
        read=_may_change,
        fragment={"anyOf": [words("any"), TEXTS]},
    )
    approve: bool = option(
        False,
        meaning="`true`: committed steps are held until `dpstream approve` publishes them. Looking at a table before "
        "approving it is free; deciding by looking at private data is not covered by the guarantee.",
        reason="a step is published as soon as it is committed",
    )
    measurements: bool = option(
        True,
        meaning="Whether the noisy counts that a step measured are published beside its table, in "
        "`measurements.ndjson`. They stay when the table expires or is withdrawn: sums of later steps rest "
        "on them.",
        reason="the guarantee covers them already, and only with them can a reader compute errors",
    )
    sink: str = option(
        "folder",
        meaning="Where tables go besides the folder, which always has them: the newest one to DuckDB or "
        "PostgreSQL, the same files to a `bucket`, or every one as NDJSON to standard output. With `spark` "
        "executors draw each table as a partition of a table there, and the folder has none.",
        reason="files need no program to be read",
        read=_sink,
        words=("folder", "duckdb", "postgresql", "bucket", "stdout", "spark"),
    )
    database: str | None = option(
        None,
        allowed="a DuckDB file or (spark) a folder outside of the state, a PostgreSQL connection string without a "
        "password, or (bucket) a URL such as s3://bucket/releases",
        shown="not set; releases.duckdb for duckdb, tables for spark",
        meaning='The database of `sink = "duckdb"` or `"postgresql"`; of `"bucket"` where the objects go; of '
        '`"spark"` the folder of tables, which driver and executors see under one path.',
        reason="needed with sink = postgresql or bucket; passwords belong into PGPASSWORD or ~/.pgpass",
    )
    table: str = option(
        "synthetic",
        read=_table,
        allowed="a name of letters, digits and underscores",
        meaning="Name of the table in that database; `<table>_steps` beside it says which step it holds. With "
        "`spark` a folder with a partition `step=...` for each step.",
        reason="it says what it is",
        fragment={**TEXT, "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,49}$"},
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
            may_change=self.may_change,
        )


def _text_of_statement(allowed: str, meaning: str, pattern: str | None = None) -> Any:
    """A text that only the owner knows."""
    fragment = {**TEXT, **({} if pattern is None else {"pattern": pattern})}
    return option(None, allowed=allowed, meaning=meaning, reason="only the owner knows it", fragment=fragment)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """``[statement]``."""

    title: str | None = _text_of_statement(
        'a text, such as "Evictions"',
        "What the data set is called on its pages and in catalogues; the stream's name if it is not set.",
    )
    description: str | None = _text_of_statement(
        'a text, such as "Eviction notices of a city, weekly"',
        "What the data are about, in a sentence or two.",
    )
    publisher: str | None = _text_of_statement(
        'a text, such as "Statistics office of Example"',
        "Who publishes the data.",
    )
    contact: str | None = _text_of_statement(
        'a text, such as "data@example.org"',
        "Whom to ask.",
    )
    decided_by: str | None = _text_of_statement(
        'a text, such as "Data protection board, 3 March 2026"',
        "Who decided on epsilon (or rho), and when.",
    )
    reason: str | None = _text_of_statement(
        'a text, such as "Counts of districts have to be right to 5 %"',
        "Why this budget and this unit.",
    )
    version: str | None = _text_of_statement(
        'a text, such as "1.2"',
        "Version of the statement.",
    )
    license: str | None = _text_of_statement(
        'the SPDX name of a usual licence for data, such as "CC-BY-4.0", or an address in https://',
        "The licence of the released data.",
        LICENSE,
    )
    url: str | None = _text_of_statement(
        "an address in http://, https:// or mailto:",
        "Where the releases can be had.",
        WEB_ADDRESS,
    )


@dataclass(frozen=True, kw_only=True)
class StateKeys:
    """``[state]``: where the secret state is. A key is read when a store is opened, not before."""

    dir: Path = option(
        Path("state"),
        allowed="a folder outside of the output folder",
        meaning="Where the secret state is kept (mode 0700). `--state` of a command takes its place.",
        reason="beside the configuration file, never among the releases: it holds private counts",
        place="folder",
    )
    url: str | None = option(
        None,
        allowed="postgresql://user@host:5432/database, without a password",
        meaning="A PostgreSQL database that keeps the store; the state folder then holds the witness against a "
        "database that is rolled back. What the URL leaves open comes from PGHOST, PGPASSWORD, PGPASSFILE, "
        "PGSERVICE and so on.",
        reason="a file in the state folder needs no server",
        read=_url,
    )
    url_env: str | None = option(
        None,
        allowed="the name of an environment variable",
        meaning="The environment variable that holds the URL of the database.",
        reason="a URL that holds a password does not belong into a public file",
        read=partial(_variable, "url_env"),
    )
    key_file: Path | None = option(
        None,
        allowed="a file of dpstream store key, outside of the state and output folders",
        meaning="Encrypts what is private in the store with the key in this file (mode 0600). A store that is there "
        "already is encrypted by `dpstream store rekey --to`. Whoever loses the key has lost the stream.",
        reason="the state is protected by its file modes; a key that lies beside it would add nothing",
    )
    key_env: str | None = option(
        None,
        allowed="the name of an environment variable",
        meaning="The environment variable that holds the key, instead of `key_file`.",
        reason="a key does not belong into a public file",
        read=partial(_variable, "key_env"),
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
            f"{name} = {shown(table)} is not a table", where=file, allowed=f"a section [{name}]"
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
            rows[key.name] = key if known is None else _joined(known, key)
    return rows


def _joined(one: Key, other: Key) -> Key:
    return replace(one, mechanisms=(*one.mechanisms, *other.mechanisms))


def _name() -> Key:
    return Key(
        "mechanism",
        "name",
        ", ".join(mechanisms()),
        DEFAULT_MECHANISM,
        "one measurement serves many steps, so there is less noise in each than where every step is measured",
        "Which mechanism runs (see the guide on choosing one).",
        fragment=words(*mechanisms()),
    )
