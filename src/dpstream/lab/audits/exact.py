"""Exact audits: losses that are computed, not estimated.

* Counters: their certificate (``dpstream.checks``), which runs the code on a tape of unit impulses.
* Selectors: the log-ratio of every outcome's probability on adversarial neighbouring scores. Each score falls, stays or
  rises, starting from ties, ladders and large gaps.
* DP-STabS: the exact log-ratio of whole transcripts of tiny streams (see ``transcripts``), with random noise and with
  noise that leans to one side. The loss of each transcript is exact; the largest one is a lower bound on the loss of
  the mechanism, without any probability of error.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import certify
from dpstream.core.counters import COUNTER_NAMES, CalibratedCounter, SimpleCounter, TreeCounter
from dpstream.core.counters.forest import CalibratedForest
from dpstream.core.privacy import ZCDP, Budget, Event, Noise, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs, DPStabsPlan
from dpstream.lab.audits.controls import (
    BrokenShortTree,
    broken_quiet_counter,
    broken_quiet_selector,
)
from dpstream.lab.audits.counters_audit import calibrated_by_name, divergence_rate
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.transcript_tape import SameWords, selection_probabilities
from dpstream.lab.audits.transcripts import transcript_loss
from dpstream.mechanisms.selector import Selector

_HORIZONS: dict[AuditLength, tuple[int, ...]] = {
    "short": (1, 2, 7, 16, 33, 64, 300),
    "long": (*range(1, 65), 100, 128, 257, 512, 1000, 1500),
}
#: Counters that draw noise ahead have more noises than outputs, so their certificate solves a linear program per tick,
#: which would take hours at 1,500 ticks.
_MAX_AHEAD = 128
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 30, "long": 400}
_BUDGETS: tuple[Budget, ...] = (PureDP.of(1), ZCDP.of("0.5"))
_UNITS = (Event(), Event("replace"))


def audit_exact(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """All exact audits, then their controls. ``randomness`` is for the transcripts."""
    for name, budget, unit in itertools.product(COUNTER_NAMES, _BUDGETS, _UNITS):
        progress(f"certificate of counter {name}")
        every = [(calibrated_by_name(name, t, budget, unit), t) for t in _HORIZONS[length]]
        # Left out: counters that do not take this kind of budget.
        counters = [
            (counter, t)
            for counter, t in every
            if counter is not None and not (isinstance(counter, CalibratedForest) and t > _MAX_AHEAD)
        ]
        if counters:
            yield exact_counter(counters, f"counter {name}, {_words(budget)}, {unit.relation}")
    for budget in (PureDP.of("0.25"), PureDP.of(1), PureDP.of(4), ZCDP.of("0.5"), ZCDP.of("0.01")):
        selector = Selector(budget)
        progress(f"probabilities of {selector.describe()}")
        yield exact_selector(selector, budget, f"{selector.describe()}, {_words(budget)}")
    for subject, plan in _plans():
        progress(subject)
        yield from exact_transcripts(plan, _TRANSCRIPTS[length], randomness, subject)
    yield from _controls(_TRANSCRIPTS[length], randomness, progress)


def _controls(transcripts: int, randomness: Randomness, progress: AuditProgress) -> Iterator[AuditFinding]:
    for budget in _BUDGETS:
        progress(f"controls, {_words(budget)}")
        quiet = broken_quiet_counter(SimpleCounter().calibrate(budget, Event()))
        yield exact_counter(
            [(quiet, 8)], f"counter simple with 2/3 of the noise, {_words(budget)}", control=True
        )
        quiet = broken_quiet_counter(TreeCounter(16).calibrate(budget, Event("replace")))
        subject = f"counter tree with 2/3 of the noise, {_words(budget)}, replace"
        yield exact_counter([(quiet, 16)], subject, control=True)
        short = BrokenShortTree(16).calibrate(budget, Event())
        yield exact_counter([(short, 16)], f"counter tree, one level short, {_words(budget)}", control=True)
        selector = broken_quiet_selector(Selector(budget))
        subject = f"{selector.describe()} with 2/3 of the noise, {_words(budget)}"
        yield exact_selector(selector, budget, subject, control=True)
    progress("controls of DP-STabS")
    _, plan = next(_plans())
    loud = replace(plan, counter=broken_quiet_counter(plan.counter))
    subject = "DP-STabS with 2/3 of the counters' noise"
    *_, finding = exact_transcripts(loud, transcripts, randomness, subject)
    yield replace(finding, control=True)


def exact_counter(
    counters: Sequence[tuple[CalibratedCounter, int]], subject: str, *, control: bool = False
) -> AuditFinding:
    """The largest certified loss of some counters with the same claim, each over its number of ticks."""
    began = time.perf_counter()
    proofs = [certify(counter, ticks) for counter, ticks in counters]
    worst = max(proofs, key=lambda proof: proof.certified)
    horizons = _ranges([proof.ticks for proof in proofs])
    return AuditFinding.exact(
        began,
        subject=f"{subject}, certificate",
        claimed=worst.claimed,
        # A control must be caught by a loss that is proved, not by an upper bound that is too large.
        found=worst.lower if control else worst.certified,
        control=control,
        detail=f"ticks {horizons}; most at tick {worst.worst_step} of {worst.ticks}",
        unit="epsilon" if worst.definition == "pure" else "rho",
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as a text, with three or more consecutive ones as a range.

    >>> _ranges([1, 2, 7, 8, 9, 33])
    '1, 2, 7 to 9, 33'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def exact_selector(
    selector: Selector,
    claimed: Budget,
    subject: str,
    *,
    sensitivity: Fraction | int = 1,
    control: bool = False,
) -> AuditFinding:
    """The largest loss of one choice over adversarial neighbouring scores.

    Scores are multiples of the sensitivity. In a neighbour every score falls, stays or rises by the sensitivity.
    Pure: the largest log-ratio of an outcome. zCDP: the largest Renyi divergence divided by its order.

    Args:
        selector: audited as it is.
        claimed: the claimed cost of a choice.
        sensitivity: the sensitivity of the scores.
    """
    began = time.perf_counter()
    pure, scale = isinstance(claimed, PureDP), Fraction(sensitivity)
    worst = Largest()

    def law(scores: Sequence[int]) -> NDArray[np.float64]:
        numerators = np.array(scores, dtype=np.int64) * scale.numerator
        denominators = np.full(len(scores), scale.denominator, dtype=np.int64)
        return selection_probabilities(selector, numerators, denominators, scale)

    for base in _SCORES:
        before = law(base)
        for moves in itertools.product((-1, 0, 1), repeat=len(base)):
            after = law([score + move for score, move in zip(base, moves, strict=True)])
            loss = float(np.abs(np.log(before / after)).max()) if pure else divergence_rate(before, after)
            worst.see(loss, f"scores {base} with changes {moves}")
    return AuditFinding.exact(
        began,
        subject=f"{subject}, probabilities",
        claimed=float(claimed.amount),
        found=worst.loss,
        control=control,
        detail=f"{sum(3 ** len(base) for base in _SCORES)} pairs; most at {worst.where}",
        unit="epsilon" if pure else "rho",
    )


#: Scores in multiples of the sensitivity: one alone, ties, ladders, one far ahead, two groups.
_SCORES: tuple[tuple[int, ...], ...] = (
    (0,),
    (0, 0),
    (1, 0),
    (30, 0),
    (0, 0, 0),
    (2, 1, 0),
    (20, 20, 0),
    (0, 0, 0, 0),
    (3, 2, 1, 0),
    (0, 0, 0, 0, 0),
    (8, 0, 0, 0, 0),
    (8, 8, 0, 0, -30),
)


_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
_STEPS = 4


def _plans() -> Iterator[tuple[str, DPStabsPlan]]:
    """Plans for tiny streams of every kind: both relations, deletions, both readings of the paper, other counters."""
    workload = Workload.all_k_way(_DOMAIN, 2)
    half = Fraction(1, 2)
    for unit in _UNITS:
        plan = DPStabs(workload, k=2, select_share=half, iterations=5).calibrate(PureDP.of("1"), unit=unit)
        yield f"DP-STabS, {unit.relation}", plan
    recipe = DPStabs(workload, k=2, select_share=half, iterations=5, deletions=True)
    yield "DP-STabS with deletions", recipe.calibrate(PureDP.of("1"))
    recipe = DPStabs(workload, k=2, select_share=half, iterations=5, past="literal", score="mean-cells")
    yield "DP-STabS, literal listing", recipe.calibrate(PureDP.of("1"))
    for name in ("unbounded-block", "tree"):
        recipe = DPStabs(workload, k=3, counter=name, iterations=5)
        yield (
            f"DP-STabS, all measured, counter {name}",
            recipe.calibrate(PureDP.of("1"), horizon=_STEPS),
        )


def exact_transcripts(
    plan: DPStabsPlan, transcripts: int, randomness: Randomness, subject: str
) -> Iterator[AuditFinding]:
    """The largest exact losses among random transcripts of tiny random streams over the plan's columns.

    The neighbour has one more record at one step (each step in turn), or another record in place of one. The first
    finding is the whole loss against the whole budget. Where something is selected, the second finding is the loss of
    the counters' outputs alone against their share.
    """
    began = time.perf_counter()
    generator = np.random.default_rng(randomness.below(1 << 63))
    total, noise = (0.0, 0), (0.0, 0)
    for number in range(transcripts):
        base, neighbour, at = _tiny_streams(plan, number, generator)
        loss = transcript_loss(plan, base, neighbour, _Leaning(randomness, number % 3, generator))
        total, noise = max(total, (abs(loss.total), at)), max(noise, (abs(loss.noise), at))
    seconds = time.perf_counter() - began
    counters = next(float(part.total) for part in plan.parts() if part.name == "measure")
    losses = [(subject, float(plan.budget.amount), total), (f"{subject}, counters' share", counters, noise)]
    for name, claimed, (found, at) in losses if plan.selector is not None else losses[:1]:
        yield AuditFinding(
            subject=f"{name}, transcripts",
            kind="exact",
            claimed=claimed,
            found=found,
            confidence=None,
            runs=None,
            control=False,
            detail=f"{transcripts} transcripts of {_STEPS} steps; most with the change at step {at}",
            seconds=seconds,
        )
        seconds = 0.0


def _tiny_streams(
    plan: DPStabsPlan, number: int, generator: np.random.Generator
) -> tuple[list[EncodedBatch], list[EncodedBatch], int]:
    """A stream, its neighbour, and the step at which they differ."""

    def draw(rows: int) -> NDArray[np.int32]:
        columns = [generator.integers(0, size, size=rows) for size in plan.domain.sizes]
        return np.column_stack(columns).astype(np.int32)

    def batches() -> list[EncodedBatch]:
        deletions = plan.recipe.deletions
        return [EncodedBatch(plan.domain, pair[0], pair[1] if deletions else None) for pair in streams]

    streams = [[draw(4), draw(2)] for _ in range(_STEPS)]
    base = batches()
    at, side = number % _STEPS, number // _STEPS % len(plan.recipe.sides)
    kept = streams[at][side][1:] if plan.unit.relation == "replace" else streams[at][side]
    streams[at][side] = np.concatenate([kept, draw(1)])
    return base, batches(), at + 1


class _Leaning(SameWords):
    """Random noise (kind 0), positive noise (1), or noise with a fixed sign for each cell (2).

    Outcomes of the last two kinds are rare, but possible, and no transcript may lose more than the budget.
    """

    def __init__(self, inner: Randomness, kind: int, generator: np.random.Generator) -> None:
        super().__init__(inner)
        self._kind = kind
        self._signs = generator.choice(np.array([-1, 1]), size=64)

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """Draw noise, and set its signs."""
        drawn = super().draw(noise, size)
        if self._kind == 0:
            return drawn
        signs = np.resize(self._signs, size) if self._kind == 2 else 1
        result: NDArray[np.int64] = signs * (np.abs(drawn) + 1)
        return result


def _words(budget: Budget) -> str:
    return f"{'epsilon' if isinstance(budget, PureDP) else 'rho'} {float(budget.amount):g}"
