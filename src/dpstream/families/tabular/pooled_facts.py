"""What a pooled stream's plan says before any data are read: its options, and its errors, from borders and noise."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    EACH_STEP,
    HEADLINE_SHARE,
    NUMBER_SHARE,
    Events,
    ExpectedErrors,
    ExpectedTable,
    Headline,
    MarginalError,
    Packed,
    Periods,
    PublicPrior,
    StartTable,
    StreamPlan,
    check_share,
    check_whole,
    first_step,
    next_end,
    option,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.errors import ConfigError
from dpstream.core.graphical import Model
from dpstream.core.privacy import Budget, EventUnit, HistogramsNoise
from dpstream.core.schema import Clique, Domain, Found, Schema
from dpstream.core.schema.trees import Fitted, Tree
from dpstream.core.tables import Workload
from dpstream.families.tabular.pooled_book import (
    EPOCHS,
    Epochs,
    Number,
    PooledBook,
    PublicSide,
    add_up_cells,
    growth_error,
    moved_model,
    number_half_width,
    open_model,
)
from dpstream.families.tabular.pooled_clock import Clock, usual_length
from dpstream.families.tabular.pooled_estimates import Answer, Estimates, expected_rate, rate_weights
from dpstream.families.tabular.pooled_run import Design, Runner
from dpstream.mechanisms import Cells, ModelSynthesis, options
from dpstream.mechanisms.description import headline_facts, table_facts
from dpstream.mechanisms.discovery_plan import Discoveries, Discovery
from dpstream.mechanisms.grown_tables import grown_plan
from dpstream.mechanisms.headlines import check_headline
from dpstream.mechanisms.limits import check_domain, check_each, check_fit, check_prior
from dpstream.mechanisms.means import Mean, Sums, marginals_of, means_of
from dpstream.mechanisms.plans import events_apart, leaves_out_cancelled
from dpstream.mechanisms.prior_choice import PriorChoice
from dpstream.mechanisms.table_model import fit_table

_Floats = NDArray[np.float64]
#: Columns of several trees depend on each other: so often all are set.
_TREE_ROUNDS = 10


#: Expected numbers of events are rounded down to so many significant binary digits: designs change with them slowly.
_DIGITS = 4


@dataclass(frozen=True)
class EpochNoise:
    """Variances of the noise of one epoch's run: in a cell of each column and then of each wider headline marginal, and
    in the number of events."""

    marginals: tuple[float, ...]
    total: float

    def __add__(self, other: EpochNoise) -> EpochNoise:
        marginals = tuple(a + b for a, b in zip(self.marginals, other.marginals, strict=True))
        return EpochNoise(marginals, self.total + other.total)


@dataclass(frozen=True)
class Rate:
    """How wrong the expected number of a step's events is, where nobody measured it yet.

    Attributes:
        noise: the variance of its noise; ``shared``: its covariance with that of the number so far.
        sampled: the variance of the events that it is made of, where a step's events have the variance 1.
    """

    noise: float
    shared: float
    sampled: float

    @classmethod
    def of_epoch(cls, length: int, variance: float) -> Rate:
        """The rate of an epoch of so many steps, whose number of events has this variance."""
        return cls(variance / length**2, variance / length, 1.0 / length)

    @classmethod
    def of_periods(cls, number: Number, sides: int, borders: Sequence[tuple[int, float]]) -> Rate:
        """The rate that periods let expect.

        Args:
            borders: the number's variance at steps at which it was settled, and at the last one.
        """
        ends, noise = [number.begun, *number.ends], np.array(number.noise)
        lengths = np.diff(np.array(ends, dtype=np.float64))
        weights = rate_weights(number.begun, number.ends, number.periods, noise / sides) / lengths
        # Least squares spread the variance of a settled span over the periods in it.
        shared = np.diff(np.interp(ends, *np.array(borders).T))
        return cls(float(weights**2 @ noise), float(weights @ shared), float(weights**2 @ lengths))


@dataclass
class Prediction:
    """What a stream's epochs will measure of an expected table, as far as it is known before they begin.

    Every epoch is taken to measure all columns, as it does until columns are found not to drift; after that it measures
    fewer, and the released counts rest on all epochs. Headline marginals are measured in every epoch. Which other wide
    marginals are measured follows from the data: of them nothing is predicted.

    Attributes:
        sides: how many kinds of events are followed apart.
        tests: whether runs that choose nothing may measure one marginal more, to judge a prior: then all are taken to.
        first: how many events the first step lets expect, before anything is released.
        known: the noise of epochs that were asked for before, by their expected number of events.
    """

    runner: Runner
    epochs: Epochs
    sides: int
    clocks: Sequence[Clock] = ()
    tests: bool = False
    first: float = 0.0
    known: dict[float, EpochNoise] = field(default_factory=dict)

    def errors(
        self, steps: Sequence[int], horizon: int | None, expected: ExpectedTable
    ) -> tuple[ExpectedErrors, ...]:
        """Of marginals as of the last border up to each step; of the number of records at the step itself.

        Errors:
            HorizonError: a step beyond the horizon. ConfigError: no number of a step.
        """
        asked = check_steps(steps, horizon)
        own, followed = self.runner.followed, _followed(self.runner)
        found, last, public = dict[int, tuple[list[float], float]](), 0, self.runner.division.public_total
        number, marginals = Number.fresh(len(self.clocks)), [Number.fresh(1) for _ in followed]
        settled, epoch = [(0, 0.0)], Rate.of_epoch(1, 0.0)
        rates = [self.first, *[0.0] * (self.sides - 1)]
        for step in sorted(set(asked)):
            while (border := self.epochs.after(last)) <= step and last != horizon:
                self._take_periods(number, marginals, border, expected)
                noise = EpochNoise((0.0,) * own.columns, 0.0)
                for side, upto in enumerate([expected.came, expected.left][: self.sides]):
                    came = upto(border) - upto(last)
                    # As in ``PooledPlan``: the epoch before lets expect, unless numbers of events are public.
                    guess = came if public else rates[side] * (border - last)
                    rates[side] = came / (border - last)
                    noise = noise + self._epoch(guess)
                number.add(EPOCHS, 0.0, noise.total, border)
                # A wide headline is measured by its periods alone.
                for marginal, variance in zip(marginals[: own.columns], noise.marginals, strict=True):
                    marginal.add(EPOCHS, 0.0, variance, border)
                if number.upto[-1] == border:
                    settled.append((border, number.known[1]))
                epoch, last = Rate.of_epoch(border - last, noise.total), border
            errors = self._errors(marginals)
            self._take_periods(number, marginals, step, expected)
            _, variance, counted = number.known
            added = 0.0
            if not public and counted < step:
                borders = [*settled, (counted, variance)]
                rate = Rate.of_periods(number, self.sides, borders) if number.ends else epoch
                added = self._unmeasured(counted, step, rate, expected)
            found[step] = errors, variance + added
        names = [tuple(own.workload.domain.names[i] for i in own.cells.cliques[at]) for at in followed]
        cells = [int(own.cells.sizes[at]) for at in followed]
        return tuple(
            ExpectedErrors(
                step,
                expected.size_at(step),
                math.sqrt(found[step][1]),
                tuple(
                    MarginalError(columns, size, math.sqrt(variance))
                    for columns, size, variance in zip(names, cells, found[step][0], strict=True)
                    if math.isfinite(variance)
                ),
            )
            for step in asked
        )

    def _take_periods(
        self, number: Number, marginals: Sequence[Number], step: int, expected: ExpectedTable
    ) -> None:
        """Add the periods that have ended by a step, to the number of records and to the headlines."""
        places = dict(zip(_followed(self.runner), marginals, strict=True))
        for series, clock in enumerate(self.clocks, 1):
            begun = places[clock.followed[0][0]].upto[1] if clock.followed else number.upto[series]
            while begun != self.epochs.end and (end := self._end(clock, begun)) <= step:
                for place, _, variance in clock.followed:
                    places[place].add(1, 0.0, self.sides * variance, end)
                if not self.runner.division.public_total:
                    came = expected.came(end) - expected.came(begun)
                    number.add(series, came, self.sides * clock.number_variance, end)
                begun = end

    def _end(self, clock: Clock, step: int) -> int:
        end = next_end(clock.periods, step)
        return end if self.epochs.end is None or step >= self.epochs.end else min(end, self.epochs.end)

    def _errors(self, marginals: Sequence[Number]) -> list[float]:
        """The variances of followed marginals at the last border. A wide headline has none where no period ends."""
        columns, (border, _) = self.runner.followed.columns, marginals[0].upto
        series = [EPOCHS] * columns + [1] * (len(marginals) - columns)
        return [
            float(own.covariance[at, at]) if own.upto[at] == border else math.inf
            for at, own in zip(series, marginals, strict=True)
        ]

    def _unmeasured(self, last: int, step: int, rate: Rate, expected: ExpectedTable) -> float:
        """The variance that the steps after the last measured one add to the number of records.

        The number of events in each of them differs from those that the rate is made of by ``expected.varies`` of it,
        independently; a table that goes on as expected repeats the rate's noise.
        """
        since = step - last
        events = [upto(step) - upto(last) for upto in (expected.came, expected.left)[: self.sides]]
        varied = sum((expected.varies * many / since) ** 2 for many in events)
        if self.sides == 1 or not rate.noise:
            noise = 2.0 * since * rate.shared + since**2 * rate.noise
            return (since + since**2 * rate.sampled) * varied + noise
        growth = expected.size_at(step) - expected.size_at(last)
        # Noise of this variance, that share of which is in the growth, has the moments of the rate's.
        added, went_on = growth_error(growth, rate.shared**2 / rate.noise, since * rate.noise / rate.shared)
        return added + (since + (went_on * since) ** 2 * rate.sampled) * varied

    def _epoch(self, events: float) -> EpochNoise:
        rounded = _rounded(events)
        if rounded not in self.known:
            design = self.runner.design(rounded, drifts=True)
            if self.tests and rounded and not design.k and self.runner.followed.choosable:
                design = self.runner.with_tests(design, (self.runner.followed.columns,))
            self.known[rounded] = _noise(self.runner, design)
        return self.known[rounded]


def _rounded(events: float) -> float:
    """
    >>> [_rounded(n) for n in (0.0, 1.0, 100.0, 1000.0)]
    [0.0, 1.0, 96.0, 960.0]
    """
    if events <= 0.0:
        return 0.0
    mantissa, exponent = math.frexp(events)
    return math.ldexp(math.floor(mantissa * 2**_DIGITS), exponent - _DIGITS)


def _followed(runner: Runner) -> list[int]:
    """The marginals whose errors are predicted: all columns, and the wider headlines."""
    return [*range(runner.followed.columns), *runner.followed.wide_headlines]


def _noise(runner: Runner, design: Design) -> EpochNoise:
    """The noise of a run that measures all columns."""
    division, cells = runner.division, runner.followed.cells
    joint = runner.signs.singles if division.joint(design) else ()
    single = runner.noise(design).variance if division.histograms(design) else math.inf
    own, sums = dict[int, float](), list[float]()
    for group, noise in runner.column_draws(design):
        if isinstance(noise, HistogramsNoise):
            own |= dict(zip(group, noise.variances, strict=True))
            sums += [] if division.public_total else [1.0 / noise.sum_variance]
        else:
            own[group[0]] = noise.variance
            sums.append(1.0 / (noise.variance * int(cells.sizes[group[0]])))
    signs = 0.0
    if joint:
        signs = runner.joint_draws(design)[0][0].variance
        sums.append(1.0 / signs)
    public = division.public_total
    # The number of events when the columns of two values are made from it; later choices tell a little more of it.
    first = 0.0 if public else 1.0 / sum(sums)
    chosen = design.k - division.products(design)
    if chosen > 0:
        wide = cells.sizes[runner.followed.columns :]
        sums.append(chosen * float((1.0 / wide).mean()) / single)
    columns = [(first + signs) / 4.0 if i in joint else own[i] for i in range(runner.followed.columns)]
    return EpochNoise(tuple(columns), 0.0 if public else 1.0 / sum(sums))


#: Confidence of the intervals of flows that a plan tells.
_TOLD = 0.95


def _clock_facts(clock: Clock, clocks: Sequence[Clock]) -> dict[str, Any]:
    """What one of the clocks measures, how often, and how noisily; headlines of its periods tell the number, too."""
    alike = [other for other in clocks if other.periods == clock.periods]
    sums = [known for other in alike for known in other.sums]
    widths = clock.half_widths(_TOLD) if clock.headlines else [number_half_width(sums, _TOLD)]
    return {
        "length": clock.periods.name,
        "headlines": clock.labels,
        "cells": clock.sizes,
        "steps": usual_length(clock.periods),
        "half_widths": [float(f"{width:.6g}") for width in widths],
        "standard_errors": [float(f"{math.sqrt(variance):.6g}") for variance in clock.variances],
    }


def _mean_facts(sums: Sums) -> list[dict[str, Any]]:
    """Of each mean: how often it is measured, of how many groups, and half a 95 % interval of a single record's."""
    laws = [add_up_cells([(noise, 2, 1, 1.0)]) for noise in sums.noises]
    return [
        {
            "name": " x ".join(mean.names),
            "length": sums.periods.name,
            "steps": usual_length(sums.periods),
            "groups": size // 2,
            "half_width": float(f"{mean.scale.unit * law.half_width(_TOLD):.6g}"),
        }
        for mean, size, law in zip(sums.means, sums.sizes, laws, strict=True)
    ]


#: What a step takes for each cell of the followed marginals, about (``benchmarks/results/wide_tables.md``): some twenty
#: vectors of all cells at most at one time, and a few passes over each.
_BYTES_A_CELL, _SECONDS_A_CELL = 160, 1e-6
#: Ends of epochs that a plan lists.
_LISTED_EPOCHS = 25
#: Steps among which a plan looks for ends of discovery epochs.
_LOOKED_AT = 1000


@dataclass(frozen=True)
class PooledOptions:
    """What may be chosen; see ``Pooled``."""

    workload: Workload = option(of=options.WORKLOAD)
    staleness: Fraction = option(Fraction(1, 10), options.STALENESS)
    select_share: Fraction = Fraction(1, 10)
    deletions: bool = False
    cancels: bool = True
    iterations: int = option(50, options.ITERATIONS)
    max_cells: int = option(10_000, options.TREE_CELLS)
    headline: Headline = ()
    headline_share: Fraction = HEADLINE_SHARE
    periods: Periods = EACH_STEP
    number: Periods | None = None
    number_share: Fraction = NUMBER_SHARE
    season: Fraction | None = None
    prior: PublicPrior | None = None
    first_records: int | None = None
    discovery: Discovery | None = None
    schema: Schema | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.season is not None and not self.season >= 2:
            what = f"a season of {self.season} steps"
            raise ConfigError(what, where="[stream] season", allowed="2 steps or more, or none")
        staleness = check_share(self.staleness, "staleness")
        if staleness > Fraction(1, 2):
            raise ConfigError(f"staleness = {staleness}", where="mechanism", allowed="above 0, up to 1/2")
        object.__setattr__(self, "staleness", staleness)
        object.__setattr__(self, "select_share", check_share(self.select_share, "select_share"))
        check_fit(self.iterations, self.max_cells, 0.0)
        check_each(self.workload, self.max_cells)
        checked = check_headline(self.workload.domain, self.marginals, self.headline_share, self.max_cells)
        object.__setattr__(self, "headline", tuple(tuple(names) for names in self.headline))
        object.__setattr__(self, "headline_share", checked[1])
        _ = self.means
        object.__setattr__(self, "number_share", check_share(self.number_share, "number_share"))
        check_prior(self.prior, self.workload.domain)
        if self.first_records is not None:
            check_whole(self.first_records, "first_records", 1, 2**53)
        if self.discovery is not None:
            if self.deletions:
                what = "values of a table that records leave cannot be discovered"
                raise ConfigError(what, where="[discovery]", allowed="a source without deletes")
            self.discovery.check(self.workload.domain, self.prior)

    @property
    def marginals(self) -> Headline:
        """The headlines that are counts."""
        return marginals_of(self.headline)

    @property
    def means(self) -> tuple[Mean, ...]:
        """The headlines that are means."""
        return means_of(self.headline, self.schema)

    @property
    def sides(self) -> tuple[Events, ...]:
        """The kinds of events that are followed apart."""
        return events_apart(self.deletions)


@dataclass(frozen=True)
class PooledFacts(StreamPlan):
    """What a calibrated ``Pooled`` says; see ``PooledPlan``."""

    recipe: PooledOptions
    budget: Budget
    unit: EventUnit
    horizon: int | None
    runner: Runner
    clocks: tuple[Clock, ...] = ()
    sums: Sums | None = None
    last_step: int | None = None
    discovery: Discoveries | None = None
    many_found: Mapping[str, int] = field(default_factory=dict, compare=False)
    name = "pooled"
    follows_constraints = True

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.recipe.workload.domain

    @cached_property
    def epochs(self) -> Epochs:
        """The borders of epochs, which are step numbers."""
        periods = self.clocks[0].periods if self.clocks else None
        return Epochs(self.recipe.staleness, self.horizon, self.last_step, periods)

    @property
    def open_columns(self) -> tuple[str, ...]:
        """See ``StreamPlan``."""
        return () if self.discovery is None else self.discovery.columns

    def discovers(self, state: PooledBook) -> bool:
        """See ``StreamPlan``."""
        return state.discovered > 0 and state.discovered == state.step

    def ending(self, last_step: int | None) -> Self:
        """The same plan, whose open epoch ends with that step.

        Guarantee: unchanged. Borders follow from the owner's configuration and from step numbers: whenever the owner
        moves the last step, every event stays in one epoch, which one run reads.
        """
        return replace(self, last_step=last_step)

    def asked_cliques(self) -> Sequence[Clique]:
        """All of the workload and of the headlines, and what headlines follow from."""
        read = [fold.source for clock in self.clocks for fold in clock.marginals]
        read += () if self.sums is None else self.sums.cliques
        return tuple(dict.fromkeys((*self.cells.cliques, *read)))

    @property
    def meters(self) -> tuple[Clock | Sums, ...]:
        """All that is measured once a period: the clocks, and the sums for means after them."""
        return self.clocks if self.sums is None else (*self.clocks, self.sums)

    def reading_schema(self, schema: Schema) -> Schema:
        """See ``StreamPlan``: a column whose mean is measured is read in finer bins."""
        return schema if self.sums is None else self.sums.reading(schema)

    def start_from(self, base: StartTable) -> Any:
        """The state that begins with the base: its marginals are added to what the epochs say."""
        check_domain(base, self.domain)
        state = self.start()
        state.base = np.concatenate(base.marginals(self.cells.cliques))
        state.base_total = state.table_total = base.total
        state.base_variance = None if base.total_error is None else base.total_error**2
        state.table = self._fit(state, state.base, np.ones(len(self.cells.cliques)))[0]
        state.models = tuple(state.table for _ in state.models)
        return state

    def found(self, state: PooledBook) -> dict[str, list[Found]]:
        """See ``StreamPlan``."""
        return state.found

    def grown(self, found: Mapping[str, Sequence[Found]]) -> Self:
        """See ``StreamPlan``."""
        return grown_plan(self, found, "last_step")

    @property
    def delta(self) -> Fraction:
        """Of discovery, if there is any."""
        return Fraction(0) if self.discovery is None else self.discovery.delta

    def delta_of(self, units: int) -> Fraction:
        """Of discovery, if there is any."""
        return Fraction(0) if self.discovery is None else self.discovery.delta_of(units)

    def may_discover(self, step: int) -> bool:
        """Whether the headlines' period ends with a step, too, which ends an epoch: so values may enter after it."""
        return all(c.ends(step, self.last_step, self.horizon) for c in self.clocks if c.headlines)

    def _discovery_facts(self, own: Discoveries) -> dict[str, Any]:
        """How often values must occur, and the first ends of discovery epochs."""
        borders = [self.epochs.after(0)]
        while borders[-1] < _LOOKED_AT and borders[-1] != self.epochs.end:
            borders.append(self.epochs.after(borders[-1]))
        return own.facts(filter(self.may_discover, borders))

    @property
    def cells(self) -> Cells:
        """The followed marginals as one vector: the columns, then the workload's wider marginals."""
        return self.runner.followed.cells

    @cached_property
    def trees(self) -> list[TableTree]:
        """The levels that headlines measure; their finest ones are columns of the table."""
        return trees_of(self.clocks)

    @cached_property
    def _prediction(self) -> Prediction:
        tests = self.recipe.prior is not None
        first = self.recipe.first_records or 0
        sides = len(self.recipe.sides)
        return Prediction(self.runner, self.epochs, sides, self.clocks, tests, first)

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...] | None:
        """See ``StreamPlan.expected_errors``: of the columns, as of the last border, with the columns drifting; of the
        number of records, with what came since."""
        return None if expected is None else self._prediction.errors(steps, self.horizon, expected)

    def facts(self) -> dict[str, Any]:
        """When it measures, with how much noise, and how many numbers: step numbers and options only."""
        ends = [self.epochs.after(0)]
        while len(ends) < _LISTED_EPOCHS and ends[-1] != self.horizon:
            ends.append(self.epochs.after(ends[-1]))
        every = next((end for end, following in pairwise([0, *ends]) if following != end + 1), ends[-1])
        recipe, runner = self.recipe, self.runner
        deviation = math.sqrt(runner.cell_variance(runner.design(0.0, drifts=True)))
        facts = table_facts(recipe.workload, deviation)
        facts["size"] |= self._step_size()
        facts["pooled"] = {
            "staleness": str(recipe.staleness),
            "epoch_ends": ends,
            "measured_one_by_one": every,
            "season": None if recipe.season is None else str(recipe.season),
            "prior": None if recipe.prior is None else recipe.prior.describe(),
        }
        if self.discovery is not None:
            facts["discovery"] = self._discovery_facts(self.discovery)
        if recipe.deletions:
            facts["turnover"] = {"cancelled": self.cancels}
        labels = [label for clock in self.clocks for label in clock.labels]
        heads = [
            (group, noise) for clock in self.clocks if clock.headlines for group, _, noise in clock.draws
        ]
        facts |= headline_facts(labels, recipe.headline_share, heads, all_columns=runner.measures_all_columns)
        if self.sums is not None:
            facts["means"] = _mean_facts(self.sums)
        if self.clocks:
            facts["periods"] = [_clock_facts(clock, self.clocks) for clock in self.clocks]
        first, most = runner.numbers()
        first += sum(sum(own.sizes) for own in self.meters if own.ends(1, self.last_step, self.horizon))
        most += sum(sum(own.sizes) for own in self.meters)
        first, most = first * len(recipe.sides), most * len(recipe.sides)
        facts["noisy_counts"] = {
            "first": first,
            "most": most,
            "at": "epoch_ends_and_period_ends" if self.meters else "epoch_ends",
            "first_is_least": recipe.first_records is not None,
        }
        return facts

    def _step_size(self) -> dict[str, int]:
        """What a step needs for its marginals, about: beside its rows, and what is published of them."""
        cells, sides = self.cells.total * len(self.recipe.sides), len(self.recipe.sides)
        table = 8 * sum(self.domain.sizes) ** 2
        seconds = math.ceil(_SECONDS_A_CELL * cells)
        return {"step_bytes": _BYTES_A_CELL * cells + table * sides, "step_seconds": seconds}

    @property
    def cancels(self) -> bool:
        """Whether equal rows that come and go within a step are left out."""
        return leaves_out_cancelled(self.recipe.cancels, self.unit, deletions=self.recipe.deletions)

    def step_facts(self, step: int, measured_up_to: int) -> dict[str, Any]:
        """The next step that is measured."""
        return {"next_measured": self.epochs.after(measured_up_to)}

    def periods_of(self, step: int) -> list[dict[str, Any]]:
        """See ``StreamPlan``; the last planned step ends all of them."""
        found, planned = dict[str, dict[str, Any]](), self.epochs.end
        for periods in (own for meter in self.meters for own in meter.periods.related):
            last = next_end(periods, step - 1)
            last = last if planned is None or planned < step else min(last, planned)
            first = first_step(periods, step)
            found.setdefault(periods.length, {"length": periods.length, "first": first, "last": last})
        return list(found.values())

    def ends_cut_period(self, step: int, begun: int) -> bool:
        """See ``StreamPlan``: where the first clock's period ends."""
        if self.meters:
            return self.meters[0].ends(step, self.last_step, self.horizon)
        return super().ends_cut_period(step, begun) or step == self.last_step

    def options(self) -> dict[str, Any]:
        """All options, JSON-able."""
        return options.as_json(self.recipe, cancels=self.cancels)

    @property
    def _season(self) -> float | None:
        return None if self.recipe.season is None else float(self.recipe.season)

    @cached_property
    def _prior(self) -> PriorChoice | None:
        prior, own = self.recipe.prior, self.recipe
        if prior is None:
            return None
        return PriorChoice(self.runner.followed, prior, own.iterations, own.max_cells)

    def _with_test(self, prior: PriorChoice, design: Design, estimates: Estimates, known: Model) -> Design:
        """The design of a run with one marginal more, by which the prior can be judged; or as it is. Public. Runs that
        choose marginals need none: they find by themselves what is wrong."""
        if design.k or not design.fixed or design.expected <= 0.0:
            return design
        variance = self.runner.noise(replace(design, tests=(0,))).variance
        tested = prior.marginal_to_test(estimates, known, design.expected, variance)
        return design if tested is None else self.runner.with_tests(design, (tested,))

    def _fit(
        self, state: PooledBook, values: Any, variances: Any, volatile: Collection[int] = ()
    ) -> tuple[Model, tuple[int, ...]]:
        model, kept = fit_table(
            self.runner.followed,
            values,
            variances,
            state.total,
            iterations=2 * self.recipe.iterations,
            max_cells=self.recipe.max_cells,
            volatile=volatile,
        )
        return self._with_levels(state, model, values, variances), kept

    def _with_levels(self, state: PooledBook, model: Model, values: Any, variances: Any) -> Model:
        """The table's model, so that it agrees with what is known of levels, and of the number of records."""
        number, many = max(state.total, 0.0), sum(side.level_periods for side in state.sides)
        agreed = list[tuple[int, Any]]()
        for tree in self.trees if many and number else ():
            part = self.cells.part(tree.place)
            levels = tree.folded(state.base[part])[:-1]
            for sign, side in zip((1.0, -1.0), state.sides, strict=False):
                levels = [
                    own + sign * new for own, new in zip(levels, tree.levels(side.levels), strict=False)
                ]
            # Inside a period nodes are taken to grow in proportion.
            grown = 1.0 if state.began[0] == state.closed else number / max(float(levels[0].sum()), 1.0)
            spread = [grown**2 * many * variance for variance in tree.variances[:-1]] + [
                variances[tree.place]
            ]
            found = [*(grown * own for own in levels), values[part]]
            known = number, sum(side.variance for side in state.sides)
            agreed.append((tree.column, tree.shaped(found, spread, model.marginal((tree.column,)), known)))
        return with_columns(model, agreed)

    def unpack_synthesis(self, packed: Packed) -> ModelSynthesis:
        """The inverse of ``ModelSynthesis.pack``."""
        return ModelSynthesis.unpack(packed)

    def _take_prior(
        self, prior: PriorChoice, state: PooledBook, values: Any, variances: Any, kept: Sequence[int]
    ) -> None:
        """Fit the table's model anew where the prior says something.

        Later runs start from the model without it, so that what they measure is a test of the prior, and one that is
        wrong leaves no trace.

        Args:
            values, variances: what is known without the prior; ``state.table`` was fitted to that, and to the wider
                marginals ``kept``.
        """
        estimates = state.sides[0].estimates
        table, wide = prior.table(values, variances, estimates, state.table, kept, state.total)
        state.table = self._with_levels(state, table, values, variances) if table else state.table
        if wide:
            # Of the last measurements.
            noise = dict(zip(estimates.marginals, estimates.variances, strict=True))
            state.latest = prior.epoch_model(state.latest, state.table, noise)

    def _estimates(self, state: PooledBook, answers: Sequence[Answer]) -> tuple[Any, Any]:
        """What is known of the table's marginals: values (all cells), variances (per marginal)."""
        values, variances = state.base.copy(), np.zeros(len(self.cells.cliques))
        known = np.full(len(variances), bool(state.base.any()))
        for sign, side, answer in zip((1.0, -1.0), state.sides, answers, strict=False):
            values += sign * answer.values
            variances += answer.variances
            known |= side.estimates.known
        # What no run measured has only the answers of models, which knew less than the next one will.
        return values, np.where(known, variances, np.inf)

    def _expect(self, state: PooledBook) -> None:
        """What the next steps let expect, by the periods of the number of events; runs of this step did not see it."""
        for side in state.sides:
            own = side.number
            if own.periods:
                side.rate, side.rate_variance = expected_rate(own.begun, own.ends, own.periods, own.noise)

    def _take_flows(self, side: PublicSide, step: int, began: Sequence[int]) -> None:
        """Give the estimates what periods measured since the last border at which one ended, if one ends here."""
        for clock, flows, end in zip(self.clocks, side.flows, began, strict=False):
            if end != step or not flows.many:
                continue
            for place, part, variance in clock.followed:
                side.estimates.add_flows(place, flows.first, flows.values[part], flows.many * variance)
            if clock.headlines:
                # Trees stand at the end of a clock's cells, also where columns before them have grown.
                fresh = flows.values[self.trees[0].begin :] if self.trees else flows.values[:0]
                side.levels = fresh + side.levels if side.level_periods else fresh
                side.level_periods += flows.many
            flows.values, flows.many = np.zeros_like(flows.values), 0
            flows.first = len(side.estimates.records)

    def _moved(self, state: PooledBook) -> Model:
        """The shape of the open epoch's records, moved to what headlines say of them."""
        clock, flows = self.clocks[0], state.sides[0].flows[0]
        measured = [
            (self.cells.cliques[place], flows.values[part], flows.many * variance)
            for place, part, variance in clock.followed
        ]
        model = moved_model(state.latest, measured, self.recipe.max_cells)
        agreed = [
            (
                tree.column,
                tree.shaped(
                    tree.levels(flows.values[tree.begin :]),
                    [flows.many * variance for variance in tree.variances],
                    model.marginal((tree.column,)),
                ),
            )
            for tree in self.trees
        ]
        return with_columns(model, agreed)

    def _synthesis(self, state: PooledBook) -> ModelSynthesis:
        """The table at the last border, and as many records more as the steps since then let expect.

        They are taken to look like the last closed epoch: a stream that moves goes on as it went (with a season, as it
        goes at this time of it).
        """
        since, exact = state.step - state.closed, self.unit.relation == "replace"
        total = state.total + (state.open_total if exact else state.expected_growth())
        growth, error = total - state.table_total, state.total_error(exact=exact)
        passed = None
        if self.cancels:
            came, left = (side.total for side in state.sides)
            passed = (state.base_total + came, left)
        part = growth / total if 0.0 < growth < total else 0.0
        models: tuple[Model, ...] = (state.table.with_total(total),)
        weights: tuple[float, ...] | None = None
        if part:
            latest = open_model(state, self.cells, since, self.recipe.max_cells)
            models, weights = (*models, latest.with_total(total)), (1.0 - part, part)
        return ModelSynthesis(
            models,
            total,
            total_error=error,
            weights=weights,
            passed=passed,
            measured_up_to=state.closed,
            total_measured_up_to=state.step if exact else state.counted,
        )


@dataclass(frozen=True, eq=False)
class TableTree:
    """The levels of one headline, with which tables agree from the top down. Public: it reads estimates only.

    A fit to noisy counts of a thousand places makes regions worse: counts below 0 are lifted to 0, so regions of many
    small places grow. So the coarsest level is made non-negative first, then the children of each node, with the
    node's sum. The finest level keeps the table's model inside each node: that knows other columns, too, and is nearer
    than its counts.

    Attributes:
        place, column: the finest level among the followed marginals, and among the columns.
        begin: where the cells of all trees begin among the clock's; ``parts``: where its levels stand among these, the
            coarsest first; ``variances``: of a period's cell.
        codes: of every value of the finest level, the code in each coarser one.
    """

    tree: Tree
    place: int
    column: int
    begin: int
    parts: tuple[slice, ...]
    variances: tuple[float, ...]
    codes: tuple[NDArray[np.int64], ...]

    def levels(self, cells: _Floats) -> list[_Floats]:
        """What the cells of all trees say of each level."""
        return [cells[part] for part in self.parts]

    def folded(self, finest: _Floats) -> list[_Floats]:
        """Exact counts of the finest level, at all levels."""
        sizes = self.tree.sizes[1:]
        above = [np.bincount(own, finest, size) for own, size in zip(self.codes, sizes, strict=False)]
        return [*(one.astype(np.float64) for one in above), finest]

    def shaped(
        self,
        levels: Sequence[_Floats],
        variances: Sequence[float],
        shape: _Floats,
        number: tuple[float, float] = (0.0, math.inf),
    ) -> _Floats:
        """Counts of the finest level, top-down from the least squares of all levels: not negative, with the sums of the
        nodes above; inside a node they keep a shape, which knows more than its measurements.

        Args:
            number: of records, and its variance.
        """
        found = Fitted(self.tree, (number[1], *variances)).estimate([np.array([number[0]]), *levels])
        top = [np.array([number[0]]) if math.isfinite(number[1]) else found[0]]
        wanted, parents = self.tree.top_down([*top, *found[1:-1]])[-1], self.tree.parents[-1]
        sums = np.bincount(parents, shape, len(wanted))
        return np.asarray(shape * (wanted / np.maximum(sums, 1e-9))[parents])


def trees_of(clocks: Sequence[Clock]) -> list[TableTree]:
    """The trees that the first clock measures."""
    found = list[TableTree]()
    for clock in clocks[:1]:
        at = sum(len(group) == 1 for group in clock.headlines)
        begin = clock.parts[at].start if at < len(clock.parts) else 0
        for group in clock.headlines:
            if len(group) == 1:
                continue
            own, at = slice(at, at + len(group)), at + len(group)
            finest, codes = group[-1], [fold.cells for fold in group[:-1] if fold.cells is not None]
            found.append(
                TableTree(
                    Tree.of_codes(
                        [clock.domain.names[fold.clique[0]] for fold in group],
                        [*codes, np.arange(finest.size, dtype=np.int64)],
                    ),
                    clock.cells.cliques.index(finest.clique),
                    finest.clique[0],
                    begin,
                    tuple(slice(part.start - begin, part.stop - begin) for part in clock.parts[own]),
                    tuple(clock.variances[own]),
                    tuple(codes),
                )
            )
    return found


def with_columns(model: Model, columns: Sequence[tuple[int, _Floats]]) -> Model:
    """A model whose columns have these counts."""
    for _ in range(_TREE_ROUNDS if len(columns) > 1 else 1):
        for column, counts in columns:
            model = model.with_column(column, counts) if counts.any() else model
    return model
