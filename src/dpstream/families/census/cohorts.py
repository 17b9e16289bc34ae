"""Cohorts: the records that one census counted, and the model of what they look like. Public post-processing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import UNPACKED
from dpstream.core.graphical import Measurement, Model
from dpstream.core.schema.domain import Domain
from dpstream.mechanisms.followed_cells import MeasuredCells
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
        return Model(model.tree, potentials, model.total, cliques=model.cliques)

    def learn(self, parts: Sequence[AgedCohort], measured: Sequence[tuple[int, _Floats, float]]) -> None:
        """Take in what a census measured of records that were counted before.

        Args:
            parts: what the records are made of.
            measured: columns by position, with their shares and the variance of one of these.
        """
        if self.pulls.shape[1] > _MAX_CELLS or not measured:
            return
        starts = np.concatenate([[0], np.cumsum(self.domain.sizes)])
        place = np.concatenate([np.arange(starts[c], starts[c + 1]) for c, _, _ in measured])
        shares = np.concatenate([found + (1.0 - found.sum()) / len(found) for _, found, _ in measured])
        noise = np.concatenate([np.full(len(found), variance) for _, found, variance in measured])
        for number, prior in enumerate(PRIORS.tolist()):
            expected, slope = (array[place] for array in self._expected(parts, number))
            surprise = shares - expected
            variances = np.minimum(self.variances[number] + _DRIFT * prior, prior)
            with_pulls = slope * variances
            seen = with_pulls @ slope.T + np.diag(noise + (_MISFIT * expected) ** 2)
            weighed = np.linalg.solve(seen, np.column_stack([surprise, with_pulls]))
            self.fits[number] -= 0.5 * (np.linalg.slogdet(seen)[1] + surprise @ weighed[:, 0])
            gain = weighed[:, 1:].T
            self.pulls[number] += gain @ surprise
            self.variances[number] = np.maximum(variances - np.einsum("ij,ji->i", gain, with_pulls), 0.0)
        self.fits = self.fits - self.fits.max()

    def _expected(self, parts: Sequence[AgedCohort], regression: int) -> tuple[_Floats, _Floats]:
        """The columns' shares in all parts together, and how they change with the pulls."""
        whole, cells = sum(part.weight for part in parts), self.pulls.shape[1]
        expected, slope = np.zeros(cells), np.zeros((cells, cells))
        for part in parts:
            shares, together = _joint(self.aged(part.model, part.exposure, regression))
            weight, exposure = part.weight / whole, min(part.exposure, _MAX_EXPOSURE)
            expected += weight * shares
            slope -= weight * exposure * (together - np.outer(shares, shares))
        return expected, slope


def _joint(model: Model) -> tuple[_Floats, _Floats]:
    """The columns' distributions, and the joint ones of all pairs of values."""
    sizes, model = model.domain.sizes, model.with_total(1.0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shares = np.concatenate(model.marginals([(i,) for i in range(len(sizes))]))
    pairs = list(combinations(range(len(sizes)), 2))
    together = np.zeros((starts[-1], starts[-1]))
    for (i, j), table in zip(pairs, model.marginals(pairs), strict=True):
        block = table.reshape(sizes[i], sizes[j])
        together[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
        together[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
    np.fill_diagonal(together, shares)
    return shares, together


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
        self, step: int, measurements: Sequence[Measurement], records: float, expected: Expected | None = None
    ) -> None:
        """Take in what a census measured of so many records.

        Args:
            expected: before it measured; None: what earlier censuses of this level say.
        """
        found: dict[int, list[tuple[_Floats, float]]] = {}
        for index, values, variance in projected(self.cells, measurements):
            found.setdefault(index, []).append((values / records, variance / records**2))
        cliques, (columns, wide) = self.cells.cliques, self._groups
        for index in columns:
            self._take(step, index, found.get(index, []), expected)
        best, margins = self._best(columns), dict[int, _Floats]()
        for index in columns:
            if math.isfinite(self.variances[best, index]):
                shares = np.maximum(self.values[best, self.cells.part(index)].astype(np.float64), 0.0)
                margins[cliques[index][0]] = shares / max(float(shares.sum()), _NEARLY_EMPTY)
        for index in wide:
            known = [margins[c] for c in cliques[index] if c in margins]
            whole = known if len(known) == len(cliques[index]) else None
            self._take(step, index, found.get(index, []), expected, whole)

    @property
    def _groups(self) -> tuple[list[int], list[int]]:
        """Columns, and wider marginals: each of the two has a drift."""
        cliques = self.cells.cliques
        columns = [i for i, clique in enumerate(cliques) if len(clique) == 1]
        return columns, [i for i, clique in enumerate(cliques) if len(clique) > 1]

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
        for group in self._groups:
            best = self._best(group)
            for index in group:
                part = self.cells.part(index)
                values[part] = self.values[best, part]
                if math.isfinite(self.variances[best, index]):
                    variances[index] = self._before(step, index)[best]
        return values, variances


def projected(cells: Cells, measurements: Sequence[Measurement]) -> list[tuple[int, _Floats, float]]:
    """What some measurements say of marginals within them: index, values and variance of a cell."""
    domain, found = cells.workload.domain, []
    for measurement in measurements:
        clique, shape = measurement.clique, domain.shape(measurement.clique)
        for index, inner in enumerate(cells.cliques):
            if set(clique).issuperset(inner):
                others = tuple(axis for axis, column in enumerate(clique) if column not in inner)
                values = np.asarray(measurement.values.reshape(shape).sum(axis=others).ravel())
                ratio = domain.cells(clique) / domain.cells(inner)
                found.append((index, values, measurement.variance * ratio))
    return found


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
    """What all censuses have measured of each marginal, added up: by this a prior is judged (``Evidence``). Public.

    Attributes:
        values: of all cells, in records.
        variances: of the noise in one cell of each marginal, and ``records``: how many were counted; 0: never measured.
    """

    cells: Cells = field(metadata=UNPACKED)
    values: _Floats
    variances: _Floats
    records: _Floats

    @classmethod
    def fresh(cls, cells: Cells) -> PriorEvidence:
        """Nothing is measured."""
        marginals = len(cells.cliques)
        return cls(cells, np.zeros(cells.total), np.zeros(marginals), np.zeros(marginals))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which marginals have been measured."""
        return self.records > 0.0

    def add(self, known: tuple[_Floats, _Floats], records: float) -> None:
        """Take in one census of so many records: shares of all cells, and variances (infinite: not measured)."""
        shares, variances = known
        measured = np.isfinite(variances)
        self.values += np.where(np.repeat(measured, self.cells.sizes), shares * records, 0.0)
        self.variances[measured] += variances[measured] * records**2
        self.records[measured] += records

    def of(self, records: float) -> PriorEvidence:
        """The same as it would be in a cohort of so many records."""
        part = np.divide(records, self.records, out=np.zeros_like(self.records), where=self.known)
        values = self.values * np.repeat(part, self.cells.sizes)
        return PriorEvidence(self.cells, values, self.variances * part**2, np.where(self.known, records, 0.0))

    def together(self, index: int) -> tuple[_Floats, float, float]:
        """See ``Evidence``."""
        return (self.values[self.cells.part(index)], float(self.records[index]), float(self.variances[index]))


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
        model, shown = self._models(shares, variances, size, seen)
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
        model, shown = self._models(shares, variances, size, seen)
        return replace(
            first,
            high=second.high,
            size=size,
            shares=shares.astype(np.float32),
            variances=variances,
            model=model,
            exposure=exposure,
            shown=shown,
        )

    def _models(
        self, shares: _Floats, variances: _Floats, size: float, seen: PriorEvidence | None
    ) -> tuple[Model, Model | None]:
        """The model of some records; and the one with the prior in it, None where it says nothing."""
        records = max(size, 1.0)
        values, spread = shares * records, variances * records**2
        model, kept = fit_table(
            self.followed,
            values,
            spread,
            records,
            iterations=2 * self.iterations,
            max_cells=self.max_cells,
            # Cohorts come and go: the noise of what is known of them is known too roughly.
            volatile=range(len(variances)),
        )
        if self.prior is None or seen is None:
            return model, None
        # What no census measured has a model's answer in a cohort that was folded.
        spread = np.where(seen.known, spread, math.inf)
        base = model.with_total(records)
        return model, self.prior.table(values, spread, seen.of(records), base, kept, records)[0]
