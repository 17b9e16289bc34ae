"""One epoch's run: all columns or none, then what the known model explains worst.

Trusted base: kernel (selects and measures).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.cube import MAX_DIMENSION, CubeNoise, noise_for_bounded
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import DiscreteGaussian, Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique
from dpstream.families.tabular.pooled_estimates import Epoch
from dpstream.mechanisms.headlines import headline_draws
from dpstream.mechanisms.joint_groups import cost, joint_noise, together, weight_of
from dpstream.mechanisms.limits import TreeCapacity
from dpstream.mechanisms.measured_cells import MeasuredCells
from dpstream.mechanisms.plans import PRIOR_BOUND
from dpstream.mechanisms.run_outputs import MIN_VARIANCE, Run, RunOutput, signs_query
from dpstream.mechanisms.selector import Selector
from dpstream.mechanisms.workload_cells import MAX_RECORDS, Cells, Score

# Columns of two values, measured together: what is read of them, and in which pairs.


@dataclass(frozen=True)
class Signs:
    """The columns of two values among the followed marginals (the first ``columns``), and their pairs.

    ``apart``: pairs that are measured by themselves.
    """

    cells: Cells
    columns: int
    apart: tuple[int, ...] = ()

    @cached_property
    def singles(self) -> tuple[int, ...]:
        """The columns of two values, if there are at least two: a single one gains nothing."""
        binary = tuple(i for i in range(self.columns) if self.cells.sizes[i] == 2)
        return binary if 2 <= len(binary) < MAX_DIMENSION // 2 else ()

    @cached_property
    def pairs(self) -> tuple[int, ...]:
        """The followed pairs of such columns."""
        own = {self.cells.cliques[i][0] for i in self.singles}
        apart = set(self.apart)
        wide = (i for i in range(self.columns, len(self.cells.cliques)) if i not in apart)
        return tuple(
            i for i in wide if len(self.cells.cliques[i]) == 2 and own.issuperset(self.cells.cliques[i])
        )

    @cached_property
    def joint_pairs(self) -> frozenset[int]:
        """``pairs``, to look up."""
        return frozenset(self.pairs)

    def read(self, counts: Mapping[Clique, NDArray[np.int64]], indices: Sequence[int]) -> list[int]:
        """Sums of signs (columns), or of products of signs (pairs): each changes by at most 1 with a record."""
        parts = [counts[self.cells.cliques[i]] for i in indices]
        return [int(p[1] - p[0]) if len(p) == 2 else int(p[0] - p[1] - p[2] + p[3]) for p in parts]

    def column(self, index: int, total: tuple[float, float], own: tuple[float, float]) -> Measurement:
        """A column's histogram from the number of events and its sum of signs, each (value, variance).

        The sums' errors are not correlated, but the total's is in every column of a run.
        """
        (events, spread), (sign, variance) = total, own
        values = np.array([events - sign, events + sign]) / 2.0
        return Measurement(self.cells.cliques[index], values, (spread + variance) / 4.0)

    def pair(
        self, index: int, total: tuple[float, float], one: tuple[float, float], two: tuple[float, float],
        both: tuple[float, float],
    ) -> Measurement:  # fmt: skip
        """A pair's histogram, in the same way. It repeats its columns' errors: with theirs, it adds its product's."""
        (n, a, b, c), variances = zip(total, one, two, both, strict=True)
        values = np.array([n - a - b + c, n - a + b - c, n + a - b - c, n + a + b + c]) / 4.0
        return Measurement(self.cells.cliques[index], values, sum(variances) / 16.0)

    def order(self, known: Model, seen: NDArray[np.float64]) -> list[int]:
        """Which pairs to measure first. Public.

        By turns the two columns that depend on each other most, as far as is known (that may change), and the pair
        of which fewest records have been measured.

        Args:
            known: what earlier epochs say.
            seen: number of events in the epochs that measured each followed marginal.
        """
        if not self.pairs:
            return []
        tables = np.array(known.with_total(1.0).marginals([self.cells.cliques[i] for i in self.pairs]))
        ones = tables[:, 2] + tables[:, 3], tables[:, 1] + tables[:, 3]
        strength = np.round(np.abs(tables[:, 3] - ones[0] * ones[1]), 9)
        own = np.array(self.pairs)
        strong, fresh = np.argsort(-strength, kind="stable"), np.argsort(seen[own], kind="stable")
        both = np.column_stack((own[strong], own[fresh])).ravel().tolist()
        return list(dict.fromkeys(both))


# What an epoch's run measures, and how its budget is divided. Public: numbers of columns and of expected events.


@dataclass(frozen=True)
class Design:
    """What a run measures: the first ``fixed`` marginals (all columns, or none), then ``k`` of its choice. Public.

    ``expected``: number of the epoch's events, where no column's sum tells it before the first choice.
    ``pairs``: how many pairs of columns of two values are measured with those columns.
    ``tests``: marginals that are measured beside the columns, without a selection, to compare them with a prior.
    """

    fixed: int
    k: int
    expected: float
    pairs: int = 0
    tests: tuple[int, ...] = ()


@dataclass(frozen=True)
class Division:
    """Parts of one run's budget: exact, and together never more than it. Public: they follow from numbers of columns,
    and from what a run measures.

    Parts whose errors are ``A_j / e_j`` (pure: A_j the sum of the standard deviations of their marginals' cells at a
    budget of 1) have the least total error where ``e_j ~ sqrt(A_j)``; under zCDP, with ``A_j / sqrt(rho_j)``, where
    ``rho_j ~ A_j^(2/3)``.

    Attributes:
        budget: of the run.
        select_share: part of it for selections, if there are any.
        signs: the columns of two values.
        public_total: whether the number of events is public: then it is not measured.
    """

    budget: Budget
    select_share: Fraction
    signs: Signs
    public_total: bool

    @property
    def pure(self) -> bool:
        """Whether the budget is an epsilon."""
        return isinstance(self.budget, PureDP)

    def joint(self, design: Design) -> int:
        """Columns in the joint draw."""
        return len(self.signs.singles) if design.fixed else 0

    def sums(self, design: Design) -> int:
        """How many numbers the joint draw holds: signs, pairs, and the number of events."""
        return self.joint(design) + design.pairs + int(not self.public_total)

    def products(self, design: Design) -> int:
        """How many of the chosen marginals are assumed to be pairs of signs: their share among the candidates.

        At most those that one draw can hold: of more, some are measured by themselves.
        """
        wide = len(self.signs.cells.cliques) - self.signs.columns
        expected_pairs = design.k * len(self.signs.pairs) // wide if design.fixed and wide else 0
        return min(expected_pairs, MAX_DIMENSION)

    def histograms(self, design: Design) -> int:
        """How many marginals are measured by themselves, if as many pairs of signs are chosen as ``products``
        assumes."""
        return design.fixed - self.joint(design) + len(design.tests) + design.k - self.products(design)

    def groups(self, marginals: Sequence[int]) -> list[tuple[int, ...]]:
        """Marginals that are measured by histograms, in groups of one draw each (under zCDP never together)."""
        if not self.pure:
            return [(index,) for index in marginals]
        sizes = [int(self.signs.cells.sizes[index]) for index in marginals]
        return [
            tuple(marginals[place] for place in group) for group in together(sizes, level=self.public_total)
        ]

    @property
    def histogram_weight(self) -> int:
        """Weight of one histogram."""
        return self._weight(math.sqrt(2.0) if self.pure else math.sqrt(0.5))

    def weight(self, group: Sequence[int]) -> int:
        """Weight of a group of marginals that are drawn together; of one, that of a histogram."""
        if len(group) == 1:
            return self.histogram_weight
        sizes = [int(self.signs.cells.sizes[index]) for index in group]
        return weight_of(cost(sizes, level=self.public_total))

    def products_weight(self, pairs: int) -> int:
        """Weight of the joint draw of so many pairs of signs alone."""
        return self._weight(pairs * self._deviation(pairs) / 4.0) if pairs else 0

    def column_groups(self, design: Design) -> list[tuple[int, ...]]:
        """The groups of columns that a run of all columns measures by histograms."""
        joint = self.signs.singles if design.fixed else ()
        return self.groups([index for index in range(design.fixed) if index not in joint])

    def group_budget(self, design: Design, group: Sequence[int]) -> Budget:
        """The budget of a group of columns."""
        return self._part(design, Fraction(self.weight(group)))

    def joint_budget(self, design: Design) -> Budget:
        """The budget of the joint draw."""
        return self._part(design, Fraction(self._weights(design)[0]))

    def histogram_budget(self, design: Design) -> Budget:
        """The budget of each histogram that is measured by itself."""
        return self._part(design, Fraction(self.histogram_weight))

    def products_budget(self, design: Design) -> Budget:
        """The budget of the chosen pairs of signs, if as many are chosen as ``products`` assumes."""
        return self._part(design, Fraction(self.products_weight(self.products(design))))

    def chosen_budget(self, design: Design, chosen: int) -> Budget:
        """The budget of some of the ``k`` chosen marginals, whichever they are."""
        return self._part(design, Fraction(self._weights(design)[2] * chosen, design.k))

    def _weights(self, design: Design) -> tuple[int, int, int]:
        """The weights of the joint draw, of all other columns and the tests, and of all chosen marginals.

        Of the joint draw only columns count: every pair's cells rest on their columns', and on no other pair.
        """
        joint, products = self.joint(design), self.products(design)
        return (
            self._weight(joint * self._deviation(self.sums(design)) / math.sqrt(2.0)) if joint else 0,
            sum(map(self.weight, self.column_groups(design))) + self.histogram_weight * len(design.tests),
            self.products_weight(products) + self.histogram_weight * (design.k - products),
        )

    def _deviation(self, sums: int) -> float:
        """The standard deviation of so many sums of signs from one draw at a budget of 1."""
        return math.sqrt((sums + 1) * (sums + 2) / 3.0) if self.pure else math.sqrt(sums / 2.0)

    def _weight(self, error: float) -> int:
        return weight_of(math.pow(error, 1.0 / 2.0 if self.pure else 2.0 / 3.0))

    def _part(self, design: Design, weight: Fraction) -> Budget:
        rest = 1 - self.select_share if design.k else Fraction(1)
        return self.budget.scaled(rest * weight / sum(self._weights(design)))


# What measured marginals of several columns tell of single ones. Public: it reads measurements only.


def with_margins(
    cells: Cells, measured: Mapping[int, Measurement], repeated: Collection[int]
) -> dict[int, Measurement]:
    """The measurements, and of every column in any of them the mean by precision of all that tells of it.

    A sum over the other columns' cells has the sum of their noises' variances.

    Args:
        measured: one run's measurements, by marginal.
        repeated: marginals that were made from their columns' measurements: they tell nothing new of these.
    """
    place = {clique[0]: i for i, clique in enumerate(cells.cliques) if len(clique) == 1}
    told = dict[int, list[tuple[NDArray[np.float64], float]]]()
    for index, own in measured.items():
        clique = cells.cliques[index]
        table = own.values.reshape(cells.workload.domain.shape(clique))
        for axis, column in enumerate(clique):
            if column not in place or (index in repeated and len(clique) > 1):
                continue
            others = tuple(a for a in range(table.ndim) if a != axis)
            summed = table.size / table.shape[axis]
            told.setdefault(place[column], []).append((table.sum(axis=others), own.variance * summed))
    found = dict(measured)
    for index, parts in told.items():
        precision = sum(1.0 / variance for _, variance in parts)
        values = np.sum([values / variance for values, variance in parts], axis=0) / precision
        found[index] = Measurement(cells.cliques[index], values, 1.0 / precision)
    return found


# What one epoch's run has measured so far. The only code of pooled streams that reads an epoch's counts to measure.


@dataclass
class RunMeasurements(Run):
    """Measurements of one run; the runner says with which noise each is drawn.

    Attributes:
        cells: of the followed marginals.
        sign_columns: the columns of two values, and their pairs.
        by_index: the measurements, by marginal; of a marginal that was measured twice, the mean.
        signs: (value, variance) of each column's sum of signs.
    """

    cells: Cells = field(kw_only=True)
    sign_columns: Signs = field(kw_only=True)
    by_index: dict[int, Measurement] = field(default_factory=dict)
    signs: dict[int, tuple[float, float]] = field(default_factory=dict)

    def together(
        self, group: Sequence[int], noise: Noise | HistogramsNoise, kind: str = "", *, chosen: bool = False
    ) -> None:
        """Measure the cells of marginals by one draw: of several, by joint noise. ``kind`` names the draw where there
        may be another."""
        cliques = [self.cells.cliques[index] for index in group]
        fresh = self.measure(cliques, noise, kind, chosen=chosen)
        for index, measurement in zip(group, fresh, strict=True):
            self._book(index, measurement)

    def _book(self, index: int, measurement: Measurement) -> None:
        """Note a measurement; of a marginal that was measured before, the mean by precision."""
        before = self.by_index.get(index)
        if before is not None:
            whole = before.variance + measurement.variance
            share = before.variance / whole
            values = before.values + share * (measurement.values - before.values)
            measurement = Measurement(before.clique, values, before.variance * measurement.variance / whole)
        self.by_index[index] = measurement

    def joint(self, pairs: Sequence[int], noise: CubeNoise | DiscreteGaussian) -> None:
        """Measure all columns of two values and some of their pairs, and the number of events where it is not
        public."""
        columns = self.sign_columns.singles
        terms = [self.cells.cliques[i] for i in (*columns, *pairs)]
        exact = self.sign_columns.read(self.counts, [*columns, *pairs])
        if self.public_total is None:
            terms.append(())
            exact.append(int(self.counts[self.cells.cliques[columns[0]]].sum()))
        # Where there is no room for all pairs, earlier epochs say which ones are measured.
        some = [self.cells.cliques[i] for i in pairs] if len(pairs) < len(self.sign_columns.pairs) else []
        values, variance = self._sums(terms, exact, noise, some)
        if self.public_total is None:
            # As a histogram of one cell; its column does not matter to the sum.
            self.sums.append(Measurement((), np.array(values[-1:]), variance))
        for index, value in zip(columns, values, strict=False):
            self.signs[self.cells.cliques[index][0]] = (value, variance)
        total = self.total
        for index in columns:
            self._book(
                index, self.sign_columns.column(index, total, self.signs[self.cells.cliques[index][0]])
            )
        for index, value in zip(pairs, values[len(columns) :], strict=False):
            self._pair(index, (value, variance), total)

    def products(self, indices: Sequence[int], noise: CubeNoise | DiscreteGaussian) -> None:
        """Measure pairs of two signs, which were selected, by their products."""
        terms = [self.cells.cliques[i] for i in indices]
        values, variance = self._sums(terms, self.sign_columns.read(self.counts, indices), noise, terms)
        total = self.total
        for index, value in zip(indices, values, strict=True):
            self._pair(index, (value, variance), total)

    def _sums(
        self,
        terms: list[Clique],
        exact: list[int],
        noise: CubeNoise | DiscreteGaussian,
        chosen: Sequence[Clique],
    ) -> tuple[list[float], float]:
        values = self.randomness.measure(np.array(exact, dtype=np.int64), noise)
        query = signs_query(self.domain, terms, chosen)
        self.outputs.append(RunOutput("signs", query, values, noise))
        return values.astype(np.float64).tolist(), max(noise.variance, MIN_VARIANCE)

    def _pair(self, index: int, product: tuple[float, float], total: tuple[float, float]) -> None:
        first, second = (self.signs[column] for column in self.cells.cliques[index])
        self.by_index[index] = self.sign_columns.pair(index, total, first, second, product)


# A model's answers, moved so that their columns are as measured. Public: answers and measurements only.

#: Marginals of one shape are moved together, at most so many cells at a time.
_CELLS_AT_ONCE = 1 << 20


def move_to_columns(
    cells: Cells, values: NDArray[np.float64], measured: NDArray[np.bool_], total: float
) -> None:
    """Move the answers of marginals that were not measured, in place, to their columns, where these were.

    A model has no negative counts: where noise is large it gives rare values too many records, always to the same
    side, and that would add up over epochs. Measured columns are right on average.

    Args:
        values: of all marginals: of the measured ones as they were measured, of the others a model's answers.
        total: number of records.
    """
    domain, groups = cells.workload.domain, cells.of_shape
    place = np.full(len(domain), -1, dtype=np.int64)
    for i, clique in enumerate(cells.cliques):
        if len(clique) == 1:
            place[clique[0]] = i
    for shape, (indices, members) in groups.items():
        if len(shape) < 2:
            continue
        left = ~measured[indices]
        at_once = max(1, _CELLS_AT_ONCE // int(np.prod(shape)))
        wanted, owners = indices[left], place[members[left]]
        for begin in range(0, len(wanted), at_once):
            own = wanted[begin : begin + at_once]
            _move(cells, values, measured, total, own, owners[begin : begin + at_once], shape)


def _move(
    cells: Cells,
    values: NDArray[np.float64],
    measured: NDArray[np.bool_],
    total: float,
    indices: NDArray[np.int64],
    columns: NDArray[np.int64],
    shape: tuple[int, ...],
) -> None:
    """Marginals of one shape; ``columns``: the positions of their columns, shape (marginals, axes)."""
    size = int(np.prod(shape))
    parts = cells.starts[indices, None] + np.arange(size)
    tables = values[parts].reshape(len(indices), *shape)
    for axis, length in enumerate(shape):
        place = columns[:, axis]
        known = np.flatnonzero((place >= 0) & measured[place])
        if not len(known):
            continue
        wanted = values[cells.starts[place[known], None] + np.arange(length)]
        wanted = wanted + ((total - wanted.sum(axis=1)) / length)[:, None]
        own = tables[known]
        others = tuple(i for i in range(1, tables.ndim) if i != axis + 1)
        excess = (wanted - own.sum(axis=others)) * length / size
        tables[known] = own + np.expand_dims(excess, others)
    values[parts] = tables.reshape(len(indices), size)


#: A marginal is measured beside the columns if the epoch is expected to have this many records for every histogram
#: that is measured then, in standard deviations of their noise.
_RECORDS_PER_NOISE = 3.0
#: An answer of an epoch's model counts as a measurement with this many times the variance.
_ANSWER_VARIANCE = 2.0
#: A selection takes this many times the noise's expected absolute value off each cell's error.
_NOISE_BIAS = 1.0
#: Selections are made in this many rounds, with a fit after each: what one marginal explains, others need not.
_SELECTION_ROUNDS = 3


@dataclass(frozen=True)
class Outcome:
    """A run: what it says of every followed marginal, its model, the noise in its number of events, and its draws."""

    epoch: Epoch
    model: Model
    total_variance: float
    outputs: tuple[RunOutput, ...]


@dataclass(frozen=True)
class Runner:
    """Measures pooled counts once, within ``budget`` and, for each headline marginal, ``headline_budget``.

    Guarantee: these together for one record of the counts. Headlines are measured first. Of ``budget``,
    ``1 - select_share`` of it is divided between all columns (or none) and ``k`` further marginals; columns of two
    values, and some of their pairs, are measured by one joint draw; all else with noise of its own, or (pure) by joint
    draws of groups of histograms where these have less noise; ``k`` selections share the rest. With nothing to select,
    measuring gets everything.
    The design, the division, where each fit starts, and who may be chosen follow from public values.
    """

    followed: MeasuredCells
    budget: Budget
    unit: Event
    select_share: Fraction
    iterations: int
    max_cells: int
    headline_budget: Budget | None = None

    def design(self, expected: float, *, drifts: bool) -> Design:
        """What a run measures. Public: it follows from released numbers.

        Args:
            expected: number of the epoch's events, released earlier or public.
            drifts: measure all columns, and beside them as much as noise allows; else few marginals, whichever they
                are, each precisely. (All columns, too, if nothing else is followed.)
        """
        columns, drifts = self.followed.columns, drifts or self.measures_all_columns
        first = columns if drifts else 1
        many = first
        # Headlines are not there to be chosen.
        left = self.followed.wide_headlines if drifts else self.followed.headlines
        for m in range(first + 1, len(self.followed.cells.cliques) - len(left) + 1):
            if expected < _RECORDS_PER_NOISE * m * self._deviation(m):
                break
            if not drifts and not self._says_more(m, max(expected, 0.0)):
                break
            many = m
        fixed = columns if drifts else 0
        design = Design(fixed, many - fixed, max(expected, 0.0))
        return self._with_pairs(design) if self.division.joint(design) else design

    def _says_more(self, m: int, expected: float) -> bool:
        """Whether, in a stream that does not drift, ``m`` marginals say more of the table than one less. Public.

        Of Q marginals each is measured in m / Q of the epochs, each time with the noise of m and with the sample that
        the epoch is: the precision of all in sum goes with m, over the sum of both variances.
        """
        sample = expected / float(self.followed.cells.sizes.mean())
        before, now = (many / (self._deviation(many) ** 2 + sample) for many in (m - 1, m))
        return now > before

    @property
    def measures_all_columns(self) -> bool:
        """Whether every run measures all columns: nothing else is followed, or half of them have two values, which
        cost little where they are measured together."""
        columns = self.followed.columns
        return not self.followed.choosable or 2 * len(self.signs.singles) >= columns

    def _with_pairs(self, design: Design) -> Design:
        """The design with as many pairs of signs as keep the noise within the variance of an epoch's sample."""
        least, most = 0, min(len(self.signs.singles), len(self.signs.pairs))
        while least < most:
            middle = (least + most + 1) // 2
            if self.joint_draws(replace(design, pairs=middle))[0][0].variance <= design.expected:
                least = middle
            else:
                most = middle - 1
        # What is measured with the columns is not there to be chosen.
        return replace(design, pairs=least, k=min(design.k, self.followed.choosable - least))

    def with_tests(self, design: Design, tests: tuple[int, ...]) -> Design:
        """The design with some marginals that are measured without a selection; they are not there to be chosen."""
        room = max(0, self.followed.choosable - design.pairs - len(tests))
        return replace(design, tests=tests, k=min(design.k, room))

    @cached_property
    def signs(self) -> Signs:
        """The columns of two values."""
        return Signs(self.followed.cells, self.followed.columns, self.followed.wide_headlines)

    @cached_property
    def division(self) -> Division:
        """How the budget is divided."""
        return Division(self.budget, self.select_share, self.signs, self.unit.relation == "replace")

    @cached_property
    def _deviations(self) -> dict[int, float]:
        """What ``_deviation`` knows already."""
        return {}

    def _deviation(self, k: int) -> float:
        """The noise of a cell where a run measures ``k`` marginals."""
        known = self._deviations.get(k)
        if known is None:
            variance = self.histogram_noise(self.budget.scaled(Fraction(1, k))).variance
            known = self._deviations[k] = math.sqrt(variance)
        return known

    def histogram_noise(self, budget: Budget) -> Noise:
        """The noise of each cell of a histogram."""
        return noise_for(budget, self.unit.changed_cells, self.unit.changed_cells)

    def sign_noise(self, budget: Budget, sums: int) -> CubeNoise | DiscreteGaussian:
        """The noise of some sums of signs: a record changes each by at most 1; a replaced one changes it by 2 (from
        -1 to 1)."""
        return noise_for_bounded(budget, sums, self.unit.changed_cells)

    def histograms_noise(self, budget: Budget, sizes: Sequence[int]) -> HistogramsNoise:
        """The noise of several histograms of the same records."""
        return joint_noise(budget, sizes, self.unit)

    def noise_together(self, group: Sequence[int], budget: Budget) -> Noise | HistogramsNoise:
        """The noise of one draw: of each cell of a histogram, or of several histograms."""
        if len(group) == 1:
            return self.histogram_noise(budget)
        return self.histograms_noise(budget, self.followed.cells.sizes[list(group)].tolist())

    def column_draws(self, design: Design) -> list[tuple[tuple[int, ...], Noise | HistogramsNoise]]:
        """Columns that are measured by histograms, in groups of one draw each, with their noise."""
        own = self.division
        return [
            (group, self.noise_together(group, own.group_budget(design, group)))
            for group in own.column_groups(design)
        ]

    @cached_property
    def headline_budgets(self) -> list[tuple[tuple[int, ...], Budget]]:
        """Headline marginals in groups of one draw each, with their budgets; none without headlines."""
        if self.headline_budget is None:
            return []
        indices, level = self.followed.headlines, self.unit.relation == "replace"
        sizes = self.followed.cells.sizes[list(indices)].tolist()
        draws = headline_draws(sizes, self.headline_budget, level=level)
        return [(tuple(indices[place] for place in group), budget) for group, budget in draws]

    @property
    def headline_noises(self) -> list[tuple[tuple[int, ...], Noise | HistogramsNoise]]:
        """The groups of headline marginals with their noise."""
        return [(group, self.noise_together(group, budget)) for group, budget in self.headline_budgets]

    def noise(self, design: Design) -> Noise:
        """The noise of every cell of a histogram that is measured by itself."""
        return self.histogram_noise(self.division.histogram_budget(design))

    def joint_draws(self, design: Design) -> list[tuple[CubeNoise | DiscreteGaussian, int]]:
        """Noise and number of sums: columns of two values, and pairs that are chosen (as if in one round)."""
        own, draws = self.division, []
        if own.joint(design):
            draws.append((self.sign_noise(own.joint_budget(design), own.sums(design)), own.sums(design)))
        products = own.products(design)
        if products:
            draws.append((self.sign_noise(own.products_budget(design), products), products))
        return draws

    def numbers(self) -> tuple[int, int]:
        """How many numbers a run measures that measures columns only; and, at most, any run."""
        cells, own = self.followed.cells, self.signs
        joint = {*own.singles, *own.pairs}
        apart = [i for i in range(len(cells.cliques)) if i not in joint]
        signs = len(own.singles) + int(bool(own.singles) and not self.division.public_total)
        columns = signs + sum(int(cells.sizes[i]) for i in apart if i < self.followed.columns)
        headlines = int(cells.sizes[list(self.followed.headlines)].sum())
        most = signs + len(own.pairs) + int(cells.sizes[apart].sum())
        # In runs of few marginals those of two values are measured by themselves.
        most = most if self.measures_all_columns else max(most, cells.total)
        most -= int(cells.sizes[list(self.followed.wide_headlines)].sum())  # those are measured once
        return columns + headlines, most + headlines

    def cell_variance(self, design: Design) -> float:
        """The variance of the noise in a column's cell, on average over the columns of a run that measures all."""
        joint, sums = self.division.joint(design), 1 if self.division.public_total else 2
        # (T +- S) / 2: the number of events T is measured, too, where it is not public.
        each = sums * self.joint_draws(design)[0][0].variance / 4.0 if joint else 0.0
        own = sum(
            sum(noise.variances) if isinstance(noise, HistogramsNoise) else noise.variance
            for _, noise in self.column_draws(design)
        )
        return (joint * each + own) / design.fixed

    def run(
        self,
        counts: NDArray[np.int64],
        known: Model,
        design: Design,
        randomness: Randomness,
        public_total: float | None,
        seen: NDArray[np.float64] | None = None,
    ) -> Outcome:
        """Spend the budget once.

        Args:
            counts: private, all cells of the followed marginals.
            known: public: what earlier epochs say of the table.
            design: what to measure, from ``design``.
            public_total: number of events where the owner declared it public.
            seen: number of events in the epochs that measured each followed marginal.
        """
        cells, k, own = self.followed.cells, design.k, self.signs
        by_clique = {clique: counts[cells.part(i)] for i, clique in enumerate(cells.cliques)}
        domain = self.followed.workload.domain
        taken = RunMeasurements(domain, by_clique, randomness, public_total, cells=cells, sign_columns=own)
        start = known.bounded(PRIOR_BOUND)
        for group, budget in self.headline_budgets:
            taken.together(group, self.noise_together(group, budget), "headline")
        division, joint = self.division, own.singles if design.fixed else ()
        for group, noise in self.column_draws(design):
            taken.together(group, noise)
        pairs = own.order(known, np.zeros(len(cells.cliques)) if seen is None else seen)[: design.pairs]
        if joint:
            sums = len(joint) + len(pairs) + (public_total is None)
            taken.joint(pairs, self.sign_noise(division.joint_budget(design), sums))
        for index in design.tests:
            # Measured, and not fitted: few records would leave their noise in the models of all later epochs.
            taken.together([index], self.noise(design), chosen=True)
        fitted = list(range(design.fixed))
        fitted += [index for index in self.followed.headlines if index not in fitted]
        room = TreeCapacity(cells.workload, self.max_cells, fitted)
        fitted += room.take_in_order(pairs)
        model = self._fit(taken, fitted, start) if fitted else start.with_total(design.expected)
        for take in _rounds_of(k):
            fresh = self._select(counts, model, taken, room, take, design, randomness)
            if fresh:
                self._measure_chosen(taken, fresh, division.chosen_budget(design, len(fresh)))
                fitted += fresh
                model = self._fit(taken, fitted, start)
        return self._outcome(taken, model)

    def _measure_chosen(self, taken: RunMeasurements, indices: Sequence[int], budget: Budget) -> None:
        """Measure marginals that were selected together: those of two signs by their products, others by histograms."""
        products = [i for i in indices if taken.signs and i in self.signs.joint_pairs][:MAX_DIMENSION]
        groups = self.division.groups([i for i in indices if i not in set(products)])
        weight = self.division.products_weight(len(products))
        whole = weight + sum(map(self.division.weight, groups))
        for group in groups:
            share = budget.scaled(Fraction(self.division.weight(group), whole))
            taken.together(group, self.noise_together(group, share), chosen=True)
        if products:
            share = budget.scaled(Fraction(weight, whole))
            taken.products(products, self.sign_noise(share, len(products)))

    def _fit(self, taken: RunMeasurements, fitted: Sequence[int], start: Model) -> Model:
        return fit(
            self.followed.workload.domain,
            [taken.by_index[index] for index in fitted],
            total=taken.total[0],
            warm=start,
            iterations=self.iterations,
            max_cells=self.max_cells,
        )

    def _select(
        self,
        counts: NDArray[np.int64],
        model: Model,
        taken: RunMeasurements,
        room: TreeCapacity,
        take: int,
        design: Design,
        randomness: Randomness,
    ) -> list[int]:
        """Choose up to ``take`` marginals that the model explains worst: each choice pays ``select_share / k``.

        ``room``: the fitted ones are in it; those that are chosen are put into it.
        """
        cells = self.followed.cells
        selector = Selector(self.budget.scaled(self.select_share / design.k))
        variance = _mean_variance(taken) if taken.by_index else self.noise(design).variance
        bias = _NOISE_BIAS * math.sqrt(variance * 2.0 / math.pi)
        score = Score(cells, "sum-noise", self.unit, bias)
        expected = model.with_total(max(model.total, 0.0)).flat_marginals(cells.cliques)
        # Scores refuse more records than memory holds. An epoch has no such bound, and whether it is refused would
        # tell its private size. Cells are capped as expectations are: no score moves further than before.
        bound = np.repeat(MAX_RECORDS // cells.sizes, cells.sizes)
        numerators, denominators = score.evaluate(np.minimum(counts, bound), expected)
        chosen: list[int] = []
        left = np.ones(len(cells.cliques), dtype=bool)
        left[list(taken.by_index)] = False
        for _ in range(take):
            allowed = room.within(np.flatnonzero(left))
            if not len(allowed):
                break  # the model is full: what is left of this run is charged, and not used
            chosen.append(
                selector.choose(numerators, denominators, allowed, score.grid_sensitivity, randomness)
            )
            room.take(chosen[-1])
            left[chosen[-1]] = False
        return chosen

    def _outcome(self, taken: RunMeasurements, model: Model) -> Outcome:
        cells = self.followed.cells
        values = model.with_total(max(model.total, 0.0)).flat_marginals(cells.cliques)
        measured = np.zeros(len(cells.cliques), dtype=bool)
        variances = np.full(len(cells.cliques), _ANSWER_VARIANCE * _mean_variance(taken))
        repeated = self.signs.joint_pairs if taken.signs else frozenset[int]()
        for index, own in with_margins(cells, taken.by_index, repeated).items():
            values[cells.part(index)] = own.values
            variances[index] = own.variance
            measured[index] = True
        move_to_columns(cells, values, measured, model.total)
        epoch = Epoch(values, variances, measured, model.total)
        return Outcome(epoch, model, taken.total[1], tuple(taken.outputs))


def _mean_variance(taken: RunMeasurements) -> float:
    """The mean variance of the noise in one cell of what was measured."""
    return sum(own.variance for own in taken.by_index.values()) / len(taken.by_index)


def _rounds_of(k: int) -> list[int]:
    """``k`` selections in a few rounds; the first ones are no larger than the last.

    >>> _rounds_of(10), _rounds_of(2), _rounds_of(0)
    ([3, 3, 4], [1, 1], [])
    """
    rounds = min(_SELECTION_ROUNDS, k)
    return [(k * (i + 1)) // rounds - (k * i) // rounds for i in range(rounds)]
