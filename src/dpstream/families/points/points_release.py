"""What a step of points gives: from one release to the next by as few changes as possible. Public post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts, Packed, SyntheticTable
from dpstream.core.errors import ConfigError
from dpstream.core.schema import Clique, Domain, Schema
from dpstream.core.tables import count_marginals
from dpstream.families.points.pooling import small
from dpstream.families.points.space import Space

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]


def kept(cells: Ints, counts: Ints, generator: np.random.Generator) -> tuple[NDArray[np.bool_], Ints]:
    """Which points stay, and the cells of those that are needed besides.

    Of every cell stays as much as it may hold: no fewer points can go, and no fewer come. Which ones is drawn.

    Args:
        cells: of the points there are, at the depth of ``counts``.
        counts: how many points each cell shall hold.
    """
    order = generator.permutation(len(cells))
    order = order[np.argsort(cells[order], kind="stable")]
    sorted_ = cells[order]
    rank = np.arange(len(cells)) - np.searchsorted(sorted_, sorted_)
    stays = np.zeros(len(cells), bool)
    stays[order] = rank < counts[sorted_]
    missing = counts - np.bincount(cells[stays], minlength=len(counts))
    return stays, np.repeat(np.arange(len(counts)), missing)


@dataclass(frozen=True)
class PointsSynthesis(SyntheticTable):
    """The points themselves; ``PlacedRecords``.

    Attributes:
        space: the partition.
        schema: the declared columns, whose bins questions are asked in.
        fine: the same columns as coordinates.
        points: t.
        counts: how many points are in each cell of one depth.
        seed: of the points' places.
    """

    space: Space
    schema: Schema
    fine: Schema
    points: int
    counts: NDArray[np.int64]
    seed: int
    #: See ``Synthesis.noisy_counts``.
    noisy_counts: Sequence[NoisyCounts] = field(default=(), compare=False, repr=False)
    #: The number of points is public.
    total_error = 0.0

    @property
    def depth(self) -> int:
        """The depth of the cells."""
        return len(self.counts).bit_length() - 1

    @property
    def domain(self) -> Domain:
        """The columns, in the bins of their declaration."""
        return self.schema.domain

    @property
    def total(self) -> float:
        """How many points came so far; public."""
        return float(self.points)

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat."""
        return [counts.astype(np.float64) for counts in count_marginals(self._binned, self.domain, cliques)]

    def sample(self, rows: int, seed: int) -> Codes:
        """Some of the points, by their bins; all of them where as many are wanted as there are."""
        return self.schema.encode(self.released(self.schema, rows, seed))

    def released(self, schema: Schema, rows: int, seed: int) -> Any:
        """The points as typed columns, in the units of the data.

        The release itself, whatever the seed, where as many are wanted as there are; else some of it, drawn with the
        seed (with repetitions only where more are wanted).

        Errors:
            ConfigError: points are wanted before there are any.
        """
        if rows == self.points:
            return self._table
        if not self.points:
            raise ConfigError("no synthetic points yet", where="rows", allowed="a later step")
        import pyarrow as pa

        generator = np.random.default_rng(seed)
        chosen = generator.choice(self.points, rows, replace=rows > self.points)
        return self._table.take(pa.array(np.sort(chosen)))

    # Points that stay from release to release.

    @property
    def placed(self) -> PointsSynthesis:
        """The release itself: its points keep their places."""
        return self

    def records(self, rows: int, seed: int) -> Codes:
        """The fine codes of a first release of so many points."""
        generator = np.random.default_rng([seed, 3])
        return self._points_in_cells(
            np.repeat(np.arange(len(self.counts)), self._counts_for(rows)), generator
        )

    def follow(self, old: Codes, rows: int, seed: int) -> tuple[NDArray[np.bool_], Codes]:
        """Which points of the release before stay, and the fine codes of those that come: as few as possible.

        Args:
            old: fine codes of the release before.
        """
        generator = np.random.default_rng([seed, 3])
        cells = self.space.cells_of(old) >> (self.space.depth - self.depth)
        stays, added = kept(cells, self._counts_for(rows), generator)
        return stays, self._points_in_cells(added, generator)

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says."""
        return {
            "total_standard_error": 0.0,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "points": {
                "depth": self.depth,
                "cells": len(self.counts),
                "mean": self.points / len(self.counts),
            },
        }

    def pack(self) -> Packed:
        """Arrays and JSON."""
        return Packed({"points": self.points, "seed": self.seed}, {"counts": small(self.counts)})

    @cached_property
    def _table(self) -> Any:
        generator = np.random.default_rng([self.seed, self.points])
        return self.fine.decode(
            self._points_in_cells(np.repeat(np.arange(len(self.counts)), self.counts), generator), generator
        )

    @cached_property
    def _binned(self) -> Codes:
        return self.schema.encode(self._table)

    def _points_in_cells(self, cells: NDArray[np.int64], generator: np.random.Generator) -> Codes:
        """The fine codes of a point in each of these cells, in a random order."""
        return self.space.draw(cells, self.depth, generator)[generator.permutation(len(cells))]

    def _counts_for(self, rows: int) -> NDArray[np.int64]:
        """How many points of each cell ``rows`` points take: fewer than all in proportion, rounded along the cells."""
        if rows >= self.points:
            return self.counts
        until = np.floor(np.cumsum(self.counts) / self.points * rows)
        return np.diff(until, prepend=0.0).astype(np.int64)
