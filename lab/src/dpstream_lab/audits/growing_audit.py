"""The exact loss of schedulers around black boxes, when one record of a growing database is replaced.

Transcripts of whole streams, at the door (``door``); and the exact law of SmallDB, whose whole run is one choice, on
all databases of a few records.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import (
    BBImprover,
    BBScheduler,
    Database,
    GrowingPlan,
    MWEMPGMBox,
    ScheduledRun,
    SmallDB,
)
from dpstream.families.growing.run_schedule import Growth
from dpstream.mechanisms import MWEMPGM
from dpstream.mechanisms.engine import Selector
from dpstream.mechanisms.mwem_pgm import MWEMPGMPlan
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.door import Door, as_it_is, choice_loss
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream.tools.evaluate.array_types import Codes
from dpstream_lab.audits.controls import LoneHistograms
from dpstream_lab.audits.subjects import stream_pair, transcripts_of

_ONE = Workload.all_k_way(Domain(("a",), (3,)), 1)
_THREE = Workload.all_k_way(Domain(("a", "b", "c"), (2, 2, 3)), 1)


#: The first run is at 8 records. Some steps end no epoch, others several. At the end most of the budget is spent.
_SUBJECT_SIZES = [5, 4, 2, 9, 1, 12, 40, 3, 60, 100, 500]
#: Streams of other records: a bit of a count is the same in all of them with a probability of 2^-8 at most.
_OTHERS = 8


def arrivals(domain: Domain, sizes: Sequence[int]) -> tuple[Codes, ...]:
    """Invented records for steps of these sizes; nothing is random."""
    start, steps = 0, []
    for size in sizes:
        numbers = np.arange(start, start + size)[:, None] * np.arange(1, len(domain) + 1)
        steps.append((numbers % np.array(domain.sizes)).astype(np.int32))
        start += size
    return tuple(steps)


def growing_plans() -> dict[str, GrowingPlan]:
    """Schedulers and improvers around each black box, by name."""
    plans = {"scheduler around MWEM+PGM, all marginals together": _joined()}
    for name, box in (
        ("MWEM+PGM, one marginal", MWEMPGMBox(_ONE)),
        ("MWEM+PGM, two of three marginals", MWEMPGMBox(_THREE, MWEMPGM(k=2))),
        ("SmallDB", SmallDB(_ONE, size=4)),
    ):
        scheduler, improver = BBScheduler(box, 8, gamma="1/2"), BBImprover(box, 8, c="1/2")
        plans[f"scheduler around {name}"] = scheduler.calibrate(PureDP.of(2))
        plans[f"scheduler around {name}, zCDP"] = scheduler.calibrate(ZCDP.of(1))
        plans[f"improver around {name}, zCDP"] = improver.calibrate(ZCDP.of(1))
    return plans


def _joined() -> GrowingPlan:
    return BBScheduler(MWEMPGMBox(_THREE, MWEMPGM(k=3)), 8, gamma="1/2").calibrate(PureDP.of(2))


def growing_subjects() -> Iterator[Subject]:
    """All plans; then the controls."""
    for name, plan in growing_plans().items():
        yield growing_subject(plan, name)
    one = MWEMPGMBox(_ONE)
    plan, zcdp = (BBScheduler(one, 8, gamma="1/2").calibrate(budget) for budget in (PureDP.of(2), ZCDP.of(1)))
    for name, broken, wrap in (
        ("budgets that do not decay", _with_growth(plan, _NotDecaying), as_it_is),
        ("a run at every step, each epoch charged once", _with_growth(plan, _EveryStep), as_it_is),
        ("budgets of past epochs given again", _with_growth(plan, _PastAgain), as_it_is),
        ("2/3 of the noise", plan, QuietNoise),
        ("2/3 of the noise, zCDP", zcdp, QuietNoise),
        ("noise for a record that is added", replace(plan, box=MWEMPGMBox(_ONE, _AddedOnly())), as_it_is),
        ("joint noise drawn apart", _joined(), LoneHistograms),
    ):
        yield growing_subject(broken, f"scheduler, {name}", wrap=wrap, control=True)


def growing_subject(
    plan: GrowingPlan, name: str, sizes: Sequence[int] = _SUBJECT_SIZES, **more: Any
) -> Subject:
    """The first record of the first step or of the last one has other values; and streams of other records.

    Args:
        sizes: the records that arrive at each step.
    """
    steps, width = arrivals(plan.domain, sizes), np.array(plan.domain.sizes)

    def batches(codes: Sequence[Codes]) -> list[EncodedBatch]:
        return [EncodedBatch(plan.domain, step) for step in codes]

    def pairs() -> Iterator[Pair]:
        base = batches(steps)
        for at in (0, len(steps) - 1):
            changed = steps[at].copy()
            changed[0] = (changed[0] + 1) % width
            runs = base, batches([*steps[:at], changed, *steps[at + 1 :]])
            yield stream_pair(plan, f"a record of step {at + 1}", *runs)
            yield stream_pair(plan, f"a record of step {at + 1}", *runs[::-1])
        generator = np.random.default_rng(1)
        for _ in range(_OTHERS):
            codes = [
                generator.integers(plan.domain.sizes, size=step.shape).astype(np.int32) for step in steps
            ]
            yield stream_pair(plan, "other records", base, batches(codes), far=True)

    return Subject(name, plan.budget, pairs, **more)


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


#: Of the exact law of SmallDB: cells, and records of the private databases and of those it chooses among.
_CELLS, _RECORDS, _SIZES = 3, (2, 3, 5), (2, 3)


_TRANSCRIPTS = transcripts_of(growing_subjects, 2, 30)


def audit_growing(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Schedulers and improvers around each black box, then the controls. Cost: short: about 2 s of one core."""
    yield from _TRANSCRIPTS(length, randomness, progress)
    progress("SmallDB, all databases of a few records")
    workload = Workload.all_k_way(Domain(("a",), (_CELLS,)), 1)
    for budget in (PureDP.of(1), ZCDP.of("1/2")):
        yield exact_smalldb(SmallDB(workload), budget)
        yield exact_smalldb(BrokenHalfScores(workload), budget, control=True)


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
                laws[counts] = door.choices[0].law
        for counts, place in itertools.product(laws, itertools.permutations(range(_CELLS), 2)):
            moved = list(counts)
            moved[place[0]] -= 1
            moved[place[1]] += 1
            if tuple(moved) in laws:
                loss = choice_loss(laws[counts], laws[tuple(moved)], pure=pure)
                worst.see(loss, f"{counts} against {tuple(moved)}, {size} records chosen")
    return AuditFinding.of(
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
