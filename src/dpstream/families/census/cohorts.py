"""Cohorts: the records that one census counted, and the model of what they look like. Public post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model
from dpstream.families.census.shape_tracker import projected
from dpstream.families.tabular.pooled_run import Followed
from dpstream.families.tabular.pooled_table import fit_table

__all__ = ["Cohort", "Shapes", "levels_of_cohorts"]

_Floats = NDArray[np.float64]

#: A model's answer counts as a measurement with so many times the mean variance.
_ANSWER = 2.0


@dataclass(frozen=True)
class Cohort:
    """Records with first steps in ``low + 1 .. high``, which one census has counted together (or several, folded).

    Attributes:
        size: how many of them are present.
        shares: of all cells of the followed marginals (in single precision, as they are much of the state), and the
            ``variances`` of one cell of each marginal.
        model: fitted to them, as they were when they were counted.
        exposure: hazard times steps since then, up to the last count of departures.
    """

    level: int
    low: int
    high: int
    size: float
    shares: NDArray[np.float32]
    variances: _Floats
    model: Model
    exposure: float = 0.0

    def after(self, kept: float, exposure: float) -> Cohort:
        """After a count of departures: which part stayed, and to what they were exposed."""
        return replace(self, size=self.size * kept, exposure=self.exposure + exposure)


def levels_of_cohorts(cohorts: Sequence[Cohort], first: NDArray[np.int32]) -> NDArray[np.int64]:
    """The level of the cohort that holds each of some first steps; those that no cohort holds are left out.

    Args:
        cohorts: the oldest first; they do not overlap.
    """
    lows, highs, levels = (
        np.array([getattr(cohort, name) for cohort in cohorts], dtype=np.int64)
        for name in ("low", "high", "level")
    )
    if not len(lows):
        return levels
    place = np.searchsorted(lows, first, side="left") - 1
    return levels[place[(place >= 0) & (first <= highs[place])]]


@dataclass(frozen=True)
class Shapes:
    """Makes cohorts; ``iterations`` and ``max_cells`` are those of the fits."""

    followed: Followed
    iterations: int
    max_cells: int

    def cohort(
        self,
        level: int,
        window: tuple[int, int],
        size: float,
        known: tuple[_Floats, _Floats],
        model: Model | None = None,
    ) -> Cohort:
        """A cohort from shares and variances; what is not known (an infinite variance) is left to the model.

        Args:
            model: of the records, where it is known already.
        """
        shares, variances = known
        if model is None:
            model = self._fit(shares, variances, size)
        shares, variances = shares.copy(), variances.copy()
        answers = np.concatenate(model.with_total(1.0).marginals(self.followed.cells.cliques))
        unknown = ~np.isfinite(variances)
        missing = np.repeat(unknown, self.followed.cells.sizes)
        shares[missing] = answers[missing]
        variances[unknown] = _ANSWER * float(variances[~unknown].mean()) if not unknown.all() else 1.0
        return Cohort(level, *window, size, shares.astype(np.float32), variances, model)

    def measured(self, measurements: Sequence[Measurement], records: float) -> tuple[_Floats, _Floats]:
        """What one census alone says of all followed marginals: shares, and variances of one cell."""
        cells = self.followed.cells
        sums, precision = np.zeros(cells.total), np.zeros(len(cells.cliques))
        for index, values, variance in projected(cells, measurements):
            weight = records**2 / variance
            sums[cells.part(index)] += weight * values / records
            precision[index] += weight
        known = precision > 0.0
        variances = np.full(len(precision), math.inf)
        variances[known] = 1.0 / precision[known]
        return sums / np.repeat(np.where(known, precision, 1.0), cells.sizes), variances

    def renewed(self, cohort: Cohort, model: Model) -> Cohort:
        """The cohort as if it were counted now, when ``model`` says what is left of it."""
        if model is cohort.model:
            return replace(cohort, exposure=0.0)
        cliques = self.followed.cells.cliques
        now, then = (np.concatenate(one.with_total(1.0).marginals(cliques)) for one in (model, cohort.model))
        shares = (cohort.shares + (now - then)).astype(np.float32)
        return replace(cohort, model=model, shares=shares, exposure=0.0)

    def folded(self, first: Cohort, second: Cohort) -> Cohort:
        """Two neighbouring cohorts of one level as one."""
        size = first.size + second.size
        part = first.size / size if size > 0.0 else 0.5
        shares = part * first.shares.astype(np.float64) + (1.0 - part) * second.shares.astype(np.float64)
        variances = part**2 * first.variances + (1.0 - part) ** 2 * second.variances
        exposure = part * first.exposure + (1.0 - part) * second.exposure
        model = self._fit(shares, variances, size)
        return Cohort(
            first.level, first.low, second.high, size, shares.astype(np.float32), variances, model, exposure
        )

    def _fit(self, shares: _Floats, variances: _Floats, size: float) -> Model:
        records = max(size, 1.0)
        model, _ = fit_table(
            self.followed,
            shares * records,
            variances * records**2,
            records,
            iterations=2 * self.iterations,
            max_cells=self.max_cells,
        )
        return model
