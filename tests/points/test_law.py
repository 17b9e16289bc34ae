"""The event-driven cells against the literal algorithm, tick by tick: the same law, on small trees.

Each comparison is a two-sample chi-square test of whole transcripts that fails a correct program with probability 1e-8;
there are fewer than 20. Every comparison is repeated with a literal algorithm that is wrong in one way and must
then fail.
"""

from __future__ import annotations

from collections import Counter as Tally
from copy import copy
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.counters import CounterState
from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.core.privacy.joint import sample
from dpstream.families.points import PointsPlan
from dpstream.families.points.cells import PAPER, CellRule, Design, PointCells, cell_rule
from dpstream_lab.audits.points_audit import cube_cells, cube_plan

#: Thresholds so low that segments end all the time.
LOW = Design(Fraction(1), Fraction(1, 2), Fraction(1), True, Fraction(0), False, False)
TICKS = 10
# Cells 2 (left) and 3 (right), one arrival a tick; a cell may rest, or get everything.
STREAMS = ([0, 0, 1, 0, 0, 0, 1, 0, 0, 1], [0] * 10, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
Transcript = tuple[object, ...]


def same_law(left: list[object], right: list[object]) -> bool:
    """Two-sample chi-square at 1e-8; rare outcomes pooled."""
    from scipy.stats import chi2

    one, two = Tally(left), Tally(right)
    common = [key for key in one.keys() | two.keys() if one[key] + two[key] >= 25]
    table = np.array([[one[key], two[key]] for key in common], float)
    rest = np.array([[len(left), len(right)]]) - table.sum(axis=0)
    if rest.sum() >= 40:
        table = np.vstack([table, rest])
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    assert len(table) > 10, "the transcripts say too little"
    return bool(((table - expected) ** 2 / expected).sum() < chi2.isf(1e-8, len(table) - 1))


class Recorded(PointCells):
    """Cells that remember which segment ended when, with how many points."""

    log: list[tuple[int, int, int]]

    def _end_segment(self, cell: int, rule: CellRule, randomness: Randomness) -> None:
        self.log.append((cell, int(self.due[cell]), int(self.pending[cell])))
        super()._end_segment(cell, rule, randomness)


def summary(log: list[tuple[int, int, int]]) -> Transcript:
    """All ends of the left cell's segments, and how many points the right cell's hold."""
    return (*(tick for cell, tick, _ in log if cell == 2), "|", *(held for cell, _, held in log if cell == 3))


def event_driven(
    stream: list[int], rule: CellRule, parts: tuple[int, ...], randomness: Randomness
) -> Transcript:
    Recorded.log = []
    cells = Recorded.begin(1, 1, len(stream), (rule,), randomness)
    first = 1
    for size in parts:
        cells.arrive(np.array(stream[first - 1 : first - 1 + size], np.int64), first, randomness)
        first += size
    assert cells.total.tolist() == [0, 0, stream.count(0), stream.count(1)]
    return summary(Recorded.log)


def literal(
    stream: list[int], rule: CellRule, runs: int, randomness: Randomness, fault: str = ""
) -> list[object]:
    """Algorithm 2 for both cells, with a test in every cell at every tick; ``runs`` times."""
    tests = DiscreteLaplace(rule.tests.scale * Fraction(2, 3)) if fault == "less noise" else rule.tests
    ticks = len(stream)
    all_kept = randomness.draw(rule.tests, runs * 2 * (ticks + 1)).reshape(runs, 2, ticks + 1).tolist()
    all_fresh = randomness.draw(tests, runs * 2 * ticks).reshape(runs, 2, ticks).tolist()
    result: list[object] = []
    for both_kept, both_fresh in zip(all_kept, all_fresh, strict=True):
        log: list[tuple[int, int, int]] = []
        for cell, kept, fresh in zip((2, 3), both_kept, both_fresh, strict=True):
            pending, limit, segment = 0, rule.threshold + kept[0], 0
            for tick, (code, noise) in enumerate(zip(stream, fresh, strict=True), start=1):
                before = pending
                pending += code + 2 == cell
                seen = before if fault == "tests before the arrival" else pending
                if fault == "threshold noise drawn anew":
                    limit = rule.threshold + kept[tick]
                if seen + noise >= limit:
                    log.append((cell, tick, pending))
                    segment += 1
                    pending = 0
                    if fault != "threshold noise kept":
                        limit = rule.threshold + kept[segment]
        result.append(summary(log))
    return result


FAULTS = ("less noise", "tests before the arrival", "threshold noise kept", "threshold noise drawn anew")


@pytest.mark.parametrize("stream", STREAMS)
def test_segments_end_as_if_every_tick_were_tested(stream: list[int]) -> None:
    rule, runs = cell_rule(Fraction(3), TICKS, LOW), 2500
    source = Randomness.seeded(str(stream))
    parts = ((10,), (1,) * 10, (3, 4, 3))
    seen: list[object] = [event_driven(stream, rule, parts[i % 3], source) for i in range(runs)]
    assert same_law(seen, literal(stream, rule, 4 * runs, source))
    wrong = {fault: literal(stream, rule, 4 * runs, source, fault) for fault in FAULTS}
    caught = {fault for fault in FAULTS if not same_law(seen, wrong[fault])}
    assert caught >= {"less noise", "threshold noise drawn anew"}
    assert stream != STREAMS[0] or "tests before the arrival" in caught


def test_stale_draws_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: cells that keep a drawn tick although the gap fell below its floor follow another law."""
    rule, source, runs = cell_rule(Fraction(3), TICKS, LOW), Randomness.seeded(6), 2500
    expected = literal(STREAMS[0], rule, 4 * runs, source)
    draw = PointCells._draw

    def once(
        self: PointCells, cells: NDArray[np.int64], rule: CellRule, tick: int, randomness: Randomness
    ) -> None:
        """Redraws for arrivals keep the old tick (it is still ahead), and lower the floor."""
        if len(cells) == 1 and self.due[cells[0]] >= tick:
            self.floor[cells] = np.minimum(self.floor[cells], self.limit[cells] - self.pending[cells])
            return
        draw(self, cells, rule, tick, randomness)

    monkeypatch.setattr(PointCells, "_draw", once)
    assert not same_law([event_driven(STREAMS[0], rule, (10,), source) for _ in range(runs)], expected)


# --- the whole algorithm -----------------------------------------------------------------------------------


def algorithm_1(plan: PointsPlan, points: NDArray[np.float64], randomness: Randomness) -> list[list[int]]:
    """The text, cell by cell and tick by tick: noisy counts of the first cell of each depth at the end."""
    schedule, d = plan.schedule, points.shape[1]
    result = []
    for depth in range(1, schedule.depth(schedule.level_of(len(points))) + 1):
        inside = [_cell(point, depth, d) for point in points]
        first_level = depth if d >= 2 else -1
        result.append([_algorithm_3(plan, depth, [one == 0 for one in inside], first_level, randomness)])
    return result


def _cell(point: NDArray[np.float64], depth: int, d: int) -> int:
    """Halve the cube again and again."""
    low, high, cell = np.zeros(d), np.ones(d), 0
    for j in range(depth):
        axis, middle = j % d, (low[j % d] + high[j % d]) / 2
        upper = point[axis] >= middle
        (low if upper else high)[axis] = middle
        cell = 2 * cell + int(upper)
    return cell


def _algorithm_3(
    plan: PointsPlan, depth: int, stream: list[bool], first_level: int, randomness: Randomness
) -> int:
    schedule, stored, last = plan.schedule, 0, len(stream)
    for level in range(first_level, schedule.level_of(last) + 1):
        begin, end = schedule.start(level), schedule.start(level + 1) - 1
        if begin > end:
            continue
        epsilon = schedule.spent(depth, max(level, depth))
        part = stream[begin - 1 : min(end, last)]
        if end >= last:
            return stored + _algorithm_2(
                part, epsilon / 2, end - begin + 1, plan.schedule.design.factor, randomness
            )
        stored += sum(part) + int(randomness.draw(DiscreteLaplace(2 / epsilon), 1)[0])
    raise AssertionError


def _algorithm_2(
    part: list[bool], epsilon: Fraction, ticks: int, factor: Fraction, randomness: Randomness
) -> int:
    rule = cell_rule(2 * epsilon, ticks, PAPER if factor == PAPER.factor else LOW)
    noise = DiscreteLaplace(2 / epsilon)
    state: CounterState = rule.segments.init(1)
    fresh = iter(sample(noise, 2 * len(part) + 2, randomness.words).tolist())
    pending, limit, estimate = 0, rule.threshold + next(fresh), 0
    for bit in part:
        pending += bit
        if pending + next(fresh) >= limit:
            estimate = int(rule.segments.step(state, np.array([pending], np.int64), randomness)[0])
            pending, limit = 0, rule.threshold + next(fresh)
    return estimate


@pytest.mark.parametrize("dimension", [1, 2])
def test_counts_follow_the_text(dimension: int) -> None:
    """Noisy counts of the first cells at the end of a stream over several levels, in bins, against the text.

    Control: an algorithm whose levels have two thirds of the noise.
    """
    plan = cube_plan(dimension, depth=2, epsilon=20, design=LOW)
    low = copy(plan)
    object.__setattr__(low, "schedule", _Louder(plan.schedule))
    generator, source = np.random.default_rng(3), Randomness.seeded(8)
    points = np.round(generator.random((11, dimension)) ** 2, 2)
    runs, width = 1200, 4

    def bins(counts: list[list[int]]) -> tuple[int, ...]:
        # One cell of each depth: with more, every transcript would be unique.
        return tuple(int(row[0] // width) for row in counts)

    def engine() -> tuple[int, ...]:
        state = plan.start(int(source.coins("a seed")[0]))
        for part in np.array_split(points, 3):
            plan.read(state, cube_cells(part, 2), source)
        sums = [
            state.stored[j - 1] + state.cells.counted[1 << j : 2 << j]
            for j in range(1, state.cells.depth + 1)
        ]
        return bins([row.astype(int).tolist() for row in sums])

    seen = [engine() for _ in range(runs)]
    assert same_law(seen, [bins(algorithm_1(plan, points, source)) for _ in range(runs)])
    assert not same_law(seen, [bins(algorithm_1(low, points, source)) for _ in range(runs)])


class _Louder:
    """A schedule that gives every level half as much again."""

    def __init__(self, schedule: object) -> None:
        self._schedule = schedule

    def __getattr__(self, name: str) -> object:
        return getattr(self._schedule, name)

    def spent(self, depth: int, level: int) -> Fraction:
        return self._schedule.spent(depth, level) * Fraction(3, 2)
