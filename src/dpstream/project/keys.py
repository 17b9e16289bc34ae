"""Every section and key of ``dpstream.toml``, in one table: read, documented and explained from here.

The options of mechanisms come from their families, which are loaded only where their options are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dpstream.core.contracts import Family, Key
from dpstream.core.contracts.options import COUNT, NUMBER, TEXT, TEXTS, words
from dpstream.core.contracts.registry import DEFAULT_MECHANISM, families, family_of, mechanisms
from dpstream.project.base_keys import BASE_KEYS
from dpstream.project.output_keys import OUTPUT_KEYS
from dpstream.project.server_keys import SERVER_KEYS

__all__ = ["DEFAULT_MECHANISM", "SECTIONS", "Key", "keys_of", "rows_of"]

SECTIONS: dict[str, str] = {
    "": "",
    "stream": "Who is protected, and what may be public.",
    "source": "Where the private rows are, and how they are cut into steps.",
    "schema": "What the columns may hold; public, written by the steward (see the schema's README).",
    "mechanism": "How the synthetic copy is made.",
    "budget": "What all releases together may cost one unit of protection.",
    "output": "Where releases go; public.",
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
        "event, event-replace, user; of a panel individual, individual-replace",
        "event; of a panel individual",
        "batch sizes stay private unless the owner declares them public",
        "Who is protected: one record inserted or deleted at one step (`event`); one record's value where "
        "the numbers of records are public (`event-replace`); or all records of one user id together (`user`, "
        "with `max_events` and `[source] user_column`). Of a panel, everything that one person reports: added or "
        "removed (`individual`), or replaced, with the number of people public (`individual-replace`). Tables cannot "
        "have these: their mechanisms do not follow people.",
        fragment=words("event", "event-replace", "user", "individual", "individual-replace"),
    ),
    Key(
        "stream",
        "total",
        "private, public",
        "private",
        "a number of records is information about people, too",
        "`public`: the owner declares the number of records of every step public. That switches the unit to "
        "`event-replace` (of a panel, `individual-replace`): a changed record then moves two cells, so the noise "
        "doubles.",
        fragment=words("private", "public"),
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
        "source",
        "kind",
        "files, duckdb, postgres, postgres-changes",
        "files",
        "most tables are exported as files",
        "Where the private rows are: files (or standard input), a query to a DuckDB file, a PostgreSQL table that "
        "only grows, or the changes of one (logical replication).",
        fragment=words("files", "duckdb", "postgres", "postgres-changes"),
    ),
    Key(
        "source",
        "path",
        'a pattern such as data/*.parquet, a list of them, or "-"',
        "not set; needed for files",
        "other kinds of sources have no files",
        "The data: csv, parquet or ndjson files (csv and ndjson also with .gz), relative to this file; `-`: "
        "ndjson on standard input.",
        fragment={"anyOf": [TEXT, TEXTS]},
    ),
    Key(
        "source",
        "database",
        "a file, relative to this one",
        "not set",
        "only for kind = duckdb",
        "The DuckDB file. It is opened for reading only.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "query",
        "one SELECT with two parameters, such as SELECT * FROM t WHERE day >= ? AND day < ?",
        "not set",
        "only for kind = duckdb",
        "Gives the records of one step. The parameters are the first day of the period and the day after its last "
        "one, or a step number and the next one.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "eof",
        "hold, close",
        "hold",
        "a pipe that broke looks like one that ended",
        "What the end of standard input means for the step that is open: it is not released and its records have to "
        "be sent again (`hold`), or it is complete (`close`).",
        fragment=words("hold", "close"),
    ),
    Key(
        "source",
        "time_column",
        "a column of the data that is not in the schema",
        "not set",
        "without it, steps are files or numbers of rows",
        "Says to which step a row belongs: a date or a time with `every`, a whole step number without it.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "every",
        'day, week, month, "14 days", "2 weeks", "3 months", files',
        "not set",
        "without it the time column holds step numbers",
        "Length of a step, counted from `start`; or `files`: one file, one step.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "rows",
        "a number of rows from 1, where sizes are public",
        "not set",
        "cutting by rows makes the size of every step public",
        'Cut into steps of this many rows, in the order of the files. Needs `[stream] total = "public"`.',
        fragment=COUNT,
    ),
    Key(
        "source",
        "start",
        "a day such as 2026-01-05, or a step number",
        "1 for step numbers; needed with a calendar",
        "borders of steps must not depend on private data, such as the first record's date",
        "The public first day of step 1, or the number of the first step.",
        fragment={"type": ["string", "integer"]},
    ),
    Key(
        "source",
        "end",
        "a day, a step number, today (with a calendar), data",
        "not set; needed with a time column",
        "the number of steps must not depend on private data unless the owner says that it may",
        "The last day or step. `today`: every period that is over by the clock. `data`: the step of the "
        "newest record, which the owner thereby declares public.",
        fragment={"type": ["string", "integer"]},
    ),
    Key(
        "source",
        "op_column",
        "a column that says insert or delete",
        "not set",
        "without it, every row is an insert",
        "What a row does. A delete is an event of its own. The baseline then runs twice at every step.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "op_values",
        'words such as {insert = ["c", "after"], delete = ["d", "before"]}',
        "insert and update-after; delete and update-before",
        "an update is two rows, the old one as a delete and the new one as an insert",
        "The words of `op_column`. A word for updates that comes without the old row cannot be used.",
        fragment={"type": "object", "additionalProperties": {"anyOf": [TEXT, TEXTS]}},
    ),
    Key(
        "source",
        "late",
        "error, next-step, drop-and-count-nothing",
        "error",
        "nothing is moved or dropped unless the owner says so",
        "What happens to a row that belongs to a step that is already released.",
        fragment=words("error", "next-step", "drop-and-count-nothing"),
    ),
    Key(
        "source",
        "lag",
        '"30 minutes", "6 hours", "2 days", "1 week"',
        "not set",
        "a period is taken as soon as it is over by the clock",
        "Grace period of a calendar: a period is taken when it has been over for so long, so that records may "
        "arrive a little later.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "complete",
        "rename, done",
        "rename",
        "a file that is renamed into place is never half-written",
        "When a file is finished: as soon as its name matches `path`, or when an empty file `NAME.done` is there "
        "too. That its size has stopped growing proves nothing.",
        fragment=words("rename", "done"),
    ),
    Key(
        "source",
        "broken",
        "error, missing, drop-and-count-nothing",
        "error",
        "nothing is made up or left out unless the owner says so",
        "What becomes of a record of a csv or NDJSON source that cannot be taken apart: a line with more or fewer "
        "cells, with an open quote, or that is no JSON object. `missing`: it has a null in every column. With "
        "`missing` and `drop-and-count-nothing`, bytes that are no UTF-8 are read as U+FFFD, and keys that nobody "
        "declared are left out.",
    ),
    Key(
        "source",
        "line_breaks",
        "true, false",
        "false",
        "a record is a line, so none can take in those that follow it",
        "Whether a quoted cell of a csv file may run over several lines. The files are then trusted to close every "
        "quote.",
    ),
    Key(
        "source",
        "user_column",
        "a column of the data that is not in the schema, with unit = user or a panel",
        "not set",
        "it has to be written with the unit user and with panels, and means nothing without them",
        "The column that says whose record a row is: texts or whole numbers. A null or empty id is an error.",
        fragment=TEXT,
    ),
    Key(
        "source",
        "period_columns",
        'a list such as ["m1", "m2"], or a text such as "m{period}" or "{column}_{period:02}", with a panel',
        "not set",
        "without it, files have one row for each person and period",
        "Files with one row a person: the columns of the periods, in their order. A text stands for as many as there "
        "are, counted from 1; with several variables it has `{column}` in it.",
        fragment={"anyOf": [TEXT, TEXTS]},
    ),
    *SERVER_KEYS,
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
        "Most steps the stream may have; counters with a horizon are tuned to it. A panel needs it: its noise is made "
        "for so many periods.",
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
    *OUTPUT_KEYS,
    *BASE_KEYS,
)


def __getattr__(name: str) -> Any:
    """``KEYS``, the whole table, and ``MECHANISMS``, the names of all mechanisms: made when they are asked for."""
    if name == "KEYS":
        return tuple(key for section in SECTIONS for key in keys_of(section).values())
    if name == "MECHANISMS":
        return mechanisms()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def keys_of(section: str) -> dict[str, Key]:
    """The keys of one section by name.

    >>> sorted(keys_of("budget"))
    ['account', 'delta', 'epsilon', 'horizon', 'rho']
    """
    if section == "mechanism":
        return _options(families())
    return {key.name: key for key in _SECTION_KEYS if key.section == section}


def rows_of(section: str, table: Mapping[str, Any]) -> dict[str, Key]:
    """The keys that a section of a file is read by: of ``[mechanism]`` its family's, where it has no others."""
    if section == "mechanism":
        name = table.get("name", DEFAULT_MECHANISM)
        own = _options([family_of(name)]) if name in mechanisms() else {}
        if own.keys() >= table.keys():
            return own
    return keys_of(section)


def _options(of: Iterable[Family]) -> dict[str, Key]:
    """``[mechanism]``: where several families have a key, the first one says what it means."""
    found = {"name": _name()}
    for family in of:
        for key in family.keys:
            known = found.get(key.name)
            found[key.name] = key if known is None else _joined(known, key)
    return found


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
