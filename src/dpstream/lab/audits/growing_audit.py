"""The exact loss of schedulers around black boxes, when one record of a growing database is replaced.

Transcripts of whole streams, at the door (``door``); and the exact law of SmallDB, whose whole run is one choice, on
all databases of a few records.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpstream.core.privacy import ZCDP, PureDP, Randomness
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import Database, GrowingPlan, SmallDB
from dpstream.families.tabular.selector import Selector
from dpstream.lab.audits.door import Door, beside_the_door, stream_loss
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.growing_subjects import GrowingSubject, growing_subjects
from dpstream.tools.evaluate.array_types import Codes

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
