"""When a black box runs again, and with which budget: public rules, fixed before any data are read.

A schedule gives run ``i`` the share ``R(i) - R(i + 1)`` of its budget, ``R`` falling from ``R(0) = 1`` towards 0. All
runs from ``i`` on together cost ``R(i)``, so that the infinite sum is 1 by construction, and the budgets of skipped
runs can be given to the next one: runs ``i`` to ``j`` as one cost ``R(i) - R(j + 1)``.

Every share is rounded down. Proofs: docs/theory/growing.md.

Trusted base: kernel (amounts of runs).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.families.growing.tables import Law

#: Decimal logarithms are correctly rounded to so many digits; ten operations lose less than ``_DECIMAL_ERROR``.
DIGITS = Context(prec=80)
_DECIMAL_ERROR = Fraction(1, 10**60)
_KEPT_DIGITS = 7
_ROUNDING_LOSS = Fraction(1, 10 ** (_KEPT_DIGITS - 1))


def down(top: int, bottom: int) -> Fraction:
    """``top / bottom``, positive, rounded down to 7 significant decimal digits or a few more.

    It loses less than a millionth.

    >>> down(1, 3), down(3, 8)
    (Fraction(33333333, 100000000), Fraction(3, 8))
    """
    # 1233/4096 is a little more than log10(2) and the bit lengths are right to 1, so 6 to 8 digits are left.
    shift = _KEPT_DIGITS - (top.bit_length() - bottom.bit_length()) * 1233 // 4096
    if shift >= 0:
        return Fraction(top * 10**shift // bottom, 10**shift)
    return Fraction(top // (bottom * 10**-shift) * 10**-shift)


def root_down(value: Fraction) -> Fraction:
    """The square root, rounded down as by ``down``.

    >>> root_down(Fraction(1, 4)), root_down(Fraction(2)) ** 2 < 2
    (Fraction(1, 2), True)
    """
    shift = 64 + max(0, value.denominator.bit_length() - value.numerator.bit_length())
    return down(isqrt((value.numerator << 2 * shift) // value.denominator), 1 << shift)


@lru_cache(maxsize=64)
def _power(top: int, bottom: int, exponent: Fraction) -> Fraction:
    """``(top / bottom)^exponent``, for ``top <= bottom``: to about 75 digits."""
    if top == bottom:
        return Fraction(1)
    logarithm = DIGITS.subtract(DIGITS.ln(Decimal(top)), DIGITS.ln(Decimal(bottom)))
    decimal = DIGITS.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(DIGITS.exp(DIGITS.multiply(decimal, logarithm)))


#: Most records a database may have; scores and counts are exact up to there.
MAX_RECORDS = 1 << 32


@dataclass(frozen=True)
class ScheduledRun:
    """One run of the black box, as a schedule pays for it.

    Attributes:
        first, last: the epochs whose budgets it uses; several where one batch crossed several.
        t: records in the database.
        budget: what the black box is given.
        cost: what it takes of the stream's budget, in the stream's definition (epsilon or rho).
        beta: the probability that it misses ``alpha``.
        alpha: what is promised of it, as a share of the records (Definition 4); None where nothing is known.
    """

    first: int
    last: int
    t: int
    budget: Budget
    cost: Fraction
    beta: Fraction
    alpha: float | None


@dataclass(frozen=True)
class Schedule(ABC):
    """Epochs 0, 1, 2, ... of a growing database. Everything depends on public numbers only.

    Guarantee: whichever sizes ``t`` a stream goes through, the costs of the runs that ``due`` gives add up to at most
    ``budget.amount``. Every epoch is in at most one run, a run costs at most what its epochs have, and the
    epochs of all time have the budget together.

    Attributes:
        n: the size at which the first run is made.
        budget: of all runs together, for ever.
        beta: the probability that any promise of all runs fails.
        accuracy: of the black box.
        pure_only: whether the black box can be given pure budgets only, under zCDP ``sqrt(2 rho)``.
    """

    n: int
    budget: Budget
    beta: Fraction
    accuracy: Law | None
    pure_only: bool = False

    @abstractmethod
    def epoch(self, t: int) -> int:
        """The epoch in which the database has ``t`` records; -1 before the first."""

    @abstractmethod
    def time(self, epoch: int) -> int:
        """The size at which an epoch begins."""

    @abstractmethod
    def options(self) -> dict[str, str]:
        """What the rule is made of, exact."""

    @abstractmethod
    def between(self, first: int, last: int) -> Fraction:
        """``R(first) - R(last + 1)``: the share of the budget that these epochs have together, rounded down."""

    @abstractmethod
    def quotient(self, epoch: int) -> tuple[int, int]:
        """``R(epoch)`` as numerator and denominator: the share of this and of all later epochs."""

    def rest(self, epoch: int) -> Fraction:
        """``R(epoch)``, rounded up; both by about a millionth."""
        return down(*self.quotient(epoch)) * (1 + 2 * _ROUNDING_LOSS)

    @abstractmethod
    def failure(self, epoch: int) -> Fraction:
        """``beta_i``; they add up to at most ``beta``."""

    def due(self, done: int, t: int) -> ScheduledRun | None:
        """The run to be made now, if any: with the budgets of all epochs since the last one: none is lost.

        Args:
            done: the last epoch that was used; -1 before the first run.
            t: number of records now.
        """
        epoch = self.epoch(t)
        return None if epoch <= done else self.run(done + 1, epoch, t)

    def run(self, first: int, last: int, t: int) -> ScheduledRun:
        """One run with the budgets of these epochs."""
        amount = self.budget.amount * self.between(first, last)
        # Rounded again, because the product may have many digits; rounding down twice still rounds down.
        cost = down(amount.numerator, amount.denominator)
        budget: Budget = type(self.budget)(cost)
        if self.pure_only and not isinstance(budget, PureDP):
            budget = PureDP(root_down(2 * cost))
        beta = self.failure(first)
        alpha = None if self.accuracy is None else promised(self.accuracy, budget, beta, t)
        return ScheduledRun(first, last, t, budget, cost, beta, alpha)

    def coming(self, done: int = -1) -> Iterator[ScheduledRun]:
        """The runs that follow where every one is made in time, without end."""
        epoch = done + 1
        while True:
            t = self.time(epoch)
            # Epochs in which (1+gamma)^i n grows by less than one record have one size together, and are one run.
            last = self.epoch(t)
            yield self.run(epoch, last, t)
            epoch = last + 1

    def left(self, done: int) -> Fraction:
        """What all runs after epoch ``done`` can cost at most, for ever."""
        return self.budget.amount * self.rest(done + 1)


@dataclass(frozen=True, kw_only=True)
class Growth(Schedule):
    """``BBScheduler`` (Algorithm 1): a run whenever the database has grown by the factor ``1 + gamma``.

    Pure: ``epsilon_i / epsilon = gamma^2 (i+1) / (1+gamma)^(i+2)``, as published. With ``x = 1/(1+gamma)`` the sum over
    ``j >= i`` of ``(j+1) x^j`` is ``x^i (1 + i (1-x)) / (1-x)^2``, so ``R(i) = x^i (1 + i (1 - x))``.

    zCDP: in proportion to the square of ``(i+1) x^i``, adding up to 1. With ``q = x^2`` the sum over ``j >= i`` of
    ``(j+1)^2 q^j``, over the sum from 0, is ``q^i (1 + 2 i (1-q)/(1+q) + i^2 (1-q)^2/(1+q))``.

    Attributes:
        gamma: exact.
    """

    gamma: Fraction

    def options(self) -> dict[str, str]:
        """See ``Schedule.options``."""
        return {"gamma": str(self.gamma)}

    def quotient(self, epoch: int) -> tuple[int, int]:
        """See ``Schedule.quotient``; not reduced: reducing numbers so long would take most time."""
        u, v, i = self.gamma.numerator, self.gamma.denominator, epoch
        if isinstance(self.budget, PureDP):
            return v**i * (u + v + i * u), (u + v) ** (i + 1)
        a, b = (u + v) ** 2, v**2  # q = b / a
        return b**i * (a * (a + b) + 2 * i * a * (a - b) + (i * (a - b)) ** 2), a ** (i + 1) * (a + b)

    def between(self, first: int, last: int) -> Fraction:
        """See ``Schedule.between``; exact but for its rounding."""
        (a, b), (c, d) = self.quotient(first), self.quotient(last + 1)
        return down(a * d - c * b, b * d)

    def epoch(self, t: int) -> int:
        """The largest ``i`` with ``ceil((1+gamma)^i n) <= t``, exactly."""
        return _epoch(self.gamma, self.n, t)

    def time(self, epoch: int) -> int:
        """``ceil((1+gamma)^i n)``, exactly."""
        return _time(self.gamma, self.n, epoch)

    def failure(self, epoch: int) -> Fraction:
        """``(beta/(1+beta))^(i+1)``: a geometric series that adds up to beta."""
        return (self.beta / (1 + self.beta)) ** (epoch + 1)


@dataclass(frozen=True, kw_only=True)
class Improvement(Schedule):
    """``BBImprover`` (Algorithm 2): a run at every size; epoch ``i`` is ``t = n + i``.

    ``R(i) = ((n - 1/2) / (t - 1/2))^(2c)``. The share of an epoch is the integral of ``2c (n - 1/2)^(2c) s^(-1-2c)``
    over ``t - 1/2 <= s <= t + 1/2``. The integrand is convex, so the share is at least its value at ``t``, the square
    of the published ``t^(-1/2-c)``, scaled so that they add up to 1 (and a little more, which the paper's would leave
    unspent).
    """

    c: Fraction

    def options(self) -> dict[str, str]:
        """See ``Schedule.options``."""
        return {"c": str(self.c)}

    def between(self, first: int, last: int) -> Fraction:
        """See ``Schedule.between``. Powers are good to 10^-70, and within the limits of c and t shares are above
        10^-45."""
        exact = self._power(first) - self._power(last + 1) - _DECIMAL_ERROR
        return down(*exact.as_integer_ratio())

    def quotient(self, epoch: int) -> tuple[int, int]:
        """See ``Schedule.quotient``."""
        return self._power(epoch).as_integer_ratio()

    def _power(self, epoch: int) -> Fraction:
        return _power(2 * self.n - 1, 2 * (self.n + epoch) - 1, 2 * self.c)

    def epoch(self, t: int) -> int:
        """``t - n``."""
        return max(t - self.n, -1)

    def time(self, epoch: int) -> int:
        """``n + i``."""
        return self.n + epoch

    def failure(self, epoch: int) -> Fraction:
        """``beta / (2 t^2)``; over all t they add up to less than 0.83 beta."""
        return self.beta / (2 * self.time(epoch) ** 2)


def stale(made: int, t: int) -> float:
    """The most by which a linear query may have moved since a run at ``made`` records (Lemma 11).

    >>> stale(1000, 1250)
    0.2
    """
    return (t - made) / t


def promised(accuracy: Law, budget: Budget, beta: Fraction, t: int) -> float:
    """The law's alpha. A zCDP budget promises at least what ``sqrt(2 rho)`` does."""
    epsilon = budget.epsilon if isinstance(budget, PureDP) else root_down(2 * budget.rho)
    surprise = math.log(beta.denominator) - math.log(beta.numerator)
    return accuracy.alpha(surprise, float(epsilon * t))


@lru_cache(maxsize=4096)
def _time(gamma: Fraction, n: int, epoch: int) -> int:
    whole, part = int((gamma + 1).numerator ** epoch), int(gamma.denominator**epoch)
    return -(-n * whole // part)


def _epoch(gamma: Fraction, n: int, t: int) -> int:
    """A guess by logarithms, put right exactly."""
    if t < n:
        return -1
    guess = max(0, int((math.log(t) - math.log(n)) / math.log1p(gamma)))
    while _time(gamma, n, guess) > t:
        guess -= 1
    while _time(gamma, n, guess + 1) <= t:
        guess += 1
    return guess
