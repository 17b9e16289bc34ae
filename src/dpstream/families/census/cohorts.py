"""Cohorts: the records that one census counted, and the model of what they look like. Public post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import UNPACKED
from dpstream.core.graphical import Measurement, Model
from dpstream.core.schema.domain import Clique, Domain
from dpstream.mechanisms.measured_cells import MeasuredCells
from dpstream.mechanisms.prior_choice import PriorChoice
from dpstream.mechanisms.table_model import fit_table
from dpstream.mechanisms.workload_cells import Cells

_Floats = NDArray[np.float64]

# Which values leave sooner: a cohort that grows old looks less and less like it did when it was counted. Public.
#
# A record with values x is taken to leave at its level's hazard times ``exp(sum of the pulls of its values)``. To first
# order in the pulls, a cohort of exposure e (hazard times steps since it was counted) then looks like its model times
# ``exp(-e * pull)`` for each value: factors of single columns, which a graphical model takes exactly. A census of a
# higher level counts again who was counted before, and shows how the columns have moved meanwhile: a linear regression.
# How large pulls are beforehand is unknown: regressions for several sizes, none among them, run side by side, and the
# likeliest is used.

#: Variance of a pull before anything is known of it, in each regression.
PRIORS: _Floats = np.array([0.0, 0.01, 0.05, 0.25])
#: What a pull drifts from one census of a higher level to the next, in parts of that.
_DRIFT = 0.02
#: A cohort does not go on changing: who leaves soon has left. More exposure than this has no effect.
_MAX_EXPOSURE = 1.5
#: Columns with more values together are not followed.
_MAX_CELLS = 600
#: A share that is predicted is wrong by about this part besides.
_MISFIT = 0.02


@dataclass(frozen=True)
class AgedCohort:
    """A part of the records that a census counts: its model when it was counted, its weight, and its exposure."""

    model: Model
    weight: float
    exposure: float


@dataclass
class Attrition:
    """What is known of the pulls of all values, column by column.

    Attributes:
        pulls, variances: in each regression, shape (regressions, values).
        fits: logarithms of the regressions' likelihoods.
    """

    domain: Domain = field(metadata=UNPACKED)
    pulls: _Floats
    variances: _Floats
    fits: _Floats

    @classmethod
    def fresh(cls, domain: Domain) -> Attrition:
        """Nothing is known."""
        shape = (len(PRIORS), sum(domain.sizes))
        variances = np.repeat(PRIORS[:, None], shape[1], axis=1)
        return cls(domain, np.zeros(shape), variances, np.zeros(len(PRIORS)))

    @property
    def best(self) -> int:
        """The likeliest regression; the smallest pulls where several are."""
        return int(self.fits.argmax())

    def aged(self, model: Model, exposure: float, regression: int | None = None) -> Model:
        """What is left of the records of a model, with the model's total."""
        pulls = self.pulls[self.best if regression is None else regression]
        if exposure <= 0.0 or not pulls.any():
            return model
        potentials = model.potentials
        potentials[: len(pulls)] -= min(exposure, _MAX_EXPOSURE) * pulls
        return Model(model.tree, potentials, model.total, cliques=model.cliques, report=model.report)

    def learn(
        self, parts: Sequence[AgedCohort], columns: Sequence[int], found: Sequence[_Floats], noise: _Floats
    ) -> None:
        """Take in some columns' shares in a census of records that were counted before.

        Args:
            parts: what the records are made of.
            found: each column's shares as measured.
            noise: the variance of one of them, for each column; infinite: not measured.
        """
        if self.pulls.shape[1] > _MAX_CELLS:
            return
        sizes = self.domain.sizes
        starts = np.concatenate([[0], np.cumsum(sizes)])
        seen = [
            (column, own, v)
            for column, own, v in zip(columns, found, noise.tolist(), strict=True)
            if v < np.inf
        ]
        if not seen:
            return
        place = np.concatenate([np.arange(starts[c], starts[c + 1]) for c, _, _ in seen])
        shares = np.concatenate([own + (1.0 - own.sum()) / len(own) for _, own, _ in seen])
        spread = np.concatenate([np.full(sizes[c], v) for c, _, v in seen])
        for number, prior in enumerate(PRIORS.tolist()):
            self._regress(number, prior, parts, place, shares, spread)
        self.fits = self.fits - self.fits.max()

    def _regress(
        self,
        number: int,
        prior: float,
        parts: Sequence[AgedCohort],
        place: NDArray[np.int64],
        shares: _Floats,
        spread: _Floats,
    ) -> None:
        """One regression's share of ``learn``."""
        expected, slope = self._expected(parts, number)
        expected, slope = expected[place], slope[place]
        surprise = shares - expected
        variances = np.minimum(self.variances[number] + _DRIFT * prior, prior)
        with_pulls = slope * variances
        seen = with_pulls @ slope.T + np.diag(spread + (_MISFIT * expected) ** 2)
        weighed = np.linalg.solve(seen, np.column_stack([surprise, with_pulls]))
        self.fits[number] -= 0.5 * (np.linalg.slogdet(seen)[1] + surprise @ weighed[:, 0])
        gain = weighed[:, 1:].T
        self.pulls[number] += gain @ surprise
        self.variances[number] = np.maximum(variances - np.einsum("ij,ji->i", gain, with_pulls), 0.0)

    def _expected(self, parts: Sequence[AgedCohort], regression: int) -> tuple[_Floats, _Floats]:
        """The columns' shares in all parts together, and how they change with the pulls."""
        whole, cells = sum(part.weight for part in parts), self.pulls.shape[1]
        expected, slope = np.zeros(cells), np.zeros((cells, cells))
        for part in parts:
            shares, together = self._shares(self.aged(part.model, part.exposure, regression))
            weight, exposure = part.weight / whole, min(part.exposure, _MAX_EXPOSURE)
            expected += weight * shares
            slope -= weight * exposure * (together - np.outer(shares, shares))
        return expected, slope

    def _shares(self, model: Model) -> tuple[_Floats, _Floats]:
        """The columns' distributions, and the joint ones of all pairs of values."""
        sizes, columns = self.domain.sizes, len(self.domain.sizes)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        one = model.with_total(1.0)
        shares = one.marginals([(i,) for i in range(columns)])
        pairs = [(i, j) for i in range(columns) for j in range(i + 1, columns)]
        together = np.zeros((starts[-1], starts[-1]))
        for (i, j), table in zip(pairs, one.marginals(pairs), strict=True):
            block = table.reshape(sizes[i], sizes[j])
            together[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
            together[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
        joined = np.concatenate(shares)
        np.fill_diagonal(together, joined)
        return joined, together


# The distribution of a level's newcomers, marginal by marginal, from one census to the next. Public post-processing.
#
# Every column of the workload is a random walk that censuses measure with noise; a wider marginal moves with its
# columns (it is raked to them: how they depend on each other stays), and walks besides. How far they walk in a step is
# unknown: filters for several drifts run side by side, and the likeliest is used: one for all columns, one for all
# wider marginals. A census of a higher level counts records again, of whom more is known than how newcomers looked
# before: what is left of their cohorts is what it expects.

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

    cells: Cells = field(metadata=UNPACKED)
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
class PriorEvidence:
    """What all censuses have measured of each marginal, added up: by this a prior is judged. Public.

    Attributes:
        values: of all cells, in records.
        variances: of the noise in one cell of each marginal, and ``records``: how many were counted; 0: never measured.
    """

    values: _Floats
    variances: _Floats
    records: _Floats

    @classmethod
    def fresh(cls, cells: int, marginals: int) -> PriorEvidence:
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
class _CohortEvidence:
    """The same as it would be in a cohort of ``size`` records; ``Evidence`` for a prior."""

    seen: PriorEvidence
    followed: MeasuredCells
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

    followed: MeasuredCells
    iterations: int
    max_cells: int
    prior: PriorChoice | None = None

    def cohort(
        self,
        level: int,
        window: tuple[int, int],
        size: float,
        known: tuple[_Floats, _Floats],
        seen: PriorEvidence | None = None,
    ) -> Cohort:
        """A cohort from shares and variances; what is not known (an infinite variance) is left to the model.

        Args:
            seen: what censuses have measured, where there is a prior.
        """
        shares, variances = known
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

    def folded(self, first: Cohort, second: Cohort, seen: PriorEvidence | None = None) -> Cohort:
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
        seen: PriorEvidence | None,
    ) -> Model | None:
        """The model with the prior in it; None where there is none, or where it says nothing."""
        if self.prior is None or seen is None:
            return None
        records, (shares, variances) = max(size, 1.0), known
        # What no census measured has a model's answer in a cohort that was folded.
        variances = np.where(seen.records > 0.0, variances, math.inf)
        return self.prior.table(
            shares * records,
            variances * records**2,
            _CohortEvidence(seen, self.followed, records),
            model.with_total(records),
            kept,
            records,
        )[0]

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
