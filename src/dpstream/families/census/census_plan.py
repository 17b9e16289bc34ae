"""The census: present records are measured, each stay at most once for each level.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from dpstream.core.contracts import (
    HEADLINE_SHARE,
    BatchReads,
    ExpectedErrors,
    ExpectedTable,
    Explanation,
    Headline,
    NoisyCounts,
    Option,
    Packed,
    Part,
    PresentRecords,
    PrivateBatch,
    PublicPrior,
    Recipe,
    RecipeContext,
    SectionReader,
    StreamPlan,
    Terms,
    check_share,
    check_unit,
    check_whole,
    check_words,
    marginal_query,
    option,
    shown,
)
from dpstream.core.contracts.recipe_options import NUMBER
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy.budget import Amount, Budget, exact_amount
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Record
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import Workload
from dpstream.core.tables.present_table import CountedAhead
from dpstream.families.census.bookkeeping import Bookkeeping, CensusSynthesis
from dpstream.families.census.census_report import (
    CensusReport,
    counted_total,
    expected_errors,
    explain_census,
)
from dpstream.families.census.census_state import CensusState, pack, unpack
from dpstream.families.census.census_terms import (
    Amounts,
    CensusSchedule,
    CensusTerms,
    expected_wait,
    gap_of,
    last_of,
)
from dpstream.families.census.cohorts import Attrition, PriorEvidence, Shapes, levels_of_cohorts
from dpstream.families.census.totals_filter import (
    NewcomersRate,
)
from dpstream.mechanisms import options
from dpstream.mechanisms.aim import AIM, AIMPlan
from dpstream.mechanisms.engine import Run, published
from dpstream.mechanisms.headlines import check_headline, headline_cliques, headline_options
from dpstream.mechanisms.limits import check_each
from dpstream.mechanisms.measured_cells import MeasuredCells
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.mechanisms.plans import PRIOR_BOUND, check_fit, check_prior
from dpstream.mechanisms.prior_choice import PriorChoice

# The options of a census, in the order in which they are shown.

Levels = Literal[1, 2, "unlimited"] | None
Turnover = Amount | None

_TURNOVERS = 'a number of steps such as 3, 10 or 30, or "none"'
_LEVELS = '1, 2 or "unlimited"'
_MAX_RATIO = 100
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
    value = section.raw("levels")
    try:
        levels = check_levels(value)
    except ConfigError:
        raise section.wrong("levels", f"{shown(value)} is no number of levels", _LEVELS) from None
    section.note("levels", str(levels), default=False)
    return levels


def _turnover(section: SectionReader, given: RecipeContext, found: Mapping[str, Any]) -> Turnover:
    if section.has("turnover"):
        value = section.raw("turnover")
        try:
            steps = check_turnover(value)
        except ConfigError:
            raise section.wrong("turnover", f"{shown(value)} is no turnover", _TURNOVERS) from None
        section.note("turnover", "none" if steps is None else f"{steps} steps", default=False)
        return steps
    if given.turnover is not None:
        reason = "size / records_per_step of [expect]"
        section.note("turnover", f"{given.turnover} steps", default=True, reason=reason)
        return given.turnover
    section.required("turnover")
    return None


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
class Census(Recipe["CensusPlan"]):
    """The table as it is: censuses of the present records by level, counts of departures between them.

    Guarantee: the budget, for one record's whole stay: its insert, all its updates, its delete. A stay is in at most
    one census of each level and in at most one count of departures, whose amounts add up to the budget or less; they
    are fixed before step 1. Updates cost nothing. Proof: docs/theory/census.md.

    Args:
        workload: the marginals to preserve.
        turnover: a public guess: steps in which as many records come as the table holds; "none" (or None): hardly
            any leave.
        levels: how often a stay is counted: 1, 2, "unlimited"; None chooses.
        iterations, max_cells: of the fits.
        headline: marginals, by names of columns, that every census measures, whatever it does else.
        headline_share: part of each census's amount for them, in equal parts where noise is drawn apart.
        prior: public knowledge of the table; it joins the estimates of the marginals that it is near to.
        records_per_step: a public guess, how many records come in a step, and leave: departures are counted between
            censuses, too, as soon as it says that many more left than a count's noise. None: at censuses only.
        departures_every: steps from one count of departures to the next, in place of what ``records_per_step`` says.
        departures_share: part of the budget for counting who left; unused where presence is public.
        ratio: each level is so many times rarer than the one below.

    Cost: between censuses a step only counts who left; a census is one run of ``AIM`` on the records of its window.
    State: a few models, and vectors over all cells, for each level: it does not grow with the number of steps.
    """

    workload: Workload = option(of=options.WORKLOAD)
    turnover: Turnover = option(of=TURNOVER)
    levels: Levels = option(None, LEVELS)
    max_cells: int = option(10_000, options.TREE_CELLS)
    headline: Headline = ()
    headline_share: Fraction = HEADLINE_SHARE
    prior: PublicPrior | None = None
    records_per_step: int | None = None
    departures_every: int | None = None
    departures_share: Fraction = Fraction(1, 10)
    ratio: int = 4
    iterations: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "turnover", check_turnover(self.turnover))
        check_levels(self.levels)
        check_whole(self.ratio, "ratio", 2, _MAX_RATIO)
        object.__setattr__(self, "departures_share", check_share(self.departures_share, "departures_share"))
        for name in ("departures_every", "records_per_step"):
            if getattr(self, name) is not None:
                check_whole(getattr(self, name), name, 1, _MAX_STEPS)
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

    def _plan(self, terms: Terms) -> CensusPlan:
        """Fix the budget of a stay."""
        unit = check_unit(
            terms.unit,
            Record(),
            ("record", "record-replace"),
            "a census cannot protect the unit {unit!r}: it follows records through their whole stays",
        )
        return CensusPlan(self, terms.budget, unit, terms.horizon)


@dataclass(frozen=True)
class CensusPlan(StreamPlan):
    """See ``Census``."""

    recipe: Census
    budget: Budget
    unit: Record
    horizon: int | None
    last_step: int | None = None

    reads: ClassVar[BatchReads] = "present"
    name = "census"
    follows_constraints = True

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.recipe.workload.domain

    def ending(self, last_step: int | None) -> CensusPlan:
        """The same plan, with a census at that step.

        Guarantee: unchanged. A census reads the windows of its levels, which begin after the last census of each:
        wherever the owner moves the last step, a stay is in one census of each level at most, and in one count of
        departures.
        """
        return replace(self, last_step=last_step)

    @cached_property
    def terms(self) -> CensusTerms:
        """Schedule, amounts, and what one census does."""
        own = self.recipe
        turnover = check_turnover(own.turnover)
        gap = gap_of(turnover)
        stays = turnover is None or (self.horizon is not None and turnover >= self.horizon)
        chosen = (1 if stays else 2) if own.levels is None else own.levels
        every = CensusSchedule(gap, own.ratio, None if chosen == "unlimited" else chosen)
        levels = every.reachable(self.horizon)
        departures = Fraction(0) if self.unit.relation == "replace" else own.departures_share
        every_count = own.departures_every if departures else None
        if departures and every_count is None and own.records_per_step is not None:
            every_count = expected_wait(self.budget, departures, own.records_per_step, turnover)
        if every_count is not None and gap is not None and every_count >= gap:
            every_count = None  # a census always comes first
        return CensusTerms(
            workload=own.workload,
            budget=self.budget,
            unit=self.unit,
            horizon=self.horizon,
            turnover=turnover,
            schedule=CensusSchedule(gap, own.ratio, levels, every_count, self.last_step),
            amounts=Amounts(self.budget, departures, levels, chosen == "unlimited"),
            census=AIM(final_iterations=2 * own.iterations, max_cells=own.max_cells),
            headline=headline_cliques(own.workload.domain, own.headline),
            headline_share=own.headline_share,
        )

    @property
    def schedule(self) -> CensusSchedule:
        """Which steps are censuses, and of which level."""
        return self.terms.schedule

    @property
    def amounts(self) -> Amounts:
        """What a stay pays for."""
        return self.terms.amounts

    def run_of(self, level: int) -> AIMPlan:
        """What one census of a level does; audits put one there that follows a script."""
        return self.terms.run_of(level)

    @cached_property
    def followed(self) -> MeasuredCells:
        """The marginals that cohorts are described by."""
        return MeasuredCells(self.recipe.workload, self.terms.headline)

    @cached_property
    def shapes(self) -> Shapes:
        """Makes cohorts."""
        own, prior = self.recipe, None
        if own.prior is not None:
            prior = PriorChoice(self.followed, own.prior, own.iterations, own.max_cells)
        return Shapes(self.followed, own.iterations, own.max_cells, prior)

    @cached_property
    def books(self) -> Bookkeeping:
        """What is made of the counts."""
        return Bookkeeping(self.terms, self.schedule, self.shapes)

    def parts(self) -> tuple[Part, ...]:
        """What a stay pays: one census of each level, one count of departures."""
        return CensusReport(self.terms).parts()

    def composition(self) -> str | None:
        """Over steps."""
        return CensusReport(self.terms).composition()

    def declared_public(self) -> tuple[str, ...]:
        """The guess of the turnover; and presence, where the owner has declared it."""
        return CensusReport(self.terms).declared_public()

    def explain(self) -> Explanation:
        """When censuses are, what a stay costs, which errors are known."""
        own = explain_census(self.terms, super().explain())
        prior = self.recipe.prior
        return own if prior is None else replace(own, further=(*own.further, prior.describe()))

    def expected_errors(
        self, steps: Any, expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...]:
        """Of the number of records as counted, at censuses: at most so large; see ``Explanation.predicted``. With a
        table: with what came and left since the last census; and of the columns as counted then."""
        return expected_errors(self.terms, steps, expected)

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        own, every = self.recipe, self.schedule.departures
        return {
            "workload": own.workload.as_option(),
            "turnover": "none" if self.terms.turnover is None else str(self.terms.turnover),
            "levels": "unlimited" if own.levels == "unlimited" else self.schedule.levels,
            "ratio": own.ratio,
            "departures_share": str(own.departures_share),
            "iterations": own.iterations,
            "max_cells": own.max_cells,
            "departures_every": every,
            **headline_options(own.headline, own.headline_share),
            **({} if own.prior is None else {"prior": dict(own.prior.facts)}),
        }

    def asked_cliques(self) -> tuple[Clique, ...]:
        """See ``StreamPlan``: what a census of the present records counts."""
        return self._asked(0)

    def _asked(self, level: int) -> tuple[Clique, ...]:
        return tuple(dict.fromkeys((*self.run_of(level).counted, *self.terms.headline)))

    def start(self) -> CensusState:
        """No census yet."""
        attrition, cells = Attrition.fresh(self.domain), self.followed.cells
        seen = None if self.recipe.prior is None else PriorEvidence.fresh(cells.total, len(cells.cliques))
        return CensusState(0, [], [], [], [], NewcomersRate(), attrition, seen=seen)

    def step(self, state: CensusState, batch: PrivateBatch, randomness: Randomness) -> CensusSynthesis:
        """Count who left; at a census, measure who is there."""
        present = batch.present
        if present is None:
            raise ConfigError(
                "a census reads the present records of a keyed table, and this batch grants none",
                where="mechanism",
                allowed="a source with a key column",
            )
        state.step += 1
        self.note_departures(state, present)
        level = self.schedule.level(state.step, state.last)
        if level is not None:
            # Before any noise is drawn: an engine may fail to count, and what fails after a draw waits for its owner.
            present = CountedAhead(present, self._asked(level), last_of(state.last, level))
        measured: list[NoisyCounts] = []
        if level is not None or self.schedule.counts(state.step, state.last):
            measured += self.count_departures(state, randomness)
        if level is not None:
            first = last_of(state.last, level) + 1
            run = self.take_census(state, level, present, randomness)
            name = f"step {state.step}, census of level {level}"
            measured += published(run.outputs, name, "present", first, state.step, state.step)
            self.books.enter(state, level, run, counted_total(self.run_of(level), run))
        release = self.books.release(state, present, census=level is not None)
        return replace(release, noisy_counts=tuple(measured))

    def note_departures(self, state: CensusState, present: PresentRecords) -> None:
        """Add each record that left to its cohort's level; those whom no census has counted are nowhere."""
        found = levels_of_cohorts(state.cohorts, present.departed)
        for level, number in enumerate(np.bincount(found, minlength=len(state.left)).tolist()):
            state.left[level] += number

    def count_departures(self, state: CensusState, randomness: Randomness) -> list[NoisyCounts]:
        """One noisy count for each level with an open cohort, of those whom no count has read before; gives those that
        have noise."""
        counts = list[NoisyCounts]()
        noise, before = self.amounts.departure_noise, self.schedule.last_count(state.step - 1, state.last)
        for level in sorted({cohort.level for cohort in state.cohorts}):
            found = self.noisy(state.left[level], noise, randomness)
            state.left[level] = 0
            if noise is not None:
                own_cohorts = [cohort for cohort in state.cohorts if cohort.level == level]
                first, last = own_cohorts[0].low + 1, own_cohorts[-1].high
                name, values = f"step {state.step}, left of level {level}", np.array([found], np.int64)
                counts.append(
                    NoisyCounts(name, "left", first, last, marginal_query(()), values, noise, state.step)
                )
            variance = 0.0 if noise is None else noise.variance
            own = state.totals[level]
            kept = own.count(state.step - before, float(found), variance)
            exposure = own.exposure(state.step - before)
            state.cohorts = [c.after(kept, exposure) if c.level == level else c for c in state.cohorts]
            number, spread = state.counted[level]
            state.counted[level] = (number - found, spread + variance)
        return counts

    def noisy(self, exact: int, noise: Noise | None, randomness: Randomness) -> int:
        """One count of departures; audits put one there that follows a script."""
        return exact if noise is None else int(randomness.measure(np.array([exact]), noise)[0])

    def window(self, state: CensusState, level: int) -> int:
        """A census of this level counts the records whose first step is later."""
        return last_of(state.last, level)

    def take_census(
        self, state: CensusState, level: int, present: PresentRecords, randomness: Randomness
    ) -> OfflineRun:
        """Measure the present records that came after the last census of this level, or of a higher one."""
        plan, after = self.run_of(level), self.window(state, level)
        counts = present.count(plan.counted, after)
        known = next((model for model in reversed(state.latest[: level + 1]) if model is not None), None)
        prior = None if known is None else known.bounded(PRIOR_BOUND)
        run = plan.run_on(counts, randomness, prior=prior)
        headline, draws = self.terms.headline, self.terms.headline_draws(level)
        if not draws:
            return run
        private = dict(zip(headline, present.count(headline, after), strict=True))
        heads = Run(self.domain, private, self.unit.counted, randomness)
        for group, budget in draws:
            heads.measure([headline[i] for i in group], budget, "headline")
        measured, outputs = (*run.measurements, *heads.measured), (*run.outputs, *heads.outputs)
        return replace(run, measurements=measured, outputs=outputs)

    def pack_state(self, state: CensusState) -> Packed:
        """The whole state; it holds private numbers of departures."""
        return pack(state)

    def unpack_state(self, packed: Packed) -> CensusState:
        """The inverse of ``pack_state``."""
        return unpack(packed, self.followed.cells)

    def unpack_synthesis(self, packed: Packed) -> CensusSynthesis:
        """The inverse of ``CensusSynthesis.pack``."""
        return CensusSynthesis.unpack(packed)
