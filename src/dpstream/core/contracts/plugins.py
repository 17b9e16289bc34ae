"""What this package and others bring by name: found through entry points, loaded when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from dpstream.core.errors import ConfigError

T = TypeVar("T")


class Plugins(Generic[T]):
    """The entry points of one group.

    Args:
        group: such as ``dpstream.sources``; the name of an entry point is what a configuration says.
        noun: what they are, for messages: "the source".
        kind: the class whose objects they name.
        own: names that this package has itself; a mapping says where each object is, as ``module:NAME``.
    """

    def __init__(self, group: str, noun: str, kind: type[T], own: Collection[str]) -> None:
        self._group, self._noun, self._kind, self._own = group, noun, kind, own

    def names(self) -> tuple[str, ...]:
        """All names, this package's own first; loads nothing."""
        return tuple(dict.fromkeys((*self._own, *_entry_points(self._group, tuple(sys.path)))))

    def get(self, name: str) -> T:
        """What this package or another one brings under that name, loaded now.

        Errors:
            ConfigError: nobody or several packages bring it, or the package is broken.
        """
        places = _entry_points(self._group, tuple(sys.path)).get(name, [])
        owners = ["dpstream"] * (name in self._own) + [_package(place) for place in places]
        if len(owners) > 1:
            raise ConfigError(
                f"{' and '.join(owners)} both bring {self._noun} {name!r}",
                where=f"entry points {self._group}",
                allowed="one package per name: uninstall the others",
            )
        if isinstance(self._own, Mapping) and name in self._own:
            own: T = EntryPoint(name, self._own[name], self._group).load()
            return own
        if not places:
            raise ConfigError(
                f"{self._noun} {name!r} is not installed",
                where=f"entry points {self._group}",
                allowed=", ".join(self.names()),
            )
        try:
            loaded = places[0].load()
        except Exception as error:  # noqa: BLE001 (somebody else's code may raise anything)
            raise self._broken(places[0], f"cannot be loaded: {type(error).__name__}: {error}") from None
        # A family says which mechanisms it has; a source or a sink has only the name of its entry point.
        if not isinstance(loaded, self._kind) or name not in getattr(loaded, "mechanisms", (name,)):
            raise self._broken(places[0], f"lacks a {self._kind.__name__} with that name")
        return loaded

    def _broken(self, place: EntryPoint, what: str) -> ConfigError:
        return ConfigError(
            f"{self._noun} {place.name!r} of {_package(place)} ({place.value}) {what}",
            where=f"entry points {self._group}",
            allowed="a package for this version of dpstream, or none",
        )


@lru_cache(maxsize=16)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Name -> who brings it; ``path``: where packages are installed."""
    by_name: dict[str, list[EntryPoint]] = {}
    for place in sorted(entry_points(group=group), key=lambda one: one.name):
        by_name.setdefault(place.name, []).append(place)
    return by_name


def _package(place: EntryPoint) -> str:
    return "a package without a name" if place.dist is None else f"the package {place.dist.name!r}"
