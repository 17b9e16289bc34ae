"""Online synthetic points in the unit cube, without a horizon (He, Vershynin and Zhu 2024, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import check_unit, check_whole, check_words
from dpstream.core.errors import HorizonError, LimitError
from dpstream.core.privacy.budget import Amount, PureDP
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event, Unit
from dpstream.families.points.blocks import Blocks, CellCounts, noisy
from dpstream.families.points.cell_counters import CellRule, PointCells, cell_rule
from dpstream.families.points.cell_schedule import MAX_TICK, PAPER, Design, Schedule, default_design
from dpstream.families.points.consistency import pool
from dpstream.families.points.estimates import whole_counts
from dpstream.families.points.partition import (
    MAX_DEPTH,
    check_dimension,
    check_points,
    codes_of,
    points_in,
)
from dpstream.families.points.points_state import PointsState

#: ``paper`` is the text as it stands; ``default`` has the improvements of ``docs/theory/points.md``.
Variant = Literal["default", "paper"]

# This many points are handled at a time: the paths of a chunk stay within some megabytes.
_CHUNK = 1 << 15

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OnlinePoints:
    """Options of the online synthesizer.

    Attributes:
        dimension: ``d``, number of coordinates, 1 or more.
        variant: ``default`` or ``paper``.
        max_depth: no cells are deeper; 2^max_depth cells are the most that memory must hold.
    """

    dimension: int
    variant: Variant = "default"
    max_depth: int = 20

    def __post_init__(self) -> None:
        check_dimension(self.dimension)
        check_whole(self.max_depth, "max_depth", 1, MAX_DEPTH, "points")
        check_words(self, "points")

    def calibrate(self, epsilon: Amount, unit: Unit | None = None) -> OnlinePointsPlan:
        """Fix all noise so that all releases together cost ``epsilon`` for one point's replacement.

        Errors:
            UnitError: another unit than ``Event("replace")``. BudgetError: an amount that cannot be used.
            LimitError: epsilon is so small that not even the first level's noise would fit 64-bit sums.
        """
        reason = "points cannot protect the unit {unit!r}: their clock counts points, so the number of points is public"
        protected = check_unit(unit, Event("replace"), ("event-replace",), reason)
        design = PAPER if self.variant == "paper" else default_design(self.dimension)
        return OnlinePointsPlan(self, PureDP.of(epsilon), protected, design)


@dataclass(frozen=True)
class PointsRelease:
    """Synthetic points after some tick; public.

    Attributes:
        points: (t, d), one synthetic point for each point read.
        counts: how many are in each cell of ``depth``.
        depth: of the partition's cells.
    """

    points: Floats
    counts: Ints
    depth: int


@dataclass(frozen=True)
class OnlinePointsPlan:
    """A calibrated online synthesizer; frozen, without data.

    Guarantee: all releases together are pure DP with ``budget`` for the replacement of one point, also if points are
    chosen in view of earlier releases. A point is on one path of cells; each depth pays what ``Schedule`` says for the
    level in which the point came, and ``Schedule.check`` has added that up: at most half of epsilon on a path, and a
    replacement changes two paths. Proof: docs/theory/points.md.

    Attributes:
        design: public constants.
        schedule: levels and budgets.
        horizon: so many points; 2^38, or fewer where epsilon is tiny and later noise would not fit 64-bit sums.
    """

    recipe: OnlinePoints
    budget: PureDP
    unit: Event
    design: Design
    schedule: Schedule = field(init=False)
    horizon: int = field(init=False)

    def __post_init__(self) -> None:
        recipe = self.recipe
        schedule = Schedule(recipe.dimension, self.budget.epsilon, self.design, recipe.max_depth)
        object.__setattr__(self, "schedule", schedule)
        schedule.check()
        object.__setattr__(self, "horizon", self._last_tick())

    def _last_tick(self) -> int:
        """The largest noise is that of the highest cells (``d >= 2``) or of the deepest (``d = 1``)."""
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

    def describe(self) -> str:
        """The plan in words."""
        schedule = self.schedule
        return (
            f"online points in dimension {self.recipe.dimension}, variant {self.recipe.variant}; {self.budget} for "
            f"{self.unit.describe()}; cells of depth j begin with point {schedule.start(1)} for j = 1 and twice as "
            f"late for each further depth, up to depth {self.recipe.max_depth}; before, releases are uniform"
        )

    def start(self, randomness: Randomness) -> PointsState:
        """A fresh state with a seed that is drawn."""
        return self.fresh(int(randomness.words(1)[0]))

    def fresh(self, seed: int = 0) -> PointsState:
        """A fresh state whose releases have this seed; public."""
        return PointsState(0, -1, self._no_cells(self.schedule.start(0) - 1), [], [], {}, seed)

    def step(self, state: PointsState, points: Floats, randomness: Randomness) -> None:
        """Read points, one a tick, in the order given.

        Args:
            points: private; float64, shape (m, d), from 0 to 1 (1 belongs to the last cell). m is public.

        Errors (before anything is drawn or changed):
            DataError: another shape, or a coordinate outside of the cube. HorizonError: more points than a stream may
            have.

        Cost: O(depth) a point, in arrays; about a microsecond a point and depth for large batches.
        """
        self.read(
            state, codes_of(check_points(points, self.recipe.dimension), self.recipe.max_depth), randomness
        )

    def read(self, state: PointsState, codes: Ints, randomness: Randomness) -> None:
        """Read points, as ``step`` does, that are given as indices of their cells of ``max_depth``.

        Errors (before anything is drawn or changed): HorizonError.
        """
        self.check_room(state, len(codes))
        state.measured = []
        done = 0
        while done < len(codes):
            tick = state.points + 1
            while tick > state.cells.end:
                self._next_level(state, randomness)
            part = codes[done : done + min(_CHUNK, self._border(state) - state.points)]
            state.cells.arrive(part >> (self.recipe.max_depth - state.cells.depth), tick, randomness)
            if self._keeps(state.level):
                state.kept.setdefault(state.level, []).append(part)
            state.points += len(part)
            done += len(part)
            if state.blocks.done < len(state.blocks.ends) and state.points == self._border(state):
                state.measured += state.blocks.end(state.cells, self.schedule, state.level, randomness)

    def check_room(self, state: PointsState, more: int) -> None:
        """HorizonError where a stream cannot take so many points more; their number is public."""
        if state.points + more > self.horizon:
            raise HorizonError(
                "a stream has too many points", where="points", allowed=f"up to {self.horizon}"
            )

    def release(self, state: PointsState, seed: int | None = None) -> PointsRelease:
        """Synthetic points now; public. The same state and seed give the same points.

        Args:
            seed: of the points' places and of rounding; by default one drawn with the state.

        Cost: O(t); nothing is spent and the state is not changed.
        """
        counts, depth = self.counts(state, seed), state.cells.depth
        generator = np.random.default_rng([state.seed if seed is None else seed, state.points])
        return PointsRelease(points_in(counts, depth, self.recipe.dimension, generator), counts, depth)

    def counts(self, state: PointsState, seed: int | None = None) -> Ints:
        """How many synthetic points are in each cell of the deepest cells now; public.

        The coins of rounding are the same for every release with one seed: counts then change only where the
        estimates do.
        """
        generator = np.random.default_rng([state.seed if seed is None else seed, 0])
        return whole_counts(self, state, generator)

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
        shift = self.recipe.max_depth - depth
        result = np.zeros(1 << depth, np.int64)
        for level in levels:
            for codes in state.kept.get(level, ()):
                result += np.bincount(codes >> shift, minlength=1 << depth)
        return result
