"""``[source]`` where records have keys: what fits together, what it declares public, and what is read beneath it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from dpstream.core.errors import ConfigError
from dpstream.core.tables import KeyRules
from dpstream.io.sources.source_keys import Shape, SourceKeys

__all__ = [
    "KEYED_KEYS",
    "check_keyed",
    "gives_whole_tables",
    "key_rules",
    "keyed_pinned",
    "keyed_public",
    "keys_that_matter",
    "needs_comparison",
    "reads_now",
]

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
#: Keys that a shape does not have, each with the reason.
_FOREIGN: Mapping[str, Mapping[str, str]] = {
    "changes": {
        "delete_time_column": 'only shape = "stays" has it',
        "shrinks": 'only shape = "snapshots" has it',
    },
    "snapshots": {
        "time_column": "a snapshot is the whole table at the end of its step, whatever times its rows have",
        "delete_time_column": 'only shape = "stays" has it',
        "op_column": "a row of a snapshot is there, and does nothing",
        "updates": "a snapshot has whole rows",
        "unknown": "a snapshot names only keys that are there",
        "known": "a key that is there already is an update",
        "late": "a snapshot is the table as it is",
    },
    "stays": {
        "op_column": "a stay has a start and an end, and no operation",
        "updates": "a stay has whole rows",
        "repeated": "several stays of one key in a step follow each other; known is for those that overlap",
    },
}


def check_keyed(options: SourceKeys) -> None:
    """That the keys about keyed records fit together and fit the kind.

    Errors:
        ConfigError: names the key, why not, and what is allowed.
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
        ("rows", "steps of so many rows would let one record move all others"),
        ("period_columns", "a panel follows people, and has no keys of records"),
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
        # 0 equals False, and is no word for it.
        if not any(type(value) is type(word) and value == word for word in words):
            shown = ", ".join(str(word).lower() for word in words if word is not None)
            raise ConfigError(f"unknown {key} = {value!r}", where=_WHERE, allowed=shown)
    share = options.shrinks
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ConfigError(f"shrinks = {share!r} is no share", where=_WHERE, allowed="from 0 to below 1")


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
            "the rows of a PostgreSQL table come in no order, so it cannot be a feed of changes by key",
            where=f"{_WHERE} shape",
            allowed='shape = "snapshots", kind = "postgres-changes", or insert_only = true',
        )
    if options.op_column is None and options.kind != "postgres-changes":
        for key in ("updates", "unknown", "known"):
            if getattr(options, key) != _DEFAULTS[key]:
                raise ConfigError(
                    f"{key} has no meaning without op_column: every row is what its record is now",
                    where=_WHERE,
                    allowed="op_column, or leave it out",
                )
        return
    _check_late(options, "a late delete")
    _check_broken(options, "a line that is left out may be a delete, and would keep its record for ever")


def _check_late(options: SourceKeys, what: str) -> None:
    if options.late == "drop-and-count-nothing":
        raise ConfigError(
            f"{what} that is left out would keep its record for ever",
            where=f"{_WHERE} late",
            allowed="error, next-step",
        )


def _check_broken(options: SourceKeys, why: str) -> None:
    if options.broken == "drop-and-count-nothing":
        raise ConfigError(
            f'broken = "{options.broken}" does not fit records that have keys: {why}',
            where=f"{_WHERE} broken",
            allowed="error, missing",
        )


def _check_snapshots(options: SourceKeys) -> None:
    if options.kind == "postgres-changes" or options.stdin:
        what = "standard input" if options.stdin else f'kind = "{options.kind}"'
        raise ConfigError(
            f"{what} gives no snapshots", where=f"{_WHERE} shape", allowed="files, duckdb, postgres"
        )
    for key in ("xid_column", "wait"):
        if getattr(options, key) is not None:
            raise ConfigError(
                f"{key} has no meaning with snapshots: the table is read as it is, whoever is writing",
                where=_WHERE,
                allowed="leave it out",
            )
    if options.kind == "files" and options.every != "files":
        raise ConfigError(
            "each file is one snapshot and one step", where=f"{_WHERE} every", allowed='every = "files"'
        )
    _check_broken(options, "a line that is left out would be a record that left")


def _check_stays(options: SourceKeys) -> None:
    if options.kind != "files" or options.stdin:
        what = "standard input" if options.stdin else f'kind = "{options.kind}"'
        raise ConfigError(
            f"{what} gives no stays",
            where=f"{_WHERE} shape",
            allowed='files; of a database shape = "snapshots", with a query for the records that are there',
        )
    for key in ("time_column", "delete_time_column"):
        value = getattr(options, key)
        if not isinstance(value, str) or not value:
            raise ConfigError(
                f'{key} is missing, which shape = "stays" needs', where=_WHERE, allowed="a column"
            )
    if options.delete_time_column in (options.time_column, options.user_column):
        raise ConfigError(
            "delete_time_column and another one are the same column", where=_WHERE, allowed="two columns"
        )
    if options.every == "files":
        raise ConfigError(
            "stays are cut by their own times", where=f"{_WHERE} every", allowed="a calendar, or step numbers"
        )
    if options.end == "data":
        raise ConfigError(
            'end = "data" does not fit stays: their ends lie in the future',
            where=_WHERE,
            allowed='a day, a step number, or "today"',
        )
    if options.shrinks != _DEFAULTS["shrinks"] and not _stays_as_snapshots(options):
        raise ConfigError(
            'shrinks has no meaning for stays with late = "error": released steps are compared',
            where=_WHERE,
            allowed="leave it out",
        )
    _check_late(options, "a late end")
    if _stays_as_snapshots(options):
        _check_broken(options, "a line that is left out would be a record that left")
    if options.known == "update" and not _stays_as_snapshots(options):
        # The first end would take the key out of the table, although another stay of it is still open.
        raise ConfigError(
            'known = "update" does not fit stays with late = "error": the end of one stay would end others of its key',
            where=f"{_WHERE} known",
            allowed='error; with late = "next-step" also update',
        )


def key_rules(options: SourceKeys) -> KeyRules:
    """What becomes of rows that do not fit, with the defaults of the shape."""
    known = options.known or ("error" if options.shape == "stays" else "update")
    repeated = options.repeated or ("error" if options.shape == "snapshots" else "last")
    if _stays_as_snapshots(options):
        repeated = "error" if known == "error" else "last"  # stays of one key that overlap
    return KeyRules(options.unknown, known, repeated, float(options.shrinks))


def keys_that_matter(options: SourceKeys) -> list[str]:
    """The rules that can meet a row of this shape."""
    feed = options.op_column is not None or options.kind == "postgres-changes"
    if options.shape == "snapshots":
        return ["repeated", "shrinks"]
    if options.shape == "stays":
        return ["known", *(["shrinks"] if _stays_as_snapshots(options) else [])]
    return ["shape", *(["unknown", "known"] if feed else []), "repeated"]


def _stays_as_snapshots(options: SourceKeys) -> bool:
    return options.shape == "stays" and options.late == "next-step"


def gives_whole_tables(options: SourceKeys) -> bool:
    """Whether a step is the whole table as it is at its end."""
    return options.shape == "snapshots" or _stays_as_snapshots(options)


def needs_comparison(options: SourceKeys) -> bool:
    """Whether released steps must be read again at every run, as a late end or an erased row shows in them alone."""
    return options.shape == "stays" and not _stays_as_snapshots(options)


def reads_now(options: SourceKeys) -> bool:
    """Whether a step is the table as it is when it is read, so that nobody can read it again."""
    return options.shape == "snapshots" and options.kind != "files"


def keyed_pinned(options: SourceKeys) -> dict[str, Any]:
    """What the plan is pinned to beside what every source is; nothing where records have no keys."""
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


#: What becomes of a start, an end or a value of a stay that comes late or is changed.
_LATE_STAYS = {
    "error": "released steps are read again, and a start, an end or a value in them that has changed stops the stream; "
    "that it stopped is visible, so whether one was changed, or came late, is not protected "
    '(late = "error")',
    "next-step": "when the program runs is declared public: a start, an end or a value that is changed or comes late "
    'counts at the first step of the run that finds it (late = "next-step")',
}
_SEEN = "stops the stream, and that it stopped is visible, so whether there is one is not protected"


def keyed_public(options: SourceKeys) -> list[str]:
    """What the way to read keyed records leaves open to whoever watches, in sentences.

    Of keys and operations that the rules refuse, and of tables that shrank, the stream itself says it.
    """
    facts = []
    if options.shape == "snapshots" and options.kind == "postgres":
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
