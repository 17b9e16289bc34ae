"""``[source]`` with ``key_column``: which keys fit together, what the plan pins, and what is declared public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from dpstream.core.errors import ConfigError
from dpstream.core.tables import KeyRules
from dpstream.io.sources.source_keys import Shape, SourceKeys

_WHERE = "[source]"
_SHAPES = get_args(Shape)
#: Keys that mean nothing without ``key_column``.
KEYED_KEYS = (
    "shape",
    "delete_time_column",
    "updates",
    "unknown",
    "known",
    "repeated",
    "shrinks",
    "insert_only",
)
_DEFAULTS = {one.name: one.default for one in fields(SourceKeys)}
#: shape -> each key that it does not take -> the reason.
_FOREIGN: Mapping[str, Mapping[str, str]] = {
    "changes": {
        "delete_time_column": 'only shape = "stays" has it',
        "shrinks": 'only shape = "snapshots" has it',
    },
    "snapshots": {
        "time_column": "a snapshot is the whole table at the end of its step, whatever times its rows have",
        "delete_time_column": 'only shape = "stays" has it',
        "op_column": "every row of a snapshot is a record that exists, and there are no operations",
        "updates": "a snapshot has whole rows",
        "unknown": "every key of a snapshot belongs to a record that exists",
        "known": "a key that the snapshot before had too is an update",
        "late": "a snapshot is the table at the time of reading, so no row comes late",
    },
    "stays": {
        "op_column": "a stay has a start and an end, and no operation",
        "updates": "a stay has whole rows",
        "repeated": "several stays of one key in a step follow each other; the key known is about stays that overlap",
    },
}


def check_keyed(options: SourceKeys) -> None:
    """Check that the keys about keyed records fit together and fit the kind of source.

    Errors:
        ConfigError: names the key, the reason, and what is allowed.
    """
    _check_values(options)
    if options.key_column is None:
        for key in KEYED_KEYS:
            if getattr(options, key) != _DEFAULTS[key]:
                raise ConfigError(
                    f"{key} has no meaning without key_column",
                    where=_WHERE,
                    allowed="key_column, or leave it out",
                )
        return
    for key in ("time_column", "delete_time_column", "op_column", "user_column", "xid_column"):
        if getattr(options, key) == options.key_column:
            raise ConfigError(
                f"key_column and {key} are the same column", where=_WHERE, allowed="two columns"
            )
    for key, why in (
        ("rows", "if a step were a number of rows, one record would move all those after it"),
        ("period_columns", "a panel follows people by user_column, and its records have no keys"),
    ):
        if getattr(options, key) is not None:
            raise ConfigError(f"{key} does not fit key_column: {why}", where=_WHERE, allowed="leave it out")
    if options.insert_only:
        _check_insert_only(options)
        return
    for key, why in _FOREIGN[options.shape].items():
        if getattr(options, key) != _DEFAULTS[key]:
            raise ConfigError(
                f'{key} has no meaning with shape = "{options.shape}": {why}',
                where=_WHERE,
                allowed="leave it out",
            )
    {"changes": _check_changes, "snapshots": _check_snapshots, "stays": _check_stays}[options.shape](options)


def _check_values(options: SourceKeys) -> None:
    for key in ("key_column", "delete_time_column"):
        value = getattr(options, key)
        if value is not None and (not isinstance(value, str) or not value):
            raise ConfigError(f"{key} is not a column name", where=_WHERE, allowed="a text")
    for key, words in (
        ("shape", _SHAPES),
        ("updates", ("rows", "changed")),
        ("unknown", ("error", "drop")),
        ("known", (None, "error", "update")),
        ("repeated", (None, "error", "last")),
        ("insert_only", (True, False)),
    ):
        value = getattr(options, key)
        # In Python 0 == False, but 0 is not an allowed value.
        if not any(type(value) is type(word) and value == word for word in words):
            shown = ", ".join(str(word).lower() for word in words if word is not None)
            raise ConfigError(f"unknown {key} = {value!r}", where=_WHERE, allowed=shown)
    share = options.shrinks
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ConfigError(f"shrinks = {share!r} is not a share", where=_WHERE, allowed="from 0 to below 1")


def _check_insert_only(options: SourceKeys) -> None:
    for key in (*KEYED_KEYS[:-1], "op_column"):
        if getattr(options, key) != _DEFAULTS[key]:
            raise ConfigError(
                f"{key} has no meaning with insert_only: every row is an insert",
                where=_WHERE,
                allowed="leave it out",
            )
    if options.kind == "postgres-changes":
        raise ConfigError(
            "insert_only does not fit a log of changes, which may hold updates and deletes",
            where=_WHERE,
            allowed='kind = "postgres", which reads a table that only grows',
        )


def _check_changes(options: SourceKeys) -> None:
    if options.kind == "postgres":
        raise ConfigError(
            "the rows of a PostgreSQL table have no order, so the table cannot be a feed of changes by key",
            where=f"{_WHERE} shape",
            allowed='shape = "snapshots", kind = "postgres-changes", or insert_only = true',
        )
    if options.op_column is None and options.kind != "postgres-changes":
        for key in ("updates", "unknown", "known"):
            if getattr(options, key) != _DEFAULTS[key]:
                raise ConfigError(
                    f"{key} has no meaning without op_column: every row holds the current values of its record",
                    where=_WHERE,
                    allowed="op_column, or leave it out",
                )
        return
    _check_late(options, "a late delete")


def _check_late(options: SourceKeys, what: str) -> None:
    if options.late == "drop-and-count-nothing":
        raise ConfigError(
            f"if {what} were left out, its record would stay for ever",
            where=f"{_WHERE} late",
            allowed="error, next-step",
        )


def _check_snapshots(options: SourceKeys) -> None:
    if options.kind == "postgres-changes" or options.stdin:
        what = "standard input" if options.stdin else f'kind = "{options.kind}"'
        raise ConfigError(
            f"{what} cannot be read as snapshots", where=f"{_WHERE} shape", allowed="files, duckdb, postgres"
        )
    _refuse_waits(options)
    if options.kind == "files" and options.every != "files":
        raise ConfigError(
            "each file is one snapshot and one step", where=f"{_WHERE} every", allowed='every = "files"'
        )


def _refuse_waits(options: SourceKeys) -> None:
    for key in ("xid_column", "wait"):
        if getattr(options, key) is not None:
            raise ConfigError(
                f"{key} has no meaning with {options.shape}: the table is read as it is, whoever is writing",
                where=_WHERE,
                allowed="leave it out",
            )


def _check_stays(options: SourceKeys) -> None:
    if options.kind == "postgres-changes" or options.stdin:
        what = "standard input" if options.stdin else f'kind = "{options.kind}"'
        raise ConfigError(
            f"{what} cannot be read as stays", where=f"{_WHERE} shape", allowed="files, duckdb, postgres"
        )
    _refuse_waits(options)
    for key in ("time_column", "delete_time_column"):
        value = getattr(options, key)
        if not isinstance(value, str) or not value:
            raise ConfigError(
                f'{key} is missing, which shape = "stays" needs', where=_WHERE, allowed="a column"
            )
    for key in ("time_column", "user_column"):
        if getattr(options, key) == options.delete_time_column:
            raise ConfigError(
                f"delete_time_column and {key} are the same column", where=_WHERE, allowed="two columns"
            )
    if options.every == "files":
        raise ConfigError(
            "the steps of a stay come from its own times, not from its file",
            where=f"{_WHERE} every",
            allowed="a calendar, or step numbers",
        )
    if options.end == "data":
        raise ConfigError(
            'end = "data" does not fit stays: the latest time in the data may be an end in the future',
            where=_WHERE,
            allowed='a day, a step number, or "today"',
        )
    if options.shrinks != _DEFAULTS["shrinks"] and not _stays_as_snapshots(options):
        raise ConfigError(
            'shrinks has no meaning for stays with late = "error": released steps are read again and compared',
            where=_WHERE,
            allowed="leave it out",
        )
    _check_late(options, "a late end")
    if options.known == "update" and not _stays_as_snapshots(options):
        # The first end would delete the record, although another stay of its key is still open.
        raise ConfigError(
            'known = "update" does not fit stays with late = "error": '
            "the end of one stay would end the other stays of its key",
            where=f"{_WHERE} known",
            allowed='error; with late = "next-step" also update',
        )


def key_rules(options: SourceKeys) -> KeyRules:
    """The rules for rows that contradict the records so far, with the defaults of the shape filled in."""
    known = options.known or ("error" if options.shape == "stays" else "update")
    repeated = options.repeated or ("error" if options.shape == "snapshots" else "last")
    if _stays_as_snapshots(options):
        repeated = "error" if known == "error" else "last"  # the rows of one key are stays that overlap
    return KeyRules(options.unknown, known, repeated, float(options.shrinks))


def keys_that_matter(options: SourceKeys) -> list[str]:
    """The keys of ``[source]`` whose rules can apply to rows of this shape."""
    feed = options.op_column is not None or options.kind == "postgres-changes"
    if options.shape == "snapshots":
        return ["repeated", "shrinks"]
    if options.shape == "stays":
        return ["known", *(["shrinks"] if _stays_as_snapshots(options) else [])]
    return ["shape", *(["unknown", "known"] if feed else []), "repeated"]


def _stays_as_snapshots(options: SourceKeys) -> bool:
    return options.shape == "stays" and options.late == "next-step"


def gives_whole_tables(options: SourceKeys) -> bool:
    """Whether a step holds all records that exist at its end."""
    return options.shape == "snapshots" or _stays_as_snapshots(options)


def needs_comparison(options: SourceKeys) -> bool:
    """Whether every run must read released steps again: only they show a late end or an erased row."""
    return options.shape == "stays" and not _stays_as_snapshots(options)


def reads_now(options: SourceKeys) -> bool:
    """Whether a step is the table at the time of reading, so that nobody can read it again later."""
    return options.shape == "snapshots" and options.kind != "files"


def keyed_pinned(options: SourceKeys) -> dict[str, Any]:
    """The settings of keyed records that the plan pins, as JSON values; empty without ``key_column``."""
    if options.key_column is None:
        return {}
    rules = key_rules(options)
    pinned = {
        "key_column": options.key_column,
        "shape": options.shape,
        "updates": options.updates,
        "unknown": rules.unknown,
        "known": rules.known,
        "repeated": rules.repeated,
        "shrinks": rules.shrinks,
    }
    if options.delete_time_column is not None:
        pinned["delete_time_column"] = options.delete_time_column
    return pinned


#: late -> what happens to a start, an end or a value of a stay that comes late or is changed.
_LATE_STAYS = {
    "error": "released steps are read again, and a start, an end or a value in them that has changed stops the stream; "
    "that it stopped is visible, so whether one was changed, or came late, is not protected "
    '(late = "error")',
    "next-step": "when the program runs is declared public: a start, an end or a value that is changed or comes late "
    'counts at the first step of the run that finds it (late = "next-step")',
}
_SEEN = "stops the stream, and that it stopped is visible, so whether there is one is not protected"


def keyed_public(options: SourceKeys) -> list[str]:
    """What this way of reading keyed records does not protect, in sentences for plans and manifests.

    The sentences about refused keys and about tables that shrank come from ``stream.declared``.
    """
    facts = []
    if options.shape != "changes" and options.kind == "postgres" and options.query is None:
        facts.append(
            "the table (or view) is trusted to hold each protected record in a row of its own, which no other record "
            "moves"
        )
    if reads_now(options):
        facts.append(
            "when the program runs is declared public: a snapshot is the table as it is when its step is read"
        )
    if options.shape == "stays":
        facts.append(
            f"a null or unreadable start, an unreadable end, or an end before its start {_SEEN} (time_column, "
            "delete_time_column)"
        )
        facts.append(_LATE_STAYS[options.late])
    if options.op_column is not None:
        facts.append(f"a null or unknown operation {_SEEN} (op_column; column {options.op_column!r})")
    return facts
