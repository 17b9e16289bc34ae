"""Cells of points: when they begin, what they spend, how they are counted, and what a stream remembers of them.

Trusted base: kernel (counts points, measures).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from dpstream.core.contracts import UNPACKED
from dpstream.core.counters import CalibratedCounter, CounterState, TreeCounter, UnboundedBlockCounter
from dpstream.core.counters.counter import MAX_INCREMENT, MAX_TICKS
from dpstream.core.errors import BudgetError, LimitError
from dpstream.core.privacy import DiscreteLaplace, Event, PureDP, Randomness
from dpstream.families.points.pooling import CellCounts, FinishedBlocks, Floats, Ints, pool

# When cells begin and what they may spend: all public, all exact.
#
# Ticks count points. Level ``r`` is ``[t_r, t_(r+1))`` with ``t_r = ceil(leaf 2^r / epsilon)``; level -1 is
# what comes before ``t_0``. Cells of depth ``j`` begin with level ``j``, at tick ``t_j``.
#
# What one arrival in level ``r`` pays, on the path of cells that holds it:
#
# * each depth ``j <= r``: ``spent(j, r)``, in two parts: the sparse counter of the level, and the sum of the
#   block that holds the arrival (one block is the whole level);
# * each depth ``j > r`` whose cells read level ``r`` when they begin: ``reread(j, r)``.
#
# Under replacement two paths change, so the sum over all depths is at most ``epsilon/2``, for every ``r``.

#: Points of one stream.
MAX_TICK = 2**38
#: Deepest partition: arrays of all cells then take about two gigabytes.
MAX_DEPTH = 24
#: Amounts are multiples of epsilon over this: rational ones just below the printed, irrational ones.
_GRID = 1 << 40
#: An average cell of a block holds this many times its noise's scale, or the level is cut into fewer blocks: each one
#: adds its noise. Little is enough: where points gather, cells hold more than the average.
_CLEAR_BLOCK = 2
#: ``d = 1``: depth ``j`` pays in proportion to ``1 / (j + _EVEN)``.
_EVEN = 4


@dataclass(frozen=True)
class Design:
    """Public constants of a variant; the guarantee holds for any.

    Attributes:
        leaf: ``t_r = ceil(leaf 2^r / epsilon)``.
        test_share: part of a level's budget for its sparse counter; the rest pays the sums of its blocks.
        factor: the sparse counter's threshold is ``factor b ln T``, ``b`` the scale of its tests' noise.
        tree: whether segments are counted by a binary tree (else by unbounded blocks with closed partitions).
        history: weight of the one sum of earlier points with which a depth begins, relative to its own first level.
            0 for none (``d >= 2``) or for one sum a level (``d = 1``), as in the text.
        even: ``d = 1``: whether depths pay about alike, up to the deepest one (else as in the text, for ever less).
        pooled: whether levels' sums are combined by variance, and parents split as far as that is more than noise.
        blocks: into how many blocks a level is cut at most, each of which has its own noisy sums; a power of two.
    """

    leaf: Fraction
    test_share: Fraction
    factor: Fraction
    tree: bool
    history: Fraction
    even: bool
    pooled: bool
    blocks: int = 1


#: Default: cells begin the earlier, the more of them are needed for one more cut of every side.
_LEAVES = {1: Fraction(16), 2: Fraction(8), 3: Fraction(16, 3)}

PAPER = Design(Fraction(1), Fraction(1, 2), Fraction(9, 2), True, Fraction(0), False, False)
DEFAULT = Design(Fraction(16), Fraction(1, 32), Fraction(2), False, Fraction(1), True, True, 8)


def default_design(dimension: int) -> Design:
    """What ``variant = "default"`` means."""
    return replace(DEFAULT, leaf=_LEAVES.get(dimension, Fraction(4)))


@dataclass(frozen=True)
class Schedule:
    """Levels and budgets for one dimension and epsilon, and the noise that they give; frozen, without data."""

    dimension: int
    epsilon: Fraction
    design: Design
    max_depth: int

    def start(self, level: int) -> int:
        """``t_r``; 1 for level -1."""
        return 1 if level < 0 else self._starts[level]

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """More levels than ``MAX_TICK`` can reach: epsilon is at most 1000."""
        return tuple(math.ceil(self.design.leaf * 2**level / self.epsilon) for level in range(64))

    def ticks(self, level: int) -> int:
        """How many ticks the level has; 0 for some early ones where epsilon is large."""
        return self.start(level + 1) - self.start(level)

    def level_of(self, tick: int) -> int:
        """The level that holds a tick (the last one that begins with it or before)."""
        level = -1
        while self.start(level + 1) <= tick:
            level += 1
        return level

    def blocks(self, depth: int, level: int) -> int:
        """How many blocks of a level give sums of cells of this depth: as many as leave an average cell points enough.

        A power of two, so that blocks of some depth are made of blocks of any depth above.
        """
        number, ticks = 1, self.ticks(level)
        scale = 1 / (self.spent(depth, level) * (1 - self.design.test_share))
        most = min(self.design.blocks, ticks)
        while 2 * number <= most and Fraction(ticks, 2 * number << depth) >= _CLEAR_BLOCK * scale:
            number *= 2
        return number

    def block_ends(self, level: int) -> tuple[int, ...]:
        """Last ticks of the blocks of depth 1, the shortest ones; the last one ends with the level."""
        if level < 1 or not self.ticks(level):
            return ()
        blocks = self.blocks(1, level)
        return tuple(self.start(level) - 1 + self.ticks(level) * i // blocks for i in range(1, blocks + 1))

    def measured(self, level: int) -> int:
        """How many noisy counts the cells of a level draw: the sums of its blocks, and the first counts of a depth that
        begins with it."""
        depth, numbers = self.depth(level), 0
        if self.ticks(level):
            numbers += sum(self.blocks(j, level) << j for j in range(1, depth + 1))
        if 1 <= level <= self.max_depth:
            reads = [
                before for before in range(-1, level) if self.ticks(before) and self.reread(level, before)
            ]
            whole = self.rereads_all and self.design.history > 0
            numbers += (min(1, len(reads)) if whole else len(reads)) << level
        return numbers

    def depth(self, level: int) -> int:
        """The deepest cells of a level."""
        return min(max(level, 0), self.max_depth)

    @property
    def rereads_all(self) -> bool:
        """``d = 1``: cells begin with everything before, whatever its level."""
        return self.dimension == 1

    @cached_property
    def _decay(self) -> float:
        """``1/alpha``."""
        return math.exp2(-(1.0 - 1.0 / self.dimension) / 2.0)

    @cached_property
    def _constant(self) -> float:
        """``C``; one part in 2^40 is left for the errors of floating point."""
        if self.dimension == 1:
            whole = 3.0 / math.pi**2
            if self.design.even:
                whole = 0.5 / sum(1.0 / (j + _EVEN) for j in range(1, self.max_depth + 1))
        else:
            whole = 0.5 / (1.0 / (1.0 - self._decay) + float(self.design.history))
        return whole * (1.0 - 2.0**-40)

    def spent(self, depth: int, level: int) -> Fraction:
        """``epsilon_(j,r)``, rounded down to a rational number."""
        if not 1 <= depth <= min(level, self.max_depth):
            return Fraction(0)
        if self.dimension == 1:
            weight = self._constant / (depth + _EVEN if self.design.even else (depth + 1) ** 2)
        else:
            weight = self._constant * self._decay ** (level - depth)
        return self.epsilon * Fraction(math.floor(weight * _GRID), _GRID)

    def reread(self, depth: int, level: int) -> Fraction:
        """What the first sum of cells of ``depth`` costs an arrival of an earlier level."""
        if not max(level, 0) < depth <= self.max_depth:
            return Fraction(0)
        if self.rereads_all:
            return self.spent(depth, depth)
        return self.spent(depth, depth) * self.design.history if level == depth - 1 else Fraction(0)

    def path_cost(self, level: int) -> Fraction:
        """What an arrival in ``level`` pays on one path, all depths together; exact."""
        return sum(
            (self.spent(j, level) + self.reread(j, level) for j in range(1, self.max_depth + 1)), Fraction(0)
        )

    def check(self) -> None:
        """Sum up every level up to ``MAX_TICK``.

        Errors:
            BudgetError: some arrival would pay more than half of epsilon on a path.
        """
        if max(self.path_cost(level) for level in range(-1, self.level_of(MAX_TICK) + 1)) > self.epsilon / 2:
            raise BudgetError("the levels' budgets exceed epsilon", where="points")

    # Levels and budgets as noise.

    @cached_property
    def most_points(self) -> int:
        """2^38, or fewer where epsilon is tiny and later noise would not fit 64-bit sums.

        The largest noise is that of the highest cells (``d >= 2``) or of the deepest (``d = 1``).
        """
        level = max(1, self.level_of(MAX_TICK))
        while True:
            try:
                for depth in (1, self.depth(level)):
                    self.rule(depth, level)
                return min(MAX_TICK, self.start(level + 1) - 1)
            except LimitError:
                if level == 1:
                    raise LimitError(
                        "epsilon is too small: the first level's noise exceeds 64-bit sums",
                        where="budget",
                        allowed="a larger epsilon",
                    ) from None
                level -= 1

    def rule(self, depth: int, level: int) -> CellRule:
        """The noise and the threshold of the cells of a depth in a level; public."""
        return cell_rule(self.spent(depth, level), max(1, self.ticks(level)), self.design)

    def first_levels(self, depth: int) -> list[list[int]]:
        """``d = 1``: the levels before cells of ``depth`` begin, those together that are counted in one sum."""
        levels = [level for level in range(-1, depth) if self.ticks(level)]
        return [levels] if self.design.history > 0 else [[level] for level in levels]

    def first_noise(self, depth: int) -> DiscreteLaplace:
        """Of the first counts of cells of a depth."""
        scale = 2 if self.rereads_all and not self.design.history else 1
        return DiscreteLaplace(scale / self.reread(depth, depth - 1))

    def measured_variances(self, level: int) -> list[float]:
        """Of the sums of a finished level, by depth; also of the first counts of a depth that reads it."""
        if not self.ticks(level):
            return []
        depths = range(1, self.depth(level) + 1)
        variances = [self.blocks(j, level) * self.rule(j, level).block.variance for j in depths]
        if not self.rereads_all and self.reread(level + 1, level):
            variances.append(self.first_noise(level + 1).variance)
        return variances


@lru_cache(maxsize=256)
def log_fraction(ticks: int) -> Fraction:
    """``ln T`` to six digits: a threshold is public, but should be the same number everywhere."""
    return Fraction(round(math.log(ticks), 6)).limit_denominator(10**6)


# All cells' counters, evaluated when something happens instead of at every tick.
#
# The law is that of testing every cell at every tick with fresh noise. Why this is exact:
#
# * One test a tick, after the tick's arrival. Between arrivals a cell's test has a constant probability of a
#   yes, so the waiting time is geometric; it is drawn exactly (``privacy.waiting``).
# * Thinning. What is drawn is the next tick at which the fresh noise is at least ``floor``, a level below the
#   cell's gap (threshold plus its noise less what is pending). At that tick the noise is compared with the
#   gap, by one exact coin. While the gap falls but stays at ``floor`` or above, the drawn tick stays valid.
# * When the gap falls below ``floor``, the drawn tick is discarded and drawn anew from the arrival's own test
#   on. Whether that happens is decided by arrivals, never by noise to come, so the noise of those tests is
#   still fresh.
# * The threshold's noise is drawn once a segment. At a level's end all drawn ticks are discarded.
# * Cells never look at each other, so the order in which they are evaluated does not matter.

_NO_FLOOR = -(2**62)


@dataclass(frozen=True)
class CellRule:
    """Noise of the cells of one depth in one level; public.

    Guarantee: everything a cell gives in the level is pure DP with ``epsilon`` for one arrival in it. The sparse
    counter costs ``test_share epsilon``: half for the tests (one arrival moves all later counts of its segment the same
    way, so the scale is 1 over that half: docs/theory/counters.md), half for the counter of segments. The
    level's sum costs the rest, but for what the sums of blocks cost where the cells give them.

    Attributes:
        tests: noise of every test, and of every segment's threshold.
        threshold: in points.
        segments: the counter of segments.
        block: noise of the sum of each block of the level.
    """

    tests: DiscreteLaplace
    threshold: int
    segments: CalibratedCounter
    block: DiscreteLaplace


@lru_cache(maxsize=4096)
def cell_rule(epsilon: Fraction, ticks: int, design: Design) -> CellRule:
    """The rule for a level of ``ticks`` with ``epsilon`` for an arrival.

    Errors:
        LimitError: the noise, or a segment's sum, would not fit 64-bit sums.
    """
    half = epsilon * design.test_share / 2
    tests = DiscreteLaplace(1 / half)
    recipe = (
        TreeCounter(min(ticks, MAX_TICKS)) if design.tree else UnboundedBlockCounter(close_partitions=True)
    )
    segments = recipe.calibrate(PureDP(half), Event())
    threshold = math.ceil(design.factor * tests.scale * log_fraction(ticks))
    # A segment's sum must be an increment that a counter takes, whatever arrives: decided by public numbers, here.
    if threshold + 60 * tests.scale > MAX_INCREMENT:
        raise LimitError(
            "the sparse counters' noise exceeds 64-bit sums", where="points", allowed="a larger epsilon"
        )
    return CellRule(tests, threshold, segments, DiscreteLaplace(1 / (epsilon * (1 - design.test_share))))


@dataclass
class PointCells:
    """The cells' sparse counters in one level, in heap order; secret but for ``counted``.

    Attributes:
        depth: of the deepest cells.
        end: the last tick of the level.
        total: arrivals in the level.
        pending: arrivals in the open segment.
        limit: the segment's threshold with its noise.
        floor: noise below this was left out of the draw of ``due``; at most the gap ``limit - pending``.
        due: the next tick at which the noise is at least ``floor``; after ``end`` where none is in the level.
        counted: the noisy sum of the level's finished segments; what is released.
        segments: the counters of segments, made when a cell's first segment ends.
        counter: which of ``segments`` is the cell's; -1 for none.
    """

    depth: int
    end: int
    rules: tuple[CellRule, ...] = field(metadata=UNPACKED)
    total: Ints
    pending: Ints
    limit: Ints
    floor: Ints
    due: Ints
    counted: Ints
    counter: Ints
    segments: list[CounterState] = field(default_factory=list)

    @classmethod
    def empty(cls, depth: int, end: int, rules: tuple[CellRule, ...]) -> Self:
        """Cells of which nothing is drawn."""
        total, pending, limit, floor, due, counted, counter = (
            np.full(2 << depth, value, np.int64) for value in (0, 0, 0, 0, end + 1, 0, -1)
        )
        return cls(depth, end, rules, total, pending, limit, floor, due, counted, counter)

    @classmethod
    def begin(
        cls, depth: int, first: int, end: int, rules: tuple[CellRule, ...], randomness: Randomness
    ) -> Self:
        """All cells at the beginning of a level; ``rules`` for depth 1, 2, ..."""
        cells = cls.empty(depth, end, rules)
        for j, rule in enumerate(rules, start=1):
            at = slice(1 << j, 2 << j)
            cells.limit[at] = rule.threshold + randomness.draw(rule.tests, 1 << j)
            cells._draw(np.arange(1 << j, 2 << j), rule, first, randomness)
        return cells

    def arrive(self, codes: Ints, first: int, randomness: Randomness) -> None:
        """One arrival a tick, beginning with tick ``first``, all in this level; ``codes`` at ``depth``.

        Cost: a few array operations for each depth, and a little Python for each test that may say yes.
        """
        if not self.depth:
            return
        last = first + len(codes) - 1
        # One column a depth; cells in heap order.
        paths = np.stack([(codes >> (self.depth - j)) | (1 << j) for j in range(1, self.depth + 1)], axis=1)
        touched, counts = self._tally(paths)
        low = self.limit[touched] - self.pending[touched] - counts < self.floor[touched]
        walked = set(touched[low].tolist()) | set(np.flatnonzero(self.due <= last).tolist())
        self.total[touched] += counts
        if walked:
            rest = ~np.isin(touched, np.fromiter(walked, np.int64))
            touched, counts = touched[rest], counts[rest]
        self.pending[touched] += counts
        for cell in sorted(walked):
            ticks = first + np.flatnonzero(paths[:, cell.bit_length() - 2] == cell)
            self._walk(cell, ticks.tolist(), last, randomness)

    def _tally(self, paths: Ints) -> tuple[Ints, Ints]:
        if paths.size * 4 < len(self.total):
            touched, counts = np.unique(paths, return_counts=True)
            return touched, counts
        every = np.bincount(paths.ravel(), minlength=len(self.total))
        touched = np.flatnonzero(every)
        return touched, every[touched]

    def _walk(self, cell: int, ticks: list[int], last: int, randomness: Randomness) -> None:
        """One cell through these ticks: its arrivals, its drawn tests, its segments' ends, in order of time."""
        rule, alone = self.rules[cell.bit_length() - 2], np.array([cell])
        done = 0  # arrivals that ``pending`` knows
        while True:
            gap, floor = int(self.limit[cell] - self.pending[cell]), int(self.floor[cell])
            below = done + gap - floor  # the arrival that takes the gap below the floor
            change, due = ticks[below] if below < len(ticks) else last + 1, int(self.due[cell])
            tested = due < change
            if not tested and change > last:
                self.pending[cell] += len(ticks) - done
                return
            seen = bisect_right(ticks, due) if tested else below + 1
            self.pending[cell] += seen - done
            done = seen
            if tested:
                gap = int(self.limit[cell] - self.pending[cell])
                if randomness.reaches(floor, gap, rule.tests):
                    self._end_segment(cell, rule, randomness)
            self._draw(alone, rule, due + 1 if tested else change, randomness)

    def _end_segment(self, cell: int, rule: CellRule, randomness: Randomness) -> None:
        if self.counter[cell] < 0:
            self.counter[cell] = len(self.segments)
            self.segments.append(rule.segments.init(1))
        state, held = self.segments[self.counter[cell]], self.pending[cell : cell + 1].copy()
        self.counted[cell] = rule.segments.step(state, held, randomness)[0]
        self.pending[cell] = 0
        self.limit[cell] = rule.threshold + randomness.draw(rule.tests, 1)[0]

    def _draw(self, cells: Ints, rule: CellRule, tick: int, randomness: Randomness) -> None:
        """Floors, and waiting times from the test of ``tick`` on."""
        left = self.end - tick + 1
        if left < 1:
            # No test is left in the level: nothing is drawn any more, however low the gap.
            self.due[cells], self.floor[cells] = self.end + 1, _NO_FLOOR
            return
        gap, scale = self.limit[cells] - self.pending[cells], float(rule.tests.scale)
        # Above ``high`` a yes is unlikely in what is left of the level. Nearer, a scale of room: fewer draws.
        high = math.ceil(scale * math.log(16.0 * left))
        room = np.maximum(np.minimum(high, gap - math.ceil(scale)), 0)
        self.floor[cells] = np.where(gap < 0, gap, room)
        times = randomness.waiting_times(self.floor[cells], rule.tests, left)
        self.due[cells] = np.where(times > 0, tick - 1 + times, self.end + 1)


# The noisy sums of the open level: it is cut into blocks, and each arrival is in one block of each depth.


def noisy(exact: Ints, noise: DiscreteLaplace, randomness: Randomness) -> Floats:
    """Whole numbers as floats: they stay far below 2^53."""
    return randomness.measure(exact, noise).astype(np.float64)


@dataclass
class Blocks(FinishedBlocks):
    """The same, and what the next blocks are counted from.

    Attributes:
        counted: exact totals of the level at the end of the depth's last block, in heap order; secret.
    """

    counted: Ints = field(default_factory=lambda: np.zeros(2, np.int64))

    @classmethod
    def begin(cls, schedule: Schedule, level: int, before: FinishedBlocks) -> Blocks:
        """No block is finished yet; what was newest still is."""
        depth, start = schedule.depth(level), schedule.start(level) - 1
        sums = [np.zeros(1 << j) for j in range(1, depth + 1)]
        return cls(
            schedule.block_ends(level),
            0,
            [start] * depth,
            sums,
            [0.0] * depth,
            list(sums),
            [0.0] * depth,
            before.newest,
            before.lengths,
            before.spread,
            np.zeros(2 << depth, np.int64),
        )

    def end(
        self, cells: PointCells, schedule: Schedule, level: int, randomness: Randomness
    ) -> list[CellCounts]:
        """The shortest blocks that are open end now, and those of deeper cells that end with them: their sums."""
        tick, begun = self.ends[self.done], schedule.start(level) - 1
        self.done += 1
        ending, measured = 0, list[CellCounts]()
        for depth, rule in enumerate(cells.rules, start=1):
            if self.done % (len(self.ends) // schedule.blocks(depth, level)):
                break
            at = slice(1 << depth, 2 << depth)
            block = noisy(cells.total[at] - self.counted[at], rule.block, randomness)
            self.counted[at] = cells.total[at]
            measured.append(CellCounts(depth, self.known[depth - 1] + 1, tick, block, rule.block))
            self.add(depth - 1, block, rule.block.variance, tick)
            ending = depth
        pooled, bounds = pool(self.sums[:ending], self.variance[:ending], float(tick - begun))
        self.pooled[:ending], self.bounds[:ending] = pooled, bounds
        return measured


# What a stream of points remembers.


@dataclass
class PointsState:
    """What is remembered between batches. Secret, but for ``stored`` and ``seed``.

    Attributes:
        points: how many were read.
        level: of the last point read (-1 before ``t_0``).
        cells: the level's sparse counters.
        stored: noisy counts of finished levels for each depth from 1; public.
        kept: points of each level from -1 on, as long as some cells still read them: codes, and how often each.
        seed: of the places of released points; public.
        blocks: noisy counts of the open level's finished blocks; public.
        measured: what was measured while the newest points were read; public, and not kept with the state.
    """

    points: int
    level: int
    cells: PointCells
    stored: list[Floats]
    kept: list[Ints]
    seed: int
    blocks: Blocks = field(default_factory=lambda: Blocks())
    measured: list[CellCounts] = field(default_factory=list, metadata=UNPACKED)
