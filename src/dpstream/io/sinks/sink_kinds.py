"""The sinks beside the folder, by name: this package's own, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpstream.core.contracts.plugins import Plugins
from dpstream.io.sinks.feed import Feed

__all__ = ["OWN_SINKS", "SINKS", "SinkKind"]

OWN_SINKS = ("folder", "duckdb", "postgresql", "stdout")


@dataclass(frozen=True)
class SinkKind:
    """A sink of another package: the object of an entry point of the group ``dpstream.sinks``.

    Attributes:
        open: makes the ``Feed`` from ``[output] database`` (None where the file does not have it) and ``table``.
    """

    open: Callable[[str | None, str], Feed]


SINKS = Plugins("dpstream.sinks", "the sink", SinkKind, OWN_SINKS)
