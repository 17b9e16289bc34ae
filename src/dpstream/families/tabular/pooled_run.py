"""One epoch's run: all columns or none, then what the known model explains worst."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model, fit
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.cube import CubeNoise, noise_for_bounded
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import DiscreteGaussian, Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.families.tabular.column_answers import move_to_columns
from dpstream.families.tabular.headlines import headline_draws
from dpstream.families.tabular.joint_groups import joint_noise
from dpstream.families.tabular.limits import Room
from dpstream.families.tabular.plans import PRIOR_BOUND
from dpstream.families.tabular.pooled_division import Design, Division
from dpstream.families.tabular.pooled_estimates import Epoch
from dpstream.families.tabular.pooled_margins import with_margins
from dpstream.families.tabular.pooled_measure import RunMeasurements
from dpstream.families.tabular.pooled_signs import Signs
from dpstream.families.tabular.run_outputs import RunOutput
from dpstream.families.tabular.selector import Selector
from dpstream.families.tabular.workload_cells import MAX_RECORDS, Cells, Score

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
class Followed:
    """The marginals whose counts are kept: every column of the workload, then its marginals of several columns.

    ``headline``: marginals that are measured in every run; they are followed, too.
    """

    workload: Workload
    headline: tuple[Clique, ...] = ()

    @cached_property
    def cells(self) -> Cells:
        """The marginals laid out as one vector. Columns weigh as little as the lightest marginal."""
        own, lightest = self.workload, min(self.workload.weights)
        columns = sorted({column for clique in (*own.cliques, *self.headline) for column in clique})
        wide = [(c, w) for c, w in zip(own.cliques, own.weights, strict=True) if len(c) > 1]
        wide += [(c, lightest) for c in self.headline if len(c) > 1 and c not in own.cliques]
        cliques = tuple((column,) for column in columns) + tuple(c for c, _ in wide)
        weights = (lightest,) * len(columns) + tuple(w for _, w in wide)
        return Cells(Workload(own.domain, cliques, weights))

    @cached_property
    def columns(self) -> int:
        """How many of the cliques are columns."""
        return sum(len(clique) == 1 for clique in self.cells.cliques)

    @cached_property
    def headlines(self) -> tuple[int, ...]:
        """Which of the cliques are headlines."""
        return tuple(self.cells.cliques.index(clique) for clique in self.headline)

    @cached_property
    def wide_headlines(self) -> tuple[int, ...]:
        """Those of several columns."""
        return tuple(index for index in self.headlines if index >= self.columns)

    @cached_property
    def choosable(self) -> int:
        """How many marginals of several columns are measured only where a run chooses them."""
        return len(self.cells.cliques) - self.columns - len(self.wide_headlines)

    @cached_property
    def freedom(self) -> NDArray[np.float64]:
        """Degrees of freedom that a marginal has beside its columns; columns have none here."""
        domain = self.workload.domain
        return np.array([
            domain.cells(c) - 1 - sum(domain.sizes[i] - 1 for i in c) if len(c) > 1 else 0
            for c in self.cells.cliques
        ], dtype=np.float64)  # fmt: skip


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

    followed: Followed
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
        taken = RunMeasurements(self, cells, own, self.division, counts, randomness, public_total)
        start = known.bounded(PRIOR_BOUND)
        for group, budget in self.headline_budgets:
            taken.together(group, budget, "headline")
        division, joint = self.division, own.singles if design.fixed else ()
        for group in division.column_groups(design):
            taken.together(group, division.group_budget(design, group))
        pairs = own.order(known, np.zeros(len(cells.cliques)) if seen is None else seen)[: design.pairs]
        if joint:
            taken.joint(pairs, division.joint_budget(design))
        for index in design.tests:
            # Measured, and not fitted: few records would leave their noise in the models of all later epochs.
            taken.histogram(index, division.histogram_budget(design), chosen=True)
        fitted = list(range(design.fixed))
        fitted += [index for index in self.followed.headlines if index not in fitted]
        room = Room(cells.workload, self.max_cells, fitted)
        fitted += room.take_in_order(pairs)
        model = self._fit(taken, fitted, start) if fitted else start.with_total(design.expected)
        for take in _rounds_of(k):
            fresh = self._select(counts, model, taken, room, take, design, randomness)
            if fresh:
                taken.chosen(fresh, division.chosen_budget(design, len(fresh)))
                fitted += fresh
                model = self._fit(taken, fitted, start)
        return self._outcome(taken, model)

    def _fit(self, taken: RunMeasurements, fitted: Sequence[int], start: Model) -> Model:
        return fit(
            self.followed.workload.domain,
            [taken.measured[index] for index in fitted],
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
        room: Room,
        take: int,
        design: Design,
        randomness: Randomness,
    ) -> list[int]:
        """Choose up to ``take`` marginals that the model explains worst: each choice pays ``select_share / k``.

        ``room``: the fitted ones are in it; those that are chosen are put into it.
        """
        cells = self.followed.cells
        selector = Selector(self.budget.scaled(self.select_share / design.k))
        variance = _mean_variance(taken) if taken.measured else self.noise(design).variance
        bias = _NOISE_BIAS * math.sqrt(variance * 2.0 / math.pi)
        score = Score(cells, "sum-noise", self.unit, bias)
        expected = model.with_total(max(model.total, 0.0)).flat_marginals(cells.cliques)
        # Scores refuse more records than memory holds. An epoch has no such bound, and whether it is refused would
        # tell its private size. Cells are capped as expectations are: no score moves further than before.
        bound = np.repeat(MAX_RECORDS // cells.sizes, cells.sizes)
        numerators, denominators = score.evaluate(np.minimum(counts, bound), expected)
        chosen: list[int] = []
        left = np.ones(len(cells.cliques), dtype=bool)
        left[list(taken.measured)] = False
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
        for index, own in with_margins(cells, taken.measured, repeated).items():
            values[cells.part(index)] = own.values
            variances[index] = own.variance
            measured[index] = True
        move_to_columns(cells, values, measured, model.total)
        epoch = Epoch(values, variances, measured, model.total)
        return Outcome(epoch, model, taken.total[1], tuple(taken.outputs))


def _mean_variance(taken: RunMeasurements) -> float:
    """The mean variance of the noise in one cell of what was measured."""
    return sum(own.variance for own in taken.measured.values()) / len(taken.measured)


def _rounds_of(k: int) -> list[int]:
    """``k`` selections in a few rounds; the first ones are no larger than the last.

    >>> _rounds_of(10), _rounds_of(2), _rounds_of(0)
    ([3, 3, 4], [1, 1], [])
    """
    rounds = min(_SELECTION_ROUNDS, k)
    return [(k * (i + 1)) // rounds - (k * i) // rounds for i in range(rounds)]
