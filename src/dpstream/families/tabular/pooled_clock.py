"""The clock of headlines: what is measured at the end of every public period, beside the epochs of the table.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Periods, ends, next_end
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.joint import HistogramCells, HistogramsNoise
from dpstream.core.privacy.law import WeightedSum, has_law
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique, Domain, Fold
from dpstream.mechanisms.engine import Run
from dpstream.mechanisms.joint_groups import draws, noise_of
from dpstream.mechanisms.run_outputs import MIN_VARIANCE, RunOutput
from dpstream.mechanisms.workload_cells import Cells

_Floats = NDArray[np.float64]


#: So many periods show how long they are.
_USUAL = 12


@dataclass(frozen=True)
class Clock:
    """Marginals that are measured once a period, at its end.

    Guarantee: ``budget`` for an event. It is in one period, whose counts one measurement reads, and the next period's
    counts start again at nothing. The ends of periods are public: step numbers and options.

    Attributes:
        cells: the followed marginals.
        headlines: of this clock, each a marginal or the levels of a tree; none: the number of records.
        budget: of an event's period, for all of them together, in equal parts; levels share their tree's equally.
    """

    periods: Periods
    cells: Cells
    headlines: tuple[tuple[Fold, ...], ...]
    budget: Budget
    unit: Event

    @cached_property
    def marginals(self) -> list[Fold]:
        """What is measured: marginals of one headline each, then the levels of trees."""
        alone = [group for group in self.headlines if len(group) == 1]
        trees = [group for group in self.headlines if len(group) > 1]
        return [fold for group in (*alone, *trees) for fold in group]

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """The marginals by their columns; no column: the number of records."""
        return tuple(fold.clique for fold in self.marginals) or ((),)

    @property
    def domain(self) -> Domain:
        """Of the cliques."""
        return self.cells.workload.domain.released

    @property
    def labels(self) -> list[str]:
        """The headlines' marginals, for people."""
        return [self.domain.label(fold.clique) for fold in self.marginals]

    @cached_property
    def sizes(self) -> list[int]:
        """Their numbers of cells."""
        return [self.domain.cells(clique) for clique in self.cliques]

    @cached_property
    def parts(self) -> list[slice]:
        """Where each of them stands among the clock's cells."""
        last = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(last, self.sizes, strict=True)]

    @cached_property
    def draws(self) -> list[tuple[tuple[int, ...], Budget, Noise | HistogramsNoise]]:
        """Which of them are drawn together, with the budget and the noise of each draw."""
        shares = list[tuple[tuple[int, ...], Budget]]()
        alone = [group[0].size for group in self.headlines if len(group) == 1]
        if not self.headlines:
            shares = draws(self.sizes, self.budget, self.unit)
        elif alone:
            part = self.budget.scaled(Fraction(len(alone), len(self.headlines)))
            shares = draws(alone, part, self.unit)
        at = len(alone)
        for group in self.headlines:
            if len(group) > 1:
                each = self.budget.scaled(Fraction(1, len(self.headlines) * len(group)))
                shares += [((place,), each) for place in range(at, at + len(group))]
                at += len(group)
        return [
            (group, budget, noise_of(budget, [self.sizes[place] for place in group], self.unit))
            for group, budget in shares
        ]

    @cached_property
    def variances(self) -> list[float]:
        """The variance of the noise in one cell of each of them, in one period."""
        found = dict[int, float]()
        for group, _, noise in self.draws:
            own = noise.variances if isinstance(noise, HistogramsNoise) else (noise.variance,)
            found |= dict(zip(group, own, strict=True))
        return [max(found[place], MIN_VARIANCE) for place in range(len(self.cliques))]

    def half_widths(self, confidence: float) -> list[float]:
        """Of the interval of one cell of each of them, in one period."""
        found = {
            place: add_up_cells([(noise, self.sizes[place], 1, 1.0)]).half_width(confidence)
            for group, _, noise in self.draws
            for place in group
        }
        return [found[place] for place in range(len(self.cliques))]

    @cached_property
    def number_variance(self) -> float:
        """The variance of the noise in a period's number of events: the mean by inverse variance of what draws say."""
        return 1.0 / sum(1.0 / variance for _, _, variance in self.sums)

    @cached_property
    def sums(self) -> list[tuple[Noise | HistogramsNoise, int, float]]:
        """What its draws say of a period's number of events: the noise, how many cells make a sum, and its variance."""
        found = []
        for group, _, noise in self.draws:
            cells = self.sizes[group[0]]
            variance = noise.sum_variance if isinstance(noise, HistogramsNoise) else noise.variance * cells
            found.append((noise, cells, max(variance, MIN_VARIANCE)))
        return found

    @cached_property
    def usual_length(self) -> float:
        """How many steps a period has, as a rule."""
        begin = end = next_end(self.periods, 0)
        for _ in range(_USUAL):
            end = next_end(self.periods, end)
        return (end - begin) / _USUAL

    def ends(self, step: int, *last: int | None) -> bool:
        """Whether a period ends with a step; ``last``: the stream's last steps, as planned at any time."""
        return step in last or ends(self.periods, step)

    @cached_property
    def followed(self) -> list[tuple[int, slice, float]]:
        """Those that are followed marginals: their places there, where they stand here, and their variances."""
        own = zip(self.marginals, self.parts, self.variances, strict=False)
        return [(self.cells.cliques.index(f.clique), part, v) for f, part, v in own if f.cells is None]

    def read(self, counts: Mapping[Clique, NDArray[np.int64]]) -> NDArray[np.int64]:
        """Its cells of a step's counts. Private. A record is in one cell of each marginal."""
        if not self.headlines:
            return np.array([next(iter(counts.values())).sum()], dtype=np.int64)
        return np.concatenate([fold.of(counts[fold.source]) for fold in self.marginals])

    def measure(
        self, counts: NDArray[np.int64], randomness: Randomness
    ) -> tuple[_Floats, float, list[RunOutput]]:
        """Spend the period's budget once: all cells with noise, the number of events that they tell, and the draws as
        they are published."""
        exact = {clique: counts[part] for clique, part in zip(self.cliques, self.parts, strict=True)}
        run, values = Run(self.domain, exact, self.unit, randomness), np.zeros(len(counts))
        for group, budget, _ in self.draws:
            fresh = run.measure([self.cliques[place] for place in group], budget, self.kind)
            for place, measured in zip(group, fresh, strict=True):
                values[self.parts[place]] = measured.values
        period = {"period": self.periods.name}
        outputs = [replace(output, query={**output.query, **period}) for output in run.outputs]
        return values, run.total[0], outputs

    @property
    def kind(self) -> str:
        """Begins the names of its draws."""
        return "headline" if self.headlines else "period"


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


def number_half_width(clocks: Sequence[Clock], confidence: float) -> float:
    """Of the interval of a period's number of events, of all that some clocks with these periods say of it."""
    sums = [known for clock in clocks for known in clock.sums]
    whole = sum(1.0 / variance for *_, variance in sums)
    return add_up_cells(
        [(noise, cells, cells, 1.0 / (variance * whole)) for noise, cells, variance in sums]
    ).half_width(confidence)


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
