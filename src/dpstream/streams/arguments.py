"""Arguments of a stream that are refused before anything is read or written."""

from __future__ import annotations

from pathlib import Path

from dpstream.errors import ConfigError

__all__ = ["check_places", "check_text"]


def check_places(path: Path, releases: Path) -> None:
    """The secret state and the public releases lie apart.

    Errors:
        ConfigError: one lies inside the other.
    """
    state, public = path.resolve(), releases.resolve()
    if state == public or public in state.parents or state in public.parents:
        raise ConfigError(
            "the secret state and the public releases lie inside each other",
            where=str(path),
            allowed="two separate directories",
        )


def check_text(value: str, where: str) -> None:
    """A name that people type and read.

    Errors:
        ConfigError: empty, long, or not printable.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
        raise ConfigError(f"{value!r} cannot be used", where=where, allowed="1 to 200 printable characters")
