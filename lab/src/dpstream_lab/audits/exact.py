"""Exact audits: losses that are computed, not estimated.

* Counters: their certificate (``dpstream.checks``), which runs the code on a tape of unit impulses.
* Selectors: the log-ratio of every outcome's probability on adversarial neighbouring scores. Each score falls, stays or
  rises, starting from ties, ladders and large gaps.
* DP-STabS: transcripts of tiny streams (see ``transcripts``), with random noise and with noise that leans to one side.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import COUNTER_NAMES, CalibratedCounter, SimpleCounter, TreeCounter
from dpstream.core.counters.forest import CalibratedForest
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs, DPStabsPlan
from dpstream.mechanisms.engine import Selector
from dpstream.tools.audit.configured import exact_counter
from dpstream.tools.audit.controls import QuietNoise, quiet_counter
from dpstream.tools.audit.door import Door, choice_loss
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream_lab.audits.controls import BrokenShortTree, broken_quiet_selector
from dpstream_lab.audits.counters_audit import calibrated_by_name
from dpstream_lab.audits.loss_bounds import divergence_rate
from dpstream_lab.audits.subjects import stream_pair, transcripts_of

_HORIZONS: dict[AuditLength, tuple[int, ...]] = {
    "short": (1, 2, 7, 16, 33, 64, 300),
    "long": (*range(1, 65), 100, 128, 257, 512, 1000, 1500),
}
#: Counters that draw noise ahead have more noises than outputs, so their certificate solves a linear program per tick,
#: which would take hours at 1,500 ticks.
_MAX_AHEAD = 128
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
    for budget in _BUDGETS:
        progress(f"controls, {_words(budget)}")
        for subject, counter in _broken_counters(budget):
            yield exact_counter([(counter, 16)], f"counter {subject}, {_words(budget)}", control=True)
        selector = broken_quiet_selector(Selector(budget))
        subject = f"{selector.describe()} with 2/3 of the noise, {_words(budget)}"
        yield exact_selector(selector, budget, subject, control=True)
    yield from _TRANSCRIPTS(length, randomness, progress)


def _broken_counters(budget: Budget) -> Iterator[tuple[str, CalibratedCounter]]:
    yield "simple with 2/3 of the noise", quiet_counter(SimpleCounter().calibrate(budget, Event()))
    tree = TreeCounter(16).calibrate(budget, Event("replace"))
    yield "tree with 2/3 of the noise, replace", quiet_counter(tree)
    yield "tree, one level short", BrokenShortTree(16).calibrate(budget, Event())


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
        door = Door(b"law")
        selector.choose(numerators, denominators, range(len(scores)), scale, door)
        return door.choices[0].law

    for base in _SCORES:
        before = law(base)
        for moves in itertools.product((-1, 0, 1), repeat=len(base)):
            after = law([score + move for score, move in zip(base, moves, strict=True)])
            loss = choice_loss(before, after, pure=True) if pure else divergence_rate(before, after)
            worst.see(loss, f"scores {base} with changes {moves}")
    return AuditFinding.of(
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


def dpstabs_subjects() -> Iterator[Subject]:
    """Tiny streams of every kind: both relations, deletions, both readings of the paper, zCDP, other counters; then a
    control."""
    workload, half, one = Workload.all_k_way(_DOMAIN, 2), Fraction(1, 2), PureDP.of(1)
    recipe = DPStabs(workload, k=2, select_share=half, iterations=5)
    plan = recipe.calibrate(one)
    yield dpstabs_subject(plan, "DP-STabS, add-remove")
    yield dpstabs_subject(recipe.calibrate(one, unit=Event("replace")), "DP-STabS, replace")
    yield dpstabs_subject(replace(recipe, deletions=True).calibrate(one), "DP-STabS with deletions")
    literal = replace(recipe, past="literal", score="mean-cells")
    yield dpstabs_subject(literal.calibrate(one), "DP-STabS, literal listing")
    yield dpstabs_subject(recipe.calibrate(ZCDP.of("1/2")), "DP-STabS, zCDP")
    for name in ("unbounded-block", "tree", "optimal-tree", "optimal-epochs"):
        every = replace(recipe, k=3, counter=name).calibrate(one, horizon=_STEPS)
        yield dpstabs_subject(every, f"DP-STabS, all measured, counter {name}")
    # What a choice loses depends on chance; with 9/10 of the budget on measurements, they alone lose too much.
    quiet = replace(recipe, select_share=Fraction(1, 10)).calibrate(one)
    yield dpstabs_subject(quiet, "DP-STabS with 2/3 of the noise", wrap=QuietNoise, control=True)


def dpstabs_subject(plan: DPStabsPlan, name: str, **more: Any) -> Subject:
    """Random streams over the plan's columns. A neighbour has one more record at one step (each step in turn), or
    another record in place of one."""

    def pairs() -> Iterator[Pair]:
        generator = np.random.default_rng(5)
        for number in range(2 * _STEPS * len(plan.recipe.sides)):
            base, other, at = _tiny_streams(plan, number, generator)
            yield stream_pair(
                plan, f"a record of step {at}", *((base, other) if number % 2 else (other, base))
            )

    return Subject(name, plan.budget, pairs, leans=(1, -1), **more)


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


_TRANSCRIPTS = transcripts_of(dpstabs_subjects, 2, 40)


def _words(budget: Budget) -> str:
    return f"{'epsilon' if isinstance(budget, PureDP) else 'rho'} {float(budget.amount):g}"
