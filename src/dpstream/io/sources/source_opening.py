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
from dpstream.io.sources.source_keys import KINDS, SOURCES, other_kind
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
    kind = other_kind(options.kind)
    if options.key_column is not None and not (kind is not None and kind.keyed):
        return _open_keyed(options, base, columns, ignored, reveal, watched)
    # Imported on use, because each kind needs another library.
    if options.kind == "duckdb":
        from dpstream.io.sources.query import duckdb_answer, open_query

        return open_query(options, partial(duckdb_answer, options, Path(base)))
    if options.kind == "postgres":
        from dpstream.io.sources.table import TableSource

        return TableSource(options, columns=columns)
    if options.kind == "postgres-changes":
        from dpstream.io.sources.replication import ChangeSource

        return ChangeSource(options, columns=columns)
    if options.kind not in KINDS:
        return _open_other(options, base, columns, ignored)
    if options.stdin:
        from dpstream.io.sources.stdin import StdinSource

        return StdinSource(options, columns=columns, ignored=ignored, reveal=reveal)
    if options.period_columns is not None:
        from dpstream.io.sources.files import WideSource

        return WideSource(options, base=base, columns=columns, ignored=ignored, reveal=reveal)
    from dpstream.io.sources.files import FileSource

    return FileSource(
        options, base=base, reveal=reveal, watched=watched, columns=columns, ignored=ignored, schema=schema
    )


def _open_other(
    options: SourceOptions, base: str | Path, columns: Sequence[str], ignored: Sequence[str]
) -> Source:
    """Open a source of another package; of one that takes ``shape``, also its snapshots and stays."""
    source = SOURCES.get(options.kind).open(options, Path(base), tuple(columns))
    if not isinstance(source, Source):
        raise ConfigError(
            f"the package of the source {options.kind!r} does not give a dpstream.io.sources.Source",
            where="[source] kind",
            allowed="a package that does",
        )
    source.ignored = frozenset(ignored)
    return source


def _open_keyed(
    options: SourceOptions,
    base: str | Path,
    columns: Sequence[str],
    ignored: Sequence[str],
    reveal: bool,
    watched: bool,
) -> Source:
    """Open a source of records with keys."""
    from dpstream.io.sources.keyed_source import KeyedSource, StaySource, plain_options

    if options.kind == "postgres-changes":
        from dpstream.io.sources.replication import KeyedChangeSource

        return KeyedChangeSource(options, columns=columns)
    if options.shape != "changes" and options.kind == "postgres":
        from dpstream.io.sources.pg_session import whole_table
        from dpstream.io.sources.query import open_query

        return open_query(options, partial(whole_table, options, columns))
    if options.shape != "changes" and options.kind == "duckdb":
        from dpstream.io.sources.query import duckdb_answer, open_query

        return open_query(options, partial(duckdb_answer, options, Path(base)))
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
        return StaySource(options, plain)
    return KeyedSource(options, plain)
