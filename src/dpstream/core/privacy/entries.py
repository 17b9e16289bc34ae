"""What a published count says of a value that discovery let enter, and how often a value must occur to enter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.discovery import Threshold, first_from_zero
from dpstream.core.privacy.law import check_confidence
from dpstream.core.privacy.noise import DiscreteLaplace

#: A Gaussian is summed as far as ``exp`` reaches.
_REACH = 745.0


def delta_of_periods(threshold: Threshold, periods: int) -> Fraction:
    """What ``delta`` is for somebody with the values of so many units: not as many times."""
    if threshold.universe is not None:
        return Fraction(0)
    return min(Fraction(1), threshold.alone(threshold.tau, periods * threshold.most))


@dataclass(frozen=True)
class Entry:
    """The law of noisy counts at a threshold, to floating-point accuracy.

    >>> from fractions import Fraction
    >>> from dpstream.core.privacy import Event, PureDP
    >>> entry = Entry(Threshold(PureDP("1/4"), Event(), Fraction(1, 10**9)))
    >>> entry.needed(0.5), entry.needed(0.99), entry.count(100), entry.count(300)
    (82, 98, (100, 88, 112), (300, 288, 312))
    """

    threshold: Threshold

    def passes(self, count: int) -> float:
        """The probability that a value which occurs so often enters."""
        return self._above(self.threshold.tau - count)

    def needed(self, probability: float) -> int:
        """How often a value must occur to enter with this probability."""
        return first_from_zero(lambda count: self.passes(count) >= probability)

    def count(self, noisy: int, confidence: float = 0.95) -> tuple[int, int, int]:
        """The median-unbiased count of a value that entered with a noisy count, and an interval.

        Guarantee: each holds given that the value entered. An interval holds all counts for which neither so large a
        noisy count nor so small a one is rarer than half of what the confidence leaves.
        """
        check_confidence(confidence)
        tau, rare = self.threshold.tau, (1.0 - confidence) / 2
        least = 1 if self.threshold.universe is None else 0

        def reaches(count: int, limit: int) -> float:
            return self._above(limit - 1 - count) / self._above(tau - count)

        def smallest(limit: int, probability: float) -> int:
            return least + first_from_zero(lambda more: reaches(least + more, limit) >= probability)

        above = smallest(noisy + 1, 1.0 - rare)
        return smallest(noisy, 0.5), smallest(noisy, rare), max(least, above - 1)

    def _above(self, limit: int) -> float:
        """``Pr[Z > limit]``."""
        if limit < 0:
            return 1.0 - self._above(-limit - 1)
        noise = self.threshold.noise
        if isinstance(noise, DiscreteLaplace):
            rate = float(1 / noise.scale)
            return math.exp(-(limit + 1) * rate) / (1.0 + math.exp(-rate))
        tails = _gaussian_tails(self.threshold)
        return float(tails[limit]) if limit < len(tails) else 0.0


@lru_cache(maxsize=16)
def _gaussian_tails(threshold: Threshold) -> NDArray[np.float64]:
    noise = threshold.noise
    reach = math.ceil(math.sqrt(2 * _REACH * noise.variance)) + 1
    return np.cumsum(np.asarray(noise.pmf(np.arange(reach, 0, -1))))[::-1]
