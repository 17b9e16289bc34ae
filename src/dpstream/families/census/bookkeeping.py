"""What is made of a census's counts: numbers, shapes, cohorts, and the released table. Public post-processing.

Reads noisy counts and public facts only; where the owner declared presence public, also how many left and came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.graphical import Model
from dpstream.families.census.census_report import accuracy_facts
from dpstream.families.census.census_state import CensusBook, CensusTerms, Level
from dpstream.families.census.cohorts import AgedCohort, Cohort, Expected, ShapeTracker
from dpstream.families.census.schedule import last_of, with_census
from dpstream.families.census.totals_filter import LONG_STAY, LevelTotal, blend, is_jump, mixed
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.mechanisms.table_release import ModelSynthesis

_Floats = NDArray[np.float64]

#: Cohorts that a level keeps apart; older ones are folded.
_MAX_COHORTS = 16

# A census that was taken is entered.


def enter(
    terms: CensusTerms, state: CensusBook, level: int, run: OfflineRun, counted: tuple[float, float]
) -> None:
    """Book a census that was taken.

    Args:
        counted: how many records the census counted, and the variance of the noise in that number.
    """
    after, steps = last_of(state.last, level), state.step - last_of(state.last, 0)
    cells = terms.shapes.followed.cells
    released = [(_aged(state, cohort, cohort.released, 0), cohort.size) for cohort in state.cohorts]
    state.signal.backtest(cells, released, run.measurements)
    _open(terms, state, level)
    expected = _recounted(terms, state, level, run, steps) if level > 0 else None
    bank, before = state.levels[0].total, state.levels[0].total.size
    numbers, variances = _number(terms, state, level, run, steps)
    if level == 0 and before > 0.0:
        # The newcomers said how long records stay, and so how many of those before are left.
        kept = bank.size / before
        state.cohorts = [cohort.after(kept, 0.0) if cohort.level == 0 else cohort for cohort in state.cohorts]
    if level > 0:
        # From draws that this census takes out of the counted number: the law of what remains is as it was.
        state.gap = math.ceil(bank.decided / 2.0)
    for lower in range(level):
        state.levels[lower].total.empty()
    state.cohorts = [cohort for cohort in state.cohorts if cohort.level >= level]
    book = state.levels[level]
    book.total.add((numbers, variances), counted)
    number = float(book.total.chances @ numbers)
    book.tracker.add(state.step, run.measurements, max(number, 1.0), expected)
    if state.seen is not None:
        records = max(run.total, 1.0)
        state.seen.add(terms.shapes.measured(run.measurements, records), records)
    known = book.tracker.estimates(state.step)
    cohort = terms.shapes.cohort(level, (after, state.step), number, known, state.seen)
    book.latest = cohort.model
    if level == 0:
        state.newest = cohort.shown
    state.cohorts.append(cohort)
    _fold(terms, state, level)
    if not terms.public_presence:
        factors = [book.total.keep_to_counted() for book in state.levels]
        state.cohorts = [cohort.after(factors[cohort.level], 0.0) for cohort in state.cohorts]
    state.last = with_census(state.last, level, state.step)
    state.signal.look(cells, state.cohorts)


def _open(terms: CensusTerms, state: CensusBook, level: int) -> None:
    """Room for a level's first census."""
    while len(state.levels) <= level:
        # What lower levels have learnt is nearer than the owner's guess.
        turnover = float(terms.turnover or LONG_STAY)
        if state.levels:
            turnover = state.levels[-1].total.stay
        tracker = ShapeTracker.fresh(terms.shapes.followed.cells)
        state.levels.append(Level(LevelTotal.fresh(turnover), tracker))


def _recounted(
    terms: CensusTerms, state: CensusBook, level: int, run: OfflineRun, steps: int
) -> Expected | None:
    """Learn from a census of records that were counted before which values leave sooner; and say what is expected of
    it: what is left of the lower levels' cohorts by now, and newcomers.

    Errors of cohorts are added up as if all were alike: they come from one tracker.
    """
    cells, lower = terms.shapes.followed.cells, [c for c in state.cohorts if c.level < level]
    came, newest = state.newcomers.expected(state.levels[0].total, steps)[0], state.levels[0].latest
    parts = [AgedCohort(cohort.model, cohort.size, cohort.exposure) for cohort in lower]
    if newest is not None:
        parts.append(AgedCohort(newest, came, 0.0))
    whole = sum(part.weight for part in parts)
    if whole <= 0.0:
        return None
    shares, variances = terms.shapes.measured(run.measurements, max(run.total, 1.0))
    for cohort in lower:
        variances = variances + (cohort.size / whole) ** 2 * cohort.variances
    state.attrition.learn(
        parts,
        [
            (clique[0], shares[cells.part(i)], float(variances[i]))
            for i, clique in enumerate(cells.cliques)
            if len(clique) == 1 and math.isfinite(variances[i])
        ],
    )
    if not lower or newest is None:
        return None
    known = [cohort.variances for cohort in lower]
    aged = [_aged(state, cohort, cohort.model, 0) for cohort in lower]
    moves = [*(cohort.exposure for cohort in lower), state.levels[0].total.exposure(steps)]
    shares, deviations, moved = np.zeros(cells.total), np.zeros(len(cells.cliques)), 0.0
    for part, model, variance, exposure in zip(
        parts, [*aged, newest], [*known, known[-1]], moves, strict=True
    ):
        weight = part.weight / whole
        shares += weight * np.concatenate(model.with_total(1.0).marginals(cells.cliques))
        deviations += weight * np.sqrt(variance)
        moved += weight * exposure
    return Expected(shares, deviations**2, moved)


def _number(
    terms: CensusTerms, state: CensusBook, level: int, run: OfflineRun, steps: int
) -> tuple[_Floats, _Floats]:
    """How many records a census found, with its variance, under each hazard; exact where presence is public.

    What level 0 learns here follows from draws of level 0 only: the gap follows from that.
    """
    assert run.total_variance is not None, "AIM's number of records needs a variance"
    measured, bank, jump = (run.total, run.total_variance), state.levels[0].total, True
    least, same = (max(measured[0], 1.0), measured[1]), np.ones_like(bank.sizes)
    if state.step == 1:
        state.newcomers.guess(least, bank)
    else:
        numbers, variances = state.newcomers.present(bank, steps, alone=level == 0)
        if level > 0:
            numbers, variances = numbers + bank.sizes, variances + bank.variances
        expected = mixed(bank.chances, numbers, variances)
        jump = not terms.public_presence and is_jump(measured, expected)
        if level == 0:
            state.newcomers.add(measured, bank, steps, burst=jump and measured[0] > expected[0])
        else:
            # Level 1 has other hazards.
            numbers, variances = expected[0] * same, expected[1] * same
    if terms.public_presence:
        return measured[0] * same, measured[1] * same
    if jump:
        return least[0] * same, least[1] * same
    numbers, variances = blend(measured, (numbers, variances))
    return np.maximum(numbers, 1.0), variances


def _fold(terms: CensusTerms, state: CensusBook, level: int) -> None:
    """The last level's cohorts become one, which no census will drop; others are folded where they are many."""
    last = level == terms.schedule.levels - 1
    cohorts = [cohort for cohort in state.cohorts if cohort.level == level]
    while len(cohorts) > (1 if last else _MAX_COHORTS):
        # Who is in the last level's cohort goes on for ever; of others more will be known at the next level.
        old = cohorts[0]
        if last:
            old = terms.shapes.renewed(old, _aged(state, old, old.model, 0))
        cohorts[:2] = [terms.shapes.folded(old, cohorts[1], state.seen)]
    others = [cohort for cohort in state.cohorts if cohort.level != level]
    state.cohorts = sorted([*cohorts, *others], key=lambda cohort: cohort.low)


def _apart(state: CensusBook) -> tuple[float, float]:
    """How far the model is from the counted number, and the variance of that number's noise."""
    totals = [book.total for book in state.levels]
    counted = sum(total.counted for total in totals)
    return abs(sum(total.size for total in totals) - counted), sum(total.counted_variance for total in totals)


def _doubt(state: CensusBook) -> float:
    """What the model's variance lacks where stays are not as the model has them.

    A number at a distance d from a count with noise of variance v is further than 1.96 sqrt(v + d^2) from the truth
    only if that noise exceeds 1.68 standard deviations, however the number was made: in 1 of 10 cases at most.
    """
    distance, noise = _apart(state)
    return max(noise + distance**2 - sum(book.total.variance for book in state.levels), 0.0)


def _aged(state: CensusBook, cohort: Cohort, model: Model, steps: int) -> Model:
    """What a cohort with this model looks like so many steps after the last count of departures."""
    exposure = cohort.exposure + state.levels[cohort.level].total.exposure(steps)
    return state.attrition.aged(model, exposure)


# A step is released: the cohorts as they are expected to be by now, and those who came since the last census.


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
        made = super().unpack(packed)
        assert isinstance(made, cls)
        return replace(made, told=packed.meta["told"])


def release(
    terms: CensusTerms, state: CensusBook, came: int, left: Sequence[int], *, census: bool
) -> CensusSynthesis:
    """What a step gives.

    Args:
        came, left: where presence is public, how many records came since the last census, and how many of each level
            left since the last count.
        census: whether one was taken at this step.
    """
    since = state.step - last_of(state.last, 0)
    steps = state.step - terms.schedule.last_count(state.step, state.last)
    totals = [book.total for book in state.levels]
    newest = state.levels[0].latest if state.newest is None else state.newest
    assert newest is not None, "step 1 must be a census of level 0"
    kept = [total.staying(steps) for total in totals]
    if terms.public_presence:
        pairs = zip(totals, left, strict=True)
        kept = [1.0 - gone / total.size if total.size > 0.0 else 0.0 for total, gone in pairs]
    parts = [(_aged(state, c, c.released, steps), c.size * kept[c.level]) for c in state.cohorts]
    deviation, counted, error = 0.0, None, None
    if terms.public_presence:
        parts.append((newest, float(came)))
        number, error = float(came + round(sum(total.size for total in totals)) - sum(left)), 0.0
    else:
        variance = sum(total.predicted(steps)[1] for total in totals) + _doubt(state)
        if since:
            coming, spread = state.newcomers.expected(state.levels[0].total, since)
            parts.append((newest, coming))
            variance += spread
        number, deviation = sum(size for _, size in parts), math.sqrt(variance)
        if census:
            noise = math.sqrt(sum(total.counted_variance for total in totals))
            counted = sum(total.counted for total in totals), noise
    told = accuracy_facts(terms, state.step, state.last, deviation, counted, state.gap)
    if state.seen is None and (signal := state.signal.part) < 1.0:
        held = [(model, max(size, 0.0)) for model, size in parts]
        calmer = state.signal.calmer(terms.workload.domain, held), sum(size for _, size in held)
        parts = [*((model, signal * size) for model, size in held), (calmer[0], (1.0 - signal) * calmer[1])]
    return mixture(parts, number, error, state.last[0], told)


def mixture(
    parts: list[tuple[Model, float]], total: float, error: float | None, census: int, told: Mapping[str, Any]
) -> CensusSynthesis:
    """Models with their numbers of records, which need not add up to the total."""
    held = [(model, number) for model, number in parts if number > 0.0] or parts[-1:]
    whole = sum(number for _, number in held)
    weights = tuple(number / whole for _, number in held) if whole > 0.0 else None
    models = tuple(model.with_total(total) for model, _ in held)
    return CensusSynthesis(
        models, total, total_error=error, weights=weights, measured_up_to=census, told=told
    )
