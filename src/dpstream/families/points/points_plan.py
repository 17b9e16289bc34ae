"""Points as streams of records: the recipe, and the plan with its steps and with what it says in public.

Online synthetic points, without a horizon (He, Vershynin and Zhu 2024, Algorithm 1). A cell of depth ``j`` is its
index among ``2^j``; in heap order (used by all arrays here) it is ``2^j + index``, so the cell above is one bit shorter
and the root is 1. Which points a cell holds is said in ``space.py``.

Trusted base: kernel (reads private points, counts and measures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    MarginalError,
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    Recipe,
    StreamPlan,
    Terms,
    check_unit,
    check_whole,
    check_words,
    option,
    pack_fields,
    unpack_fields,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.errors import ConfigError, DataError, HorizonError, StoreDamagedError
from dpstream.core.privacy import DiscreteLaplace, Event, Noisy, PureDP, Randomness
from dpstream.core.schema import Column, Domain, Ordered, Schema
from dpstream.core.schema.fine import FineColumn, fine
from dpstream.families.points.cells import (
    MAX_DEPTH,
    PAPER,
    Blocks,
    PointCells,
    PointsState,
    Schedule,
    default_design,
    noisy,
)
from dpstream.families.points.estimates import PublicCounts, half_errors, whole_counts
from dpstream.families.points.points_release import PointsSynthesis
from dpstream.families.points.pooling import CellCounts, Floats, Ints, pool, small, wide
from dpstream.families.points.space import Space

#: See ``Points``.
Variant = Literal["default", "paper"]
#: Depths that ``dpstream plan`` lists.
_SHOWN_DEPTHS = (1, 2, 4, 8, 12, 16, 20, 24)
#: So many points are handled at a time: the paths of a chunk stay within some megabytes.
_CHUNK = 1 << 15
OTHER_UNIT = "points cannot protect the unit {unit!r}"


@dataclass(frozen=True)
class Points(Recipe["PointsPlan"]):
    """A stream of online points.

    Attributes:
        schema: the columns. Numbers, days and instants are coordinates between the public bounds of their bins (the
            bins themselves are for questions only); boolean and categorical columns are categories.
        variant: ``paper`` is the text as it stands; ``default`` has the improvements of ``docs/theory/points.md``.
        max_depth: no cells are deeper.
        log: coordinates on a logarithmic scale.
        periodic: coordinates on a circle: the upper bound is the lower one again.
    """

    schema: Schema
    variant: Variant = option(
        "default",
        reason="the same guarantee, smaller errors",
        meaning="The online synthesizer, calibrated here or as published (`paper`).",
    )
    max_depth: int = option(
        20,
        allowed="1 to 24",
        reason="finer cells need ten million points at epsilon 1",
        meaning="The deepest cells: memory must hold 2^max_depth of them.",
    )
    log: tuple[str, ...] = option(
        (),
        allowed='a list of columns such as ["price"]',
        reason="halves of equal width",
        meaning="Coordinates cut on a logarithmic scale; bounds above 0.",
    )
    periodic: tuple[str, ...] = option(
        (),
        allowed='a list of columns such as ["hour"]',
        reason="a coordinate has two ends",
        meaning="Real coordinates on a circle: hour 24 is hour 0.",
    )

    def __post_init__(self) -> None:
        check_words(self, "points")
        check_whole(self.max_depth, "max_depth", 1, MAX_DEPTH, "points")
        for key in ("log", "periodic"):
            for name in getattr(self, key):
                if name not in self.schema.names or not isinstance(self.schema[name], Ordered):
                    raise ConfigError(
                        f"{name!r}: expected a coordinate",
                        where=key,
                        allowed=", ".join(c.name for c in self.schema.columns if isinstance(c, Ordered))
                        or "none",
                    )

    def _plan(self, terms: Terms) -> PointsPlan:
        """
        Errors:
            BudgetError: no epsilon. UnitError: another unit than ``Event("replace")``. SchemaError: a column that is
            no coordinate.
        """
        budget = terms.pure("online points need a pure budget: their noise is Laplace")
        reading = Schema(
            tuple(self._axis(column) for column in self.schema.columns),
            self.schema.ignore,
            self.schema.null_values,
            self.schema.confirmed,
        )
        categorical = tuple(not isinstance(column, Ordered) for column in self.schema.columns)
        space = Space(reading.domain.sizes, categorical, self.max_depth)
        unit = check_unit(terms.unit, Event("replace"), ("event-replace",), OTHER_UNIT)
        design = PAPER if self.variant == "paper" else default_design(space.dimension)
        schedule = Schedule(space.dimension, budget.epsilon, design, space.depth)
        return PointsPlan(budget, unit, terms.horizon, self, reading, space, schedule)

    def _axis(self, column: Column) -> Column:
        if not isinstance(column, Ordered):
            return column
        scale = "log" if column.name in self.log else "linear"
        return fine(column, scale=scale, periodic=column.name in self.periodic)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PointsPlan(StreamPlan):
    """A calibrated ``Points``.

    Guarantee: all counts together are pure DP with the schedule's epsilon for one record's replacement at its step,
    with the sizes of all steps public, also if records are chosen in view of earlier releases. A point is on one path
    of cells; each depth pays what ``Schedule`` says for the level in which the point came, and ``Schedule.check`` has
    added that up: at most half of epsilon on a path, and a replacement changes two paths. The records of a step are
    read in an order that is drawn anew, so which record stands where in the source plays no part: two steps that
    differ in one record give orders that differ in one place. Proof: docs/theory/points.md.

    Errors:
        LimitError: epsilon is so small that not even the first level's noise would fit 64-bit sums.
    """

    budget: PureDP
    unit: Event
    horizon: int | None
    recipe: Points
    reading: Schema = field(repr=False)
    space: Space
    schedule: Schedule
    reads = "records"
    name = "points"

    def __post_init__(self) -> None:
        self.schedule.check()
        assert self.schedule.most_points

    def parts(self) -> tuple[Part, ...]:
        """The two paths of cells that a replaced record changes."""
        detail = (
            f"all cells that hold a record, one a depth up to {self.space.depth}: what their sparse counters, blocks, "
            "levels and first sums cost it; a replaced record changes two such paths"
        )
        return (Part("paths", 2, PureDP(self.budget.epsilon / 2), detail),)

    def start(self, seed: int = 0) -> PointsState:
        """A fresh state whose releases have this seed; public."""
        return PointsState(0, -1, PointCells.empty(0, self.schedule.start(0) - 1, ()), [], [], seed)

    def step(self, state: PointsState, batch: PrivateBatch, randomness: Randomness) -> PointsSynthesis:
        """Read one step's records, in an order drawn here.

        Errors (before anything is drawn): DataError: records that leave. HorizonError: more points than the core takes.
        """
        if batch.declares_deletes:
            raise DataError(
                "the batch has deletes",
                where="points",
                allowed="batches without deletes: points stay",
            )
        if batch.records is None:
            raise DataError("the batch must hold records", where="points", allowed="an EncodedRecords")
        cells = self.space.cells_of(batch.records)
        self.check_room(state, len(cells))
        if not state.points and len(cells):
            state.seed = int(randomness.coins("the seed of the synthetic points")[0])
        self.read(state, cells[shuffled(len(cells), randomness)], randomness)
        counts = self.space.gathered(self.counts(state))
        return replace(self._synthesis(state.points, counts, state.seed), noisy_counts=self._measured(state))

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
                "too many points", where="points", allowed=f"up to {self.schedule.most_points}"
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
                sums.append(self._first_counts(state, following, [state.level], noise, randomness))
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
                stored += self._first_counts(
                    state, depth, levels, self.schedule.first_noise(depth), randomness
                )
        state.stored.append(stored)

    def _first_counts(
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

    # The state, and what a step says of it.

    def pack_state(self, state: PointsState) -> Packed:
        """The whole state as arrays and JSON; secret. Whole numbers take as few bytes as the largest of them needs."""
        packed = pack_fields(state)
        arrays = {name: small(a) if a.dtype == np.int64 else a for name, a in packed.arrays.items()}
        return Packed(packed.meta, arrays)

    def unpack_state(self, packed: Packed) -> PointsState:
        """The inverse of ``pack_state``: continues exactly.

        Errors:
            StoreFormatError: written by another version. StoreDamagedError: parts that do not fit each other or the
            plan.
        """
        meta, arrays = packed.meta, packed.arrays
        widened = {name: wide(a) if a.dtype.kind == "i" else a for name, a in arrays.items()}
        state = unpack_fields(PointsState, Packed(meta, widened), rules=())
        cells, blocks = state.cells, state.blocks
        cells.rules = tuple(self.schedule.rule(j, state.level) for j in range(1, cells.depth + 1))
        counted = np.flatnonzero(cells.counter >= 0)
        fits = [len(values) == 2 << depth for depth, values in enumerate(state.stored)]
        fits += [getattr(cells, name).shape == (2 << cells.depth,) for name in _CELLS]
        fits += [len({len(getattr(blocks, name)) for name in names}) == 1 for names in _BLOCK_LENGTHS]
        fits += [len(state.stored) >= cells.depth]
        fits += [sorted(cells.counter[counted].tolist()) == list(range(len(cells.segments)))]
        if not all(fits) or len(blocks.counted) != 2 << len(blocks.sums):
            raise StoreDamagedError("stored cells contradict each other", where="state")
        for cell in counted.tolist():
            cells.rules[cell.bit_length() - 2].segments.check_state(cells.segments[cells.counter[cell]], 1)
        return state

    def _measured(self, state: PointsState) -> list[NoisyCounts]:
        """The noisy counts of cells that the newest step drew."""
        names = list(self.domain.names)
        return [
            NoisyCounts(
                f"depth {one.depth}, points {one.first} to {one.last}",
                "points",
                one.first,
                one.last,
                {"kind": "cells", "columns": names, "depth": one.depth},
                Noisy(one.values.astype(np.int64)),
                one.noise,
            )
            for one in state.measured
        ]

    # What the plan says in public.

    @property
    def domain(self) -> Domain:
        """The declared columns."""
        return self.recipe.schema.domain

    def options(self) -> dict[str, Any]:
        """All options, JSON-able and exact."""
        recipe, design = self.recipe, self.schedule.design
        return {
            "variant": recipe.variant,
            "max_depth": self.space.depth,
            "coordinates": self.coordinates,
            "categories": self.space.categories,
            "log": sorted(recipe.log),
            "periodic": sorted(recipe.periodic),
            "design": {name: str(getattr(design, name)) for name in sorted(vars(design))},
        }

    @cached_property
    def coordinates(self) -> list[str]:
        """Names of the columns that are coordinates, in the order in which they are cut."""
        pairs = zip(self.domain.names, self.space.categorical, strict=True)
        return [name for name, first in pairs if not first]

    def reading_schema(self, schema: Schema) -> Schema:
        """The columns as axes.

        Errors:
            ConfigError: another schema than the plan's: its bounds would not be those that points are read with.
        """
        if schema != self.recipe.schema:
            raise ConfigError(
                "the plan was calibrated for another schema",
                where="stream",
                allowed="the recipe's schema",
            )
        return self.reading

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...] | None:
        """The number of points is public; of coordinates, the halves into which their first cuts divide them.

        As of the last finished level. With categories, whose cells come first, nothing is predicted of coordinates.
        """
        if expected is None:
            return None
        names = () if any(self.space.categorical) else self.coordinates
        found = []
        for step in check_steps(steps, self.horizon):
            size = expected.size_at(step)
            halves = half_errors(self.schedule, int(size)) if names else []
            marginals = tuple(
                MarginalError((name,), 2, error) for name, error in zip(names, halves, strict=False)
            )
            found.append(ExpectedErrors(step, size, 0.0, marginals))
        return tuple(found)

    def facts(self) -> dict[str, Any]:
        """The point from which on there are cells of each depth."""
        schedule = self.schedule
        most = schedule.most_points
        starts = [(d, schedule.start(d)) for d in range(1, self.space.depth + 1)]
        # Up to the level of the deepest cells, or to the last one: what has been measured by its end.
        level = min(self.space.depth, schedule.level_of(most))
        axes = [column for column in self.reading.columns if isinstance(column, FineColumn)]
        return {
            "points": {
                "dimension": self.space.dimension,
                "variant": self.recipe.variant,
                "coordinates": self.coordinates,
                "categories": self.space.categories,
                "first_cells": starts[0][1],
                "deepest": self.space.depth,
                "most_points": most,
                "depths": [{"depth": d, "cells": 2**d, "from_point": at} for d, at in starts if at <= most],
                "shown_depths": _SHOWN_DEPTHS,
                "bounds": {
                    "all": [axis.name for axis in axes],
                    "circles": [axis.name for axis in axes if axis.outside is None and axis.periodic],
                    "stops": [axis.name for axis in axes if axis.outside is None and not axis.periodic],
                    "clipped": [axis.name for axis in axes if axis.outside is not None],
                },
            },
            "compares": {"first_cells": starts[0][1]},
            "noisy_counts": {
                "by_point": min(most, schedule.start(level + 1) - 1),
                "all": sum(schedule.measured(done) for done in range(level + 1)),
                "a_doubling": schedule.measured(level + 1),
            },
        }

    def unpack_synthesis(self, packed: Packed) -> PointsSynthesis:
        """The inverse of ``PointsSynthesis.pack``."""
        return self._synthesis(packed.meta["points"], wide(packed.arrays["counts"]), packed.meta["seed"])

    def _synthesis(self, points: int, counts: NDArray[np.int64], seed: int) -> PointsSynthesis:
        return PointsSynthesis(self.space, self.recipe.schema, self.reading, points, counts, seed)


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


_CELLS = ("total", "pending", "limit", "floor", "due", "counted", "counter")
_BLOCK_LENGTHS = (("known", "sums", "pooled", "variance", "bounds"), ("newest", "lengths", "spread"))


def shuffled(count: int, randomness: Randomness) -> NDArray[np.int64]:
    """An exactly uniform order: that of independent words, which are drawn anew where two are equal."""
    if count < 2:
        return np.arange(count)
    while True:
        words = randomness.coins("the order of a step's points", count)
        order = np.argsort(words, kind="stable")
        if (words[order][1:] != words[order][:-1]).all():
            return order
