"""What is public of a pooled stream's memory: closed epochs, models, and what they let expect of the open epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Periods, ends, next_end
from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.privacy import HistogramCells, HistogramsNoise, Noise
from dpstream.core.privacy.law import WeightedSum, has_law
from dpstream.core.schema import Clique, Found
from dpstream.families.tabular.pooled_estimates import Estimates
from dpstream.mechanisms.workload_cells import Cells

# What periods gave. Public.

_Floats = NDArray[np.float64]


@dataclass
class Flows:
    """What the periods of one clock gave of one kind of events, since the last step that ended an epoch, too. Public.

    Attributes:
        values: sums over these periods, all cells of the clock; ``many``: how many periods.
        first: the first epoch that lies in them.
    """

    values: _Floats
    many: int = 0
    first: int = 0

    def add(self, values: _Floats) -> None:
        """One period more."""
        self.values = self.values + values
        self.many += 1


#: Epochs are the first series that gives the number of events; the clocks follow.
EPOCHS = 0
#: Periods from which the next one's number is expected.
_REMEMBERED = 60


@dataclass
class Number:
    """The number of events up to several steps, by least squares over all that epochs and periods measured. Public.

    Each series (epochs, and the periods of each clock) adds its next span to its last end. Where two stand at one step,
    they are one number: what they are apart is noise, which all are corrected for. So nothing that is only expected
    enters, and the covariance is that of noise alone.

    Attributes:
        upto: where each series stands. values, covariance: the number up to there, and its errors.
        periods, noise: the last clock's newest numbers, with the variance of their noise; ``ends``: their last steps.
        begun: the step before the first of these periods.
    """

    upto: list[int]
    values: _Floats
    covariance: _Floats
    periods: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    begun: int = 0

    @classmethod
    def fresh(cls, clocks: int = 0) -> Number:
        """Nothing came before the first step."""
        series = 1 + clocks
        return cls([0] * series, np.zeros(series), np.zeros((series, series)))

    def add(self, series: int, value: float, variance: float, upto: int) -> None:
        """Take in the span after a series' last end, up to a step: an epoch, or a period of a clock (from 1 on)."""
        if series != EPOCHS and series == len(self.upto) - 1:
            self._remember(value, variance, upto)
        self.upto[series] = upto
        self.values[series] += value
        self.covariance[series, series] += variance
        for other in range(len(self.upto)):
            if self.upto[other] == upto:
                self._agree(series, other)

    def _agree(self, one: int, other: int) -> None:
        """Correct all numbers for what two numbers of one step are apart."""
        joint = self.covariance[one] - self.covariance[other]
        apart = float(joint[one] - joint[other])
        if apart <= 0.0:
            return
        gain = joint / apart
        self.values -= gain * (self.values[one] - self.values[other])
        self.covariance -= np.outer(gain, joint)
        self.values[other] = self.values[one]
        self.covariance[other], self.covariance[:, other] = self.covariance[one], self.covariance[:, one]

    def _remember(self, value: float, variance: float, upto: int) -> None:
        self.periods.append(value)
        self.noise.append(variance)
        self.ends.append(upto)
        if len(self.ends) > _REMEMBERED:
            self.begun = self.ends.pop(0)
            del self.periods[0], self.noise[0]

    @property
    def known(self) -> tuple[float, float, int]:
        """The number up to the last step that any series reached, the variance of its noise, and this step."""
        last = int(np.argmax(self.upto))
        return float(self.values[last]), max(float(self.covariance[last, last]), 0.0), self.upto[last]


# What the open epoch lets expect: how a table goes on as it went. Public: it reads what closed epochs gave.


@dataclass(frozen=True, eq=False)
class Ahead:
    """What the open epoch lets expect, from its first step up to each further one: sums over steps. Public.

    Attributes:
        events: of each side, shape (sides, steps).
        columns: of the inserts (or all events), the counts of all columns side by side: shape (steps, cells).
    """

    events: NDArray[np.float64]
    columns: NDArray[np.float64]

    def growth(self, since: int) -> float:
        """Of the table, in so many steps."""
        first, *others = self.events[:, since - 1].tolist()
        return float(first - sum(others))


def clear_part(growth: Any, variance: float) -> NDArray[np.float64]:
    """What of a noisy growth is expected to go on: nothing below two standard errors, nearly all of it far above."""
    growth = np.asarray(growth, dtype=np.float64)
    within = growth**2 <= 4.0 * variance
    return np.where(within, 0.0, growth - 4.0 * variance / np.where(within, 1.0, growth))


def growth_error(growth: float, newest: float, share: float) -> tuple[float, float]:
    """The variance that an expected growth adds to a total, and the part of the growth that is expected on average.

    The noise is taken to be normal; it is in the total and, ``share`` of it, in the growth.

    Args:
        growth: the true one. newest: the variance of the noise in the newest epoch's number.
        share: steps since the border, by those of the newest epoch.
    """
    deviations = np.linspace(-6.0, 6.0, 481)
    chances = np.exp(-(deviations**2) / 2)
    chances /= chances.sum()
    noise = deviations * math.sqrt(newest)
    kept = clear_part(growth + share * noise, share**2 * newest)
    added = float(chances @ (noise + kept - growth) ** 2) - newest
    went_on = float(chances @ kept) / growth if growth else 0.0
    return max(added, 0.0), min(1.0, max(0.0, went_on))


@dataclass
class PublicSide:
    """What is remembered of one kind of events: all of them, or the inserts, or the deletes.

    Attributes:
        estimates: what closed epochs said.
        rate: noisy number of events per step, of the last closed epoch or as the newest periods let expect; before
            there is one, the guessed number.
        rate_variance: of the noise in ``rate``.
        steady: whether no column was found to drift at the last border.
        number: of events. flows: what periods gave since the last border at which one ended, by clock.
        levels: what they gave of each tree's levels before, and ``level_periods``: how many they were.
    """

    estimates: Estimates
    rate: float
    rate_variance: float = 0.0
    steady: bool = False
    number: Number = field(default_factory=Number.fresh)
    flows: list[Flows] = field(default_factory=list)
    levels: _Floats = field(default_factory=lambda: np.zeros(0))
    level_periods: int = 0

    @property
    def total(self) -> float:
        """Noisy number of events, as far as they are measured."""
        return self.number.known[0]

    @property
    def variance(self) -> float:
        """Of the noise in it."""
        return self.number.known[1]


@dataclass
class PooledBook:
    """What is public of all that a pooled stream remembers.

    Attributes:
        step: steps done.
        closed: the last border.
        border: the next one.
        sides: one, or with ``deletions`` two: inserts and deletes.
        open_total: events less deleted ones since the last border, where their numbers are public; else 0.
        models: what each side's next run starts from (public): the shape of all its closed epochs.
        latest: model of the inserts (or all events) of the last closed epoch (public).
        table: the table's model at the last border (public).
        base: marginals of the table that the stream began with, all cells; zeros if it began empty.
        base_total: its number of records; ``base_variance`` of that, None where it is not known.
        table_total: number of records at the last border.
        began: the step before each clock's open period.
        moved: the shape of the records since then, moved to the headlines of periods that ended.
        ahead: with a season, what the steps up to the next border let expect (public); None: they go on as the last
            closed epoch.
        found: the values that were discovered, by column (public).
        discovered: the last step that ended a discovery epoch; ``found_total``: the number of records then.
    """

    step: int
    closed: int
    border: int
    sides: tuple[PublicSide, ...]
    open_total: float
    models: tuple[Model, ...]
    latest: Model
    table: Model
    base: NDArray[np.float64]
    base_total: float
    base_variance: float | None
    began: list[int]
    table_total: float = 0.0
    moved: Model | None = None
    ahead: Ahead | None = None
    found: dict[str, list[Found]] = field(default_factory=dict)
    found_total: float = 0.0
    discovered: int = 0

    @property
    def counted(self) -> int:
        """The step up to which the number of records is measured."""
        return self.sides[0].number.known[2]

    @property
    def total(self) -> float:
        """Noisy number of records then."""
        return self.base_total + self.sides[0].total - sum(side.total for side in self.sides[1:])

    def expected_growth(self) -> float:
        """How many records more the table has than when they were counted: as the last closed epoch went, or as the
        newest periods let expect.

        Where records leave, growth is a small difference of two noisy numbers: only its ``clear_part`` is expected. A
        table that shrinks does so in proportion to what is left.
        """
        since, counted = self.step - self.counted, self.counted - self.closed
        growth = (self.sides[0].rate - sum(side.rate for side in self.sides[1:])) * since
        if self.ahead is not None and since:
            growth = self.ahead.growth(since + counted) - (self.ahead.growth(counted) if counted else 0.0)
        if len(self.sides) == 1 or not since:
            return growth
        growth = float(clear_part(growth, sum(side.rate_variance for side in self.sides) * since**2))
        if growth >= 0.0:
            return growth
        last = self.sides[0].estimates.ends[-2:]
        length, total = last[-1] - (last[0] if len(last) == 2 else 0), max(self.total, 0.0)
        before = total - growth * length / since
        return float(total * ((total / before) ** (since / length) - 1.0))

    def total_error(self, *, exact: bool) -> float | None:
        """Standard error of the noisy total; None where events are only expected.

        Args:
            exact: the numbers of events are public.
        """
        if self.base_variance is None or (self.step > self.counted and not exact):
            return None
        return math.sqrt(self.base_variance + (0.0 if exact else sum(side.variance for side in self.sides)))


#: A fit to columns alone starts from a model that is near them.
_ITERATIONS = 20


def look_ahead(state: PooledBook, cells: Cells) -> Ahead | None:
    """What the steps up to the one before the next border let expect; None where there is none."""
    steps = range(state.closed + 1, state.border)
    if not steps:
        return None
    rates = np.array([side.estimates.expected_rates(steps) for side in state.sides])
    shares = state.sides[0].estimates.expected_columns(_start(state).flat_marginals(cells.cliques), steps)
    return Ahead(rates.cumsum(axis=1), (rates[0][:, None] * shares).cumsum(axis=0))


def open_model(state: PooledBook, cells: Cells, since: int, max_cells: int) -> Model:
    """The shape of the open epoch's records: a known model, moved to the columns that are expected."""
    if state.moved is not None:
        return state.moved
    if state.ahead is None:
        return state.latest
    counts = np.maximum(state.ahead.columns[since - 1], 1e-6)
    columns = [(i, clique) for i, clique in enumerate(cells.cliques) if len(clique) == 1]
    targets = [Measurement(clique, counts[cells.part(i)], 1.0) for i, clique in columns]
    total = max(float(state.ahead.events[0, since - 1]), 1e-6)
    return fit(
        cells.workload.domain,
        targets,
        total=total,
        warm=_start(state).with_total(total),
        iterations=_ITERATIONS,
        max_cells=max_cells,
    )


def moved_model(
    shape: Model, measured: Sequence[tuple[Clique, NDArray[np.float64], float]], max_cells: int
) -> Model:
    """A shape of records, moved to marginals that were measured: by the part of their distance that noise does not
    explain (as James and Stein have it).

    Args:
        measured: a marginal, its cells, and the variance of the noise in one of them.
    """
    total, targets = (
        max(float(np.mean([values.sum() for _, values, _ in measured])), 1e-6),
        list[Measurement](),
    )
    for clique, values, variance in measured:
        answer = shape.with_total(total).marginal(clique)
        apart = values - answer
        beside = float(apart @ apart)
        believed = max(0.0, 1.0 - variance * len(values) / beside) if beside > 0.0 else 0.0
        targets.append(Measurement(clique, np.maximum(answer + believed * apart, 1e-6), 1.0))
    return fit(
        shape.domain,
        targets,
        total=total,
        warm=shape.with_total(total),
        iterations=_ITERATIONS,
        max_cells=max_cells,
    )


def _start(state: PooledBook) -> Model:
    """The table's model, which knows all epochs; where records leave, it holds fewer than came: the last epoch's."""
    return state.table if len(state.sides) == 1 else state.latest


@dataclass(frozen=True)
class Epochs:
    """Epochs that grow in proportion to the steps so far.

    After a border at step ``c`` the next one is at the last step at which the open epoch holds more than ``staleness``
    of all steps: ``floor(c / (1 - staleness)) + 1``, so that at any step the steps not yet measured are at most
    that share of all steps, or a single one. The stream's last step is a border, too: the horizon's, and the last one
    that the owner plans (``last``), which may be moved, also after a stream has passed it.

    With ``periods`` an epoch ends with the period end that is nearest to that border, if it makes the epoch at most
    half longer; else with the last one inside, if any. An epoch that begins inside a period ends with it or before: so
    every period is made of whole epochs, or every epoch of whole periods.

    >>> epochs, border, borders = Epochs(Fraction(1, 10), 40), 0, []
    >>> while border < 40:
    ...     border = epochs.after(border)
    ...     borders.append(border)
    >>> borders
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 32, 36, 40]
    """

    staleness: Fraction
    horizon: int | None
    last: int | None = None
    periods: Periods | None = None

    @property
    def end(self) -> int | None:
        """The last step, as far as it is planned."""
        return min((step for step in (self.horizon, self.last) if step is not None), default=None)

    def after(self, border: int) -> int:
        """The first border after one (0: before the first step)."""
        following = int(border // (1 - self.staleness)) + 1
        if self.periods is not None:
            following = self._aligned(self.periods, border, following)
        if self.last is not None and border < self.last:
            following = min(following, self.last)
        return following if self.horizon is None else min(following, self.horizon)

    def _aligned(self, periods: Periods, border: int, following: int) -> int:
        inside, end = border, next_end(periods, border)
        if not border or ends(periods, border):
            while end < following:
                inside, end = end, next_end(periods, end)
        nearest = inside if border < inside and following - inside <= end - following else end
        if 2 * (nearest - border) <= 3 * (following - border):
            return nearest
        return inside if inside > border else following


# The law of sums of cells that periods measured.


def add_up_cells(draws: Sequence[tuple[Noise | HistogramsNoise, int, int, float]]) -> WeightedSum:
    """The law of a sum of cells of several draws.

    Args:
        draws: each with its noise, the cells of a histogram in it, how many of these are added up, and their weight.
    """
    alone, joint, loose = (
        list[tuple[Noise, float, int]](),
        list[tuple[HistogramCells, int, float, int]](),
        0.0,
    )
    for noise, cells, many, weight in draws:
        if not isinstance(noise, HistogramsNoise):
            alone.append((noise, weight, many))
        elif has_law(histogram := HistogramCells(noise, cells), many):
            joint.append((histogram, many, weight, 1))
        else:
            loose += weight**2 * histogram.variance_of_sum(many, many)
    return WeightedSum(tuple(alone), loose=loose, histograms=tuple(joint))


def number_half_width(sums: Sequence[tuple[Noise | HistogramsNoise, int, float]], confidence: float) -> float:
    """Of the interval of a period's number of events, of all that some clocks with these periods say of it.

    Args:
        sums: of the clocks, ``Clock.sums``.
    """
    whole = sum(1.0 / variance for *_, variance in sums)
    return add_up_cells(
        [(noise, cells, cells, 1.0 / (variance * whole)) for noise, cells, variance in sums]
    ).half_width(confidence)
