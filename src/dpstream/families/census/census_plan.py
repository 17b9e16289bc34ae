"""The census: present records are measured, each stay at most once for each level.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    NoisyCounts,
    Packed,
    Part,
    PresentRecords,
    PrivateBatch,
    Recipe,
    Terms,
    check_unit,
    marginal_query,
)
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Record
from dpstream.core.schema.domain import Clique
from dpstream.families.census.bookkeeping import CensusSynthesis, enter, release
from dpstream.families.census.census_facts import CensusFacts, CensusOptions, check_turnover
from dpstream.families.census.census_report import (
    census_parts,
    counted_total,
)
from dpstream.families.census.census_state import CensusState, pack, unpack
from dpstream.families.census.cohorts import Attrition, PriorEvidence, Shapes, levels_of_cohorts
from dpstream.families.census.schedule import Amounts, CensusSchedule, expected_wait, gap_of, last_of
from dpstream.mechanisms.aim import AIM
from dpstream.mechanisms.engine import Run
from dpstream.mechanisms.headlines import headline_cliques
from dpstream.mechanisms.limits import PRIOR_BOUND
from dpstream.mechanisms.measured_cells import MeasuredCells
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.mechanisms.prior_choice import PriorChoice
from dpstream.mechanisms.run_outputs import published

#: Private counts of the records of a census's window.
Counts = dict[Clique, NDArray[np.int64]]


#: Part of the budget for counting who left; none where presence is public.
_DEPARTURES = Fraction(1, 10)


@dataclass(frozen=True)
class Census(CensusOptions, Recipe["CensusPlan"]):
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

    Cost: between censuses a step only counts who left; a census is one run of ``AIM`` on the records of its window.
    State: a few models, and vectors over all cells, for each level: it does not grow with the number of steps.
    """

    def _plan(self, terms: Terms) -> CensusPlan:
        """Fix the budget of a stay."""
        unit = check_unit(
            terms.unit,
            Record(),
            ("record", "record-replace"),
            "a census cannot protect the unit {unit!r}: it follows records through their whole stays",
        )
        budget, horizon = terms.budget, terms.horizon
        turnover = check_turnover(self.turnover)
        gap, stays = gap_of(turnover), turnover is None or (horizon is not None and turnover >= horizon)
        chosen = (1 if stays else 2) if self.levels is None else self.levels
        schedule = CensusSchedule(gap, None if chosen == "unlimited" else chosen)
        departures = Fraction(0) if unit.relation == "replace" else _DEPARTURES
        wait = None
        if departures and self.records_per_step is not None:
            wait = expected_wait(budget, departures, self.records_per_step, turnover)
        schedule = replace(schedule, levels=schedule.reachable(horizon), departures=wait)
        headline = headline_cliques(self.workload.domain, self.headline)
        followed, prior = MeasuredCells(self.workload, headline), None
        if self.prior is not None:
            prior = PriorChoice(followed, self.prior, self.iterations, self.max_cells)
        return CensusPlan(
            workload=self.workload,
            budget=budget,
            unit=unit,
            horizon=horizon,
            turnover=turnover,
            schedule=schedule,
            amounts=Amounts(budget, departures, schedule.levels, chosen == "unlimited"),
            census=AIM(final_iterations=2 * self.iterations, max_cells=self.max_cells),
            shapes=Shapes(followed, self.iterations, self.max_cells, prior),
            headline=headline,
            headline_share=self.headline_share,
            recipe=self,
        )


@dataclass(frozen=True)
class CensusPlan(CensusFacts):
    """See ``Census``."""

    def ending(self, last_step: int | None) -> CensusPlan:
        """The same plan, with a census at that step.

        Guarantee: unchanged. A census reads the windows of its levels, which begin after the last census of each:
        wherever the owner moves the last step, a stay is in one census of each level at most, and in one count of
        departures.
        """
        return replace(self, schedule=replace(self.schedule, last_step=last_step))

    def parts(self) -> tuple[Part, ...]:
        """What a stay pays: one census of each level, one count of departures."""
        return census_parts(self)

    def asked_cliques(self) -> tuple[Clique, ...]:
        """See ``StreamPlan``: what a census of the present records counts."""
        return self._asked(0)

    def _asked(self, level: int) -> tuple[Clique, ...]:
        return tuple(dict.fromkeys((*self.run_of(level).counted, *self.headline)))

    def start(self) -> CensusState:
        """No census yet."""
        prior, cells = self.recipe.prior, self.shapes.followed.cells
        return CensusState(
            Attrition.fresh(self.domain), None if prior is None else PriorEvidence.fresh(cells)
        )

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
        level, before = self.schedule.level(state.step, state.last), last_of(state.last, 0)
        # Before any noise is drawn: an engine may fail to count, and what fails after a draw waits for its owner.
        counts, came = Counts(), 0
        if level is not None:
            cliques = self._asked(level)
            counts = dict(zip(cliques, present.count(cliques, self.window(state, level)), strict=True))
        elif self.public_presence:
            came = int(present.count(((),), before)[0].sum())
        self.note_departures(state, present)
        measured: list[NoisyCounts] = []
        if level is not None or self.schedule.counts(state.step, state.last):
            measured += self.count_departures(state, randomness)
        if level is not None:
            first = last_of(state.last, level) + 1
            run = self.take_census(state, level, counts, randomness)
            name = f"step {state.step}, census of level {level}"
            measured += published(run.outputs, name, "present", first, state.step, state.step)
            enter(self, state, level, run, counted_total(self.run_of(level), run))
        made = release(self, state, came, census=level is not None)
        return replace(made, noisy_counts=tuple(measured))

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

    def window(self, state: CensusState, level: int) -> int:
        """A census of this level counts the records whose first step is later."""
        return last_of(state.last, level)

    def take_census(
        self, state: CensusState, level: int, counts: Counts, randomness: Randomness
    ) -> OfflineRun:
        """Measure the present records that came after the last census of this level, or of a higher one."""
        plan = self.run_of(level)
        models = [book.latest for book in state.levels[: level + 1] if book.latest is not None]
        prior = models[-1].bounded(PRIOR_BOUND) if models else None
        run = plan.run_on([counts[clique] for clique in plan.counted], randomness, prior=prior)
        heads = Run(self.domain, counts, self.unit.counted, randomness)
        for group, budget in self.headline_draws(level):
            heads.measure([self.headline[i] for i in group], budget, "headline")
        measured, outputs = (*run.measurements, *heads.measured), (*run.outputs, *heads.outputs)
        return replace(run, measurements=measured, outputs=outputs)

    def pack_state(self, state: CensusState) -> Packed:
        """The whole state; it holds private numbers of departures."""
        return pack(state)

    def unpack_state(self, packed: Packed) -> CensusState:
        """The inverse of ``pack_state``."""
        return unpack(packed, self.shapes.followed.cells)
