"""Every section and key of ``dpstream.toml``, in one table: read, documented and explained from here.

The options of mechanisms come from their families, which are loaded only where their options are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dpstream.core.contracts import HEADLINE_SHARE, Family, Key
from dpstream.core.contracts.expectations import VARIES
from dpstream.core.contracts.recipe_options import COUNT, NUMBER, TEXT, TEXTS, words
from dpstream.families.registry import DEFAULT_MECHANISM, families, family_of, mechanisms
from dpstream.io.sinks.target import SINKS
from dpstream.io.sources.source_keys import SOURCES, rows_of_source
from dpstream.stream.release.publishing import FULL_EVERY

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

_SHARES = (
    'one label, a list of labels (even shares), or labels with exact shares such as {A = "0.6", B = "0.4"}'
)
_NOTHING = "columns and labels that are called alike are alike"
#: What a link of a public page or record may lead to: no script, and no file of its reader.
WEB_ADDRESS = r"^(https?://|mailto:)[^\s<>\"{}|\\^`]+$"
#: A licence: the SPDX name of one that is made for data or for texts, or where any other one can be read.
LICENSE = (
    r"^(https://[^\s<>\"{}|\\^`]+|CC0-1\.0|CC-BY(-NC)?(-SA|-ND)?-(3\.0|4\.0)|PDDL-1\.0|ODC-By-1\.0|ODbL-1\.0"
    r"|CDLA-(Permissive-1\.0|Permissive-2\.0|Sharing-1\.0)|DL-DE-(BY|ZERO)-2\.0|etalab-2\.0|NLOD-[12]\.0"
    r"|OGL-(UK-[123]\.0|Canada-2\.0)|MIT|Apache-2\.0)$"
)
_NOT_SET = "only the owner knows it"


FLAG: Mapping[str, Any] = {"type": "boolean"}


def _row(
    name: str,
    meaning: str,
    allowed: str | Mapping[str, Any],
    reason: str,
    default: str | None = "not set",
    *,
    fragment: Mapping[str, Any] = TEXT,
) -> Key:
    """A key; ``_KEYS`` says of which section.

    Args:
        allowed: in words, or the fragment of JSON Schema that lists all choices.
        default: in words; None: the key has to be written.
    """
    if not isinstance(allowed, str):
        fragment = allowed
        allowed = "true, false" if allowed is FLAG else ", ".join(map(str, allowed["enum"]))
    return Key("", name, allowed, default, reason, meaning, fragment=fragment)


_FILE = (_row("format", "Version of this file's format.", words(1), "the only format there is", "1"),)
_STREAM = (
    _row(
        "name",
        "Name of the stream; it is published in every manifest.",
        "1 to 200 printable characters",
        "",
        None,
        fragment={**TEXT, "maxLength": 200},
    ),
    _row(
        "unit",
        "Who is protected: one record inserted or deleted at one step (`event`); one record's value where "
        "the numbers of records are public (`event-replace`); or all records of one user id together (`user`, "
        "with `max_events` and `[source] user_column`). Where records have keys (`[source] key_column`), a "
        "record's whole stay in the table, with its insert, all its updates and its delete (`record`); or its "
        "values alone, where it is public which keys are there when (`record-replace`). Where the mechanism follows "
        "people, everything that one person reports: added or removed (`individual`), or replaced, with the number of "
        "people public (`individual-replace`).",
        "event, event-replace, user; record, record-replace where records have keys; of a mechanism that follows "
        "people individual, individual-replace",
        "batch sizes stay private unless the owner declares them public",
        "event; record of the mechanism census; individual where the mechanism follows people",
        fragment=words(
            "event", "event-replace", "user", "record", "record-replace", "individual", "individual-replace"
        ),
    ),
    _row(
        "total",
        "`public`: the owner declares the number of records of every step public. That switches the unit to "
        "`event-replace` (or `individual-replace`, or `record-replace`): a changed record "
        "then moves two cells, so the noise doubles.",
        words("private", "public"),
        "a number of records is information about people, too",
        "private",
    ),
    _row(
        "season",
        "Public knowledge, with the mechanism pooled: what comes repeats itself after a year, a week (where steps are "
        "periods of a calendar), or so many steps. Columns and numbers of records may then follow a season, as far as "
        "noisy counts show one: while steps are put together, and in tables between two measurements.",
        "year, week, or a number of steps from 2 to 10,000",
        "nothing but the owner's knowledge says that a stream has a season",
        fragment={"anyOf": [words("year", "week"), {"type": "integer", "minimum": 2, "maximum": 10_000}]},
    ),
    _row(
        "returns",
        "With unit = record: what a key is that comes back after it was absent. `new`: another record, with a loss of "
        "its own, so somebody whose key comes back often is protected less. `refuse`: the stream stops; the hashes "
        "of all keys that ever were there are kept, and a record is all that its key ever does.",
        words("new", "refuse"),
        "keys of records that left are forgotten, so nobody can tell that one comes back",
        "new",
    ),
    _row(
        "same_unit",
        "Why the unit is the same as that of the streams which this one is added up with, in an account or under "
        '`[base]`, although other columns or rules tell it, such as "person_id was renamed to pid". It is public: '
        "manifests and the statement quote it. If it is wrong, the sums are.",
        "a sentence of up to 500 printable characters",
        "units that are told by different columns are taken for different ones",
        fragment={**TEXT, "maxLength": 500},
    ),
    _row(
        "max_events",
        "How many events (inserts and deletes together) of one user are counted over the whole life of the stream; "
        "all further ones are left out. Each event gets its part of the budget, so choose it from what a user "
        "typically does, not from the largest user.",
        "a number from 1 to 1000000, with unit = user",
        "it has to be written with the unit user, and means nothing without it",
        fragment={**COUNT, "maximum": 1_000_000},
    ),
)
_EXPECT = (
    _row(
        "size",
        "About how many records the table holds, as anybody may know or guess who never saw it; of a panel the number "
        "of people; of a table that only grows its last size, which takes a horizon (or say records_per_step).",
        "a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        "only its ratio to records_per_step counts, and three times too large or too small makes cells 4 to 15 % worse",
        "10 times records_per_step, or 1000",
        fragment=COUNT,
    ),
    _row(
        "records_per_step",
        "About how many records come in a step, as anybody may know or guess who never saw the table. Not for panels, "
        "where everybody reports in every period.",
        "a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        "it says how long records stay, and so how often they are counted again; three times too large or too small "
        "makes cells 4 to 15 % worse",
        "a tenth of size",
        fragment=COUNT,
    ),
    _row(
        "order",
        "How records come. `sorted`: sorted by columns of the table, such as place after place, so that each step "
        "holds records of few kinds and a later one holds others. Then what one step holds says little of the next "
        "one, and `plan --compare` invents such streams.",
        "mixed, sorted (not where records or people are followed)",
        "most streams come in the order of time, and neighbouring steps hold like records",
        "mixed",
        fragment=words("mixed", "sorted"),
    ),
    _row(
        "varies",
        "By which share the number of records that come differs from one step to the next, as a rule. Where several "
        "steps are measured together, and between censuses, plan predicts from it how far off the number of records "
        "is.",
        "a number from 0 to 10 (not where people are followed)",
        "months of real streams differ by .2 to .5",
        f"{VARIES:g}",
        fragment={"type": "number", "minimum": 0, "maximum": 10},
    ),
)
_BUDGET = (
    _row(
        "epsilon",
        "Pure differential privacy; with `delta`, approximate: converted to the largest rho within it.",
        'an exact positive number up to 1000, such as "1" or "0.5"',
        "one of epsilon and rho has to be written",
        fragment=NUMBER,
    ),
    _row(
        "rho",
        "Zero-concentrated differential privacy.",
        "an exact positive number",
        "one of epsilon and rho has to be written",
        fragment=NUMBER,
    ),
    _row(
        "delta",
        "The probability left out of an (epsilon, delta) guarantee.",
        'an exact number between 0 and 1, such as "1e-9", together with epsilon',
        "without delta the guarantee has no exception",
        fragment=NUMBER,
    ),
    _row(
        "horizon",
        "Most steps the stream may have; counters with a horizon are tuned to it. Where the mechanism follows "
        "people it is needed: the noise is made for so many periods.",
        "none, or a number of steps from 1",
        "the mechanisms for tables run without end at the same cost",
        "none",
        fragment={"anyOf": [words("none"), COUNT]},
    ),
    _row(
        "account",
        "The account in which several streams on one private source add up. A stream is charged its whole budget "
        "there when it is started, and refused where the account's limit would be passed.",
        "a file that dpstream ledger account create made, outside of state and output",
        "a single stream on a private source needs no sum",
    ),
)
_ACCURACY = (
    _row(
        "headline",
        "Marginals that are measured by themselves whenever anything is (at the end of every group of steps, at every "
        "census), so that their counts have exact errors. The synthetic tables keep to them as far as noise allows.",
        'a list of marginals such as [["zip"], ["zip", "cause"]], with name = "pooled" or "census"',
        "every number that is measured for itself takes budget from the others",
        "none",
        fragment={"type": "array", "items": {**TEXTS, "minItems": 1}, "minItems": 1},
    ),
    _row(
        "headline_share",
        "Share of the budget for the headlines, in equal parts.",
        "an exact number between 0 and 1, with a headline",
        "the headlines stand out, and the rest of the table has most of the budget",
        str(HEADLINE_SHARE),
        fragment=NUMBER,
    ),
    _row(
        "simulate",
        "How many runs find out by simulation, after steps 1, 2, 4, 8, ..., how far the releases are off. Results are "
        "in errors/ beside the releases. They read public files only and cost no budget.",
        "none, or a number of runs from 2 to 1000; 20 are usual",
        "it takes as many runs of the whole stream; dpstream errors does the same when it is called",
        "none",
        fragment={"anyOf": [words("none"), {**COUNT, "minimum": 2, "maximum": 1000}]},
    ),
    _row(
        "simulate_seconds",
        "CPU seconds after which a simulation begins no further run; at least two are done. Public: it depends on "
        "releases only.",
        "a whole number from 1, with simulate",
        "steps should not wait for long",
        "600",
        fragment=COUNT,
    ),
)
_PRIOR = (
    _row(
        "file",
        "The public table: records, or counts with `weight`, in some or all columns of the schema. Its columns have "
        "the schema's names, its values the schema's values. Other columns are left out. The hash of the file is part "
        "of what the stream is pinned to.",
        'a file of a known format (.csv, .parquet, .ndjson) relative to this one, with name = "pooled" or "census"',
        "",
        None,
    ),
    _row(
        "weight",
        "The column of the file that says how many records a row stands for.",
        "a column of numbers from 0 that is not in the schema",
        "most public tables are lists of records",
        "every row is one record",
    ),
    _row(
        "public",
        "Your word that the file is public and was not made from this stream's private records in any other way than "
        "by a release whose cost is accounted for.",
        "true",
        "",
        None,
        fragment={"const": True},
    ),
)
_OUTPUT = (
    _row("dir", "Where releases are published.", "a folder", "beside the configuration file", "releases"),
    _row(
        "format",
        "Format of the released tables.",
        words("parquet", "csv"),
        "it keeps the columns' types",
        "parquet",
    ),
    _row(
        "keep",
        "How many full tables are kept; manifests are always kept.",
        "all, or a number of tables from 1",
        "a release that readers use should not vanish",
        "all",
        fragment={"anyOf": [words("all"), COUNT]},
    ),
    _row(
        "records",
        "Whether a table is drawn anew at every step (`fresh`), or changed as little as the new model allows "
        "(`persistent`): records then have a `record_id` and stay until the model has no place for them. "
        "Synthetic people who are followed are always `persistent`.",
        words("fresh", "persistent"),
        "every table is then a sample of its own; synthetic people who are followed always persist",
        "fresh",
    ),
    _row(
        "publish",
        "What is published of a step: its table, the changes against the step before, or both.",
        "full, changes, both (the last two with records = persistent)",
        "a table can be read by itself",
        "full",
        fragment=words("full", "changes", "both"),
    ),
    _row(
        "full_every",
        'With `publish = "changes"`: a full table at the first step, and again after at most this many steps.',
        "a number of steps from 1",
        "a reader then puts at most ten files together",
        str(FULL_EVERY),
        fragment=COUNT,
    ),
    _row(
        "may_change",
        'With `records = "persistent"`: the columns in which a synthetic record may change and keep its `record_id`, '
        "if more than half of its columns stay as they are. The changes then have the operation `update` beside "
        "`delete` and `insert`. It says that the model moved, not that a private record was updated.",
        "any, or a list of columns; [] for none",
        "readers of a feed without updates are not given any unasked",
        "any with the unit record, else none; a feed that has begun stays as it is",
        fragment={"anyOf": [words("any"), TEXTS]},
    ),
    _row(
        "approve",
        "`true`: committed steps are held until `dpstream approve` publishes them. Looking at a table before "
        "approving it is free; deciding by looking at private data is not covered by the guarantee.",
        FLAG,
        "a step is published as soon as it is committed",
        "false",
    ),
    _row(
        "measurements",
        "Whether the noisy counts that a step measured are published beside its table, in `measurements.ndjson`. They "
        "stay when the table expires or is withdrawn: sums of later steps rest on them.",
        FLAG,
        "the guarantee covers them already, and only with them can a reader compute errors",
        "true",
    ),
    _row(
        "sink",
        "Where tables go besides the folder, which always has them: the newest one as a table of a DuckDB file or "
        "of a PostgreSQL database, the same files as objects of a `bucket`, or every one as NDJSON on standard output. "
        "With `spark` the folder has no tables: executors of Spark draw each one as a partition of a table of its own. "
        "All but standard output is read back before a step counts as published.",
        words("folder", "duckdb", "postgresql", "bucket", "stdout", "spark"),
        "files need no program to be read",
        "folder",
    ),
    _row(
        "database",
        'The database of `sink = "duckdb"` or `"postgresql"`; of `"bucket"` where the objects go; of `"spark"` the '
        "folder of tables, which driver and executors see under one path.",
        "a DuckDB file or (spark) a folder outside of the state, a PostgreSQL connection string without a password, or "
        "(bucket) a URL such as s3://bucket/releases",
        "needed with sink = postgresql or bucket; passwords belong into PGPASSWORD or ~/.pgpass",
        "not set; releases.duckdb for duckdb, tables for spark",
    ),
    _row(
        "table",
        "Name of the table in that database; `<table>_steps` beside it says which step it holds. With `spark` a folder "
        "with a partition `step=...` for each step.",
        "a name of letters, digits and underscores",
        "it says what it is",
        "synthetic",
    ),
)
_STATEMENT = (
    _row(
        "title",
        "What the data set is called on its pages and in catalogues; the stream's name if it is not set.",
        'a text, such as "Evictions"',
        _NOT_SET,
    ),
    _row(
        "description",
        "What the data are about, in a sentence or two.",
        'a text, such as "Eviction notices of a city, weekly"',
        _NOT_SET,
    ),
    _row("publisher", "Who publishes the data.", 'a text, such as "Statistics office of Example"', _NOT_SET),
    _row("contact", "Whom to ask.", 'a text, such as "data@example.org"', _NOT_SET),
    _row(
        "decided_by",
        "Who decided on epsilon (or rho), and when.",
        'a text, such as "Data protection board, 3 March 2026"',
        _NOT_SET,
    ),
    _row(
        "reason",
        "Why this budget and this unit.",
        'a text, such as "Counts of districts have to be right to 5 %"',
        _NOT_SET,
    ),
    _row("version", "Version of the statement.", 'a text, such as "1.2"', _NOT_SET),
    _row(
        "license",
        "The licence of the released data.",
        'the SPDX name of a usual licence for data, such as "CC-BY-4.0", or an address in https://',
        _NOT_SET,
        fragment={**TEXT, "pattern": LICENSE},
    ),
    _row(
        "url",
        "Where the releases can be had.",
        "an address in http://, https:// or mailto:",
        _NOT_SET,
        fragment={**TEXT, "pattern": WEB_ADDRESS},
    ),
)
_STATE = (
    _row(
        "dir",
        "Where the secret state is kept (mode 0700). `--state` of a command takes its place.",
        "a folder outside of the output folder",
        "beside the configuration file, never among the releases: it holds private counts",
        "state",
    ),
    _row(
        "url",
        "A PostgreSQL database that keeps the store, in a schema of the stream's own; the state folder then "
        "holds the witness against a database that is rolled back. What the URL leaves open comes from "
        "PGHOST, PGPASSWORD, PGPASSFILE, PGSERVICE and so on.",
        "postgresql://user@host:5432/database, without a password",
        "a file in the state folder needs no server",
    ),
    _row(
        "url_env",
        "The environment variable that holds the URL of the database.",
        "the name of an environment variable",
        "a URL that holds a password does not belong into a public file",
    ),
    _row(
        "key_file",
        "Encrypts what is private in the store with the key in this file (mode 0600). A store that is there already "
        "is encrypted by `dpstream store rekey --to`. Whoever loses the key has lost the stream.",
        "a file of dpstream store key, outside of the state and output folders",
        "the state is protected by its file modes; a key that lies beside it would add nothing",
    ),
    _row(
        "key_env",
        "The environment variable that holds the key, instead of `key_file`.",
        "the name of an environment variable",
        "a key does not belong into a public file",
    ),
)
_BASE = (
    _row(
        "releases",
        "The earlier stream: its public folder. It is read when the stream is started, and not needed afterwards.",
        "the folder of the earlier stream's releases, relative to this file",
        "",
        None,
    ),
    _row(
        "step",
        "Which release the stream begins with. Steps after it have to be withdrawn ones.",
        "the number of its last published step",
        "what came in a later step would be lost",
        "its last one",
        fragment=COUNT,
    ),
    _row(
        "rename",
        "Columns that had another name.",
        'columns of this schema with their names there, such as {postcode = "zip"}',
        _NOTHING,
        "none",
        fragment={"type": "object", "additionalProperties": TEXT},
    ),
    _row(
        "map",
        "`[base.map.COLUMN]`: what becomes of the old values (or bins) that are not called alike: renamed, merged, "
        "or split.",
        f'for a column of this schema: its old labels, each with {_SHARES}; "null" is the null of a column that '
        "declared other and missing and shows both as null",
        _NOTHING,
        "equal labels",
        fragment={"type": "object"},
    ),
    _row(
        "fill",
        "What the old records get in a new column.",
        f"for a column of this schema: {_SHARES}",
        _NOTHING,
        "none",
        fragment={"type": "object"},
    ),
    _row(
        "drop",
        "Its columns that this stream does not have any more.",
        "a list of the earlier stream's columns",
        "a column does not vanish by mistake",
        "none",
        fragment=TEXTS,
    ),
    _row(
        "config",
        "Tells `dpstream evaluate` where the private records of the earlier period are. When the stream is started, it "
        "is refused while steps of the earlier one wait to be published.",
        "the earlier stream's configuration file, relative to this one",
        "only an evaluation against the private truth needs it",
    ),
)
_KEYS: Mapping[str, tuple[Key, ...]] = {
    "": _FILE,
    "stream": _STREAM,
    "expect": _EXPECT,
    "budget": _BUDGET,
    "accuracy": _ACCURACY,
    "prior": _PRIOR,
    "output": _OUTPUT,
    "statement": _STATEMENT,
    "state": _STATE,
    "base": _BASE,
}


def keys_of(section: str) -> dict[str, Key]:
    """The keys of one section by name.

    >>> sorted(keys_of("budget"))
    ['account', 'delta', 'epsilon', 'horizon', 'rho']
    """
    if section == "mechanism":
        return _options(families())
    if section == "source":
        return rows_of_source(SOURCES.names())
    rows = {row.name: replace(row, section=section) for row in _KEYS.get(section, ())}
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
