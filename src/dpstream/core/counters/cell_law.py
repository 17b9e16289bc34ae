"""The law of the noise in a counter's running sums and gains. Public: it depends on the number of ticks only."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from dpstream.core.counters.counter import CalibratedCounter, FactoredCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.law import Law, NoiseSum, WeightedLaplace
from dpstream.core.privacy.noise import DiscreteGaussian

#: Variance that rounding to whole numbers adds.
_ROUNDING = 1 / 12


def cell_law(counter: CalibratedCounter, ticks: int, sides: int) -> Law | None:
    """The law of one cell's noise after some ticks, on all sides together; None for an unknown counter.

    Exact for interval counters, which add up whole noises. A counter that decodes weighs many noises by real numbers
    and rounds: of its error the variance is known. For zCDP its law is then the normal one but for parts that nobody
    can measure; for pure DP see ``WeightedLaplace``.
    """
    if isinstance(counter, FactoredCounter):
        return _decoded(counter, counter.variance(ticks) + _ROUNDING, sides)
    if not isinstance(counter, CalibratedIntervalCounter):
        return None
    tiles = ((counter.noise(share), count * sides) for share, count in counter.recipe.tiling(ticks))
    return NoiseSum(tuple((noise, count) for noise, count in tiles if count))


def gain_law(counter: CalibratedCounter, ticks: int) -> Law | None:
    """The law of the noise in what one cell gained at a counter's latest tick; None for an unknown counter.

    Exact for interval counters: the new interval's noise, and that of the intervals which it swallows. Of a counter
    that decodes only a bound on the variance is known (the errors of both estimates may point the same way, and both
    are rounded).
    """
    if isinstance(counter, FactoredCounter):
        return _decoded(counter, counter.gain_variance(ticks) + 4 * _ROUNDING, 1)
    if not isinstance(counter, CalibratedIntervalCounter):
        return None
    fresh = counter.recipe.interval(ticks).share
    swallowed = _tiles(counter, ticks - 1) - (_tiles(counter, ticks) - Counter({fresh: 1}))
    return NoiseSum(((counter.noise(fresh), 1), *((counter.noise(w), n) for w, n in swallowed.items())))


def _tiles(counter: CalibratedIntervalCounter, ticks: int) -> Counter[Fraction]:
    """How many intervals of each share the estimate adds up."""
    tiles = Counter[Fraction]()
    for share, count in counter.recipe.tiling(ticks) if ticks else ():
        tiles[share] += count
    return tiles


def _decoded(counter: FactoredCounter, variance: float, sides: int) -> Law:
    exact = Fraction(math.ceil(variance * 2**16), 2**16)
    if isinstance(counter.budget, PureDP):
        return WeightedLaplace(exact * sides)
    return NoiseSum(((DiscreteGaussian(exact), sides),))
