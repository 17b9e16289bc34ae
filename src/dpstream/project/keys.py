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
from dpstream.core.contracts.registry import DEFAULT_MECHANISM, families, family_of, mechanisms
from dpstream.io.sinks.feed import SINKS
from dpstream.io.sources.source_keys import SOURCES, rows_of_source
from dpstream.stream.release.publishing import FULL_EVERY

ACCURACY_KEYS: tuple[Key, ...] = (
    Key(
        "accuracy",
        "headline",
        'a list of marginals such as [["zip"], ["zip", "cause"]], with name = "pooled" or "census"',
        "none",
        "every number that is measured for itself takes budget from the others",
        "Marginals that are measured by themselves whenever anything is (at the end of every group of steps, at every "
        "census), so that their counts have exact errors. The synthetic tables keep to them as far as noise allows.",
        fragment={"type": "array", "items": {**TEXTS, "minItems": 1}, "minItems": 1},
    ),
    Key(
        "accuracy",
        "headline_share",
        "an exact number between 0 and 1, with a headline",
        str(HEADLINE_SHARE),
        "the headlines stand out, and the rest of the table has most of the budget",
        "Share of the budget for the headlines, in equal parts.",
        fragment=NUMBER,
    ),
    Key(
        "accuracy",
        "simulate",
        "none, or a number of runs from 2 to 1000; 20 are usual",
        "none",
        "it takes as many runs of the whole stream; dpstream errors does the same when it is called",
        "How many runs find out by simulation, after steps 1, 2, 4, 8, ..., how far the releases are off. Results are "
        "in errors/ beside the releases. They read public files only and cost no budget.",
        fragment={"anyOf": [words("none"), {**COUNT, "minimum": 2, "maximum": 1000}]},
    ),
    Key(
        "accuracy",
        "simulate_seconds",
        "a whole number from 1, with simulate",
        "600",
        "steps should not wait for long",
        "CPU seconds after which a simulation begins no further run; at least two are done. Public: it depends on "
        "releases only.",
        fragment=COUNT,
    ),
)


_SHARES = (
    'one label, a list of labels (even shares), or labels with exact shares such as {A = "0.6", B = "0.4"}'
)
_NOTHING = "columns and labels that are called alike are alike"

BASE_KEYS: tuple[Key, ...] = (
    Key(
        "base",
        "releases",
        "the folder of the earlier stream's releases, relative to this file",
        None,
        "",
        "The earlier stream: its public folder. It is read when the stream is started, and not needed afterwards.",
        fragment=TEXT,
    ),
    Key(
        "base",
        "step",
        "the number of its last published step",
        "its last one",
        "what came in a later step would be lost",
        "Which release the stream begins with. Steps after it have to be withdrawn ones.",
        fragment=COUNT,
    ),
    Key(
        "base",
        "rename",
        'columns of this schema with their names there, such as {postcode = "zip"}',
        "none",
        _NOTHING,
        "Columns that had another name.",
        fragment={"type": "object", "additionalProperties": TEXT},
    ),
    Key(
        "base",
        "map",
        f'for a column of this schema: its old labels, each with {_SHARES}; "null" is the null of a column that '
        "declared other and missing and shows both as null",
        "equal labels",
        _NOTHING,
        "`[base.map.COLUMN]`: what becomes of the old values (or bins) that are not called alike: renamed, merged, "
        "or split.",
        fragment={"type": "object"},
    ),
    Key(
        "base",
        "fill",
        f"for a column of this schema: {_SHARES}",
        "none",
        _NOTHING,
        "What the old records get in a new column.",
        fragment={"type": "object"},
    ),
    Key(
        "base",
        "drop",
        "a list of the earlier stream's columns",
        "none",
        "a column does not vanish by mistake",
        "Its columns that this stream does not have any more.",
        fragment=TEXTS,
    ),
    Key(
        "base",
        "config",
        "the earlier stream's configuration file, relative to this one",
        "not set",
        "only an evaluation against the private truth needs it",
        "Tells `dpstream evaluate` where the private records of the earlier period are. When the stream is started, it "
        "is refused while steps of the earlier one wait to be published.",
        fragment=TEXT,
    ),
)


PRIOR_KEYS: tuple[Key, ...] = (
    Key(
        "prior",
        "file",
        'a file of a known format (.csv, .parquet, .ndjson) relative to this one, with name = "pooled" or "census"',
        None,
        "",
        "The public table: records, or counts with `weight`, in some or all columns of the schema. Its columns have "
        "the schema's names, its values the schema's values. Other columns are left out. The hash of the file is part "
        "of what the stream is pinned to.",
        fragment=TEXT,
    ),
    Key(
        "prior",
        "weight",
        "a column of numbers from 0 that is not in the schema",
        "every row is one record",
        "most public tables are lists of records",
        "The column of the file that says how many records a row stands for.",
        fragment=TEXT,
    ),
    Key(
        "prior",
        "public",
        "true",
        None,
        "",
        "Your word that the file is public and was not made from this stream's private records in any other way than "
        "by a release whose cost is accounted for.",
        fragment={"const": True},
    ),
)


#: What a link of a public page or record may lead to: no script, and no file of its reader.
WEB_ADDRESS = r"^(https?://|mailto:)[^\s<>\"{}|\\^`]+$"
#: A licence: the SPDX name of one that is made for data or for texts, or where any other one can be read.
LICENSE = (
    r"^(https://[^\s<>\"{}|\\^`]+|CC0-1\.0|CC-BY(-NC)?(-SA|-ND)?-(3\.0|4\.0)|PDDL-1\.0|ODC-By-1\.0|ODbL-1\.0"
    r"|CDLA-(Permissive-1\.0|Permissive-2\.0|Sharing-1\.0)|DL-DE-(BY|ZERO)-2\.0|etalab-2\.0|NLOD-[12]\.0"
    r"|OGL-(UK-[123]\.0|Canada-2\.0)|MIT|Apache-2\.0)$"
)
_NOT_SET = "only the owner knows it"


def _words(key: str, what: str, example: str) -> Key:
    return Key("statement", key, f"a text, such as {example}", "not set", _NOT_SET, what, fragment=TEXT)


PUBLICATION_KEYS: tuple[Key, ...] = (
    _words(
        "title",
        "What the data set is called on its pages and in catalogues; the stream's name if it is not set.",
        '"Evictions"',
    ),
    _words(
        "description",
        "What the data are about, in a sentence or two.",
        '"Eviction notices of a city, weekly"',
    ),
    _words("publisher", "Who publishes the data.", '"Statistics office of Example"'),
    _words("contact", "Whom to ask.", '"data@example.org"'),
    _words(
        "decided_by", "Who decided on epsilon (or rho), and when.", '"Data protection board, 3 March 2026"'
    ),
    _words("reason", "Why this budget and this unit.", '"Counts of districts have to be right to 5 %"'),
    _words("version", "Version of the statement.", '"1.2"'),
    Key(
        "statement",
        "license",
        'the SPDX name of a usual licence for data, such as "CC-BY-4.0", or an address in https://',
        "not set",
        _NOT_SET,
        "The licence of the released data.",
        fragment={**TEXT, "pattern": LICENSE},
    ),
    Key(
        "statement",
        "url",
        "an address in http://, https:// or mailto:",
        "not set",
        _NOT_SET,
        "Where the releases can be had.",
        fragment={**TEXT, "pattern": WEB_ADDRESS},
    ),
)


OUTPUT_KEYS: tuple[Key, ...] = (
    Key(
        "output",
        "dir",
        "a folder",
        "releases",
        "beside the configuration file",
        "Where releases are published.",
        fragment=TEXT,
    ),
    Key(
        "output",
        "format",
        "parquet, csv",
        "parquet",
        "it keeps the columns' types",
        "Format of the released tables.",
        fragment=words("parquet", "csv"),
    ),
    Key(
        "output",
        "keep",
        "all, or a number of tables from 1",
        "all",
        "a release that readers use should not vanish",
        "How many full tables are kept; manifests are always kept.",
        fragment={"anyOf": [words("all"), COUNT]},
    ),
    Key(
        "output",
        "records",
        "fresh, persistent",
        "fresh",
        "every table is then a sample of its own; synthetic people who are followed always persist",
        "Whether a table is drawn anew at every step (`fresh`), or changed as little as the new model allows "
        "(`persistent`): records then have a `record_id` and stay until the model has no place for them. "
        "Synthetic people who are followed are always `persistent`.",
        fragment=words("fresh", "persistent"),
    ),
    Key(
        "output",
        "publish",
        "full, changes, both (the last two with records = persistent)",
        "full",
        "a table can be read by itself",
        "What is published of a step: its table, the changes against the step before, or both.",
        fragment=words("full", "changes", "both"),
    ),
    Key(
        "output",
        "full_every",
        "a number of steps from 1",
        str(FULL_EVERY),
        "a reader then puts at most ten files together",
        'With `publish = "changes"`: a full table at the first step, and again after at most this many steps.',
        fragment=COUNT,
    ),
    Key(
        "output",
        "may_change",
        "any, or a list of columns; [] for none",
        "any with the unit record, else none; a feed that has begun stays as it is",
        "readers of a feed without updates are not given any unasked",
        'With `records = "persistent"`: the columns in which a synthetic record may change and keep its `record_id`, '
        "if more than half of its columns stay as they are. The changes then have the operation `update` beside "
        "`delete` and `insert`. It says that the model moved, not that a private record was updated.",
        fragment={"anyOf": [words("any"), TEXTS]},
    ),
    Key(
        "output",
        "approve",
        "true, false",
        "false",
        "a step is published as soon as it is committed",
        "`true`: committed steps are held until `dpstream approve` publishes them. Looking at a table before "
        "approving it is free; deciding by looking at private data is not covered by the guarantee.",
        fragment={"type": "boolean"},
    ),
    Key(
        "output",
        "measurements",
        "true, false",
        "true",
        "the guarantee covers them already, and only with them can a reader compute errors",
        "Whether the noisy counts that a step measured are published beside its table, in `measurements.ndjson`. They "
        "stay when the table expires or is withdrawn: sums of later steps rest on them.",
        fragment={"type": "boolean"},
    ),
    Key(
        "output",
        "sink",
        "folder, duckdb, postgresql, bucket, stdout, spark",
        "folder",
        "files need no program to be read",
        "Where tables go besides the folder, which always has them: the newest one as a table of a DuckDB file or "
        "of a PostgreSQL database, the same files as objects of a `bucket`, or every one as NDJSON on standard output. "
        "With `spark` the folder has no tables: executors of Spark draw each one as a partition of a table of its own. "
        "All but standard output is read back before a step counts as published.",
        fragment=words("folder", "duckdb", "postgresql", "bucket", "stdout", "spark"),
    ),
    Key(
        "output",
        "database",
        "a DuckDB file or (spark) a folder outside of the state, a PostgreSQL connection string without a password, or "
        "(bucket) a URL such as s3://bucket/releases",
        "not set; releases.duckdb for duckdb, tables for spark",
        "needed with sink = postgresql or bucket; passwords belong into PGPASSWORD or ~/.pgpass",
        'The database of `sink = "duckdb"` or `"postgresql"`; of `"bucket"` where the objects go; of `"spark"` the '
        "folder of tables, which driver and executors see under one path.",
        fragment=TEXT,
    ),
    Key(
        "output",
        "table",
        "a name of letters, digits and underscores",
        "synthetic",
        "it says what it is",
        "Name of the table in that database; `<table>_steps` beside it says which step it holds. With `spark` a folder "
        "with a partition `step=...` for each step.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "dir",
        "a folder outside of the output folder",
        "state",
        "beside the configuration file, never among the releases: it holds private counts",
        "Where the secret state is kept (mode 0700). `--state` of a command takes its place.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "url",
        "postgresql://user@host:5432/database, without a password",
        "not set",
        "a file in the state folder needs no server",
        "A PostgreSQL database that keeps the store, in a schema of the stream's own; the state folder then "
        "holds the witness against a database that is rolled back. What the URL leaves open comes from "
        "PGHOST, PGPASSWORD, PGPASSFILE, PGSERVICE and so on.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "url_env",
        "the name of an environment variable",
        "not set",
        "a URL that holds a password does not belong into a public file",
        "The environment variable that holds the URL of the database.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "key_file",
        "a file of dpstream store key, outside of the state and output folders",
        "not set",
        "the state is protected by its file modes; a key that lies beside it would add nothing",
        "Encrypts what is private in the store with the key in this file (mode 0600). A store that is there already "
        "is encrypted by `dpstream store rekey --to`. Whoever loses the key has lost the stream.",
        fragment=TEXT,
    ),
    Key(
        "state",
        "key_env",
        "the name of an environment variable",
        "not set",
        "a key does not belong into a public file",
        "The environment variable that holds the key, instead of `key_file`.",
        fragment=TEXT,
    ),
)


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

_SECTION_KEYS: tuple[Key, ...] = (
    Key(
        "",
        "format",
        "1",
        "1",
        "the only format there is",
        "Version of this file's format.",
        fragment=words(1),
    ),
    Key(
        "stream",
        "name",
        "1 to 200 printable characters",
        None,
        "",
        "Name of the stream; it is published in every manifest.",
        fragment={**TEXT, "maxLength": 200},
    ),
    Key(
        "stream",
        "unit",
        "event, event-replace, user; record, record-replace where records have keys; of a mechanism that follows "
        "people individual, individual-replace",
        "event; record of the mechanism census; individual where the mechanism follows people",
        "batch sizes stay private unless the owner declares them public",
        "Who is protected: one record inserted or deleted at one step (`event`); one record's value where "
        "the numbers of records are public (`event-replace`); or all records of one user id together (`user`, "
        "with `max_events` and `[source] user_column`). Where records have keys (`[source] key_column`), a "
        "record's whole stay in the table, with its insert, all its updates and its delete (`record`); or its "
        "values alone, where it is public which keys are there when (`record-replace`). Where the mechanism follows "
        "people, everything that one person reports: added or removed (`individual`), or replaced, with the number of "
        "people public (`individual-replace`).",
        fragment=words(
            "event", "event-replace", "user", "record", "record-replace", "individual", "individual-replace"
        ),
    ),
    Key(
        "stream",
        "total",
        "private, public",
        "private",
        "a number of records is information about people, too",
        "`public`: the owner declares the number of records of every step public. That switches the unit to "
        "`event-replace` (or `individual-replace`, or `record-replace`): a changed record "
        "then moves two cells, so the noise doubles.",
        fragment=words("private", "public"),
    ),
    Key(
        "stream",
        "season",
        "year, week, or a number of steps from 2 to 10,000",
        "not set",
        "nothing but the owner's knowledge says that a stream has a season",
        "Public knowledge, with the mechanism pooled: what comes repeats itself after a year, a week (where steps are "
        "periods of a calendar), or so many steps. Columns and numbers of records may then follow a season, as far as "
        "noisy counts show one: while steps are put together, and in tables between two measurements.",
        fragment={"anyOf": [words("year", "week"), {"type": "integer", "minimum": 2, "maximum": 10_000}]},
    ),
    Key(
        "stream",
        "returns",
        "new, refuse",
        "new",
        "keys of records that left are forgotten, so nobody can tell that one comes back",
        "With unit = record: what a key is that comes back after it was absent. `new`: another record, with a loss of "
        "its own, so somebody whose key comes back often is protected less. `refuse`: the stream stops; the hashes "
        "of all keys that ever were there are kept, and a record is all that its key ever does.",
        fragment=words("new", "refuse"),
    ),
    Key(
        "stream",
        "same_unit",
        "a sentence of up to 500 printable characters",
        "not set",
        "units that are told by different columns are taken for different ones",
        "Why the unit is the same as that of the streams which this one is added up with, in an account or under "
        '`[base]`, although other columns or rules tell it, such as "person_id was renamed to pid". It is public: '
        "manifests and the statement quote it. If it is wrong, the sums are.",
        fragment={**TEXT, "maxLength": 500},
    ),
    Key(
        "stream",
        "max_events",
        "a number from 1 to 1000000, with unit = user",
        "not set",
        "it has to be written with the unit user, and means nothing without it",
        "How many events (inserts and deletes together) of one user are counted over the whole life of the stream; "
        "all further ones are left out. Each event gets its part of the budget, so choose it from what a user "
        "typically does, not from the largest user.",
        fragment={**COUNT, "maximum": 1_000_000},
    ),
    Key(
        "expect",
        "size",
        "a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        "10 times records_per_step, or 1000",
        "only its ratio to records_per_step counts, and three times too large or too small makes cells 4 to 15 % worse",
        "About how many records the table holds, as anybody may know or guess who never saw it; of a panel the number "
        "of people; of a table that only grows its last size, which takes a horizon (or say records_per_step).",
        fragment=COUNT,
    ),
    Key(
        "expect",
        "records_per_step",
        "a whole number from 1; 1, 3, 10, 30, 100, ... are exact enough",
        "a tenth of size",
        "it says how long records stay, and so how often they are counted again; three times too large or too small "
        "makes cells 4 to 15 % worse",
        "About how many records come in a step, as anybody may know or guess who never saw the table. Not for panels, "
        "where everybody reports in every period.",
        fragment=COUNT,
    ),
    Key(
        "expect",
        "order",
        "mixed, sorted (not where records or people are followed)",
        "mixed",
        "most streams come in the order of time, and neighbouring steps hold like records",
        "How records come. `sorted`: sorted by columns of the table, such as place after place, so that each step "
        "holds records of few kinds and a later one holds others. Then what one step holds says little of the next "
        "one, and `plan --compare` invents such streams.",
        fragment=words("mixed", "sorted"),
    ),
    Key(
        "expect",
        "varies",
        "a number from 0 to 10 (not where people are followed)",
        f"{VARIES:g}",
        "months of real streams differ by .2 to .5",
        "By which share the number of records that come differs from one step to the next, as a rule. Where several "
        "steps are measured together, and between censuses, plan predicts from it how far off the number of records "
        "is.",
        fragment={"type": "number", "minimum": 0, "maximum": 10},
    ),
    Key(
        "budget",
        "epsilon",
        'an exact positive number up to 1000, such as "1" or "0.5"',
        "not set",
        "one of epsilon and rho has to be written",
        "Pure differential privacy; with `delta`, approximate: converted to the largest rho within it.",
        fragment=NUMBER,
    ),
    Key(
        "budget",
        "rho",
        "an exact positive number",
        "not set",
        "one of epsilon and rho has to be written",
        "Zero-concentrated differential privacy.",
        fragment=NUMBER,
    ),
    Key(
        "budget",
        "delta",
        'an exact number between 0 and 1, such as "1e-9", together with epsilon',
        "not set",
        "without delta the guarantee has no exception",
        "The probability left out of an (epsilon, delta) guarantee.",
        fragment=NUMBER,
    ),
    Key(
        "budget",
        "horizon",
        "none, or a number of steps from 1",
        "none",
        "the mechanisms for tables run without end at the same cost",
        "Most steps the stream may have; counters with a horizon are tuned to it. Where the mechanism follows "
        "people it is needed: the noise is made for so many periods.",
        fragment={"anyOf": [words("none"), COUNT]},
    ),
    Key(
        "budget",
        "account",
        "a file that dpstream ledger account create made, outside of state and output",
        "not set",
        "a single stream on a private source needs no sum",
        "The account in which several streams on one private source add up. A stream is charged its whole budget "
        "there when it is started, and refused where the account's limit would be passed.",
        fragment=TEXT,
    ),
    *ACCURACY_KEYS,
    *PRIOR_KEYS,
    *PUBLICATION_KEYS,
    *OUTPUT_KEYS,
    *BASE_KEYS,
)


def keys_of(section: str) -> dict[str, Key]:
    """The keys of one section by name.

    >>> sorted(keys_of("budget"))
    ['account', 'delta', 'epsilon', 'horizon', 'rho']
    """
    if section == "mechanism":
        return _options(families())
    if section == "source":
        return rows_of_source(SOURCES.names())
    rows = {key.name: key for key in _SECTION_KEYS if key.section == section}
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
