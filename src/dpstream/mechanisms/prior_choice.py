"""What a public prior adds to the estimates of a table's marginals. Public: it reads released values and the prior.

For every marginal the squared error of the prior is estimated from what was measured: the squared distance of the two,
less the noise's own part of it. Where the prior is nearer to the truth than the measurement, the two are joined, the
prior with the weight of the measurement's noise; elsewhere everything stays as it was without a prior.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PublicPrior
from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.schema.domain import Clique
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.table_model import beside_columns, fit_table

_Floats = NDArray[np.float64]

#: The prior is nearer to the truth than a measurement if their squared distance is below this many times what the
#: noise explains: the noise's own part is one, and the prior's error has to be the smaller one of the rest.
_NEARER_BELOW = 2.0
#: From so many free cells on, the join is never worse than the measurement, on average over the noise (Stein). Smaller
#: columns are judged together.
_MIN_FREEDOM = 4
#: How many pairs in which the prior was right and wrong are taken to have been seen before any measurement.
_RIGHT_BEFORE, _WRONG_BEFORE = 1.0, 4.0
#: How many rounds estimate how often the prior is right.
_ROUNDS = 30
#: A trial tells prior and model apart in full from this squared distance on, in variances of the noise.
_DECISIVE = 9.0
#: From so many wrong trials more than right ones on, the prior is not tested any further.
_MAX_WRONG = 1.5
#: So far apart prior and model have to be in one run's measurement of a marginal, for it to be made.
_MIN_APART = 3.0
#: A prior speaks for a marginal that no run has measured if it is wrong about each column in less than this share.
_WRONG_BELOW = 0.4
#: The largest part of a column that is spread over all values: one that the prior has not seen is rare, not impossible.
_SPREAD = 0.01
#: How many records are added to a cell and to what its columns let expect of it.
_LITTLE = 0.5
#: How often a marginal is moved to its columns.
_SWEEPS = 20


class Evidence(Protocol):
    """What was measured of each marginal, whatever a model made of it. Public."""

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which marginals have been measured."""
        ...

    def together(self, index: int) -> tuple[_Floats, float, float]:
        """All measurements of one marginal, added up: cells, the number of records, the variance of a cell's noise."""
        ...


@dataclass(frozen=True)
class _Trial:
    """One measured marginal, with prior and model beside it.

    Attributes:
        beside: what the measurement has beside the prior, its columns' part taken off (flat).
        prior, model: squared distances from the measurement, in variances of its noise.
        apart: the squared distance of prior and model.
        variance: of the noise in one cell.
        right: the probability that the prior is right, rather than the model.
    """

    columns: Clique
    beside: _Floats
    prior: float
    model: float
    apart: float
    variance: float
    right: float = 0.0


@dataclass(frozen=True)
class PriorChoice:
    """The prior's answers to the followed marginals, and the choice between them and what was measured.

    ``iterations``, ``max_cells``: of fits, as the recipe has them.
    """

    followed: MeasuredCells
    prior: PublicPrior
    iterations: int
    max_cells: int

    @cached_property
    def shares(self) -> dict[int, _Floats]:
        """The prior's share of every cell, of the marginals whose columns it has; none is 0.

        Of a wider marginal: the product of its columns, times how much more often than that the prior has the cell. A
        cell that it has, or that its columns let expect, less than once says little, and is taken towards the product.
        """
        plain = {column: self.prior.marginal((column,)) for column in self.prior.columns}
        unseen = min(1.0 / (1.0 + self.prior.total), _SPREAD)
        spread = {column: (1.0 - unseen) * share + unseen / len(share) for column, share in plain.items()}
        little, shares = _LITTLE / self.prior.total, dict[int, _Floats]()
        for i, clique in enumerate(self.followed.cells.cliques):
            if all(column in plain for column in clique):
                table = _product([spread[column] for column in clique])
                if len(clique) > 1:
                    expected = _product([plain[column] for column in clique])
                    table *= (self.prior.marginal(clique).reshape(table.shape) + little) / (expected + little)
                shares[i] = table.ravel() / table.sum()
        return shares

    def table(
        self,
        values: _Floats,
        variances: _Floats,
        evidence: Evidence,
        model: Model,
        kept: Collection[int],
        total: float,
    ) -> tuple[Model | None, bool]:
        """The table's model with the prior where that is nearer (None: nowhere), and whether it is in wider marginals.

        Args:
            values, variances: estimates without it (all cells; per marginal, infinite where no run measured it).
            evidence: the measurements (of inserted records, or of all events).
            model: fitted without the prior, to all columns and the marginals ``kept``.
            total: noisy number of records.
        """
        values, variances = values.copy(), variances.copy()
        if total <= 0.0:
            return None, False
        columns = self._join_columns(values, variances)
        wide = self._join_wide(values, variances, evidence, model, kept)
        if not columns and not wide:
            return None, False
        # The join has weighed all marginals already: they enter as they are.
        iterations, volatile = 2 * self.iterations, range(len(variances))
        limits: dict[str, int] = {"iterations": iterations, "max_cells": self.max_cells}
        return fit_table(self.followed, values, variances, total, **limits, volatile=volatile)[0], wide

    def _join_columns(self, values: _Floats, variances: _Floats) -> bool:
        """Join the columns that the prior is near to; small ones are judged together, in variances of their noise."""
        cells, joined = self.followed.cells, False
        known = [i for i in range(self.followed.columns) if i in self.shares and 0 < variances[i] < math.inf]
        small = [i for i in known if cells.sizes[i] - 1 < _MIN_FREEDOM]
        for group in [*([i] for i in known if i not in small), small]:
            parts = {i: values[cells.part(i)] for i in group}
            apart = {i: part - part.sum() * self.shares[i] for i, part in parts.items()}
            freedom = sum(map(len, apart.values())) - len(group)
            distance = sum(_square(far) / variances[i] for i, far in apart.items())
            if freedom >= _MIN_FREEDOM and distance < _NEARER_BELOW * freedom:
                weight, joined = _weight(distance, freedom), True
                for i, part in parts.items():
                    part -= weight * apart[i]
                    variances[i] *= _left(weight)
        return joined

    def _join_wide(
        self, values: _Floats, variances: _Floats, evidence: Evidence, model: Model, kept: Collection[int]
    ) -> bool:
        """Join the measured marginals in which the prior is right; it speaks for those that no run has measured where
        it is right about their columns."""
        cells, followed, joined = self.followed.cells, self.followed, False
        wide = [
            i
            for i in self._wide
            if all(math.isfinite(variances[cells.cliques.index((column,))]) for column in cells.cliques[i])
        ]
        answers = model.flat_marginals(cells.cliques)
        trials = self._trials(wide, evidence, answers, values, kept)
        wrong_in = self._wrong(trials)
        for i in wide:
            part, freedom = cells.part(i), float(followed.freedom[i])
            prior = self._moved(i, values)
            if trial := trials.get(i):
                if trial.right <= 0.5 or trial.prior >= _NEARER_BELOW * freedom:
                    continue
                weight = _weight(trial.prior, freedom)
                values[part] = prior + (1.0 - weight) * trial.beside
                variances[i] = _left(weight) * trial.variance
            else:
                wrong = max(wrong_in[column] for column in cells.cliques[i])
                if wrong >= _WRONG_BELOW or math.isfinite(variances[i]):
                    continue
                apart = beside_columns(prior - answers[part], followed.workload.domain, cells.cliques[i])
                values[part] = prior
                variances[i] = wrong * _square(apart) / freedom
            joined = True
        return joined

    def marginal_to_test(
        self, evidence: Evidence, model: Model, expected: float, variance: float
    ) -> int | None:
        """The marginal by which the prior can be judged, for a run that chooses none; None where there is none. Public.

        It is the marginal in which prior and model are furthest apart, in standard deviations of the noise, of those
        whose columns are not judged yet.

        Args:
            expected: number of the run's events; ``variance``: of its noise in one cell.
        """
        followed, cells = self.followed, self.followed.cells
        if expected <= 0.0 or model.total <= 0.0 or not followed.choosable:
            return None
        answers = model.flat_marginals(cells.cliques)
        trials = self._trials(self._wide, evidence, answers, answers, self._wide)
        good, bad = _seen(trials.values())
        if bad >= good + _MAX_WRONG:
            return None  # the prior is wrong about most of what was looked at
        best, chosen, wrong_in = _MIN_APART, None, self._wrong(trials)
        for i in self._wide:
            wrong = max(wrong_in[column] for column in cells.cliques[i])
            judged = i in trials and trials[i].apart >= _DECISIVE
            if judged or followed.freedom[i] < _MIN_FREEDOM or i in followed.headlines:
                continue
            if wrong > 0.5 or wrong < _WRONG_BELOW:
                continue  # the prior is wrong about a column, or right about all of them
            apart = (self._moved(i, answers) - answers[cells.part(i)]) * (expected / model.total)
            beside = beside_columns(apart, followed.workload.domain, cells.cliques[i])
            if _square(beside) / variance > best:
                best, chosen = _square(beside) / variance, i
        return chosen

    @cached_property
    def _wide(self) -> list[int]:
        """The wider marginals that the prior has, with something beside their columns."""
        return [i for i in self.shares if self.followed.freedom[i] > 0]

    def _trials(
        self,
        wide: Sequence[int],
        evidence: Evidence,
        answers: _Floats,
        values: _Floats,
        kept: Collection[int],
    ) -> dict[int, _Trial]:
        """All trials that there are; ``values`` has the columns.

        The model was fitted to what was measured of the kept marginals: that is two variances a free cell in its
        favour, as in Akaike's criterion. How often the prior is right among all is estimated with whether it is.
        """
        known, cells = evidence.known, self.followed.cells
        trials = {i: self._trial(i, evidence, answers[cells.part(i)], values) for i in wide if known[i]}
        share, right = _RIGHT_BEFORE / (_RIGHT_BEFORE + _WRONG_BEFORE), np.empty(0)
        gains = np.array([
            0.5 * (trial.model + (2.0 * self.followed.freedom[i] if i in kept else 0.0) - trial.prior)
            for i, trial in trials.items()
        ])  # fmt: skip
        for _ in range(_ROUNDS):
            odds = np.clip(gains + math.log(share) - math.log1p(-share), -50.0, 50.0)
            right = 1.0 / (1.0 + np.exp(-odds))
            share = (right.sum() + _RIGHT_BEFORE) / (len(right) + _RIGHT_BEFORE + _WRONG_BEFORE)
        pairs = zip(trials.items(), right.tolist(), strict=True)
        return {i: replace(trial, right=probability) for (i, trial), probability in pairs}

    def _trial(self, index: int, evidence: Evidence, answer: _Floats, values: _Floats) -> _Trial:
        """Prior and model beside the sum of what was measured of a marginal, both moved to its columns."""
        measured, records, variance = evidence.together(index)
        domain, clique = self.followed.workload.domain, self.followed.cells.cliques[index]
        shape, targets = domain.shape(clique), []
        for axis, column in enumerate(clique):
            # The table's column, and what was measured here, by how precise that is.
            here = measured.reshape(shape).sum(axis=tuple(a for a in range(len(shape)) if a != axis))
            table = self._column(column, values)
            apart, noise = here - table * (records / table.sum()), variance * len(measured) / len(here)
            targets.append(_positive(here - _weight(_square(apart) / noise, len(here)) * apart))
        prior = with_columns_of(self.shares[index], shape, targets)
        model = with_columns_of(_positive(answer), shape, targets)
        beside = beside_columns(measured - prior, domain, clique)
        others = (beside_columns(far, domain, clique) for far in (measured - model, prior - model))
        to_prior, to_model, apart = (_square(far) / variance for far in (beside, *others))
        return _Trial(clique, beside, to_prior, to_model, apart, variance)

    def _wrong(self, trials: Mapping[int, _Trial]) -> dict[int, float]:
        """In what share of the trials with each column the prior was wrong; one right and one wrong are always
        added."""
        wrong = {}
        for column in self.prior.columns:
            good, bad = _seen(trial for trial in trials.values() if column in trial.columns)
            wrong[column] = (1.0 + bad) / (2.0 + good + bad)
        return wrong

    def _column(self, column: int, values: _Floats) -> _Floats:
        """A column's estimate."""
        cells = self.followed.cells
        return _positive(values[cells.part(cells.cliques.index((column,)))])

    def _moved(self, index: int, values: _Floats) -> _Floats:
        """The prior's marginal, moved to the estimates of its columns."""
        clique = self.followed.cells.cliques[index]
        targets = [self._column(column, values) for column in clique]
        return with_columns_of(self.shares[index], self.followed.workload.domain.shape(clique), targets)

    def epoch_model(self, latest: Model, table: Model, noise: Mapping[int, float]) -> Model:
        """The last epoch with the table's dependences, and its columns as far as they differ from the table's.

        Args:
            noise: the variances with which the columns were measured last, by marginal.
        """
        cells, held = self.followed.cells, list[Measurement]()
        columns = cells.cliques[: self.followed.columns]
        answers = zip(latest.marginals(columns), table.marginals(columns), strict=True)
        for i, (column, whole) in enumerate(answers):
            apart = column - whole * (latest.total / table.total)
            weight = _weight(_square(apart) / noise[i], len(column) - 1) if i in noise else 0.0
            held.append(Measurement(columns[i], column - weight * apart, 1.0))
        return fit(
            cells.workload.domain,
            held,
            total=latest.total,
            warm=table,
            iterations=self.iterations,
            max_cells=self.max_cells,
        )


def _seen(trials: Iterable[_Trial]) -> tuple[float, float]:
    """In how many trials the prior was right, and wrong; a trial that could not tell counts in part."""
    good = bad = 0.0
    for trial in trials:
        weight = min(trial.apart / _DECISIVE, 1.0)
        good += weight * trial.right
        bad += weight * (1.0 - trial.right)
    return good, bad


def with_columns_of(table: _Floats, shape: tuple[int, ...], targets: Sequence[_Floats]) -> _Floats:
    """A table of positive cells, scaled to given columns by iterative proportional fitting (flat).

    The first column's sum is the total; others are scaled to it.

    >>> with_columns_of(np.array([2.0, 1.0, 1.0, 2.0]), (2, 2), [np.array([3.0, 3.0]), np.array([1.0, 1.0])])
    array([2., 1., 1., 2.])
    """
    total = targets[0].sum()
    own = table.reshape(shape).copy()
    for _ in range(_SWEEPS):
        for axis, target in enumerate(targets):
            others = tuple(a for a in range(own.ndim) if a != axis)
            own *= np.expand_dims(target * (total / target.sum()) / own.sum(axis=others), others)
    return np.asarray(own.ravel())


def _product(columns: Sequence[_Floats]) -> _Floats:
    """The table of independent columns."""
    return np.asarray(reduce(np.multiply.outer, columns))


def _positive(values: _Floats) -> _Floats:
    """Counts without anything below a millionth of their sum."""
    values = np.maximum(values, 0.0)
    return np.asarray(values + max(values.sum(), 1.0) * 1e-6 / len(values))


def _square(values: _Floats) -> float:
    return float(values @ values)


def _weight(distance: float, freedom: float) -> float:
    """The prior's weight: the noise's variance as a share of that and of the prior's squared error.

    A distance is as uncertain as a chi-square is: up to one standard deviation of it is noise, as far
    as the join keeps within Stein's bound of twice the freedom less four.
    """
    slack = max(min(math.sqrt(2.0 * freedom), freedom - _MIN_FREEDOM), 0.0)
    return min(1.0, (freedom + slack) / distance) if distance > 0.0 else 1.0


def _left(weight: float) -> float:
    """What is left of a measurement's variance after a join of that weight; never nothing."""
    return max(1.0 - weight, 0.1)
