"""Exact privacy amounts.

Amounts are rational numbers (``fractions.Fraction``): splitting a budget and adding the parts up
again gives the budget, to the last digit. Floats are read through their shortest decimal form
(``0.1`` is one tenth), so that what a user writes is what is spent.

Trusted base: kernel (exact amounts).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Self

from dpstream.core.errors import BudgetError

Amount = int | str | float | Decimal | Fraction

#: Larger losses promise nothing to anybody; a typo is the likelier explanation.
MAX_EPSILON = 1000
#: A number as text, wherever one is read: plain digits, a point, an exponent of at most three digits; or a fraction.
#: Fraction and int would take blanks, underscores, plus signs and the digits of all scripts as well.
_NUMBER = re.compile(
    r"-?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?|[0-9]+/0*[1-9][0-9]*)", re.ASCII
)
_MAX_TEXT = 4000
# Digits of a bound above an amount, and of an exact decimal before it is easier to read as a fraction.
_DIGITS, _LONGEST = 6, 24


def exact_text(text: str) -> Fraction | None:
    """The number that a text says exactly, or None; never more work than the text is long.

    >>> exact_text("1/3"), exact_text("2.50e1"), exact_text("+1"), exact_text("1e400000000")
    (Fraction(1, 3), Fraction(25, 1), None, None)
    """
    if len(text) > _MAX_TEXT or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text)


def exact_amount(value: Amount, *, where: str, maximum: int | None = None) -> Fraction:
    """Read a positive privacy amount exactly.

    Args:
        value: an integer, a decimal string such as ``"0.5"`` or ``"1/3"``, a Decimal, a Fraction, or
            a float (read through its shortest decimal form).
        where: the name of the amount, for the error message.
        maximum: the largest accepted amount, or None.

    Errors:
        BudgetError: not a number, NaN, infinite, zero, negative or above ``maximum``.

    >>> exact_amount("0.1", where="epsilon"), exact_amount(0.1, where="epsilon")
    (Fraction(1, 10), Fraction(1, 10))
    """
    allowed = "a positive number" + (f" up to {maximum}" if maximum is not None else "")
    if isinstance(value, bool):
        raise BudgetError(f"{value!r}: expected an amount", where=where, allowed=allowed)
    try:
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError
            exact = Fraction(repr(value))
        elif isinstance(value, str):
            read = exact_text(value)
            if read is None:
                raise ValueError
            exact = read
        elif isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _MAX_TEXT:
            raise ValueError  # the digits would be written out
        else:
            exact = Fraction(value)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError, InvalidOperation):
        raise BudgetError(f"{_shown(value)}: expected an amount", where=where, allowed=allowed) from None
    if exact <= 0:
        raise BudgetError(f"{_shown(value)} is not positive", where=where, allowed=allowed)
    if maximum is not None and exact > maximum:
        raise BudgetError(f"{_shown(value)} is too large to protect anybody", where=where, allowed=allowed)
    return exact


def _shown(value: Amount) -> str:
    text = "the number" if isinstance(value, int) and value.bit_length() > 200 else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


@dataclass(frozen=True, init=False)
class PureDP:
    """Pure differential privacy: every output at most ``exp(epsilon)`` times likelier.

    Errors:
        BudgetError: an epsilon that is undefined, negative, or too large to protect anybody.

    >>> PureDP("1/2") == PureDP(0.5)
    True
    """

    epsilon: Fraction

    def __init__(self, epsilon: Amount) -> None:
        object.__setattr__(self, "epsilon", _given(epsilon, "epsilon", MAX_EPSILON))

    @classmethod
    def of(cls, epsilon: Amount) -> Self:
        """Read ``epsilon`` exactly and check that it is in (0, 1000]."""
        return cls(exact_amount(epsilon, where="epsilon", maximum=MAX_EPSILON))

    @property
    def amount(self) -> Fraction:
        """Epsilon; the amount that adds up under composition."""
        return self.epsilon

    def scaled(self, factor: Fraction | int) -> Self:
        """This budget times an exact factor."""
        return type(self)(self.epsilon * factor)

    def split(self, *weights: int | Fraction) -> tuple[Self, ...]:
        """Parts in the given proportions; they add up to this budget exactly."""
        return tuple(self.scaled(share) for share in _shares(weights))

    def as_dict(self) -> dict[str, str]:
        """For plans and manifests: exact, as text."""
        return {"definition": "pure", "epsilon": str(self.epsilon)}

    def __str__(self) -> str:
        return f"epsilon = {decimal_text(self.epsilon)} (pure)"


@dataclass(frozen=True, init=False)
class ZCDP:
    """Zero-concentrated differential privacy with parameter ``rho``; errors as of ``PureDP``."""

    rho: Fraction

    def __init__(self, rho: Amount) -> None:
        object.__setattr__(self, "rho", _given(rho, "rho", MAX_EPSILON**2 // 2))

    @classmethod
    def of(cls, rho: Amount) -> Self:
        """Read ``rho`` exactly and check that it is in (0, 500000] (epsilon^2/2 of the largest epsilon)."""
        return cls(exact_amount(rho, where="rho", maximum=MAX_EPSILON**2 // 2))

    @property
    def amount(self) -> Fraction:
        """Rho; the amount that adds up under composition."""
        return self.rho

    def scaled(self, factor: Fraction | int) -> Self:
        """This budget times an exact factor."""
        return type(self)(self.rho * factor)

    def split(self, *weights: int | Fraction) -> tuple[Self, ...]:
        """Parts in the given proportions; they add up to this budget exactly."""
        return tuple(self.scaled(share) for share in _shares(weights))

    def as_dict(self) -> dict[str, str]:
        """For plans and manifests: exact, as text."""
        return {"definition": "zCDP", "rho": str(self.rho)}

    def __str__(self) -> str:
        return f"rho = {decimal_text(self.rho)} (zCDP)"


Budget = PureDP | ZCDP


def definition_words(budget: Budget, exceptions: Fraction = Fraction(0)) -> str:
    """What a guarantee is called that may fail with a small probability.

    >>> definition_words(PureDP(1)), definition_words(ZCDP(1), Fraction(1, 10**9))
    ('pure', 'approximate zero-concentrated')
    """
    kind = "zero-concentrated" if isinstance(budget, ZCDP) else "" if exceptions else "pure"
    return f"approximate {kind}".rstrip() if exceptions else kind


def amount_words(budget: Budget, exceptions: Fraction = Fraction(0)) -> str:
    """A budget for people, with the probability of exceptions.

    >>> amount_words(PureDP(1), Fraction(1, 10**9))
    'epsilon = 1, delta = 1e-9'
    """
    if not exceptions:
        return str(budget)
    return f"{str(budget).partition(' (')[0]}, delta = {decimal_text(exceptions)}"


def _given(value: Amount, where: str, maximum: int) -> Fraction:
    """An amount as written, or as arithmetic gave it: parts of budgets, and what was spent so far, may be 0."""
    if type(value) is Fraction and value >= 0:
        return value
    return exact_amount(value, where=where, maximum=maximum)


def amounts(
    budget: Budget | None, epsilon: Amount | None, rho: Amount | None
) -> tuple[Amount | None, Amount | None]:
    """The epsilon or the rho that a recipe is calibrated with, said by a budget or by itself.

    Errors:
        BudgetError: both ways at once, or a budget that is none.

    >>> amounts(PureDP.of("1/2"), None, None)
    (Fraction(1, 2), None)
    """
    if budget is None:
        return epsilon, rho
    if not isinstance(budget, PureDP | ZCDP):
        raise BudgetError(f"{budget!r}: expected a budget", where="budget", allowed="PureDP(1), ZCDP(1)")
    if epsilon is not None or rho is not None:
        raise BudgetError("budget given twice", where="budget", allowed="either budget, epsilon or rho")
    return (budget.epsilon, None) if isinstance(budget, PureDP) else (None, budget.rho)


def _shares(weights: Sequence[int | Fraction]) -> list[Fraction]:
    exact = [Fraction(weight) for weight in weights]
    if not exact or min(exact) <= 0:
        raise BudgetError("a split's proportion must be positive", where="budget")
    total = sum(exact, Fraction(0))
    return [weight / total for weight in exact]


def decimal_text(value: Fraction) -> str:
    """An amount for people, never less than it is: its exact decimal, or the fraction and a bound above it.

    >>> [decimal_text(x) for x in (Fraction(1, 10**9), Fraction(5, 4), Fraction(1, 3))]
    ['1e-9', '1.25', '1/3 (at most 0.333334)']
    """
    exact = _exact_decimal(value)
    if exact is not None:
        return str(exact).lower()
    above = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    bound = above.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{value} (at most {str(bound).lower()})"


def _exact_decimal(value: Fraction) -> Decimal | None:
    """None where the decimal does not end, or is too long to read."""
    rest, places = value.denominator, 0
    for prime in (2, 5):
        power = 0
        while rest % prime == 0:
            rest, power = rest // prime, power + 1
        places = max(places, power)
    if rest != 1:
        return None
    digits = Decimal(value.numerator * 10**places // value.denominator).as_tuple().digits
    return None if len(digits) > _LONGEST else Decimal((int(value < 0), digits, -places))
