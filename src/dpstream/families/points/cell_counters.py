"""All cells' counters, evaluated when something happens instead of at every tick.

The law is that of testing every cell at every tick with fresh noise. Why this is exact:

* One test a tick, after the tick's arrival. Between arrivals a cell's test has a constant probability of a yes, so the
  waiting time is geometric; it is drawn exactly (``privacy.waiting``).
* Thinning. What is drawn is the next tick at which the fresh noise is at least ``floor``, a level below the cell's gap
  (threshold plus its noise less what is pending). At that tick the noise is compared with the gap, by one exact coin.
  While the gap falls but stays at ``floor`` or above, the drawn tick stays valid.
* When the gap falls below ``floor``, the drawn tick is discarded and drawn anew from the arrival's own test on. Whether
  that happens is decided by arrivals, never by noise to come, so the noise of those tests is still fresh.
* The threshold's noise is drawn once a segment. At a level's end all drawn ticks are discarded.
* Cells never look at each other, so the order in which they are evaluated does not matter.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter, CounterState, TreeCounter, UnboundedBlockCounter
from dpstream.core.counters.counter import MAX_INCREMENT, MAX_TICKS
from dpstream.core.errors import LimitError
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.privacy.waiting import reaches, waiting_times
from dpstream.families.points.cell_schedule import Design, log_fraction

Ints = NDArray[np.int64]
_NO_FLOOR = -(2**62)


@dataclass(frozen=True)
class CellRule:
    """Noise of the cells of one depth in one level; public.

    Guarantee: everything a cell gives in the level is pure DP with ``epsilon`` for one arrival in it. The sparse
    counter costs ``test_share epsilon``: half for the tests (one arrival moves all later counts of its segment the same
    way, so the scale is 1 over that half: docs/theory/counters-sparse.md), half for the counter of segments. The
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
            "the noise of the sparse counters does not fit", where="points", allowed="a larger epsilon"
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
        due: the next tick at which the noise is at least ``floor``; 0 for none in the level.
        counted: the noisy sum of the level's finished segments; what is released.
        segments: the counters of segments, made when a cell's first segment ends.
        queue: drawn ticks and their cells, a heap; entries that ``due`` no longer confirms are skipped.
    """

    depth: int
    end: int
    rules: tuple[CellRule, ...]
    total: Ints
    pending: Ints
    limit: Ints
    floor: Ints
    due: Ints
    counted: Ints
    segments: dict[int, CounterState] = field(default_factory=dict)
    queue: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def begin(
        cls, depth: int, first: int, end: int, rules: tuple[CellRule, ...], randomness: Randomness
    ) -> PointCells:
        """All cells at the beginning of a level; ``rules`` for depth 1, 2, ..."""
        arrays = [np.zeros(1 << (depth + 1), np.int64) for _ in range(6)]
        total, pending, limit, floor, due, counted = arrays
        cells = cls(depth, end, rules, total, pending, limit, floor, due, counted)
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
        walked = set(touched[low].tolist()) | self._due_until(last)
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

    def _due_until(self, last: int) -> set[int]:
        due_cells = set()
        while self.queue and self.queue[0][0] <= last:
            tick, cell = heapq.heappop(self.queue)
            if self.due[cell] == tick:
                due_cells.add(cell)
        return due_cells

    def _walk(self, cell: int, ticks: list[int], last: int, randomness: Randomness) -> None:
        """One cell through these ticks: its arrivals, its drawn tests, its segments' ends, in order of time."""
        rule, one = self.rules[cell.bit_length() - 2], np.array([cell])
        done = 0  # arrivals that ``pending`` knows
        while True:
            gap, floor, due = (
                int(self.limit[cell] - self.pending[cell]),
                int(self.floor[cell]),
                int(self.due[cell]),
            )
            below = done + gap - floor  # the arrival that takes the gap below the floor
            change = ticks[below] if below < len(ticks) else last + 1
            if due and due < change:
                seen = bisect_right(ticks, due)
                self.pending[cell] += seen - done
                done = seen
                if reaches(rule.tests, floor, int(self.limit[cell] - self.pending[cell]), randomness):
                    self._end_segment(cell, rule, randomness)
                self._draw(one, rule, due + 1, randomness)
            elif change <= last:
                self.pending[cell] += below + 1 - done
                done = below + 1
                self._draw(one, rule, change, randomness)
            else:
                self.pending[cell] += len(ticks) - done
                return
            self._keep_due(cell, last)

    def _keep_due(self, cell: int, last: int) -> None:
        # Ticks up to ``last`` are for the walk itself.
        if self.due[cell] > last:
            heapq.heappush(self.queue, (int(self.due[cell]), cell))

    def _end_segment(self, cell: int, rule: CellRule, randomness: Randomness) -> None:
        state = self.segments.get(cell)
        if state is None:
            state = self.segments[cell] = rule.segments.init(1)
        sum_of_segment = self.pending[cell : cell + 1].copy()
        self.counted[cell] = rule.segments.step(state, sum_of_segment, randomness)[0]
        self.pending[cell] = 0
        self.limit[cell] = rule.threshold + randomness.draw(rule.tests, 1)[0]

    def _draw(self, cells: Ints, rule: CellRule, tick: int, randomness: Randomness) -> None:
        """Floors, and waiting times from the test of ``tick`` on; many cells also enter the queue."""
        left = self.end - tick + 1
        if left < 1:
            # No test is left in the level: nothing is drawn any more, however low the gap.
            self.due[cells], self.floor[cells] = 0, _NO_FLOOR
            return
        gap, scale = self.limit[cells] - self.pending[cells], float(rule.tests.scale)
        # Above ``high`` a yes is unlikely in what is left of the level. Nearer, a scale of room: fewer draws.
        high = math.ceil(scale * math.log(16.0 * left))
        room = np.maximum(np.minimum(high, gap - math.ceil(scale)), 0)
        self.floor[cells] = np.where(gap < 0, gap, room)
        times = waiting_times(rule.tests, self.floor[cells], left, randomness)
        self.due[cells] = np.where(times > 0, tick - 1 + times, 0)
        if len(cells) > 1:
            for cell in cells[times > 0].tolist():
                heapq.heappush(self.queue, (int(self.due[cell]), cell))
