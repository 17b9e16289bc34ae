"""Means of measured numbers, with Fieller's interval by the law of the noise. Public values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.law import WeightedSum

_Floats = NDArray[np.float64]
#: Halvings of the range in which the end of an interval lies.
_HALVINGS = 12
#: Weights of two sums are rounded to this part of their sum.
_GRID = 64


@dataclass(frozen=True, eq=False)
class MeasuredCells:
    """What was measured in the cells of some columns.

    Attributes:
        law: of a weighted sum of cells.
        axis: of the column of numbers. cells: those that are asked about.
        sums: whether that column has two codes, with draws of equal noise: sums of numbers, not counts of bins.
    """

    values: _Floats
    law: Callable[[NDArray[Any]], WeightedSum]
    axis: int
    cells: NDArray[np.bool_]
    sums: bool

    def sum(self, each: NDArray[Any]) -> float:
        """The measured sum of a number for each bin over the records."""
        return float((self._spread(each) * self.values).sum())

    def stands(self, each: NDArray[Any], confidence: float) -> bool:
        """Whether the true sum may be 0 or more."""
        weight = 1.0
        if self.sums:  # the more unequal their weights, the wider: so these are rounded that way
            weight = float(np.abs(each).sum())
            apart = abs(each[0]) / weight - 0.5
            share = 0.5 + np.copysign(np.ceil(abs(apart) * _GRID) / _GRID, apart)
        weights = np.sign(each) * (share, 1.0 - share) if self.sums else each
        width = self.law(self._spread(weights)).half_width(confidence)
        return self.sum(each) + weight * width >= 0.0

    def mean(self, lower: _Floats, upper: _Floats) -> float | None:
        """The mean of numbers in the middles of bins with these ends."""
        number = self.sum(np.ones(len(lower)))
        return self.sum((lower + upper) / 2.0) / number if number > 0.0 else None

    def mean_ends(self, lower: _Floats, upper: _Floats, confidence: float) -> tuple[float, float]:
        """Fieller's interval, by the law of the noise: means that measured sums do not refute.

        With the true counts, the sum of (right end - mean) over the records is not negative, nor that of (mean - left
        end). What may be added to a measured sum is convex in the mean: so one of the range is refuted from some place
        on, or nowhere.
        """
        low, high = float(lower[0]), float(upper[-1])
        number, found = self.sum(np.ones(len(lower))), []
        for ends, side, outer in ((lower, -1.0, low), (upper, 1.0, high)):
            inner = min(max(self.sum(ends) / number, low), high) if number > 0.0 else outer
            if not self.stands(side * (ends - outer), confidence):
                for _ in range(_HALVINGS):
                    middle = (inner + outer) / 2.0
                    stands = self.stands(side * (ends - middle), confidence)
                    inner, outer = (middle, outer) if stands else (inner, middle)
            found.append(outer)
        return found[0], found[1]

    def _spread(self, each: NDArray[Any]) -> _Floats:
        """A number for each bin, in all cells that are asked about."""
        weights = np.zeros(self.cells.shape[self.axis])
        weights[: len(each)] = each
        shape = [-1 if axis == self.axis else 1 for axis in range(self.cells.ndim)]
        return weights.reshape(shape) * self.cells
