"""Where tables go besides the folder, by name: this package's own, and those that other packages bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpstream.core.contracts.plugins import Plugins
from dpstream.io.sinks.feed import Feed

__all__ = ["OWN_SINKS", "SINKS", "SinkKind"]

OWN_SINKS = ("folder", "duckdb", "postgresql", "stdout")


@dataclass(frozen=True)
class SinkKind:
    """What an entry point of the group ``dpstream.sinks`` names.

    Attributes:
        open: makes the feed from ``[output] database`` (None where the file has none) and ``table``.
    """

    open: Callable[[str | None, str], Feed]


SINKS = Plugins("dpstream.sinks", "the sink", SinkKind, OWN_SINKS)
