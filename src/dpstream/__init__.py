"""Differentially private synthetic copies of private tables that grow and change over time.

``import dpstream as dp``. The names below are loaded when they are first used: importing this imports nothing heavy.

* A stream from Python: ``open``, ``Schema`` and its columns (``Boolean``, ``Categorical``, ``Integer``, ``Real``,
  ``Date``, ``DateTime``), units (``Event``, ``User``, ``Individual``, ``Record``), budgets (``PureDP``, ``ZCDP``),
  ``Batch``; where records have keys, ``KeyedBatch``, ``Snapshot`` and ``KeyRules``.
* From a file: ``run("dpstream.toml")``.
* What is published: ``read`` gives a ``PublicRelease``; a ``Stream`` gives a ``Release``; both give an ``Answer``.
* Mechanisms: ``tabular``, ``panel``, ``points``, ``growing``; ``Workload``; ``counters``, ``certify``.
* ``errors``: every exception; ``DpstreamError`` is their base.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpstream import counters, growing, panel, points, tabular
    from dpstream.checks import certify
    from dpstream.core import errors
    from dpstream.core.errors import DpstreamError
    from dpstream.core.privacy import ZCDP, Event, Individual, PureDP, Record, User
    from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
    from dpstream.core.tables import KeyedBatch, KeyRules, Snapshot, Workload
    from dpstream.core.version import __version__
    from dpstream.io.sinks import Publisher
    from dpstream.project import Config
    from dpstream.project.front import open
    from dpstream.stream import Answer, Batch, Marginal, Release, Stream
    from dpstream.stream.public_release import PublicRelease, read
    from dpstream.tools.running import run

__all__ = [
    "ZCDP",
    "Answer",
    "Batch",
    "Boolean",
    "Categorical",
    "Config",
    "Date",
    "DateTime",
    "DpstreamError",
    "Event",
    "Individual",
    "Integer",
    "KeyRules",
    "KeyedBatch",
    "Marginal",
    "PublicRelease",
    "Publisher",
    "PureDP",
    "Real",
    "Record",
    "Release",
    "Schema",
    "Snapshot",
    "Stream",
    "User",
    "Workload",
    "__version__",
    "certify",
    "counters",
    "errors",
    "growing",
    "open",
    "panel",
    "points",
    "read",
    "run",
    "tabular",
]

#: Parts, with the public names that come from them.
_PARTS = {
    "dpstream.checks": ("certify",),
    "dpstream.core.errors": ("DpstreamError",),
    "dpstream.core.privacy": ("ZCDP", "Event", "Individual", "PureDP", "Record", "User"),
    "dpstream.core.schema": ("Boolean", "Categorical", "Date", "DateTime", "Integer", "Real", "Schema"),
    "dpstream.core.tables": ("KeyRules", "KeyedBatch", "Snapshot", "Workload"),
    "dpstream.core.version": ("__version__",),
    "dpstream.io.sinks": ("Publisher",),
    "dpstream.project": ("Config",),
    "dpstream.project.front": ("open",),
    "dpstream.stream": ("Answer", "Batch", "Marginal", "Release", "Stream"),
    "dpstream.stream.public_release": ("PublicRelease", "read"),
    "dpstream.tools.running": ("run",),
}
_HOME = {name: part for part, names in _PARTS.items() for name in names}
#: Public name -> the module that it is.
_MODULES = {
    "counters": "dpstream.counters",
    "errors": "dpstream.core.errors",
    "growing": "dpstream.growing",
    "panel": "dpstream.panel",
    "points": "dpstream.points",
    "tabular": "dpstream.tabular",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _MODULES:
        thing: Any = import_module(_MODULES[name])
    elif name in _HOME:
        thing = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = thing
    return thing


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
