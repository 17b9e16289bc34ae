"""Points as streams of records: the recipe, and the plan with its steps and with what it says in public.

Trusted base: kernel (reads private points).
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
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.randomness import Noisy, Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema import Schema
from dpstream.core.schema.column import Column
from dpstream.core.schema.domain import Domain
from dpstream.core.schema.fine import FineColumn, fine
from dpstream.core.schema.numeric import Ordered
from dpstream.families.points.cells import MAX_DEPTH, PAPER, PointsState, Schedule, default_design
from dpstream.families.points.estimates import half_errors
from dpstream.families.points.online import OnlineCells, pack_points, unpack_points, wide
from dpstream.families.points.points_release import PointsSynthesis
from dpstream.families.points.space import Space

#: See ``Points``.
Variant = Literal["default", "paper"]
#: Depths that ``dpstream plan`` lists.
_SHOWN_DEPTHS = (1, 2, 4, 8, 12, 16, 20, 24)


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
        reason="calibrated budgets and thresholds, the same guarantee, smaller errors",
        meaning="The online synthesizer as it is here, or as published (`paper`).",
    )
    max_depth: int = option(
        20,
        allowed="1 to 24",
        reason="about a million cells: finer ones would come after some ten million points at epsilon 1",
        meaning="No cells of points are deeper: 2^max_depth cells are the most that memory must hold.",
    )
    log: tuple[str, ...] = option(
        (),
        allowed='a list of columns such as ["price"]',
        reason="halves of an interval are as wide as each other",
        meaning="Coordinates that are cut on a logarithmic scale: halves have equal ratios. Bounds above 0.",
    )
    periodic: tuple[str, ...] = option(
        (),
        allowed='a list of columns such as ["hour"]',
        reason="a coordinate has two ends",
        meaning="Coordinates on a circle: a real column's upper bound is its lower one again (hour 24 is hour 0). "
        "Whole numbers, say 0 to 23, stay what they are.",
    )

    def __post_init__(self) -> None:
        check_words(self, "points")
        check_whole(self.max_depth, "max_depth", 1, MAX_DEPTH, "points")
        for key in ("log", "periodic"):
            for name in getattr(self, key):
                if name not in self.schema.names or not isinstance(self.schema[name], Ordered):
                    raise ConfigError(
                        f"{name!r} is no coordinate",
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
        budget = terms.pure("the noise of online points is Laplace: the guarantee is pure")
        reading = Schema(
            tuple(self._axis(column) for column in self.schema.columns),
            self.schema.ignore,
            self.schema.null_values,
            self.schema.confirmed,
        )
        categorical = tuple(not isinstance(column, Ordered) for column in self.schema.columns)
        space = Space(reading.domain.sizes, categorical, self.max_depth)
        reason = "points cannot protect the unit {unit!r}: their clock counts points, so the number of points is public"
        unit = check_unit(terms.unit, Event("replace"), ("event-replace",), reason)
        design = PAPER if self.variant == "paper" else default_design(space.dimension)
        core = OnlineCells(Schedule(space.dimension, budget.epsilon, design, space.depth))
        return PointsPlan(budget, unit, terms.horizon, self, reading, space, core)

    def _axis(self, column: Column) -> Column:
        if not isinstance(column, Ordered):
            return column
        scale = "log" if column.name in self.log else "linear"
        return fine(column, scale=scale, periodic=column.name in self.periodic)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PointsPlan(StreamPlan):
    """A calibrated ``Points``.

    Guarantee: ``OnlineCells``'s for one record's replacement at its step, with the sizes of all steps public. The
    records of a step are read in an order that is drawn anew, so which record stands where in the source plays no
    part: two steps that differ in one record give orders that differ in one place.
    """

    budget: PureDP
    unit: Event
    horizon: int | None
    recipe: Points
    reading: Schema = field(repr=False)
    space: Space
    core: OnlineCells
    reads = "records"
    name = "points"

    def parts(self) -> tuple[Part, ...]:
        """The two paths of cells that a replaced record changes."""
        detail = (
            f"all cells that hold a record, one a depth up to {self.space.depth}: what their sparse counters, blocks, "
            "levels and first sums cost it; a replaced record changes two such paths"
        )
        return (Part("paths", 2, PureDP(self.budget.epsilon / 2), detail),)

    def start(self) -> PointsState:
        """A fresh state."""
        return self.core.fresh()

    def step(self, state: PointsState, batch: PrivateBatch, randomness: Randomness) -> PointsSynthesis:
        """Read one step's records, in an order drawn here.

        Errors (before anything is drawn): DataError: records that leave. HorizonError: more points than the core takes.
        """
        if batch.declares_deletes:
            raise DataError(
                "the batch comes with deletes",
                where="points",
                allowed="batches without deletes: points stay once they came",
            )
        if batch.records is None:
            raise DataError("the batch does not hold records", where="points", allowed="an EncodedRecords")
        cells = self.space.cells_of(batch.records)
        self.core.check_room(state, len(cells))
        if not state.points and len(cells):
            state.seed = int(randomness.coins("the seed of the synthetic points")[0])
        self.core.read(state, cells[shuffled(len(cells), randomness)], randomness)
        counts = self.space.gathered(self.core.counts(state))
        return replace(self._synthesis(state.points, counts, state.seed), noisy_counts=self._measured(state))

    def pack_state(self, state: PointsState) -> Packed:
        """The whole state; secret."""
        return pack_points(state)

    def unpack_state(self, packed: Packed) -> PointsState:
        """The inverse of ``pack_state``.

        Errors: StoreDamagedError: parts that do not fit each other.
        """
        return unpack_points(packed, self.core)

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
        recipe, design = self.recipe, self.core.schedule.design
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
                "the plan of the points was calibrated for another schema",
                where="stream",
                allowed="the schema that the recipe was made with",
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
            halves = half_errors(self.core.schedule, int(size)) if names else []
            marginals = tuple(
                MarginalError((name,), 2, error) for name, error in zip(names, halves, strict=False)
            )
            found.append(ExpectedErrors(step, size, 0.0, marginals))
        return tuple(found)

    def facts(self) -> dict[str, Any]:
        """The point from which on there are cells of each depth."""
        schedule = self.core.schedule
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


def shuffled(count: int, randomness: Randomness) -> NDArray[np.int64]:
    """An exactly uniform order: that of independent words, which are drawn anew where two are equal."""
    if count < 2:
        return np.arange(count)
    while True:
        words = randomness.coins("the order of a step's points", count)
        order = np.argsort(words, kind="stable")
        if (words[order][1:] != words[order][:-1]).all():
            return order
