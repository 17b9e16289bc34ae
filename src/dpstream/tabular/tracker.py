"""What the columns look like at the moment, from noisy readings of some of them at every step.

Everything here is public post-processing of counter outputs. Each column's distribution is followed by a small
bank of Kalman filters, one for each assumed speed of change; they are mixed by how well they predicted the recent
readings, so that a stationary column is averaged over a long time and a changing one over a short one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.tabular.cells import Cells

__all__ = ["SPEEDS", "Columns", "Tracker"]

#: Assumed variances of a share's change in one step: from "never changes" to "may turn over in ten steps".
SPEEDS = (0.0, 1e-6, 1e-4, 1e-2)
#: How slowly the filters' records of success are forgotten.
_FORGETTING = 0.99


class Columns:
    """Where the values of each column sit in one flat vector, and in every cell of a workload."""

    def __init__(self, cells: Cells) -> None:
        domain = cells.workload.domain
        self.cells = cells
        self.sizes = np.array(domain.sizes)
        self.starts = np.concatenate(([0], np.cumsum(self.sizes)[:-1]))
        self.total = int(self.sizes.sum())
        width = max(len(clique) for clique in cells.cliques)
        # slots[j] is the position of the j-th column's value in the flat vector, for every cell; cliques with
        # fewer columns point to an extra entry that always holds 1.
        self.slots = np.full((width, cells.total), self.total, dtype=np.int64)
        for i, clique in enumerate(cells.cliques):
            grids = np.indices(domain.shape(clique)).reshape(len(clique), -1)
            for j, column in enumerate(clique):
                self.slots[j, cells.part(i)] = self.starts[column] + grids[j]

    def product(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Every workload's distribution if columns were independent, all cells."""
        extended = np.append(shares, 1.0)
        product: NDArray[np.float64] = extended[self.slots[0]]
        for slots in self.slots[1:]:
            product = product * extended[slots]
        return product

    def part(self, column: int) -> slice:
        """A column's values in the flat vector."""
        return slice(int(self.starts[column]), int(self.starts[column] + self.sizes[column]))


class Tracker:
    """The bank of filters over all columns. Arrays only, so that the state packs as it is.

    levels: shape (speeds, values), a share for every value of every column. spread: shape (speeds, columns), the
    variance of one share. score: shape (speeds, columns), discounted log-likelihood.
    """

    def __init__(
        self,
        columns: Columns,
        levels: NDArray[np.float64],
        spread: NDArray[np.float64],
        score: NDArray[np.float64],
    ) -> None:
        self.columns, self.levels, self.spread, self.score = columns, levels, spread, score

    @staticmethod
    def fresh(columns: Columns) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Uniform shares, as uncertain as one cell of a column can be."""
        levels = np.tile(np.repeat(1.0 / columns.sizes, columns.sizes), (len(SPEEDS), 1))
        spread = np.tile(1.0 / columns.sizes, (len(SPEEDS), 1))
        return levels, spread, np.zeros((len(SPEEDS), len(columns.sizes)))

    def shares(self) -> NDArray[np.float64]:
        """The mixed estimate, clipped to distributions."""
        weights = np.exp(self.score - self.score.max(axis=0))
        weights /= weights.sum(axis=0)
        mixed = (self.levels * np.repeat(weights, self.columns.sizes, axis=1)).sum(axis=0)
        mixed = np.maximum(mixed, 0.0)
        sums = np.add.reduceat(mixed, self.columns.starts)
        flat = np.repeat(1.0 / self.columns.sizes, self.columns.sizes)
        whole = np.repeat(sums, self.columns.sizes)
        return np.asarray(np.divide(mixed, whole, out=flat, where=whole > 0))

    def drift(self) -> None:
        """A step passes: every share may have changed."""
        self.spread += np.array(SPEEDS)[:, None]
        self.score *= _FORGETTING

    def read(self, index: int, increment: NDArray[np.float64], cell_variance: float, arrivals: float) -> None:
        """A noisy increment of workload ``index`` over about ``arrivals`` records."""
        columns = self.columns
        clique = columns.cells.cliques[index]
        part = columns.cells.part(index)
        for j, column in enumerate(clique):
            where = columns.part(column)
            size = int(columns.sizes[column])
            slots = columns.slots[j, part] - where.start
            reading = np.bincount(slots, increment, minlength=size)
            variance = cell_variance * (len(slots) / size) / arrivals**2 + 1.0 / (size * arrivals)
            # Only the reading's direction counts: its sum says how many arrived, not how they look.
            levels = self.levels[:, where]
            news = (reading - levels * reading.sum()) / arrivals
            expected = self.spread[:, column] + variance
            gain = self.spread[:, column] / expected
            self.score[:, column] -= 0.5 * ((news**2).sum(axis=1) / expected + size * np.log(expected))
            self.levels[:, where] = levels + gain[:, None] * news
            self.spread[:, column] *= 1.0 - gain
