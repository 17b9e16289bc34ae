"""Columns cut so finely that a code is nearly the value: the coordinates of points.

A fine column reads what the column it is made of reads, within the same public bounds, and refuses the same. Its
codes are equal parts of a scale (linear or logarithmic) instead of bins: one for every whole number or day where there
are not too many, else ``FINE_PARTS`` parts. It has no labels; its bins are given up, only the bounds stay.

Trusted base: kernel (encodes private coordinates).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.code_blocks import AnyCodes
from dpstream.core.schema.column import NULL, OUTSIDE, Column, Problem
from dpstream.core.schema.dates import Date, DateTime
from dpstream.core.schema.domain import Codes
from dpstream.core.schema.numeric import Integer, Ordered, Real

#: Most codes of a fine column: far finer than any cell that is released.
FINE_PARTS = 2**30
_SECOND = 1_000_000
#: Whole numbers between the bounds: their differences are 64-bit integers.
_MAX_VALUES = 2**62
#: Logarithm of the ratio of the bounds: less would be mostly rounding.
_MIN_RATIO = 2.0**-16

Scale = Literal["linear", "log"]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FineColumn(Ordered):
    """What the four kinds of fine columns share; made by ``fine``.

    On the line a whole number (a day, an instant) ``v`` is the stretch from ``v`` to ``v + 1`` and lies in its middle;
    a real number is a point. ``periodic``: the last value is the first one again (of a circle); only of real numbers,
    whose last value is a border, this changes anything.
    """

    most_codes: ClassVar[int] = FINE_PARTS
    #: Length of one value on the line: 0 for real numbers.
    _unit: ClassVar[int] = 1

    scale: Scale = field(default="linear", kw_only=True)
    periodic: bool = field(default=False, kw_only=True)

    def _validate(self) -> None:
        super()._validate()
        if self.other is not None or self.missing is not None:
            key = "other" if self.other is not None else "missing"
            raise self._wrong(
                f"a coordinate cannot have {key} = {getattr(self, key)!r}, which has no place",
                allowed="no such bin (such values are errors), or a categorical column",
            )
        if self.last == self._first or (self._unit and self._values == 1):
            raise self._wrong("a coordinate needs two values", allowed="wider bounds")
        if self._unit and self._values > _MAX_VALUES:
            raise self._wrong("a coordinate's bounds are too far apart", allowed="up to 2^62 values")
        if not self._unit and self.last / 2.0 - self._first / 2.0 < np.finfo(np.float64).tiny:
            raise self._wrong(
                "a coordinate's bounds are too close for floating point", allowed="wider bounds"
            )
        if self.periodic and self.outside == "clip":
            raise self._wrong(
                'outside = "clip" contradicts a circle, which lacks a border', allowed="leave it out"
            )
        if self.scale == "log" and not (isinstance(self, Integer | Real) and self._first > 0):
            raise self._wrong(
                "a logarithmic scale needs positive numbers",
                allowed="real or integer, with a lower bound above 0",
            )
        if self.scale == "log" and self._logs[1] < _MIN_RATIO:
            raise self._wrong("the bounds are too close for a logarithmic scale", allowed="a linear one")
        if self.scale == "log" and self.periodic:
            raise self._wrong("a circle cannot have a logarithmic scale", allowed="either log or periodic")
        if self.periodic and not isinstance(self, Integer | Real):
            raise self._wrong("a circle needs numbers", allowed="such as the hour of the day")

    def _problem(self, kind: int, values: Any, codes: AnyCodes, reveal: bool) -> Problem:
        problem = super()._problem(kind, values, codes, reveal)
        what = problem.what.removesuffix(" and declares no missing bin").removesuffix(
            " and declares no other bin"
        )
        allowed = "no nulls" if kind == NULL else self.describe()
        if kind == OUTSIDE and self.outside is None and not self.periodic:
            allowed += '; outside = "clip" takes outer values to the nearest border'
        return replace(problem, what=what, allowed=f"{self.name}: {allowed}")

    # The line.

    @property
    def _first(self) -> Any:
        return self.lower[0].item()

    @cached_property
    def _values(self) -> int:
        """How many values lie between the bounds, where values are whole numbers, days or seconds."""
        return int((self.last - self._first) // self._unit) + 1

    @cached_property
    def bins(self) -> int:
        return (
            self._values
            if self._unit and self.scale == "linear" and self._values < FINE_PARTS
            else FINE_PARTS
        )

    def bin_labels(self) -> tuple[str, ...]:
        """None."""
        return ()

    def _codes_of_values(self, values: NDArray[Any]) -> Codes:
        held = np.clip(np.nan_to_num(values, nan=self._first), self._first, self.last)
        codes = self._parts_of(held)
        if self.outside != "clip":
            codes[values > self.last] = OUTSIDE
            codes[values < self._first] = OUTSIDE
        if values.dtype.kind == "f":
            codes[np.isnan(values)] = NULL
        return codes

    def _parts_of(self, values: NDArray[Any]) -> Codes:
        """Codes of values within the bounds."""
        if self.bins < FINE_PARTS:
            return np.asarray((values - self._first) // self._unit, np.int32)
        share = self._share(values)
        codes = np.minimum((share * self.bins).astype(np.int64), self.bins - 1).astype(np.int32)
        if self.periodic:
            codes[values == self.last] = 0
        return codes

    def _share(self, values: NDArray[Any]) -> Floats:
        """Where on the scale, from 0 to 1."""
        if self.scale == "log":
            low, width = self._logs
            middle = values.astype(np.float64) + self._unit / 2
            return np.clip((np.log(middle) - low) / width, 0.0, 1.0)
        if self._unit:
            return np.asarray(((values - self._first) // self._unit + 0.5) / self._values)
        # Halves, since the difference of the bounds may be more than floats can hold.
        return np.asarray((values / 2.0 - self._first / 2.0) / (self.last / 2.0 - self._first / 2.0))

    @property
    def _logs(self) -> tuple[float, float]:
        """Logarithms of the lower bound and of the ratio of the bounds, which may be more than floats can hold."""
        low = math.log(float(self._first))
        return low, math.log(float(self.last + self._unit)) - low

    def _values_in(self, codes: Codes, generator: np.random.Generator) -> NDArray[Any]:
        """A value of each part, uniform in it on the scale; always within the bounds."""
        if self.bins < FINE_PARTS:
            return np.asarray(self._first + codes.astype(np.int64) * self._unit)
        share = (codes + generator.random(len(codes))) / self.bins
        low, high = float(self._first), float(self.last + self._unit)
        if self.scale == "log":
            start, width = self._logs
            drawn = np.exp(np.clip(start + share * width, start, math.log(high)))
        elif self._unit:
            whole = np.floor(share * self._values).astype(np.int64)
            return np.asarray(np.minimum(self._first + whole * self._unit, self.last))
        else:
            drawn = low * (1.0 - share) + high * share
        if self._unit:
            return np.clip(np.floor(drawn).astype(np.int64), self._first, self.last)
        # The end of a circle is its beginning.
        top = np.nextafter(high, -np.inf) if self.periodic else high
        return np.clip(drawn, low, top)

    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        import pyarrow as pa

        # Arrow makes days of 32-bit numbers only, and instants of 64-bit ones.
        stored = pa.int32() if isinstance(self, Date) else pa.int64() if self._unit else pa.float64()
        values = self._values_in(codes, generator).astype(stored.to_pandas_dtype())
        return pa.array(values, stored, mask=empty).cast(self.arrow_type())


@dataclass(frozen=True)
class FineInteger(FineColumn, Integer):
    """Whole numbers."""


@dataclass(frozen=True)
class FineReal(FineColumn, Real):
    """Real numbers."""

    _unit: ClassVar[int] = 0

    def _shortened(self, values: Any, codes: Codes) -> Any:
        """All digits: a fine bin is about as narrow as they tell."""
        return values


@dataclass(frozen=True)
class FineDate(FineColumn, Date):
    """Days."""


@dataclass(frozen=True)
class FineDateTime(FineColumn, DateTime):
    """Instants: whole seconds."""

    _unit: ClassVar[int] = _SECOND


_KINDS: dict[type[Column], type[FineColumn]] = {
    Integer: FineInteger,
    Real: FineReal,
    Date: FineDate,
    DateTime: FineDateTime,
}


def fine(column: Ordered, *, scale: Scale = "linear", periodic: bool = False) -> FineColumn:
    """The column as a coordinate.

    Errors:
        SchemaError: one value only, a bin for nulls or strangers, or a scale that does not fit.

    >>> hour = fine(Integer("hour", min=0, max=23))
    >>> hour.size, hour.encode([0, 23]).tolist()
    (24, [0, 23])
    """
    given = {item.name: getattr(column, item.name) for item in fields(column) if item.init}
    if isinstance(column, Integer):
        if column.lower[0] == column.last:
            raise column._wrong("a coordinate needs two values", allowed="wider bounds")
        # Two edges: one bin, so that any number of values will do.
        given |= {"min": None, "max": None, "edges": (int(column.lower[0]), int(column.last))}
    made: FineColumn = _KINDS[type(column)](**given, scale=scale, periodic=periodic)
    return made
