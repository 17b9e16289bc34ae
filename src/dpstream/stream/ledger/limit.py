"""Composition over streams: what several streams on one private source cost together, and the limit on it.

Guarantee: streams whose charges an account admitted satisfy its limit together, however they are interleaved and
however later streams are chosen by what earlier ones released. An account is a privacy filter: the streams'
budgets may depend on releases, the limit may not (docs/theory/composition-over-streams.md).

All amounts are exact. The one conversion that needs logarithms, the rho within an (epsilon, delta), is rounded
down once and then kept.

Trusted base: kernel (limits what streams cost together).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from dpstream.core.errors import BudgetError, ConfigError, UnitError
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP, decimal_text, exact_amount
from dpstream.core.privacy.convert import approximate_to_zcdp, pure_to_zcdp, replace_from_add_remove

#: Units that an account can be in.
UNITS = ("event", "event-replace", "individual", "individual-replace", "user", "record", "record-replace")
#: A guarantee for the first unit says this much about the second: a removal and an insertion.
_REPLACED = (
    ("event", "event-replace"),
    ("individual", "individual-replace"),
    ("record", "record-replace"),
)
_RECORDS = ("record", "record-replace")
_FORMS = ("epsilon=2", "rho=1/2", "epsilon=2,delta=1e-9")


@dataclass(frozen=True)
class Total:
    """What all charges cost together.

    Attributes:
        epsilon: their sum, where all of them are pure; None otherwise.
        rho: the sum as zero-concentrated, pure ones through ``epsilon^2 / 2``.
        exceptions: with which probability at most none of this holds.
    """

    epsilon: Fraction | None
    rho: Fraction
    exceptions: Fraction = Fraction(0)

    def __str__(self) -> str:
        rho = f"rho = {shown_amount(self.rho)}{_exceptions(self.exceptions)}"
        return (
            rho if self.epsilon is None else f"epsilon = {shown_amount(self.epsilon)} (pure); as zCDP {rho}"
        )


def compose(budgets: Iterable[Budget]) -> Total:
    """Add up, exactly.

    >>> print(compose([PureDP.of("1/2"), PureDP.of(1)]))
    epsilon = 1.5 (pure); as zCDP rho = 0.625
    >>> compose([PureDP.of(1), ZCDP.of("1/8")]).rho
    Fraction(5, 8)
    """
    epsilon: Fraction | None = Fraction(0)
    rho = Fraction(0)
    for budget in budgets:
        pure = isinstance(budget, PureDP)
        epsilon = epsilon + budget.amount if pure and epsilon is not None else None
        rho += (pure_to_zcdp(budget) if isinstance(budget, PureDP) else budget).rho
    return Total(epsilon, rho)


def in_unit(budget: Budget, unit: str, wanted: str) -> Budget:
    """What a guarantee for ``unit`` says about the unit ``wanted``.

    Only what is proved: equal units, and replacing from adding and removing (2 epsilon, 4 rho).

    Errors:
        UnitError: nothing can be said. An event says nothing about a person with any number of events, and
            where records are replaced their number is public. A record's whole stay is any number of events, a
            person may have any number of stays, and an event may be in one: without a declared bound on stays, the
            unit ``record`` is added to no other.

    >>> in_unit(PureDP.of(1), "event", "event-replace")
    PureDP(epsilon=Fraction(2, 1))
    """
    if unit == wanted:
        return budget
    if (unit, wanted) in _REPLACED:
        return replace_from_add_remove(budget)
    also = (f"{given!r} (charged as a pair)" for given, target in _REPLACED if target == wanted)
    allowed = " or ".join([f"streams with unit {wanted!r}", *also])
    if (unit in _RECORDS) != (wanted in _RECORDS):
        allowed = "another account for the unit record"
    raise UnitError(
        f"a guarantee for the unit {unit!r} says nothing about the unit {wanted!r}",
        where="account",
        allowed=allowed,
    )


@dataclass(frozen=True)
class Limit:
    """What all streams together may cost one unit: pure epsilon, rho, or (epsilon, delta).

    Attributes:
        epsilon: of a pure or an (epsilon, delta) limit.
        delta: of an (epsilon, delta) limit.
        rho: of a rho limit; of an (epsilon, delta) limit the largest rho within it, rounded down.
        exceptions: what streams that discover values may add to delta.
    """

    epsilon: Fraction | None
    delta: Fraction | None
    rho: Fraction | None
    exceptions: Fraction = Fraction(0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``epsilon=2``, ``rho=1/2`` or ``epsilon=2,delta=1e-9``; each may have ``exceptions=1e-9``.

        Errors:
            ConfigError: something else, or an amount that cannot be used.

        >>> print(Limit.parse("epsilon=2"), "|", Limit.parse("epsilon = 2, delta = 1e-9"))
        epsilon = 2 (pure) | epsilon = 2, delta = 1e-9
        """
        given: dict[str, str] = {}
        for item in text.split(","):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals or not value or name in given:
                raise _wrong(text)
            given[name] = value
        try:
            excepted = given.pop("exceptions", None)
            exceptions = Fraction(0)
            if excepted is not None:
                exceptions = exact_amount(excepted, where="exceptions", maximum=1)
            if list(given) == ["rho"]:
                return cls(None, None, ZCDP.of(given["rho"]).rho, exceptions)
            if sorted(given) not in (["epsilon"], ["delta", "epsilon"]):
                raise _wrong(text)
            epsilon = PureDP.of(given["epsilon"]).epsilon
            if "delta" not in given:
                return cls(epsilon, None, None, exceptions)
            delta = exact_amount(given["delta"], where="delta")
            rho = _nine_digits(approximate_to_zcdp(epsilon, delta).rho)
            return cls(epsilon, delta, rho, exceptions)
        except BudgetError as error:
            raise ConfigError(error.what, where=f"limit {text!r}", allowed=error.allowed) from None

    @classmethod
    def from_dict(cls, stored: Mapping[str, str]) -> Self:
        """The inverse of ``as_dict``; nothing is computed anew."""
        epsilon, delta, rho = (
            Fraction(stored[name]) if name in stored else None for name in ("epsilon", "delta", "rho")
        )
        return cls(epsilon, delta, rho, Fraction(stored.get("exceptions", 0)))

    def as_dict(self) -> dict[str, str]:
        """Exact, as text."""
        values = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        values |= {"exceptions": self.exceptions or None}
        return {name: str(value) for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        end = _exceptions(self.exceptions)
        if self.epsilon is None:
            return f"rho = {shown_amount(self.rho or Fraction(0))} (zCDP){end}"
        text = f"epsilon = {shown_amount(self.epsilon)}"
        kind = " (pure)" if self.delta is None else f", delta = {shown_amount(self.delta)}"
        return f"{text}{kind}{end}"

    def admits(self, total: Total) -> bool:
        """Whether streams with this total are within the limit.

        Under (epsilon, delta) there are two ways, and either is enough: all charges are pure and their epsilons
        add up to at most epsilon, or all of them as zCDP are within the rho. Under rho, pure charges count as
        zCDP. Under a pure epsilon every charge has to be pure. Exceptions have a limit of their own.
        """
        if total.exceptions > self.exceptions:
            return False
        if self.epsilon is not None and total.epsilon is not None and total.epsilon <= self.epsilon:
            return True
        return self.rho is not None and total.rho <= self.rho

    def require_larger(self, new: Limit) -> None:
        """Check that a raised limit is of the same kind, lowers no amount and raises one.

        Errors:
            ConfigError: it is not.
        """
        if (new.as_dict().keys() ^ self.as_dict().keys()) - {"exceptions"}:
            raise ConfigError(
                f"the limit {new} has another kind than {self}",
                where="limit",
                allowed=f"a limit like {self}",
            )
        pairs = [
            (a, b)
            for a, b in (
                (self.epsilon, new.epsilon),
                (self.delta, new.delta),
                (self.rho, new.rho),
                (self.exceptions, new.exceptions),
            )
            if a
        ]
        if new == self or any(b is None or b < a for a, b in pairs):
            raise ConfigError(
                f"the limit {new} does not raise {self}", where="limit", allowed=f"more than {self}"
            )

    def check_definition(self, budget: Budget, exceptions: Fraction = Fraction(0)) -> None:
        """Check that a charge of this kind can be within the limit.

        Errors:
            BudgetError: zero-concentrated privacy has no pure epsilon; the limit allows no exceptions.
        """
        if exceptions and not self.exceptions:
            raise BudgetError(
                f"the stream discovers values with delta = {decimal_text(exceptions)}; the limit {self} allows none",
                where="account",
                allowed='a limit "epsilon=2,exceptions=1e-8"; or patterns',
            )
        if self.rho is None and not isinstance(budget, PureDP):
            raise BudgetError(
                f"the account's limit is {self}, and {budget} has no pure epsilon",
                where="account",
                allowed="pure epsilon, or another kind of limit",
            )


def budget_from_dict(stored: Mapping[str, str]) -> Budget:
    """The inverse of ``Budget.as_dict``; the amount may be a group's, beyond what one plan may state.

    >>> budget_from_dict({"definition": "zCDP", "rho": "1/3"})
    ZCDP(rho=Fraction(1, 3))
    """
    if stored["definition"] == "pure":
        return PureDP(Fraction(stored["epsilon"]))
    return ZCDP(Fraction(stored["rho"]))


def shown_amount(value: Fraction) -> str:
    """An amount for people, never less than it is; 0 is shown as ``0``."""
    return decimal_text(value) if value else "0"


def _exceptions(probability: Fraction) -> str:
    return f", exceptions = {decimal_text(probability)}" if probability else ""


def _nine_digits(value: Fraction) -> Fraction:
    """Round down to nine significant digits: the number is kept in a file, and people read it."""
    scale = Fraction(1)
    while value * scale < 10**8:
        scale *= 10
    while value * scale >= 10**9:
        scale /= 10
    return Fraction(int(value * scale)) / scale


def _wrong(text: str) -> ConfigError:
    return ConfigError(f"expected a limit, got {text!r}", where="limit", allowed=", or ".join(_FORMS))
