"""How noisy a question may be at time t: ``xi_t = c t^(1/2)``, on an exact grid and never above the stated value.

The larger ``xi_t``, the less noise, and the more a question costs: rounding it down is the safe side. The guarantee
does not rest on it: ``pmwg_plan.py`` charges what it really spends, as an exact fraction.

Trusted base: kernel (noise of questions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP

#: ``xi_t`` is a whole number of ``2^-XI_BITS``.
XI_BITS = 40
_COEFFICIENT_BITS = 100
#: Relative error of a logarithm that was rounded by the machine is near 1e-16; this is ten thousand times that.
_SLACK = Fraction(1, 10**12)


@dataclass(frozen=True)
class RootNoise:
    """``xi_t = c t^(1/2)``: non-decreasing, and ``xi_t / t`` is non-increasing.

    Attributes:
        c: an exact positive number.
    """

    c: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.c, Fraction) or self.c <= 0:
            raise ConfigError("expected an exact positive coefficient of xi", where="xi")

    def units(self, t: int) -> int:
        """``floor(2^XI_BITS c t^(1/2))``, exact."""
        top, bottom = self.c.numerator, self.c.denominator
        return math.isqrt((top * top * t << 2 * XI_BITS) // (bottom * bottom))

    def value(self, t: int) -> float:
        """The value of ``xi_t`` for people."""
        return float(self.units(t) / 2**XI_BITS)


def published_noise(budget: Budget, alpha: Fraction, start: int, cells: int) -> RootNoise:
    """The text's ``xi`` for this budget, rounded down.

    Pure: ``alpha^2 n^(1/2) eps / (162 log(Nn))`` (Algorithm 3). zCDP: ``alpha n^(1/2) sqrt(2 rho) /
    (24 log^(1/2)(Nn))``, by Lemma 23; the text's approximate version is this with ``sqrt(2 rho) = eps /
    (2 log^(1/2)(1/delta))``.

    Errors:
        BudgetError: n or N below what the theorem needs.
    """
    # Lemma 23 needs n >= 3; with the constant 162 the last step of Theorem 14's proof needs n >= 21.
    least = 21 if isinstance(budget, PureDP) else 3
    if start < least:
        raise BudgetError(
            f"start = {start}: below {least} records the published noise exceeds the budget",
            where="start",
            allowed=f"{least} or more; or hard_questions",
        )
    if cells < 3:
        raise BudgetError(
            f"{cells} cells: the published noise needs 3",
            where="schema",
            allowed="more columns or values; or hard_questions",
        )
    root = Fraction(RootNoise(Fraction(1)).units(start), 2**XI_BITS)
    logarithm = Fraction(math.log(cells * start)) * (1 + _SLACK)
    if isinstance(budget, PureDP):
        return RootNoise(_rounded_down(alpha**2 * root * budget.epsilon / (logarithm * 162)))
    return RootNoise(_rounded_down(alpha / 2 * root * _root(2 * budget.rho / (logarithm * 144))))


def noise_for_hard(budget: Budget, questions: int, start: int, grid: int) -> RootNoise:
    """The largest ``c`` for which so many hard questions can be paid, all of them asked at the start.

    A run with its number costs at most ``9 D/(8 G)``, or ``65 D^2/(128 G^2)`` of rho, with ``D/G <= xi/n + 1/G``. Later
    ones cost less.

    Errors:
        BudgetError: so many that nothing is left for each.
    """
    if isinstance(budget, PureDP):
        each = budget.epsilon * Fraction(8, 9 * questions)
    else:
        each = _root(budget.rho * Fraction(128, 65 * questions))
    moved = each - Fraction(1, grid)
    if moved <= 0:
        raise BudgetError(
            f"{budget} does not pay for {questions} hard questions",
            where="hard_questions",
            allowed="fewer, or a larger budget",
        )
    # c n^(1/2) = moved n, so c = moved n^(1/2), rounded down.
    root = Fraction(RootNoise(Fraction(1)).units(start), 2**XI_BITS)
    return RootNoise(_rounded_down(moved * root))


def text_rho(epsilon: Fraction, delta: Fraction) -> ZCDP:
    """The rho at which ``published_noise`` is the text's approximate rule: ``eps^2 / (8 log(1/delta))``, rounded down.

    The text converts (epsilon, delta) more loosely than the budget is, so it is below that.

    Errors:
        BudgetError: epsilon above 1, or delta not below 1/e: the theorem says nothing there.
    """
    if epsilon > 1 or delta >= Fraction(math.exp(-1)) * (1 - _SLACK):
        raise BudgetError(
            f"epsilon = {epsilon}, delta = {delta}: outside the approximate theorem",
            where="budget",
            allowed="epsilon up to 1 and delta below 1/e; rho; epsilon alone; or hard_questions",
        )
    return ZCDP(epsilon**2 / (8 * Fraction(-math.log(delta)) * (1 + _SLACK)))


def _rounded_down(c: Fraction) -> Fraction:
    return Fraction(math.floor(c * 2**_COEFFICIENT_BITS), 2**_COEFFICIENT_BITS)


def _root(value: Fraction) -> Fraction:
    """The square root, rounded down to a multiple of ``2^-100``."""
    return Fraction(math.isqrt((value.numerator << 200) // value.denominator), 2**100)
