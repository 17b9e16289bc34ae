"""The exact loss of an AIM run between neighbouring tables, which differ in one record.

A transcript is everything that a run reveals: its choices and measurements, their number, the model and its total. The
plan's own code runs twice: on the counts of a table, recording choices and noise; and on the counts of its neighbour,
with the same choices and with the noise that makes every measurement the same. If a release differs all the same
(another number of rounds, another total), private information reached it other than through choices and noise, and the
loss is infinite. Otherwise the loss of the transcript is known exactly:

* pure: for the measurements, the log-ratio of their probabilities; for each choice, the largest log-ratio of an outcome
  at the scores that this transcript leads to. Their sum must stay within epsilon for every transcript. Some transcripts
  are random; in two more all noise has one sign, so that every measurement reveals the most.
* zCDP: the shift of the noise (``shift^2 / 2 sigma^2``), and for each choice the squared range of its privacy loss,
  divided by 8 (Cesar, Rogers 2021).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model
from dpstream.core.privacy import (
    ZCDP,
    Budget,
    Event,
    Noise,
    PureDP,
    Randomness,
)
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.lab.audits.controls import QuietNoise
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.transcript_tape import (
    Tape,
    TapedNoise,
    TapedSelector,
    in_order,
    noise_loss,
    worst_choice_loss,
)
from dpstream.mechanisms.aim import AIM, AIMPlan, AIMRun, Candidates
from dpstream.mechanisms.run_outputs import RunOutput

#: Transcripts for each pair of neighbours. In the first two all noise leans to one side.
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 12, "long": 200}
#: Leaning noise is moved by so many standard deviations, far enough to have the same sign on both neighbours.
_LEAN = 4

_DOMAIN = Domain(("a", "b", "c", "d", "e"), (2, 3, 2, 4, 2))

#: A few unions contain all pairs, so that nothing is selected; a small model leaves pairs to select.
_RECIPES = {
    "nothing selected": AIM(),
    "columns, then a cover": AIM(rounds=100, unions=False),
    "pairs": AIM(rounds=3, unions=False),
    "pairs and unions": AIM(rounds=3, max_cells=60),
}

MarginalCounts = Sequence[NDArray[np.int64]]
Wrap = Callable[[Randomness], Randomness]


def audit_aim(length: AuditLength, randomness: Randomness, progress: AuditProgress) -> Iterator[AuditFinding]:
    """Pure and zCDP, with and without unions, both relations; then the controls. Cost: short: about 3 s of one core."""
    workload, runs = Workload.all_k_way(_DOMAIN, 2), _TRANSCRIPTS[length]
    budgets: tuple[Budget, ...] = (PureDP.of(1), ZCDP.of("1/2"))
    for budget in budgets:
        for unit in (Event(), Event("replace")):
            for how, recipe in _RECIPES.items():
                subject = f"AIM, {budget}, {unit.name}, {how}"
                progress(subject)
                yield exact_aim(recipe.calibrate(workload, budget, unit), runs, randomness, subject)
        plan = _RECIPES["pairs"].calibrate(workload, budget, Event())
        chooser = replace(plan.recipe, measure_share=Fraction(1, 10))
        for name, broken, wrap in (
            ("2/3 of the noise", plan, QuietNoise),
            (
                "half the sensitivity of its scores",
                BrokenSelection(chooser, workload, budget, plan.unit),
                _as_it_is,
            ),
        ):
            subject = f"AIM with {name}, {budget}"
            progress(f"control: {subject}")
            yield exact_aim(broken, runs, randomness, subject, wrap, control=True)


def exact_aim(
    plan: AIMPlan,
    transcripts: int,
    randomness: Randomness,
    subject: str,
    wrap: Wrap | None = None,
    *,
    control: bool = False,
) -> AuditFinding:
    """The largest loss over transcripts on three tables: a crowded one, one whose columns agree, a nearly empty one."""
    began, worst = time.perf_counter(), Largest()
    for name, codes in _tables(plan.workload.domain).items():
        for base, other in _neighbours(plan, codes):
            for number in range(transcripts):
                lean = (1, -1)[number] if number < 2 else 0
                how = "noise of one sign" if lean else "random noise"
                loss = aim_loss(plan, base, other, randomness, wrap or _as_it_is, lean)
                worst.see(loss, f"a {name} table, {how}")
    return AuditFinding.exact(
        began,
        subject=f"{subject}, transcripts",
        claimed=plan.budget,
        found=worst.loss,
        control=control,
        detail=f"{transcripts} transcripts of each pair of neighbours; most with {worst.where}",
    )


def _tables(domain: Domain) -> dict[str, NDArray[np.int32]]:
    generator = np.random.default_rng(3)
    crowd = np.column_stack([generator.integers(0, size, 600) for size in domain.sizes]).astype(np.int32)
    agreeing = np.column_stack([generator.integers(0, 2, 400)] * len(domain)).astype(np.int32)
    return {"crowded": crowd, "agreeing": agreeing, "nearly empty": crowd[:1]}


def _neighbours(plan: AIMPlan, codes: NDArray[np.int32]) -> Iterator[tuple[MarginalCounts, MarginalCounts]]:
    """A pair of neighbours in both orders, because the loss of a transcript has a sign."""
    if plan.unit.relation == "replace":
        changed = codes.copy()
        changed[0] = (changed[0] + 1) % np.array(plan.workload.domain.sizes)
    else:
        changed = codes[1:]
    sides = [
        EncodedBatch(plan.workload.domain, rows).count(plan.counted, "inserts") for rows in (codes, changed)
    ]
    yield sides[0], sides[1]
    yield sides[1], sides[0]


def aim_loss(
    plan: AIMPlan,
    base: MarginalCounts,
    neighbour: MarginalCounts,
    randomness: Randomness,
    wrap: Wrap | None = None,
    lean: int = 0,
) -> float:
    """The loss of one random transcript of ``base`` against ``neighbour``, in the unit of the budget.

    Args:
        wrap: replaces the randomness that the plan gets (for controls).
        lean: the sign of all noise, or 0 for random noise.
    """
    outer = wrap or _as_it_is
    first = first_run(plan, base, randomness, outer, lean)
    return loss_between(plan, first, run_again(plan, first, base, neighbour, randomness, outer))


@dataclass(frozen=True)
class Transcript:
    """A run, and the tape of its choices and its noise."""

    run: AIMRun
    tape: Tape


def first_run(
    plan: AIMPlan,
    counts: MarginalCounts,
    randomness: Randomness,
    wrap: Wrap | None = None,
    lean: int = 0,
    prior: Model | None = None,
) -> Transcript:
    """A random transcript of a table with these counts; other arguments as of ``aim_loss``."""

    def leaning(noise: Noise, size: int) -> NDArray[np.int64]:
        drawn = randomness.draw(noise, size)
        return lean * (np.abs(drawn) + _LEAN * math.ceil(noise.variance**0.5)) if lean else drawn

    tape, outer = Tape(), wrap or _as_it_is
    taped = outer(TapedNoise(randomness, tape, fresh=leaning))
    return Transcript(_scripted(plan, tape).run_on(counts, taped, prior=prior), tape)


def run_again(
    plan: AIMPlan,
    first: Transcript,
    base: MarginalCounts,
    neighbour: MarginalCounts,
    randomness: Randomness,
    wrap: Wrap | None = None,
    prior: Model | None = None,
) -> Transcript:
    """The run on the neighbour, with the choices of ``first`` and the noise that gives the same measurements."""
    changes = {clique: base[i] - neighbour[i] for i, clique in enumerate(plan.counted)}
    changes[()] = changes[plan.counted[0]].sum(keepdims=True)
    moved = in_order([cells_of(plan.workload.domain, changes, output) for output in first.run.outputs])
    tape, outer = Tape(script=first.tape), wrap or _as_it_is
    taped = outer(TapedNoise(randomness, tape, moved))
    return Transcript(_scripted(plan, tape).run_on(neighbour, taped, prior=prior), tape)


def cells_of(
    domain: Domain, counts: Mapping[Clique, NDArray[np.int64]], output: RunOutput
) -> NDArray[np.int64]:
    """The cells of one draw: of a marginal, or of several."""
    columns = output.query["columns"]
    every = columns if output.query["kind"] == "marginals" else [columns]
    return np.concatenate([counts[tuple(map(domain.index, names))] for names in every])


def loss_between(plan: AIMPlan, first: Transcript, second: Transcript, *, largest: bool = False) -> float:
    """The loss of the first transcript against the second; infinite where a release differs.

    Args:
        largest: take the largest loss of each measurement over all values that its noise could have had.
    """
    if not _same(plan, first.run, second.run) or not first.tape.matches(second.tape):
        return math.inf
    chosen = worst_choice_loss(first.tape, second.tape, pure=isinstance(plan.budget, PureDP))
    return chosen + abs(noise_loss(first.tape, second.tape, largest=largest))


def _same(plan: AIMPlan, one: AIMRun, other: AIMRun) -> bool:
    """Whether both runs released the same, bit for bit."""
    facts = [(r.total, r.total_variance, r.rounds, r.spent, r.model.cliques) for r in (one, other)]
    if facts[0] != facts[1] or len(one.measurements) != len(other.measurements):
        return False
    measured = all(
        a.clique == b.clique and a.variance == b.variance and np.array_equal(a.values, b.values)
        for a, b in zip(one.measurements, other.measurements, strict=True)
    )
    answers = zip(one.model.marginals(plan.counted), other.model.marginals(plan.counted), strict=True)
    return measured and all(np.array_equal(a, b) for a, b in answers)


class _HalfSensitivity(Candidates):
    @cached_property
    def sensitivity(self) -> int:
        return super().sensitivity // 2


class BrokenSelection(AIMPlan):
    """BROKEN: claims half the sensitivity of its scores. True loss of the selections: 2 epsilon, 4 rho."""

    @cached_property
    def candidates(self) -> Candidates:
        """The same candidates with a smaller claim."""
        honest = super().candidates
        return _HalfSensitivity(honest.workload, honest.unit, honest.unions, honest.power)


def _as_it_is(randomness: Randomness) -> Randomness:
    return randomness


def _scripted(plan: AIMPlan, tape: Tape) -> AIMPlan:
    """The plan, with broken parts if it has any, whose choices go through the tape."""
    clone = copy.copy(plan)
    object.__setattr__(clone, "selector", lambda budget: TapedSelector(budget, tape))
    return clone
