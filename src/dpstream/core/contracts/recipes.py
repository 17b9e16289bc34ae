"""What all recipes read alike: the budget, the unit and the horizon of a plan, and the values of single options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Literal, TypeVar, cast, get_args, get_origin

import numpy as np

from dpstream.core.contracts.recipe_options import hints_of
from dpstream.core.contracts.stream_plan import StreamPlan
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, UnitError
from dpstream.core.privacy.budget import ZCDP, Amount, Budget, PureDP, amounts, exact_amount
from dpstream.core.privacy.convert import approximate_to_zcdp
from dpstream.core.privacy.unit import Unit, handled_as

AnyPlan = TypeVar("AnyPlan", bound=StreamPlan, covariant=True)
AnyUnit = TypeVar("AnyUnit", bound=Unit)


@dataclass(frozen=True)
class Terms:
    """What a recipe is calibrated with; the amounts and the horizon are checked.

    Attributes:
        budget: of all releases together.
        unit: who is protected; None: the mechanism's default.
        horizon: the largest number of steps; None: no end is planned.
        stated: the (epsilon, delta) that ``budget`` was made from; None where it was given as it is.
    """

    budget: Budget
    unit: Unit | None
    horizon: int | None
    stated: tuple[Fraction, Fraction] | None = None

    def pure(self, reason: str) -> PureDP:
        """The budget of a mechanism that has a pure guarantee only.

        Errors:
            BudgetError: it is a rho; ``reason`` says why that does not do.
        """
        if not isinstance(self.budget, PureDP):
            raise BudgetError(reason, where="budget", allowed="epsilon, without delta")
        return self.budget

    def concentrated(self, reason: str) -> ZCDP:
        """The budget of a mechanism that has no pure guarantee.

        Errors:
            BudgetError: it is a pure epsilon; ``reason`` says why that does not do.
        """
        if not isinstance(self.budget, ZCDP):
            raise BudgetError(reason, where="budget", allowed="rho, or epsilon and delta")
        return self.budget


class Recipe(ABC, Generic[AnyPlan]):
    """The options of a mechanism, without data and without a budget; a ``StreamRecipe``."""

    def calibrate(
        self,
        budget: Budget | None = None,
        unit: Unit | None = None,
        horizon: int | None = None,
        *,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
        delta: Amount | None = None,
    ) -> AnyPlan:
        """Fix every noise scale, so that all releases together cost one unit of protection the budget.

        Args:
            budget: ``PureDP`` or ``ZCDP``; ``epsilon`` or ``rho`` may stand for it.
            unit: who is protected; None takes the mechanism's default.
            horizon: the largest number of steps; without it the stream may go on for ever.
            delta: with ``epsilon``: the budget is the largest rho whose loss is within both.

        Errors:
            BudgetError, UnitError, HorizonError: a guarantee that the mechanism cannot give. ConfigError, LimitError:
            options that cannot be used.
        """
        epsilon, rho = amounts(budget, epsilon, rho)
        if (epsilon is None) == (rho is None):
            raise BudgetError("give either epsilon or rho", where="budget")
        if horizon is not None and (
            isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 1
        ):
            raise HorizonError(f"horizon = {horizon!r}", where="budget", allowed="none, or 1 or more")
        if delta is not None:
            if epsilon is None:
                raise BudgetError("delta needs epsilon", where="budget", allowed="epsilon and delta, or rho")
            stated = exact_amount(epsilon, where="epsilon"), exact_amount(delta, where="delta")
            return self._plan(Terms(approximate_to_zcdp(*stated), unit, horizon, stated))
        given = PureDP.of(epsilon) if epsilon is not None else ZCDP.of(cast(Amount, rho))
        return self._plan(Terms(given, unit, horizon))

    @abstractmethod
    def _plan(self, terms: Terms) -> AnyPlan:
        """The plan; see ``calibrate`` for errors."""


def check_unit(unit: Unit | None, default: AnyUnit, names: Sequence[str], reason: str) -> AnyUnit:
    """The unit of a plan, or ``default`` where none is given.

    Args:
        names: of the units that the mechanism can protect.
        reason: "who cannot protect the unit {unit!r}: why".

    Errors:
        UnitError: another unit.
    """
    if unit is None:
        return default
    if not isinstance(unit, Unit) or handled_as(unit) not in names:
        raise UnitError(
            reason.format(unit=getattr(unit, "name", unit)), where="unit", allowed=", ".join(names)
        )
    return cast(AnyUnit, unit)


def check_words(recipe: Any, where: str = "mechanism") -> None:
    """Every option whose type lists its words has one of them.

    Errors:
        ConfigError: another word.
    """
    for name, hint in hints_of(type(recipe)).items():
        if get_origin(hint) is Literal and getattr(recipe, name) not in get_args(hint):
            raise ConfigError(
                f"{name} = {getattr(recipe, name)!r}", where=where, allowed=", ".join(get_args(hint))
            )


def check_share(value: Amount, name: str, where: str = "mechanism") -> Fraction:
    """A share or a probability, read exactly: above 0 and below 1.

    Errors:
        BudgetError, ConfigError: another number.
    """
    share = exact_amount(value, where=name)
    if not share < 1:
        raise ConfigError(f"{name} = {share}", where=where, allowed="between 0 and 1")
    return share


def check_whole(value: object, name: str, least: int, most: int, where: str = "mechanism") -> int:
    """A whole number within limits.

    Errors:
        ConfigError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise ConfigError(
            f"{name} = {value!r}", where=where, allowed=f"a whole number from {least} to {most}"
        )
    return int(value)
