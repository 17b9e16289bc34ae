"""The exact loss of whole census streams between neighbours: one more stay, or one record with other values.

* By integers (``census_stays``): every stay within a number of steps, for several gaps, ratios and numbers of levels.
  The loss must not exceed the budget, and must reach it.
* By transcripts, as for AIM (``aim_audit``): the plan's own code runs on a stream, recording choices and noise, and on
  its neighbour, with the same choices and with the noise that makes every measurement and every count the same. If a
  release differs all the same, the loss is infinite.

Controls break the plan, or the reading of records, in the ways in which it is easiest to make mistakes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, PresentRecords
from dpstream.core.graphical import Model
from dpstream.core.privacy import ZCDP, AnyNoise, DiscreteGaussian, Noise, PureDP, Randomness, Record
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, Workload
from dpstream.families.census.census_plan import Census, CensusPlan
from dpstream.families.census.census_schedule import last_of
from dpstream.families.census.census_state import CensusState
from dpstream.families.tabular.aim import AIMPlan, AIMRun
from dpstream.lab.audits.aim_audit import Transcript, first_run, loss_between, run_again
from dpstream.lab.audits.census_stays import (
    CountedPlan,
    ReadRule,
    Stay,
    as_written,
    counted_plan,
    loss_of,
    parts_read,
)
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.published_list import published_lines

__all__ = ["audit_census", "census_loss", "drawn_and_published", "exact_census", "exact_stays", "keyed_ends"]

#: Audits by integers: steps, gaps, ratios, levels.
_GRIDS: dict[AuditLength, tuple[int, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = {
    "short": (18, (1, 3), (2,), (1, 2)),
    "long": (60, tuple(range(1, 10)), (2, 4), (1, 2, "unlimited")),
}
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 1, "long": 20}
_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
#: Steps of a transcript: with a gap of 2 and a ratio of 2, level 1 comes at step 4 and every fourth step after it.
_STEPS = 9
_PLANS: dict[str, dict[str, Any]] = {
    "selections": {},
    "nothing selected": {"max_cells": 1000, "totals": "simple"},
}


def audit_census(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """All stays by integers, transcripts, and the controls. Cost: the short audit about 25 s of one core."""
    steps, gaps, ratios, levels = _GRIDS[length]
    for level in levels:
        subject = f"census, levels {level}, all stays of up to {steps} steps"
        progress(subject)
        yield exact_stays(CountedPlan, subject, steps, gaps, ratios, level)
    yield from _broken_stays(progress)
    runs = _TRANSCRIPTS[length]
    for budget in (PureDP.of(2), ZCDP.of("1/2")):
        for unit in (Record(), Record("replace")):
            for how, options in _PLANS.items():
                plan = transcript_plan(CensusPlan, budget, unit, **options)
                subject = f"census, {budget}, {unit.name}, {how}"
                progress(subject)
                yield exact_census(plan, runs, randomness, subject)
    for name, kind, scene in (
        ("a window that begins too early", _EarlyPlan, {}),
        ("2/3 of the noise", _QuietPlan, {}),
        ("rounds by the private number of records", _KnowingPlan, {"first": _border_of_rounds()}),
        ("a first step that an update within a step renews", CensusPlan, {"renewed": True}),
    ):
        progress(f"control: census with {name}")
        plan = transcript_plan(kind, PureDP.of(2), Record())
        yield exact_census(plan, 1, randomness, f"census with {name}", control=True, **scene)


# By integers.


def all_stays(steps: int) -> Iterator[Stay]:
    """Every stay within so many steps, and every stay from one of them without end."""
    for comes in range(1, steps + 1):
        yield comes, None
        for leaves in range(comes + 1, steps + 1):
            yield comes, leaves


def others(steps: int) -> list[Stay]:
    """The stays of the records that both neighbours have."""
    generator = np.random.default_rng(steps)
    comes = generator.integers(1, steps + 1, 25).tolist()
    return [(come, come + 1 + int(generator.integers(0, steps))) for come in comes]


def exact_stays(
    kind: type[CountedPlan],
    subject: str,
    steps: int,
    gaps: Sequence[int],
    ratios: Sequence[int],
    levels: Any,
    rule: ReadRule = as_written,
    *,
    control: bool = False,
) -> AuditFinding:
    """The largest loss of a stay, over several schedules, as a part of the budget (epsilon = 1).

    Args:
        kind: the plan to audit, ``CountedPlan`` or a broken one.
        steps, gaps, ratios, levels: the schedules.
        rule: how the source reads stays.
    """
    began, worst, where, known = time.perf_counter(), Fraction(-1), "", others(steps)
    most: Fraction | float = worst
    for gap in gaps:
        for ratio in ratios:
            plan = counted_plan(kind, PureDP.of(1), gap, ratio, levels)
            without = parts_read(plan, known, steps, rule)
            for stay in all_stays(steps):
                loss = loss_of(without, parts_read(plan, [stay, *known], steps, rule))
                if loss > most:
                    most, where = loss, f"gap {gap}, ratio {ratio}, steps {stay[0]} to {stay[1] or 'the end'}"
    return AuditFinding.exact(
        began,
        subject=f"{subject}, private numbers",
        claimed=PureDP.of(1),
        found=float(most),
        control=control,
        detail=f"gaps {gaps[0]} to {gaps[-1]}; most with {where}",
    )


def _broken_stays(progress: AuditProgress) -> Iterator[AuditFinding]:
    for name, kind, levels, rule in (
        ("a window that begins too early", _EarlyWindow, 2, as_written),
        ("departures of level 1 counted at level 0, too", _TwoLevels, 2, as_written),
        ("departures counted at every level", _EveryLevel, 3, as_written),
        ("departures that are counted twice", _NotReset, 2, as_written),
        ("amounts that grow", _Growing, 2, as_written),
        ("an update that renews the first step", CountedPlan, 2, _renewed),
        ("a row limit for each step", CountedPlan, 2, _limited),
    ):
        subject = f"census with {name}"
        progress(f"control: {subject}")
        grid = (18, (2,), (2,))
        broken = 2 if levels == 2 else "unlimited"
        yield exact_stays(kind, subject, *grid, broken, rule, control=True)


class _EarlyWindow(CountedPlan):
    """BROKEN: a window begins one step too early."""

    def window(self, state: CensusState, level: int) -> int:
        return last_of(state.last, level) - 1


class _TwoLevels(CountedPlan):
    """BROKEN: a record that leaves from level 1 is counted at level 0 too."""

    def note_departures(self, state: CensusState, present: PresentRecords) -> None:
        before = list(state.left)
        super().note_departures(state, present)
        if len(state.left) > 1:
            state.left[0] += state.left[1] - before[1]


class _EveryLevel(CountedPlan):
    """BROKEN: a record that leaves is counted at every level up to its own, as if each level had a budget for it."""

    def note_departures(self, state: CensusState, present: PresentRecords) -> None:
        before = list(state.left)
        super().note_departures(state, present)
        moved = [now - then for now, then in zip(state.left, before, strict=True)]
        for level in range(len(moved)):
            state.left[level] = before[level] + sum(moved[level:])


class _NotReset(CountedPlan):
    """BROKEN: a count is not reset after it was released, so a departure is in two counts."""

    def count_departures(self, state: CensusState, randomness: Randomness) -> list[NoisyCounts]:
        fresh = getattr(self, "_fresh", [])
        now = list(state.left)
        state.left[:] = [own + (fresh[i] if i < len(fresh) else 0) for i, own in enumerate(now)]
        counts = super().count_departures(state, randomness)
        object.__setattr__(self, "_fresh", now)
        return counts


class _Growing(CountedPlan):
    """BROKEN: the levels swap their shares half way. The shares add up at every step, but not over a stay."""

    def amount_of(self, level: int) -> Budget:
        shares = self.amounts.of_level(0), self.amounts.of_level(1)
        return shares[level] if self.steps_done() < 12 else shares[1 - level]


def _renewed(stays: Sequence[Stay], steps: int) -> Sequence[Stay]:
    """BROKEN: every third step updates all records, and an update gives a new first step (as a delete and an
    insert)."""
    renewed: list[Stay] = []
    for comes, leaves in stays:
        end = steps + 1 if leaves is None else min(leaves, steps + 1)
        borders = [comes, *(step for step in range(comes + 1, end) if step % 3 == 0)]
        renewed += zip(borders, [*borders[1:], leaves], strict=True)
    return renewed


def _limited(stays: Sequence[Stay], steps: int) -> Sequence[Stay]:
    """BROKEN: a step reads at most one insert; the others wait for the next step."""
    seen, waiting = list[Stay](), sorted(stays, key=lambda stay: stay[0])
    for step in range(1, steps + 1):
        here = [stay for stay in waiting if stay[0] <= step]
        if here:
            waiting.remove(here[0])
            if here[0][1] is None or here[0][1] > step:
                seen.append((step, here[0][1]))
    return seen


# By transcripts.


def transcript_plan(kind: type[CensusPlan], budget: Budget, unit: Record, **options: Any) -> CensusPlan:
    """A plan with a gap of 2 steps and small models, so that a run on a few records selects something."""
    workload = Workload.all_k_way(_DOMAIN, 2)
    recipe = Census(workload, **{"turnover": 4, "ratio": 2, "iterations": 5, "max_cells": 8, **options})
    return kind(recipe, budget, unit, None)


@dataclass(frozen=True)
class KeyedStay:
    """A record: its stay, and step -> its values from this step on."""

    comes: int
    leaves: int | None
    values: dict[int, tuple[int, ...]]

    def at(self, step: int) -> tuple[int, ...] | None:
        """The record's values at the end of a step; None: it is absent."""
        if step < self.comes or (self.leaves is not None and step >= self.leaves):
            return None
        return self.values[max(when for when in self.values if when <= step)]


def keyed_ends(
    stays: Sequence[KeyedStay], steps: int, domain: Domain, *, renewed: bool = False
) -> list[PresentBatch]:
    """The batches with the table at the end of every step.

    Args:
        renewed: BROKEN: an update is read as a delete and an insert, which begins another stay.
    """
    table, batches = PresentTable.empty(domain), list[PresentBatch]()
    for step in range(1, steps + 1):
        now = {key: stay.at(step) for key, stay in enumerate(stays)}
        changed = [key for key, stay in enumerate(stays) if now[key] != stay.at(step - 1)]
        keys = np.array([[key, 0] for key in changed], np.uint64).reshape(-1, 2)
        present = np.array([now[key] is not None for key in changed], np.bool_)
        codes = [now[key] for key in changed if now[key] is not None]
        changes = KeyedChanges(keys, present, np.array(codes, np.int32).reshape(-1, len(domain.sizes)))
        gone = np.empty(0, np.int32)
        if renewed:
            none = KeyedChanges(keys, np.zeros(len(keys), np.bool_), changes.codes[:0])
            table, gone = table.after(none, step)
        table, departed = table.after(changes, step)
        batches.append(PresentBatch(PresentView(table, np.concatenate([gone, departed]))))
    return batches


def exact_census(
    plan: CensusPlan,
    transcripts: int,
    randomness: Randomness,
    subject: str,
    *,
    control: bool = False,
    first: int = 60,
    renewed: bool = False,
) -> AuditFinding:
    """The largest loss over several stays with updates, both orders of neighbours, and transcripts.

    Args:
        first: records that others have at step 1.
        renewed: see ``keyed_ends``.
    """
    began, worst, where, tried = time.perf_counter(), -1.0, "", 0
    for comes, leaves in ((1, 6), (3, None), (7, 8)):
        base, other = _neighbours(plan, comes, leaves, first, renewed=renewed)
        for one, two in ((base, other), (other, base)):
            for number in range(transcripts + 1):
                lean = (1, -1)[tried % 2] if number == 0 else 0
                loss = census_loss(plan, one, two, randomness, lean)
                tried += 1
                if loss > worst:
                    worst, where = loss, f"steps {comes} to {leaves or 'the end'}"
    return AuditFinding.exact(
        began,
        subject=f"{subject}, transcripts",
        claimed=plan.budget,
        found=worst,
        control=control,
        detail=f"{tried} transcripts of {_STEPS} steps; most with a stay of {where}",
    )


def _neighbours(
    plan: CensusPlan, comes: int, leaves: int | None, first: int, *, renewed: bool
) -> tuple[list[PresentBatch], list[PresentBatch]]:
    generator = np.random.default_rng(comes)

    def values() -> tuple[int, ...]:
        outer = int(generator.integers(0, 2))
        return outer, int(generator.integers(0, 3)), outer

    known = []
    for number in range(first + 60):
        start = 1 if number < first else int(generator.integers(2, _STEPS + 1))
        end = start + 1 + int(generator.integers(0, _STEPS))
        known.append(KeyedStay(start, end, {start: values(), start + 1: values()}))
    own = KeyedStay(comes, leaves, {comes: (1, 2, 0), comes + 2: (0, 0, 1)})
    twin = KeyedStay(comes, leaves, {comes: (0, 1, 1), comes + 2: (1, 1, 0)})
    more = [*known, own]
    less = [*known, twin] if plan.unit.relation == "replace" else known
    one, other = (keyed_ends(own, _STEPS, _DOMAIN, renewed=renewed) for own in (more, less))
    return one, other


def census_loss(
    plan: CensusPlan,
    base: Sequence[PresentBatch],
    neighbour: Sequence[PresentBatch],
    randomness: Randomness,
    lean: int = 0,
) -> float:
    """The largest loss of one random transcript of ``base`` against ``neighbour``, in the unit of the budget.

    The choices are those of the transcript. For each measurement and each count of departures the loss is the largest
    over all values that its noise could have had.
    """
    first = _Log(lean=lean)
    released = _releases(plan, first, base, randomness)
    second = _Log(script=first)
    again = _releases(plan, second, neighbour, randomness)
    if len(first.runs) != len(second.runs) or len(first.counts) != len(second.counts):
        return math.inf
    loss = 0.0
    for (run, one), (_, other) in zip(first.runs, second.runs, strict=True):
        loss += loss_between(run, one[1], other[1], largest=True)
    for (noise, _, one_count), (_, _, other_count) in zip(first.counts, second.counts, strict=True):
        moved = abs(one_count - other_count)
        if noise is None:
            loss += math.inf if moved else 0.0
        elif isinstance(noise, DiscreteGaussian):
            loss += float(moved**2 / (2 * noise.sigma_squared))
        else:
            loss += float(moved / noise.scale)
    same = len(released) == len(again) and all(map(np.array_equal, released, again))
    return loss if same else math.inf


@dataclass
class _Log:
    """A record of a stream.

    Attributes:
        script: the record of the other stream, whose choices and outputs this stream follows; None: it makes its own.
        lean: the sign of all noise, or 0 for random noise.
        runs: each census, with the counts that it read and its transcript.
        counts: each count of departures: noise, output, exact count.
        drawn: the noise and the output of every draw, in order.
    """

    script: _Log | None = None
    lean: int = 0
    runs: list[tuple[AIMPlan, tuple[Sequence[NDArray[np.int64]], Transcript]]] = field(default_factory=list)
    counts: list[tuple[Noise | None, int, int]] = field(default_factory=list)
    drawn: list[tuple[AnyNoise, NDArray[np.int64]]] = field(default_factory=list)


@dataclass(frozen=True)
class _ScriptedRun:
    """A census that records its choices and its noise, or follows the record of the other stream."""

    plan: AIMPlan
    log: _Log

    @property
    def counted(self) -> Any:
        return self.plan.counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan, name)

    def run_on(
        self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, prior: Model | None
    ) -> AIMRun:
        log = self.log
        if log.script is None:
            transcript = first_run(self.plan, counts, randomness, None, log.lean, prior)
        else:
            base, one = log.script.runs[len(log.runs)][1]
            transcript = run_again(self.plan, one, base, counts, randomness, None, prior)
        log.runs.append((self.plan, (counts, transcript)))
        tape, exact = transcript.tape, dict(zip(self.plan.counted, counts, strict=True))
        for measurement, (noise, drawn) in zip(transcript.run.measurements, tape.draws, strict=True):
            true = exact[measurement.clique] if measurement.clique else counts[0].sum(keepdims=True)
            log.drawn.append((noise, true + drawn))
        return transcript.run


def _releases(
    plan: CensusPlan,
    log: _Log,
    batches: Sequence[PresentBatch],
    randomness: Randomness,
    published: list[NoisyCounts] | None = None,
) -> list[NDArray[Any]]:
    """Everything that a stream releases, as arrays: totals, metadata, whole models, noisy counts.

    Args:
        published: gets the noisy counts, too.
    """
    own = type(plan)

    class Scripted(own):  # type: ignore[misc, valid-type]
        def run_of(self, level: int) -> Any:
            return _ScriptedRun(super().run_of(level), log)

        def noisy(self, exact: int, noise: Noise | None, randomness: Randomness) -> int:
            if log.script is None:
                output: int = super().noisy(exact, noise, randomness)
            else:
                output = log.script.counts[len(log.counts)][1]
                output = exact if noise is None else output
            log.counts.append((noise, output, exact))
            if noise is not None:
                log.drawn.append((noise, np.array([output], np.int64)))
            return output

    scripted = Scripted(plan.recipe, plan.budget, plan.unit, plan.horizon)
    state, released = scripted.start(), list[NDArray[Any]]()
    for batch in batches:
        synthesis = scripted.step(state, batch, randomness)
        packed = synthesis.pack()
        released.append(np.frombuffer(repr(packed.meta).encode(), np.uint8))
        released.extend(packed.arrays.values())
        released.append(published_lines(synthesis))
        if published is not None:
            published += synthesis.noisy_counts
    return released


def drawn_and_published(
    plan: CensusPlan, batches: Sequence[PresentBatch], randomness: Randomness
) -> tuple[list[tuple[AnyNoise, NDArray[np.int64]]], list[NoisyCounts]]:
    """What a stream drew, as the transcript has it; and what it publishes of it."""
    log, published = _Log(), list[NoisyCounts]()
    _releases(plan, log, batches, randomness, published)
    return log.drawn, published


class _EarlyPlan(CensusPlan):
    """BROKEN: see ``_EarlyWindow``."""

    def window(self, state: CensusState, level: int) -> int:
        return last_of(state.last, level) - 1


class _QuietPlan(CensusPlan):
    """BROKEN: every census has the noise of a census with 3/2 of the budget."""

    def run_of(self, level: int) -> AIMPlan:
        own = super().run_of(level)
        return own.recipe.calibrate(own.workload, own.budget.scaled(Fraction(3, 2)), own.unit)


class _KnowingRun(AIMPlan):
    """BROKEN: how many rounds there are follows from the exact number of records."""

    def run_on(self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, **given: Any) -> AIMRun:
        return super().run_on(counts, randomness, **{**given, "expected": float(counts[0].sum())})


class _KnowingPlan(CensusPlan):
    """BROKEN: see ``_KnowingRun``."""

    def run_of(self, level: int) -> AIMPlan:
        own = super().run_of(level)
        return _KnowingRun(own.recipe, own.workload, own.budget, own.unit)


def _border_of_rounds() -> int:
    """A number of records at which one more makes another number of rounds at step 1."""
    run = transcript_plan(CensusPlan, PureDP.of(2), Record()).run_of(0)
    return next(n for n in range(1, 10_000) if run.rounds_for(n) != run.rounds_for(n + 1))
