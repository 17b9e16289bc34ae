"""What private data look like beyond the types of their columns: hints for whoever drafts or checks a configuration.

Everything here is read off the data, and is for their owner's eyes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Rows that are looked at.
_ROWS = 100_000
#: Columns with so many different values are compared in pairs, and so many columns.
_VALUES, _COLUMNS = range(2, 1001), 40
#: Rows for each value from which on a rule is no accident; the share of rows that keep to it; and the most that a
#: column may be of one value, since everything seems to decide such a column.
_ROWS_EACH, _KEEP, _COMMON = 10, 0.99, 0.95
#: A column of fewer rows, or with a smaller share of different values, does not look like an identifier.
_FEW, _UNIQUE = 100, 0.9
#: Words for those who have records, and what goes with them in the name of a column.
_PERSONS = (
    *(
        "account",
        "citizen",
        "client",
        "customer",
        "driver",
        "employee",
        "guest",
        "household",
        "member",
        "participant",
    ),
    *(
        "passenger",
        "patient",
        "person",
        "pupil",
        "respondent",
        "student",
        "subject",
        "tenant",
        "user",
        "visitor",
        "worker",
    ),
)
_IDS = ("id", "key", "number", "no", "nr", "code")
#: So many different values, rows for each of them, and pairs of rows at one time that would have one value by chance,
#: are no accident.
_NAMES, _EACH, _MEETINGS = 20, 2, 20
_LATITUDE, _LONGITUDE = ("lat", "latitude", "y"), ("lon", "lng", "long", "longitude", "x")


def words_in(name: str) -> list[str]:
    """The words in the name of a column, in small letters.

    >>> words_in("endYear"), words_in("pickup_lat")
    (['end', 'year'], ['pickup', 'lat'])
    """
    spaced = re.sub("(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return "".join(c if c.isalnum() else " " for c in spaced.lower()).split()


def whose_column(table: Any, names: Sequence[str], time_column: str | None) -> str | None:
    """A column that may say whose a record is: its name says so, or its values come again over time and never twice at
    one time; None where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def may_be(name: str) -> bool:
        column = table.column(name)
        kind = column.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if name == time_column or column.null_count or not (text or pa.types.is_integer(kind)):
            return False
        different = len(column.unique())
        if different * _EACH > len(column):
            return False
        words = re.sub("id$", " id", " ".join(words_in(name))).split()
        if set(words) & set(_PERSONS) and set(words) <= {*_PERSONS, *_IDS}:
            return True
        if "id" in words and different > _FEW:
            return True
        if time_column is None or different < _NAMES:
            return False
        times = np.asarray(pc.value_counts(table.column(time_column)).field(1), dtype=np.float64)
        if (times * (times - 1)).sum() < 2 * _MEETINGS * different:
            return False
        pairs = table.select([name, time_column]).group_by([name, time_column]).aggregate([])
        return bool(pairs.num_rows == table.num_rows)

    return next((name for name in names if may_be(name)), None)


def coordinates(table: Any, names: Sequence[str]) -> tuple[str, str] | None:
    """A column of latitudes and one of longitudes, by their names and their values; None where there are none."""
    found = [
        next(
            (name for name in names if set(words_in(name)) & set(words) and _lies(table.column(name), most)),
            None,
        )
        for words, most in ((_LATITUDE, 90), (_LONGITUDE, 180))
    ]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def followers(table: Any, names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of columns of which the second seems to follow from the first: nearly all rows with one value of the first
    have one value of the second. Each column follows from one other at most, which follows from none itself."""
    codes = {}
    for name in list(names)[:_COLUMNS]:
        own = _codes(table.column(name).slice(0, _ROWS))
        if own is not None:
            codes[name] = own
    found: dict[str, str] = {}
    # The coarser column first: a district follows from a ZIP code rather than from a street.
    sizes = {name: int(own.max()) + 1 for name, own in codes.items()}
    for whole, part in sorted(permutations(codes, 2), key=lambda pair: sizes[pair[0]]):
        free = part not in found and _source(whole, found) != part and sizes[part] <= sizes[whole]
        if free and _follows(codes[whole], codes[part], sizes[whole], sizes[part]):
            found[part] = whole
    return [(_source(whole, found), part) for part, whole in found.items()]


def _source(name: str, follows: Mapping[str, str]) -> str:
    """The column at the end of the chain: where a street follows from a house, and a district from the street."""
    while name in follows:
        name = follows[name]
    return name


def is_nearly_unique(column: Any) -> bool:
    """Whether hardly a value occurs twice, as in a column of identifiers."""
    import pyarrow.compute as pc

    if len(column) < _FEW:
        return False
    return bool(pc.count_distinct(column).as_py() >= _UNIQUE * len(column))


def _lies(column: Any, most: float) -> bool:
    """Whether a column holds numbers with decimal places, of this size at most."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = column.slice(0, _ROWS)
    if pa.types.is_string(numbers.type) or pa.types.is_large_string(numbers.type):
        try:
            numbers = pc.cast(numbers, pa.float64())
        except pa.ArrowInvalid:
            return False
    if not pa.types.is_floating(numbers.type):
        return False
    values = numbers.drop_null().to_numpy()
    values = values[np.isfinite(values)]
    return bool(len(values) and np.abs(values).max() <= most and (values != np.round(values)).any())


def _codes(column: Any) -> NDArray[np.int64] | None:
    """The column's values by number; None where it has too many or too few for a rule, or is nearly all one value."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        return None
    whole = column.combine_chunks().dictionary_encode(null_encoding="encode")
    whole = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    if len(whole.dictionary) not in _VALUES or len(whole) < _ROWS_EACH * len(whole.dictionary):
        return None
    own = whole.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return None if np.bincount(own).max() > _COMMON * len(own) else own


def _follows(whole: NDArray[np.int64], part: NDArray[np.int64], whole_size: int, part_size: int) -> bool:
    """Whether the commonest value of ``part`` for each of ``whole`` is nearly always right."""
    if whole_size <= 2:
        return False  # two flags that exclude each other are no list
    together = np.bincount(whole * part_size + part, minlength=whole_size * part_size)
    return bool(together.reshape(whole_size, part_size).max(1).sum() >= _KEEP * len(whole))
