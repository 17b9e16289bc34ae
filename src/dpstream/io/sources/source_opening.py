"""From the ``[source]`` table to the source of its kind.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.io.sources.source import ReadOptions, Source
from dpstream.io.sources.source_keys import SourceKind, other_kind
from dpstream.io.sources.source_options import SourceOptions


def open_source(options: SourceOptions, reading: ReadOptions = ReadOptions()) -> Source:  # noqa: B008 (frozen)
    """Open the source that ``options`` describes. Nothing is read yet.

    Errors:
        ConfigError: the package of a source of another package is broken.
    """
    # Imported on use, because each kind needs another library.
    records, base, columns = options.records, Path(reading.base), reading.columns
    if options.kind == "postgres-changes":
        from dpstream.io.sources.replication import ChangeSource, KeyedChangeSource

        return (ChangeSource if records == "events" else KeyedChangeSource)(options, columns=columns)
    if options.kind == "postgres" and records in ("events", "inserts"):
        from dpstream.io.sources.table import TableSource

        return TableSource(options, columns=columns)
    if options.kind in ("postgres", "duckdb"):
        from dpstream.io.sources.pg_session import whole_table
        from dpstream.io.sources.query import duckdb_answer, open_query

        server = options.kind == "postgres"
        return open_query(
            options,
            partial(whole_table, options, columns) if server else partial(duckdb_answer, options, base),
        )
    kind = other_kind(options.kind)
    by_key = records not in ("events", "inserts") and not (kind is not None and kind.keyed)
    if by_key and columns:
        marks = (
            (options.time_column, options.delete_time_column) if records == "stays" else (options.op_column,)
        )
        columns = [*columns, *(name for name in marks if name is not None)]
    # Where values are discovered, steps hold the values themselves.
    raw = by_key or (reading.schema is not None and bool(reading.schema.open_columns))
    reading = replace(reading, columns=columns, schema=None if raw else reading.schema)
    source: Source
    if kind is not None:
        source = _open_other(options, kind, reading)
    elif options.stdin:
        from dpstream.io.sources.stdin import StdinSource

        source = StdinSource(options, reading)
    else:
        from dpstream.io.sources.files import FileSource, WideSource

        source = (FileSource if options.period_columns is None else WideSource)(options, reading)
    if not by_key:
        return source
    from dpstream.io.sources.keyed_source import KeyedSource, StaySource

    return (StaySource if records == "stays" else KeyedSource)(options, source)


def _open_other(options: SourceOptions, kind: SourceKind, reading: ReadOptions) -> Source:
    """Open a source of another package."""
    source = kind.open(options, Path(reading.base), tuple(reading.columns))
    if not isinstance(source, Source):
        raise ConfigError(
            f"source {options.kind!r} must be a dpstream.io.sources.Source",
            where="[source] kind",
            allowed="another package",
        )
    source.ignored = frozenset(reading.ignored)
    return source
