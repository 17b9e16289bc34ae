"""Audits of online points: neighbours differ in one early, middle or late point, which is moved a little or far.

* Exact: the running code runs on a stream, recording its noise, and on a neighbour, with the noise that makes every
  noisy sum the same. The shift of the noise gives the loss of the sums. The loss of the sparse counters follows from
  the rules in use (the noise of their tests, and a certificate of the counter of segments), for each cell in which the
  streams differ. Thresholds are out of reach, so no segment ends. If a release differs all the same, or the plan draws
  noise that its schedule does not have, the loss is infinite.
* Empirical: the ticks at which the segments of one cell end, in many runs on two neighbours. Some runs choose an event,
  and the others judge it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import certify
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import AnyNoise, DiscreteLaplace, Randomness
from dpstream.families.points.cells import (
    PAPER,
    CellCounts,
    CellRule,
    PointCells,
    PointsState,
    Schedule,
    cell_rule,
    default_design,
    noisy,
)
from dpstream.families.points.online import OnlineCells
from dpstream.families.points.space import Space
from dpstream.lab.audits.controls import ReusedNoise, broken_quiet_counter
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress, Largest
from dpstream.lab.audits.loss_bounds import distinguish
from dpstream.lab.audits.transcript_tape import Tape, TapedNoise, in_order
from dpstream.tools.evaluate.array_types import Floats, Ints

_QUIET = Fraction(2, 3)
#: A threshold that no count reaches, and that fits into 64-bit sums.
_FAR = 2**30


_SIDE = 2**30


def cube(dimension: int, depth: int) -> Space:
    """The partition of the unit cube."""
    return Space((_SIDE,) * dimension, (False,) * dimension, depth)


def cube_cells(points: Floats, depth: int) -> Ints:
    """The index of each point's cell of this depth; points of the unit cube, shape (any, dimension)."""
    codes = np.minimum((points * _SIDE).astype(np.int64), _SIDE - 1).astype(np.int32)
    return cube(points.shape[1], depth).cells_of(codes)


def cube_points(counts: Ints, dimension: int, generator: np.random.Generator) -> Floats:
    """As many points of each cell of one depth as ``counts`` says, uniform in the cell, in the order of cells."""
    cells, depth = np.repeat(np.arange(len(counts)), counts), len(counts).bit_length() - 1
    return np.asarray(cube(dimension, 24).draw(cells, depth, generator) / _SIDE)


def cube_plan(
    dimension: int, variant: str = "default", depth: int = 20, epsilon: Fraction | int = 1
) -> OnlineCells:
    """Cells of the unit cube, calibrated."""
    design = PAPER if variant == "paper" else default_design(dimension)
    return OnlineCells(Schedule(dimension, Fraction(epsilon), design, depth))


class FarPlan(OnlineCells):
    """Online points whose thresholds are out of reach, so that no segment ever ends."""

    @classmethod
    def of(cls, plan: OnlineCells) -> Self:
        """``plan`` as a plan of this class."""
        return cls(plan.schedule)

    def rule(self, depth: int, level: int) -> CellRule:
        """The honest rule with another threshold."""
        return replace(super().rule(depth, level), threshold=_FAR)


class BrokenQuiet(FarPlan):
    """BROKEN: 2/3 of the noise of all cells, except in the first sums of depths. True loss of the rest: 3/2 epsilon."""

    def rule(self, depth: int, level: int) -> CellRule:
        """A rule with too little noise."""
        return quiet_rule(super().rule(depth, level))


def quiet_rule(rule: CellRule) -> CellRule:
    """BROKEN: 2/3 of the noise that ``rule`` claims."""
    tests, block = (DiscreteLaplace(noise.scale * _QUIET) for noise in (rule.tests, rule.block))
    return CellRule(tests, rule.threshold, broken_quiet_counter(rule.segments), block)


class BrokenTwiceStored(FarPlan):
    """BROKEN: a level draws its last noisy sums twice, and stores the mean of both."""

    def _store_level(self, state: PointsState, randomness: Randomness) -> None:
        for depth, rule in enumerate(state.cells.rules, start=1):
            again = noisy(state.cells.total[1 << depth : 2 << depth], rule.block, randomness)
            state.blocks.sums[depth - 1] = (state.blocks.sums[depth - 1] + again) / 2.0
        super()._store_level(state, randomness)


class _Rescheduled(FarPlan):
    KIND: type[Schedule] = Schedule

    def __post_init__(self) -> None:
        super().__post_init__()
        honest = self.schedule
        broken = self.KIND(honest.dimension, honest.epsilon, honest.design, honest.max_depth)
        object.__setattr__(self, "schedule", broken)


class _Unpaid(Schedule):
    def spent(self, depth: int, level: int) -> Fraction:
        """The honest share, enlarged as if depths that begin later read no history."""
        charged = [j for j in range(1, self.max_depth + 1) if not self.rereads_all or j <= 3]
        level_cost = sum((super(_Unpaid, self).spent(j, self.max_depth) for j in charged), Fraction(0))
        return super().spent(depth, level) * (self.epsilon / 2) / level_cost


class BrokenFreeHistory(_Rescheduled):
    """BROKEN: depths that begin later read the history without a charge."""

    KIND = _Unpaid


class _Flat(Schedule):
    def spent(self, depth: int, level: int) -> Fraction:
        """The share of the depth's first level, for all levels."""
        return super().spent(depth, min(level, depth))


class BrokenLateLevels(_Rescheduled):
    """BROKEN: every level spends as much as a depth's first level, so late arrivals spend too much."""

    KIND = _Flat


class BrokenKeptThreshold(PointCells):
    """BROKEN: one threshold noise for all segments of a cell."""

    def _end_segment(self, cell: int, rule: CellRule, randomness: Randomness) -> None:
        kept = int(self.limit[cell])
        super()._end_segment(cell, rule, randomness)
        self.limit[cell] = kept


#: The confidence of each empirical bound.
POINTS_CONFIDENCE = 1 - 1e-7
_RUNS: dict[AuditLength, int] = {"short": 12_000, "long": 30_000}
_PLACES: dict[AuditLength, int] = {"short": 4, "long": 40}
_POINTS = 300
_DEPTH = 7
_SEED = 7


@dataclass(frozen=True)
class PointsSubject:
    """One synthesizer to be audited exactly.

    Attributes:
        wrap: replaces the randomness that the plan gets (for controls).
    """

    name: str
    plan: OnlineCells
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness
    control: bool = False


def audit_points(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """The sums of whole streams exactly, and the ends of segments empirically, with their controls."""
    for subject in points_subjects():
        progress(subject.name)
        yield exact_points(subject, _PLACES[length], randomness)
    for name, kind, rule, control in _sampled_cells():
        progress(name)
        yield _sampled_segments(name, kind, rule, control, _RUNS[length], randomness)


def points_subjects() -> tuple[PointsSubject, ...]:
    """The subjects of the exact audits."""
    return (*_honest(), *_controls())


def _honest() -> Iterator[PointsSubject]:
    cases = [("default", 2, 1), *itertools.product(("paper", "default"), (1, 2, 8), (8,))]
    for variant, dimension, epsilon in cases:
        yield PointsSubject(
            f"points, {variant}, d = {dimension}, epsilon {epsilon}", _far(variant, dimension, epsilon)
        )


def _far(variant: str, dimension: int, epsilon: int) -> FarPlan:
    return FarPlan.of(cube_plan(dimension, variant, _DEPTH, epsilon))


def _controls() -> Iterator[PointsSubject]:
    for dimension in (1, 8):
        plan, words = _far("default", dimension, 8), f"points, d = {dimension}"
        yield PointsSubject(f"{words}, 2/3 of the noise", BrokenQuiet.of(plan), control=True)
        yield PointsSubject(f"{words}, one noise for all blocks", plan, ReusedNoise, True)
        yield PointsSubject(f"{words}, levels stored twice", BrokenTwiceStored.of(plan), control=True)
        yield PointsSubject(f"{words}, what is read later is free", BrokenFreeHistory.of(plan), control=True)
    late = BrokenLateLevels.of(_far("default", 8, 8))
    yield PointsSubject("points, d = 8, late levels pay as early ones", late, control=True)


# Exact.


def exact_points(subject: PointsSubject, places: int, randomness: Randomness) -> AuditFinding:
    """The largest loss over streams that differ in one point, for several points and distances."""
    began = time.perf_counter()
    plan, generator = subject.plan, np.random.default_rng(randomness.below(1 << 63))
    points = generator.random((_POINTS, plan.schedule.dimension))
    seed, first = randomness.words(4).tobytes(), Tape()
    released = _run(plan, cube_cells(points, _DEPTH), subject.wrap(TapedNoise.apart(seed, first)))
    worst, chosen = Largest(), _places(plan, places, generator)
    near = [(place, 2.0**-9) for place in (0, _POINTS // 2, _POINTS - 1)]
    for place, far in [*near, *((place, 0.5) for place in chosen)]:
        moved = points.copy()
        moved[place] = (moved[place] + far) % 1.0
        loss = _loss(subject, (seed, first, released), (points, moved), place)
        worst.see(loss, f"point {place + 1} of {_POINTS} moved by {far:.2g}")
    return AuditFinding.exact(
        began,
        subject=f"{subject.name}, sums and rules",
        claimed=float(plan.schedule.epsilon),
        found=worst.loss,
        control=subject.control,
        detail=f"most with {worst.where}",
    )


def _places(plan: OnlineCells, most: int, generator: np.random.Generator) -> list[int]:
    """The indices of the points that are moved: first, middle, last, the first of each level, and some others."""
    starts = {plan.schedule.start(level) - 1 for level in range(12)}
    some = generator.permutation(_POINTS)[:most].tolist()
    return sorted({0, _POINTS // 2, _POINTS - 1, *some, *(place for place in starts if place < _POINTS)})


def _loss(
    subject: PointsSubject,
    run: tuple[bytes, Tape, list[NDArray[np.generic]]],
    streams: tuple[Floats, Floats],
    place: int,
) -> float:
    """The loss of all sums of a stream against its neighbour, and the largest loss of its sparse counters."""
    (seed, first, released), second = run, Tape()
    second.script = first
    base, neighbour = (cube_cells(points, _DEPTH) for points in streams)
    moves = _moves(subject.plan, base, neighbour)
    again = _run(subject.plan, neighbour, subject.wrap(TapedNoise.apart(seed, second, in_order(moves))))
    same = len(released) == len(again) and all(map(np.array_equal, released, again))
    # Another number of draws than in the schedule means that other numbers got noise, or that noise was used twice.
    if len(first.draws) != len(moves) or not same:
        return math.inf
    loss = Fraction(0)
    for (law, _), move in zip(first.draws, moves, strict=True):
        assert isinstance(law, DiscreteLaplace)
        loss += int(np.abs(move).sum()) / law.scale if move is not None else 0
    return float(loss) + _tests_loss(subject.plan, base, neighbour, place)


def _tests_loss(plan: OnlineCells, base: Ints, neighbour: Ints, place: int) -> float:
    """The largest loss of the sparse counters in the cells that differ: for each, one test and one segment's sum."""
    level, loss = plan.schedule.level_of(place + 1), 0.0
    for depth in range(1, plan.schedule.depth(level) + 1):
        if (base >> (_DEPTH - depth) != neighbour >> (_DEPTH - depth)).any():
            rule = plan.rule(depth, level)
            ticks = min(8, plan.schedule.ticks(level))
            loss += 2 * (float(1 / rule.tests.scale) + certify(rule.segments, ticks).certified)
    return loss


def _run(plan: OnlineCells, codes: Ints, randomness: Randomness) -> list[NDArray[np.generic]]:
    """Everything that the stream releases at several ticks, as arrays."""
    state, released, done = plan.fresh(), list[NDArray[np.generic]](), 0
    for end in range(len(codes) // 4, len(codes) + 1, len(codes) // 4):
        plan.read(state, codes[done:end], randomness)
        done = end
        released += [one.values for one in state.measured]
        released += [*state.stored, *state.blocks.sums, *state.blocks.newest, state.cells.counted]
        released += [np.array(state.variance), plan.counts(state)]
    return [array.copy() for array in released]


def drawn_and_published(
    plan: FarPlan, codes: Ints, randomness: Randomness
) -> tuple[list[tuple[AnyNoise, Ints]], list[CellCounts]]:
    """Every noisy count of a stream, from the recorded noise and the points themselves, but for the noise of tests; and
    what the stream publishes. Steps of 50 points.

    Args:
        codes: of the points' deepest cells, of depth 7.

    Errors:
        ConfigError: the stream drew more or less noise than its schedule has.
    """
    tape, state, published = Tape(), plan.fresh(), list[CellCounts]()
    noise = TapedNoise(randomness, tape)
    for first in range(0, len(codes), 50):
        plan.read(state, codes[first : first + 50], noise)
        published += state.measured
    counts = _moves(plan, codes, codes[:0])
    if len(tape.draws) != len(counts):
        raise ConfigError("the points drew other noise than their schedule has", where="audit")
    pairs = zip(tape.draws, counts, strict=True)
    return [(law, exact + drawn) for (law, drawn), exact in pairs if exact is not None], published


def _moves(plan: OnlineCells, base: Ints, neighbour: Ints) -> list[Ints | None]:
    """The shift of each draw on the neighbour, in order; None for thresholds of segments."""
    schedule, moves, depths, level = plan.schedule, list[Ints | None](), 0, -1

    def move(depth: int, first: int, last: int) -> Ints:
        here, there = (
            np.bincount(codes[first - 1 : last] >> (_DEPTH - depth), minlength=1 << depth)
            for codes in (base, neighbour)
        )
        return here - there

    while schedule.start(level + 1) <= len(base):
        first, last = schedule.start(level), schedule.start(level + 1) - 1
        if not schedule.rereads_all and schedule.reread(level + 1, level):
            depths += 1
            if last >= first:
                moves.append(move(level + 1, first, last))
        level += 1
        first, end, depth = schedule.start(level), schedule.start(level + 1) - 1, schedule.depth(level)
        if depth > depths:
            depths += 1
            if schedule.rereads_all:
                moves += _first_reads(plan, depth, move)
        if not depth or end < first:
            continue
        moves += [None] * depth
        moves += _block_moves(plan, level, len(base), move)
    return moves


def _first_reads(plan: OnlineCells, depth: int, move: Callable[[int, int, int], Ints]) -> list[Ints]:
    """The shifts where a depth reads its history (d = 1): all levels at once, or one by one as in the paper."""
    schedule = plan.schedule
    if plan.design.history:
        return [move(depth, 1, schedule.start(depth) - 1)]
    spans = [(schedule.start(level), schedule.start(level + 1) - 1) for level in range(-1, depth)]
    return [move(depth, first, last) for first, last in spans if last >= first]


def _block_moves(
    plan: OnlineCells, level: int, points: int, move: Callable[[int, int, int], Ints]
) -> list[Ints]:
    schedule, moves = plan.schedule, list[Ints]()
    ends = schedule.block_ends(level)
    since = [schedule.start(level)] * schedule.depth(level)
    for number, end in enumerate(ends, start=1):
        if end > points:
            break
        for depth in range(1, schedule.depth(level) + 1):
            if number % (len(ends) // schedule.blocks(depth, level)):
                break
            moves.append(move(depth, since[depth - 1], end))
            since[depth - 1] = end + 1
    return moves


# Empirical.

#: The cell of each tick's arrival in the two streams; the audit watches cell 0. With tests of scale 1/2 and a threshold
#: of 1 some likely pattern has nearly the claimed loss.
_PAIR = ((0, 0, 0, 0, 1), (0, 0, 0, 1, 1))
_TICKS = 5


def _sampled_cells() -> Iterator[tuple[str, type[PointCells], CellRule, bool]]:
    """Cells with low thresholds, so that segments end often. The claim is that of the tests alone."""
    rule = replace(cell_rule(Fraction(8), _TICKS, PAPER), threshold=1)
    yield "points, ends of segments, runs", PointCells, rule, False
    yield "points, ends of segments, 2/3 of the noise, runs", PointCells, quiet_rule(rule), True
    yield "points, ends of segments, one threshold noise, runs", BrokenKeptThreshold, rule, True


def _sampled_segments(
    name: str, kind: type[PointCells], rule: CellRule, control: bool, runs: int, randomness: Randomness
) -> AuditFinding:
    """A lower bound on the loss of the ticks at which segments of one cell end, on two streams of five points."""
    began = time.perf_counter()
    watched = type(kind.__name__, (_Watched, kind), {})
    sides = []
    for codes in _PAIR:
        arrivals = np.array(codes, np.int64)
        patterns = [_ends(watched, rule, arrivals, randomness) for _ in range(runs)]
        sides.append(np.eye(1 << _TICKS)[patterns])
    bound = distinguish(sides[0], sides[1], confidence=POINTS_CONFIDENCE, seed=_SEED)
    return AuditFinding.empirical(
        began,
        subject=name,
        claimed=2.0,
        found=bound.epsilon,
        confidence=POINTS_CONFIDENCE,
        runs=runs,
        control=control,
        detail=f"the fourth of five points moved out of the cell; {bound.statistic}",
    )


def _ends(kind: type[_Watched], rule: CellRule, arrivals: Ints, randomness: Randomness) -> int:
    """The ticks at which a segment of the first cell ended, as bits of a number."""
    cells = kind.begin(1, 1, _TICKS, (rule,), randomness)
    cells.arrive(arrivals, 1, randomness)
    ticks: list[int] = vars(cells).get("ended", [])
    return sum(1 << (tick - 1) for tick in ticks)


class _Watched(PointCells):
    """Records the ticks at which segments of the first cell end."""

    def _end_segment(self, cell: int, rule: CellRule, randomness: Randomness) -> None:
        if cell == 2:
            vars(self).setdefault("ended", []).append(int(self.due[cell]))
        super()._end_segment(cell, rule, randomness)
