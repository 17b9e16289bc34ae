"""The clock of headlines: what is measured at the end of every public period, beside the epochs of the table.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Periods, ends
from dpstream.core.graphical import Measurement, estimate_total
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique
from dpstream.mechanisms.engine import Run
from dpstream.mechanisms.joint_groups import draws, noise_of
from dpstream.mechanisms.run_outputs import MIN_VARIANCE, RunOutput
from dpstream.mechanisms.workload_cells import Cells

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Clock:
    """Marginals that are measured once a period, at its end.

    Guarantee: ``budget`` for an event. It is in one period, whose counts one measurement reads, and the next period's
    counts start again at nothing. The ends of periods are public: step numbers and options.

    Attributes:
        cells: the followed marginals, and ``places``: those of this clock; none: the number of records.
        budget: of an event's period, for all of them together.
    """

    periods: Periods
    cells: Cells
    places: tuple[int, ...]
    budget: Budget
    unit: Event

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """The marginals by their columns; no column: the number of records."""
        return tuple(self.cells.cliques[place] for place in self.places) or ((),)

    @cached_property
    def sizes(self) -> list[int]:
        """Their numbers of cells."""
        return [self.cells.workload.domain.cells(clique) for clique in self.cliques]

    @cached_property
    def parts(self) -> list[slice]:
        """Where each of them stands among the clock's cells."""
        last = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(last, self.sizes, strict=True)]

    @cached_property
    def draws(self) -> list[tuple[tuple[int, ...], Budget, Noise | HistogramsNoise]]:
        """Which of them are drawn together, with the budget and the noise of each draw."""
        return [
            (group, budget, noise_of(budget, [self.sizes[place] for place in group], self.unit))
            for group, budget in draws(self.sizes, self.budget, self.unit)
        ]

    @cached_property
    def variances(self) -> list[float]:
        """The variance of the noise in one cell of each of them, in one period."""
        found = dict[int, float]()
        for group, _, noise in self.draws:
            own = noise.variances if isinstance(noise, HistogramsNoise) else (noise.variance,)
            found |= dict(zip(group, own, strict=True))
        return [max(found[place], MIN_VARIANCE) for place in range(len(self.cliques))]

    def ends(self, step: int, *last: int | None) -> bool:
        """Whether a period ends with a step; ``last``: the stream's last steps, as planned at any time."""
        return step in last or ends(self.periods, step)

    def read(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Its cells of a step's counts of all followed marginals. Private."""
        if not self.places:
            return np.array([counts[self.cells.part(0)].sum()], dtype=np.int64)
        return np.concatenate([counts[self.cells.part(place)] for place in self.places])

    def measure(self, counts: NDArray[np.int64], randomness: Randomness) -> tuple[_Floats, list[RunOutput]]:
        """Spend the period's budget once: all cells with noise, and the draws as they are published."""
        exact = {clique: counts[part] for clique, part in zip(self.cliques, self.parts, strict=True)}
        run, values = Run(self.cells.workload.domain, exact, self.unit, randomness), np.zeros(len(counts))
        for group, budget, _ in self.draws:
            fresh = run.measure([self.cliques[place] for place in group], budget, self.kind)
            for place, measured in zip(group, fresh, strict=True):
                values[self.parts[place]] = measured.values
        period = {"period": self.periods.name}
        return values, [replace(output, query={**output.query, **period}) for output in run.outputs]

    @property
    def kind(self) -> str:
        """Begins the names of its draws."""
        return "headline" if self.places else "period"


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


#: Epochs and periods each give the number of events.
EPOCHS, PERIODS = 0, 1


@dataclass
class Number:
    """The number of events, as epochs and periods give it: their mean by inverse variance up to the last step at which
    both ended, and from there on what reaches furthest. Public.

    Attributes:
        settled, variance: up to that step.
        values, variances, upto: since then, by epochs and by periods, and the step up to which each reaches.
        periods, noise: the newest periods' numbers, with the variance of their noise; ``ends``: their last steps.
        begun: the step before the first of these periods.
    """

    settled: float = 0.0
    variance: float = 0.0
    values: list[float] = field(default_factory=lambda: [0.0, 0.0])
    variances: list[float] = field(default_factory=lambda: [0.0, 0.0])
    upto: list[int] = field(default_factory=lambda: [0, 0])
    periods: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    begun: int = 0

    def add(self, series: int, value: float, variance: float, upto: int, *, alone: bool) -> None:
        """Take in what an epoch or a period gave.

        Args:
            alone: whether this is the only series.
        """
        if alone:
            self.settled, self.variance, self.upto = (
                self.settled + value,
                self.variance + variance,
                [upto] * 2,
            )
            return
        self.values[series] += value
        self.variances[series] += variance
        self.upto[series] = upto
        if series == PERIODS:
            self._remember(value, variance, upto)
        if self.upto[EPOCHS] == self.upto[PERIODS]:
            both = zip(self.values, self.variances, strict=True)
            mean, spread = estimate_total(Measurement((), np.array([own]), noise) for own, noise in both)
            self.settled, self.variance = self.settled + mean, self.variance + spread
            self.values, self.variances = [0.0, 0.0], [0.0, 0.0]

    def _remember(self, value: float, variance: float, upto: int) -> None:
        self.periods.append(value)
        self.noise.append(variance)
        self.ends.append(upto)
        if len(self.ends) > _REMEMBERED:
            self.begun = self.ends.pop(0)
            del self.periods[0], self.noise[0]

    @property
    def known(self) -> tuple[float, float, int]:
        """The number, the variance of its noise, and the step up to which it reaches."""
        best = int(np.argmax(self.upto))
        return self.settled + self.values[best], self.variance + self.variances[best], self.upto[best]


#: Periods from which the next one's number is expected.
_REMEMBERED = 60
