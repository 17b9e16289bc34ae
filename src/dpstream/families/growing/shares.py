"""What part of a budget is left for ever after some runs, exactly.

A schedule gives run ``i`` the share ``R(i) - R(i + 1)`` of its budget, ``R`` falling from ``R(0) = 1`` towards 0. All
runs from ``i`` on together cost ``R(i)``, so that the infinite sum is 1 by construction, and the budgets of skipped
runs can be given to the next one: runs ``i`` to ``j`` as one cost ``R(i) - R(j + 1)``.

Every share is rounded down. Proofs: docs/theory/growing.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt

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


def to_decimal(value: Fraction) -> Decimal:
    """The number to 80 digits."""
    return DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))


def from_decimal(value: Decimal) -> Fraction:
    """A positive number that was computed to 80 digits, rounded down by more than its error."""
    exact = Fraction(value) * (1 - _DECIMAL_ERROR)
    return down(exact.numerator, exact.denominator)


class RunShares(ABC):
    """``R``: what share of the budget the runs from some number on may spend, for ever."""

    @abstractmethod
    def between(self, first: int, last: int) -> Fraction:
        """``R(first) - R(last + 1)``: the share of these runs together, rounded down."""

    @abstractmethod
    def left(self, run: int) -> Fraction:
        """``R(run)``: the share of this and of all later runs, rounded up; both by about a millionth."""


@dataclass(frozen=True)
class _RationalShares(RunShares):
    """``R(i)`` is a quotient of integers. ``gamma`` is exact."""

    gamma: Fraction

    @abstractmethod
    def quotient(self, run: int) -> tuple[int, int]:
        """``R(run)`` as numerator and denominator, not reduced: reducing numbers so long would take most time."""

    def between(self, first: int, last: int) -> Fraction:
        """See ``RunShares.between``; exact but for its rounding."""
        (a, b), (c, d) = self.quotient(first), self.quotient(last + 1)
        return down(a * d - c * b, b * d)

    def left(self, run: int) -> Fraction:
        """See ``RunShares.left``."""
        top, bottom = self.quotient(run)
        return down(top, bottom) * (1 + 2 * _ROUNDING_LOSS)


@dataclass(frozen=True)
class PureShares(_RationalShares):
    """``epsilon_i / epsilon = gamma^2 (i+1) / (1+gamma)^(i+2)`` (Algorithm 1), so ``R(i) = x^i (1 + i (1 - x))``.

    ``x = 1/(1+gamma)``: the sum over ``j >= i`` of ``(j+1) x^j`` is ``x^i (1 + i (1-x)) / (1-x)^2``.

    >>> shares = PureShares(Fraction(1, 2))
    >>> shares.between(0, 0) == down(1, 9), shares.between(0, 10**4) <= 1
    (True, True)
    """

    def quotient(self, run: int) -> tuple[int, int]:
        """See ``_RationalShares.quotient``."""
        u, v = self.gamma.numerator, self.gamma.denominator
        whole = u + v
        return v**run * (whole + run * u), whole ** (run + 1)


@dataclass(frozen=True)
class ZCDPShares(_RationalShares):
    """``rho_i / rho`` in proportion to the square of Algorithm 1's ``(i+1) / (1+gamma)^i``, adding up to 1.

    With ``q = 1/(1+gamma)^2`` the sum over ``j >= i`` of ``(j+1)^2 q^j``, over the sum from 0, is
    ``q^i (1 + 2 i (1-q)/(1+q) + i^2 (1-q)^2/(1+q))``.
    """

    def quotient(self, run: int) -> tuple[int, int]:
        """See ``_RationalShares.quotient``."""
        u, v = self.gamma.numerator, self.gamma.denominator
        a, b = (u + v) ** 2, v**2  # q = b / a
        top = a * (a + b) + 2 * run * a * (a - b) + (run * (a - b)) ** 2
        return b**run * top, a ** (run + 1) * (a + b)


@dataclass(frozen=True)
class HarmonicShares(RunShares):
    """``R(i) = ((n - 1/2) / (n + i - 1/2))^(2c)``: run ``i`` is at ``t = n + i`` records.

    Its share is the integral of ``2c (n - 1/2)^(2c) s^(-1-2c)`` over ``t - 1/2 <= s <= t + 1/2``. The integrand is
    convex, so the share is at least its value at ``t``: the square of Algorithm 2's ``t^(-1/2-c)``, scaled so that they
    add up to 1 (and a little more, which the paper's would leave unspent).
    """

    n: int
    c: Fraction

    def between(self, first: int, last: int) -> Fraction:
        """See ``RunShares.between``. Powers are good to 10^-70, and within the limits of c and t shares are above
        10^-45."""
        exact = self._power(first) - self._power(last + 1) - _DECIMAL_ERROR
        return down(exact.numerator, exact.denominator)

    def left(self, run: int) -> Fraction:
        """See ``RunShares.left``."""
        exact = self._power(run)
        return down(exact.numerator, exact.denominator) * (1 + 2 * _ROUNDING_LOSS)

    def _power(self, run: int) -> Fraction:
        return _power(2 * self.n - 1, 2 * (self.n + run) - 1, 2 * self.c)


@lru_cache(maxsize=64)
def _power(top: int, bottom: int, exponent: Fraction) -> Fraction:
    """``(top / bottom)^exponent``, for ``top <= bottom``: to about 75 digits."""
    if top == bottom:
        return Fraction(1)
    logarithm = DIGITS.subtract(DIGITS.ln(Decimal(top)), DIGITS.ln(Decimal(bottom)))
    return Fraction(DIGITS.exp(DIGITS.multiply(to_decimal(exponent), logarithm)))
