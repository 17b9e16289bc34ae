"""The exact loss of whole census streams between neighbours: one more stay, or one record with other values.

* By integers: every stay within a number of steps, for several gaps, ratios and numbers of levels. A census measures
  how many records it counts, by noise of its whole amount. The loss must not exceed the budget, and must reach it.
* By transcripts of whole streams.

Both run the plan's own code at the door (see ``door``). Controls break what the plan is given (its schedule, amounts,
batches), what it remembers between steps, or the reading of records, in the ways in which it is easiest to make
mistakes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PresentRecords, PrivateBatch
from dpstream.core.graphical import Model
from dpstream.core.privacy import ZCDP, Budget, Event, Exact, PureDP, Randomness, Record, noise_for
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, Workload
from dpstream.families.census import Census, CensusPlan, CensusSchedule
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.cohorts import Cohort, Shapes, levels_of_cohorts
from dpstream.mechanisms.aim import AIM, AIMPlan
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.mwem_pgm import OfflineRun
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.door import Run, record, released_arrays, replay, transcript_loss
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream_lab.audits.controls import LoneHistograms
from dpstream_lab.audits.subjects import rebuilt, transcripts_of

_DOMAIN = Domain(("a",), (2,))
_NOTHING = np.zeros(1)
_NO_SHARES = np.zeros(1, dtype=np.float32)

#: (comes, leaves): the first step with the record, and the first step without it afterwards (None: it never leaves).
Stay = tuple[int, int | None]
#: How a source turns the true stays into the stays that the plan sees.
ReadRule = Callable[[Sequence[Stay], int], Sequence[Stay]]
#: Makes, for one stream, what is done to its state before each step; the other argument is who is present.
Tampers = Callable[[], Callable[[CensusState, Any], None]]


def as_written(stays: Sequence[Stay], steps: int) -> Sequence[Stay]:
    """The honest rule: the plan sees every stay as it is."""
    return stays


@dataclass(frozen=True)
class _Table:
    """The ``PresentRecords`` at the end of a step. ``early``: BROKEN, windows begin so many steps too early."""

    first: NDArray[np.int32]
    departed: NDArray[np.int32]
    early: int = 0

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        number = int((self.first > after - self.early).sum())
        return [Exact(np.array([number], dtype=np.int64)) for _ in cliques]


@dataclass(frozen=True)
class _Batch:
    present: PresentRecords


def tables(stays: Sequence[Stay], steps: int, early: int = 0) -> Iterator[PrivateBatch]:
    """The batches of all steps."""
    first = np.array([comes for comes, _ in stays], dtype=np.int32)
    last = np.array([steps + 1 if leaves is None else leaves for _, leaves in stays], dtype=np.int64)
    for step in range(1, steps + 1):
        here = (first <= step) & (last > step)
        gone = (first < step) & (last == step)
        yield cast(PrivateBatch, _Batch(_Table(first[here], first[gone], early)))


@lru_cache(maxsize=1)
def _model() -> Model:
    """A model of nothing. Not made at import: that would compile junction trees for whoever only looks at audits."""
    return Model.uniform(_DOMAIN, 1.0)


@dataclass(frozen=True)
class _NumberOnly:
    """Stands in for AIM: a census measures how many records it counts, with noise of its whole amount."""

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> _Number:
        return _Number(budget)


@dataclass(frozen=True)
class _Number:
    budget: Budget
    counted: tuple[Clique, ...] = ((0,),)
    #: Its number of records is taken as it is.
    unit: Event = field(default_factory=lambda: Event("replace"))

    def run_on(self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, prior: Any) -> OfflineRun:
        randomness.measure(np.array([int(counts[0].sum())]), noise_for(self.budget, 1, 1))
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


def counted_plan(
    budget: Budget, gap: int, ratio: int, levels: int, times: CensusSchedule | None = None
) -> CensusPlan:
    """A plan whose censuses count records, and nothing else.

    Args:
        gap: the most steps between two censuses.
        times: another schedule.
    """
    plan = Census(Workload.all_k_way(_DOMAIN, 1), turnover=2 * gap).calibrate(budget, Record())
    if levels == 1:
        amounts, own = replace(plan.amounts, upper=Fraction(0)), replace(plan.schedule, levels=1)
        plan = replace(plan, amounts=amounts, schedule=own)
    schedule = replace(plan.schedule, ratio=ratio) if times is None else times
    shapes = cast(Shapes, _NoShapes(plan.shapes.followed))
    return replace(plan, schedule=schedule, shapes=shapes, census=cast(AIM, _NumberOnly()))


def _untouched() -> Callable[[CensusState, Any], None]:
    return lambda state, present: None


def census_run(
    plan: CensusPlan,
    batches: Callable[[], Iterable[Any]],
    tampers: Tampers = _untouched,
    *,
    later: tuple[int, CensusPlan] | None = None,
    shown: bool = True,
) -> Run:
    """A run of a stream.

    Args:
        tampers: BROKEN where it is given: changes what the stream remembers.
        later: BROKEN where it is given: from this step on there is another plan.
        shown: whether all that is released is compared.
    """

    def run(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
        state, tamper = plan.start(), tampers()
        for step, batch in enumerate(batches(), start=1):
            tamper(state, batch.present)
            taken = plan if later is None or step < later[0] else later[1]
            made = taken.step(state, batch, randomness)
            yield released_arrays(made) if shown else []

    return run


def _gone(state: CensusState, present: Any) -> list[int]:
    """How many records of each level leave now."""
    levels = levels_of_cohorts(state.cohorts, present.departed)
    return list(np.bincount(levels, minlength=len(state.left)).tolist())


def _at_every_level() -> Callable[[CensusState, Any], None]:
    """BROKEN: a record that leaves is counted at every level up to its own, as if each level had a budget for it."""

    def tamper(state: CensusState, present: Any) -> None:
        gone = _gone(state, present)
        for level in range(len(gone)):
            state.left[level] += sum(gone[level + 1 :])

    return tamper


def _noted_twice() -> Callable[[CensusState, Any], None]:
    """BROKEN: a record that left is noted again at the next step, so that it is in two counts of departures."""
    before = list[int]()

    def tamper(state: CensusState, present: Any) -> None:
        now = _gone(state, present)
        for level, number in enumerate(before):
            state.left[level] += number
        before[:] = now

    return tamper


def _paced_by_leavers() -> Callable[[CensusState, Any], None]:
    """BROKEN: the steps of censuses follow how many records left, and not what was published of them."""

    def tamper(state: CensusState, present: Any) -> None:
        state.gap = 1 + len(present.departed) % 2

    return tamper


def _left_open() -> Callable[[CensusState, Any], None]:
    """BROKEN: the census after one of level 1 begins where the window of level 0 did."""
    before = list[int]()

    def tamper(state: CensusState, present: Any) -> None:
        if len(state.last) > 1 and state.last[0] == state.last[1] and state.last != before:
            state.last[0] = before[0]
        before[:] = state.last

    return tamper


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


# Small census streams and their neighbours, for transcripts (see ``door``).


TRANSCRIPT_DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
#: Steps of a transcript: with a gap of 2 and a ratio of 2, level 1 comes at step 4 and every fourth step after it.
TRANSCRIPT_STEPS = 9


def transcript_plan(
    budget: Budget, unit: Record, times: CensusSchedule | None = None, **options: Any
) -> CensusPlan:
    """A plan with a gap of 2 steps and small models, so that a run on a few records selects something.

    Args:
        times: another schedule.
    """
    workload = Workload.all_k_way(TRANSCRIPT_DOMAIN, 2)
    recipe = Census(workload, **{"turnover": 4, "iterations": 5, "max_cells": 8, **options})
    plan = recipe.calibrate(budget, unit)
    return replace(plan, schedule=replace(plan.schedule, ratio=2) if times is None else times)


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


@dataclass(frozen=True)
class _EarlyView(PresentView):
    """BROKEN: a window begins one step too early."""

    def count(self, cliques: Sequence[Clique], after: int) -> list[Exact]:
        return super().count(cliques, after - 1)


def keyed_ends(
    stays: Sequence[KeyedStay],
    steps: int,
    domain: Domain,
    *,
    renewed: bool = False,
    view: type[PresentView] = PresentView,
) -> list[PresentBatch]:
    """The batches with the table at the end of every step.

    Args:
        renewed: BROKEN: an update is read as a delete and an insert, which begins another stay.
        view: how the table is seen.
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
        batches.append(PresentBatch(view(table, np.concatenate([gone, departed]))))
    return batches


def neighbours(
    plan: CensusPlan, comes: int, leaves: int | None, first: int, **read: Any
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
    added = KeyedStay(comes, leaves, {comes: (1, 2, 0), comes + 2: (0, 0, 1)})
    twin = KeyedStay(comes, leaves, {comes: (0, 1, 1), comes + 2: (1, 1, 0)})
    more = [*known, added]
    less = [*known, twin] if plan.unit.relation == "replace" else known
    one, other = (keyed_ends(stays, TRANSCRIPT_STEPS, TRANSCRIPT_DOMAIN, **read) for stays in (more, less))
    return one, other


#: Audits by integers: steps, gaps, ratios, levels.
_GRIDS: dict[AuditLength, tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "short": (18, (1, 3), (2,), (1, 2)),
    "long": (60, tuple(range(1, 10)), (2, 4), (1, 2)),
}
#: Audits by integers of any steps of censuses and counts: how many choices, and steps.
_ANY_TIMES: dict[AuditLength, tuple[int, int]] = {"short": (2, 12), "long": (12, 24)}
_PLANS: dict[str, dict[str, Any]] = {
    "selections": {},
    "nothing selected": {"max_cells": 1000},
    "headlines": {"max_cells": 13, "headline": (("a",), ("b", "c"))},
    "columns at level 1": {"max_cells": 1000, "records_per_step": 100_000},
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
        yield exact_stays(subject, steps, gaps, ratios, level)
    choices, steps = _ANY_TIMES[length]
    for seed in range(choices):
        times = random_times(seed, steps, 2)
        subject = f"census, departures counted between censuses at any steps, choice {seed + 1}"
        progress(subject)
        yield exact_stays(subject, steps, (2,), (2,), 2, times=times)
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
                plan = transcript_plan(budget, unit, **options)
                yield census_subject(plan, f"census, {budget}, {unit.name}, {how}")
        plan = transcript_plan(budget, Record(), times, **nothing)
        name = f"census, {budget}, {Record().name}, departures counted between censuses"
        yield census_subject(plan, name)
    between = transcript_plan(PureDP.of(2), Record(), times, **nothing)
    usual = transcript_plan(PureDP.of(2), Record())
    joint = transcript_plan(PureDP.of(2), Record(), **_JOINT)
    half: dict[str, Any] = {"headline": (("a",), ("b", "c")), "headline_share": Fraction(1, 2)}
    shared = transcript_plan(PureDP.of(2), Record(), **half)
    beside = replace(shared, amounts=replace(shared.amounts, budget=PureDP.of(4)))
    knowing = replace(usual, census=rebuilt(_KnowingAIM, usual.census))
    for name, broken, more in (
        ("departures counted between censuses and at one", between, {"tampers": _noted_twice}),
        ("joint headlines drawn apart", joint, {"wrap": LoneHistograms}),
        ("a window that begins too early", usual, {"view": _EarlyView}),
        ("2/3 of the noise", usual, {"wrap": QuietNoise}),
        ("headlines beside the budget", beside, {}),
        ("rounds by the private number of records", knowing, {"first": _border_of_rounds()}),
        ("a first step that an update within a step renews", usual, {"renewed": True}),
    ):
        yield census_subject(broken, f"census with {name}", control=True, **more)


_TRANSCRIPTS = transcripts_of(census_subjects, 2, 21)


def census_subject(
    plan: CensusPlan,
    name: str,
    *,
    first: int = 60,
    renewed: bool = False,
    view: type[PresentView] = PresentView,
    tampers: Tampers = _untouched,
    **more: Any,
) -> Subject:
    """Several stays with updates, in both orders of neighbours.

    Args:
        first: records that others have at step 1.
        renewed, view: see ``keyed_ends``. tampers: see ``census_run``.
    """

    def pairs() -> Iterator[Pair]:
        for comes, leaves in ((1, 6), (3, None), (7, 8)):
            streams = neighbours(plan, comes, leaves, first, renewed=renewed, view=view)
            where = f"a stay of steps {comes} to {leaves or 'the end'}"
            one, other = (census_run(plan, batches.copy, tampers) for batches in streams)
            yield Pair(where, one, other)
            yield Pair(where, other, one)

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
    subject: str,
    steps: int,
    gaps: Sequence[int],
    ratios: Sequence[int],
    levels: int,
    rule: ReadRule = as_written,
    *,
    times: CensusSchedule | None = None,
    early: int = 0,
    tampers: Tampers = _untouched,
    swapped: bool = False,
    control: bool = False,
) -> AuditFinding:
    """The largest loss of a stay, over several schedules, as a part of the budget (epsilon = 1).

    Args:
        steps, gaps, ratios, levels: the schedules.
        rule: how the source reads stays.
        times: another schedule.
        early, tampers: see ``_Table`` and ``census_run``.
        swapped: BROKEN: half way the levels get other shares, which add up at every step, but not over a stay.
    """
    began, worst, known = time.perf_counter(), Largest(), others(steps)
    for gap in gaps:
        for ratio in ratios:
            plan = counted_plan(PureDP.of(1), gap, ratio, levels, times)
            later = (
                (12, replace(plan, amounts=replace(plan.amounts, upper=Fraction(1, 2)))) if swapped else None
            )

            def run(stays: Sequence[Stay], plan: CensusPlan = plan, later: Any = later) -> Run:
                read = rule(stays, steps)
                return census_run(plan, lambda: tables(read, steps, early), tampers, later=later, shown=False)

            without = record(run(known), Randomness.seeded("stays"))
            for stay in all_stays(steps):
                with_stay, words = replay(run([stay, *known]), without)
                loss = float("inf") if words else transcript_loss(without, with_stay, pure=True).total
                place = f"gap {gap}, ratio {ratio}, steps {stay[0]} to {stay[1] or 'the end'}"
                worst.see(loss, place)
    return AuditFinding.of(
        began,
        subject=f"{subject}, private numbers",
        claimed=PureDP.of(1),
        found=worst.loss,
        control=control,
        detail=f"gaps {gaps[0]} to {gaps[-1]}; most with {worst.where}",
    )


def _broken_stays(progress: AuditProgress) -> Iterator[AuditFinding]:
    twice: dict[str, Any] = {"tampers": _noted_twice}
    broken: dict[str, dict[str, Any]] = {
        "steps that follow who left": {"tampers": _paced_by_leavers},
        "a window that begins too early": {"early": 1},
        "departures of level 1 counted at level 0, too": {"tampers": _at_every_level},
        "a window of level 0 that a census of level 1 leaves open": {"tampers": _left_open},
        "departures that are counted twice": twice,
        "departures counted between censuses and at one": {**twice, "times": rare_times(18)},
        "amounts that grow": {"swapped": True},
        "an update that renews the first step": {"rule": _renewed},
        "a row limit for each step": {"rule": _limited},
    }
    for name, how in broken.items():
        subject = f"census with {name}"
        progress(f"control: {subject}")
        yield exact_stays(subject, 18, (2,), (2,), **{"levels": 2, **how}, control=True)


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


class _KnowingRun(AIMPlan):
    """BROKEN: how many rounds there are follows from the exact number of records."""

    def run_on(self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, **given: Any) -> OfflineRun:
        return super().run_on(counts, randomness, **{**given, "expected": float(counts[0].sum())})


class _KnowingAIM(AIM):
    """BROKEN: see ``_KnowingRun``."""

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> AIMPlan:
        made: AIMPlan = rebuilt(_KnowingRun, super().calibrate(workload, budget, unit))
        return made


def _border_of_rounds() -> int:
    """A number of records at which one more makes another number of rounds at step 1."""
    run = transcript_plan(PureDP.of(2), Record()).run
    return next(n for n in range(1, 10_000) if run.rounds_for(n) != run.rounds_for(n + 1))
