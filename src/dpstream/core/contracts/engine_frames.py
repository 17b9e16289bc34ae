"""Frames that stay where they are: the data frames of engines, which a stream counts in the engine itself.

A package names them with an entry point of the group ``dpstream.frames``, whose name is the root package of the frames'
classes. Nothing of the engine is imported before one of its frames is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts.plugins import Plugins

if TYPE_CHECKING:
    from dpstream.core.contracts.batches import EngineBatch


@dataclass(frozen=True)
class FrameKind:
    """The object of an entry point of the group ``dpstream.frames``.

    Attributes:
        batch: makes the batch of inserts (a frame of the engine), deletes (another one, or None) and users (as given).
            It gives None for an object of that package that is no frame of the engine.
        keyed: the same, of a ``KeyedBatch`` or ``Snapshot`` whose rows are such a frame; None: the engine keeps no
            records by key.
    """

    batch: Callable[[Any, Any, Any], EngineBatch | None]
    keyed: Callable[[Any], EngineBatch | None] | None = None


_FRAMES = Plugins(
    "dpstream.frames", "the frames of", FrameKind, {"pyspark": "dpstream.spark.spark_batch:FRAMES"}
)


def engine_batch(inserts: Any, deletes: Any, users: Any) -> EngineBatch | None:
    """A batch of an engine's own frames; None where they are no such frames.

    Errors:
        ConfigError: the engine's package is broken, or it cannot take these arguments.
    """
    for frame in (inserts, deletes):
        root = type(frame).__module__.partition(".")[0]
        if root in _FRAMES.names():
            return _FRAMES.get(root).batch(inserts, deletes, users)
    return None


def engine_keyed(given: Any, rows: Any) -> EngineBatch | None:
    """A batch of keyed records whose rows are an engine's own frame; None where they are no such frame.

    Args:
        given: a ``KeyedBatch`` or ``Snapshot``.
        rows: its rows.

    Errors:
        ConfigError: the engine's package is broken, or it cannot take such a batch.
    """
    root = type(rows).__module__.partition(".")[0]
    kind = _FRAMES.get(root) if root in _FRAMES.names() else None
    return None if kind is None or kind.keyed is None else kind.keyed(given)
