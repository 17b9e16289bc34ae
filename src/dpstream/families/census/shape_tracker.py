"""The distribution of a level's newcomers, marginal by marginal, from one census to the next. Public post-processing.

Every column of the workload is a random walk that censuses measure with noise; a wider marginal moves with its
columns (it is raked to them: how they depend on each other stays), and walks besides. How far they walk in a step is
unknown: filters for several drifts run side by side, and the likeliest is used: one for all columns, one for all wider
marginals. A census of a higher level counts records again, of whom more is known than how newcomers looked before:
what is left of their cohorts is what it expects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Measurement
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.tabular.workload_cells import Cells

_Floats = NDArray[np.float64]

#: Variance that a step brings, all cells of a marginal together, in parts of what one record's cell has.
DRIFTS: _Floats = np.concatenate(([0.0], 10.0 ** np.arange(-4.0, 1.25, 0.5)))


#: Rounds of raking: each fits all columns once.
_RAKING = 5
#: What raking takes an empty cell for: a column that grows from nothing needs somewhere to go.
_NEARLY_EMPTY = 1e-9


@dataclass(frozen=True)
class Expected:
    """What is expected of a census before it measures.

    Attributes:
        shares: of all cells of the followed marginals.
        variances: of one cell of each marginal, as far as they are known.
        moved: how far shares may have moved besides, in units of what a drift does in a step.
    """

    shares: _Floats
    variances: _Floats
    moved: float


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

    def add(
        self,
        step: int,
        measurements: Sequence[Measurement],
        records: float,
        expected: Expected | None = None,
    ) -> None:
        """Take in what a census measured of so many records.

        Args:
            expected: before it measured; None: what earlier censuses of this level say.
        """
        found: dict[int, list[tuple[_Floats, float]]] = {}
        for index, values, variance in projected(self.cells, measurements):
            found.setdefault(index, []).append((values / records, variance / records**2))
        cliques = self.cells.cliques
        for index in self._columns:
            self._take(step, index, found.get(index, []), expected)
        best, margins = self._best(self._columns), dict[int, _Floats]()
        for index in self._columns:
            if math.isfinite(self.variances[best, index]):
                own = np.maximum(self.values[best, self.cells.part(index)].astype(np.float64), 0.0)
                margins[cliques[index][0]] = own / max(float(own.sum()), _NEARLY_EMPTY)
        for index in self._wide:
            known = [margins[c] for c in cliques[index] if c in margins]
            whole = known if len(known) == len(cliques[index]) else None
            self._take(step, index, found.get(index, []), expected, whole)

    @cached_property
    def _columns(self) -> list[int]:
        return [i for i, clique in enumerate(self.cells.cliques) if len(clique) == 1]

    @cached_property
    def _wide(self) -> list[int]:
        return [i for i, clique in enumerate(self.cells.cliques) if len(clique) > 1]

    def _take(
        self,
        step: int,
        index: int,
        found: Sequence[tuple[_Floats, float]],
        expected: Expected | None,
        margins: Sequence[_Floats] | None = None,
    ) -> None:
        """One marginal: what is expected of it, moved along with its columns, and corrected by what was found."""
        part = self.cells.part(index)
        if expected is not None:
            values = np.repeat(expected.shares[part][None], len(DRIFTS), axis=0)
            diversity = _diversity(values, expected.variances[index])
            variances = expected.variances[index] + DRIFTS * expected.moved * diversity
        elif math.isfinite(self.variances[0, index]):
            values, variances = self.values[:, part].astype(np.float64), self._before(step, index)
        elif found:
            values = np.repeat(found[0][0][None], len(DRIFTS), axis=0)
            variances, found = np.full(len(DRIFTS), found[0][1]), found[1:]
        else:
            return
        if margins is not None:
            values = raked(values, self.cells.workload.domain.shape(self.cells.cliques[index]), margins)
        for measured, noise in found:
            seen = variances + noise
            surprise = measured - values
            squares = (surprise**2).sum(axis=1)
            self.fits[:, index] -= 0.5 * (len(measured) * np.log(seen) + squares / seen)
            values = values + (variances / seen)[:, None] * surprise
            variances = variances * noise / seen
        self.values[:, part], self.variances[:, index], self.steps[index] = values, variances, step

    def _before(self, step: int, index: int) -> _Floats:
        """A cell's variance at a step, before anything is measured there."""
        own = self.values[:, self.cells.part(index)].astype(np.float64)
        diversity = _diversity(own, self.variances[:, index])
        return np.asarray(self.variances[:, index] + DRIFTS * float(step - self.steps[index]) * diversity)

    def _best(self, group: Sequence[int]) -> int:
        """The likeliest drift of some marginals."""
        return int(self.fits[:, group].sum(axis=1).argmax())

    def estimates(self, step: int) -> tuple[_Floats, _Floats]:
        """Shares of all cells, and the variance of one cell of each marginal (infinite: never measured)."""
        values, variances = np.empty(self.cells.total), np.full(len(self.cells.cliques), math.inf)
        for group in (self._columns, self._wide):
            best = self._best(group)
            for index in group:
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


def _diversity(values: _Floats, variances: _Floats | float) -> _Floats:
    """What one record's cell has as variance, on average over the cells.

    The noise in the squares is taken off: values that are mostly noise do not look concentrated.
    """
    size = values.shape[1]
    squares = (values**2).sum(axis=1) - size * variances
    return np.asarray((1.0 - np.clip(squares, 1.0 / size, 1.0)) / size)


def raked(tables: _Floats, shape: tuple[int, ...], margins: Sequence[_Floats]) -> _Floats:
    """Tables (a row each) with these columns, and with the dependence between them that they had.

    >>> raked(np.array([[0.4, 0.1, 0.1, 0.4]]), (2, 2), [np.array([0.8, 0.2]), np.array([0.5, 0.5])]).round(3).tolist()
    [[0.483, 0.317, 0.017, 0.183]]
    """
    own = np.maximum(tables, _NEARLY_EMPTY).reshape(len(tables), *shape)
    for _ in range(_RAKING):
        for axis, margin in enumerate(margins):
            others = tuple(1 + i for i in range(len(shape)) if i != axis)
            own = own * np.expand_dims(margin / np.maximum(own.sum(axis=others), _NEARLY_EMPTY**2), others)
    return np.asarray(own.reshape(tables.shape))
