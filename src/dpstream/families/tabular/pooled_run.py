"""One epoch's run: all columns or none, then what the known model explains worst.

Trusted base: kernel (selects and measures).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model
from dpstream.core.privacy import Budget, DiscreteGaussian, Event, HistogramsNoise, Noise, PureDP, noise_for
from dpstream.core.privacy.cube import MAX_DIMENSION, CubeNoise, noise_for_bounded
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.domain import Clique
from dpstream.families.tabular.pooled_estimates import Epoch, move_to_columns, with_margins
from dpstream.mechanisms.engine import Run
from dpstream.mechanisms.followed_cells import MeasuredCells
from dpstream.mechanisms.joint_groups import cost, noise_of, together, weight_of
from dpstream.mechanisms.limits import PRIOR_BOUND, TreeCapacity
from dpstream.mechanisms.run_outputs import MIN_VARIANCE, RunOutput, signs_query
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


#: A marginal is measured beside the columns if the epoch is expected to have this many records for every histogram
#: that is measured then, in standard deviations of their noise.
_RECORDS_PER_NOISE = 3.0
#: An answer of an epoch's model counts as a measurement with this many times the variance.
_ANSWER_VARIANCE = 2.0
#: A selection takes this many times the noise's expected absolute value off each cell's error.
_NOISE_BIAS = 1.0


@dataclass(frozen=True)
class Outcome:
    """A run: what it says of every followed marginal, its model, the noise in its number of events, and its draws."""

    epoch: Epoch
    model: Model
    total_variance: float
    outputs: tuple[RunOutput, ...]


@dataclass(frozen=True)
class Runner:
    """Measures pooled counts once, within ``budget``, for one record of the counts. Headlines are measured by periods
    (``pooled_clock``), and never chosen here.

    Guarantee: ``1 - select_share`` of the budget is divided between all columns (or none) and ``k`` further marginals;
    columns of two values, and some of their pairs, are measured by one joint draw; all else with noise of its own, or
    (pure) by joint draws of groups of histograms where these have less noise; ``k`` selections share the rest. With
    nothing to select, measuring gets everything.
    The design, the division, where each fit starts, and who may be chosen follow from public values.
    """

    followed: MeasuredCells
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

    def _deviation(self, marginals: int) -> float:
        """The noise of a cell where a run measures so many marginals."""
        return _deviation(self.budget, self.unit, marginals)

    def noise_of(self, group: Sequence[int], budget: Budget) -> Noise | HistogramsNoise:
        """The noise of one draw: of each cell of a marginal, or of several marginals."""
        return noise_of(budget, self.followed.cells.sizes[list(group)].tolist(), self.unit)

    def column_draws(self, design: Design) -> list[tuple[tuple[int, ...], Noise | HistogramsNoise]]:
        """Columns that are measured by histograms, in groups of one draw each, with their noise."""
        division = self.division
        groups = division.column_groups(design)
        return [(group, self.noise_of(group, division.group_budget(design, group))) for group in groups]

    def noise(self, design: Design) -> Noise:
        """The noise of every cell of a histogram that is measured by itself."""
        return noise_for(
            self.division.histogram_budget(design), self.unit.changed_cells, self.unit.changed_cells
        )

    def joint_draws(self, design: Design) -> list[tuple[CubeNoise | DiscreteGaussian, int]]:
        """Noise and number of sums: columns of two values, and pairs that are chosen (as if in one round)."""
        division, sums = self.division, list[tuple[Budget, int]]()
        if division.joint(design):
            sums.append((division.joint_budget(design), division.sums(design)))
        if products := division.products(design):
            sums.append((division.products_budget(design), products))
        return [(noise_for_bounded(budget, many, self.unit.changed_cells), many) for budget, many in sums]

    def numbers(self) -> tuple[int, int]:
        """How many numbers a run measures that measures columns only; and, at most, any run."""
        cells, own = self.followed.cells, self.signs
        joint = {*own.singles, *own.pairs}
        apart = [i for i in range(len(cells.cliques)) if i not in joint]
        signs = len(own.singles) + int(bool(own.singles) and not self.division.public_total)
        columns = signs + sum(int(cells.sizes[i]) for i in apart if i < self.followed.columns)
        most = signs + len(own.pairs) + int(cells.sizes[apart].sum())
        # In runs of few marginals those of two values are measured by themselves.
        most = most if self.measures_all_columns else max(most, cells.total)
        most -= int(cells.sizes[list(self.followed.wide_headlines)].sum())  # periods measure those
        return columns, most

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
        seen: NDArray[np.float64] | None = None,
    ) -> Outcome:
        """Spend the budget once.

        Args:
            counts: private, all cells of the followed marginals.
            known: public: what earlier epochs say of the table.
            design: what to measure, from ``design``.
            seen: number of events in the epochs that measured each followed marginal.
        """
        cells = self.followed.cells
        by_clique = {clique: counts[cells.part(i)] for i, clique in enumerate(cells.cliques)}
        domain, start = self.followed.workload.domain, known.bounded(PRIOR_BOUND)
        run = EpochRun(domain, by_clique, self.unit, randomness, start, runner=self, design=design)
        return run.outcome(known, np.zeros(len(cells.cliques)) if seen is None else seen)


@lru_cache(maxsize=4096)
def _deviation(budget: Budget, unit: Event, marginals: int) -> float:
    each = budget.scaled(Fraction(1, marginals))
    return math.sqrt(noise_for(each, unit.changed_cells, unit.changed_cells).variance)


# One epoch's run: the only code of pooled streams that reads an epoch's counts to measure.


@dataclass
class EpochRun(Run):
    """A run of a runner; every fit starts from what earlier epochs say.

    Attributes:
        by_index: the measurements, by marginal; of a marginal that was measured twice, the mean.
        signs: (value, variance) of each column's sum of signs.
    """

    runner: Runner = field(kw_only=True)
    design: Design = field(kw_only=True)
    by_index: dict[int, Measurement] = field(default_factory=dict)
    signs: dict[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cells = self.runner.followed.cells

    def outcome(self, known: Model, seen: NDArray[np.float64]) -> Outcome:
        """Measure what the design says, then what the model explains worst."""
        runner, design, division = self.runner, self.design, self.runner.division
        for group in division.column_groups(design):
            self._together(group, division.group_budget(design, group))
        pairs = runner.signs.order(known, seen)[: design.pairs]
        if division.joint(design):
            self._columns_of_signs(pairs, division.joint_budget(design))
        for index in design.tests:
            # Measured, and not fitted: few records would leave their noise in the models of all later epochs.
            self._together([index], division.histogram_budget(design), chosen=True)
        fitted = list(range(design.fixed))
        room = TreeCapacity(self.cells.workload, runner.max_cells, fitted)
        fitted += room.take_in_order(pairs)
        self.model = self.model.with_total(design.expected)
        self._fit(fitted)
        for take in rounds_of(design.k):
            chosen = self._choose(room, take)
            self._measure_chosen(chosen, division.chosen_budget(design, len(chosen)))
            fitted += chosen
            if chosen:
                self._fit(fitted)
        return Outcome(self._epoch(), self.model, self.total[1], tuple(self.outputs))

    def _fit(self, fitted: Sequence[int]) -> None:
        if fitted:
            measured = [self.by_index[index] for index in fitted]
            self.fit(self.runner.iterations, self.runner.max_cells, measured=measured)

    def _together(self, group: Sequence[int], budget: Budget, *, chosen: bool = False) -> None:
        """Measure the cells of marginals by one draw; of a marginal that was measured before, take the mean by
        precision."""
        cliques = [self.cells.cliques[index] for index in group]
        for index, fresh in zip(group, self.measure(cliques, budget, chosen=chosen), strict=True):
            self._book(index, fresh)

    def _book(self, index: int, fresh: Measurement) -> None:
        before = self.by_index.get(index)
        if before is not None:
            whole = before.variance + fresh.variance
            values = before.values + before.variance / whole * (fresh.values - before.values)
            fresh = Measurement(before.clique, values, before.variance * fresh.variance / whole)
        self.by_index[index] = fresh

    def _columns_of_signs(self, pairs: Sequence[int], budget: Budget) -> None:
        """Measure all columns of two values and some of their pairs, and the number of events where it is not
        public."""
        signs, terms = self.runner.signs, [*self.runner.signs.singles, *pairs]
        # Where the budget excludes some pairs, earlier epochs say which ones are measured.
        chosen = pairs if len(pairs) < len(signs.pairs) else []
        values, variance = self._sums(terms, chosen, budget, number=self.public_total is None)
        if self.public_total is None:
            # As a histogram of one cell; its column does not matter to the sum.
            self.sums.append(Measurement((), np.array(values[-1:]), variance))
        for index, value in zip(terms, values, strict=False):
            clique = self.cells.cliques[index]
            if len(clique) == 1:
                self.signs[clique[0]] = (value, variance)
                self._book(index, signs.column(index, self.total, self.signs[clique[0]]))
            else:
                self._pair(index, (value, variance))

    def _sums(
        self, indices: Sequence[int], chosen: Sequence[int], budget: Budget, *, number: bool = False
    ) -> tuple[list[float], float]:
        """Measure sums of signs by one draw, with the number of events at the end; gives them, and the variance of
        each."""
        terms, exact = [self.cells.cliques[i] for i in indices], self.runner.signs.read(self.counts, indices)
        if number:
            terms.append(())
            exact.append(int(self.counts[terms[0]].sum()))
        noise = noise_for_bounded(budget, len(terms), self.unit.changed_cells)
        self.spent += budget.amount
        values = self.randomness.measure(np.array(exact, dtype=np.int64), noise)
        query = signs_query(self.domain, terms, [self.cells.cliques[i] for i in chosen])
        self.outputs.append(RunOutput("signs", query, values, noise))
        return values.astype(np.float64).tolist(), max(noise.variance, MIN_VARIANCE)

    def _pair(self, index: int, product: tuple[float, float]) -> None:
        first, second = (self.signs[column] for column in self.cells.cliques[index])
        self.by_index[index] = self.runner.signs.pair(index, self.total, first, second, product)

    def _choose(self, room: TreeCapacity, take: int) -> list[int]:
        """Choose up to ``take`` marginals that the model explains worst: each choice pays ``select_share / k``.

        ``room``: the fitted ones are in it; those that are chosen are put into it.
        """
        runner, cells = self.runner, self.cells
        budget = runner.budget.scaled(runner.select_share / self.design.k)
        variance = self._mean_variance() if self.by_index else runner.noise(self.design).variance
        bias = _NOISE_BIAS * math.sqrt(variance * 2.0 / math.pi)
        score = Score(cells, "sum-noise", self.unit, bias)
        # Scores refuse more records than memory holds. An epoch has no such bound, and whether it is refused would
        # tell its private size. Cells are capped as expectations are: no score moves further than before.
        bound = np.repeat(MAX_RECORDS // cells.sizes, cells.sizes)
        counts = np.concatenate([self.counts[clique] for clique in cells.cliques])
        scores = score.evaluate(np.minimum(counts, bound), self._answers())
        room.left[[*self.by_index, *runner.followed.headlines]] = False
        chosen = list[int]()
        # Where the model is full, what is left of this run is charged, and not used.
        while len(chosen) < take and len(allowed := room.allowed()):
            chosen.append(self.select(scores, score.grid_sensitivity, allowed, budget))
            room.take(chosen[-1])
        return chosen

    def _measure_chosen(self, indices: Sequence[int], budget: Budget) -> None:
        """Measure marginals that were selected together: those of two signs by their products, others by histograms."""
        division, pairs = self.runner.division, self.runner.signs.joint_pairs if self.signs else ()
        products = [i for i in indices if i in pairs][:MAX_DIMENSION]
        groups = division.groups([i for i in indices if i not in set(products)])
        weights = [division.products_weight(len(products)), *map(division.weight, groups)]
        for group, weight in zip(groups, weights[1:], strict=True):
            self._together(group, budget.scaled(Fraction(weight, sum(weights))), chosen=True)
        if products:
            share = budget.scaled(Fraction(weights[0], sum(weights)))
            values, variance = self._sums(products, products, share)
            for index, value in zip(products, values, strict=True):
                self._pair(index, (value, variance))

    def _mean_variance(self) -> float:
        """The mean variance of the noise in one cell of what was measured."""
        return sum(measured.variance for measured in self.by_index.values()) / len(self.by_index)

    def _answers(self) -> NDArray[np.float64]:
        """What the model says of all followed marginals."""
        return self.model.with_total(max(self.model.total, 0.0)).flat_marginals(self.cells.cliques)

    def _epoch(self) -> Epoch:
        """All measurements, and the model's answers in place of the others."""
        cells, values = self.cells, self._answers()
        measured = np.zeros(len(cells.cliques), dtype=bool)
        variances = np.full(len(cells.cliques), _ANSWER_VARIANCE * self._mean_variance())
        repeated = self.runner.signs.joint_pairs if self.signs else frozenset[int]()
        for index, known in with_margins(cells, self.by_index, repeated).items():
            values[cells.part(index)] = known.values
            variances[index] = known.variance
            measured[index] = True
        move_to_columns(cells, values, measured, self.model.total)
        return Epoch(values, variances, measured, self.model.total)


#: Selections are made in this many rounds, with a fit after each: what one marginal explains, others need not.
_SELECTION_ROUNDS = 3


def rounds_of(k: int) -> list[int]:
    """``k`` selections in a few rounds; the last is the largest.

    >>> rounds_of(10), rounds_of(2), rounds_of(0)
    ([3, 3, 4], [1, 1], [])
    """
    rounds = min(_SELECTION_ROUNDS, k)
    return [(k * (i + 1)) // rounds - (k * i) // rounds for i in range(rounds)]
