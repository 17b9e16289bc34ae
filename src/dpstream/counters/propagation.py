"""How the noise of a binned counter's measurements reaches its estimates."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpstream.counters.lagbins import LagBins

__all__ = ["NoiseTable"]

#: Beyond, the exact recursion is left.
_EXACT_TICKS = 2**15
_LONGEST = 2**22


class NoiseTable:
    """Variances of the estimates of a binned counter whose measurements have noise of variance 1.

    Up to tick 32,768 exactly: the covariances of all bins and of the estimate are carried from tick to tick,
    as the decoder carries their values. Beyond, the variance of the counter without bins and without
    rounded weights, times the ratio of the two at tick 32,768 (3 % too small at most in what was compared);
    beyond ``2^22`` ticks, on the straight line.

    Args:
        bins: the bins.
        multiplier: ``m_s`` by the number of the increment.
        grid: the weight of an increment at its own tick.
        exact: the weights before rounding, in units of ``grid``.
        horizon: the horizon, or None.
    """

    def __init__(
        self,
        bins: LagBins,
        multiplier: Callable[[int], int],
        grid: int,
        exact: NDArray[np.float64],
        horizon: int | None,
    ) -> None:
        self._bins, self._multiplier, self._grid, self._exact = bins, multiplier, grid, exact
        self._norms = None if horizon is None else np.cumsum(exact**2)[::-1]
        self._covariance = np.zeros((1, 1))  # of the estimate (last), and of the rows before it
        self._variances = [0.0]
        self._gains = [0.0]
        self._plain: dict[int, float] = {}
        self._inverse = np.zeros(0)
        self._lock = threading.Lock()

    def variance(self, t: int) -> float:
        """Of the estimate after ``t`` ticks."""
        if t <= _EXACT_TICKS:
            return self._until(t)[0]
        at, beyond = min(t, _LONGEST), t - min(t, _LONGEST)
        ratio = self._until(_EXACT_TICKS)[0] / self._without_bins(_EXACT_TICKS)
        slope = 0.0
        if beyond:
            slope = (self._without_bins(_LONGEST) - self._without_bins(_LONGEST // 2)) / (_LONGEST // 2)
        return ratio * (self._without_bins(at) + slope * beyond)

    def gain(self, t: int) -> float:
        """Of the estimate after ``t`` ticks less the one before."""
        if t <= _EXACT_TICKS:
            return self._until(t)[1]
        parts = self._parts(min(t, _LONGEST))
        return self._until(_EXACT_TICKS)[1] * float(parts[-1] / parts[_EXACT_TICKS - 1]) ** 2

    def _until(self, t: int) -> tuple[float, float]:
        with self._lock:
            for tick in range(len(self._variances) - 1, t):
                self._tick(tick)
            return self._variances[t], self._gains[t]

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
                self._inverse = _inverse_series(self._exact, t)
            row = _convolve(self._inverse[:t], self._parts(t)[::-1])[:t]
            self._plain[t] = float((row**2).sum())
        return self._plain[t]

    def _parts(self, t: int) -> NDArray[np.float64]:
        """``1 / m_s`` of the first ``t`` increments, up to a factor, without bins and rounding."""
        return np.ones(t) if self._norms is None else np.sqrt(self._norms[:t])


def _inverse_series(series: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """The first coefficients of ``1 / series``, for a series that begins with 1 (Newton's iteration)."""
    result = np.ones(1)
    while len(result) < length:
        size = min(2 * len(result), length)
        error = _convolve(series[:size], result)[:size]
        error = -np.pad(error, (0, size - len(error)))
        error[0] += 2.0
        result = _convolve(error, result)[:size]
    return result


def _convolve(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    points = 1 << (len(a) + len(b) - 2).bit_length()
    result: NDArray[np.float64] = np.fft.irfft(np.fft.rfft(a, points) * np.fft.rfft(b, points), points)
    return result[: len(a) + len(b) - 1]
