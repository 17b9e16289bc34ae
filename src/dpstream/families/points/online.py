"""Online synthetic points, without a horizon (He, Vershynin and Zhu 2024, Algorithm 1): from cells to counts of cells.

A cell of depth ``j`` is its index among ``2^j``; in heap order (used by all arrays here) it is ``2^j + index``, so the
cell above is one bit shorter and the root is 1. Which points a cell holds is said in ``space.py``.

Trusted base: kernel (counts points, measures).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, pack_fields, unpack_fields
from dpstream.core.errors import HorizonError, StoreDamagedError, StoreFormatError
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.families.points.cells import (
    Blocks,
    CellCounts,
    Floats,
    Ints,
    PointCells,
    PointsState,
    Schedule,
    noisy,
    pool,
)
from dpstream.families.points.estimates import PublicCounts, whole_counts

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
        assert self.schedule.most_points

    def fresh(self, seed: int = 0) -> PointsState:
        """A fresh state whose releases have this seed; public."""
        return PointsState(0, -1, PointCells.empty(0, self.schedule.start(0) - 1, ()), [], [], seed)

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
                _keep(state, part)
            state.points += len(part)
            done += len(part)
            if state.blocks.done < len(state.blocks.ends) and state.points == self._border(state):
                state.measured += state.blocks.end(state.cells, self.schedule, state.level, randomness)

    def check_room(self, state: PointsState, more: int) -> None:
        """HorizonError where a stream cannot take so many points more; their number is public."""
        if state.points + more > self.schedule.most_points:
            raise HorizonError(
                "a stream has too many points", where="points", allowed=f"up to {self.schedule.most_points}"
            )

    def counts(self, state: PointsState) -> Ints:
        """How many synthetic points are in each cell of the deepest cells now; public. Nothing is spent.

        The coins of rounding are the same for every release of a state's seed: counts then change only where the
        estimates do.
        """
        return whole_counts(self.schedule, public_counts(state), np.random.default_rng([state.seed, 0]))

    # What is counted.

    def _border(self, state: PointsState) -> int:
        """The tick with which the open block ends, or the level."""
        blocks = state.blocks
        return blocks.ends[blocks.done] if blocks.done < len(blocks.ends) else state.cells.end

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
            state.kept = [np.zeros((2, 0), np.int64) for _ in state.kept]
        end = schedule.start(state.level + 1) - 1
        if not depth or end < first:
            # A level without ticks has its cells, but nothing is tested.
            state.cells = PointCells.empty(0, end, ())
            return
        rules = tuple(self.schedule.rule(j, state.level) for j in range(1, depth + 1))
        state.cells = PointCells.begin(depth, first, end, rules, randomness)

    def _store_level(self, state: PointsState, randomness: Randomness) -> None:
        """Add the finished level's noisy sums to what is stored, and begin the next depth where it reads the level."""
        following, ticks = state.level + 1, self.schedule.ticks(state.level)
        sums = list(state.blocks.sums)
        if not self.schedule.rereads_all and self.schedule.reread(following, state.level):
            # The cells that begin now are one depth more in the same tree of sums.
            state.stored.append(np.zeros(1 << following))
            if ticks:
                noise = self.schedule.first_noise(following)
                sums.append(self._measured(state, following, [state.level], noise, randomness))
        if not ticks or not sums:
            # Nothing comes in a level without ticks, and which levels these are is public.
            return
        if self.schedule.design.pooled and not self.schedule.rereads_all:
            sums, _ = pool(sums, self.schedule.measured_variances(state.level), float(ticks))
        for j, values in enumerate(sums):
            state.stored[j] += values

    def _begin_depth(self, state: PointsState, depth: int, randomness: Randomness) -> None:
        """Store the first counts of cells of ``depth``: those of all earlier points for ``d = 1``, else none."""
        stored = np.zeros(1 << depth)
        if self.schedule.rereads_all:
            for levels in self.schedule.first_levels(depth):
                stored += self._measured(state, depth, levels, self.schedule.first_noise(depth), randomness)
        state.stored.append(stored)

    # The noise of what is stored; public.

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
            if level + 1 < len(state.kept):
                codes, times = state.kept[level + 1]
                np.add.at(result, codes >> shift, times)
        return result


def public_counts(state: PointsState) -> PublicCounts:
    """What releases are made of: noisy counts, and public numbers of points."""
    cells = state.cells
    return PublicCounts(state.points, state.level, cells.depth, cells.counted, state.stored, state.blocks)


def _keep(state: PointsState, codes: Ints) -> None:
    """Points of the level that is open, which cells that begin later read."""
    none = np.zeros((2, 0), np.int64)
    state.kept += [none] * (state.level + 2 - len(state.kept))
    held = np.concatenate([state.kept[-1], [codes, np.ones_like(codes)]], axis=1)
    different, place = np.unique(held[0], return_inverse=True)
    times = np.zeros(len(different), np.int64)
    np.add.at(times, place.reshape(-1), held[1])
    state.kept[-1] = np.stack([different, times])


# The state of online points as arrays and JSON, and back: continues exactly, and is as small as that allows.


_FORMAT = 1
_CELLS = ("total", "pending", "limit", "floor", "due", "counted", "counter")
_BLOCK_LENGTHS = (("known", "sums", "pooled", "variance", "bounds"), ("newest", "lengths", "spread"))


def pack_points(state: PointsState) -> Packed:
    """The whole state as arrays and JSON; secret.

    Whole numbers take as few bytes as the largest of them needs.
    """
    packed = pack_fields(state)
    arrays = {name: small(a) if a.dtype == np.int64 else a for name, a in packed.arrays.items()}
    return Packed({**packed.meta, "format": _FORMAT}, arrays)


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
    widened = {name: wide(a) if a.dtype.kind == "i" else a for name, a in arrays.items()}
    state = unpack_fields(PointsState, Packed(meta, widened), rules=())
    cells, blocks = state.cells, state.blocks
    cells.rules = tuple(plan.schedule.rule(j, state.level) for j in range(1, cells.depth + 1))
    counted = np.flatnonzero(cells.counter >= 0)
    fits = [len(values) == 2 << depth for depth, values in enumerate(state.stored)]
    fits += [getattr(cells, name).shape == (2 << cells.depth,) for name in _CELLS]
    fits += [len({len(getattr(blocks, name)) for name in names}) == 1 for names in _BLOCK_LENGTHS]
    fits += [len(state.stored) >= cells.depth]
    fits += [sorted(cells.counter[counted].tolist()) == list(range(len(cells.segments)))]
    if not all(fits) or len(blocks.counted) != 2 << len(blocks.sums):
        raise StoreDamagedError("the stored cells of the points do not fit each other", where="state")
    for cell in counted.tolist():
        cells.rules[cell.bit_length() - 2].segments.check_state(cells.segments[cells.counter[cell]], 1)
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
