"""Checks the keys of ``[source]`` that each kind of source needs."""

from __future__ import annotations

import datetime
import re

from dpstream.core.errors import ConfigError
from dpstream.core.objects import URLS, is_object_url, object_path
from dpstream.io.sources.source_keys import SOURCES, SourceKeys, keys_of_kind, wrong_source

_WHERE = "[source]"
#: kind -> keys that a file must write.
_NEEDED: dict[str, tuple[str, ...]] = {
    "files": (),
    "duckdb": ("database", "query"),
    "postgres": ("time_column",),
    "postgres-changes": ("table", "slot", "publication"),
}
_UNITS = {"minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_DURATION = re.compile(r"([0-9]{1,5}) (minute|hour|day|week)s?")


def duration(text: object, key: str) -> datetime.timedelta:
    """Read a length of time.

    Args:
        text: such as "6 hours".
        key: the key of ``[source]``, for the message.

    Errors:
        ConfigError: it is not a whole number with a unit.

    >>> duration("36 hours", "lag")
    datetime.timedelta(days=1, seconds=43200)
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise wrong_source(
            f"{key} = {text!r} is not a length of time", '"30 minutes", "6 hours", "2 days", "1 week"'
        )
    return datetime.timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def check_kind(options: SourceKeys) -> None:
    """Check that all keys belong to the kind of source and have values that it can use.

    Errors:
        ConfigError: names the key, and what is allowed.
    """
    if options.kind not in SOURCES.names():
        raise wrong_source(f"unknown kind = {options.kind!r}", ", ".join(SOURCES.names()))
    own = keys_of_kind(options.kind)
    for key in options.given():
        if key not in own:
            raise wrong_source(f'{key} has no meaning with kind = "{options.kind}"', ", ".join(own))
    needed = _NEEDED[options.kind] if options.kind in _NEEDED else SOURCES.get(options.kind).needed
    for key in needed:
        if key == "time_column" and options.shape == "snapshots":
            continue  # a snapshot is the whole table, whatever times its rows have
        value = getattr(options, key)
        if not isinstance(value, str) or not value.strip():
            raise wrong_source(f'{key} is missing, which kind = "{options.kind}" needs', "a text")
    if options.lag is not None:
        duration(options.lag, "lag")
        if options.rows is not None or options.every in (None, "files"):
            raise wrong_source("lag has no meaning without a calendar", "leave it out")
    if options.kind == "files":
        _check_files(options)
        return
    _check_database(options)
    if options.kind not in _NEEDED:
        check = SOURCES.get(options.kind).check
        if check is not None:
            check(options)
    elif options.kind == "duckdb":
        _check_query(options)
    else:
        _check_server(options)


def _check_files(options: SourceKeys) -> None:
    if not options.path or not all(isinstance(p, str) and p for p in options.path):
        raise wrong_source("there is no path", 'such as path = "data/*.parquet"')
    if "-" in options.path and len(options.path) > 1:
        raise wrong_source("standard input and files cannot be mixed", 'path = "-"')
    for text in options.path:
        if "://" in text:
            if not is_object_url(text):
                raise wrong_source(f"no files are read from {text.partition('://')[0]}:// URLs", URLS)
            object_path(text)
    for key, words in (("complete", ("rename", "done")), ("eof", ("hold", "close"))):
        if getattr(options, key) not in words:
            raise wrong_source(f"unknown {key} = {getattr(options, key)!r}", ", ".join(words))
    if options.stdin and (options.rows is not None or options.every == "files"):
        raise wrong_source(
            "records on standard input are cut into steps by their own time or step number only",
            "time_column, with or without every",
        )
    if options.stdin and options.lag is not None:
        raise wrong_source("lag has no meaning for standard input", "leave it out")
    unused = "complete" if options.stdin else "eof"
    if getattr(options, unused) != {"complete": "rename", "eof": "hold"}[unused]:
        what = "standard input" if options.stdin else "files"
        raise wrong_source(f"{unused} has no meaning for {what}", "leave it out")


def _check_database(options: SourceKeys) -> None:
    if options.every == "files":
        raise wrong_source('every = "files" has no meaning without files', "a calendar")
    if options.end == "data":
        raise wrong_source(
            'end = "data" fits files only: which periods of a database are read must be public',
            'a day, a step number, or "today"',
        )


def _check_query(options: SourceKeys) -> None:
    if options.shape == "stays":
        return
    if options.time_column is not None:
        raise wrong_source(
            "time_column has no meaning for a query, which says itself what is in a step",
            'leave it out; shape = "stays" needs it for the start of a stay',
        )
    if options.late == "next-step":
        raise ConfigError(
            "a query cannot tell late records from old ones",
            where=f"{_WHERE} late",
            allowed="error (released steps are compared), drop-and-count-nothing (they are not)",
        )


def _check_server(options: SourceKeys) -> None:
    for key in ("url", "url_env", "xid_column"):
        value = getattr(options, key)
        if value is not None and (not isinstance(value, str) or not value):
            raise wrong_source(f"{key} is not a text, or is empty", "a text")
    if (options.url is None) == (options.url_env is None):
        raise wrong_source(
            "url and url_env are both missing, or both given",
            "one of the two: the server's URL, or the name of the environment variable that holds it",
        )
    _check_table(options)
    if options.every is None and options.shape != "stays":
        raise wrong_source("every is missing: a step of a database is a period of a calendar", '"week"')
    if options.wait is not None:
        duration(options.wait, "wait")
    keeps_numbers = options.kind == "postgres" and options.shape != "stays"
    if keeps_numbers and options.late == "next-step" and options.xid_column is None:
        raise wrong_source(
            "xid_column is missing: updates and rewrites of a table change the transaction numbers that the server "
            "keeps, and its rows would be counted twice",
            "a column of the type xid8 with DEFAULT pg_current_xact_id(), or another rule for late records",
        )


def _check_table(options: SourceKeys) -> None:
    """That one thing is read: a table, or where it is read whole, the answer to a query."""
    if options.kind == "postgres" and options.shape != "changes":
        if (options.table is None) == (options.query is None):
            raise wrong_source("nothing says what is read, or two keys do", "one of table and query")
    elif options.query is not None:
        raise wrong_source(
            "query has no meaning for a table that grows, whose rows are told apart by their transactions",
            'table (which may be a view); or shape = "snapshots" or "stays", which read the whole answer',
        )
    key = "table" if options.query is None else "query"
    value = getattr(options, key)
    if not isinstance(value, str) or not value.strip():
        raise wrong_source(f'{key} is missing, which kind = "{options.kind}" needs', "a text")
