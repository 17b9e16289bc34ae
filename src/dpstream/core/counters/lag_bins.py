"""Old increments in bins: neighbours whose weights differ little are kept as one sum.

Bins. The weights fall slowly, so old increments need not be kept one by one: neighbours whose weights differ by a few
per cent are kept as one sum (a bin), with the weight of the oldest of them. Bins are dyadic: bin ``b`` of
level ``l`` holds the increments ``b 2^l .. (b + 1) 2^l - 1``, and two bins of a level become one of the
next as soon as the weights allow. Everything here is public and depends on the clock only.

Source: the idea of binning is Andersson and Pagh, "Streaming Private Continual Counting via Binning"
(2024). Dyadic bins, integer weights and the exact column norms are ours.

Trusted base: kernel (columns of a counter's matrix).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError

#: Sums of squares of so many weights as ages are kept stay below 2^62.
_LARGEST_WEIGHT = 2**18


class Weights(NamedTuple):
    """A decreasing sequence: rounded to integers (``grid`` first), and before rounding, over ``grid``."""

    rounded: NDArray[np.int64]
    exact: NDArray[np.float64]

    @classmethod
    def on_grid(cls, exact: NDArray[np.float64], grid: int) -> Weights:
        """Rounded to multiples of ``1/grid``, and cut where they are 0."""
        rounded = np.rint(grid * exact).astype(np.int64)
        length = int(np.count_nonzero(rounded))
        return cls(rounded[:length], exact[:length])


class LagBins:
    """The bins of a sequence of integer weights. Increments are numbered from 0.

    Args:
        weights: int64, not increasing, positive: ``weights[k]`` is for the increment ``k`` ticks ago. Older
            increments than ``len(weights)`` have weight 0.
        tolerance: two neighbouring bins become one when the exact weights of the oldest and of the newest increment
            in it differ by at most this share. 0 keeps every increment by itself.
        exact: float64, the weights before rounding (which steps would hide).

    Attributes:
        rows: how many sums are kept at most.
    """

    def __init__(self, weights: NDArray[np.int64], exact: NDArray[np.float64], tolerance: float) -> None:
        if (np.diff(weights) > 0).any() or not 1 <= weights[-1] <= weights[0] <= _LARGEST_WEIGHT:
            raise ConfigError("weights rise or are too large", where="counter", allowed="decreasing weights")
        self._weights = np.append(weights, 0)
        self._squares = np.concatenate([[0], np.cumsum(weights**2)])
        self._starts = np.array(_thresholds(exact, tolerance), np.int64)
        ends = np.append(self._starts[1:], len(weights))
        levels = np.arange(len(self._starts))
        sizes = (ends - 1 - self._starts >> levels) + 1
        self._first_row = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._sizes = sizes
        self._ends = ends
        self.rows = int(sizes.sum())
        self._level_of = np.repeat(levels, sizes)
        self._index_of = np.arange(self.rows) - self._first_row[self._level_of]
        self._size_of = sizes[self._level_of]

    @property
    def squared_norm(self) -> int:
        """The largest sum of squares of the weights that one increment meets: that of increment 0.

        An increment's bin never starts after it, so each of its weights is at most ``weights[k]``; the
        bins of increment 0 start with it, so all of its weights are ``weights[k]``.
        """
        return int(self._squares[-1])

    def squared_norms(self, numbers: NDArray[np.int64], ticks: int | None = None) -> NDArray[np.int64]:
        """The sum of squares of the weights that each of these increments meets: for ever, or in ``ticks`` ticks.

        Exact. Increment ``s`` is in its bin of level ``l``, which starts at ``a``, from the tick ``a + starts[l]``
        until the bin of the next level is there; its weights then are ``weights[t - a]``.
        """
        most = len(self._weights) - 1
        total = np.zeros(len(numbers), np.int64)
        entered = numbers
        for level in range(len(self._starts)):
            start = numbers >> level << level
            if level + 1 < len(self._starts):
                left = (numbers >> level + 1 << level + 1) + self._starts[level + 1]
            else:
                left = start + most
            if ticks is not None:
                left = np.minimum(left, ticks)
            upper, lower = np.minimum(left - start, most), np.minimum(entered - start, most)
            total += self._squares[upper] - self._squares[np.minimum(lower, upper)]
            entered = left
        return total

    def coefficients(self, tick: int) -> NDArray[np.int64]:
        """The weight of every row at tick ``tick`` (0, 1, ...); 0 for a row that is not in use."""
        newest, oldest = self._live(tick)
        newest_of = newest[self._level_of]
        bins = newest_of - (newest_of - self._index_of) % self._size_of
        lags = np.minimum(tick - (bins << self._level_of), len(self._weights) - 1)
        result: NDArray[np.int64] = np.where(bins >= oldest[self._level_of], self._weights[lags], 0)
        return result

    def merges(self, tick: int) -> Iterator[tuple[int, int, int]]:
        """(row, older row, newer row) for each bin that is made of two at this tick, in the order to do it.

        They come before the new increment takes its row.
        """
        for level in range(len(self._starts) - 1, 0, -1):
            start = tick - int(self._starts[level])
            if start >= 0 and start % (1 << level) == 0:
                number = start >> level
                yield (
                    self._row(level, number),
                    self._row(level - 1, 2 * number),
                    self._row(level - 1, 2 * number + 1),
                )

    def newest(self, tick: int) -> int:
        """The row of the increment of this tick."""
        return self._row(0, tick)

    def rows_at(self, tick: int) -> int:
        """How many rows are in use after tick ``tick``; levels come one after the other."""
        level = int(np.searchsorted(self._starts, tick, side="right")) - 1
        reached = (tick - int(self._starts[level]) >> level) + 1
        return int(self._first_row[level]) + min(reached, int(self._sizes[level]))

    def matrix(self, ticks: int) -> NDArray[np.int64]:
        """Row ``t`` holds the weights of all increments at tick ``t``: int64 (ticks, ticks)."""
        result = np.zeros((ticks, ticks), np.int64)
        for tick in range(ticks):
            for level, (newest, oldest) in enumerate(zip(*self._live(tick), strict=True)):
                starts = np.arange(max(int(oldest), 0), int(newest) + 1) << level
                if len(starts):
                    row = result[tick, starts[0] : starts[-1] + (1 << level)]
                    lags = np.minimum(tick - starts, len(self._weights) - 1)
                    # The newest bins may reach beyond the last tick.
                    row[:] = np.repeat(self._weights[lags], 1 << level)[: len(row)]
        return np.tril(result)

    def _live(self, tick: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The newest and the oldest bin of every level."""
        levels = np.arange(len(self._starts))
        newest = tick - self._starts >> levels
        above = (tick - self._ends >> levels + 1) + 1
        oldest = np.maximum(above * 2, 0)
        oldest[-1] = max((tick - int(self._ends[-1]) >> int(levels[-1])) + 1, 0)
        return newest, oldest

    def _row(self, level: int, number: int) -> int:
        return int(self._first_row[level]) + number % int(self._sizes[level])


def _thresholds(exact: NDArray[np.float64], tolerance: float) -> list[int]:
    """``starts[l]``: how many ticks after its first increment a bin of level ``l`` is made of two."""
    starts = [0]
    while True:
        size = 2 << len(starts) - 1
        if size > len(exact):
            return starts
        fine = exact[size - 1 :] >= (1.0 - tolerance) * exact[: len(exact) - size + 1]
        wrong = np.flatnonzero(~fine)
        first = (int(wrong[-1]) + 1 if len(wrong) else 0) + size - 1
        # Both halves are there since an earlier tick, so the increment of the tick itself stays alone.
        first = max(first, starts[-1] + size // 2 + 1)
        if first >= len(exact) or tolerance == 0.0:
            return starts
        starts.append(first)
