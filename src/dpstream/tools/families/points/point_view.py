"""The records of a point stream as places in the unit cube and as categories; all of it by public rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema import Schema
from dpstream.core.schema.fine import FineColumn
from dpstream.families.points.space import Space
from dpstream.tools.evaluate.array_types import Codes, Floats, Ints


@dataclass(frozen=True)
class PointView:
    """How codes are read: ``schema`` has a fine column for each coordinate, ``space`` its partition."""

    schema: Schema
    space: Space

    @cached_property
    def _first(self) -> NDArray[np.bool_]:
        return np.array(self.space.categorical)

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of the cube's."""
        return tuple(self.schema.names[i] for i in np.flatnonzero(~self._first))

    @cached_property
    def categorical(self) -> tuple[str, ...]:
        """Names of the categorical columns."""
        return tuple(self.schema.names[i] for i in np.flatnonzero(self._first))

    @cached_property
    def periodic(self) -> tuple[int, ...]:
        """Coordinates that are circles."""
        columns = (self.schema.columns[i] for i in np.flatnonzero(~self._first))
        return tuple(
            place for place, one in enumerate(columns) if isinstance(one, FineColumn) and one.periodic
        )

    def places(self, codes: Codes) -> Floats:
        """Middles of the records' parts, shape (records, coordinates), from 0 to 1 on each column's own scale."""
        sizes = np.array(self.space.sizes)[~self._first]
        places: Floats = (codes[:, ~self._first] + 0.5) / sizes
        return places

    def categories(self, codes: Codes) -> Ints:
        """The number of each record's combination of categorical values; 0 for all where there are none."""
        sizes = tuple(int(size) for size in np.array(self.space.sizes)[self._first])
        if not sizes:
            return np.zeros(len(codes), np.int64)
        return np.asarray(np.ravel_multi_index(tuple(codes[:, self._first].T), sizes), np.int64)

    def category_codes(self, category: int) -> tuple[int, ...]:
        """The combination of that number."""
        sizes = tuple(int(size) for size in np.array(self.space.sizes)[self._first])
        return tuple(int(code) for code in np.unravel_index(category, sizes)) if sizes else ()

    def category_name(self, category: int) -> str:
        """What people call a combination of categorical values."""
        codes = self.category_codes(category)
        columns = [self.schema.columns[i] for i in np.flatnonzero(self._first)]
        return ", ".join(column.labels()[code] for column, code in zip(columns, codes, strict=True))

    def scale_words(self, coordinate: int) -> str:
        """What is special about a coordinate's scale, for people; empty for most."""
        column = self.schema.columns[int(np.flatnonzero(~self._first)[coordinate])]
        if not isinstance(column, FineColumn):
            return ""
        return " (logarithmic)" if column.scale == "log" else " (a circle)" if column.periodic else ""

    def parts(self, coordinate: int, wanted: int) -> int:
        """Into how many parts a picture cuts a coordinate: one for each value where there are few, else ``wanted``."""
        size = self.space.sizes[int(np.flatnonzero(~self._first)[coordinate])]
        return size if size <= 2 * wanted else wanted

    def bounds(self, coordinate: int) -> tuple[float, float] | None:
        """The first and the last value of a coordinate with an even scale of numbers; None for others."""
        column = self.schema.columns[int(np.flatnonzero(~self._first)[coordinate])]
        if isinstance(column, FineColumn) and column.scale == "log":
            return None
        low, high = self._values(coordinate)
        numbers = isinstance(low, int | float) and not isinstance(low, bool)
        return (float(low), float(high)) if numbers else None

    def _values(self, coordinate: int) -> tuple[Any, Any]:
        axis = int(np.flatnonzero(~self._first)[coordinate])
        codes = np.zeros((2, len(self.schema)), np.int32)
        codes[1, axis] = self.space.sizes[axis] - 1
        low, high = self.schema.decode(codes, 0).column(axis).to_pylist()
        return low, high

    def ends(self, coordinate: int) -> tuple[str, str]:
        """The first and the last value of a coordinate, as text."""
        low, high = self._values(coordinate)
        return (
            (_rounded(low, high - low), _rounded(high, high - low))
            if isinstance(low, float)
            else (
                str(low),
                str(high),
            )
        )


def _rounded(value: float, span: float) -> str:
    """A number as precise as a thousandth of the span.

    >>> _rounded(-73.9999999, 0.5), _rounded(3e-10, 1.0), _rounded(999999.9999, 1e6)
    ('-74', '0', '1,000,000')
    """
    digits = 3 - math.floor(math.log10(span))
    near = round(value, digits) + 0.0  # no -0
    return f"{near:,.{max(0, digits)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{near:,.0f}"
