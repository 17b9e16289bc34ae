"""Lengths of time, as files and commands write them: a number with a unit, ``30s``, ``1.5 h``, ``3 months``."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LENGTH = re.compile(
    r"(?:([0-9]{1,6}(?:\.[0-9]{1,3})?) ?)?(?:([smhdw])|(second|minute|hour|day|week|month)s?)", re.ASCII
)


def length(text: object) -> tuple[str, str] | None:
    """The number (1 where a word stands alone) and the unit's letter, ``month`` for months; None for something else.

    >>> length("2 weeks"), length("14d"), length("month"), length("d")
    (('2', 'w'), ('14', 'd'), ('1', 'month'), None)
    """
    match = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    if match is None or (match[1] is None and match[2] is not None):
        return None
    return match[1] or "1", "month" if match[3] == "month" else match[2] or match[3][0]


def seconds(text: object) -> float | None:
    """The seconds of a length of time; None where it is something else, or no number of seconds, as months are not.

    >>> seconds("30s"), seconds("1.5 h"), seconds("36 hours"), seconds("month"), seconds("soon")
    (30.0, 5400.0, 129600.0, None, None)
    """
    number, unit = length(text) or ("", "")
    return float(number) * _SECONDS[unit] if unit in _SECONDS else None
