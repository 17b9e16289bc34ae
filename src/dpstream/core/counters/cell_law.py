"""The law of the noise in a counter's running sums. Public: it depends on the number of ticks only."""

from __future__ import annotations

import math
from fractions import Fraction

from dpstream.core.counters.counter import CalibratedCounter
from dpstream.core.counters.factored import FactoredCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.law import Law, NoiseSum, WeightedLaplace
from dpstream.core.privacy.noise import DiscreteGaussian

__all__ = ["cell_law"]

#: Variance that rounding to whole numbers adds.
_ROUNDING = 1 / 12


def cell_law(counter: CalibratedCounter, ticks: int, sides: int) -> Law | None:
    """The law of one cell's noise after some ticks, on all sides together; None for an unknown counter.

    Exact for interval counters, which add up whole noises. A counter that decodes weighs many noises by real numbers
    and rounds: of its error the variance is known. For zCDP its law is then the normal one but for parts that nobody
    can measure; for pure DP see ``WeightedLaplace``.
    """
    if isinstance(counter, FactoredCounter):
        variance = Fraction(math.ceil((counter.variance(ticks) + _ROUNDING) * 2**16), 2**16)
        if isinstance(counter.budget, PureDP):
            return WeightedLaplace(variance * sides)
        return NoiseSum(((DiscreteGaussian(variance), sides),))
    if not isinstance(counter, CalibratedIntervalCounter):
        return None
    tiles = ((counter.noise(share), count * sides) for share, count in counter.recipe.tiling(ticks))
    return NoiseSum(tuple((noise, count) for noise, count in tiles if count))
