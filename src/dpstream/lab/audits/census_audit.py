"""The exact loss of whole census streams between neighbours: one more stay, or one record with other values.

* By integers (``census_stays``): every stay within a number of steps, for several gaps, ratios and numbers of levels.
  The loss must not exceed the budget, and must reach it.
* By transcripts, as for AIM (``aim_audit``): the plan's own code runs on a stream, recording choices and noise, and on
  its neighbour, with the same choices and with the noise that makes every measurement and every count the same. If a
  release differs all the same, the loss is infinite.

Controls break the plan, or the reading of records, in the ways in which it is easiest to make mistakes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, PresentRecords
from dpstream.core.privacy import ZCDP, HistogramsNoise, PureDP, Randomness, Record
from dpstream.core.privacy.budget import Budget
from dpstream.families.census.census_plan import CensusPlan
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.census_terms import CensusTerms, last_of
from dpstream.families.tabular.aim import AIMPlan, AIMRun
from dpstream.lab.audits.census_stays import (
    CountedPlan,
    ReadRule,
    Stay,
    as_written,
    counted_plan,
    loss_of,
    parts_read,
)
from dpstream.lab.audits.census_times import CountedTwice, PublishedTwice, at_times, random_times, rare_times
from dpstream.lab.audits.census_transcripts import (
    TRANSCRIPT_STEPS,
    neighbours,
    transcript_plan,
)
from dpstream.lab.audits.door import stream_loss
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.transcript_tape import each_alone

#: Audits by integers: steps, gaps, ratios, levels.
_GRIDS: dict[AuditLength, tuple[int, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = {
    "short": (18, (1, 3), (2,), (1, 2)),
    "long": (60, tuple(range(1, 10)), (2, 4), (1, 2, "unlimited")),
}
_TRANSCRIPTS: dict[AuditLength, int] = {"short": 1, "long": 20}
#: Audits by integers of any steps of censuses and counts: how many choices, and steps.
_ANY_TIMES: dict[AuditLength, tuple[int, int]] = {"short": (2, 12), "long": (12, 24)}
_PLANS: dict[str, dict[str, Any]] = {
    "selections": {},
    "nothing selected": {"max_cells": 1000},
    "headlines": {"max_cells": 13, "headline": (("a",), ("b", "c"))},
}
#: Pure DP only.
_JOINT: dict[str, Any] = {"headline": (("a",), ("c",))}


def audit_census(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """All stays by integers, transcripts, and the controls. Cost: the short audit about 25 s of one core."""
    steps, gaps, ratios, levels = _GRIDS[length]
    for level in levels:
        subject = f"census, levels {level}, all stays of up to {steps} steps"
        progress(subject)
        yield exact_stays(CountedPlan, subject, steps, gaps, ratios, level)
    choices, steps = _ANY_TIMES[length]
    for seed in range(choices):
        times = random_times(seed, steps, 2)
        subject = f"census, departures counted between censuses at any steps, choice {seed + 1}"
        progress(subject)
        yield exact_stays(at_times(CountedPlan, times), subject, steps, (2,), (2,), 2)
    yield from _broken_stays(progress)
    runs = _TRANSCRIPTS[length]
    for budget in (PureDP.of(2), ZCDP.of("1/2")):
        for unit in (Record(), Record("replace")):
            together = {"headlines together": _JOINT} if isinstance(budget, PureDP) else {}
            for how, options in (_PLANS | together).items():
                plan = transcript_plan(CensusPlan, budget, unit, **options)
                subject = f"census, {budget}, {unit.name}, {how}"
                progress(subject)
                yield exact_census(plan, runs, randomness, subject)
        between = at_times(CensusPlan, rare_times(TRANSCRIPT_STEPS))
        plan = transcript_plan(between, budget, Record(), **_PLANS["nothing selected"])
        subject = f"census, {budget}, {Record().name}, departures counted between censuses"
        progress(subject)
        yield exact_census(plan, runs, randomness, subject)
    subject = "census with departures counted between censuses and at one"
    progress(f"control: {subject}")
    twice = at_times(PublishedTwice, rare_times(TRANSCRIPT_STEPS))
    plan = transcript_plan(twice, PureDP.of(2), Record(), **_PLANS["nothing selected"])
    yield exact_census(plan, 1, randomness, subject, control=True)
    scenes: list[tuple[str, type[CensusPlan], dict[str, Any], dict[str, Any]]] = [
        ("joint headlines drawn apart", _HeadlinesApart, _JOINT, {}),
        ("a window that begins too early", _EarlyPlan, {}, {}),
        ("2/3 of the noise", _QuietPlan, {}, {}),
        ("headlines beside the budget", _HeadlinesBeside, {}, {}),
        ("rounds by the private number of records", _KnowingPlan, {}, {"first": _border_of_rounds()}),
        ("a first step that an update within a step renews", CensusPlan, {}, {"renewed": True}),
    ]
    for name, kind, options, scene in scenes:
        progress(f"control: census with {name}")
        plan = transcript_plan(kind, PureDP.of(2), Record(), **options)
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
        (
            "departures counted between censuses and at one",
            at_times(CountedTwice, rare_times(18)),
            2,
            as_written,
        ),
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
    began, worst, tried = time.perf_counter(), Largest(), 0
    for comes, leaves in ((1, 6), (3, None), (7, 8)):
        base, other = neighbours(plan, comes, leaves, first, renewed=renewed)
        for one, two in ((base, other), (other, base)):
            for _ in range(transcripts + 1):
                tried += 1
                worst.see(stream_loss(plan, one, two, randomness), f"steps {comes} to {leaves or 'the end'}")
    return AuditFinding.exact(
        began,
        subject=f"{subject}, transcripts",
        claimed=plan.budget,
        found=worst.loss,
        control=control,
        detail=f"{tried} transcripts of {TRANSCRIPT_STEPS} steps; most with a stay of {worst.where}",
    )


class _EarlyPlan(CensusPlan):
    """BROKEN: see ``_EarlyWindow``."""

    def window(self, state: CensusState, level: int) -> int:
        return last_of(state.last, level) - 1


class _QuietPlan(CensusPlan):
    """BROKEN: every census has the noise of a census with 3/2 of the budget."""

    def run_of(self, level: int) -> AIMPlan:
        own = super().run_of(level)
        return own.recipe.calibrate(own.workload, own.budget.scaled(Fraction(3, 2)), own.unit)


class _HeadlinesBeside(CensusPlan):
    """BROKEN: headlines are paid from nothing: the run of a census has its whole amount."""

    @cached_property
    def terms(self) -> CensusTerms:
        honest = CensusPlan(
            replace(self.recipe, headline=(("a",), ("b", "c"))), self.budget, self.unit, self.horizon
        )
        return honest.terms

    def run_of(self, level: int) -> AIMPlan:
        own = super().run_of(level)
        return own.recipe.calibrate(own.workload, self.amounts.of_level(level), own.unit)


class _ApartTerms(CensusTerms):
    """BROKEN: see ``_HeadlinesApart``."""

    def joint_noise(self, budget: Budget, sizes: Sequence[int]) -> HistogramsNoise:
        return each_alone(super().joint_noise(budget, sizes))


class _HeadlinesApart(CensusPlan):
    """BROKEN: headlines that share a joint draw get separate noise; all else is as it should be."""

    @cached_property
    def terms(self) -> CensusTerms:
        honest = CensusPlan(self.recipe, self.budget, self.unit, self.horizon).terms
        return _ApartTerms(**{one.name: getattr(honest, one.name) for one in fields(honest) if one.init})


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
