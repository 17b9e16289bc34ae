"""Differentially private synthetic copies of private tables that grow and change over time.

The names below are loaded when they are first used: ``import dpstream`` itself imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream.core.errors import DpstreamError
    from dpstream.core.schema import Schema
    from dpstream.io.sinks import Publisher, read
    from dpstream.project import Config
    from dpstream.stream import Batch, Release, Stream

__all__ = [
    "Batch",
    "Config",
    "DpstreamError",
    "Publisher",
    "Release",
    "Schema",
    "Stream",
    "__version__",
    "read",
]

__version__ = "0.1.0"

#: Public name -> the part it comes from.
_HOME = {
    "Batch": "dpstream.stream",
    "Config": "dpstream.project",
    "DpstreamError": "dpstream.core.errors",
    "Publisher": "dpstream.io.sinks",
    "Release": "dpstream.stream",
    "Schema": "dpstream.core.schema",
    "Stream": "dpstream.stream",
    "read": "dpstream.io.sinks",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    thing = getattr(import_module(_HOME[name]), name)
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
