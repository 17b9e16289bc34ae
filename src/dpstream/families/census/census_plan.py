"""The census: present records are measured, each stay at most once for each level.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    HEADLINE_SHARE,
    BatchReads,
    ExpectedErrors,
    ExpectedTable,
    Headline,
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    PublicPrior,
    Recipe,
    StreamPlan,
    Terms,
    check_unit,
    check_whole,
    check_words,
    marginal_query,
    option,
)
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness, Record
from dpstream.core.schema import Clique, Domain, Found
from dpstream.core.tables import Workload
from dpstream.families.census.bookkeeping import CensusSynthesis, enter, release
from dpstream.families.census.census_growth import grow
from dpstream.families.census.census_options import TURNOVER, Turnover, check_turnover
from dpstream.families.census.census_report import census_parts, counted_total, expected_errors, plan_facts
from dpstream.families.census.census_state import CensusState, CensusTerms, pack, unpack
from dpstream.families.census.cohorts import Attrition, PriorEvidence, Shapes, levels_of_cohorts
from dpstream.families.census.schedule import Amounts, CensusSchedule, gap_of, last_of
from dpstream.families.census.shares import choose_shares
from dpstream.families.census.signal import Signal
from dpstream.mechanisms import AIM, options
from dpstream.mechanisms.discovery import entering
from dpstream.mechanisms.discovery_plan import Discoveries, Discovery
from dpstream.mechanisms.engine import Run
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.grown_tables import fitting, grown_plan, with_new
from dpstream.mechanisms.headlines import check_headline, headline_cliques, headline_folds, headline_options
from dpstream.mechanisms.limits import PRIOR_BOUND, check_each, check_fit, check_prior
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.mechanisms.prior_choice import PriorChoice
from dpstream.mechanisms.run_outputs import published

#: Private counts of the records of a census's window.
Counts = dict[Clique, NDArray[np.int64]]


#: A discovery epoch is at most so many turnovers: in longer ones hardly any more newcomers are present at the end.
_LONGEST = 2

OTHER_UNIT = "a census cannot protect the unit {unit!r}"
_MAX_STEPS = 10**9


@dataclass(frozen=True)
class Census(Recipe["CensusPlan"]):
    """The table as it is: censuses of the present records by level, counts of departures between them.

    Guarantee: the budget, for one record's whole stay with its updates and its delete. A stay is in at most one
    census of each level and one count of departures, whose amounts add up to the budget (docs/theory/census.md).

    Args:
        workload: the marginals to preserve. iterations, max_cells: of the fits.
        turnover: a public guess: steps in which as many records come as the table holds; "none": hardly any leave.
        prior: public knowledge of the table.
        headline: marginals, by names of columns, that every census measures, with ``headline_share`` of its amount.
        records_per_step: a public guess, how many come and leave in a step: departures are counted between censuses,
            too, where it is far above a count's noise. None: at censuses only.
        discovery: the columns whose values are discovered; all else shares what it leaves of the budget.

    Cost: a census is a run of ``AIM``; other steps count who left. The state does not grow with the steps.
    """

    workload: Workload = option(of=options.WORKLOAD)
    turnover: Turnover = option(of=TURNOVER)
    max_cells: int = option(10_000, options.TREE_CELLS)
    headline: Headline = ()
    headline_share: Fraction = HEADLINE_SHARE
    prior: PublicPrior | None = None
    records_per_step: int | None = None
    discovery: Discovery | None = None
    iterations: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "turnover", check_turnover(self.turnover))
        if self.records_per_step is not None:
            check_whole(self.records_per_step, "records_per_step", 1, _MAX_STEPS)
        check_words(self)
        check_fit(self.iterations, self.max_cells, 0.0)
        check_each(self.workload, self.max_cells)
        checked = check_headline(self.workload.domain, self.headline, self.headline_share, self.max_cells)
        folds = headline_folds(self.workload.domain, checked[0])
        if any(fold.cells is not None for group in folds for fold in group):
            what = "a census measures headlines of measured columns only"
            raise ConfigError(
                what, where="[accuracy] headline", allowed=", ".join(self.workload.domain.names)
            )
        object.__setattr__(self, "headline", checked[0])
        object.__setattr__(self, "headline_share", checked[1])
        check_prior(self.prior, self.workload.domain)
        if self.discovery is not None:
            self.discovery.check(self.workload.domain, self.prior)

    def _plan(self, terms: Terms) -> CensusPlan:
        """Fix the budget of a stay."""
        unit = check_unit(
            terms.unit,
            Record(),
            ("record", "record-replace"),
            OTHER_UNIT,
        )
        horizon, discovery = terms.horizon, None
        turnover = check_turnover(self.turnover)
        budget = terms.budget
        if self.discovery is not None:
            share = self.discovery.share
            own = self.discovery if turnover is None else self.discovery.up_to(math.ceil(_LONGEST * turnover))
            discovery = Discoveries(own, budget.scaled(share), unit.counted)
            budget = budget.scaled(1 - share)
        schedule = CensusSchedule(gap_of(turnover), 2)
        schedule = replace(schedule, levels=schedule.reachable(horizon))
        chosen = choose_shares(self.workload.domain, budget, unit, schedule, turnover, self.records_per_step)
        schedule = replace(schedule, departures=chosen.wait)
        headline = headline_cliques(self.workload.domain, self.headline)
        followed, prior = MeasuredCells(self.workload, headline), None
        if self.prior is not None:
            prior = PriorChoice(followed, self.prior, self.iterations, self.max_cells)
        return CensusPlan(
            workload=self.workload,
            budget=terms.budget,
            unit=unit,
            horizon=horizon,
            turnover=turnover,
            schedule=schedule,
            amounts=Amounts(budget, chosen.departures, chosen.upper),
            census=AIM(final_iterations=2 * self.iterations, max_cells=self.max_cells),
            shapes=Shapes(followed, self.iterations, self.max_cells, prior),
            upper=chosen.measured,
            headline=headline,
            headline_share=self.headline_share,
            recipe=self,
            discovery=discovery,
        )


@dataclass(frozen=True)
class CensusPlan(CensusTerms, StreamPlan):
    """See ``Census``."""

    recipe: Census
    discovery: Discoveries | None = None
    many_found: Mapping[str, int] = field(default_factory=dict, compare=False)
    reads: ClassVar[BatchReads] = "present"
    name = "census"
    follows_constraints = True

    def ending(self, last_step: int | None) -> CensusPlan:
        """The same plan, with a census at that step.

        Guarantee: unchanged. A census reads the windows of its levels, which begin after the last census of each:
        wherever the owner moves the last step, a stay is in one census of each level at most, and in one count of
        departures.
        """
        return replace(self, schedule=replace(self.schedule, last_step=last_step))

    def parts(self) -> tuple[Part, ...]:
        """What a stay pays: one census of each level, one count of departures, one of what it discovers."""
        own = self.discovery
        return (*census_parts(self), *(() if own is None else (own.part(1, own.budget),)))

    def asked_cliques(self) -> tuple[Clique, ...]:
        """See ``StreamPlan``: what a census of the present records counts."""
        return self.asked(0)

    def start(self) -> CensusState:
        """No census yet."""
        prior, cells = self.recipe.prior, self.shapes.followed.cells
        return CensusState(
            Attrition.fresh(self.domain),
            Signal.fresh(len(self.domain)),
            None if prior is None else PriorEvidence.fresh(cells),
        )

    def step(self, state: CensusState, batch: PrivateBatch, randomness: Randomness) -> CensusSynthesis:
        """Count who left; at a census, measure who is there."""
        present = batch.present
        if present is None:
            raise ConfigError(
                "a census needs the present records of a keyed table",
                where="mechanism",
                allowed="a source with keys",
            )
        state.step += 1
        level, before = self.paced(state.gap).level(state.step, state.last), last_of(state.last, 0)
        # Before any noise is drawn: an engine may fail to count, and what fails after a draw waits for its owner.
        came, windows = 0, list[tuple[int, int, Counts]]()
        # A census of level 1 begins with one of level 0: so each stay is measured once at each level.
        for own in range(0 if level is None else level + 1):
            after, cliques = last_of(state.last, own), self.asked(own)
            windows.append((own, after, dict(zip(cliques, present.count(cliques, after), strict=True))))
        if level is None and self.public_presence:
            came = int(present.count(((),), before)[0].sum())
        # Each record that left goes to its cohort's level; those whom no census has counted are nowhere.
        gone = levels_of_cohorts(state.cohorts, present.departed)
        for number, left in enumerate(np.bincount(gone, minlength=len(state.left)).tolist()):
            state.left[number] += left
        measured: list[NoisyCounts] = []
        if level is not None or self.schedule.counts(state.step, state.last):
            measured += self._count_departures(state, randomness)
        for own, after, counts in windows:
            run = self._take_census(state, own, counts, randomness)
            name = f"step {state.step}, census of level {own}"
            measured += published(run.outputs, name, "present", after + 1, state.step, state.step)
            assert run.total_variance is not None, "a number of records has a variance"
            counted = (run.total, run.total_variance) if own else counted_total(self.run, run)
            enter(self, state, own, run, counted)
        if level is not None:
            # The plan lists the ends of discovery epochs, which are censuses.
            state.gap = state.gap if self.discovery is None else None
            kept = [0] * level + state.left[level:]
            state.left = kept + [0] * (len(state.levels) - len(kept))
        left = state.left if self.public_presence else ()
        made = release(self, state, came, left, census=level is not None)
        if level is not None and self.discovery is not None:
            self._discover(state, self.discovery, batch, randomness)
        return replace(made, noisy_counts=tuple(measured))

    def _discover(
        self, state: CensusState, own: Discoveries, batch: PrivateBatch, randomness: Randomness
    ) -> None:
        """At the end of a discovery epoch count the values of the present records that came in it; what is published of
        them begins with the next step."""
        if not own.due(state.step, state.discovered) or state.step == self.horizon:
            return
        rules = own.rules(self.domain, state.found, self.headline, self.recipe.max_cells)
        passed = entering(rules, batch.undiscovered, (state.discovered, state.step), randomness)
        new = fitting(self.domain, passed, self.headline, self.recipe.max_cells)
        before, state.discovered = state.discovered, state.step
        if new:
            state.found = with_new(state.found, new)
            grow(state, own, self, self.grown(state.found), new, before)

    def _count_departures(self, state: CensusState, randomness: Randomness) -> list[NoisyCounts]:
        """One noisy count for each level with an open cohort, of those whom no count has read before; gives those that
        have noise."""
        counts = list[NoisyCounts]()
        noise, before = self.amounts.departure_noise, self.schedule.last_count(state.step - 1, state.last)
        for level in sorted({cohort.level for cohort in state.cohorts}):
            found, state.left[level] = state.left[level], 0
            cohorts = [cohort for cohort in state.cohorts if cohort.level == level]
            if noise is not None:
                name = f"step {state.step}, left of level {level}"
                values = randomness.measure(np.array([found]), noise)
                found = int(values[0])
                first, last = cohorts[0].low + 1, cohorts[-1].high
                counts.append(
                    NoisyCounts(name, "left", first, last, marginal_query(()), values, noise, state.step)
                )
            total, steps = state.levels[level].total, state.step - before
            kept = total.count(steps, float(found), 0.0 if noise is None else noise.variance)
            exposure = total.exposure(steps)
            state.cohorts = [c.after(kept, exposure) if c.level == level else c for c in state.cohorts]
        return counts

    def _take_census(
        self, state: CensusState, level: int, counts: Counts, randomness: Randomness
    ) -> OfflineRun:
        """Measure the present records that came after the last census of this level."""
        run = None
        if level == 0:
            newest = state.levels[0].latest if state.levels else None
            prior = None if newest is None else newest.bounded(PRIOR_BOUND)
            run = self.run.run_on([counts[clique] for clique in self.run.counted], randomness, prior=prior)
        heads = Run(self.domain, counts, self.unit.counted, randomness)
        for group, budget in self.draws_of(level):
            heads.measure(group, budget, "" if level else "headline")
        measured, outputs = tuple(heads.measured), tuple(heads.outputs)
        if run is None:
            (total, variance), model = heads.total, state.levels[0].latest
            assert model is not None, "a census of level 0 comes first"
            return OfflineRun(
                model.with_total(total),
                variance,
                measured,
                outputs,
                spent=heads.spent,
                sums=tuple(heads.sums),
            )
        return replace(run, measurements=(*run.measurements, *measured), outputs=(*run.outputs, *outputs))

    def pack_state(self, state: CensusState) -> Packed:
        """The whole state; it holds private numbers of departures."""
        return pack(state)

    def unpack_state(self, packed: Packed) -> CensusState:
        """The inverse of ``pack_state``."""
        return unpack(packed, self.grown(packed.meta.get("found", {})).shapes.followed.cells)

    @property
    def open_columns(self) -> tuple[str, ...]:
        """See ``StreamPlan``."""
        return () if self.discovery is None else self.discovery.columns

    def discovers(self, state: CensusState) -> bool:
        """See ``StreamPlan``."""
        return state.discovered > 0 and state.discovered == state.step

    def found(self, state: CensusState) -> dict[str, list[Found]]:
        """See ``StreamPlan``."""
        return state.found

    def grown(self, found: Mapping[str, Sequence[Found]]) -> CensusPlan:
        """See ``StreamPlan``."""
        return grown_plan(self, found, "schedule", "amounts", "upper")

    # What the plan says in public.

    @property
    def delta(self) -> Fraction:
        """Of discovery, if there is any."""
        return Fraction(0) if self.discovery is None else self.discovery.delta

    def delta_of(self, units: int) -> Fraction:
        """Of discovery, if there is any."""
        return Fraction(0) if self.discovery is None else self.discovery.delta_of(units)

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.workload.domain

    def facts(self) -> dict[str, Any]:
        """When censuses are, what a stay costs, which errors are known."""
        prior = self.recipe.prior
        facts = plan_facts(self, None if prior is None else prior.describe())
        if self.discovery is not None:
            borders = (step for step, _, _ in self.schedule.taken((self.horizon or _MAX_STEPS) - 1))
            facts["discovery"] = self.discovery.facts(borders)
        return facts

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
            "levels": self.schedule.levels,
            "iterations": recipe.iterations,
            "max_cells": recipe.max_cells,
            "departures_every": self.schedule.departures,
            **headline_options(recipe.headline, recipe.headline_share),
            **({} if recipe.prior is None else {"prior": dict(recipe.prior.facts)}),
            **({} if recipe.discovery is None else {"discovery": recipe.discovery.as_option()}),
        }

    def unpack_synthesis(self, packed: Packed) -> CensusSynthesis:
        """The inverse of ``CensusSynthesis.pack``."""
        return CensusSynthesis.unpack(packed)
