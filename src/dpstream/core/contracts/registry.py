"""Which families there are: those of this package, and those that other packages bring.

A package brings a mechanism with an entry point of the group ``dpstream.families``: its name is the mechanism's, its
value names a ``Family``. A family is loaded when one of its mechanisms is asked for, or when all options are needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from dpstream.core.contracts.families import Family
from dpstream.core.errors import ConfigError

__all__ = [
    "DEFAULT_MECHANISM",
    "EARLIER_DEFAULT",
    "families",
    "family_of",
    "is_built_in",
    "mechanisms",
    "mechanisms_with",
]

GROUP = "dpstream.families"
#: What runs where the file names none, and what did before.
DEFAULT_MECHANISM, EARLIER_DEFAULT = "pooled", "dpstabs"
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


def mechanisms() -> tuple[str, ...]:
    """The names of all mechanisms; loads none of them."""
    return tuple(_places(tuple(sys.path)))


def family_of(mechanism: str) -> Family:
    """The family of a mechanism, loaded now.

    Errors:
        ConfigError: no such mechanism, one that two packages bring, or one whose package is broken.
    """
    places = _places(tuple(sys.path)).get(mechanism)
    if places is None:
        raise ConfigError(
            f"unknown mechanism {mechanism!r}", where="mechanism", allowed=", ".join(mechanisms())
        )
    if len(places) > 1:
        raise ConfigError(
            f"{' and '.join(_package(place) for place in places)} both bring a mechanism {mechanism!r}",
            where=f"entry points {GROUP}",
            allowed="one package for each name: uninstall one of them",
        )
    return _load(places[0])


def families() -> tuple[Family, ...]:
    """All families, in the order of their mechanisms; errors as of ``family_of``."""
    return tuple({id(family): family for family in map(family_of, mechanisms())}.values())


def mechanisms_with(wanted: Callable[[Family], bool]) -> tuple[str, ...]:
    """The names of the mechanisms whose family is as ``wanted``; errors as of ``family_of``."""
    return tuple(name for name in mechanisms() if wanted(family_of(name)))


def is_built_in(family: Family) -> bool:
    """Whether a family is of this package, whatever it is called."""
    return all(name in _BUILT_IN for name in family.mechanisms)


@lru_cache(maxsize=4)
def _places(path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Mechanism -> who brings it; ``path``: where packages are installed."""
    found = {name: [EntryPoint(name, value, GROUP)] for name, value in _BUILT_IN.items()}
    for place in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        found.setdefault(place.name, []).append(place)
    return found


def _load(place: EntryPoint) -> Family:
    if place.name in _BUILT_IN:
        family: Family = place.load()
        return family
    try:
        loaded = place.load()
    except Exception as error:  # noqa: BLE001 (somebody else's code may raise anything)
        raise _broken(place, f"cannot be loaded: {type(error).__name__}: {error}") from None
    if not isinstance(loaded, Family) or place.name not in loaded.recipes:
        raise _broken(place, f"names no family with a mechanism {place.name!r}")
    return loaded


def _broken(place: EntryPoint, what: str) -> ConfigError:
    return ConfigError(
        f"the mechanism {place.name!r} of {_package(place)} ({place.value}) {what}",
        where=f"entry points {GROUP}",
        allowed="a package that works with this version of dpstream, or none",
    )


def _package(place: EntryPoint) -> str:
    return "dpstream" if place.dist is None else f"the package {place.dist.name!r}"
