"""The exact loss of schedulers around black boxes: one early record of a growing database is replaced.

A transcript is everything that a stream reveals: what every run of the black box chose and measured, and all releases.
The stream's own code runs on a database, writing down choices and noise; and on its neighbour, with the choices given
and the noise that makes every measurement the same. Where any release differs all the same, something private reached
it past choices and noise, and the loss is infinite. Otherwise the loss is known exactly:

* pure: the log-ratio of the transcript's probabilities, which has to stay within epsilon for every transcript. Some
  transcripts are drawn; in two more all noise leans to the side that tells most.
* zCDP: what the noise had to move (``shift^2 / 2 sigma^2``), and for each choice the square of its privacy loss's range
  over 8 (Cesar, Rogers 2021), at the scores that this transcript leads to.
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
from dpstream.core.privacy import Event, Noise, PureDP, Randomness
from dpstream.core.privacy.budget import Budget
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.growing import MWEM, BlackBox, Counts, Database, GrowingPlan, MWEMPGMBox, SmallDB
from dpstream.families.growing.distributions import AnyTable
from dpstream.families.tabular import MWEMPGM
from dpstream.families.tabular.mwem_pgm import MWEMPGMPlan
from dpstream.families.tabular.selector import Selector
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.growing_subjects import Codes, GrowingSubject, growing_subjects
from dpstream.lab.audits.transcript_tape import Tape, TapedNoise, TapedSelector, noise_loss, worst_choice_loss

__all__ = ["GrowingSubject", "audit_growing", "exact_growing", "growing_loss"]

#: Transcripts for each pair of neighbours; two of them lean.
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 4, "long": 60}
#: A leaning noise is so many of its scales larger: then hardly anything is left of the other side.
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
    plan, worst, where = subject.plan, -1.0, ""
    for at in (0, len(subject.steps) - 1):
        other = _replaced(subject.plan, subject.steps, at)
        for number in range(transcripts):
            # Both leanings: the canary's cells up, or down.
            lean = (1, -1)[number] if number < 2 else 0
            loss = growing_loss(plan, subject.steps, other, randomness, subject.wrap, lean)
            if loss > worst:
                worst, where = (
                    loss,
                    f"a record of step {at + 1}, {'noise that leans' if lean else 'drawn noise'}",
                )
    return AuditFinding.exact(
        began,
        subject=f"{subject.name}, transcripts",
        claimed=plan.budget,
        found=worst,
        control=subject.control,
        detail=f"{2 * transcripts} transcripts; most with {where}",
    )


def _replaced(plan: GrowingPlan, steps: Sequence[Codes], at: int) -> tuple[Codes, ...]:
    """Every value of the first record of one step is another one."""
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
    """What one random transcript of ``base`` loses against ``neighbour``: epsilon or rho, as the budget has it.

    Errors:
        ConfigError: a black box that this audit cannot script.
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
    return abs(first.chosen_loss(second) + noise_loss(first, second))


class _Moved:
    """By how much the counts of the two databases differ, at each size at which a run may be made."""

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
        """The change of what was chosen: a marginal, or one cell of all; the smallest marginal without choice."""
        step = int(np.searchsorted(self._sizes, t))
        counts: list[NDArray[np.int64]] = [change[step] for change in self._changes]
        if choice is None:
            return counts[self._smallest]
        cells = np.concatenate(counts)
        # One number was drawn, of many: it is a cell's.
        return cells[choice : choice + 1] if size == 1 and len(cells) > 1 else counts[choice]


@dataclass
class _RunTape(Tape):
    """A tape that knows which run of the black box it is in."""

    t: int = 0
    before: int = 0

    def begin(self, t: int) -> None:
        """A run of the black box."""
        self.t, self.before = t, len(self.choices)

    @property
    def last(self) -> int | None:
        """What this run chose last; None before its first choice."""
        return self.choices[-1].chosen if len(self.choices) > self.before else None


def _run(
    plan: GrowingPlan, steps: Sequence[Codes], tape: _RunTape, randomness: Randomness
) -> list[NDArray[np.generic]]:
    """Everything that is released, as it is kept, with the stated accuracy."""
    plan = replace(plan, box=_WatchedBox(_scripted(plan.box, tape), tape))
    state, released = plan.start(), list[NDArray[np.generic]]()
    for codes in steps:
        synthesis = plan.step(state, EncodedBatch(plan.domain, codes), randomness)
        packed = synthesis.pack()
        told = json.dumps([packed.meta, synthesis.accuracy(), list(packed.arrays)])
        released += [np.frombuffer(told.encode(), np.uint8), *packed.arrays.values()]
    return released


@dataclass(frozen=True)
class _WatchedBox(BlackBox[AnyTable]):
    """A black box that tells the tape when a run begins."""

    inner: BlackBox[AnyTable]
    tape: _RunTape

    @property
    def reads(self) -> Counts:
        """Of the black box inside."""
        assert isinstance(self.inner.reads, Counts)
        return self.inner.reads

    def options(self) -> dict[str, Any]:
        """Of the black box inside."""
        return self.inner.options()

    def describe(self) -> str:
        """Of the black box inside."""
        return self.inner.describe()

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> AnyTable:
        """Of the black box inside."""
        self.tape.begin(data.t)
        return self.inner.run(budget, data, randomness)

    def unpack(self, packed: Packed) -> AnyTable:
        """Of the black box inside."""
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
        """As the recipe does, whatever it is; its choices by the tape."""
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
    """The same black box, with choices by the tape."""
    if isinstance(box, MWEMPGMBox):
        return MWEMPGMBox(box.workload, _ScriptedRecipe(inner=box.recipe, tape=tape))
    if isinstance(box, MWEM):
        return _ScriptedMWEM(box.workload, box.rounds, box.passes, tape)
    if isinstance(box, SmallDB):
        return _ScriptedSmallDB(box.workload, box.size, tape)
    raise ConfigError(f"no script for {box.name}", where="audit", allowed="mwem-pgm, mwem, smalldb")
