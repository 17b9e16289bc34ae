"""What a family says about itself (``dpstream.families.registry`` says which families there are)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast, get_args, get_origin

import numpy as np

from dpstream.core.contracts.recipe_options import (
    Key,
    RecipeContext,
    SectionReader,
    build,
    hints_of,
    keys_of_recipes,
)
from dpstream.core.contracts.stream_plan import StreamPlan, StreamRecipe
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, UnitError
from dpstream.core.privacy import Unit, approximate_to_zcdp, handled_as
from dpstream.core.privacy.budget import ZCDP, Amount, Budget, PureDP, amounts, exact_amount

if TYPE_CHECKING:
    from dpstream.core.contracts.expectations import ExpectedTable
    from dpstream.core.schema import Problem


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


@dataclass(frozen=True)
class Alternative:
    """Another way to run a configuration's stream, which publishes the same kind of release.

    Attributes:
        mechanism: its name in files; that of the configuration, where only options differ.
        options: what its ``[mechanism]`` says besides.
        keeps: which keys of the configuration's ``[mechanism]`` say what is wanted, and so hold for it too. Where only
            options differ, all keys are kept.
        unit: what it protects; None: the configuration's unit.
        events: one unit of the configuration's is up to so many of ``unit``: each of them gets less of the budget, so
            that the guarantee is the same.
        needs: what else its file would have to say, for readers; empty: nothing.
        named: whether its options are part of what it is called, because others differ in them alone.
    """

    mechanism: str
    options: Mapping[str, Any] = field(default_factory=dict)
    keeps: tuple[str, ...] = ("workload",)
    unit: Unit | None = None
    events: int = 1
    needs: str = ""
    named: bool = False

    @property
    def label(self) -> str:
        """What it is called beside others."""
        named = [f"{key} = {value}" for key, value in self.options.items()]
        return f"{self.mechanism} ({', '.join(named)})" if named and self.named else self.mechanism


@dataclass(frozen=True)
class Limits:
    """What a stream of a family can be. A text says why something is refused; an empty one refuses nothing.

    Attributes:
        units: names of the units that it can protect; the first one is the default. With ``individual`` among them it
            follows people, and then it protects nothing less.
        other_units: why no other one; ``{unit}`` is the one that the file asks for.
        unit_reason: why the default unit is what it is; empty: as the table of keys says.
        bounded: why a person's events cannot be bounded (``max_events``).
        deletes: why the source may not delete.
        rows: why steps may not be cut by numbers of rows, and what cuts them instead.
        late: rules for late records that it cannot follow, each with the reason.
        base: whether the stream may begin with another stream's table.
        records: kinds of released records, the first one is the default.
        no_records: kinds of records that this recipe cannot have, each with the reason.
        no_changes: why a database cannot be given changes only.
        no_tables: what the stream is, where releases are not tables; and where its errors are told.
    """

    units: tuple[str, ...] = ("event", "event-replace", "user")
    other_units: str = ""
    unit_reason: str = ""
    bounded: str = ""
    deletes: str = ""
    rows: tuple[str, str] | None = None
    late: Mapping[str, str] = field(default_factory=dict)
    base: bool = False
    records: tuple[str, ...] = ("fresh", "persistent")
    no_records: Mapping[str, str] = field(default_factory=dict)
    no_changes: str = ""
    no_tables: tuple[str, str] | None = None

    @property
    def people(self) -> bool:
        """Whether it follows people."""
        return any(unit.startswith("individual") for unit in self.units)


class Checks(Protocol):
    """Checks the steps of a source one after the other, before a run; may hold private ids."""

    def problems(self, ids: Any) -> list[Problem]:
        """What would stop the stream at this step; the sentences name nobody and no number.

        Args:
            ids: whose the rows are, as a pyarrow array of bytes.
        """
        ...


@dataclass(frozen=True)
class Family:
    """Mechanisms that share one contract.

    Attributes:
        name: a word for developers.
        noun: what a stream of it is, for sentences: "a panel".
        recipes: the recipe of each mechanism, by its name in files; its fields say which options there are.
        limits: which units, sources, bases and outputs it can take.
        narrow: the limits of one recipe, where its options make them narrower.
        checks: makes what ``dpstream check`` uses besides the columns, from a plan and the name of the column of ids.
        tools: of another package's family: where its ``evaluation``, its ``page`` of the report and its ``simulation``
            are, as ``module:NAME``; what is not named works with tables as for any stream.
        asked: whether its streams answer questions between their steps.
        draft: what ``dpstream init`` writes for it, section -> key -> value, where another value than the default
            is a better start; the owner is asked to look at each.
        bins: whether drafted columns have bins for nulls and for other values.
        bounds_only: whether all that it needs of a column's edges are the first and the last one, so that no others are
            drafted.
        alternatives: what could take the place of a recipe that protects a unit; the recipe itself may be among them.
        advice: what public guesses say against a recipe and its plan, in sentences.
    """

    name: str
    noun: str
    recipes: Mapping[str, type[Any]]
    limits: Limits = field(default_factory=Limits)
    narrow: Callable[[Any], Limits] | None = None
    checks: Callable[[StreamPlan, str], Checks] | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    asked: bool = False
    draft: Mapping[str, Mapping[str, str | int]] = field(default_factory=lambda: {"budget": {"epsilon": "1"}})
    bins: bool = True
    bounds_only: bool = False
    alternatives: Callable[[Any, Unit], Sequence[Alternative]] | None = None
    advice: Callable[[Any, StreamPlan, ExpectedTable], Sequence[str]] | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Their names in files."""
        return tuple(self.recipes)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The rows of its options in the table of keys."""
        return keys_of_recipes("mechanism", self.recipes)

    def limits_of(self, recipe: StreamRecipe) -> Limits:
        """What a stream of this recipe can be."""
        return self.limits if self.narrow is None else self.narrow(recipe)

    def read(self, mechanism: str, section: SectionReader, given: RecipeContext) -> StreamRecipe:
        """The recipe that ``[mechanism]`` describes.

        Errors:
            ConfigError, LimitError: an option that is unusable.
        """
        recipe: StreamRecipe = build(section, self.recipes[mechanism], given)
        return recipe
