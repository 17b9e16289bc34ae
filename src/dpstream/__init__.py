"""Differentially private synthetic copies of private tables that grow and change over time.

The names below are loaded when they are first used: ``import dpstream`` itself imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream.config import Config
    from dpstream.errors import DpstreamError
    from dpstream.schema import Schema
    from dpstream.sinks import Publisher, read
    from dpstream.streams import Batch, Release, Stream

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
    "Batch": "dpstream.streams",
    "Config": "dpstream.config",
    "DpstreamError": "dpstream.errors",
    "Publisher": "dpstream.sinks",
    "Release": "dpstream.streams",
    "Schema": "dpstream.schema",
    "Stream": "dpstream.streams",
    "read": "dpstream.sinks",
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
