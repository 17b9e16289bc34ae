"""The exact loss of schedulers around black boxes, when one record of a growing database is replaced.

Transcripts of whole streams, at the door (``door``); and the exact law of SmallDB, whose whole run is one choice, on
all databases of a few records.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import (
    MWEM,
    BBImprover,
    BBScheduler,
    Database,
    GrowingPlan,
    MWEMPGMBox,
    ScheduledRun,
    SmallDB,
)
from dpstream.families.growing.run_schedule import Growth
from dpstream.lab.audits.controls import LoneHistograms, QuietNoise
from dpstream.lab.audits.door import Door, beside_the_door, stream_loss
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.mechanisms import MWEMPGM
from dpstream.mechanisms.mwem_pgm import MWEMPGMPlan
from dpstream.mechanisms.selector import Selector
from dpstream.tools.evaluate.array_types import Codes

_ONE = Workload.all_k_way(Domain(("a",), (3,)), 1)
_THREE = Workload.all_k_way(Domain(("a", "b", "c"), (2, 2, 3)), 1)


@dataclass(frozen=True)
class GrowingSubject:
    """One plan to be audited, on a database that grows to ``steps``.

    Attributes:
        steps: the records that arrive at each step. The canary is the first record of the first or of the last step.
        wrap: replaces the randomness that the plan gets (for controls).
    """

    name: str
    plan: GrowingPlan
    steps: tuple[Codes, ...]
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness
    control: bool = False


def growing_subjects() -> tuple[GrowingSubject, ...]:
    """Honest plans, then controls."""
    return (*_honest(), *_controls())


def arrivals(domain: Domain, sizes: list[int]) -> tuple[Codes, ...]:
    """Invented records for steps of these sizes; nothing is random."""
    start, steps = 0, []
    for size in sizes:
        numbers = np.arange(start, start + size)[:, None] * np.arange(1, len(domain) + 1)
        steps.append((numbers % np.array(domain.sizes)).astype(np.int32))
        start += size
    return tuple(steps)


#: The first run is at 8 records. Some steps end no epoch, others several. At the end most of the budget is spent.
_SUBJECT_SIZES = [5, 4, 2, 9, 1, 12, 40, 3, 60, 100, 500]


def _honest() -> Iterator[GrowingSubject]:
    one, two = MWEMPGMBox(_ONE), MWEMPGMBox(_THREE, MWEMPGM(k=2))
    few = MWEM(_THREE, 3, passes=2)
    yield _together("scheduler around MWEM+PGM, all marginals together")
    for name, box, workload in (
        ("MWEM+PGM, one marginal", one, _ONE),
        ("MWEM+PGM, two of three marginals", two, _THREE),
        ("MWEM, three of seven cells", few, _THREE),
        ("SmallDB", SmallDB(_ONE, size=4), _ONE),
    ):
        scheduler, improver = BBScheduler(box, 8, gamma="1/2"), BBImprover(box, 8, c="1/2")
        steps = arrivals(workload.domain, _SUBJECT_SIZES)
        yield GrowingSubject(f"scheduler around {name}", scheduler.calibrate(PureDP.of(2)), steps)
        yield GrowingSubject(f"scheduler around {name}, zCDP", scheduler.calibrate(ZCDP.of(1)), steps)
        yield GrowingSubject(f"improver around {name}, zCDP", improver.calibrate(ZCDP.of(1)), steps)


def _controls() -> Iterator[GrowingSubject]:
    steps = arrivals(_ONE.domain, _SUBJECT_SIZES)
    plan = BBScheduler(MWEMPGMBox(_ONE), 8, gamma="1/2").calibrate(PureDP.of(2))
    zcdp = BBScheduler(MWEMPGMBox(_ONE), 8, gamma="1/2").calibrate(ZCDP.of(1))

    def control(
        name: str,
        broken: GrowingPlan,
        wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness,
    ) -> GrowingSubject:
        return GrowingSubject(f"scheduler, {name}", broken, steps, wrap, control=True)

    yield control("budgets that do not decay", _with_growth(plan, _NotDecaying))
    yield control("a run at every step, each epoch charged once", _with_growth(plan, _EveryStep))
    yield control("budgets of past epochs given again", _with_growth(plan, _PastAgain))
    yield control("2/3 of the noise", plan, QuietNoise)
    yield control("2/3 of the noise, zCDP", zcdp, QuietNoise)
    added = replace(plan, box=MWEMPGMBox(_ONE, _AddedOnly()))
    yield control("noise for a record that is added", added)
    yield _together("scheduler, joint noise drawn apart", LoneHistograms, control=True)


def _together(
    name: str,
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness,
    *,
    control: bool = False,
) -> GrowingSubject:
    box = MWEMPGMBox(_THREE, MWEMPGM(k=3))
    plan = BBScheduler(box, 8, gamma="1/2").calibrate(PureDP.of(2))
    return GrowingSubject(name, plan, arrivals(_THREE.domain, _SUBJECT_SIZES), wrap, control=control)


# Broken plans.


def _with_growth(plan: GrowingPlan, kind: type[Growth]) -> GrowingPlan:
    own = plan.schedule
    assert isinstance(own, Growth)
    broken = kind(n=own.n, budget=own.budget, beta=own.beta, accuracy=own.accuracy, gamma=own.gamma)
    return replace(plan, schedule=broken)


class _NotDecaying(Growth):
    """BROKEN: every run has the budget of the first four epochs together."""

    def run(self, first: int, last: int, t: int) -> ScheduledRun:
        """A run whose budget does not decay."""
        return replace(super().run(0, 3, t), first=first, last=last)


class _EveryStep(Growth):
    """BROKEN: the black box runs at every step with the budget of its epoch, as if it ran once per epoch."""

    def due(self, done: int, t: int) -> ScheduledRun | None:
        """A run at every step."""
        epoch = self.epoch(t)
        return None if epoch < 0 else self.run(min(done + 1, epoch), epoch, t)


class _PastAgain(Growth):
    """BROKEN: a run gets the budgets of all epochs so far, which earlier runs have spent already."""

    def due(self, done: int, t: int) -> ScheduledRun | None:
        """The honest run, with the budgets from the first epoch on."""
        run = super().due(done, t)
        return None if run is None else self.run(0, run.last, t)


@dataclass(frozen=True)
class _AddedOnly(MWEMPGM):
    """BROKEN: noise for a record that is added or removed, which moves one cell instead of two."""

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> MWEMPGMPlan:
        """A plan with the noise of twice the budget; the number of records stays public."""
        return super().calibrate(workload, budget.scaled(2), unit)


#: Transcripts for each pair of neighbours.
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 4, "long": 60}
#: Streams of other records: a bit of a count is the same in all of them with a probability of 2^-8 at most.
_OTHERS = 8
#: Of the exact law of SmallDB: cells, and records of the private databases and of those it chooses among.
_CELLS, _RECORDS, _SIZES = 3, (2, 3, 5), (2, 3)


def audit_growing(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Schedulers and improvers around each black box, then the controls. Cost: short: about 2 s of one core."""
    for subject in growing_subjects():
        progress(f"control: {subject.name}" if subject.control else subject.name)
        yield exact_growing(subject, _TRANSCRIPTS[length], randomness)
    progress("SmallDB, all databases of a few records")
    workload = Workload.all_k_way(Domain(("a",), (_CELLS,)), 1)
    for budget in (PureDP.of(1), ZCDP.of("1/2")):
        yield exact_smalldb(SmallDB(workload), budget)
        yield exact_smalldb(BrokenHalfScores(workload), budget, control=True)


def exact_growing(subject: GrowingSubject, transcripts: int, randomness: Randomness) -> AuditFinding:
    """The largest loss over transcripts, with the canary in the first step and in the last."""
    began = time.perf_counter()
    plan, worst = subject.plan, Largest()
    for at in (0, len(subject.steps) - 1):
        other = _replaced(subject.plan, subject.steps, at)
        batches, changed = (
            [EncodedBatch(plan.domain, codes) for codes in steps] for steps in (subject.steps, other)
        )
        for one, two in ((batches, changed), (changed, batches)):
            for _ in range(-(-transcripts // 2)):
                worst.see(stream_loss(plan, one, two, randomness, subject.wrap), f"a record of step {at + 1}")
    generator = np.random.default_rng(1)
    others = [
        [
            EncodedBatch(
                plan.domain, generator.integers(plan.domain.sizes, size=codes.shape).astype(np.int32)
            )
            for codes in subject.steps
        ]
        for _ in range(_OTHERS)
    ]
    first = [EncodedBatch(plan.domain, codes) for codes in subject.steps]
    words = beside_the_door(plan, first, others, randomness, subject.wrap)
    worst.see(math.inf if words else 0.0, f"other records: {words}")
    return AuditFinding.exact(
        began,
        subject=f"{subject.name}, transcripts",
        claimed=plan.budget,
        found=worst.loss,
        control=subject.control,
        detail=f"transcripts in both orders; most with {worst.where}",
    )


def _replaced(plan: GrowingPlan, steps: Sequence[Codes], at: int) -> tuple[Codes, ...]:
    """The steps with other values in the first record of step ``at``."""
    changed = steps[at].copy()
    changed[0] = (changed[0] + 1) % np.array(plan.domain.sizes)
    return (*steps[:at], changed, *steps[at + 1 :])


def exact_smalldb(box: SmallDB, budget: Budget, *, control: bool = False) -> AuditFinding:
    """The largest loss over all databases of a few records, all replacements of a record, and all outcomes; from what
    ``run`` itself asks the selector for."""
    began, worst, pure = time.perf_counter(), Largest(), isinstance(budget, PureDP)
    for size, t in itertools.product(_SIZES, _RECORDS):
        own, laws = replace(box, size=size), dict[tuple[int, ...], np.ndarray]()
        for counts in itertools.product(range(t + 1), repeat=_CELLS):
            if sum(counts) == t:
                door = Door(b"law")
                own.run(budget, Database(t, (np.array(counts, np.int64),)), door)
                laws[counts] = np.log(door.choices[0].law)
        for counts, place in itertools.product(laws, itertools.permutations(range(_CELLS), 2)):
            moved = list(counts)
            moved[place[0]] -= 1
            moved[place[1]] += 1
            if tuple(moved) in laws:
                ratio = laws[counts] - laws[tuple(moved)]
                loss = float(np.abs(ratio).max()) if pure else float(ratio.max() - ratio.min()) ** 2 / 8
                worst.see(loss, f"{counts} against {tuple(moved)}, {size} records chosen")
    return AuditFinding.exact(
        began,
        subject=f"SmallDB{', half the sensitivity of its scores' * control}, all outcomes, {budget}",
        claimed=budget,
        found=worst.loss,
        control=control,
        detail=worst.where,
    )


class BrokenHalfScores(SmallDB):
    """BROKEN: claims half the sensitivity of its scores."""

    def _selector(self, budget: Budget) -> Selector:
        return Selector(budget.scaled(Fraction(2 if isinstance(budget, PureDP) else 4)))
