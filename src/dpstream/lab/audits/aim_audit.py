"""The exact loss of an AIM run: one record of the table is there or not, or is another one.

A transcript is everything that a run reveals: what it chose and measured, how often, the model and its total. The
plan's own code runs on the counts of a table, writing down choices and noise; and on those of its neighbour, with the
choices given and with the noise that makes every measurement the same. Where anything released differs all the same
(another number of rounds, another total), something private reached it past choices and noise, and the loss is
infinite. Otherwise the loss of the transcript is known exactly:

* pure: for what was measured, the log-ratio of the probabilities; for each choice, the largest log-ratio of an
  outcome at the scores that this transcript leads to. Both together have to stay within epsilon for every transcript.
  Some are drawn; in two more all noise leans to one side, so that every measurement tells the most.
* zCDP: what the noise had to move (``shift^2 / 2 sigma^2``), and for each choice the square of its privacy loss's range
  over 8 (Cesar, Rogers 2021).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model
from dpstream.core.privacy import (
    ZCDP,
    Budget,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Noise,
    PureDP,
    Randomness,
)
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular.aim import AIM, AIMPlan, AIMRun
from dpstream.families.tabular.aim_candidates import Candidates
from dpstream.families.tabular.selector import Selector
from dpstream.lab.audits.finding import AuditLength, Finding, Progress
from dpstream.lab.audits.transcripts import selection_probabilities

__all__ = [
    "Transcript",
    "aim_loss",
    "audit_aim",
    "exact_aim",
    "first_run",
    "loss_between",
    "run_again",
]

#: Transcripts for each pair of neighbours; two of them lean.
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 12, "long": 200}
#: Leaning noise is so many standard deviations larger: then hardly anything is left of the other side.
_LEAN = 4

_DOMAIN = Domain(("a", "b", "c", "d", "e"), (2, 3, 2, 4, 2))

#: Few unions hold all pairs; a small model leaves something to select.
_RECIPES = {
    "nothing selected": AIM(),
    "columns, then a cover": AIM(rounds=100, unions=False),
    "pairs": AIM(rounds=3, unions=False),
    "pairs and unions": AIM(rounds=3, max_cells=60),
}

Counts = Sequence[NDArray[np.int64]]
Wrap = Callable[[Randomness], Randomness]


def audit_aim(length: AuditLength, randomness: Randomness, progress: Progress) -> Iterator[Finding]:
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
            ("2/3 of the noise", plan, BrokenQuietNoise),
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
) -> Finding:
    """The largest loss over transcripts, on a crowded table, on one whose columns agree, and on one without records."""
    began, worst, where = time.perf_counter(), -1.0, ""
    for name, codes in _tables(plan.workload.domain).items():
        for base, other in _neighbours(plan, codes):
            for number in range(transcripts):
                lean = (1, -1)[number] if number < 2 else 0
                loss = aim_loss(plan, base, other, randomness, wrap or _as_it_is, lean)
                if loss > worst:
                    how = "noise that leans" if lean else "drawn noise"
                    worst, where = loss, f"a {name} table, {how}"
    return Finding.exact(
        began,
        subject=f"{subject}, transcripts",
        claimed=plan.budget,
        found=worst,
        control=control,
        detail=f"{transcripts} transcripts of each of some neighbours; most with {where}",
    )


def _tables(domain: Domain) -> dict[str, NDArray[np.int32]]:
    generator = np.random.default_rng(3)
    crowd = np.column_stack([generator.integers(0, size, 600) for size in domain.sizes]).astype(np.int32)
    agreeing = np.column_stack([generator.integers(0, 2, 400)] * len(domain)).astype(np.int32)
    return {"crowded": crowd, "agreeing": agreeing, "nearly empty": crowd[:1]}


def _neighbours(plan: AIMPlan, codes: NDArray[np.int32]) -> Iterator[tuple[Counts, Counts]]:
    """Both directions, since a loss has a sign."""
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
    base: Counts,
    neighbour: Counts,
    randomness: Randomness,
    wrap: Wrap | None = None,
    lean: int = 0,
) -> float:
    """What one random transcript of ``base`` loses against ``neighbour``: epsilon or rho, as the budget has it.

    Args:
        wrap: what is done to the randomness on its way in (controls).
        lean: the side to which all noise leans, or 0.
    """
    outer = wrap or _as_it_is
    first = first_run(plan, base, randomness, outer, lean)
    return loss_between(plan, first, run_again(plan, first, base, neighbour, randomness, outer))


@dataclass(frozen=True)
class Transcript:
    """A run, with its choices and its noise."""

    run: AIMRun
    tape: _Tape


def first_run(
    plan: AIMPlan,
    counts: Counts,
    randomness: Randomness,
    wrap: Wrap | None = None,
    lean: int = 0,
    prior: Model | None = None,
) -> Transcript:
    """A random transcript; arguments as of ``aim_loss``."""
    tape = _Tape(lean=lean)
    outer = wrap or _as_it_is
    return Transcript(
        _scripted(plan, tape).run_on(counts, outer(_Taped(randomness, tape)), prior=prior), tape
    )


def run_again(
    plan: AIMPlan,
    first: Transcript,
    base: Counts,
    neighbour: Counts,
    randomness: Randomness,
    wrap: Wrap | None = None,
    prior: Model | None = None,
) -> Transcript:
    """The neighbour's run with the same choices, and the noise that makes it measure the same."""
    outer = wrap or _as_it_is
    changes = {clique: base[i] - neighbour[i] for i, clique in enumerate(plan.counted)}
    changes[()] = changes[plan.counted[0]].sum(keepdims=True)
    tape = _Tape(script=first.tape, moved=[changes[m.clique] for m in first.run.measurements])
    return Transcript(
        _scripted(plan, tape).run_on(neighbour, outer(_Taped(randomness, tape)), prior=prior), tape
    )


def loss_between(plan: AIMPlan, first: Transcript, second: Transcript, *, largest: bool = False) -> float:
    """What the first transcript loses against the second; infinite where anything released differs.

    Args:
        largest: of each measurement the largest loss over all values that its noise could have had.
    """
    one, other = first.tape, second.tape
    if not _same(plan, first.run, second.run) or len(one.choices) != len(other.choices):
        return math.inf
    pure, chosen, noisy = isinstance(plan.budget, PureDP), 0.0, 0.0
    for (_, law), (_, again) in zip(one.choices, other.choices, strict=True):
        ratio = np.log(law) - np.log(again)
        chosen += float(np.abs(ratio).max()) if pure else float(ratio.max() - ratio.min()) ** 2 / 8
    for (noise, drawn), (_, needed) in zip(one.draws, other.draws, strict=True):
        if isinstance(noise, DiscreteLaplace):
            moved = np.abs(needed - drawn) if largest else np.abs(needed) - np.abs(drawn)
            noisy += float(moved.sum() / noise.scale)
        elif isinstance(noise, DiscreteGaussian):
            noisy += float(((needed - drawn) ** 2).sum() / (2 * noise.sigma_squared))
    return chosen + abs(noisy)


def _same(plan: AIMPlan, one: AIMRun, other: AIMRun) -> bool:
    """Whether everything that the runs released is equal, bit for bit."""
    facts = [(r.total, r.total_variance, r.rounds, r.spent, r.model.cliques) for r in (one, other)]
    if facts[0] != facts[1] or len(one.measurements) != len(other.measurements):
        return False
    measured = all(
        a.clique == b.clique and a.variance == b.variance and np.array_equal(a.values, b.values)
        for a, b in zip(one.measurements, other.measurements, strict=True)
    )
    answers = zip(one.model.marginals(plan.counted), other.model.marginals(plan.counted), strict=True)
    return measured and all(np.array_equal(a, b) for a, b in answers)


class BrokenQuietNoise(Randomness):
    """BROKEN: draws 2/3 of the noise that it is asked for. True loss of the measurements: 3/2 epsilon, 9/4 rho."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(lambda n: inner.words(-(-n // 8)).tobytes()[:n])
        self._inner = inner

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """The quieter noise."""
        if isinstance(noise, DiscreteLaplace):
            return self._inner.draw(DiscreteLaplace(noise.scale * Fraction(2, 3)), size)
        return self._inner.draw(DiscreteGaussian(noise.sigma_squared * Fraction(4, 9)), size)


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


@dataclass
class _Tape:
    """Choices with their laws, and draws, in order; or, with a script, the same ones again."""

    lean: int = 0
    script: _Tape | None = None
    moved: Sequence[NDArray[np.int64]] = ()
    choices: list[tuple[int, NDArray[np.float64]]] = field(default_factory=list)
    draws: list[tuple[Noise, NDArray[np.int64]]] = field(default_factory=list)


class _Taped(Randomness):
    """Fresh noise, noise that leans, or what makes the same measurement."""

    def __init__(self, inner: Randomness, tape: _Tape) -> None:
        super().__init__(lambda n: inner.words(-(-n // 8)).tobytes()[:n])
        self._inner, self._tape = inner, tape

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """See the class."""
        tape, number = self._tape, len(self._tape.draws)
        if tape.script is not None and number < len(tape.script.draws):
            drawn = tape.script.draws[number][1] + tape.moved[number]
        else:
            drawn = self._inner.draw(noise, size)
            if tape.lean:
                drawn = tape.lean * (np.abs(drawn) + _LEAN * math.ceil(noise.variance**0.5))
        tape.draws.append((noise, drawn))
        return drawn


@dataclass(frozen=True)
class _Scripted(Selector):
    """Writes down every choice and the law that it was made by; with a script, takes the choices from there."""

    tape: _Tape = field(default_factory=_Tape)

    def choose(
        self, numerators: Any, denominators: Any, allowed: Any, sensitivity: Any, randomness: Randomness
    ) -> int:
        tape, index = self.tape, np.asarray(allowed)
        law = selection_probabilities(self, numerators[index], denominators[index], sensitivity)
        if tape.script is None or len(tape.choices) >= len(tape.script.choices):
            chosen = super().choose(numerators, denominators, allowed, sensitivity, randomness)
            place = int(np.flatnonzero(index == chosen)[0])
        else:
            place = tape.script.choices[len(tape.choices)][0]
        tape.choices.append((place, law))
        return int(index[place])


def _scripted(plan: AIMPlan, tape: _Tape) -> AIMPlan:
    """The plan as it is, broken parts included, with choices that are written down."""
    clone = copy.copy(plan)
    object.__setattr__(clone, "selector", lambda budget: _Scripted(budget, tape))
    return clone
