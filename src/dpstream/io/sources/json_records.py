"""JSON records, line by line, and their values as texts: what one record holds never changes how another is read.

One record can hold a text where all others hold numbers. If a column had to have one type, that record would change how
the others are read (whole numbers would become floats) or stop the stream. So values become the texts that a csv file
would have, which ``Column`` reads one by one.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

#: Deeper records are refused: Python's reader would use up its stack on them.
MAX_DEPTH = 200
# Possessive: a text is matched in one way, and its characters are not kept to go back to.
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_LONGEST = 400


def parse_record(line: str) -> dict[str, Any] | None:
    """The JSON object of one line; None for anything else, and where a key stands twice. What it answers depends on the
    line only."""
    if line.count("[") + line.count("{") > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        return None
    try:
        record = _READER.decode(line)
    except ValueError:
        try:
            # Python refuses whole numbers of thousands of digits; they lie beyond every declared value.
            record = _LONG_READER.decode(line)
        except ValueError:
            return None
    return record if isinstance(record, dict) else None


def _no_constant(_name: str) -> None:
    raise ValueError  # NaN and Infinity are not JSON


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError  # of two values of one key nobody knows which is meant
    return record


def _whole(digits: str) -> int | float:
    if len(digits) <= _LONGEST:
        return int(digits)
    return float("-inf") if digits.startswith("-") else float("inf")


#: Made once: a reader for each line would take a third of the time.
_READER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_each_once)
_LONG_READER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole, object_pairs_hook=_each_once)


def _depth(line: str) -> int:
    """How deep lists and objects lie in each other; brackets inside texts do not count."""
    deepest = depth = 0
    for bracket in _BRACKETS.finditer(line):
        first = bracket[0][0]
        depth += (first in "[{") - (first in "]}")
        deepest = max(deepest, depth)
    return deepest


def plain_text(text: str) -> str:
    """The text, with U+FFFD for half a character (a lone surrogate), which UTF-8 cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


#: Stands for a list or an object: a text that no column declares.
_NESTED = "\x00list or object"


def marks(values: Sequence[object], *, numbers: bool = True) -> Any:
    """Texts as they are, whole numbers as texts. Others become empty texts, which are invalid as times,
    operations and user ids."""
    kinds = (str, int) if numbers else (str,)
    return _text_array(None if v is None else str(v) if type(v) in kinds else "" for v in values)


def cells(values: Sequence[object]) -> Any:
    """JSON values as an Arrow array of texts; a list or an object is one that no column reads.

    >>> cells(["7", 7, 7.5, True, None]).to_pylist()
    ['7', '7', '7.5', 'true', None]
    """
    return _text_array(map(_cell, values))


def _cell(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else _NESTED


def _text_array(values: Iterable[str | None]) -> Any:
    import pyarrow as pa

    listed = list(values)
    try:
        return pa.array(listed, pa.string())
    except (pa.ArrowException, UnicodeEncodeError):
        return pa.array([None if value is None else plain_text(value) for value in listed], pa.string())
