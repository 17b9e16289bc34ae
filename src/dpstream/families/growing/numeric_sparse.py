"""Numeric sparse for growing data (NSG, Algorithms 4 to 6), on integers, with one threshold noise per run.

A *run* tests private numbers against a threshold until one is above, then gives that one's value. Between two
neighbours (one record's value replaced, ``t`` public) a tested share ``f(x_t) - public`` moves by at most ``1/t``. All
of it happens in units of ``1/(G xi_t)``: the integer ``v = floor(G xi_t (f(x_t) - public))`` moves by at most ``D_t =
ceil(G xi_t/t)``.

* Test: ``v + Lap_Z(4G) >= ceil(G xi_t T) + eta``, ``eta ~ Lap_Z(2G)`` drawn once, at the run's start ``t0``. ``D_t <=
  D_t0`` (enforced), so the whole run costs ``D_t0/(2G) + 2 D_t0/(4G) = D_t0/G``, about ``xi_t0/t0`` (proof:
  docs/theory/pmwg.md).
* Value: ``v + Lap_Z(8G)``, which costs ``D_t/(8G)``, about ``xi_t/(8t)``.

A run is started only if it can be paid to its end, so the sum of all charges never passes the budget, whoever asks.

**Correction.** The listing draws the threshold's noise anew at each time; then each test leaks, and nothing is sparse.

Trusted base: kernel (noisy tests).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.families.growing.pmwg_noise import XI_BITS, RootNoise

#: ``G``: 8 G, the scale of the largest noise, is within what the exact samplers take.
GRID = 2**36
_XI_UNIT = 2**XI_BITS


@dataclass(frozen=True)
class SparseRun:
    """A run that has not halted: at how many records it started, and its noise, which is secret."""

    start: int
    threshold_noise: int = field(repr=False)


@dataclass(frozen=True)
class SpentAmounts:
    """What was spent, as epsilon (pure) or rho (zCDP), and the run that is under way."""

    spent: Fraction = Fraction(0)
    run: SparseRun | None = None


@dataclass(frozen=True)
class NumericSparse:
    """The public half: budget, noise and threshold.

    Guarantee: ``budget`` for all runs and values together, under replacement of one record's value with the numbers of
    records public, for questions chosen adaptively. Precondition (the caller's): ``share`` below moves by at most
    ``2^bits`` between neighbours, and the number of records is at least ``t``.

    Attributes:
        budget: of everything.
        noise: ``xi``.
        threshold: ``T``, as a share.
        grid: ``G``; a small one lets an audit look at all noise there is.
    """

    budget: Budget
    noise: RootNoise
    threshold: Fraction
    grid: int = GRID

    @cached_property
    def threshold_noise(self) -> DiscreteLaplace:
        """The noise of a run's threshold, which is drawn once."""
        return DiscreteLaplace(Fraction(2 * self.grid))

    @cached_property
    def question_noise(self) -> DiscreteLaplace:
        """The noise of each test."""
        return DiscreteLaplace(Fraction(4 * self.grid))

    @cached_property
    def value_noise(self) -> DiscreteLaplace:
        """The noise of a value that is given."""
        return DiscreteLaplace(Fraction(8 * self.grid))

    def payable(self, books: SpentAmounts, t: int) -> bool:
        """Whether a run that starts at ``t`` can be paid to its end, its number included."""
        return books.spent + self._tests_cost(t) + self._value_cost(t) <= self.budget.amount

    def runs_left(self, books: SpentAmounts, t: int) -> int:
        """How many further runs could be paid now, each with its number; the one under way besides."""
        owed = Fraction(0) if books.run is None else self._value_cost(books.run.start)
        left = self.budget.amount - books.spent - owed
        return int(left // (self._tests_cost(t) + self._value_cost(t)))

    def most(self, books: SpentAmounts, t: int) -> Fraction:
        """The most that the next question costs: a number, and the tests of a new run where none is under way."""
        if books.run is not None:
            return self._value_cost(books.run.start)
        return self._tests_cost(t) + self._value_cost(t) if self.payable(books, t) else Fraction(0)

    def start(self, books: SpentAmounts, t: int, randomness: Randomness) -> SpentAmounts:
        """Charge for a run's tests, and draw its noise. Only where ``payable``, and no run is under way."""
        run = SparseRun(t, int(randomness.draw(self.threshold_noise, 1)[0]))
        return SpentAmounts(books.spent + self._tests_cost(t), run)

    def above(self, run: SparseRun, t: int, share: int, bits: int, randomness: Randomness) -> bool:
        """Test ``share / (2^bits t)`` once."""
        units = self._units(run, t)
        limit = ceil_div(self.grid * units * self.threshold.numerator, _XI_UNIT * self.threshold.denominator)
        tested = self._scaled(units, t, share, bits)
        return randomness.test(tested, limit + run.threshold_noise, self.question_noise)

    def halt(
        self, books: SpentAmounts, run: SparseRun, t: int, share: int, bits: int, randomness: Randomness
    ) -> tuple[SpentAmounts, Fraction]:
        """End the run with the noisy value of ``share / (2^bits t)``, and charge for it."""
        units = self._units(run, t)
        # Of Python's integers: in long streams they pass 64 bits.
        exact: Any = np.array([self._scaled(units, t, share, bits)], dtype=object)
        value = int(randomness.measure(exact, self.value_noise)[0])
        spent = books.spent + self._cost(Fraction(self._moved(units, t), 8 * self.grid))
        return SpentAmounts(spent), Fraction(value * _XI_UNIT, self.grid * units)

    def halt_silently(self, books: SpentAmounts) -> SpentAmounts:
        """End the run without a value."""
        return replace(books, run=None)

    def _units(self, run: SparseRun, t: int) -> int:
        # xi_t/t is non-increasing; after rounding down it is made so, because the charge of the start rests on it.
        return min(self.noise.units(t), self.noise.units(run.start) * t // run.start)

    def _scaled(self, units: int, t: int, share: int, bits: int) -> int:
        return int((self.grid * units * share) // (_XI_UNIT * t << bits))

    def _moved(self, units: int, t: int) -> int:
        """``D_t``: a floor moves by at most the rounded-up amount that its argument moves by."""
        return ceil_div(self.grid * units, _XI_UNIT * t)

    def _tests_cost(self, t: int) -> Fraction:
        """Of all tests of a run that starts at ``t``."""
        return self._cost(Fraction(self._moved(self.noise.units(t), t), self.grid))

    def _value_cost(self, t: int) -> Fraction:
        """Of the number of a run that starts at ``t``, at most."""
        return self._cost(Fraction(self._moved(self.noise.units(t), t), 8 * self.grid))

    def _cost(self, epsilon: Fraction) -> Fraction:
        return epsilon if isinstance(self.budget, PureDP) else epsilon**2 / 2


def ceil_div(top: int, bottom: int) -> int:
    """``ceil(top / bottom)``, exact."""
    return -(-top // bottom)
