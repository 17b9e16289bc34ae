"""Arguments of a stream that are refused before anything is read or written."""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Mapping
from pathlib import Path

from dpstream.core.errors import ConfigError
from dpstream.stream.identity import canonical_json

#: Names and notes, in words.
NAMES = "1 to 200 printable characters"
# Counts of records and bytes, and fingerprints of up to 64 bytes.
_POSITION_END = 2**512


def check_places(state: Path, output: Path, where: str | None = None) -> None:
    """Check that the secret state and the public output lie apart.

    Errors:
        ConfigError: one lies inside the other.
    """
    inner, outer = state.resolve(), output.resolve()
    if inner == outer or outer in inner.parents or inner in outer.parents:
        raise ConfigError(
            f"state {str(state)!r} and output {str(output)!r} lie inside each other",
            where=where or str(state),
            allowed="two separate folders",
        )


def check_text(value: object, where: str) -> None:
    """Check a name that people type and read.

    Errors:
        ConfigError: empty, long, or not printable.
    """
    if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
        raise ConfigError(f"{value!r} cannot be used", where=where, allowed=NAMES)


def name_text(name: str | int | datetime.date) -> str:
    """The name of a step as the store keeps it: a text. A whole number or a day is written as a text.

    Errors:
        ConfigError: something else, or a text that people cannot type and read.
    """
    if isinstance(name, datetime.date):
        return name.isoformat()
    if isinstance(name, numbers.Integral) and not isinstance(name, bool):
        return str(int(name))
    check_text(name, "name")
    return str(name)


def position_text(position: Mapping[str, int]) -> str:
    """How far a source was read, as the store keeps it.

    Errors:
        ConfigError: not names with whole numbers. The message tells neither: a position is private.
    """
    wanted = "whole numbers from 0 by name, as FileSource.position"
    good = isinstance(position, Mapping) and all(
        isinstance(name, str) and type(number) is int and 0 <= number < _POSITION_END
        for name, number in position.items()
    )
    if not good:
        raise ConfigError("expected a position", where="position", allowed=wanted)
    try:
        return canonical_json(dict(position)).decode()
    except UnicodeEncodeError:
        raise ConfigError("a name holds invalid Unicode", where="position", allowed=wanted) from None
