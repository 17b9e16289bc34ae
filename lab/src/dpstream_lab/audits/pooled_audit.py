"""Transcripts of whole pooled streams between neighbours, which differ in one record of one step (see ``door``).

The record is at steps where epochs begin and end, because it must count in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, PrivateBatch, StepPeriods
from dpstream.core.privacy import ZCDP, Event, Noisy, PureDP, Randomness, noise_for
from dpstream.core.schema import Categorical, Integer, Schema
from dpstream.core.schema.domain import Domain, Follows
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled, PooledPlan
from dpstream.families.tabular.pooled import PooledSide, PooledState
from dpstream.families.tabular.pooled_clock import Clock
from dpstream.families.tabular.pooled_run import Design, Runner
from dpstream.mechanisms import ModelSynthesis
from dpstream.mechanisms.joint_groups import noise_of
from dpstream.mechanisms.means import Sums
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream_lab.audits.controls import LoneHistograms, LoneSums
from dpstream_lab.audits.subjects import rebuilt, stream_pair, transcripts_of

_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
_ONE_SIGN = Domain(("a", "b", "c"), (3, 3, 2))
_TERNARY = Domain(("a", "b", "c"), (3, 3, 3))
#: Epochs end at steps 1 to 9, 11 and 12. So the record is in the first, the last or the only step of an epoch.
_STEPS, _AT = 12, (1, 2, 9, 10, 11, 12)
#: Records per step, enough for a run to select something.
_ROWS = 260
_TENTH, _HALF = Fraction(1, 10), Fraction(1, 2)
#: The last column's values are in two regions.
_REGION = Follows("region", 2, (2,), np.array([0, 0, 1], dtype=np.int32).tobytes())
_NUMBERS = Schema(
    (Categorical("a", ("x", "y")), Integer("b", edges=(0, 10, 30, 40)), Categorical("c", ("x", "y")))
)
_LEVELS = Domain(("a", "b", "c"), (2, 3, 3), (), (_REGION,), (("place", ("region", "c")),))


def pooled_subjects() -> Iterator[Subject]:
    """Pure, zCDP, both relations, deletions, headlines, few marginals; then the controls."""
    recipe = Pooled(Workload.all_k_way(_DOMAIN, 2), select_share=Fraction(1, 2), iterations=5)
    ternary = replace(recipe, workload=Workload.all_k_way(_TERNARY, 2))

    def plan(made: Pooled, budget: Any = None, **more: Any) -> PooledPlan:
        return made.calibrate(budget or PureDP.of(1), horizon=_STEPS, **more)

    pure = plan(recipe)
    by_periods = replace(recipe, headline=(("a",), ("b", "c")), periods=StepPeriods(3), number=StepPeriods(2))
    heads = plan(by_periods)
    by_levels = replace(
        by_periods,
        workload=Workload.all_k_way(_LEVELS, 2),
        headline=(("b",), ("place",)),
        headline_share=_HALF,
    )
    levels = plan(by_levels)
    by_means = replace(
        by_periods,
        workload=Workload.all_k_way(_NUMBERS.domain, 2),
        headline=(("a",), ("mean(b)",), ("a", "mean(b)")),
        schema=_NUMBERS,
    )
    means = plan(by_means)
    few = plan(replace(recipe, workload=Workload.all_k_way(_ONE_SIGN, 2)))
    for name, honest in (
        ("pure", pure),
        ("replace", plan(recipe, unit=Event("replace"))),
        ("zCDP", plan(recipe, ZCDP.of("1/8"))),
        ("deletions", plan(replace(recipe, deletions=True))),
        ("headlines", heads),
        ("headlines, zCDP", plan(by_periods, ZCDP.of("1/8"))),
        ("headlines, deletions", plan(replace(by_periods, deletions=True))),
        ("headlines, replace", plan(by_periods, unit=Event("replace"))),
        ("levels", levels),
        ("levels, replace, zCDP", plan(by_levels, ZCDP.of("1/8"), unit=Event("replace"))),
        ("means", means),
        ("means, replace, zCDP", plan(by_means, ZCDP.of("1/8"), unit=Event("replace"))),
        ("means, deletions", plan(replace(by_means, deletions=True))),
        ("number of records by periods", plan(replace(recipe, number=StepPeriods(2)))),
        ("joint histograms", plan(replace(ternary, headline=(("a",), ("b",))))),
        ("joint histograms, replace", plan(ternary, unit=Event("replace"))),
        ("few marginals", replace(few, runner=rebuilt(_Sparse, few.runner))),
    ):
        yield pooled_subject(honest, f"pooled, {name}")
    little, joint = plan(replace(recipe, select_share=_TENTH)), plan(replace(ternary, select_share=_TENTH))
    many = plan(replace(ternary, headline=(("a",), ("b",), ("c",)), headline_share=Fraction(1, 2)))
    ((_, _, joined),) = many.clocks[0].draws
    overlapping = plan(replace(by_periods, select_share=_TENTH))
    beside = tuple(replace(clock, budget=heads.budget) for clock in heads.clocks)
    unpaid = tuple(rebuilt(_UnpaidLevel, clock) if clock.headlines else clock for clock in levels.clocks)
    for name, broken, wrap in (
        ("joint histograms drawn apart", joint, LoneHistograms),
        ("joint headlines drawn apart", many, lambda inner: LoneHistograms(inner, joined)),
        ("2/3 of the joint histograms' noise", joint, QuietNoise),
        ("2/3 of the noise", pure, QuietNoise),
        ("joint noise drawn apart", little, LoneSums),
        ("counts that outlive their epoch", rebuilt(_Remembering, pure), None),
        ("borders that follow the number of records", rebuilt(_Following, pure), None),
        ("an exact count among its noisy ones", rebuilt(Leaking, pure), None),
        ("headlines beside the budget", replace(heads, clocks=beside), None),
        ("a level that pays nothing", replace(levels, clocks=unpaid), None),
        ("means with the noise of counts", replace(means, sums=rebuilt(_AsCounts, means.sums)), None),
        ("counts that outlive their period", rebuilt(_LastingPeriods, heads), None),
        ("a period that counts a step of the one before", rebuilt(_Overlapping, overlapping), None),
    ):
        more: dict[str, Any] = {} if wrap is None else {"wrap": wrap}
        yield pooled_subject(broken, f"pooled with {name}", control=True, **more)


#: Transcripts for each step of the record; the short audit takes about 18 s of a core.
audit_pooled = transcripts_of(pooled_subjects, 3, 40)


def pooled_subject(plan: PooledPlan, name: str, **more: Any) -> Subject:
    """The record at each of the steps."""

    def pairs() -> Iterator[Pair]:
        for number, at in enumerate(_AT):
            yield stream_pair(plan, f"a record of step {at}", *_neighbours(plan, at, number % 2 == 1))

    return Subject(name, plan.budget, pairs, **more)


def _neighbours(plan: PooledPlan, at: int, swapped: bool) -> tuple[list[EncodedBatch], list[EncodedBatch]]:
    """Two streams that differ in one record of step ``at``; ``swapped``: in the other order, and in a delete if the
    plan has deletes."""
    generator = np.random.default_rng(at)
    deletions, domain = plan.recipe.deletions, plan.domain if plan.sums is None else plan.sums.read_domain

    def draw(rows: int) -> NDArray[np.int32]:
        first = generator.integers(0, 2, rows)
        return np.column_stack([first, generator.integers(0, 3, rows), first]).astype(np.int32)

    streams = [(draw(_ROWS), draw(_ROWS // 2)) for _ in range(_STEPS)]
    changed = list(streams)
    side = 1 if deletions and swapped else 0
    pair = list(changed[at - 1])
    if plan.unit.relation == "replace":
        pair[side] = pair[side].copy()
        pair[side][0] = (pair[side][0] + 1) % np.array(domain.sizes)
    else:
        pair[side] = pair[side][1:]
    changed[at - 1] = (pair[0], pair[1])
    base, other = (
        [EncodedBatch(domain, inserts, deletes if deletions else None) for inserts, deletes in stream]
        for stream in (streams, changed)
    )
    return (other, base) if swapped else (base, other)


class _Sparse(Runner):
    """A runner that measures few marginals from the first run on, as in a long stream that does not drift."""

    def design(self, expected: float, *, drifts: bool) -> Design:
        return super().design(expected, drifts=False)


class _Remembering(PooledPlan):
    """BROKEN: keeps an epoch's counts for the next epoch."""

    def _run(
        self, side: PooledSide, known: Any, step: int, length: int, randomness: Randomness, **more: Any
    ) -> Any:
        before = side.counts
        result = super()._run(side, known, step, length, randomness, **more)
        side.counts = before
        return result


class _UnpaidLevel(Clock):
    """BROKEN: the coarsest level of a tree is measured beside the budget, with as much as all headlines have."""

    @cached_property
    def draws(self) -> Any:
        own, at = super().draws, len(self.marginals) - 2
        noise = noise_of(self.budget, [self.sizes[at]], self.unit)
        return [draw if draw[0] != (at,) else (draw[0], self.budget, noise) for draw in own]


class _AsCounts(Sums):
    """BROKEN: the noise of sums is that of counts."""

    @cached_property
    def noises(self) -> Any:
        return [noise_for(self.budget.scaled(Fraction(1, 2)), 1, 1) for _ in self.means]


class _LastingPeriods(PooledPlan):
    """BROKEN: keeps a period's counts for the next period."""

    def _close_periods(self, state: PooledState, randomness: Randomness) -> Any:
        before = [side.periods.copy() for side in state.sides]
        result = super()._close_periods(state, randomness)
        for side, counts in zip(state.sides, before, strict=True):
            side.periods = counts
        return result


class _Overlapping(PooledPlan):
    """BROKEN: the step that ends a period is in the next one, too."""

    def step(self, state: PooledState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        result = super().step(state, batch, randomness)
        asked = self.asked_cliques()
        counts = dict(zip(asked, batch.count(asked), strict=True))
        for place, clock in enumerate(self.clocks):
            if clock.ends(state.step, self.last_step, self.horizon):
                state.sides[0].periods[place] = clock.read(counts)
        return result


class _Following(PooledPlan):
    """BROKEN: an epoch ends when it has enough records, so one record decides the epoch of others."""

    def step(self, state: PooledState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        part = self.cells.part(0)
        here = int(state.sides[0].counts[part].sum()) + int(batch.count(self.cells.cliques[:1])[0].sum())
        state.border = state.step + (1 if here >= 2 * _ROWS else 2)
        return super().step(state, batch, randomness)


class Leaking(PooledPlan):
    """BROKEN: publishes one exact count beside the noisy ones."""

    def step(self, state: PooledState, batch: PrivateBatch, randomness: Randomness) -> ModelSynthesis:
        exact = batch.count(self.cells.cliques[:1])[0]
        made = super().step(state, batch, randomness)
        noise, query = self.runner.noise_of([0], self.runner.budget), {"kind": "marginal", "columns": ["a"]}
        leak = NoisyCounts(
            f"step {state.step}", "inserts", state.step, state.step, query, Noisy(exact), noise
        )
        return replace(made, noisy_counts=(*made.noisy_counts, leak))
