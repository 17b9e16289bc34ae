"""The keys of ``[source]``: each is declared once, with the kinds of sources, the cuts and the records that have it.

A file is flat; ``kind``, the cut into steps and what a row is pick the keys that mean something.

The reader, the table of keys in the documentation and the JSON Schema come from here.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from dpstream.core.contracts.plugins import Plugins
from dpstream.core.contracts.recipe_options import NUMBER, TEXT, TEXTS, Key, Option, keys_of_recipes, words
from dpstream.core.durations import seconds
from dpstream.core.errors import ConfigError
from dpstream.io.sources.operations import WORDS_ALLOWED, Operations

Late = Literal["error", "next-step", "drop-and-count-nothing"]
Shape = Literal["changes", "snapshots", "stays"]

KINDS = ("files", "duckdb", "postgres", "postgres-changes")
#: Files that come on standard input (path = "-") have keys of their own.
STDIN = "standard input"
_STORED = (*KINDS, "mysql", "spark")
_ALL = (*_STORED, STDIN)
_SERVER = ("postgres", "postgres-changes", "mysql")
_WHOLE = ("files", "duckdb", "postgres", "mysql")
_ROWS = (*_WHOLE, "spark", STDIN)

#: How records are cut into steps, in words for messages.
CUTS = {
    "calendar": "a calendar (every)",
    "numbers": "step numbers",
    "each file": 'every = "files"',
    "rows": "rows",
    "columns": "period_columns",
}
#: What a row is, likewise.
RECORDS = {
    "events": "records without key_column",
    "inserts": "insert_only",
    "states": "records without op_column",
    "changes": 'shape = "changes"',
    "snapshots": 'shape = "snapshots"',
    "stays": 'shape = "stays"',
}
#: shape -> the numbers of parameters that a query may have, and the words for messages.
PARAMETERS: Mapping[str, tuple[tuple[int, ...], str]] = {
    "changes": ((2,), "one SELECT with two parameters, such as SELECT * FROM t WHERE day >= ? AND day < ?"),
    "snapshots": (
        (0, 1),
        "one SELECT with at most one parameter (mysql: ?), the period's end, such as SELECT * "
        "FROM t WHERE valid_from < $1 AND (valid_to IS NULL OR valid_to >= $1)",
    ),
    "stays": ((0,), "one SELECT without parameters, such as SELECT * FROM bookings"),
}
_OUTSIDE = "a column outside the schema"
_IDS = "texts or whole numbers, never empty"
_LENGTHS = '"30 minutes", "6 hours", "2 days", "1 week"'
XID_COLUMN = "a column of the type xid8 with DEFAULT pg_current_xact_id()"
_TIMES = ("calendar", "numbers")
_EVENTS = ("events", "inserts")
_TIMED = (*_TIMES, *_EVENTS, "states", "changes", "stays")


def _key(
    fits: tuple[str, ...],
    default: Any = None,
    shown: str | None = None,
    secret: bool = False,
    reason: str | None = None,
    **declared: Any,
) -> Any:
    """A field for a key.

    Args:
        fits: the kinds of sources with which it means something; also its cuts and records, where not all fit.
        secret: its value is not shown in a ``repr``.
        reason: why the default is what it is; by default, that other kinds do not have the key.
    """
    kinds = tuple(kind for kind in _ALL if kind in fits)
    shown = "not set" if shown is None and default is None else shown
    chosen = Option(shown=shown, reason=reason or f"only for kind = {', '.join(kinds)}", **declared)
    metadata: dict[str, Any] = {"option": chosen, "kinds": kinds}
    for part, meanings in (("cut", CUTS), ("records", RECORDS)):
        metadata[part] = tuple(name for name in meanings if name in fits) or tuple(meanings)
    return field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class SourceKeys:
    """The values of all keys of ``[source]``, not checked yet.

    Attributes:
        continues: not a key of a file. The stream continues another one, whose records are before ``start``: they are
            left out, whatever ``late`` says of others.
        same_unit: a key of ``[stream]``: why the unit is that of other streams, though other columns tell it.
        own: not a key of a file. The values of the keys that only this kind has, as its ``SourceKind.options``.
    """

    kind: str = _key(
        _ALL,
        default="files",
        words=KINDS,
        reason="the usual export",
        meaning="`postgres`: a growing table; `postgres-changes`: its logical replication; `mysql`: also MariaDB.",
    )
    path: tuple[str, ...] = _key(
        ("files", STDIN),
        default=(),
        allowed='such as data/*.parquet; a list; "-"',
        shown="needed for files",
        meaning="CSV, NDJSON (both also .gz) or Parquet files, relative to this file; objects "
        "(s3://bucket/data/*.parquet); `-`: NDJSON on standard input.",
        fragment={"anyOf": [TEXT, TEXTS]},
    )
    database: str | None = _key(
        ("duckdb",),
        allowed="relative to this file",
        meaning="The DuckDB file, opened read-only.",
    )
    query: str | None = _key(
        ("duckdb", "postgres", "mysql", "spark"),
        allowed=PARAMETERS["changes"][1],
        meaning="Gives a step's records; parameters: its first day (or number) and the next step's. Snapshots: the "
        "whole table, at most with the first day after (`$1`; mysql: `?`). Stays: all.",
    )
    eof: Literal["hold", "close"] = _key(
        (STDIN,),
        default="hold",
        reason="pipes break",
        meaning="At the end of input the open step is complete (`close`), or must be sent again (`hold`).",
    )
    time_column: str | None = _key(
        (*_ROWS, *_TIMED),
        allowed=_OUTSIDE,
        reason="steps are files or rows",
        meaning="The step of a row: a date or time with `every`, else a whole number.",
    )
    every: str | None = _key(
        (*_ALL, "calendar", "each file"),
        allowed='day, week, month, "14 days", "2 weeks", "3 months", files',
        reason="the time column holds step numbers",
        meaning="Length of a step; `files`: each file is a step.",
    )
    rows: int | None = _key(
        ("files", "rows", "events"),
        allowed="from 1",
        reason="rows make step sizes public",
        meaning='Steps of this many rows, in file order. Needs `[stream] total = "public"`.',
    )
    start: datetime.date | int | None = _key(
        (*_ALL, *_TIMES),
        allowed="such as 2026-01-05, or a step number",
        shown="1 for step numbers; needed with a calendar",
        reason="step borders must be public",
        meaning="The first day of step 1, or its number.",
        fragment={"type": ["string", "integer"]},
    )
    end: datetime.date | int | str | None = _key(
        (*_ALL, *_TIMES),
        allowed="a day, a step number, today (all periods that are over), data (the newest record's step "
        "becomes public)",
        shown="needed with a time column",
        reason="the number of steps must be public",
        meaning="The last day or step.",
        fragment={"type": ["string", "integer"]},
    )
    op_column: str | None = _key(
        (*_ROWS, *_TIMES, "each file", "rows", "events", "changes"),
        allowed="a column that says insert or delete",
        reason="every row is an insert",
        meaning="What a row does to its record. Without `key_column` a delete is an event.",
    )
    op_values: Operations = _key(
        (*_ROWS, "events", "changes"),
        default=Operations(),
        allowed=WORDS_ALLOWED,
        shown="insert and update-after; delete and update-before",
        reason="an update is a delete and an insert",
        meaning="The words of `op_column`; with `key_column` also `update` (the new row) and `ignore`.",
        fragment={"type": "object", "additionalProperties": {"anyOf": [TEXT, TEXTS]}},
    )
    late: Late = _key(
        (*_ALL, *_TIMED),
        default="error",
        reason="the owner decides",
        meaning="What happens to rows of released steps.",
    )
    lag: str | None = _key(
        (*_STORED, "calendar"),
        allowed=_LENGTHS,
        reason="a period is read once over",
        meaning="Wait after a period's end for late records.",
    )
    complete: Literal["rename", "done"] = _key(
        ("files",),
        default="rename",
        reason="a renamed file is complete",
        meaning="A file is finished when its name matches `path`, or with `NAME.done` beside it.",
    )
    offsets: bool = _key(
        ("files", STDIN, "calendar"),
        default=False,
        allowed="true, false",
        reason="two forms could count a record on two days",
        meaning="Whether all times have an offset (`2026-01-31T12:00:00Z`, taken in UTC), or none.",
    )
    user_column: str | None = _key(
        _ALL,
        allowed=f"{_OUTSIDE}, with unit = user or individual",
        reason="only for these units",
        meaning=f"Whose record a row is: {_IDS}.",
    )
    key_column: str | None = _key(
        _ALL,
        allowed=f"{_OUTSIDE}, with unit = record",
        reason="only for this unit",
        meaning=f"Which record a row is about: {_IDS}.",
    )
    shape: Shape = _key(
        (*_WHOLE, "states", "changes", "snapshots", "stays"),
        default="changes",
        reason="only with key_column",
        meaning="Rows are what happened (`changes`), each step's whole table (`snapshots`), or records with start and "
        "end (`stays`).",
    )
    delete_time_column: str | None = _key(
        (*_WHOLE, "stays"),
        allowed=f"{_OUTSIDE}, with shape = stays",
        reason="only for this shape",
        meaning="When a record left, as `time_column`. Null: still there.",
    )
    updates: Literal["rows", "changed"] = _key(
        ("files", STDIN, "duckdb", "spark", "changes"),
        default="rows",
        reason="only with key_column and op_column",
        meaning="An update has the whole new row, or changed columns only (null, empty, missing: unchanged).",
    )
    unknown: Literal["error", "drop"] = _key(
        ("files", STDIN, "duckdb", "postgres-changes", "spark", "changes"),
        default="error",
        reason="the owner decides",
        meaning="A delete or an update of a missing key.",
    )
    known: Literal["error", "update"] | None = _key(
        (*_ALL, "changes", "stays"),
        words=("error", "update"),
        shown="update; with shape = stays error",
        reason="feeds repeat inserts; stays must not overlap",
        meaning="An insert of a key that exists.",
    )
    repeated: Literal["error", "last"] | None = _key(
        (*_ALL, "states", "changes", "snapshots"),
        words=("error", "last"),
        shown="last; with shape = snapshots error",
        reason="a table has each key once",
        meaning="Several rows of a key in a step: the last counts, or they are an error.",
    )
    shrinks: float = _key(
        (*_WHOLE, "snapshots", "stays"),
        default=0.1,
        allowed="a share from 0 to below 1",
        reason="a broken export could delete everything",
        meaning="An empty snapshot, or below this share of the records before, stops the stream until "
        "`dpstream run --confirm-shrink`.",
        fragment=NUMBER,
    )
    insert_only: bool = _key(
        (*_ROWS, "inserts"),
        default=False,
        allowed="true, false",
        reason="only with key_column",
        meaning="Records never change or leave. One row of each key counts, by default by `pooled`.",
    )
    period_columns: tuple[str, ...] | str | None = _key(
        ("files", "columns", "events"),
        allowed='such as ["m1", "m2"], "m{period}" or "{column}_{period:02}", where the mechanism follows people',
        reason="a row per person and period",
        meaning="The period columns of files with a row per person, in order. A text counts from 1; several variables "
        "need `{column}`.",
        fragment={"anyOf": [TEXT, TEXTS]},
    )
    url: str | None = _key(
        _SERVER,
        secret=True,
        allowed="postgresql://user@host:5432/database or mysql://user@host:3306/database, without a password",
        meaning="The server. Passwords: PGPASSWORD or a password file; MySQL: MYSQL_PWD or ~/.my.cnf.",
    )
    url_env: str | None = _key(
        _SERVER,
        allowed="an environment variable, in place of url",
        meaning="Holds the URL, also with a password.",
    )
    table: str | None = _key(
        (*_SERVER, "spark"),
        allowed="a name as the catalog has it",
        shown="needed without `query`",
        meaning="The table or view (`postgres-changes`: a table). Spark: also parquet.`folder`, and a "
        "staging table, staged.`folder`.",
    )
    wait: str | None = _key(
        ("postgres", *_EVENTS),
        allowed='"0 minutes", "30 minutes", "6 hours"',
        shown="10 minutes",
        meaning="Longest wait for open transactions; the run then stops.",
    )
    xid_column: str | None = _key(
        ("postgres", *_EVENTS),
        allowed=XID_COLUMN,
        meaning="The transaction that added a row. Rewrites change the server's own number, "
        'so `late = "next-step"` needs it.',
    )
    slot: str | None = _key(
        ("postgres-changes",),
        allowed="a logical replication slot of the plugin pgoutput",
        meaning="Keeps changes until their steps are durable.",
    )
    publication: str | None = _key(
        ("postgres-changes",),
        allowed="a publication that sends the table",
        meaning="Sends inserts, updates, deletes and truncations.",
    )
    continues: bool = False
    same_unit: str | None = None
    own: Any = None

    @property
    def cut(self) -> str:
        """How records are cut into steps, of ``CUTS``."""
        if self.rows is not None:
            return "rows"
        if self.period_columns is not None:
            return "columns"
        if self.every is None:
            return "numbers"
        return "each file" if self.every == "files" else "calendar"

    @property
    def records(self) -> str:
        """What a row is, of ``RECORDS``."""
        if self.key_column is None:
            return "events"
        if self.insert_only:
            return "inserts"
        if self.shape != "changes":
            return self.shape
        return "changes" if self.op_column is not None or self.kind == "postgres-changes" else "states"

    @property
    def cancels(self) -> bool:
        """Whether equal rows that come and go within a step can be left out."""
        other = other_kind(self.kind)
        return other is None or other.cancels

    @property
    def stdin(self) -> bool:
        """Whether records come on standard input."""
        return self.path == ("-",)

    def given(self) -> Iterator[Field[Any]]:
        """The keys whose values are not the defaults, without ``kind``."""
        for key in _FIELDS[1:]:
            value = getattr(self, key.name)
            # In Python 0 == False, but 0 is another value.
            if (value, type(value)) != (key.default, type(key.default)):
                yield key


_FIELDS = tuple(key for key in fields(SourceKeys) if "option" in key.metadata)


@dataclass(frozen=True)
class SourceKind:
    """A kind of source of another package: the object of an entry point of the group ``dpstream.sources``.

    Public facts decide the steps of such a source.

    Attributes:
        open: makes the ``Source`` from the ``SourceOptions``, the folder that paths are relative to, and the names of
            the columns.
        keys: the shared keys of ``[source]`` that it takes. ``end`` must be among them, and ``start`` if ``every`` is.
        needed: those of ``keys`` that a file must write; their values are texts.
        public: what it does not protect, in sentences for plans and manifests; or a function that says so of the
            ``SourceOptions``.
        options: a frozen dataclass with keys of its own; its fields are ``core.contracts.option(...)``. The source gets
            the values in ``SourceOptions.own``.
        movable: those of its own keys that may change while a stream lives, such as a place. All others are pinned, and
            published with their values.
        keyed: whether it reads records with keys itself; else it reads the columns ``id_column``, ``step_column`` and
            ``delete_column`` of the ``SourceOptions``, and what rows do to their records is read from its steps.
        repeatable: whether a released step can be read again, for comparison.
        cancels: whether its batches can leave out equal rows that come and go within a step.
        check: refuses values that contradict each other (ConfigError), of the ``SourceKeys``.
        fits: refuses plans that the source cannot feed (any error of dpstream), of the ``SourceOptions`` and the plan;
            no data is read yet.
    """

    open: Callable[..., Any]
    keys: tuple[str, ...]
    needed: tuple[str, ...] = ()
    public: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
    options: type[Any] | None = None
    movable: tuple[str, ...] = ()
    keyed: bool = False
    repeatable: bool = False
    cancels: bool = True
    check: Callable[[Any], None] | None = None
    fits: Callable[[Any, Any], None] | None = None

    def __post_init__(self) -> None:
        taken = {key.name for key in _FIELDS}
        if self.options is not None and taken & {key.name for key in fields(self.options)}:
            raise ConfigError(
                "a key has the name of a shared key",
                where=self.options.__name__,
                allowed="another name",
            )

    def pinned(self, own: Any) -> dict[str, Any]:
        """The values of the own keys that may not change while a stream lives, as JSON values."""
        names = () if self.options is None else (key.name for key in fields(self.options))
        values = {name: getattr(own, name) for name in names if name not in self.movable}
        plain = (str, int, bool, type(None))
        return {name: value if isinstance(value, plain) else str(value) for name, value in values.items()}


#: Kinds that are found as those of other packages are: their modules are loaded on use, or lie above this one.
_ENGINES = {
    "mysql": "dpstream.io.sources.mysql:SOURCE",
    "spark": "dpstream.spark.spark_source:SOURCE",
}
SOURCES = Plugins("dpstream.sources", "the source", SourceKind, {**dict.fromkeys(KINDS, ""), **_ENGINES})


def wrong_source(what: str, allowed: str) -> ConfigError:
    """A ConfigError about ``[source]``. The reader of the file adds the file's name."""
    return ConfigError(what, where="[source]", allowed=allowed)


def meaningless(key: str, why: str, allowed: str = "leave it out") -> ConfigError:
    """The refusal of a key, or of its value, beside the others."""
    return wrong_source(f"{key} has no meaning {why}", allowed)


def keys_of_kind(kind: str) -> tuple[str, ...]:
    """The keys of a kind of source (also of ``STDIN``), without ``kind``."""
    other = other_kind(kind)
    return shared_keys(kind) if other is None else (*other.keys, *_own_rows(kind))


def shared_keys(kind: str) -> tuple[str, ...]:
    """Those that are declared here, of a kind that is named here."""
    return tuple(key.name for key in _FIELDS[1:] if kind in key.metadata["kinds"])


def check_keys(keys: SourceKeys) -> None:
    """Check that every key means something with this kind of source, its records and its cut, and may have its value
    (ConfigError)."""
    kind = STDIN if keys.stdin else keys.kind
    there, rows = keys_of_kind(kind), rows_of_source(())
    given = {key: getattr(keys, key.name) for key in keys.given()}
    # Of some keys it is only the value that means nothing.
    shown = {
        key: f"{key.name} = {json.dumps(str(value), ensure_ascii=False)}"
        if "enum" in rows[key.name].fragment
        else key.name
        for key, value in given.items()
    }
    for key, value in given.items():
        if key.name not in there:
            kinds = ", ".join(name for name in key.metadata["kinds"] if name != kind)
            raise meaningless(shown[key], f'with kind = "{kind}", only with {kinds}', ", ".join(there))
        _check_value(key.name, value, rows[key.name].fragment, rows[key.name].allowed)
    for key in given:
        for part, meanings in (("records", RECORDS), ("cut", CUTS)):
            here, fitting = getattr(keys, part), key.metadata[part]
            if here not in fitting:
                others = " or ".join(meanings[other] for other in fitting)
                raise meaningless(shown[key], f"with {meanings[here]}", f"leave it out, or {others}")


def _check_value(key: str, value: object, fragment: Mapping[str, Any], allowed: str) -> None:
    """Check a value against what is declared of its key; days, words of operations and lists are read elsewhere."""
    if "enum" in fragment and value not in fragment["enum"]:
        raise wrong_source(f"unknown {key} = {value!r}", allowed)
    kind = fragment.get("type")
    if kind == "string" and not (isinstance(value, str) and value.strip()):
        raise wrong_source(f"{key}: expected a text", allowed)  # an url may hold a password
    if kind == "boolean" and not isinstance(value, bool):
        raise wrong_source(f"{key} = {value!r}: expected true or false", allowed)
    if kind == "integer" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise wrong_source(f"{key} = {value!r}: expected a whole number from 1", allowed)
    if key in ("lag", "wait"):
        duration(value, key)
    if key == "shrinks" and (
        isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1
    ):
        raise wrong_source(f"shrinks = {value!r}: expected a share", allowed)


def duration(text: object, key: str) -> datetime.timedelta:
    """Read a length of time.

    Args:
        text: such as "6 hours".
        key: the key of ``[source]``, for the message.

    Errors:
        ConfigError: it is not a number with a unit.

    >>> duration("36 hours", "lag")
    datetime.timedelta(days=1, seconds=43200)
    """
    length = seconds(text)
    if length is None:
        raise wrong_source(f"{key} = {text!r}: expected a length of time", _LENGTHS)
    return datetime.timedelta(seconds=length)


def other_kind(name: object) -> SourceKind | None:
    """The kind of source of another package; None for a kind of this package, and for an unknown name.

    Errors:
        ConfigError: the package is broken.
    """
    return (
        SOURCES.get(name) if isinstance(name, str) and name in SOURCES.names() and name not in KINDS else None
    )


def _own_rows(kind: object) -> dict[str, Key]:
    other = other_kind(kind)
    if other is None or other.options is None:
        return {}
    return {row.name: row for row in keys_of_recipes("source", {str(kind): other.options})}


@cache
def _rows_of_all() -> tuple[Key, ...]:
    return keys_of_recipes("source", {"": SourceKeys})


def rows_of_source(of: Iterable[object]) -> dict[str, Key]:
    """The rows of the documentation's table of keys, by key.

    Args:
        of: kinds of other packages, whose own keys are added.
    """
    rows = {row.name: row for row in _rows_of_all()}
    kinds = SOURCES.names()
    rows["kind"] = replace(rows["kind"], allowed=", ".join(kinds), fragment=words(*kinds))
    for kind in of:
        rows |= _own_rows(kind)
    return rows
