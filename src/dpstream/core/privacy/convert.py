"""Conversions between definitions, groups and neighbouring relations.

Rational results are exact. Where a logarithm forces floating point, the result is on the safe side: a
reported loss (epsilon or delta) is rounded up and an amount of rho to spend is rounded down. The
bounds hold for every order alpha, so an imprecise search costs tightness, never safety; each
evaluated bound is raised by far more than its rounding error, and a search returns only end points
at which the raised bound was checked.

At the end: what a budget means for somebody who guesses, rounded up. For pure epsilon, and for (epsilon, delta),
every test between two neighbouring inputs has ``hits <= e^epsilon * false alarms + delta`` (Wasserman, Zhou 2010;
Kairouz, Oh, Viswanath 2015), from which both bounds below follow.

Trusted base: kernel (conversions between amounts).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import ZCDP, Amount, Budget, PureDP, exact_amount

# Relative rounding errors of the few operations below are near 1e-15; this is a thousand times that.
_SLACK = 1e-12
# Deltas below 10^-300 are refused, and no reported delta is below this (exp would round to 0).
_MIN_DELTA = 1e-301
# A search for an amount ends below this.
_MIN_BORDER = 1e-300


def pure_to_zcdp(budget: PureDP) -> ZCDP:
    """``rho = epsilon^2 / 2``, exact (Bun, Steinke 2016, Proposition 1.4).

    >>> pure_to_zcdp(PureDP.of("1"))
    ZCDP(rho=Fraction(1, 2))
    """
    return ZCDP(budget.epsilon**2 / 2)


def zcdp_to_delta(budget: ZCDP, epsilon: Amount) -> float:
    """The smallest proved delta at ``epsilon``; rounded up.

    ``delta = inf_{alpha > 1} exp((alpha-1)(alpha rho - epsilon)) / (alpha-1) * (1 - 1/alpha)^alpha``
    (Canonne, Kamath, Steinke 2020, Corollary 13).

    >>> f"{zcdp_to_delta(ZCDP.of('1/2'), 5):.2e}"
    '2.90e-06'
    """
    exact = exact_amount(epsilon, where="epsilon")
    return _delta_bound(_up(budget.rho), _down(exact))


def zcdp_to_epsilon(budget: ZCDP, delta: Amount) -> float:
    """The smallest proved epsilon at ``delta``; rounded up. The inverse of ``zcdp_to_delta``."""
    target, rho = _down(_delta(delta)), _up(budget.rho)
    if _delta_bound(rho, 0.0) <= target:
        return 0.0
    return _border(lambda epsilon: _delta_bound(rho, epsilon) > target)[1]


def approximate_to_zcdp(epsilon: Amount, delta: Amount) -> ZCDP:
    """The largest rho whose (epsilon, delta) loss is within the given one; rounded down.

    Guarantee: ``zcdp_to_delta(result, epsilon) <= delta``.
    """
    target, limit = _down(_delta(delta)), _down(exact_amount(epsilon, where="epsilon"))
    rho, above = _border(lambda rho: _delta_bound(rho, limit) <= target)
    if above < _MIN_BORDER:
        raise BudgetError("no usable rho within this epsilon and delta", where="budget")
    return ZCDP(Fraction(rho))


def _border(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Two neighbouring amounts: ``holds`` is true of the first (or that is 0) and false of the second.

    It is true up to some amount and false beyond. Where that lies below ``_MIN_BORDER``, the search ends there.
    """
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high and high >= _MIN_BORDER:
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, high


def group(budget: Budget, size: int) -> Budget:
    """What protects one unit with ``budget`` protects ``size`` units together with this: c epsilon, c^2 rho.

    Holds for the entire mechanism, selections and threshold tests included. (epsilon, delta) is not
    converted directly: go through zCDP.

    >>> group(ZCDP.of("1/2"), 3)
    ZCDP(rho=Fraction(9, 2))
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError("empty group", where="group")
    return budget.scaled(size if isinstance(budget, PureDP) else size**2)


def replace_from_add_remove(budget: Budget) -> Budget:
    """What an add/remove guarantee says about replacing a record: a removal and an insertion, x2 or x4.

    To promise ``budget`` under replacement, run an add/remove mechanism with ``per_member(budget, 2)``.
    The way back does not exist: a replace guarantee lets the number of records be published exactly, and so
    says nothing about adding or removing one.
    """
    return group(budget, 2)


def _delta_bound(rho: float, epsilon: float) -> float:
    """Upper bound of delta, by the alpha at which the logarithm's derivative vanishes.

    The derivative ``(2 alpha - 1) rho - epsilon + log(1 - 1/alpha)`` rises in alpha; in ``a = alpha - 1`` it
    is searched on a logarithmic scale. Any alpha is valid.
    """
    low, high = -300.0, 300.0
    for _ in range(64):
        middle = (low + high) / 2
        a = math.exp(middle)
        if (2 * a + 1) * rho - epsilon - math.log1p(1 / a) < 0:
            low = middle
        else:
            high = middle
    a = math.exp(high)
    terms = (a * (a + 1) * rho, -a * epsilon, -(a + 1) * math.log1p(1 / a), -math.log(a))
    exponent = math.fsum(terms) + _SLACK * (1.0 + sum(abs(term) for term in terms))
    return 1.0 if exponent >= 0 else max(math.exp(exponent), _MIN_DELTA)


def _delta(value: Amount) -> Fraction:
    exact = exact_amount(value, where="delta")
    if not Fraction(1, 10**300) <= exact < 1:
        raise BudgetError("delta out of range", where="delta", allowed="from 1e-300 to below 1")
    return exact


def _up(value: Fraction) -> float:
    near = float(value)
    return math.nextafter(near, math.inf) if Fraction(near) < value else near


def _down(value: Fraction) -> float:
    near = float(value)
    return math.nextafter(near, 0.0) if Fraction(near) > value else near


def best_guess(epsilon: float, delta: float = 0.0) -> float:
    """How often the best guess which of two neighbouring inputs was used is right, both equally likely.

    Guarantee: no procedure whatever does better; ``(e^epsilon + delta) / (e^epsilon + 1)``, rounded up. One half is
    blind guessing.

    >>> [round(best_guess(epsilon), 3) for epsilon in (0.1, 1, 2, 5)]
    [0.525, 0.731, 0.881, 0.993]
    """
    _check_epsilon(epsilon)
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)) * (1 + _SLACK))


def surer(before: Amount, epsilon: float) -> float:
    """How sure somebody can be afterwards who was ``before`` sure that a record is there (pure DP), rounded up.

    Guarantee: Bayes' rule with the largest ratio ``e^epsilon``, whatever the releases are.

    >>> [round(surer("0.01", epsilon), 3) for epsilon in (0.1, 1, 2, 5)]
    [0.011, 0.027, 0.069, 0.6]
    """
    _check_epsilon(epsilon)
    prior = float(exact_amount(before, where="before"))
    if prior >= 1:
        raise BudgetError("the probability must be below 1", where="before", allowed="between 0 and 1")
    return min(1.0, prior / (prior + (1 - prior) * math.exp(-epsilon)) * (1 + _SLACK))


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise BudgetError("epsilon is negative", where="epsilon", allowed="0 or more")
