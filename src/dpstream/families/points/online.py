"""Online synthetic points, without a horizon (He, Vershynin and Zhu 2024, Algorithm 1): from cells to counts of cells.

A cell of depth ``j`` is its index among ``2^j``; in heap order (used by all arrays here) it is ``2^j + index``, so the
cell above is one bit shorter and the root is 1. Which points a cell holds is said in ``space.py``.

Trusted base: kernel (counts points, measures).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, pack_fields, unpack_fields
from dpstream.core.counters import CounterState
from dpstream.core.errors import HorizonError, LimitError, StoreDamagedError, StoreFormatError
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.families.points.cells import (
    MAX_TICK,
    Blocks,
    CellCounts,
    CellRule,
    Design,
    PointCells,
    PointsState,
    Schedule,
    Splits,
    cell_rule,
    noisy,
    pool,
    shrunk,
    split_evenly,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Deepest partition: arrays of all cells then take about two gigabytes.
MAX_DEPTH = 24

# What is released: from public noisy sums to whole counts of all cells that add up. Public post-processing only.

#: The open level counts as a change of habits where it differs by more standard deviations than this.
_CHANGED_HABITS = 1.5


def whole_counts(plan: OnlineCells, state: PointsState, generator: np.random.Generator) -> Ints:
    """How many synthetic points are in each of the deepest cells."""
    counts, splits = np.array([state.points], np.int64), Splits()
    for depth, (cells, variance) in enumerate(cell_estimates(plan, state), start=1):
        left, right = cells[0::2], cells[1::2]
        if plan.design.pooled:
            # Points that came before the depth's cells are split as those since then: by the same factor for all.
            known = state.points / (state.points - _unseen(plan, depth))
            chosen = splits.split(counts, known * (left - right), 2.0 * known**2 * variance, generator)
        else:
            chosen = split_evenly(counts, left.astype(np.int64), right.astype(np.int64))
        counts = np.stack([chosen, counts - chosen], axis=1).ravel()
    return counts


def cell_estimates(plan: OnlineCells, state: PointsState) -> list[tuple[Floats, float]]:
    """Estimates of all cells of each depth, and the variance of one.

    In the text: what finished levels stored, and what the sparse counter has counted. The default expects of the open
    level what its blocks and the finished levels say, within what the sparse counter says: an open segment holds
    between 0 and about the threshold, so the level's count lies between ``counted`` and ``counted + threshold``, up to
    noise.
    """
    depth, schedule = state.cells.depth, plan.schedule
    stored, variances = state.stored[:depth], state.variance[:depth]
    if plan.design.pooled and schedule.rereads_all and stored:
        stored, variances = pool(stored, variances, float(schedule.start(state.level) - 1))
    result = []
    for j in range(1, depth + 1):
        counted = state.cells.counted[1 << j : 2 << j]
        if plan.design.pooled:
            open_level, variance = _open_level(plan, state, j, stored[j - 1], variances[j - 1])
            most = counted + state.cells.rules[j - 1].threshold
            result.append((stored[j - 1] + np.clip(open_level, counted, most), variance))
        else:
            result.append((stored[j - 1] + counted, variances[j - 1]))
    return result


def _unseen(plan: OnlineCells, depth: int) -> int:
    """How many points came before the first ones that cells of ``depth`` count."""
    if plan.schedule.rereads_all:
        return 0
    return plan.schedule.start(depth - 1 if plan.design.history else depth) - 1


def _open_level(
    plan: OnlineCells, state: PointsState, depth: int, stored: Floats, variance: float
) -> tuple[Floats, float]:
    """What the level holds so far: what finished levels let expect, and what its blocks say otherwise beyond noise.

    Where the depth's blocks end before now, the newest one goes on. Also the variance of the sum of the first and
    ``stored``.
    """
    schedule, blocks, i = plan.schedule, state.blocks, depth - 1
    before = schedule.start(state.level) - 1
    rate = (state.points - before) / max(before - _unseen(plan, depth), 1)
    expected, total = rate * np.maximum(stored, 0.0), (1.0 + rate) ** 2 * variance
    if i >= len(blocks.newest):
        return expected, total
    growth, last = (state.points - blocks.known[i]) / blocks.lengths[i], blocks.spread[i]
    seen = blocks.pooled[i] + growth * np.maximum(blocks.newest[i], 0.0)
    if blocks.known[i] > before:
        # The newest block is also in ``pooled``.
        spread = max(blocks.bounds[i] - last, 0.0) + (1.0 + growth) ** 2 * last
    else:
        spread = growth**2 * last
    noise = _CHANGED_HABITS * math.sqrt(spread + rate**2 * variance)
    return expected + shrunk(seen - expected, noise), total


# This many points are handled at a time: the paths of a chunk stay within some megabytes.
_CHUNK = 1 << 15


@dataclass(frozen=True)
class OnlineCells:
    """Calibrated cells; frozen, without data.

    Guarantee: all counts together are pure DP with the schedule's epsilon for the replacement of one point, also if
    points are chosen in view of earlier releases. A point is on one path of cells; each depth pays what ``Schedule``
    says for the level in which the point came, and ``Schedule.check`` has added that up: at most half of epsilon on a
    path, and a replacement changes two paths. Proof: docs/theory/points.md.

    Attributes:
        schedule: levels and budgets.

    Errors:
        LimitError: epsilon is so small that not even the first level's noise would fit 64-bit sums.
    """

    schedule: Schedule

    def __post_init__(self) -> None:
        self.schedule.check()
        assert self.most_points

    @property
    def design(self) -> Design:
        """Public constants."""
        return self.schedule.design

    @cached_property
    def most_points(self) -> int:
        """2^38, or fewer where epsilon is tiny and later noise would not fit 64-bit sums.

        The largest noise is that of the highest cells (``d >= 2``) or of the deepest (``d = 1``).
        """
        level = max(1, self.schedule.level_of(MAX_TICK))
        while True:
            try:
                for depth in (1, self.schedule.depth(level)):
                    self.rule(depth, level)
                return min(MAX_TICK, self.schedule.start(level + 1) - 1)
            except LimitError:
                if level == 1:
                    raise LimitError(
                        "epsilon is so small that the first level's noise does not fit 64-bit sums",
                        where="budget",
                        allowed="a larger epsilon",
                    ) from None
                level -= 1

    def fresh(self, seed: int = 0) -> PointsState:
        """A fresh state whose releases have this seed; public."""
        return PointsState(0, -1, self._no_cells(self.schedule.start(0) - 1), [], [], {}, seed)

    def read(self, state: PointsState, codes: Ints, randomness: Randomness) -> None:
        """Read points, one a tick, in the order given.

        Args:
            codes: private; the index of each point's cell of ``max_depth``. Their number is public.

        Errors (before anything is drawn or changed): HorizonError: more points than a stream may have.

        Cost: O(depth) a point, in arrays; about a microsecond a point and depth for large batches.
        """
        self.check_room(state, len(codes))
        state.measured = []
        done = 0
        while done < len(codes):
            tick = state.points + 1
            while tick > state.cells.end:
                self._next_level(state, randomness)
            part = codes[done : done + min(_CHUNK, self._border(state) - state.points)]
            state.cells.arrive(part >> (self.schedule.max_depth - state.cells.depth), tick, randomness)
            if self._keeps(state.level):
                state.kept.setdefault(state.level, []).append(part)
            state.points += len(part)
            done += len(part)
            if state.blocks.done < len(state.blocks.ends) and state.points == self._border(state):
                state.measured += state.blocks.end(state.cells, self.schedule, state.level, randomness)

    def check_room(self, state: PointsState, more: int) -> None:
        """HorizonError where a stream cannot take so many points more; their number is public."""
        if state.points + more > self.most_points:
            raise HorizonError(
                "a stream has too many points", where="points", allowed=f"up to {self.most_points}"
            )

    def counts(self, state: PointsState) -> Ints:
        """How many synthetic points are in each cell of the deepest cells now; public. Nothing is spent.

        The coins of rounding are the same for every release of a state's seed: counts then change only where the
        estimates do.
        """
        return whole_counts(self, state, np.random.default_rng([state.seed, 0]))

    # What is counted.

    def rule(self, depth: int, level: int) -> CellRule:
        """The noise and the threshold of the cells of a depth in a level; public."""
        schedule = self.schedule
        return cell_rule(schedule.spent(depth, level), max(1, schedule.ticks(level)), self.design)

    def _border(self, state: PointsState) -> int:
        """The tick with which the open block ends, or the level."""
        blocks = state.blocks
        return blocks.ends[blocks.done] if blocks.done < len(blocks.ends) else state.cells.end

    def _no_cells(self, end: int) -> PointCells:
        empty = np.zeros(2, np.int64)
        return PointCells(0, end, (), empty, empty, empty, empty, empty, empty)

    def _keeps(self, level: int) -> bool:
        """Whether cells that begin later read this level's points."""
        schedule = self.schedule
        return schedule.rereads_all or schedule.reread(level + 1, level) > 0

    def _next_level(self, state: PointsState, randomness: Randomness) -> None:
        """Close the level, begin the next one and its cells. Only public facts decide here."""
        schedule = self.schedule
        self._store_level(state, randomness)
        state.level += 1
        state.blocks = Blocks.begin(schedule, state.level, state.blocks)
        depth, first = schedule.depth(state.level), schedule.start(state.level)
        if depth > len(state.stored):
            self._begin_depth(state, depth, randomness)
        if not schedule.rereads_all:
            state.kept.clear()
        end = schedule.start(state.level + 1) - 1
        if not depth or end < first:
            # A level without ticks has its cells, but nothing is tested.
            state.cells = self._no_cells(end)
            return
        rules = tuple(self.rule(j, state.level) for j in range(1, depth + 1))
        state.cells = PointCells.begin(depth, first, end, rules, randomness)

    def _store_level(self, state: PointsState, randomness: Randomness) -> None:
        """Add the finished level's noisy sums to what is stored, and begin the next depth where it reads the level."""
        following, ticks = state.level + 1, self.schedule.ticks(state.level)
        sums, variances = list(state.blocks.sums), list(state.blocks.variance)
        if not self.schedule.rereads_all and self.schedule.reread(following, state.level):
            # The cells that begin now are one depth more in the same tree of sums.
            state.stored.append(np.zeros(1 << following))
            state.variance.append(0.0)
            if ticks:
                noise = DiscreteLaplace(1 / self.schedule.reread(following, state.level))
                sums.append(self._measured(state, following, [state.level], noise, randomness))
                variances.append(noise.variance)
        if not ticks or not sums:
            # Nothing comes in a level without ticks, and which levels these are is public.
            return
        if self.design.pooled and not self.schedule.rereads_all:
            sums, variances = pool(sums, variances, float(ticks))
        for j, (one, variance) in enumerate(zip(sums, variances, strict=True)):
            state.stored[j] += one
            state.variance[j] += variance

    def _begin_depth(self, state: PointsState, depth: int, randomness: Randomness) -> None:
        """Store the first counts of cells of ``depth``: those of all earlier points for ``d = 1``, else none."""
        stored, variance = np.zeros(1 << depth), 0.0
        if self.schedule.rereads_all:
            levels = [level for level in range(-1, depth) if self.schedule.ticks(level)]
            whole_sum = self.design.history > 0
            epsilon = self.schedule.reread(depth, 0)
            noise = DiscreteLaplace((1 if whole_sum else 2) / epsilon)
            for some in [levels] if whole_sum else [[level] for level in levels]:
                stored += self._measured(state, depth, some, noise, randomness)
                variance += noise.variance
        state.stored.append(stored)
        state.variance.append(variance)

    def _measured(
        self,
        state: PointsState,
        depth: int,
        levels: list[int],
        noise: DiscreteLaplace,
        randomness: Randomness,
    ) -> Floats:
        """The noisy counts of the points of some levels in a row, which are listed as measured (of no level: noise)."""
        values = noisy(self._count(state, depth, levels), noise, randomness)
        if levels:
            first, last = self.schedule.start(levels[0]), self.schedule.start(levels[-1] + 1) - 1
            state.measured.append(CellCounts(depth, first, last, values, noise))
        return values

    def _count(self, state: PointsState, depth: int, levels: list[int]) -> Ints:
        shift = self.schedule.max_depth - depth
        result = np.zeros(1 << depth, np.int64)
        for level in levels:
            for codes in state.kept.get(level, ()):
                result += np.bincount(codes >> shift, minlength=1 << depth)
        return result


# The state of online points as arrays and JSON, and back: continues exactly, and is as small as that allows.


_FORMAT = 1
_CELLS = ("total", "pending", "limit", "floor", "due", "counted")
_BLOCK_LENGTHS = (("known", "sums", "pooled", "variance", "bounds"), ("newest", "lengths", "spread"))

Arrays = dict[str, NDArray[Any]]


def pack_points(state: PointsState) -> Packed:
    """The whole state as arrays and JSON; secret.

    Whole numbers take as few bytes as the largest of them needs. The queue is not kept: ``due`` tells what is in it.
    """
    packed = pack_fields(state)
    arrays = {n: small(a) if a.dtype == np.int64 else a for n, a in packed.arrays.items()}
    arrays |= _pack_segments(state.cells.segments)
    for level, parts in state.kept.items():
        codes, times = np.unique(np.concatenate(parts), return_counts=True)
        arrays |= {f"kept/{level}/codes": small(codes), f"kept/{level}/times": small(times)}
    return Packed({**packed.meta, "format": _FORMAT, "kept": sorted(state.kept)}, arrays)


def unpack_points(packed: Packed, plan: OnlineCells) -> PointsState:
    """The inverse.

    Errors:
        StoreFormatError: written by another version. StoreDamagedError: parts that do not fit each other or the plan.
    """
    meta, arrays = packed.meta, packed.arrays
    if meta.get("format") != _FORMAT:
        raise StoreFormatError(
            f"the points were packed in format {meta.get('format')!r}",
            where="state",
            allowed=f"format {_FORMAT}",
        )
    widened = Packed(meta, {n: wide(a) if a.dtype.kind == "i" else a for n, a in arrays.items()})
    # What is packed more tightly, or follows from the rest, comes below.
    state = unpack_fields(PointsState, widened, rules=(), kept={})
    cells, blocks = state.cells, state.blocks
    try:
        cells.rules = tuple(plan.rule(j, state.level) for j in range(1, cells.depth + 1))
        cells.segments = _unpack_segments(arrays, plan, state.level)
        state.kept = {
            int(level): [np.repeat(wide(arrays[f"kept/{level}/codes"]), wide(arrays[f"kept/{level}/times"]))]
            for level in meta["kept"]
        }
    except (KeyError, TypeError, ValueError):
        raise StoreDamagedError("the state of the points cannot be read", where="state") from None
    waiting = np.flatnonzero(cells.due)
    cells.queue = list(zip(cells.due[waiting].tolist(), waiting.tolist(), strict=True))
    heapq.heapify(cells.queue)
    fits = [len(values) == 2 << depth for depth, values in enumerate(state.stored)]
    fits += [getattr(cells, name).shape == (2 << cells.depth,) for name in _CELLS]
    fits += [len({len(getattr(blocks, name)) for name in names}) == 1 for names in _BLOCK_LENGTHS]
    fits += [len(state.variance) == len(state.stored) >= cells.depth]
    if not all(fits) or len(blocks.counted) != 2 << len(blocks.sums):
        raise StoreDamagedError("the stored cells of the points do not fit each other", where="state")
    return state


def small(values: Ints) -> NDArray[Any]:
    """The same numbers in the smallest type that holds them.

    >>> small(np.array([3, -4], np.int64)).dtype.name
    'int8'
    """
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def wide(values: NDArray[Any]) -> Ints:
    """The inverse of ``small``."""
    return values.astype(np.int64)


def _pack_segments(segments: Mapping[int, CounterState]) -> Arrays:
    """Counters of segments, side by side: which cells have one, and each of their arrays with its lengths."""
    which = sorted(segments)
    packed: Arrays = {"segments": small(np.array(which, np.int64))}
    for name in segments[which[0]] if which else ():
        parts = [segments[cell][name] for cell in which]
        packed[f"segment/{name}/rows"] = small(np.array([len(part) for part in parts], np.int64))
        packed[f"segment/{name}"] = small(np.concatenate([part.ravel() for part in parts]))
    return packed


def _unpack_segments(arrays: Arrays, plan: OnlineCells, level: int) -> dict[int, CounterState]:
    which = wide(arrays["segments"]).tolist()
    states: dict[int, CounterState] = {cell: {} for cell in which}
    if not which:
        return states
    names = [n.split("/")[1] for n in arrays if n.startswith("segment/") and n.endswith("/rows")]
    for name in names:
        rows, values, at = wide(arrays[f"segment/{name}/rows"]), wide(arrays[f"segment/{name}"]), 0
        for cell, count in zip(which, rows.tolist(), strict=True):
            counter = plan.rule(cell.bit_length() - 1, level).segments
            like = counter.init(1)[name]
            states[cell][name] = values[at : at + count].reshape(-1, *like.shape[1:]).copy()
            at += count
    for cell, state in states.items():
        plan.rule(cell.bit_length() - 1, level).segments.check_state(state, 1)
    return states
