"""The exact loss of whole pooled streams between neighbours, which differ in one record of one step (see ``door``).

The record is at steps where epochs begin and end, because it must count in exactly one of them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, PrivateBatch
from dpstream.core.privacy import (
    CubeNoise,
    DiscreteGaussian,
    Event,
    HistogramsNoise,
    Noise,
    PureDP,
    Randomness,
)
from dpstream.core.privacy.budget import ZCDP, Budget
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled, PooledPlan
from dpstream.families.tabular.pooled_run import Design, Runner
from dpstream.families.tabular.pooled_state import PooledSide, PooledState
from dpstream.lab.audits.door import stream_loss
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.transcript_tape import each_alone
from dpstream.mechanisms.table_release import ModelSynthesis

_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
_ONE_SIGN = Domain(("a", "b", "c"), (3, 3, 2))
#: Epochs end at steps 1 to 9, 11 and 12. So the record is in the first, the last or the only step of an epoch.
_STEPS, _AT = 12, (1, 2, 9, 10, 11, 12)
#: Records per step, enough for a run to select something.
_ROWS = 260
_TERNARY = Domain(("a", "b", "c"), (3, 3, 3))
_HEADLINE = (("a",), ("b", "c"))
#: Transcripts for each step of the record.
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 3, "long": 40}


def audit_pooled(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Pure, zCDP, both relations, deletions, headlines, few marginals; then the controls.

    Cost: short: about 18 s of a core.
    """
    recipe = Pooled(Workload.all_k_way(_DOMAIN, 2), select_share=Fraction(1, 2), iterations=5)
    runs = _TRANSCRIPTS[length]
    plans = {
        "pure": recipe.calibrate(PureDP.of(1), horizon=_STEPS),
        "replace": recipe.calibrate(PureDP.of(1), unit=Event("replace"), horizon=_STEPS),
        "zCDP": recipe.calibrate(ZCDP.of("1/8"), horizon=_STEPS),
        "deletions": replace(recipe, deletions=True).calibrate(PureDP.of(1), horizon=_STEPS),
        "headlines": replace(recipe, headline=_HEADLINE).calibrate(PureDP.of(1), horizon=_STEPS),
    }
    ternary = replace(recipe, workload=Workload.all_k_way(_TERNARY, 2))
    heads = replace(ternary, headline=(("a",), ("b",)))
    plans["joint histograms"] = heads.calibrate(PureDP.of(1), horizon=_STEPS)
    plans["joint histograms, replace"] = ternary.calibrate(
        PureDP.of(1), unit=Event("replace"), horizon=_STEPS
    )
    for name, plan in plans.items():
        progress(f"pooled, {name}")
        yield exact_pooled(plan, runs, randomness, f"pooled, {name}")
    pure = plans["pure"]
    progress("pooled, few marginals")
    # Marginals of the columns with two values are always measured, others are not.
    few = replace(recipe, workload=Workload.all_k_way(_ONE_SIGN, 2))
    other = few.calibrate(PureDP.of(1), horizon=_STEPS)
    yield exact_pooled(
        replace(other, runner=_sparse(other.runner)), runs, randomness, "pooled, few marginals"
    )
    little = replace(recipe, select_share=Fraction(1, 10)).calibrate(PureDP.of(1), horizon=_STEPS)
    joint = replace(ternary, select_share=Fraction(1, 10)).calibrate(PureDP.of(1), horizon=_STEPS)
    many = replace(ternary, headline=(("a",), ("b",), ("c",)), headline_share=Fraction(1, 2))
    for name, broken in (
        ("joint histograms drawn apart", replace(joint, runner=_lone(joint.runner))),
        ("joint headlines drawn apart", _heads_alone(many.calibrate(PureDP.of(1), horizon=_STEPS))),
        ("2/3 of the joint histograms' noise", replace(joint, runner=_quiet(joint.runner))),
        ("2/3 of the noise", replace(pure, runner=_quiet(pure.runner))),
        ("joint noise drawn apart", replace(little, runner=_apart(little.runner))),
        ("counts that outlive their epoch", _as(_Remembering, pure)),
        ("borders that follow the number of records", _as(_Following, pure)),
        ("an exact count among its noisy ones", _as(Leaking, pure)),
        ("headlines beside the budget", _beside(plans["headlines"])),
    ):
        progress(f"control: pooled with {name}")
        yield exact_pooled(broken, 1, randomness, f"pooled with {name}", control=True)


def exact_pooled(
    plan: PooledPlan, transcripts: int, randomness: Randomness, subject: str, *, control: bool = False
) -> AuditFinding:
    """The largest loss over the steps of the record and over transcripts."""
    began, worst = time.perf_counter(), Largest()
    for number, at in enumerate(_AT):
        for turn in range(transcripts):
            base, other = _neighbours(plan, at, (number + turn) % 2 == 1)
            worst.see(stream_loss(plan, base, other, randomness), f"step {at}")
    return AuditFinding.exact(
        began,
        subject=f"{subject}, transcripts",
        claimed=plan.budget,
        found=worst.loss,
        control=control,
        detail=f"{transcripts * len(_AT)} transcripts of {_STEPS} steps; most with the change at {worst.where}",
    )


def _neighbours(plan: PooledPlan, at: int, swapped: bool) -> tuple[list[EncodedBatch], list[EncodedBatch]]:
    """Two streams that differ in one record of step ``at``; ``swapped``: in the other order, and in a delete if the
    plan has deletes."""
    generator = np.random.default_rng(at)
    deletions = plan.recipe.deletions

    def draw(rows: int) -> NDArray[np.int32]:
        first = generator.integers(0, 2, rows)
        return np.column_stack([first, generator.integers(0, 3, rows), first]).astype(np.int32)

    streams = [(draw(_ROWS), draw(_ROWS // 2)) for _ in range(_STEPS)]
    changed = list(streams)
    side = 1 if deletions and swapped else 0
    pair = list(changed[at - 1])
    if plan.unit.relation == "replace":
        pair[side] = pair[side].copy()
        pair[side][0] = (pair[side][0] + 1) % np.array(plan.domain.sizes)
    else:
        pair[side] = pair[side][1:]
    changed[at - 1] = (pair[0], pair[1])
    base, other = (
        [EncodedBatch(plan.domain, inserts, deletes if deletions else None) for inserts, deletes in stream]
        for stream in (streams, changed)
    )
    return (other, base) if swapped else (base, other)


def _sparse(runner: Runner) -> Runner:
    """A runner that measures few marginals from the first run on, as in a long stream that does not drift."""

    class Sparse(Runner):
        def design(self, expected: float, *, drifts: bool) -> Design:
            return super().design(expected, drifts=False)

    return _with_class(runner, Sparse)


def _quiet(runner: Runner) -> Runner:
    """BROKEN: two thirds of the noise."""

    class Quiet(Runner):
        def histogram_noise(self, budget: Budget) -> Noise:
            return super().histogram_noise(budget.scaled(Fraction(3, 2)))

        def sign_noise(self, budget: Budget, sums: int) -> CubeNoise | DiscreteGaussian:
            return super().sign_noise(budget.scaled(Fraction(3, 2)), sums)

        def histograms_noise(self, budget: Budget, sizes: Sequence[int]) -> HistogramsNoise:
            return super().histograms_noise(budget.scaled(Fraction(3, 2)), sizes)

    return _with_class(runner, Quiet)


def _apart(runner: Runner) -> Runner:
    """BROKEN: sums that share a joint draw get separate noise, each as if it were the only one that a record moves."""

    class Apart(Runner):
        def sign_noise(self, budget: Budget, sums: int) -> Any:
            return self.histogram_noise(budget)

    return _with_class(runner, Apart)


def _lone(runner: Runner) -> Runner:
    """BROKEN: histograms of one draw get separate noise, each as if it were the only one that a record moves."""

    class Lone(Runner):
        def histograms_noise(self, budget: Budget, sizes: Sequence[int]) -> HistogramsNoise:
            return each_alone(super().histograms_noise(budget, sizes))

    return _with_class(runner, Lone)


def _heads_alone(plan: PooledPlan) -> PooledPlan:
    """BROKEN: headlines of one draw get separate noise, each as if it were the only one; columns are honest."""
    ((_, own),) = plan.runner.headline_budgets

    class HeadsAlone(Runner):
        def histograms_noise(self, budget: Budget, sizes: Sequence[int]) -> HistogramsNoise:
            noise = super().histograms_noise(budget, sizes)
            return each_alone(noise) if budget == own else noise

    return replace(plan, runner=_with_class(plan.runner, HeadsAlone))


def _with_class(runner: Runner, kind: type[Runner]) -> Runner:
    """A copy of ``runner`` with the methods of ``kind``."""
    copied = copy.copy(runner)
    object.__setattr__(copied, "__class__", kind)
    return copied


def _beside(plan: PooledPlan) -> PooledPlan:
    """BROKEN: headlines are paid from nothing; everything else has the whole budget."""
    return replace(plan, runner=replace(plan.runner, budget=plan.budget, headline_budget=plan.budget))


class _Remembering(PooledPlan):
    """BROKEN: keeps an epoch's counts for the next epoch."""

    def _run(
        self, side: PooledSide, known: Any, step: int, length: int, randomness: Randomness, **more: Any
    ) -> Any:
        before = side.counts
        result = super()._run(side, known, step, length, randomness, **more)
        side.counts = before
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
        noise, query = self.runner.histogram_noise(self.runner.budget), {"kind": "marginal", "columns": ["a"]}
        leak = NoisyCounts(f"step {state.step}", "inserts", state.step, state.step, query, exact, noise)
        return replace(made, noisy_counts=(*made.noisy_counts, leak))


def _as(kind: type[PooledPlan], plan: PooledPlan) -> PooledPlan:
    return kind(plan.recipe, plan.budget, plan.unit, plan.horizon, plan.runner)
