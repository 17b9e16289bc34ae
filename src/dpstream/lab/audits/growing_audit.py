"""The exact loss of schedulers around black boxes, when one record of a growing database is replaced.

A transcript is everything that a stream reveals: the choices and measurements of every run of the black box, and all
releases. The stream's own code runs twice: on a database, recording choices and noise; and on its neighbour, with the
same choices and with the noise that makes every measurement the same. If a release differs all the same, private
information reached it other than through choices and noise, and the loss is infinite. Otherwise it is known exactly:

* pure: the log-ratio of the transcript's probabilities, which must stay within epsilon for every transcript. Some
  transcripts are random; in two more all noise leans to the side that reveals most.
* zCDP: the shift of the noise (``shift^2 / 2 sigma^2``), and for each choice the squared range of its privacy loss,
  divided by 8 (Cesar, Rogers 2021), at the scores that this transcript leads to.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Event, HistogramsNoise, Noise, PureDP, Randomness
from dpstream.core.privacy.budget import Budget
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import MWEM, BlackBox, Counts, Database, GrowingPlan, MWEMPGMBox, SmallDB
from dpstream.families.growing.blackbox import BoxRun
from dpstream.families.growing.distributions import AnyTable
from dpstream.families.tabular import MWEMPGM
from dpstream.families.tabular.mwem_pgm import MWEMPGMPlan
from dpstream.families.tabular.selector import Selector
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.growing_subjects import Codes, GrowingSubject, growing_subjects
from dpstream.lab.audits.published_list import published_lines
from dpstream.lab.audits.transcript_tape import Tape, TapedNoise, TapedSelector, noise_loss, worst_choice_loss

__all__ = ["GrowingSubject", "audit_growing", "exact_growing", "growing_loss"]

#: Transcripts for each pair of neighbours. In the first two all noise leans to one side.
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 4, "long": 60}
#: Leaning noise is moved by so many standard deviations, far enough to have the same sign on both neighbours.
_LEAN = 4


def audit_growing(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Schedulers and improvers around each black box, then the controls. Cost: short: about 2 s of one core."""
    for subject in growing_subjects():
        progress(f"control: {subject.name}" if subject.control else subject.name)
        yield exact_growing(subject, _TRANSCRIPTS[length], randomness)


def exact_growing(subject: GrowingSubject, transcripts: int, randomness: Randomness) -> AuditFinding:
    """The largest loss over transcripts, with the canary in the first step and in the last."""
    began = time.perf_counter()
    plan, worst = subject.plan, Largest()
    for at in (0, len(subject.steps) - 1):
        other = _replaced(subject.plan, subject.steps, at)
        for number in range(transcripts):
            # The noise of the canary's cells is positive, then negative, then random.
            lean = (1, -1)[number] if number < 2 else 0
            loss = growing_loss(plan, subject.steps, other, randomness, subject.wrap, lean)
            worst.see(loss, f"a record of step {at + 1}, {'noise of one sign' if lean else 'random noise'}")
    return AuditFinding.exact(
        began,
        subject=f"{subject.name}, transcripts",
        claimed=plan.budget,
        found=worst.loss,
        control=subject.control,
        detail=f"{2 * transcripts} transcripts; most with {worst.where}",
    )


def _replaced(plan: GrowingPlan, steps: Sequence[Codes], at: int) -> tuple[Codes, ...]:
    """The steps with other values in the first record of step ``at``."""
    changed = steps[at].copy()
    changed[0] = (changed[0] + 1) % np.array(plan.domain.sizes)
    return (*steps[:at], changed, *steps[at + 1 :])


def growing_loss(
    plan: GrowingPlan,
    base: Sequence[Codes],
    neighbour: Sequence[Codes],
    randomness: Randomness,
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness,
    lean: int = 0,
) -> float:
    """The loss of one random transcript of ``base`` against ``neighbour``, in the unit of the budget.

    Args:
        wrap: replaces the randomness that the plan gets (for controls).
        lean: the sign of the noise of all cells that differ, or 0 for random noise.

    Errors:
        ConfigError: this audit cannot record the choices of the black box.
    """
    moved = _Moved(plan, base, neighbour)
    first, second = _RunTape(), _RunTape()
    second.script = first

    def leaning(noise: Noise, size: int) -> NDArray[np.int64]:
        drawn, shift = randomness.draw(noise, size), moved.of(first.t, first.last, size)
        away = np.abs(drawn) + _LEAN * math.ceil(noise.variance**0.5)
        return np.where(shift != 0, lean * np.sign(shift) * away, drawn) if lean else drawn

    def shift(at: int, size: int) -> NDArray[np.int64]:
        return moved.of(second.t, second.last, size)

    released = _run(plan, base, first, wrap(TapedNoise(randomness, first, fresh=leaning)))
    again = _run(plan, neighbour, second, wrap(TapedNoise(randomness, second, shift)))
    same = len(released) == len(again) and all(map(np.array_equal, released, again))
    if not same or not first.matches(second):
        return math.inf
    if not isinstance(plan.budget, PureDP):
        return worst_choice_loss(first, second, pure=False) + noise_loss(first, second)
    # Of joint draws the largest over all values: random ones show little of it.
    joint = any(isinstance(noise, HistogramsNoise) for noise, _ in first.draws)
    return abs(first.chosen_loss(second) + noise_loss(first, second, largest=joint))


class _Moved:
    """The differences between the counts of two databases, at the end of each step."""

    def __init__(self, plan: GrowingPlan, base: Sequence[Codes], neighbour: Sequence[Codes]) -> None:
        reads = plan.box.reads
        assert isinstance(reads, Counts)
        sides = [
            [EncodedBatch(reads.domain, codes).count(reads.cliques) for codes in steps]
            for steps in (base, neighbour)
        ]
        self._sizes = np.cumsum([len(codes) for codes in base])
        self._changes = [
            np.cumsum([one[i] - other[i] for one, other in zip(*sides, strict=True)], axis=0)
            for i in range(len(reads.cliques))
        ]
        self._smallest = int(np.argmin([change.shape[1] for change in self._changes]))

    def of(self, t: int, choice: int | None, size: int) -> NDArray[np.int64]:
        """The difference in what was chosen: a marginal, or one of all cells; without a choice, all marginals, or the
        smallest one."""
        step = int(np.searchsorted(self._sizes, t))
        counts: list[NDArray[np.int64]] = [change[step] for change in self._changes]
        cells = np.concatenate(counts)
        if choice is None:
            return cells if size == len(cells) else counts[self._smallest]
        # A single noise, where there are several cells, is that of one cell.
        return cells[choice : choice + 1] if size == 1 and len(cells) > 1 else counts[choice]


@dataclass
class _RunTape(Tape):
    """A tape that knows the current run of the black box.

    Attributes:
        t: the number of records of this run.
        before: the number of choices before this run.
    """

    t: int = 0
    before: int = 0

    def begin(self, t: int) -> None:
        """Begin a run of the black box on ``t`` records."""
        self.t, self.before = t, len(self.choices)

    @property
    def last(self) -> int | None:
        """The last choice of this run; None before its first one."""
        return self.choices[-1].chosen if len(self.choices) > self.before else None


def _run(
    plan: GrowingPlan, steps: Sequence[Codes], tape: _RunTape, randomness: Randomness
) -> list[NDArray[np.generic]]:
    """Everything that is released, as it is stored, with the stated accuracy and the published noisy counts."""
    plan = replace(plan, box=_WatchedBox(_scripted(plan.box, tape), tape))
    state, released = plan.start(), list[NDArray[np.generic]]()
    for codes in steps:
        synthesis = plan.step(state, EncodedBatch(plan.domain, codes), randomness)
        packed = synthesis.pack()
        facts = json.dumps([packed.meta, synthesis.accuracy(), list(packed.arrays)])
        released += [np.frombuffer(facts.encode(), np.uint8), *packed.arrays.values()]
        released.append(published_lines(synthesis))
    return released


@dataclass(frozen=True)
class _WatchedBox(BlackBox[AnyTable]):
    """A black box that tells the tape when a run begins."""

    inner: BlackBox[AnyTable]
    tape: _RunTape

    @property
    def reads(self) -> Counts:
        """As the inner black box."""
        assert isinstance(self.inner.reads, Counts)
        return self.inner.reads

    def options(self) -> dict[str, Any]:
        """As the inner black box."""
        return self.inner.options()

    def describe(self) -> str:
        """As the inner black box."""
        return self.inner.describe()

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> AnyTable:
        """The released table of ``full_run``."""
        return self.full_run(budget, data, randomness).released

    def full_run(self, budget: Budget, data: Database, randomness: Randomness) -> BoxRun[AnyTable]:
        """Tell the tape that a run begins, and run the inner black box."""
        self.tape.begin(data.t)
        return self.inner.full_run(budget, data, randomness)

    def unpack(self, packed: Packed) -> AnyTable:
        """As the inner black box."""
        return self.inner.unpack(packed)


@dataclass(frozen=True)
class _ScriptedPlan(MWEMPGMPlan):
    tape: _RunTape | None = None

    def _selector(self, budget: Budget) -> Selector:
        return TapedSelector(budget, self.tape or Tape())


@dataclass(frozen=True)
class _ScriptedRecipe(MWEMPGM):
    inner: MWEMPGM = field(default_factory=MWEMPGM)
    tape: _RunTape | None = None

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> MWEMPGMPlan:
        """The inner recipe's plan, whose choices go through the tape."""
        plan = self.inner.calibrate(workload, budget, unit)
        return _ScriptedPlan(plan.recipe, plan.workload, plan.budget, plan.unit, plan.k, self.tape)


@dataclass(frozen=True)
class _ScriptedMWEM(MWEM):
    tape: _RunTape | None = None

    def _selector(self, budget: Budget) -> Selector:
        return TapedSelector(budget, self.tape or Tape())


@dataclass(frozen=True)
class _ScriptedSmallDB(SmallDB):
    tape: _RunTape | None = None

    def _selector(self, budget: Budget) -> Selector:
        return TapedSelector(budget, self.tape or Tape())


def _scripted(box: BlackBox[AnyTable], tape: _RunTape) -> BlackBox[AnyTable]:
    """The same black box, whose choices go through the tape."""
    if isinstance(box, MWEMPGMBox):
        return MWEMPGMBox(box.workload, _ScriptedRecipe(inner=box.recipe, tape=tape))
    if isinstance(box, MWEM):
        return _ScriptedMWEM(box.workload, box.rounds, box.passes, tape)
    if isinstance(box, SmallDB):
        return _ScriptedSmallDB(box.workload, box.size, tape)
    raise ConfigError(
        f"the audit cannot record the choices of {box.name}", where="audit", allowed="mwem-pgm, mwem, smalldb"
    )
