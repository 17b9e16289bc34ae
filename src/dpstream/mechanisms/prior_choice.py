"""What a public prior adds to the estimates of a table's marginals. Public: it reads released values and the prior.

For every marginal the squared error of the prior is estimated from what was measured: the squared distance of the two,
less the noise's own part of it. Where the prior is nearer to the truth than the measurement, the two are joined, the
prior with the weight of the measurement's noise; elsewhere everything stays as it was without a prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PublicPrior
from dpstream.core.graphical import Measurement, Model, fit
from dpstream.mechanisms.measured_cells import MeasuredCells
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
#: A test tells prior and model apart in full from this squared distance on, in variances of the noise.
_DECISIVE = 9.0
#: From so many wrong tests more than right ones on, the prior is not tested any further.
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
class Joined:
    """Estimates with the prior in them.

    Attributes:
        values, variances: of all followed marginals, as ``fit_table`` takes them.
        columns: how many columns the prior has changed; ``wide``: which wider marginals.
    """

    values: _Floats
    variances: _Floats
    columns: int
    wide: tuple[int, ...]

    @property
    def changed(self) -> bool:
        """Whether the prior says anything at all."""
        return bool(self.columns or self.wide)


@dataclass(frozen=True)
class _Test:
    """One measured marginal: prior and model beside it.

    Attributes:
        beside: what the measurement has beside the prior, its columns' part taken off (flat).
        prior, model: squared distances from the measurement, in variances of its noise.
        apart: the squared distance of prior and model.
        variance: of the noise in one cell.
    """

    beside: _Floats
    prior: float
    model: float
    apart: float
    variance: float


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
        cells, shape = self.followed.cells, self.followed.workload.domain.shape
        plain = {column: self.prior.marginal((column,)) for column in self.prior.columns}
        unseen = min(1.0 / (1.0 + self.prior.total), _SPREAD)
        spread = {column: (1.0 - unseen) * own + unseen / len(own) for column, own in plain.items()}
        found = {}
        for i, clique in enumerate(cells.cliques):
            if all(column in plain for column in clique):
                own = self.prior.marginal(clique).reshape(shape(clique))
                expected = _product([plain[column] for column in clique])
                little = _LITTLE / self.prior.total
                lift = (own + little) / (expected + little) if len(clique) > 1 else 1.0
                table = _product([spread[column] for column in clique]) * lift
                found[i] = table.ravel() / table.sum()
        return found

    def fitted(self, joined: Joined, total: float) -> Model:
        """The model of estimates with the prior in them."""
        model, _ = fit_table(
            self.followed,
            joined.values,
            joined.variances,
            total,
            iterations=2 * self.iterations,
            max_cells=self.max_cells,
            # The join has weighed them already.
            volatile=range(len(joined.variances)),
        )
        return model

    def join(
        self,
        values: _Floats,
        variances: _Floats,
        evidence: Evidence,
        model: Model,
        kept: Sequence[int],
        total: float,
    ) -> Joined:
        """Estimates with the prior where it is nearer.

        Args:
            values, variances: estimates without it (all cells; per marginal, infinite where no run measured it).
            evidence: the measurements (of inserted records, or of all events).
            model: fitted without the prior, to all columns and the marginals ``kept``.
            total: noisy number of records.
        """
        values, variances = values.copy(), variances.copy()
        if total <= 0.0:
            return Joined(values, variances, 0, ())
        columns = self._columns(values, variances, total)
        wide = self._wide(values, variances, evidence, model, kept)
        return Joined(values, variances, columns, wide)

    # Columns.

    def _columns(self, values: _Floats, variances: _Floats, total: float) -> int:
        """Join the columns that the prior is near to; gives how many."""
        own = [i for i in range(self.followed.columns) if i in self.shares and math.isfinite(variances[i])]
        own = [i for i in own if variances[i] > 0.0]
        sizes = self.followed.cells.sizes
        large = [[i] for i in own if sizes[i] - 1 >= _MIN_FREEDOM]
        small = [i for i in own if sizes[i] - 1 < _MIN_FREEDOM]
        return sum(self._group(group, values, variances) for group in [*large, small] if group)

    def _group(self, group: Sequence[int], values: _Floats, variances: _Floats) -> int:
        """Columns that are judged together, each in variances of its own noise."""
        cells = self.followed.cells
        parts = [cells.part(i) for i in group]
        apart = [
            values[part] - values[part].sum() * self.shares[i] for i, part in zip(group, parts, strict=True)
        ]
        freedom = int(cells.sizes[list(group)].sum()) - len(group)
        distance = sum(float(a @ a) / variances[i] for a, i in zip(apart, group, strict=True))
        if freedom < _MIN_FREEDOM or distance >= _NEARER_BELOW * freedom:
            return 0
        weight = _weight(distance, freedom)
        for i, part, a in zip(group, parts, apart, strict=True):
            values[part] -= weight * a
            variances[i] *= _left(weight)
        return len(group)

    # Wider marginals.

    def _wide(
        self, values: _Floats, variances: _Floats, evidence: Evidence, model: Model, kept: Sequence[int]
    ) -> tuple[int, ...]:
        cells, followed = self.followed.cells, self.followed
        asked = [
            i
            for i in range(followed.columns, len(cells.cliques))
            if i in self.shares
            and followed.freedom[i] > 0
            and all(math.isfinite(variances[cells.cliques.index((column,))]) for column in cells.cliques[i])
        ]
        answers = model.flat_marginals(cells.cliques)
        tests = self._tests(asked, evidence, answers, values)
        right = self._right(tests, set(kept))
        chosen = []
        for i in asked:
            part, freedom = cells.part(i), float(followed.freedom[i])
            prior = self._moved(i, values)
            if i in tests:
                test = tests[i]
                if right[i] <= 0.5 or test.prior >= _NEARER_BELOW * freedom:
                    continue
                weight = _weight(test.prior, freedom)
                values[part] = prior + (1.0 - weight) * test.beside
                variances[i] = _left(weight) * test.variance
            elif math.isinf(variances[i]):
                wrong = max(self._wrong(column, tests, right) for column in cells.cliques[i])
                apart = beside_columns(prior - answers[part], followed.workload.domain, cells.cliques[i])
                if wrong >= _WRONG_BELOW:
                    continue
                values[part] = prior
                variances[i] = wrong * _square(apart) / freedom
            else:
                continue
            chosen.append(i)
        return tuple(chosen)

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
        if expected <= 0.0 or model.total <= 0.0:
            return None
        answers = model.flat_marginals(cells.cliques)
        tests = self._tests(range(followed.columns, len(cells.cliques)), evidence, answers, answers)
        right = self._right(tests, set(tests))
        wrong = {column: self._wrong(column, tests, right) for (column,) in cells.cliques[: followed.columns]}
        good, bad = _seen(tests.values(), right.values())
        if bad >= good + _MAX_WRONG:
            return None  # the prior is wrong about most of what was looked at
        best, chosen = _MIN_APART, None
        for i in range(followed.columns, len(cells.cliques)):
            columns = cells.cliques[i]
            shares = [wrong[column] for column in columns]
            if i not in self.shares or followed.freedom[i] < _MIN_FREEDOM or i in followed.headlines:
                continue
            if max(shares) > 0.5 or max(shares) < _WRONG_BELOW or not followed.choosable:
                continue  # the prior is wrong about a column, or right about all of them
            if i in tests and tests[i].apart >= _DECISIVE:
                continue
            apart = (self._moved(i, answers) - answers[cells.part(i)]) * (expected / model.total)
            distance = _square(beside_columns(apart, followed.workload.domain, columns)) / variance
            if distance > best:
                best, chosen = distance, i
        return chosen

    def _tests(
        self, asked: Sequence[int], evidence: Evidence, answers: _Floats, values: _Floats
    ) -> dict[int, _Test]:
        """All tests that there are; ``values`` has the columns."""
        cells = self.followed.cells
        known = evidence.known
        found = {
            i: self._test(i, evidence, answers[cells.part(i)], values)
            for i in asked
            if i in self.shares and known[i] and self.followed.freedom[i] > 0
        }
        return {i: test for i, test in found.items() if test is not None}

    def _test(self, index: int, evidence: Evidence, answer: _Floats, values: _Floats) -> _Test | None:
        """Prior and model beside the sum of what was measured of a marginal, both moved to its columns."""
        measured, records, variance = evidence.together(index)
        domain, clique = self.followed.workload.domain, self.followed.cells.cliques[index]
        shape, targets = domain.shape(clique), []
        for axis, column in enumerate(clique):
            # The table's column, and what was measured here, by how precise that is.
            own = measured.reshape(shape).sum(axis=tuple(a for a in range(len(shape)) if a != axis))
            whole = _positive(values[self._column(column)])
            known = whole * (records / whole.sum())
            apart, noise = own - known, variance * len(measured) / len(own)
            weight = _weight(_square(apart) / noise, len(own))
            targets.append(_positive(own - weight * apart))
        prior = with_columns_of(self.shares[index], shape, targets)
        model = with_columns_of(_positive(answer), shape, targets)
        beside = beside_columns(measured - prior, domain, clique)
        return _Test(
            beside,
            _square(beside) / variance,
            _square(beside_columns(measured - model, domain, clique)) / variance,
            _square(beside_columns(prior - model, domain, clique)) / variance,
            variance,
        )

    def _column(self, column: int) -> slice:
        """The cells of a column."""
        cells = self.followed.cells
        return cells.part(cells.cliques.index((column,)))

    def _right(self, tests: dict[int, _Test], kept: set[int]) -> dict[int, float]:
        """The probability that the prior is right about each tested marginal, rather than the model without it.

        The model was fitted to what was measured of the kept ones: that is two variances a free cell in its favour, as
        in Akaike's criterion. How often the prior is right among all is estimated with it.
        """
        if not tests:
            return {}
        gains = np.array([
            0.5 * (test.model + (2.0 * self.followed.freedom[i] if i in kept else 0.0) - test.prior)
            for i, test in tests.items()
        ])  # fmt: skip
        share = _RIGHT_BEFORE / (_RIGHT_BEFORE + _WRONG_BEFORE)
        for _ in range(_ROUNDS):
            odds = np.clip(gains + math.log(share) - math.log1p(-share), -50.0, 50.0)
            right = 1.0 / (1.0 + np.exp(-odds))
            share = (right.sum() + _RIGHT_BEFORE) / (len(right) + _RIGHT_BEFORE + _WRONG_BEFORE)
        return dict(zip(tests, right.tolist(), strict=True))

    def _wrong(self, column: int, tests: dict[int, _Test], right: dict[int, float]) -> float:
        """In what share of the tests with a column the prior was wrong; one right and one wrong are always added."""
        own = [i for i in tests if column in self.followed.cells.cliques[i]]
        good, bad = _seen([tests[i] for i in own], [right[i] for i in own])
        return (1.0 + bad) / (2.0 + good + bad)

    def _moved(self, index: int, values: _Floats) -> _Floats:
        """The prior's marginal, moved to the estimates of its columns."""
        cells = self.followed.cells
        clique = cells.cliques[index]
        targets = [_positive(values[self._column(column)]) for column in clique]
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


def _seen(tests: Iterable[_Test], right: Iterable[float]) -> tuple[float, float]:
    """In how many tests the prior was right, and wrong; a test that could not tell counts in part."""
    good = bad = 0.0
    for test, own in zip(tests, right, strict=True):
        weight = min(test.apart / _DECISIVE, 1.0)
        good += weight * own
        bad += weight * (1.0 - own)
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

    A distance is as uncertain as a chi-square is: up to one standard deviation of it is no error of the prior, as far
    as the join keeps within Stein's bound of twice the freedom less four.
    """
    slack = max(min(math.sqrt(2.0 * freedom), freedom - _MIN_FREEDOM), 0.0)
    return min(1.0, (freedom + slack) / distance) if distance > 0.0 else 1.0


def _left(weight: float) -> float:
    """What is left of a measurement's variance after a join of that weight; never nothing."""
    return max(1.0 - weight, 0.1)
