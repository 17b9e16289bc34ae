"""The recipe of a points stream: an online synthesizer, and columns as categories and coordinates; and what a step of
it gives: how many synthetic points are in each cell, and points.

Trusted base: kernel (reads private points).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    NoisyCounts,
    Packed,
    Part,
    PrivateBatch,
    Recipe,
    Terms,
    check_unit,
)
from dpstream.core.errors import DataError
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.randomness import Noisy, Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema import Schema
from dpstream.core.schema.column import Column
from dpstream.core.schema.fine import fine
from dpstream.core.schema.numeric import Ordered
from dpstream.families.points.cells import PAPER, PointsState, Schedule, default_design
from dpstream.families.points.online import OnlineCells, pack_points, unpack_points
from dpstream.families.points.points_facts import PointsFacts, PointsOptions
from dpstream.families.points.points_release import PointsSynthesis
from dpstream.families.points.space import Space


@dataclass(frozen=True)
class Points(PointsOptions, Recipe["PointsPlan"]):
    """A stream of online points.

    Attributes:
        schema: the columns. Numbers, days and instants are coordinates between the public bounds of their bins (the
            bins themselves are for questions only); boolean and categorical columns are categories.
        variant: ``paper`` is the text as it stands; ``default`` has the improvements of ``docs/theory/points.md``.
        max_depth: no cells are deeper.
        log: coordinates on a logarithmic scale.
        periodic: coordinates on a circle: the upper bound is the lower one again.
    """

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
class PointsPlan(PointsFacts):
    """A calibrated ``Points``.

    Guarantee: ``OnlineCells``'s for one record's replacement at its step, with the sizes of all steps public. The
    records of a step are read in an order that is drawn anew, so which record stands where in the source plays no
    part: two steps that differ in one record give orders that differ in one place.
    """

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


def shuffled(count: int, randomness: Randomness) -> NDArray[np.int64]:
    """An exactly uniform order: that of independent words, which are drawn anew where two are equal."""
    if count < 2:
        return np.arange(count)
    while True:
        words = randomness.coins("the order of a step's points", count)
        order = np.argsort(words, kind="stable")
        if (words[order][1:] != words[order][:-1]).all():
            return order
