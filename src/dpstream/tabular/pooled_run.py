"""One epoch's run: all columns or none, then what the known model explains worst."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.graphical import Measurement, Model, estimate_total, fit
from dpstream.privacy.budget import Budget
from dpstream.privacy.noise import Noise, noise_for
from dpstream.privacy.randomness import Randomness
from dpstream.privacy.unit import Event
from dpstream.tables import Workload
from dpstream.tabular.cells import MAX_RECORDS, Cells, Score
from dpstream.tabular.limits import within
from dpstream.tabular.plans import PRIOR_BOUND
from dpstream.tabular.pooled_estimates import Epoch
from dpstream.tabular.selection import Selector
from dpstream.tabular.targets import LEAST_VARIANCE

__all__ = ["Design", "Followed", "Outcome", "Runner"]

#: A marginal is measured beside the columns if the epoch is expected to have so many records for every histogram
#: measured then, in standard deviations of their noise.
_RECORDS_PER_NOISE = 3.0
#: In a stream that does not drift: a run measures so few marginals that sampling a cell of an average one by an epoch
#: has so many times the variance of its noise. More precise measurements would say no more of the table.
_SAMPLE_PER_NOISE = 0.1
#: An answer of an epoch's model counts as a measurement with so many times the variance.
_ANSWER = 2.0
#: A selection takes off so many times the noise's expected absolute value per cell.
_NOISE_BIAS = 1.0
#: Selections are made in so many rounds, with a fit after each: what one marginal explains, others need not.
_ROUNDS = 3


@dataclass(frozen=True)
class Followed:
    """The marginals whose counts are kept: every column of the workload, then its marginals of several columns."""

    workload: Workload

    @cached_property
    def cells(self) -> Cells:
        """Laid out as one vector. Columns weigh as little as the lightest marginal."""
        own = self.workload
        columns = sorted({column for clique in own.cliques for column in clique})
        wide = [(c, w) for c, w in zip(own.cliques, own.weights, strict=True) if len(c) > 1]
        cliques = tuple((column,) for column in columns) + tuple(c for c, _ in wide)
        weights = (min(own.weights),) * len(columns) + tuple(w for _, w in wide)
        return Cells(Workload(own.domain, cliques, weights))

    @cached_property
    def columns(self) -> int:
        """How many of the cliques are columns."""
        return sum(len(clique) == 1 for clique in self.cells.cliques)

    @cached_property
    def freedom(self) -> NDArray[np.float64]:
        """Degrees of freedom that a marginal has beside its columns; columns have none here."""
        domain = self.workload.domain
        return np.array([
            domain.cells(c) - 1 - sum(domain.sizes[i] - 1 for i in c) if len(c) > 1 else 0
            for c in self.cells.cliques
        ], dtype=np.float64)  # fmt: skip


@dataclass(frozen=True)
class Design:
    """What a run measures: the first ``fixed`` marginals (all columns, or none), then ``k`` of its choice. Public.

    ``expected``: number of the epoch's events, where no column's sum tells it before the first choice.
    """

    fixed: int
    k: int
    expected: float


@dataclass(frozen=True)
class Outcome:
    """A run: what it says of every followed marginal, its model, and the noise in its number of events."""

    epoch: Epoch
    model: Model
    total_variance: float


@dataclass(frozen=True)
class Runner:
    """Measures pooled counts once, within ``budget``.

    Guarantee: ``budget`` for one record of the counts. ``d`` columns (or none) and ``k`` further marginals share
    ``1 - select_share`` of it equally, each with noise of its own; ``k`` selections share the rest. With nothing to
    select, measuring gets everything. The design, where each fit starts, and who may be chosen follow from public
    values.
    """

    followed: Followed
    budget: Budget
    unit: Event
    select_share: Fraction
    iterations: int
    max_cells: int

    def design(self, expected: float, *, drifts: bool) -> Design:
        """What a run measures. Public: it follows from released numbers.

        Args:
            expected: number of the epoch's events, released earlier or public.
            drifts: measure all columns, and beside them as much as noise allows; else few marginals, whichever they
                are, each precisely. (All columns, too, if nothing else is followed.)
        """
        columns = self.followed.columns
        drifts = drifts or columns == len(self.followed.cells.cliques)
        cells = float(self.followed.cells.sizes.mean())
        first = columns if drifts else 1
        many = first
        for m in range(first + 1, len(self.followed.cells.cliques) + 1):
            noise = self._deviation(m)
            if expected < _RECORDS_PER_NOISE * m * noise:
                break
            if not drifts and expected < _SAMPLE_PER_NOISE * cells * noise**2:
                break
            many = m
        fixed = columns if drifts else 0
        return Design(fixed, many - fixed, max(expected, 0.0))

    @cache  # noqa: B019 - one plan's runner, a few hundred numbers
    def _deviation(self, k: int) -> float:
        return math.sqrt(self._noise(k, Fraction(0)).variance)

    def _noise(self, count: int, select: Fraction) -> Noise:
        each = self.budget.scaled((1 - select) / count)
        return noise_for(each, self.unit.changed_cells, self.unit.changed_cells)

    def noise(self, design: Design) -> Noise:
        """Of every measured cell."""
        return self._noise(design.fixed + design.k, self.select_share if design.k else Fraction(0))

    def noisy(self, exact: NDArray[np.int64], noise: Noise, randomness: Randomness) -> NDArray[np.int64]:
        """One measurement; audits put one there that follows a script."""
        return exact + randomness.draw(noise, len(exact))

    def selector(self, budget: Budget) -> Selector:
        """What makes the choices; audits put one there that follows a script."""
        return Selector(budget)

    def run(
        self,
        counts: NDArray[np.int64],
        known: Model,
        design: Design,
        randomness: Randomness,
        public_total: float | None,
    ) -> Outcome:
        """Spend the budget once.

        Args:
            counts: private, all cells of the followed marginals.
            known: public: what earlier epochs say of the table.
            design: what to measure, from ``design``.
            public_total: number of events where the owner declared it public.
        """
        cells, noise, k = self.followed.cells, self.noise(design), design.k
        variance = max(noise.variance, LEAST_VARIANCE)
        taken: list[Measurement] = []

        def measure(index: int) -> None:
            part = cells.part(index)
            values = self.noisy(counts[part], noise, randomness)
            taken.append(Measurement(cells.cliques[index], values.astype(np.float64), variance))

        def total() -> float:
            return estimate_total(taken)[0] if public_total is None else public_total

        start = known.bounded(PRIOR_BOUND)
        for index in range(design.fixed):
            measure(index)
        chosen = list(range(design.fixed))
        model = self._fit(taken, total(), start) if taken else start.with_total(design.expected)
        for take in _rounds_of(k):
            fresh = self._select(counts, model, noise, chosen, take, k, randomness)
            for index in fresh:
                measure(index)
            if fresh:
                model = self._fit(taken, total(), start)
            chosen += fresh
        return self._outcome(taken, chosen, model, variance, public_total)

    def _fit(self, taken: Sequence[Measurement], total: float, start: Model) -> Model:
        return fit(
            self.followed.workload.domain,
            taken,
            total=total,
            warm=start,
            iterations=self.iterations,
            max_cells=self.max_cells,
        )

    def _select(
        self,
        counts: NDArray[np.int64],
        model: Model,
        noise: Noise,
        chosen: Sequence[int],
        take: int,
        k: int,
        randomness: Randomness,
    ) -> list[int]:
        """Up to ``take`` marginals that the model explains worst: each choice pays ``select_share / k``."""
        cells = self.followed.cells
        selector = self.selector(self.budget.scaled(self.select_share / k))
        bias = _NOISE_BIAS * math.sqrt(noise.variance * 2.0 / math.pi)
        score = Score(cells, "sum-noise", self.unit, bias)
        expected = np.concatenate(model.with_total(max(model.total, 0.0)).marginals(cells.cliques))
        # Scores refuse more records than memory holds. An epoch has no such bound, and whether it is refused would
        # tell its private size. Cells are capped as expectations are: no score moves further than before.
        bound = np.repeat(MAX_RECORDS // cells.sizes, cells.sizes)
        numerators, denominators = score.evaluate(np.minimum(counts, bound), expected)
        found: list[int] = []
        for _ in range(take):
            before = [*chosen, *found]
            left = [i for i in range(len(cells.cliques)) if i not in before]
            allowed = within(cells.workload, before, left, self.max_cells) if left else []
            if not allowed:
                break  # the model is full: what is left of this run is charged, and not used
            found.append(
                selector.choose(numerators, denominators, allowed, score.grid_sensitivity, randomness)
            )
        return found

    def _outcome(
        self,
        taken: Sequence[Measurement],
        indices: Sequence[int],
        model: Model,
        variance: float,
        public_total: float | None,
    ) -> Outcome:
        cells = self.followed.cells
        values = np.concatenate(model.with_total(max(model.total, 0.0)).marginals(cells.cliques))
        measured = np.zeros(len(cells.cliques), dtype=bool)
        for index, own in zip(indices, taken, strict=True):
            values[cells.part(index)] = own.values
            measured[index] = True
        for answered in np.flatnonzero(~measured).tolist():
            part = cells.part(answered)
            values[part] = self._with_columns(values, measured, answered, model.total)
        variances = np.where(measured, variance, _ANSWER * variance)
        spread = 0.0 if public_total is not None else estimate_total(taken)[1]
        return Outcome(Epoch(values, variances, measured, model.total), model, spread)

    def _with_columns(
        self, values: NDArray[np.float64], measured: NDArray[np.bool_], index: int, total: float
    ) -> NDArray[np.float64]:
        """A model's answer, moved so that its columns are as measured, where they were.

        A model has no negative counts: where noise is large it gives rare values too many records, always to the same
        side, and that would add up over epochs. Measured columns are right on average.
        """
        cells, clique = self.followed.cells, self.followed.cells.cliques[index]
        table = values[cells.part(index)].reshape(self.followed.workload.domain.shape(clique)).copy()
        for axis, column in enumerate(clique):
            place = self._place[column]
            if not measured[place]:
                continue
            wanted = values[cells.part(place)]
            wanted = wanted + (total - wanted.sum()) / len(wanted)
            others = tuple(i for i in range(table.ndim) if i != axis)
            excess = (wanted - table.sum(axis=others)) * len(wanted) / table.size
            table += np.expand_dims(excess, others)
        return table.ravel()

    @cached_property
    def _place(self) -> dict[int, int]:
        """Where each column is among the followed marginals."""
        return {c[0]: i for i, c in enumerate(self.followed.cells.cliques[: self.followed.columns])}


def _rounds_of(k: int) -> list[int]:
    """``k`` selections in a few rounds; the first ones are no larger than the last.

    >>> _rounds_of(10), _rounds_of(2), _rounds_of(0)
    ([3, 3, 4], [1, 1], [])
    """
    rounds = min(_ROUNDS, k)
    return [(k * (i + 1)) // rounds - (k * i) // rounds for i in range(rounds)]
