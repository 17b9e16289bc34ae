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

__all__ = ["FrameKind", "engine_batch"]


@dataclass(frozen=True)
class FrameKind:
    """The object of an entry point of the group ``dpstream.frames``.

    Attributes:
        batch: makes the batch of inserts (a frame of the engine), deletes (another one, or None) and users (as given).
            It gives None for an object of that package that is no frame of the engine.
    """

    batch: Callable[[Any, Any, Any], EngineBatch | None]


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
