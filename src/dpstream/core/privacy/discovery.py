"""Values that nobody can list: how much noise a value's count gets, and from which noisy count on it is published.

Guarantee: docs/theory/discovery.md. ``budget`` for everything that a unit does in one discovery epoch, with ``delta``
where values that do not occur are never looked at; without it where all values of a finite universe get noise.

Trusted base: kernel (which noisy counts are published).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpstream.core.errors import BudgetError, ConfigError, LimitError
from dpstream.core.privacy._samplers import exp_bounds, gaussian_magnitude
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP
from dpstream.core.privacy.noise import DiscreteLaplace, Noise, noise_for
from dpstream.core.privacy.select import selection_epsilon
from dpstream.core.privacy.unit import EventUnit

#: A larger variance would let nothing enter, and takes long to tabulate.
MAX_SIGMA_SQUARED = 10**10
#: Binary digits of a probability beside those of the bound that it is compared with.
_DIGITS = 64


@dataclass(frozen=True)
class Threshold:
    """The law of one column's discovery: ``noise`` for each count, published where the sum is above ``tau``.

    A unit changes counts by m values at most (``max_events``; replacing moves a record from a value to another).

    * With ``delta`` only values that occur get noise. ``tau`` is the smallest whole number with
      ``(m/c) Pr[c + Z > tau] <= delta`` for c = 1 to m: how likely at most a value passes that only one unit holds.
    * With ``universe`` all values get noise. ``tau`` is the smallest with ``universe Pr[Z > tau] <= invented``, the
      mean number of values that pass and that nobody holds. Noise is Laplace: of rho, ``epsilon = sqrt(2 rho)``.

    Args:
        budget: of a unit, in one column.
        unit: whom it protects.

    >>> from dpstream.core.privacy.unit import Event
    >>> Threshold(PureDP("1/4"), Event(), Fraction(1, 10**9)).tau
    81
    >>> Threshold(PureDP("1/4"), Event(), universe=10**5).tau
    62
    """

    budget: Budget
    unit: EventUnit
    delta: Fraction | None = None
    universe: int | None = None
    invented: Fraction = Fraction(1, 100)

    def __post_init__(self) -> None:
        if (self.delta is None) == (self.universe is None):
            raise ConfigError("expected a delta or a pattern", where="discovery", allowed="one of them")
        smallest = Fraction(1, 10**300)
        if self.delta is not None and not smallest <= self.delta < Fraction(1, 2):
            raise BudgetError("delta out of range", where="discovery", allowed="from 1e-300 to below 1/2")
        if not isinstance(self.noise, DiscreteLaplace) and self.noise.sigma_squared > MAX_SIGMA_SQUARED:
            raise LimitError("noise too large for discovery", where="discovery", allowed="a larger share")

    @property
    def most(self) -> int:
        """How many values a unit can hold: m."""
        return self.unit.factor(PureDP(1))

    @cached_property
    def noise(self) -> Noise:
        """Of each count."""
        budget, changed = self.budget, self.unit.changed_cells
        if self.universe is not None and isinstance(budget, ZCDP):
            budget = PureDP(selection_epsilon(budget.rho / 4))
        return noise_for(self.unit.per_event(budget), changed, changed)

    @cached_property
    def tau(self) -> int:
        """Noisy counts above it are published."""
        if self.universe is not None:
            universe = self.universe
            return first_from_zero(lambda tau: universe * self._above(tau) <= self.invented)
        return first_from_zero(lambda tau: self.alone(tau, self.most) <= (self.delta or 0))

    def alone(self, tau: int, most: int) -> Fraction:
        """How likely at most one of the values passes that somebody with so many values alone holds: each is held c
        times, for the worst c. With Laplace noise the logarithm is convex in c, so that is one of the ends."""
        counts = {1, most} if isinstance(self.noise, DiscreteLaplace) else range(1, most + 1)
        return max(Fraction(most, c) * self._above(tau - c) for c in counts)

    def _above(self, limit: int) -> Fraction:
        """``Pr[Z > limit]``, rounded up by a part in 2^60 of the smallest probability that counts; 1 below 0."""
        if limit < 0:
            return Fraction(1)
        if isinstance(self.noise, DiscreteLaplace):
            bits, rate = self._bits, 1 / self.noise.scale
            tail, ratio = exp_bounds((limit + 1) * rate, bits)[1], exp_bounds(rate, bits)[0]
            return Fraction(tail, (1 << bits) + ratio)
        return Fraction(self._tails[min(limit, len(self._tails) - 1)], 1 << (self._bits + 1))

    @cached_property
    def _bits(self) -> int:
        bound = self.invented / self.universe if self.universe is not None else (self.delta or 1) / self.most
        return _DIGITS + math.ceil(1 / bound).bit_length()

    @cached_property
    def _tails(self) -> list[int]:
        """``2^bits Pr[|Z| > k]`` of a Gaussian, rounded up."""
        assert not isinstance(self.noise, DiscreteLaplace)
        end = 1 << self._bits
        return [end - low for low, _ in gaussian_magnitude(self.noise.sigma_squared)(self._bits)]


def first_from_zero(holds: Callable[[int], bool]) -> int:
    """The smallest whole number from 0 on from which a condition holds."""
    low, high = -1, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
