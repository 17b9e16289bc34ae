"""Lengths of time, as files and commands write them."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LENGTH = re.compile(
    r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(?:([smhdw])|(second|minute|hour|day|week)s?)", re.ASCII
)


def seconds(text: object) -> float | None:
    """The seconds of a number with a unit; None where it is something else.

    >>> seconds("30s"), seconds("1.5 h"), seconds("36 hours"), seconds("soon")
    (30.0, 5400.0, 129600.0, None)
    """
    match = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else float(match[1]) * _UNITS[match[2] or match[3][0]]
