"""The clock of headlines: what is measured at the end of every public period, beside the epochs of the table.

Trusted base: kernel (counts and measures).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Periods, ends, next_end
from dpstream.core.privacy import Budget, Event, HistogramsNoise, Noise, Randomness
from dpstream.core.schema.domain import Clique, Domain, Fold
from dpstream.families.tabular.pooled_book import add_up_cells
from dpstream.mechanisms.engine import Run
from dpstream.mechanisms.joint_groups import draws, noise_of
from dpstream.mechanisms.run_outputs import MIN_VARIANCE, RunOutput
from dpstream.mechanisms.workload_cells import Cells

_Floats = NDArray[np.float64]


#: So many periods show how long they are.
_USUAL = 12


def usual_length(periods: Periods) -> float:
    """How many steps a period has, as a rule."""
    begin = end = next_end(periods, 0)
    for _ in range(_USUAL):
        end = next_end(periods, end)
    return (end - begin) / _USUAL


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
