"""Which families there are: those of this package, and those that other packages bring.

A package brings a mechanism with an entry point of the group ``dpstream.families``: its name is the mechanism's, its
value names a ``Family``. A family is loaded when one of its mechanisms is asked for, or when all options are needed.
"""

from __future__ import annotations

from collections.abc import Callable

from dpstream.core.contracts import Family
from dpstream.core.contracts.plugins import Plugins
from dpstream.core.errors import ConfigError

#: What runs where the file names none.
DEFAULT_MECHANISM = "pooled"
_BUILT_IN = {
    "pooled": "dpstream.families.tabular.family:TABULAR",
    "dpstabs": "dpstream.families.tabular.family:TABULAR",
    "baseline": "dpstream.families.tabular.family:TABULAR",
    "census": "dpstream.families.census.family:CENSUS",
    "panel-window": "dpstream.families.panel.family:PANEL",
    "panel-cumulative": "dpstream.families.panel.family:PANEL",
    "points": "dpstream.families.points.family:POINTS",
    "scheduler": "dpstream.families.growing.family:GROWING",
    "improver": "dpstream.families.growing.family:GROWING",
    "pmwg": "dpstream.families.growing.family:ASKED",
}
_FAMILIES = Plugins("dpstream.families", "the mechanism", Family, _BUILT_IN)


def mechanisms() -> tuple[str, ...]:
    """The names of all mechanisms; loads none of them."""
    return _FAMILIES.names()


def family_of(mechanism: str) -> Family:
    """The family of a mechanism, loaded now.

    Errors:
        ConfigError: no such mechanism, one that two packages bring, or one whose package is broken.
    """
    if mechanism not in mechanisms():
        raise ConfigError(
            f"unknown mechanism {mechanism!r}", where="mechanism", allowed=", ".join(mechanisms())
        )
    return _FAMILIES.get(mechanism)


def families() -> tuple[Family, ...]:
    """All families, in the order of their mechanisms; errors as of ``family_of``."""
    return tuple({id(family): family for family in map(family_of, mechanisms())}.values())


def mechanisms_with(wanted: Callable[[Family], bool]) -> tuple[str, ...]:
    """The names of the mechanisms whose family is as ``wanted``; errors as of ``family_of``."""
    return tuple(name for name in mechanisms() if wanted(family_of(name)))


def is_built_in(family: Family) -> bool:
    """Whether a family is of this package, whatever it is called."""
    return all(name in _BUILT_IN for name in family.mechanisms)
