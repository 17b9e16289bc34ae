"""What is known of a side's marginals from the epochs so far. Public: everything follows from released values.

Two estimates of each running sum, and a choice between them:

* the *sum* of what the epochs gave: right whatever the stream does, with the noise of all epochs;
* the *pooled* one: the number of records times the inverse-variance mean of the epochs' distributions: far less noise,
  and wrong where the stream drifts.

How far they lie apart, beyond what their noise explains, decides (James and Stein's shrinkage).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.tabular.cells import Cells

__all__ = ["VECTORS", "Epoch", "Estimates"]

#: Names of the arrays in ``Estimates``: over cells, and over marginals.
VECTORS = ("sums", "weighted", "measured", "variance", "precision", "measured_variance", "records", "times")

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Epoch:
    """What one epoch's run gave.

    Attributes:
        values: of every followed marginal, all cells: as measured, or the answer of the epoch's model.
        variance: per marginal, of the noise in one cell of a measurement; of the others what is assumed of an answer.
        measured: which marginals were measured.
        records: noisy number of events.
    """

    values: _Floats
    variance: _Floats
    measured: NDArray[np.bool_]
    records: float


@dataclass
class Estimates:
    """Running sums over epochs.

    Attributes:
        sums: of all epochs' values, all cells.
        variance: of one cell of ``sums``, per marginal.
        weighted, precision: numerator (all cells) and denominator (per marginal) of the inverse-variance mean of
            the measured distributions.
        measured, measured_variance, records, times: of the epochs that measured a marginal: sum of values (all
            cells), its variance, their records, their number.
    """

    cells: Cells
    sums: _Floats
    weighted: _Floats
    measured: _Floats
    variance: _Floats
    precision: _Floats
    measured_variance: _Floats
    records: _Floats
    times: _Floats

    @classmethod
    def fresh(cls, cells: Cells) -> Estimates:
        """Before the first epoch."""
        own = [np.zeros(cells.total) for _ in range(3)] + [np.zeros(len(cells.cliques)) for _ in range(5)]
        return cls(cells, *own)

    def add(self, epoch: Epoch) -> None:
        """Take in one epoch."""
        sizes = self.cells.sizes
        # An epoch without (noisily) any record says nothing about a distribution.
        records = max(epoch.records, 1.0)
        # Beside the noise an epoch's records are a sample: at most records / cells per cell on average.
        variance = epoch.variance + records / sizes
        weight = np.where(epoch.measured, records / variance, 0.0)
        self.sums += epoch.values
        self.variance += epoch.variance
        self.weighted += np.repeat(weight, sizes) * epoch.values
        self.precision += weight * records
        self.measured += np.where(np.repeat(epoch.measured, sizes), epoch.values, 0.0)
        self.measured_variance += np.where(epoch.measured, variance, 0.0)
        self.records += np.where(epoch.measured, records, 0.0)
        self.times += epoch.measured

    def answer(self, total: float, alone: NDArray[np.bool_]) -> tuple[_Floats, _Floats]:
        """The estimate of every running sum (all cells), and the variance of its noise per cell (per marginal).

        Args:
            total: noisy number of events so far.
            alone: marginals that judge drift for themselves; the others judge together.
        """
        sizes = self.cells.sizes
        known = self.precision > 0.0
        precision = np.where(known, self.precision, 1.0)
        mean = self.weighted / np.repeat(precision, sizes)
        gap = (self.measured - np.repeat(self.records, sizes) * mean) ** 2
        apart = np.add.reduceat(gap, self.cells.starts)
        # Var(sum - pooled) = Var(sum) - Var(pooled): the pooled one is the best of all unbiased ones without drift.
        noise: _Floats = np.maximum(self.measured_variance - self.records**2 / precision, 0.0) * sizes
        pooled_variance = total**2 / precision
        share = _excess(apart, noise)
        repeated = ~alone & (self.times > 1.0)
        share[~alone] = _excess(apart[repeated].sum(), noise[repeated].sum())
        share[alone & (self.times < 2.0)] = 1.0
        share[~known] = 1.0
        cells = np.repeat(share, sizes)
        values = cells * self.sums + (1.0 - cells) * total * mean
        return values, share * self.variance + (1.0 - share) * pooled_variance


def _excess(apart: _Floats, noise: _Floats) -> _Floats:
    """Share of a squared distance that noise does not explain, from 0 to 1."""
    return np.asarray(np.clip(1.0 - noise / np.maximum(apart, 1e-9), 0.0, 1.0))
