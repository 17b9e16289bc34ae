"""What is made of a census's counts: numbers, shapes, cohorts, and the released table. Public post-processing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dpstream.core.contracts import Packed, PresentRecords
from dpstream.core.graphical import Model
from dpstream.families.census.census_report import CensusReport
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.census_terms import CensusSchedule, CensusTerms, last_of, with_census
from dpstream.families.census.cohorts import AgedCohort, Cohort, Expected, Shapes, ShapeTracker
from dpstream.families.census.totals_filter import LevelTotal, blend, is_jump
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.mechanisms.table_release import ModelSynthesis

# What a step gives: a mixture of the cohorts' models, and what is known of its number of records.


@dataclass(frozen=True)
class CensusSynthesis(ModelSynthesis):
    """A mixture of models, and what its manifest says of its errors (public, JSON-able)."""

    told: Mapping[str, Any] = field(default_factory=dict)

    def accuracy(self) -> dict[str, Any]:
        """For the manifest."""
        return dict(self.told)

    def pack(self) -> Packed:
        """Models side by side, and what is told."""
        packed = super().pack()
        return Packed({**packed.meta, "told": dict(self.told)}, packed.arrays)

    @classmethod
    def unpack(cls, packed: Packed) -> CensusSynthesis:
        """The inverse of ``pack``."""
        plain = ModelSynthesis.unpack(packed)
        own = {item.name: getattr(plain, item.name) for item in fields(ModelSynthesis)}
        return cls(**own, told=packed.meta["told"])


def mixture(
    parts: list[tuple[Model, float]], total: float, total_error: float | None, told: Mapping[str, Any]
) -> CensusSynthesis:
    """Models with their numbers of records, which need not add up to the total."""
    held = [(model, number) for model, number in parts if number > 0.0] or parts[-1:]
    whole = sum(number for _, number in held)
    weights = tuple(number / whole for _, number in held) if whole > 0.0 else None
    models = tuple(model.with_total(total) for model, _ in held)
    census = int(told["last_census"]["step"])
    return CensusSynthesis(
        models, total, total_error=total_error, weights=weights, measured_up_to=census, told=told
    )


#: Cohorts that a level keeps apart; older ones are folded.
_MAX_COHORTS = 16
#: A mean stay that is assumed where none is declared.
_LONG_STAY = 1000
#: The model's number of records may be so many standard errors of the counted one away from it.
_FARTHEST = 2.0


@dataclass(frozen=True)
class Bookkeeping:
    """Books each census that was taken, and makes the release.

    Guarantee: reads noisy counts and public facts only; where the owner declared presence public, also the number of
    records that are there.
    """

    terms: CensusTerms
    schedule: CensusSchedule
    shapes: Shapes

    def enter(self, state: CensusState, level: int, run: OfflineRun, counted: tuple[float, float]) -> None:
        """Book a census that was taken. Everything here is public.

        Args:
            counted: how many records the census counted, and the variance of the noise in that number.
        """
        after, steps = last_of(state.last, level), state.step - last_of(state.last, 0)
        self._open(state, level)
        if level > 0:
            self._learn(state, level, run, steps)
        expected = self._expected(state, level, steps) if level > 0 else None
        number, variance = self._number(state, level, run, steps)
        for lower in range(level):
            state.totals[lower].empty()
            state.left[lower], state.counted[lower] = 0, (0.0, 0.0)
        state.cohorts = [cohort for cohort in state.cohorts if cohort.level >= level]
        own, (seen, spread) = state.totals[level], state.counted[level]
        own.size += number
        own.variance += variance
        state.counted[level] = (seen + counted[0], spread + counted[1])
        tracker = state.trackers[level]
        tracker.add(state.step, run.measurements, max(number, 1.0), expected)
        if state.seen is not None:
            records = max(run.total, 1.0)
            own_counts = self.shapes.measured(run.measurements, records)
            state.seen.add(own_counts, self.shapes.followed.cells.sizes, records)
        cohort = self.shapes.cohort(
            level, (after, state.step), number, tracker.estimates(state.step), state.seen
        )
        state.latest[level] = cohort.model
        if level == 0:
            state.newest = cohort.shown
        state.cohorts.append(cohort)
        self._fold(state, level)
        self._keep_to_counted(state)
        state.last = with_census(state.last, level, state.step)

    def _open(self, state: CensusState, level: int) -> None:
        """Room for a level's first census."""
        while len(state.totals) <= level:
            state.left.append(0)
            state.counted.append((0.0, 0.0))
            # What lower levels have learnt is nearer than the owner's guess.
            turnover = float(self.terms.turnover or _LONG_STAY)
            if state.totals:
                turnover = math.exp(-state.totals[-1].log_hazard)
            state.totals.append(LevelTotal.fresh(turnover))
            state.latest.append(None)
            state.trackers.append(ShapeTracker.fresh(self.shapes.followed.cells))

    def _number(self, state: CensusState, level: int, run: OfflineRun, steps: int) -> tuple[float, float]:
        """How many records a census found, with its variance; exact where presence is public."""
        assert run.total_variance is not None, "AIM knows the variance of its number of records"
        measured, hazard = (run.total, run.total_variance), math.exp(state.totals[0].log_hazard)
        number, variance = state.newcomers.present(hazard, steps, alone=level == 0)
        below = state.totals[:level]
        number += sum(own.size for own in below)
        variance += sum(own.variance for own in below)
        expected = number, variance
        jump = not self.terms.public_presence and is_jump(measured, expected)
        if state.step == 1:
            state.newcomers.guess(max(measured[0], 1.0) * hazard)
        elif level == 0:
            state.newcomers.add(measured, hazard, steps, burst=jump and measured[0] > number)
        if self.terms.public_presence:
            return measured
        if not jump and state.step > 1:
            measured = blend(measured, expected)
        return max(measured[0], 1.0), measured[1]

    def _keep_to_counted(self, state: CensusState) -> None:
        """Where the model is further from the counted number than noise explains, the counted one is taken."""
        distance, noise = self._apart(state)
        if self.terms.public_presence or distance <= _FARTHEST * math.sqrt(noise):
            return
        for level, (own, (counted, variance)) in enumerate(zip(state.totals, state.counted, strict=True)):
            if own.size > 0.0:
                size = max(counted, 0.0)
                state.cohorts = [
                    cohort.after(size / own.size, 0.0) if cohort.level == level else cohort
                    for cohort in state.cohorts
                ]
                own.size, own.variance, own.covariance = size, variance, 0.0

    def _apart(self, state: CensusState) -> tuple[float, float]:
        """How far the model is from the counted number, and the variance of that number's noise."""
        whole, noise = (sum(own[i] for own in state.counted) for i in (0, 1))
        return abs(sum(own.size for own in state.totals) - whole), noise

    def _doubt(self, state: CensusState) -> float:
        """What the model's variance lacks where stays are not as the model has them.

        A number at a distance d from a count with noise of variance v is further than 1.96 sqrt(v + d^2) from the truth
        only if that noise exceeds 1.68 standard deviations, however the number was made: in 1 of 10 cases at most.
        """
        distance, noise = self._apart(state)
        return max(noise + distance**2 - sum(own.variance for own in state.totals), 0.0)

    def _expected(self, state: CensusState, level: int, steps: int) -> Expected | None:
        """What the records that lower levels counted look like by now, and newcomers with them.

        Errors of cohorts are added up as if all were alike: they come from one tracker.
        """
        lower = [cohort for cohort in state.cohorts if cohort.level < level]
        newest = state.latest[0]
        if not lower or newest is None:
            return None
        came = state.newcomers.present(math.exp(state.totals[0].log_hazard), steps)[0]
        parts = [(c.size, c.exposure, c.variances, self.left_of(state, c, 0)) for c in lower]
        parts.append((came, state.totals[0].exposure(steps), lower[-1].variances, newest))
        whole = sum(size for size, *_ in parts)
        if whole <= 0.0:
            return None
        cells = self.shapes.followed.cells
        shares, deviations, moved = np.zeros(cells.total), np.zeros(len(cells.cliques)), 0.0
        for size, exposure, variances, model in parts:
            part = size / whole
            shares += part * np.concatenate(model.with_total(1.0).marginals(cells.cliques))
            deviations += part * np.sqrt(variances)
            moved += part * exposure
        return Expected(shares, deviations**2, moved)

    def _learn(self, state: CensusState, level: int, run: OfflineRun, steps: int) -> None:
        """What became of the columns of those who were counted at lower levels: which values leave sooner."""
        lower = [cohort for cohort in state.cohorts if cohort.level < level]
        came = state.newcomers.present(math.exp(state.totals[0].log_hazard), steps)[0]
        parts = [AgedCohort(cohort.model, cohort.size, cohort.exposure) for cohort in lower]
        newest = state.latest[0]
        if newest is not None:
            parts.append(AgedCohort(newest, came, 0.0))
        whole = sum(part.weight for part in parts)
        if whole <= 0.0:
            return
        shares, variances = self.shapes.measured(run.measurements, max(run.total, 1.0))
        for cohort in lower:
            variances = variances + (cohort.size / whole) ** 2 * cohort.variances
        cells = self.shapes.followed.cells
        columns = [i for i, clique in enumerate(cells.cliques) if len(clique) == 1]
        state.attrition.learn(
            parts,
            [cells.cliques[i][0] for i in columns],
            [shares[cells.part(i)] for i in columns],
            variances[columns],
        )

    def left_of(self, state: CensusState, cohort: Cohort, steps: int) -> Model:
        """What a cohort looks like so many steps after the last count of departures."""
        return self._aged(state, cohort, cohort.model, steps)

    def _released(self, state: CensusState, cohort: Cohort, steps: int) -> Model:
        """The same with the prior."""
        return self._aged(state, cohort, cohort.released, steps)

    def _aged(self, state: CensusState, cohort: Cohort, model: Model, steps: int) -> Model:
        exposure = cohort.exposure + state.totals[cohort.level].exposure(steps)
        return state.attrition.aged(model, exposure)

    def _fold(self, state: CensusState, level: int) -> None:
        """The last level's cohorts become one, which no census will drop; others are folded where they are many."""
        last = self.schedule.levels is not None and level == self.schedule.levels - 1
        own = [cohort for cohort in state.cohorts if cohort.level == level]
        while len(own) > (1 if last else _MAX_COHORTS):
            # Who is in the last level's cohort goes on for ever; of others more will be known at the next level.
            old = self.shapes.renewed(own[0], self.left_of(state, own[0], 0)) if last else own[0]
            own[:2] = [self.shapes.folded(old, own[1], state.seen)]
        state.cohorts = sorted(
            [*own, *(c for c in state.cohorts if c.level != level)], key=lambda cohort: cohort.low
        )

    def release(self, state: CensusState, present: PresentRecords, *, census: bool) -> CensusSynthesis:
        """The cohorts as they are expected to be by now, and those who came since the last census."""
        since = state.step - last_of(state.last, 0)
        steps, told = state.step - self.schedule.last_count(state.step, state.last), CensusReport(self.terms)
        hazard = math.exp(state.totals[0].log_hazard)
        newest = state.latest[0] if state.newest is None else state.newest
        assert newest is not None, "step 1 is a census of level 0"
        if self.terms.public_presence:
            return self._exact(state, present, newest)
        stays = [own.staying(steps) for own in state.totals]
        parts = [(self._released(state, c, steps), c.size * stays[c.level]) for c in state.cohorts]
        variance = sum(own.predicted(steps)[1] for own in state.totals) + self._doubt(state)
        if since:
            number, spread = state.newcomers.present(hazard, since)
            parts.append((newest, number))
            variance += spread if math.isfinite(spread) else 0.0
        total = sum(number for _, number in parts)
        counted = None
        if census:
            counted = (sum(n for n, _ in state.counted), math.sqrt(sum(v for _, v in state.counted)))
        return mixture(
            parts, total, None, told.accuracy(state.step, state.last, math.sqrt(variance), counted)
        )

    def _exact(self, state: CensusState, present: PresentRecords, newest: Model) -> CensusSynthesis:
        """Presence is public: who left since the last census, and who came, are exact numbers."""
        parts, steps = [], state.step - last_of(state.last, 0)
        for cohort in state.cohorts:
            own = state.totals[cohort.level]
            kept = 1.0 - state.left[cohort.level] / own.size if own.size > 0.0 else 0.0
            parts.append((self._released(state, cohort, steps), cohort.size * kept))
        came = int(present.count(((),), last_of(state.last, 0))[0].sum())
        parts.append((newest, float(came)))
        total = came + round(sum(own.size for own in state.totals)) - sum(state.left)
        told = CensusReport(self.terms).accuracy(state.step, state.last, 0.0, None)
        return mixture(parts, float(total), 0.0, told)
