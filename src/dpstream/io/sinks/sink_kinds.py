"""The sinks beside the folder, by name: this package's own, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpstream.core.contracts.plugins import Plugins
from dpstream.io.sinks.feed import Feed

OWN_SINKS = ("folder", "duckdb", "postgresql", "bucket", "stdout")


@dataclass(frozen=True)
class SinkKind:
    """A sink of another room or package: the object of an entry point of the group ``dpstream.sinks``.

    Attributes:
        open: makes the ``Feed`` from ``[output] database`` (None where the file does not have it) and ``table``.
        folder: where ``database`` is a folder: its name, where the file does not have one. Empty: it is no folder.
        reserved: names that no released column may have, in lower case.
        draws_tables: whether its feed is a ``DrawingFeed``, for tables in which no record persists.
    """

    open: Callable[[str | None, str], Feed]
    folder: str = ""
    reserved: tuple[str, ...] = ()
    draws_tables: bool = False


#: Kinds whose room lies above this one: found as those of other packages are.
_ENGINES = {"spark": "dpstream.spark.release_tables:SINK"}
SINKS = Plugins("dpstream.sinks", "the sink", SinkKind, {**dict.fromkeys(OWN_SINKS, ""), **_ENGINES})
