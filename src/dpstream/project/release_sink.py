"""The sink of a configuration file: the folder of releases, and what stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dpstream.core.errors import ConfigError
from dpstream.project.places import check_places

if TYPE_CHECKING:
    from dpstream.core.contracts import StreamPlan
    from dpstream.core.schema import Schema
    from dpstream.project.sections import OutputOptions
    from dpstream.stream import Sink


def sink_of(
    output: OutputOptions,
    directory: Path,
    state: Path,
    name: str,
    make_plan: Callable[[], StreamPlan],
    schema: Schema,
) -> Sink:
    """The folder, and the database, the bucket, the standard output or the tables that it is followed by.

    Args:
        directory: the folder of releases.
        state: the secret state's folder.
        name: of the stream.

    Errors:
        ConfigError: a place that lies in the state, or a column whose name the sink needs.
    """
    from dpstream.io.sinks import (
        Bucket,
        DuckDBFeed,
        Feed,
        Mirrored,
        PostgresFeed,
        Publisher,
        StandardOutput,
        Tee,
    )
    from dpstream.io.sinks.sink_kinds import SINKS
    from dpstream.stream.release.manifest import describe_tables

    folder = Publisher(directory, format=output.format)
    feed: Feed
    reserved: tuple[str, ...] = ()
    if output.sink == "duckdb" and output.database is not None:
        check_places(state, Path(output.database), "output database")
        feed = DuckDBFeed(Path(output.database), table=output.table)
    elif output.sink == "postgresql" and output.database is not None:
        feed = PostgresFeed(output.database, table=output.table)
    elif output.sink == "bucket" and output.database is not None:
        return Mirrored(folder, Bucket(output.database))
    elif output.sink == "stdout":
        feed = StandardOutput()
    elif output.sink == "folder":
        return folder
    else:
        kind = SINKS.get(output.sink)
        if kind.folder and output.database is not None:
            check_places(state, Path(output.database), "output database")
        feed, reserved = kind.open(output.database, output.table), kind.reserved
    plan = make_plan()
    released = plan.released_schema(schema)
    taken = [column for column in released.names if column.lower() in reserved]
    if taken:
        raise ConfigError(
            f"column {taken[0]!r} of the schema has a name that sink = {output.sink!r} needs",
            where="[output] sink",
            allowed="another name of the column, or another sink",
        )
    book = describe_tables(plan, released, name, folder.table_name, with_ids=False)
    rows = book["dpstream"].get("panel", {}).get("fields", [])
    return Tee(folder, feed, [*book["resources"][0]["schema"]["fields"], *rows])
