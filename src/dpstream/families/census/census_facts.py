"""What a census says before any record is read: its options, and its errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeVar

from dpstream.core.contracts import (
    HEADLINE_SHARE,
    BatchReads,
    ExpectedErrors,
    ExpectedTable,
    Headline,
    Option,
    Packed,
    PublicPrior,
    RecipeContext,
    SectionReader,
    StreamPlan,
    check_whole,
    check_words,
    option,
    shown,
)
from dpstream.core.contracts.recipe_options import NUMBER
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import Amount, exact_amount
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.census.bookkeeping import CensusSynthesis
from dpstream.families.census.census_report import (
    expected_errors,
    plan_facts,
)
from dpstream.families.census.census_terms import CensusTerms
from dpstream.mechanisms import options
from dpstream.mechanisms.headlines import check_headline, headline_options
from dpstream.mechanisms.limits import check_each, check_fit, check_prior

T = TypeVar("T")
Levels = Literal[1, 2, "unlimited"] | None
Turnover = Amount | None
_TURNOVERS = 'a number of steps such as 3, 10 or 30, or "none"'
_LEVELS = '1, 2 or "unlimited"'
_MAX_STEPS = 10**9


def check_turnover(value: Turnover) -> Fraction | None:
    """Steps in which as many records come as the table holds; None: hardly any leave.

    Errors:
        ConfigError: neither a positive number nor "none".
    """
    if value is None or value == "none":
        return None
    try:
        return exact_amount(value, where="turnover")
    except BudgetError:
        raise ConfigError(f"turnover = {shown(value)}", where="mechanism", allowed=_TURNOVERS) from None


def check_levels(value: Any) -> Levels:
    """How many levels; None: the plan chooses.

    Errors:
        ConfigError: anything else.
    """
    if value is None or (not isinstance(value, bool) and value in (1, 2, "unlimited")):
        found: Levels = value
        return found
    raise ConfigError(f"levels = {shown(value)}", where="mechanism", allowed=_LEVELS)


def _levels(section: SectionReader, given: RecipeContext, found: Mapping[str, Any]) -> Levels:
    if not section.has("levels"):
        reason = "two, or one where records stay as long as the stream"
        section.note("levels", "chosen from the turnover and the horizon", default=True, reason=reason)
        return None
    levels = _checked(section, "levels", check_levels, "number of levels", _LEVELS)
    section.note("levels", str(levels), default=False)
    return levels


def _turnover(section: SectionReader, given: RecipeContext, found: Mapping[str, Any]) -> Turnover:
    if section.has("turnover"):
        steps = _checked(section, "turnover", check_turnover, "turnover", _TURNOVERS)
        section.note("turnover", "none" if steps is None else f"{steps} steps", default=False)
        return steps
    if given.turnover is None:
        section.required("turnover")
        return None
    reason = "size / records_per_step of [expect]"
    section.note("turnover", f"{given.turnover} steps", default=True, reason=reason)
    return given.turnover


def _checked(section: SectionReader, key: str, check: Callable[[Any], T], what: str, allowed: str) -> T:
    """The value of a key, as ``check`` reads it."""
    try:
        return check(section.raw(key))
    except ConfigError:
        raise section.wrong(key, f"{shown(section.raw(key))} is no {what}", allowed) from None


TURNOVER = Option(
    _TURNOVERS,
    "A public guess: in so many steps about as many records come as the table holds. It sets how often a census is "
    "taken, and is published. `none`: records hardly ever leave.",
    "three times too large or too small makes cells 4 to 15 % worse; it must not be computed from the private table",
    "size / records_per_step of [expect]",
    read=_turnover,
    fragment={"anyOf": [NUMBER, {"enum": ["none"]}]},
)
LEVELS = Option(
    _LEVELS,
    "How often a stay is counted again: never, once, or again and again at ever longer intervals, each time with less "
    "of the budget.",
    "a second census corrects what a first one said of records that stay; `unlimited` is for records that change "
    "while they stay much longer than the turnover",
    "2; 1 where records stay as long as the stream",
    read=_levels,
    fragment={"enum": [1, 2, "unlimited"]},
)


@dataclass(frozen=True)
class CensusOptions:
    """What may be chosen; see ``Census``."""

    workload: Workload = option(of=options.WORKLOAD)
    turnover: Turnover = option(of=TURNOVER)
    levels: Levels = option(None, LEVELS)
    max_cells: int = option(10_000, options.TREE_CELLS)
    headline: Headline = ()
    headline_share: Fraction = HEADLINE_SHARE
    prior: PublicPrior | None = None
    records_per_step: int | None = None
    iterations: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "turnover", check_turnover(self.turnover))
        check_levels(self.levels)
        if self.records_per_step is not None:
            check_whole(self.records_per_step, "records_per_step", 1, _MAX_STEPS)
        check_words(self)
        check_fit(self.iterations, self.max_cells, 0.0)
        check_each(self.workload, self.max_cells)
        checked = check_headline(self.workload.domain, self.headline, self.headline_share, self.max_cells)
        object.__setattr__(self, "headline", checked[0])
        object.__setattr__(self, "headline_share", checked[1])
        check_prior(self.prior, self.workload.domain)
        if self.turnover is None and self.levels not in (None, 1):
            raise ConfigError(
                f'levels = {self.levels} with turnover = "none"',
                where="mechanism",
                allowed="levels = 1, or a turnover: only records that leave are replaced by others to count",
            )


@dataclass(frozen=True)
class CensusFacts(CensusTerms, StreamPlan):
    """What a calibrated ``Census`` says; see ``CensusPlan``."""

    recipe: CensusOptions
    reads: ClassVar[BatchReads] = "present"
    name = "census"
    follows_constraints = True

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.workload.domain

    def facts(self) -> dict[str, Any]:
        """When censuses are, what a stay costs, which errors are known."""
        prior = self.recipe.prior
        return plan_facts(self, None if prior is None else prior.describe())

    def expected_errors(
        self, steps: Any, expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...]:
        """Of the number of records as counted, at censuses: at most so large; see its words.

        With a table: with what came and left since the last census; and of the columns as counted then."""
        return expected_errors(self, steps, expected)

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        recipe = self.recipe
        return {
            "workload": self.workload.as_option(),
            "turnover": "none" if self.turnover is None else str(self.turnover),
            "levels": "unlimited" if self.amounts.series else self.schedule.levels,
            "iterations": recipe.iterations,
            "max_cells": recipe.max_cells,
            "departures_every": self.schedule.departures,
            **headline_options(recipe.headline, recipe.headline_share),
            **({} if recipe.prior is None else {"prior": dict(recipe.prior.facts)}),
        }

    def unpack_synthesis(self, packed: Packed) -> CensusSynthesis:
        """The inverse of ``CensusSynthesis.pack``."""
        return CensusSynthesis.unpack(packed)
