"""Cells that are read one by one: each by its own kind, whatever the other records of the column hold.

One JSON record can hold a text where all others hold numbers. If a column had to have one type, that record would
change how the others are read (whole numbers would become floats) or stop the stream. Such a column is an Arrow dense
union: every cell keeps its own kind, and ``Column`` reads it as it reads a column of that kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Deeper records are no records: Python's reader would use up its stack on them.
MAX_DEPTH = 200
# Possessive: a text is matched in one way, and its characters are not kept to go back to.
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_TEXT, _WHOLE, _REAL, _FLAG, _OTHER = range(5)
_NAMES = ("text", "whole", "real", "flag", "other")
_KINDS: dict[type, int] = {str: _TEXT, NoneType: _TEXT, int: _WHOLE, float: _REAL, bool: _FLAG}
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


def _text_array(values: Iterable[object]) -> Any:
    import pyarrow as pa

    listed = list(values)
    try:
        return pa.array(listed, pa.string())
    except (pa.ArrowException, UnicodeEncodeError):
        return pa.array([None if v is None else plain_text(str(v)) for v in listed], pa.string())


def texts(values: Sequence[object], *, numbers: bool = True) -> Any:
    """Texts as they are, whole numbers as texts. Every other kind becomes an empty text, which is no time, no operation
    and no user id."""
    return _text_array(_as_text(value, numbers) for value in values)


def _as_text(value: object, numbers: bool) -> str | None:
    if value is None or type(value) is str:
        return value
    return str(value) if numbers and type(value) is int else ""


def cells(values: Sequence[object]) -> Any:
    """An Arrow array of JSON values, each with its own kind.

    Texts, whole numbers, other numbers, booleans and nulls keep their meaning. A whole number beyond 64 bits is a
    number beyond every declared one. A list or an object is a value that no column reads.

    >>> cells(["7", 7, 7.5, True, None, [7]]).to_pylist()
    ['7', 7, 7.5, True, None, b'list or object']
    """
    import pyarrow as pa

    types = set(map(type, values)) - {NoneType}
    if len(types) <= 1:
        kind = _KINDS.get(types.pop() if types else str, _OTHER)
        one = _child(kind, values)
        if one is not None:
            same = np.full(len(values), kind, np.int8)
            return _union(same, np.arange(len(values), dtype=np.int32), {kind: one})
    kinds = np.fromiter((_kind(value) for value in values), np.int8, len(values))
    offsets, children = np.zeros(len(values), np.int32), {}
    for kind in range(len(_NAMES)):
        rows = np.flatnonzero(kinds == kind)
        offsets[rows] = np.arange(len(rows))
        children[kind] = _child(kind, [values[i] for i in rows.tolist()])
    assert all(isinstance(child, pa.Array) for child in children.values())
    return _union(kinds, offsets, children)


def _kind(value: object) -> int:
    if type(value) is int and not -(2**63) <= value < 2**63:
        return _REAL
    return _KINDS.get(type(value), _OTHER)


def _child(kind: int, values: Sequence[object]) -> Any:
    """The values of one kind (and nulls) as an array; None where a whole number is too large."""
    import pyarrow as pa

    if kind == _TEXT:
        return _text_array(values)
    if kind == _OTHER:
        return pa.array([None if value is None else b"list or object" for value in values], pa.binary())
    if kind == _REAL:
        return pa.array([_real(value) if type(value) is int else value for value in values], pa.float64())
    try:
        return pa.array(values, pa.int64() if kind == _WHOLE else pa.bool_())
    except OverflowError:
        return None


def _real(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("-inf") if value < 0 else float("inf")


def _union(kinds: NDArray[np.int8], offsets: NDArray[np.int32], children: dict[int, Any]) -> Any:
    import pyarrow as pa

    types = (pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.binary())
    whole = [children.get(kind, pa.array([], types[kind])) for kind in range(len(_NAMES))]
    return pa.UnionArray.from_dense(pa.array(kinds), pa.array(offsets), whole, list(_NAMES))


def is_cells(kind: Any) -> bool:
    """Whether an Arrow type keeps each cell's own kind."""
    import pyarrow as pa

    return bool(pa.types.is_union(kind)) and kind.mode == "dense"


def whole(cells: Any) -> Any:
    """The same cells in buffers of their own. The buffers of a slice hold all cells of the array it was cut from."""
    import pyarrow as pa

    return cells.take(pa.array(np.arange(len(cells))))


def as_cells(array: Any) -> Any:
    """A typed array as cells; None where its type is none that JSON has."""
    import pyarrow as pa

    if is_cells(array.type):
        return array
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    kind = plain.type
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        number, child = _TEXT, plain.cast(pa.string())
    elif pa.types.is_integer(kind) and kind != pa.uint64():
        number, child = _WHOLE, plain.cast(pa.int64())
    elif pa.types.is_floating(kind):
        number, child = _REAL, plain.cast(pa.float64())
    elif pa.types.is_boolean(kind):
        number, child = _FLAG, plain
    else:
        return None
    rows = np.arange(len(plain), dtype=np.int32)
    return _union(np.full(len(plain), number, np.int8), rows, {number: child})


def holds_something(column: Any) -> bool:
    """Whether any cell of a chunked array, of whatever type, is not null."""
    for chunk in column.chunks:
        chunk = whole(chunk) if is_cells(chunk.type) else chunk
        parts = (
            [chunk.field(i) for i in range(chunk.type.num_fields)]
            if is_cells(chunk.type) and len(chunk)
            else [chunk]
        )
        if any(part.null_count < len(part) for part in parts):
            return True
    return False


def typed(column: Any) -> Any:
    """A whole column of cells as an array of one type; None where its cells are of several kinds.

    For tables that one person reads, never inside a stream: the type depends on all cells.
    """
    import pyarrow as pa

    values = column.to_pylist()
    if any(isinstance(value, bytes) for value in values):
        return None
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
