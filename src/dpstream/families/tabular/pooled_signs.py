"""Columns of two values, measured together: what is read of them, and in which pairs.

A column of two values is its sign: +1 or -1 in every record. With the number of events, the sum of the column's signs
says its histogram; with two columns' sums, the sum of the products of their signs says the histogram of the pair. One
record changes each of these sums by at most 1, whatever it holds, so that one joint draw of noise, bounded by the
largest coordinate, covers all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model
from dpstream.core.privacy.cube import MAX_DIMENSION
from dpstream.families.tabular.workload_cells import Cells


@dataclass(frozen=True)
class Signs:
    """The columns of two values among the followed marginals (the first ``columns``), and their pairs.

    ``apart``: pairs that are measured by themselves.
    """

    cells: Cells
    columns: int
    apart: tuple[int, ...] = ()

    @cached_property
    def singles(self) -> tuple[int, ...]:
        """The columns of two values, if there are at least two: a single one gains nothing."""
        binary = tuple(i for i in range(self.columns) if self.cells.sizes[i] == 2)
        return binary if 2 <= len(binary) < MAX_DIMENSION // 2 else ()

    @cached_property
    def pairs(self) -> tuple[int, ...]:
        """The followed pairs of such columns."""
        own = {self.cells.cliques[i][0] for i in self.singles}
        apart = set(self.apart)
        wide = (i for i in range(self.columns, len(self.cells.cliques)) if i not in apart)
        return tuple(
            i for i in wide if len(self.cells.cliques[i]) == 2 and own.issuperset(self.cells.cliques[i])
        )

    @cached_property
    def joint_pairs(self) -> frozenset[int]:
        """``pairs``, to look up."""
        return frozenset(self.pairs)

    def read(self, counts: NDArray[np.int64], indices: Sequence[int]) -> list[int]:
        """Sums of signs (columns), or of products of signs (pairs): each changes by at most 1 with a record."""
        parts = [counts[self.cells.part(i)] for i in indices]
        return [int(p[1] - p[0]) if len(p) == 2 else int(p[0] - p[1] - p[2] + p[3]) for p in parts]

    def column(self, index: int, total: tuple[float, float], own: tuple[float, float]) -> Measurement:
        """A column's histogram from the number of events and its sum of signs, each (value, variance).

        The sums' errors are not correlated, but the total's is in every column of a run.
        """
        (events, spread), (sign, variance) = total, own
        values = np.array([events - sign, events + sign]) / 2.0
        return Measurement(self.cells.cliques[index], values, (spread + variance) / 4.0)

    def pair(
        self, index: int, total: tuple[float, float], one: tuple[float, float], two: tuple[float, float],
        both: tuple[float, float],
    ) -> Measurement:  # fmt: skip
        """A pair's histogram, in the same way. It repeats its columns' errors: with theirs, it adds its product's."""
        (n, a, b, c), variances = zip(total, one, two, both, strict=True)
        values = np.array([n - a - b + c, n - a + b - c, n + a - b - c, n + a + b + c]) / 4.0
        return Measurement(self.cells.cliques[index], values, sum(variances) / 16.0)

    def order(self, known: Model, seen: NDArray[np.float64]) -> list[int]:
        """Which pairs to measure first. Public.

        By turns the two columns that depend on each other most, as far as is known (that may change), and the pair
        of which fewest records have been measured.

        Args:
            known: what earlier epochs say.
            seen: number of events in the epochs that measured each followed marginal.
        """
        if not self.pairs:
            return []
        tables = np.array(known.with_total(1.0).marginals([self.cells.cliques[i] for i in self.pairs]))
        ones = tables[:, 2] + tables[:, 3], tables[:, 1] + tables[:, 3]
        strength = np.round(np.abs(tables[:, 3] - ones[0] * ones[1]), 9)
        own = np.array(self.pairs)
        strong, fresh = np.argsort(-strength, kind="stable"), np.argsort(seen[own], kind="stable")
        both = np.column_stack((own[strong], own[fresh])).ravel().tolist()
        return list(dict.fromkeys(both))
