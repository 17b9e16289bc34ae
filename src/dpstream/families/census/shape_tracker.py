"""The distribution of a level's newcomers, marginal by marginal, from one census to the next. Public post-processing.

Every column and every wider marginal of the workload is a random walk that censuses measure with noise. How far it
walks in a step is unknown: filters for several drifts run side by side, and the most likely drift is used, one for all
marginals. (Wider ones alone, often measured once, would say nothing of theirs, and look as if they never moved.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Measurement
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.tabular.workload_cells import Cells

__all__ = ["DRIFTS", "ShapeTracker", "projected"]

_Floats = NDArray[np.float64]

#: Variance that a step brings, all cells of a marginal together, in parts of what one record's cell has.
DRIFTS: _Floats = np.concatenate(([0.0], 10.0 ** np.arange(-4.0, 1.25, 0.5)))


@dataclass
class ShapeTracker:
    """What is known of each marginal, under each drift.

    Attributes:
        values: shares of all cells, shape (drifts, cells); in single precision, as it is most of the state.
        variances: of one cell, shape (drifts, marginals); infinite where nothing was measured.
        steps: of each marginal's last measurement.
        fits: logarithms of each marginal's likelihood, shape (drifts, marginals).
    """

    cells: Cells
    values: NDArray[np.float32]
    variances: _Floats
    steps: NDArray[np.int64]
    fits: _Floats

    @classmethod
    def fresh(cls, cells: Cells) -> ShapeTracker:
        """Nothing is known."""
        marginals = len(cells.cliques)
        return cls(
            cells,
            np.zeros((len(DRIFTS), cells.total), dtype=np.float32),
            np.full((len(DRIFTS), marginals), math.inf),
            np.zeros(marginals, dtype=np.int64),
            np.zeros((len(DRIFTS), marginals)),
        )

    def copy(self) -> ShapeTracker:
        """For a level above, which begins with what is known below."""
        return ShapeTracker(
            self.cells, self.values.copy(), self.variances.copy(), self.steps.copy(), self.fits.copy()
        )

    def add(self, step: int, measurements: Sequence[Measurement], records: float) -> None:
        """Take in what a census measured of so many records."""
        for index, values, variance in projected(self.cells, measurements):
            self._measure(step, index, values / records, variance / records**2)

    def _measure(self, step: int, index: int, found: _Floats, noise: float) -> None:
        part = self.cells.part(index)
        if math.isinf(self.variances[0, index]):
            self.values[:, part], self.variances[:, index] = found, noise
        else:
            before = self._before(step, index)
            seen = before + noise
            known = self.values[:, part].astype(np.float64)
            surprise = found - known
            squares = (surprise**2).sum(axis=1)
            self.fits[:, index] -= 0.5 * (len(found) * np.log(seen) + squares / seen)
            self.values[:, part] = known + (before / seen)[:, None] * surprise
            self.variances[:, index] = before * noise / seen
        self.steps[index] = step

    def _before(self, step: int, index: int) -> _Floats:
        """A cell's variance at a step, before anything is measured there."""
        own = self.values[:, self.cells.part(index)].astype(np.float64)
        size = int(self.cells.sizes[index])
        # The noise in the squares is taken off: values that are mostly noise do not look concentrated.
        squares = (own**2).sum(axis=1) - size * self.variances[:, index]
        diversity = 1.0 - np.clip(squares, 1.0 / size, 1.0)
        return np.asarray(
            self.variances[:, index] + DRIFTS * float(step - self.steps[index]) * diversity / size
        )

    def estimates(self, step: int) -> tuple[_Floats, _Floats]:
        """Shares of all cells, and the variance of one cell of each marginal (infinite: never measured)."""
        values, variances = np.empty(self.cells.total), np.full(len(self.cells.cliques), math.inf)
        best = int(self.fits.sum(axis=1).argmax())
        for index in range(len(self.cells.cliques)):
            part = self.cells.part(index)
            values[part] = self.values[best, part]
            if math.isfinite(self.variances[best, index]):
                variances[index] = self._before(step, index)[best]
        return values, variances

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Exactly this tracker."""
        return {"values": self.values, "variances": self.variances, "steps": self.steps, "fits": self.fits}

    @classmethod
    def of(cls, cells: Cells, arrays: dict[str, NDArray[np.generic]]) -> ShapeTracker:
        """The inverse of ``arrays``; StoreDamagedError if they do not fit the workload."""
        wanted = cls.fresh(cells).arrays()
        if any(arrays[name].shape != own.shape for name, own in wanted.items()):
            raise StoreDamagedError("a tracker of shapes does not fit the workload", where="state")
        made = {name: arrays[name].astype(own.dtype) for name, own in wanted.items()}
        return cls(cells, made["values"], made["variances"], made["steps"], made["fits"])


def projected(cells: Cells, measurements: Sequence[Measurement]) -> list[tuple[int, _Floats, float]]:
    """What some measurements say of marginals within them: index, values and variance of a cell."""
    found, domain = [], cells.workload.domain
    for measurement in measurements:
        own = set(measurement.clique)
        for index, clique in enumerate(cells.cliques):
            if own.issuperset(clique):
                ratio = domain.cells(measurement.clique) / domain.cells(clique)
                values = _summed(measurement.values, domain, measurement.clique, clique)
                found.append((index, values, measurement.variance * ratio))
    return found


def _summed(values: _Floats, domain: Domain, clique: Clique, inner: Clique) -> _Floats:
    others = tuple(axis for axis, column in enumerate(clique) if column not in inner)
    return np.asarray(values.reshape(domain.shape(clique)).sum(axis=others).ravel())
