"""The exact loss of whole census streams between neighbours: one more stay, or one record with other values.

* By integers: every stay within a number of steps, for several gaps, ratios and numbers of levels.
  The loss must not exceed the budget, and must reach it.
* By transcripts of whole streams (see ``door``).

Controls break the plan, or the reading of records, in the ways in which it is easiest to make mistakes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, PresentRecords, PrivateBatch
from dpstream.core.graphical import Model
from dpstream.core.privacy import ZCDP, AnyNoise, Event, Exact, Noisy, PureDP, Randomness, Record
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, Workload
from dpstream.families.census.census_plan import Census, CensusPlan
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.cohorts import Cohort, Shapes
from dpstream.families.census.schedule import CensusSchedule, last_of
from dpstream.mechanisms.aim import AIMPlan
from dpstream.mechanisms.measured_cells import MeasuredCells
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.transcripts import Pair, Subject, rebuilt, stream_pair, transcripts_of
from dpstream_lab.audits.controls import LoneHistograms

_DOMAIN = Domain(("a",), (2,))
_NOTHING = np.zeros(1)
_NO_SHARES = np.zeros(1, dtype=np.float32)

#: (comes, leaves): the first step with the record, and the first step without it afterwards (None: it never leaves).
Stay = tuple[int, int | None]
#: How a source turns the true stays into the stays that the plan sees.
ReadRule = Callable[[Sequence[Stay], int], Sequence[Stay]]


@dataclass(frozen=True)
class PartRead:
    """A census or a count of departures, with its budget and with the private number that it read."""

    kind: str
    step: int
    level: int
    amount: Fraction
    number: int

    @property
    def public(self) -> tuple[str, int, int, Fraction]:
        """The facts that must be the same in both streams."""
        return self.kind, self.step, self.level, self.amount


def as_written(stays: Sequence[Stay], steps: int) -> Sequence[Stay]:
    """The honest rule: the plan sees every stay as it is."""
    return stays


@dataclass(frozen=True)
class _Table:
    """The ``PresentRecords`` at the end of a step."""

    first: NDArray[np.int32]
    departed: NDArray[np.int32]

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        return [Exact(np.array([int((self.first > after).sum())], dtype=np.int64)) for _ in cliques]


@dataclass(frozen=True)
class _Batch:
    present: PresentRecords


def tables(stays: Sequence[Stay], steps: int) -> Iterator[PrivateBatch]:
    """The batches of all steps."""
    first = np.array([comes for comes, _ in stays], dtype=np.int32)
    last = np.array([steps + 1 if leaves is None else leaves for _, leaves in stays], dtype=np.int64)
    for step in range(1, steps + 1):
        here = (first <= step) & (last > step)
        gone = (first < step) & (last == step)
        yield cast(PrivateBatch, _Batch(_Table(first[here], first[gone])))


@lru_cache(maxsize=1)
def _model() -> Model:
    """A model of nothing. Not made at import: that would compile junction trees for whoever only looks at audits."""
    return Model.uniform(_DOMAIN, 1.0)


@dataclass
class _Reader:
    """Stands in for a census, and records the number of records in its window."""

    plan: CountedPlan
    level: int
    counted: tuple[Clique, ...] = ((0,),)
    unit: Event = field(default_factory=lambda: Event("replace"))

    def run_on(self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, prior: Any) -> OfflineRun:
        log, amount = self.plan.log, self.plan.amount_of(self.level).amount
        log.append(PartRead("census", self.plan.steps_done(), self.level, amount, int(counts[0].sum())))
        return OfflineRun(_model(), 1.0)


@dataclass(frozen=True)
class _NoShapes:
    """Stands in for the fits, which these audits do not need."""

    followed: MeasuredCells

    def measured(self, measurements: Any, records: float) -> tuple[Any, Any]:
        return np.zeros(2), np.full(1, np.inf)

    def cohort(self, level: int, window: tuple[int, int], size: float, known: Any, seen: Any) -> Cohort:
        return Cohort(level, *window, size, _NO_SHARES, _NOTHING, _model())

    def renewed(self, cohort: Cohort, model: Model) -> Cohort:
        return cohort

    def folded(self, first: Cohort, second: Cohort, seen: Any) -> Cohort:
        return Cohort(first.level, first.low, second.high, 1.0, _NO_SHARES, _NOTHING, _model())


class CountedPlan(CensusPlan):
    """The plan's own code, with readers in place of censuses."""

    log: list[PartRead]
    state: CensusState

    def amount_of(self, level: int) -> Budget:
        """The budget of a census of a level."""
        return self.amounts.of_level(level)

    def steps_done(self) -> int:
        """The current step."""
        return self.state.step

    def run_of(self, level: int) -> Any:
        """A reader in place of a census."""
        return _Reader(self, level)


class _Recorder(Randomness):
    """The door that notes exact counts of departures; what it gives is always 0."""

    def __init__(self, plan: CountedPlan) -> None:
        super().__init__(bytes)
        self._plan = plan

    def measure(
        self, exact: NDArray[np.int64], law: AnyNoise, drawn: NDArray[np.int64] | None = None
    ) -> Noisy:
        """Record the exact count."""
        plan, log = self._plan, self._plan.log
        amount = plan.amounts.of_departures.amount
        log.append(PartRead("departures", plan.state.step, len(log), amount, int(exact[0])))
        return Noisy(np.zeros(len(exact), np.int64))


def counted_plan(
    kind: type[CountedPlan],
    budget: Budget,
    gap: int,
    ratio: int,
    levels: Any,
    times: CensusSchedule | None = None,
) -> CountedPlan:
    """A plan that records its parts.

    Args:
        kind: ``CountedPlan``, or a broken one.
        gap: the most steps between two censuses.
        times: another schedule.
    """
    recipe = Census(Workload.all_k_way(_DOMAIN, 1), turnover=2 * gap, levels=levels)
    plan = recipe.calibrate(budget, Record())
    schedule = replace(plan.schedule, ratio=ratio) if times is None else times
    shapes = cast(Shapes, _NoShapes(plan.shapes.followed))
    made: CountedPlan = rebuilt(kind, plan, schedule=schedule, shapes=shapes)
    return made


def parts_read(
    plan: CountedPlan, stays: Sequence[Stay], steps: int, rule: ReadRule = as_written
) -> list[PartRead]:
    """The parts of a stream with these stays, with the numbers that they read."""
    state, randomness = plan.start(), _Recorder(plan)
    object.__setattr__(plan, "log", [])
    object.__setattr__(plan, "state", state)
    for batch in tables(rule(stays, steps), steps):
        plan.step(state, batch, randomness)
    return plan.log


def loss_of(one: list[PartRead], other: list[PartRead]) -> Fraction | float:
    """The sum over all parts of budget times difference of the numbers; infinite where public facts differ."""
    if [part.public for part in one] != [part.public for part in other]:
        return float("inf")
    pairs = zip(one, other, strict=True)
    return sum((a.amount * abs(a.number - b.number) for a, b in pairs), Fraction(0))


# Censuses and counts of departures at any steps, as any rule on released values might choose them.


_NEVER = 1 << 30


@dataclass(frozen=True)
class ChosenTimes(CensusSchedule):
    """A schedule without a rule.

    Args:
        level_at: step -> level of its census; step 1 has one.
        counts_at: steps at which departures are counted, besides.
    """

    level_at: Mapping[int, int] = field(default_factory=lambda: {1: 0})
    counts_at: frozenset[int] = frozenset()

    def level(self, step: int, last: Any) -> int | None:
        """As given."""
        return self.level_at.get(step)

    def last_count(self, step: int, last: Any) -> int:
        """The last given step up to this one."""
        return max((own for own in (*self.level_at, *self.counts_at) if own <= step), default=0)

    def counts_between(self, last: int, census: int) -> int:
        """As given, and the one at the census."""
        return len({own for own in self.counts_at if last < own < census}) + 1

    def after(self, last: int) -> int:
        """The next given census; beyond the last of them, never."""
        return min((own for own in self.level_at if own > last), default=_NEVER)


def random_times(seed: int, steps: int, levels: int) -> ChosenTimes:
    """Any steps, any levels: about one step in three is a census, and at about one in two departures are counted."""
    generator = np.random.default_rng(seed)
    taken = [1, *(step for step in range(2, steps + 1) if generator.random() < 0.35)]
    level_at = {step: int(generator.integers(levels)) if step > 1 else 0 for step in taken}
    counts = frozenset(step for step in range(2, steps + 1) if generator.random() < 0.5)
    return ChosenTimes(2, levels, level_at=level_at, counts_at=counts)


def rare_times(steps: int) -> ChosenTimes:
    """A census at every third step, one in three of level 1, and counts of departures at all others."""
    level_at = {step: int(step % 9 == 4) for step in range(1, steps + 1, 3)}
    return ChosenTimes(2, 2, level_at=level_at, counts_at=frozenset(range(1, steps + 1)))


class _KeepsWhatItCounted(CensusPlan):
    """BROKEN: what a count between censuses has read is read again by the next count."""

    def count_departures(self, state: CensusState, randomness: Randomness) -> list[NoisyCounts]:
        before = list(state.left)
        counts = super().count_departures(state, randomness)
        if self.schedule.level(state.step, state.last) is None:
            state.left[:] = before
        return counts


class CountedTwice(_KeepsWhatItCounted, CountedPlan):
    """BROKEN: a departure is read by a count between censuses, and by the census's count. For audits by integers."""


class PublishedTwice(_KeepsWhatItCounted):
    """BROKEN: the same. For transcripts."""


# Small census streams and their neighbours, for transcripts (see ``door``).


TRANSCRIPT_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
#: Steps of a transcript: with a gap of 2 and a ratio of 2, level 1 comes at step 4 and every fourth step after it.
TRANSCRIPT_STEPS = 9


def transcript_plan(
    kind: type[CensusPlan],
    budget: Budget,
    unit: Record,
    times: CensusSchedule | None = None,
    **options: Any,
) -> CensusPlan:
    """A plan with a gap of 2 steps and small models, so that a run on a few records selects something.

    Args:
        kind: ``CensusPlan``, or a broken one.
        times: another schedule.
    """
    workload = Workload.all_k_way(TRANSCRIPT_DOMAIN, 2)
    recipe = Census(workload, **{"turnover": 4, "iterations": 5, "max_cells": 8, **options})
    plan = recipe.calibrate(budget, unit)
    schedule = replace(plan.schedule, ratio=2) if times is None else times
    made: CensusPlan = rebuilt(kind, plan, schedule=schedule)
    return made


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


def neighbours(
    plan: CensusPlan, comes: int, leaves: int | None, first: int, *, renewed: bool
) -> tuple[list[PresentBatch], list[PresentBatch]]:
    generator = np.random.default_rng(comes)

    def values() -> tuple[int, ...]:
        outer = int(generator.integers(0, 2))
        return outer, int(generator.integers(0, 3)), outer

    known = []
    for number in range(first + 60):
        start = 1 if number < first else int(generator.integers(2, TRANSCRIPT_STEPS + 1))
        end = start + 1 + int(generator.integers(0, TRANSCRIPT_STEPS))
        known.append(KeyedStay(start, end, {start: values(), start + 1: values()}))
    own = KeyedStay(comes, leaves, {comes: (1, 2, 0), comes + 2: (0, 0, 1)})
    twin = KeyedStay(comes, leaves, {comes: (0, 1, 1), comes + 2: (1, 1, 0)})
    more = [*known, own]
    less = [*known, twin] if plan.unit.relation == "replace" else known
    one, other = (
        keyed_ends(own, TRANSCRIPT_STEPS, TRANSCRIPT_DOMAIN, renewed=renewed) for own in (more, less)
    )
    return one, other


#: Audits by integers: steps, gaps, ratios, levels.
_GRIDS: dict[AuditLength, tuple[int, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = {
    "short": (18, (1, 3), (2,), (1, 2)),
    "long": (60, tuple(range(1, 10)), (2, 4), (1, 2, "unlimited")),
}
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
        yield exact_stays(CountedPlan, subject, steps, (2,), (2,), 2, times=times)
    yield from _broken_stays(progress)
    yield from _TRANSCRIPTS(length, randomness, progress)


def census_subjects() -> Iterator[Subject]:
    """Whole streams: both budgets and relations, with and without selections and headlines; then controls."""
    nothing = _PLANS["nothing selected"]
    times = rare_times(TRANSCRIPT_STEPS)
    for budget in (PureDP.of(2), ZCDP.of("1/2")):
        for unit in (Record(), Record("replace")):
            together = {"headlines together": _JOINT} if isinstance(budget, PureDP) else {}
            for how, options in (_PLANS | together).items():
                plan = transcript_plan(CensusPlan, budget, unit, **options)
                yield census_subject(plan, f"census, {budget}, {unit.name}, {how}")
        plan = transcript_plan(CensusPlan, budget, Record(), times, **nothing)
        name = f"census, {budget}, {Record().name}, departures counted between censuses"
        yield census_subject(plan, name)
    twice = transcript_plan(PublishedTwice, PureDP.of(2), Record(), times, **nothing)
    name = "census with departures counted between censuses and at one"
    yield census_subject(twice, name, control=True)
    usual = transcript_plan(CensusPlan, PureDP.of(2), Record())
    joint = transcript_plan(CensusPlan, PureDP.of(2), Record(), **_JOINT)
    beside = transcript_plan(_HeadlinesBeside, PureDP.of(2), Record(), headline=(("a",), ("b", "c")))
    for name, broken, more in (
        ("joint headlines drawn apart", joint, {"wrap": LoneHistograms}),
        ("a window that begins too early", rebuilt(_EarlyPlan, usual), {}),
        ("2/3 of the noise", usual, {"wrap": QuietNoise}),
        ("headlines beside the budget", beside, {}),
        (
            "rounds by the private number of records",
            rebuilt(_KnowingPlan, usual),
            {"first": _border_of_rounds()},
        ),
        ("a first step that an update within a step renews", usual, {"renewed": True}),
    ):
        yield census_subject(broken, f"census with {name}", control=True, **more)


_TRANSCRIPTS = transcripts_of(census_subjects, 2, 21)


def census_subject(
    plan: CensusPlan, name: str, *, first: int = 60, renewed: bool = False, **more: Any
) -> Subject:
    """Several stays with updates, in both orders of neighbours.

    Args:
        first: records that others have at step 1.
        renewed: see ``keyed_ends``.
    """

    def pairs() -> Iterator[Pair]:
        for comes, leaves in ((1, 6), (3, None), (7, 8)):
            runs = neighbours(plan, comes, leaves, first, renewed=renewed)
            where = f"a stay of steps {comes} to {leaves or 'the end'}"
            yield stream_pair(plan, where, *runs)
            yield stream_pair(plan, where, *runs[::-1])

    return Subject(name, plan.budget, pairs, **more)


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
    times: CensusSchedule | None = None,
    control: bool = False,
) -> AuditFinding:
    """The largest loss of a stay, over several schedules, as a part of the budget (epsilon = 1).

    Args:
        kind: the plan to audit, ``CountedPlan`` or a broken one.
        steps, gaps, ratios, levels: the schedules.
        rule: how the source reads stays.
        times: another schedule.
    """
    began, worst, where, known = time.perf_counter(), Fraction(-1), "", others(steps)
    most: Fraction | float = worst
    for gap in gaps:
        for ratio in ratios:
            plan = counted_plan(kind, PureDP.of(1), gap, ratio, levels, times)
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
    twice = "departures counted between censuses and at one"
    for name, kind, levels, rule in (
        ("a window that begins too early", _EarlyWindow, 2, as_written),
        ("departures of level 1 counted at level 0, too", _TwoLevels, 2, as_written),
        ("departures counted at every level", _EveryLevel, 3, as_written),
        ("departures that are counted twice", _NotReset, 2, as_written),
        (twice, CountedTwice, 2, as_written),
        ("amounts that grow", _Growing, 2, as_written),
        ("an update that renews the first step", CountedPlan, 2, _renewed),
        ("a row limit for each step", CountedPlan, 2, _limited),
    ):
        subject = f"census with {name}"
        progress(f"control: {subject}")
        grid = (18, (2,), (2,))
        broken = 2 if levels == 2 else "unlimited"
        times = rare_times(18) if name == twice else None
        yield exact_stays(kind, subject, *grid, broken, rule, times=times, control=True)


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


class _EarlyPlan(CensusPlan):
    """BROKEN: see ``_EarlyWindow``."""

    def window(self, state: CensusState, level: int) -> int:
        return last_of(state.last, level) - 1


class _HeadlinesBeside(CensusPlan):
    """BROKEN: headlines are paid from nothing: the run of a census has its whole amount."""

    def run_of(self, level: int) -> AIMPlan:
        own = super().run_of(level)
        return own.recipe.calibrate(own.workload, self.amounts.of_level(level), own.unit)


class _KnowingRun(AIMPlan):
    """BROKEN: how many rounds there are follows from the exact number of records."""

    def run_on(self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, **given: Any) -> OfflineRun:
        return super().run_on(counts, randomness, **{**given, "expected": float(counts[0].sum())})


class _KnowingPlan(CensusPlan):
    """BROKEN: see ``_KnowingRun``."""

    def run_of(self, level: int) -> AIMPlan:
        made: AIMPlan = rebuilt(_KnowingRun, super().run_of(level))
        return made


def _border_of_rounds() -> int:
    """A number of records at which one more makes another number of rounds at step 1."""
    run = transcript_plan(CensusPlan, PureDP.of(2), Record()).run_of(0)
    return next(n for n in range(1, 10_000) if run.rounds_for(n) != run.rounds_for(n + 1))
