"""Variances of the estimates of binned counters, predicted from weights and bins. Public."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Bins(Protocol):
    """What is read of ``LagBins``."""

    def rows_at(self, tick: int, /) -> int:
        """Rows in use after a tick."""

    def merges(self, tick: int, /) -> Iterator[tuple[int, int, int]]:
        """Rows that become one."""

    def newest(self, tick: int, /) -> int:
        """The row of a tick's increment."""

    def coefficients(self, tick: int, /) -> NDArray[np.int64]:
        """The weight of every row."""


#: Beyond, the exact recursion is left.
_EXACT_TICKS = 2**13
_LONGEST = 2**22


class NoiseTable:
    """Variances of the estimates of a binned counter whose measurements have noise of variance 1.

    Up to tick 8,192 exactly: the covariances of all bins and of the estimate are carried from tick to tick,
    as the decoder carries their values. Beyond, the variance of the counter without bins and without rounded weights,
    at some ticks and between them by interpolation, plus what the bins add: that grows along a straight line,
    which is fitted before tick 8,192. (In what was compared, up to 100,000 ticks, 2 % too small at most.)

    Args:
        bins: the bins.
        multiplier: ``m_s`` by the number of the increment.
        grid: the weight of an increment at its own tick.
        exact: the weights before rounding, in units of ``grid``.
        horizon: the horizon, or None.
    """

    def __init__(
        self,
        bins: Bins,
        multiplier: Callable[[int], int],
        grid: int,
        exact: NDArray[np.float64],
        horizon: int | None,
    ) -> None:
        self._bins, self._multiplier, self._grid, self._exact = bins, multiplier, grid, exact
        self._horizon = horizon
        self._unit = 1.0 / (grid * multiplier(0))
        self._covariance = np.zeros((1, 1))  # of the estimate (last), and of the rows before it
        self._variances = [0.0]
        self._gains = [0.0]
        self._plain: dict[int, float] = {}
        self._inverse = np.ones(1)
        self._lock = threading.Lock()

    def variance(self, t: int) -> float:
        """Of the estimate after ``t`` ticks."""
        if t <= _EXACT_TICKS:
            return self._until(t)[0]
        # What the bins add, as a mean around two ticks: it varies from tick to tick.
        around = _EXACT_TICKS // 32
        first, second = _EXACT_TICKS // 2, _EXACT_TICKS - around
        self._until(_EXACT_TICKS)
        added = [
            float(np.mean(self._variances[at - around : at + around])) - self._without_bins(at)
            for at in (first, second)
        ]
        slope = (added[1] - added[0]) / (second - first)
        return self._interpolated(t) + added[1] + slope * (t - second)

    def gain(self, t: int) -> float:
        """Of the estimate after ``t`` ticks less the one before; beyond tick 8,192 but for its multiplier as there."""
        if t <= _EXACT_TICKS:
            return self._until(t)[1]
        grown = self._multiplier(_EXACT_TICKS - 1) / self._multiplier(t - 1)
        return self._until(_EXACT_TICKS)[1] * grown**2

    def _until(self, t: int) -> tuple[float, float]:
        with self._lock:
            for tick in range(len(self._variances) - 1, t):
                self._tick(tick)
            return self._variances[t], self._gains[t]

    def _interpolated(self, t: int) -> float:
        """``_without_bins`` at powers of two, and ever closer to a horizon; straight on in between and beyond."""
        last = self._horizon or _LONGEST
        powers = [_EXACT_TICKS << k for k in range(last.bit_length()) if _EXACT_TICKS << k < last]
        near = [last - (last >> k) for k in range(2, 10, 2)] if self._horizon else []
        known = sorted({*powers, *(at for at in near if at > _EXACT_TICKS), last})
        place = min(bisect_left(known, t), len(known) - 1)
        high, low = known[place], known[max(place - 1, 0)]
        if high in (low, t):
            return self._without_bins(high)
        share = (t - low) / (high - low)
        return (1 - share) * self._without_bins(low) + share * self._without_bins(high)

    def _tick(self, tick: int) -> None:
        needed = self._bins.rows_at(tick) + 1
        c = self._covariance
        if len(c) < needed:
            grown = np.zeros((needed, needed))
            old = len(c) - 1
            grown[:old, :old] = c[:old, :old]
            grown[-1, :old] = grown[:old, -1] = c[-1, :old]
            grown[-1, -1] = c[-1, -1]
            self._covariance = c = grown
        for row, older, newer in self._bins.merges(tick):
            c[row] = c[older] + c[newer]
            c[:, row] = c[:, older] + c[:, newer]
        newest = self._bins.newest(tick)
        weights = self._bins.coefficients(tick)[: needed - 1].astype(np.float64)
        weights[newest] = 0.0
        weights /= self._grid
        # The value of the new increment is (noise - weights @ values) / grid.
        shared = -(c[:, :-1] @ weights)
        own = 1.0 / self._grid**2 - shared[:-1] @ weights
        c[newest] = c[:, newest] = shared
        c[newest, newest] = own
        part = 1.0 / self._multiplier(tick)
        c[-1] += part * c[newest]
        c[:, -1] += part * c[:, newest]
        self._variances.append(float(c[-1, -1]))
        self._gains.append(float(own) * part * part)

    def _without_bins(self, t: int) -> float:
        """``sum_u r_u^2``, ``r`` the last row of (running sum) (1/multipliers) (inverse of the exact weights)."""
        if t not in self._plain:
            if len(self._inverse) < t:
                # Twice as much at least: the ticks that are asked for come in rising order.
                self._inverse = _inverse_series(self._exact, max(t, 2 * len(self._inverse)), self._inverse)
            row = _convolve(self._inverse[:t], self._parts(t)[::-1])[:t]
            self._plain[t] = float((row**2).sum()) * self._unit**2
        return self._plain[t]

    def _parts(self, t: int) -> NDArray[np.float64]:
        """``m_0 / m_s`` of the first ``t`` increments, but for what the bins do to it."""
        if self._horizon is None:
            return np.ones(t)
        norms = np.cumsum(self._exact**2)
        norms = np.concatenate([norms, np.full(self._horizon - len(norms), norms[-1])])
        parts: NDArray[np.float64] = np.sqrt(norms[::-1][:t] / norms[-1])
        return parts


def _inverse_series(
    series: NDArray[np.float64], length: int, known: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The first coefficients of ``1 / series`` (it begins with 1), from some that are known, by Newton's iteration."""
    result = known
    while len(result) < length:
        size = min(2 * len(result), length)
        error = _convolve(series[:size], result)[:size]
        error = -np.pad(error, (0, size - len(error)))
        error[0] += 2.0
        result = _convolve(error, result)[:size]
    return result


def _convolve(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    length = 1 << (len(a) + len(b) - 2).bit_length()
    result: NDArray[np.float64] = np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)
    return result[: len(a) + len(b) - 1]
