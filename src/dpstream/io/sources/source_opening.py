"""From the ``[source]`` table to the source of its kind.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.core.schema import Schema
from dpstream.io.sources.source import Source
from dpstream.io.sources.source_keys import SourceKind, other_kind
from dpstream.io.sources.source_options import SourceOptions


def open_source(
    options: SourceOptions,
    *,
    base: str | Path = ".",
    columns: Sequence[str] = (),
    ignored: Sequence[str] = (),
    reveal: bool = False,
    watched: bool = False,
    schema: Schema | None = None,
) -> Source:
    """Open the source that ``options`` describes. Nothing is read yet.

    Args:
        base: folder that paths are relative to.
        columns: the names of the attributes. On standard input a missing key is a null. Of a PostgreSQL table only
            these columns leave the server. With ``period_columns`` they are the variables.
        ignored: names that records may have besides, and that are not read (files and standard input).
        reveal: name the record in errors; for the owner's eyes only.
        watched: more records will come (``run --watch``).
        schema: files of records without keys are encoded with it while they are read.

    Errors:
        ConfigError: the package of a source of another package is broken.
    """
    # Imported on use, because each kind needs another library.
    records, base = options.records, Path(base)
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
    source: Source
    if kind is not None:
        source = _open_other(options, kind, base, columns, ignored)
    elif options.stdin:
        from dpstream.io.sources.stdin import StdinSource

        source = StdinSource(options, columns=columns, ignored=ignored, reveal=reveal)
    elif options.period_columns is not None:
        from dpstream.io.sources.files import WideSource

        source = WideSource(options, base=base, columns=columns, ignored=ignored, reveal=reveal)
    else:
        from dpstream.io.sources.files import FileSource

        encoded = None if by_key else schema
        source = FileSource(
            options,
            base=base,
            reveal=reveal,
            watched=watched,
            columns=columns,
            ignored=ignored,
            schema=encoded,
        )
    if not by_key:
        return source
    from dpstream.io.sources.keyed_source import KeyedSource, StaySource

    return (StaySource if records == "stays" else KeyedSource)(options, source)


def _open_other(
    options: SourceOptions, kind: SourceKind, base: Path, columns: Sequence[str], ignored: Sequence[str]
) -> Source:
    """Open a source of another package."""
    source = kind.open(options, base, tuple(columns))
    if not isinstance(source, Source):
        raise ConfigError(
            f"the package of the source {options.kind!r} does not give a dpstream.io.sources.Source",
            where="[source] kind",
            allowed="a package that does",
        )
    source.ignored = frozenset(ignored)
    return source
