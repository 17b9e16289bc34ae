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
from dpstream.families.tabular.prior_choice import PriorChoice

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
        shown: where a public prior says something of them, their model with the prior in it: it is for releases only,
            so that a prior which turns out to be wrong leaves no trace in what is estimated later.
    """

    level: int
    low: int
    high: int
    size: float
    shares: NDArray[np.float32]
    variances: _Floats
    model: Model
    exposure: float = 0.0
    shown: Model | None = None

    @property
    def released(self) -> Model:
        """What they looked like when they were counted, as far as is known with the prior."""
        return self.model if self.shown is None else self.shown

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


@dataclass
class Seen:
    """What all censuses have measured of each marginal, added up: by this a prior is judged. Public.

    Attributes:
        values: of all cells, in records.
        variances: of the noise in one cell of each marginal, and ``records``: how many were counted; 0: never measured.
    """

    values: _Floats
    variances: _Floats
    records: _Floats

    @classmethod
    def fresh(cls, cells: int, marginals: int) -> Seen:
        """Nothing is measured."""
        return cls(np.zeros(cells), np.zeros(marginals), np.zeros(marginals))

    def add(self, known: tuple[_Floats, _Floats], sizes: NDArray[np.int64], records: float) -> None:
        """Take in one census of so many records: shares of all cells, and variances (infinite: not measured)."""
        shares, variances = known
        measured = np.isfinite(variances)
        self.values += np.where(np.repeat(measured, sizes), shares * records, 0.0)
        self.variances[measured] += variances[measured] * records**2
        self.records[measured] += records


@dataclass(frozen=True)
class _SeenOf:
    """The same as it would be in a cohort of ``size`` records; ``Evidence`` for a prior."""

    seen: Seen
    followed: Followed
    size: float

    @property
    def known(self) -> NDArray[np.bool_]:
        return self.seen.records > 0.0

    def together(self, index: int) -> tuple[_Floats, float, float]:
        part = self.size / float(self.seen.records[index])
        values = self.seen.values[self.followed.cells.part(index)]
        return values * part, self.size, float(self.seen.variances[index]) * part**2


@dataclass(frozen=True)
class Shapes:
    """Makes cohorts; ``iterations`` and ``max_cells`` are those of the fits.

    ``prior``: public knowledge, judged marginal by marginal.
    """

    followed: Followed
    iterations: int
    max_cells: int
    prior: PriorChoice | None = None

    def cohort(
        self,
        level: int,
        window: tuple[int, int],
        size: float,
        known: tuple[_Floats, _Floats],
        model: Model | None = None,
        seen: Seen | None = None,
    ) -> Cohort:
        """A cohort from shares and variances; what is not known (an infinite variance) is left to the model.

        Args:
            model: of the records, where it is known already.
            seen: what censuses have measured, where there is a prior.
        """
        shares, variances = known
        kept: Sequence[int] = np.flatnonzero(np.isfinite(variances)).tolist()
        if model is None:
            model, kept = self._fit(shares, variances, size)
        shown = self._shown(known, size, model, kept, seen)
        shares, variances = shares.copy(), variances.copy()
        answers = np.concatenate(model.with_total(1.0).marginals(self.followed.cells.cliques))
        unknown = ~np.isfinite(variances)
        missing = np.repeat(unknown, self.followed.cells.sizes)
        shares[missing] = answers[missing]
        variances[unknown] = _ANSWER * float(variances[~unknown].mean()) if not unknown.all() else 1.0
        return Cohort(level, *window, size, shares.astype(np.float32), variances, model, shown=shown)

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
            return replace(cohort, exposure=0.0, shown=None)
        cliques = self.followed.cells.cliques
        now, then = (np.concatenate(one.with_total(1.0).marginals(cliques)) for one in (model, cohort.model))
        shares = (cohort.shares + (now - then)).astype(np.float32)
        return replace(cohort, model=model, shares=shares, exposure=0.0, shown=None)

    def folded(self, first: Cohort, second: Cohort, seen: Seen | None = None) -> Cohort:
        """Two neighbouring cohorts of one level as one."""
        size = first.size + second.size
        part = first.size / size if size > 0.0 else 0.5
        shares = part * first.shares.astype(np.float64) + (1.0 - part) * second.shares.astype(np.float64)
        variances = part**2 * first.variances + (1.0 - part) ** 2 * second.variances
        exposure = part * first.exposure + (1.0 - part) * second.exposure
        model, kept = self._fit(shares, variances, size)
        shown = self._shown((shares, variances), size, model, kept, seen)
        return Cohort(
            first.level,
            first.low,
            second.high,
            size,
            shares.astype(np.float32),
            variances,
            model,
            exposure,
            shown,
        )

    def _shown(
        self,
        known: tuple[_Floats, _Floats],
        size: float,
        model: Model,
        kept: Sequence[int],
        seen: Seen | None,
    ) -> Model | None:
        """The model with the prior in it; None where there is none, or where it says nothing."""
        if self.prior is None or seen is None:
            return None
        records, (shares, variances) = max(size, 1.0), known
        # What no census measured has a model's answer in a cohort that was folded.
        variances = np.where(seen.records > 0.0, variances, math.inf)
        joined = self.prior.join(
            shares * records,
            variances * records**2,
            _SeenOf(seen, self.followed, records),
            model.with_total(records),
            kept,
            records,
        )
        return self.prior.fitted(joined, records) if joined.changed else None

    def _fit(self, shares: _Floats, variances: _Floats, size: float) -> tuple[Model, tuple[int, ...]]:
        records = max(size, 1.0)
        return fit_table(
            self.followed,
            shares * records,
            variances * records**2,
            records,
            iterations=2 * self.iterations,
            max_cells=self.max_cells,
            # Cohorts come and go: the noise of what is known of them is known too roughly.
            volatile=range(len(variances)),
        )
