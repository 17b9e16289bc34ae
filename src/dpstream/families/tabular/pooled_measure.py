"""What one epoch's run has measured so far. The only code of pooled streams that reads an epoch's counts to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, estimate_total
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.cube import MAX_DIMENSION, CubeNoise
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import DiscreteGaussian, Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema.domain import Clique
from dpstream.families.tabular.pooled_division import Division
from dpstream.families.tabular.pooled_signs import Signs
from dpstream.families.tabular.run_outputs import RunOutput, measurements_of, signs_query, sum_of
from dpstream.families.tabular.targets import LEAST_VARIANCE
from dpstream.families.tabular.workload_cells import Cells


class Measurer(Protocol):
    """What noise there is: a runner."""

    def histogram_noise(self, budget: Budget) -> Noise:
        """The noise of each cell of a histogram."""
        ...

    def sign_noise(self, budget: Budget, sums: int) -> CubeNoise | DiscreteGaussian:
        """The noise of some sums, each of which a record changes by at most 1."""
        ...

    def histograms_noise(self, budget: Budget, sizes: Sequence[int]) -> HistogramsNoise:
        """The noise of several histograms that are drawn together."""
        ...


@dataclass
class RunMeasurements:
    """Measurements of one run, with the noise of each.

    Attributes:
        counts: private, all cells of the followed marginals.
        public_total: number of events where the owner declared it public.
        measured: the measurements, by marginal.
        sums: measurements whose sums tell the number of events, with errors of their own.
        signs: (value, variance) of each column's sum of signs.
        outputs: everything that was drawn, as it came out.
    """

    by: Measurer
    cells: Cells
    own: Signs
    division: Division
    counts: NDArray[np.int64]
    randomness: Randomness
    public_total: float | None
    measured: dict[int, Measurement] = field(default_factory=dict)
    sums: list[Measurement] = field(default_factory=list)
    signs: dict[int, tuple[float, float]] = field(default_factory=dict)
    outputs: list[RunOutput] = field(default_factory=list)

    @property
    def total(self) -> tuple[float, float]:
        """The number of events, and its variance."""
        return (self.public_total, 0.0) if self.public_total is not None else estimate_total(self.sums)

    def histogram(self, index: int, budget: Budget, kind: str = "", *, chosen: bool = False) -> None:
        """Measure a marginal's cells with independent noise; ``kind`` names the draw where there may be another."""
        self._draw([index], self.by.histogram_noise(budget), kind, chosen=chosen)

    def together(self, group: Sequence[int], budget: Budget, kind: str = "", *, chosen: bool = False) -> None:
        """Measure the cells of marginals by one draw: of several, by joint noise. ``kind`` as of ``histogram``."""
        if len(group) == 1:
            self.histogram(group[0], budget, kind, chosen=chosen)
            return
        noise = self.by.histograms_noise(budget, [int(self.cells.sizes[index]) for index in group])
        self._draw(group, noise, kind, chosen=chosen)

    def _draw(self, group: Sequence[int], noise: Noise | HistogramsNoise, kind: str, *, chosen: bool) -> None:
        exact = np.concatenate([self.counts[self.cells.part(index)] for index in group])
        values = self.randomness.measure(exact, noise)
        cliques, domain = [self.cells.cliques[index] for index in group], self.cells.workload.domain
        self.outputs.append(RunOutput.of_draw(domain, cliques, values, noise, kind, chosen=chosen))
        own = measurements_of(cliques, values, noise)
        for index, measurement in zip(group, own, strict=True):
            self._book(index, measurement)
        self.sums.append(sum_of(own, noise))

    def _book(self, index: int, measurement: Measurement) -> None:
        """Note a measurement; of a marginal that was measured before, the mean by precision."""
        before = self.measured.get(index)
        if before is not None:
            whole = before.variance + measurement.variance
            share = before.variance / whole
            values = before.values + share * (measurement.values - before.values)
            measurement = Measurement(before.clique, values, before.variance * measurement.variance / whole)
        self.measured[index] = measurement

    def joint(self, pairs: Sequence[int], budget: Budget) -> None:
        """Measure all columns of two values and some of their pairs, and the number of events where it is not
        public."""
        columns = self.own.singles
        terms = [self.cells.cliques[i] for i in (*columns, *pairs)]
        exact = self.own.read(self.counts, [*columns, *pairs])
        if self.public_total is None:
            terms.append(())
            exact.append(int(self.counts[self.cells.part(columns[0])].sum()))
        # Where there is no room for all pairs, earlier epochs say which ones are measured.
        some = [self.cells.cliques[i] for i in pairs] if len(pairs) < len(self.own.pairs) else []
        values, variance = self._sums(terms, exact, budget, some)
        if self.public_total is None:
            # As a histogram of one cell; its column does not matter to the sum.
            self.sums.append(Measurement((), np.array(values[-1:]), variance))
        for index, value in zip(columns, values, strict=False):
            self.signs[self.cells.cliques[index][0]] = (value, variance)
        total = self.total
        for index in columns:
            self._book(index, self.own.column(index, total, self.signs[self.cells.cliques[index][0]]))
        for index, value in zip(pairs, values[len(columns) :], strict=False):
            self._pair(index, (value, variance), total)

    def chosen(self, indices: Sequence[int], budget: Budget) -> None:
        """Measure marginals that were selected together: those of two signs by their products, others by histograms."""
        products = [i for i in indices if self.signs and i in self.own.joint_pairs][:MAX_DIMENSION]
        own_products = set(products)
        rest = [i for i in indices if i not in own_products]
        groups, weight = self.division.groups(rest), self.division.shares.products(len(products))
        whole = weight + sum(map(self.division.weight, groups))
        for group in groups:
            share = Fraction(self.division.weight(group), whole)
            self.together(group, budget.scaled(share), chosen=True)
        if products:
            terms, own = [self.cells.cliques[i] for i in products], budget.scaled(Fraction(weight, whole))
            values, variance = self._sums(terms, self.own.read(self.counts, products), own, terms)
            total = self.total
            for index, value in zip(products, values, strict=True):
                self._pair(index, (value, variance), total)

    def _sums(
        self, terms: list[Clique], exact: list[int], budget: Budget, chosen: Sequence[Clique]
    ) -> tuple[list[float], float]:
        noise = self.by.sign_noise(budget, len(exact))
        values = self.randomness.measure(np.array(exact, dtype=np.int64), noise)
        query = signs_query(self.cells.workload.domain, terms, chosen)
        self.outputs.append(RunOutput("signs", query, values, noise))
        return values.astype(np.float64).tolist(), max(noise.variance, LEAST_VARIANCE)

    def _pair(self, index: int, product: tuple[float, float], total: tuple[float, float]) -> None:
        one, two = (self.signs[column] for column in self.cells.cliques[index])
        self.measured[index] = self.own.pair(index, total, one, two, product)
