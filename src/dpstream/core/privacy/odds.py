"""What a budget means for somebody who guesses: bounds for people, rounded up.

For pure epsilon, and for (epsilon, delta), every test between two neighbouring inputs has
``hits <= e^epsilon * false alarms + delta`` (Wasserman, Zhou 2010; Kairouz, Oh, Viswanath 2015), from which both
bounds below follow.
"""

from __future__ import annotations

import math

from dpstream.core.errors import BudgetError
from dpstream.core.privacy.budget import Amount, exact_amount

_SLACK = 1e-12


def best_guess(epsilon: float, delta: float = 0.0) -> float:
    """How often the best guess which of two neighbouring inputs was used is right, both equally likely.

    Guarantee: no procedure whatever does better; ``(e^epsilon + delta) / (e^epsilon + 1)``, rounded up. One half is
    blind guessing.

    >>> [round(best_guess(epsilon), 3) for epsilon in (0.1, 1, 2, 5)]
    [0.525, 0.731, 0.881, 0.993]
    """
    _check(epsilon)
    return min(1.0, (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon)) * (1 + _SLACK))


def surer(before: Amount, epsilon: float) -> float:
    """How sure somebody can be afterwards who was ``before`` sure that a record is there (pure DP), rounded up.

    Guarantee: Bayes' rule with the largest ratio ``e^epsilon``, whatever the releases are.

    >>> [round(surer("0.01", epsilon), 3) for epsilon in (0.1, 1, 2, 5)]
    [0.011, 0.027, 0.069, 0.6]
    """
    _check(epsilon)
    prior = float(exact_amount(before, where="before"))
    if prior >= 1:
        raise BudgetError("the probability is not below 1", where="before", allowed="between 0 and 1")
    return min(1.0, prior / (prior + (1 - prior) * math.exp(-epsilon)) * (1 + _SLACK))


def _check(epsilon: float) -> None:
    if not epsilon >= 0:
        raise BudgetError("epsilon is negative", where="epsilon", allowed="0 or more")
