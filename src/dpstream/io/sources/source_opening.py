"""From the ``[source]`` table to the source of its kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.io.sources.source import Source
from dpstream.io.sources.source_keys import KINDS, SOURCES
from dpstream.io.sources.source_options import SourceOptions

__all__ = ["open_source"]


def open_source(
    options: SourceOptions,
    *,
    base: str | Path = ".",
    columns: Sequence[str] = (),
    ignored: Sequence[str] = (),
    reveal: bool = False,
    watched: bool = False,
) -> Source:
    """The source that ``options`` describe. Reads nothing yet.

    Args:
        base: folder that paths are relative to.
        columns: names that the records have at least (standard input: a key that no record has is a null; a
            PostgreSQL table: only these leave the server; a column a period: the variables).
        ignored: names that records may have besides, and that are not read (files and standard input).
        reveal: say in errors which record it is; for the owner's eyes only.
        watched: more records will come (``run --watch``).
    """
    if options.key_column is not None:
        return _open_keyed(options, base, columns, ignored, reveal, watched)
    # Imported on use: each kind needs another library.
    if options.kind == "duckdb":
        from dpstream.io.sources.query import QuerySource

        return QuerySource(options, base=base)
    if options.kind == "postgres":
        from dpstream.io.sources.table import TableSource

        return TableSource(options, columns=columns)
    if options.kind == "postgres-changes":
        from dpstream.io.sources.replication import ChangeSource

        return ChangeSource(options, columns=columns)
    if options.kind not in KINDS:
        source = SOURCES.get(options.kind).open(options, Path(base), tuple(columns))
        if not isinstance(source, Source):
            raise ConfigError(
                f"the source {options.kind!r} is no dpstream.io.sources.Source", where="[source] kind"
            )
        return source
    if options.stdin:
        from dpstream.io.sources.stdin import StdinSource

        return StdinSource(options, columns=columns, ignored=ignored, reveal=reveal)
    if options.period_columns is not None:
        from dpstream.io.sources.wide import WideSource

        return WideSource(options, base=base, columns=columns, ignored=ignored, reveal=reveal)
    from dpstream.io.sources.files import FileSource

    return FileSource(options, base=base, reveal=reveal, watched=watched, columns=columns, ignored=ignored)


def _open_keyed(
    options: SourceOptions,
    base: str | Path,
    columns: Sequence[str],
    ignored: Sequence[str],
    reveal: bool,
    watched: bool,
) -> Source:
    """The source of records with keys, with the source of plain rows beneath it."""
    from dpstream.io.sources.keyed_source import KeyedSource, plain_options

    if options.kind == "postgres-changes":
        from dpstream.io.sources.keyed_replication import KeyedChangeSource

        return KeyedChangeSource(options, columns=columns)
    if options.shape == "snapshots" and options.kind != "files":
        from dpstream.io.sources.keyed_snapshots import QuerySnapshots, TableSnapshots

        if options.kind == "postgres":
            return TableSnapshots(options, columns=columns)
        return KeyedSource(options, QuerySnapshots(plain_options(options), base=base))
    if options.shape == "stays" and options.kind != "files":
        from dpstream.io.sources.keyed_stay_rows import QueryStays, TableStays
        from dpstream.io.sources.keyed_stays import StaySource

        if options.kind == "postgres":
            return StaySource(options, TableStays(options, columns=columns))
        return StaySource(
            options, QueryStays(plain_options(options, time_column=None, late="error"), base=base)
        )
    whole_files = {
        "time_column": None,
        "every": "files",
        "start": None,
        "end": None,
        "lag": None,
        "late": "error",
    }
    beneath = plain_options(options, **(whole_files if options.shape == "stays" else {}))
    marks = {
        "changes": [options.op_column],
        "snapshots": [],
        "stays": [options.time_column, options.delete_time_column],
    }[options.shape]
    named = [*columns, *(name for name in marks if name is not None)] if columns else ()
    plain = open_source(beneath, base=base, columns=named, ignored=ignored, reveal=reveal, watched=watched)
    if options.shape == "stays":
        from dpstream.io.sources.keyed_stays import StaySource

        return StaySource(options, plain)
    return KeyedSource(options, plain)
