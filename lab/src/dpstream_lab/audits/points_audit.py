"""Audits of online points: neighbours differ in one early, middle or late point, which is moved a little or far.

* Transcripts (see ``door``) of the noisy sums, in which no waiting test says yes, so no segment ends. The loss of the
  sparse counters is added for each cell in which the streams differ: by the rules in use, the noise of their tests, and
  a certificate of the counter of segments.
* Empirical: the ticks at which the segments of one cell end, in many runs on two neighbours. Some runs choose an event,
  and the others judge it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import certify
from dpstream.core.privacy import DiscreteLaplace, Event, PureDP, Randomness
from dpstream.core.schema import Real, Schema
from dpstream.families.points.cells import MAX_DEPTH, PAPER, CellRule, Design, PointCells, Schedule, cell_rule
from dpstream.families.points.points_plan import Points, PointsPlan, Variant
from dpstream.families.points.space import Space
from dpstream.tools.audit.controls import QuietNoise, quiet_counter
from dpstream.tools.audit.door import Run
from dpstream.tools.audit.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.tools.audit.transcripts import Pair, Subject
from dpstream.tools.evaluate.array_types import Floats, Ints
from dpstream_lab.audits.controls import MeasuredTwice, ReusedNoise
from dpstream_lab.audits.loss_bounds import audit_outcomes
from dpstream_lab.audits.subjects import transcripts_of

_QUIET = Fraction(2, 3)
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
    dimension: int,
    variant: str = "default",
    depth: int = 20,
    epsilon: Fraction | int = 1,
    design: Design | None = None,
) -> PointsPlan:
    """Points of the unit cube, calibrated; with another design where one is given."""
    columns = tuple(Real(f"x{axis}", (0, 1)) for axis in range(dimension))
    recipe = Points(Schema(columns), cast(Variant, variant), min(depth, MAX_DEPTH))
    plan = recipe.calibrate(PureDP(Fraction(epsilon)), unit=Event("replace"))
    if design is None:
        return plan
    return replace(plan, schedule=Schedule(dimension, Fraction(epsilon), design, depth))


def quiet_rule(rule: CellRule) -> CellRule:
    """BROKEN: 2/3 of the noise that ``rule`` claims."""
    tests, block = (DiscreteLaplace(noise.scale * _QUIET) for noise in (rule.tests, rule.block))
    return CellRule(tests, rule.threshold, quiet_counter(rule.segments), block)


def _rescheduled(plan: PointsPlan, kind: type[Schedule]) -> PointsPlan:
    """BROKEN: the plan with another schedule, whose budgets nobody has added up."""
    broken, honest = copy(plan), plan.schedule
    schedule = kind(honest.dimension, honest.epsilon, honest.design, honest.max_depth)
    object.__setattr__(broken, "schedule", schedule)
    return broken


class FreeHistory(Schedule):
    """BROKEN: depths that begin later read the history without a charge."""

    def spent(self, depth: int, level: int) -> Fraction:
        """The honest share, enlarged as if depths that begin later read no history."""
        charged = [j for j in range(1, self.max_depth + 1) if not self.rereads_all or j <= 3]
        level_cost = sum((super(FreeHistory, self).spent(j, self.max_depth) for j in charged), Fraction(0))
        return super().spent(depth, level) * (self.epsilon / 2) / level_cost


class LateLevels(Schedule):
    """BROKEN: every level spends as much as a depth's first level, so late arrivals spend too much."""

    def spent(self, depth: int, level: int) -> Fraction:
        """The share of the depth's first level, for all levels."""
        return super().spent(depth, min(level, depth))


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


def audit_points(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """The sums of whole streams exactly, and the ends of segments empirically, with their controls."""
    yield from transcripts_of(partial(points_subjects, _PLACES[length]), 1, 1)(length, randomness, progress)
    for name, kind, rule, control in _sampled_cells():
        progress(name)
        yield _sampled_segments(name, kind, rule, control, _RUNS[length], randomness)


def points_subjects(places: int) -> Iterator[Subject]:
    """Both variants in one, two and eight dimensions; then controls.

    Args:
        places: random points that are moved, beside those at borders.
    """
    subject = partial(points_subject, places)
    for variant, dimension, epsilon in [("default", 2, 1), *itertools.product(_VARIANTS, (1, 2, 8), (8,))]:
        plan = audited_plan(variant, dimension, epsilon)
        yield subject(plan, f"points, {variant}, d = {dimension}, epsilon {epsilon}")
    for dimension in (1, 8):
        plan, words = audited_plan("default", dimension, 8), f"points, d = {dimension}"
        yield subject(plan, f"{words}, 2/3 of the noise", wrap=QuietNoise, control=True)
        yield subject(plan, f"{words}, one noise for all blocks", wrap=ReusedNoise, control=True)
        yield subject(plan, f"{words}, everything measured twice", wrap=MeasuredTwice, control=True)
        free = _rescheduled(plan, FreeHistory)
        yield subject(free, f"{words}, what is read later is free", control=True)
    late = _rescheduled(audited_plan("default", 8, 8), LateLevels)
    yield subject(late, "points, d = 8, late levels pay as early ones", control=True)


_VARIANTS = ("paper", "default")


def audited_plan(variant: str, dimension: int, epsilon: int) -> PointsPlan:
    """Cells so deep that audits' points fill several levels."""
    return cube_plan(dimension, variant, _DEPTH, epsilon)


# Exact.


def points_subject(places: int, plan: PointsPlan, name: str, **more: Any) -> Subject:
    """Streams that differ in one point, for several points and distances."""

    def pairs() -> Iterator[Pair]:
        generator = np.random.default_rng(5)
        points = generator.random((_POINTS, plan.schedule.dimension))
        base, chosen = cube_cells(points, _DEPTH), _places(plan, places, generator)
        run = points_run(plan, base)
        near = [(place, 2.0**-9) for place in (0, _POINTS // 2, _POINTS - 1)]
        for place, far in [*near, *((place, 0.5) for place in chosen)]:
            moved = points.copy()
            moved[place] = (moved[place] + far) % 1.0
            other = cube_cells(moved, _DEPTH)
            where = f"point {place + 1} of {_POINTS} moved by {far:.2g}"
            tests = _tests_loss(plan, base, other, place)
            yield Pair(where, run, points_run(plan, other), more=tests)

    return Subject(name, PureDP(plan.schedule.epsilon), pairs, **more)


def _places(plan: PointsPlan, most: int, generator: np.random.Generator) -> list[int]:
    """The indices of the points that are moved: first, middle, last, the first of each level, and some others."""
    starts = {plan.schedule.start(level) - 1 for level in range(12)}
    some = generator.permutation(_POINTS)[:most].tolist()
    return sorted({0, _POINTS // 2, _POINTS - 1, *some, *(place for place in starts if place < _POINTS)})


def _tests_loss(plan: PointsPlan, base: Ints, neighbour: Ints, place: int) -> float:
    """The largest loss of the sparse counters in the cells that differ: for each, one test and one segment's sum."""
    level, loss = plan.schedule.level_of(place + 1), 0.0
    for depth in range(1, plan.schedule.depth(level) + 1):
        if (base >> (_DEPTH - depth) != neighbour >> (_DEPTH - depth)).any():
            rule = plan.schedule.rule(depth, level)
            ticks = min(8, plan.schedule.ticks(level))
            loss += 2 * (float(1 / rule.tests.scale) + certify(rule.segments, ticks).certified)
    return loss


def points_run(plan: PointsPlan, codes: Ints) -> Run:
    """Everything that the stream releases, after every quarter of an audit's points."""
    every = _POINTS // 4

    def run(randomness: Randomness) -> Iterator[list[NDArray[Any]]]:
        state = plan.start()
        for first in range(0, len(codes), every):
            plan.read(state, codes[first : first + every], randomness)
            sums = [*state.stored, *state.blocks.sums, *state.blocks.newest, state.cells.counted]
            measured = [one.values for one in state.measured]
            yield [*measured, *sums, plan.counts(state)]

    return run


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
    watched = type(kind.__name__, (_Watched, kind), {})

    def patterns(codes: Sequence[int]) -> Ints:
        arrivals = np.array(codes, np.int64)
        return np.array([_ends(watched, rule, arrivals, randomness) for _ in range(runs)])

    pairs = [(*_PAIR, "the fourth of five points moved out of the cell")]
    return audit_outcomes(patterns, pairs, PureDP.of(2), name, POINTS_CONFIDENCE, control=control)


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
