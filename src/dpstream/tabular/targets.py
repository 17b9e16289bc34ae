"""What the fits of DP-STabS are asked to match. Everything here is public post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.counters import CalibratedCounter
from dpstream.graphical import Measurement
from dpstream.tabular.cells import Cells
from dpstream.tabular.limits import within
from dpstream.tabular.state import DPStabsState

__all__ = ["LEAST_VARIANCE", "Targets"]

#: At huge budgets the noise's variance is below what floating point can weigh; as good as exact.
LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Targets:
    """Turns counter outputs into measurements for the fits."""

    cells: Cells
    counter: CalibratedCounter
    max_cells: int

    def gain_variance(self, ticks: int) -> float:
        """Variance of what one cell of a counter gained at its latest tick.

        Exact for the simple counter, whose increments are independent; for others the sum of both outputs'
        variances. Only a weight in fits.
        """
        now = self.variance(ticks)
        before = self.variance(ticks - 1) if ticks > 1 else 0.0
        return max(now - before, LEAST_VARIANCE) if self.counter.name == "simple" else now + before

    def variance(self, ticks: int) -> float:
        """The counter's variance after some ticks, remembered: every fit asks for many."""
        known = self._variances.get(ticks)
        if known is None:
            if len(self._variances) > 10_000:
                self._variances.clear()
            known = self._variances[ticks] = max(self.counter.variance(ticks), LEAST_VARIANCE)
        return known

    @cached_property
    def _variances(self) -> dict[int, float]:
        return {}

    def booked(self, state: DPStabsState, indices: Sequence[int]) -> list[Measurement]:
        """``m_i = C_i + r_i`` (Algorithm 3) for some workloads."""
        return [
            Measurement(
                self.cells.cliques[i],
                state.estimates[self.cells.part(i)] + state.remainder[self.cells.part(i)],
                self.variance(max(int(state.ticks[i]), 1)),
            )
            for i in indices
        ]

    def choose_kept(self, state: DPStabsState, total: float) -> list[int]:
        """The workloads that the table's model should hold: greedily by what independence would get wrong per
        cell (as the error is judged), while the junction tree stays small enough."""
        values = state.estimates + state.remainder
        gains: list[tuple[float, int]] = []
        singles = self._singles(values)
        for i, clique in enumerate(self.cells.cliques):
            product = np.array([max(total, 0.0)])
            for column in clique:
                product = np.outer(product, singles[column]).ravel()
            distance = float(np.abs(values[self.cells.part(i)] - product).mean())
            gains.append((distance * float(self.cells.workload.weights[i]), i))
        chosen: list[int] = []
        for _, i in sorted(gains, reverse=True):
            if within(self.cells.workload, chosen, [i], self.max_cells):
                chosen.append(i)
        return chosen

    def _singles(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """One probability vector per column: the mean over its workloads, clipped at 0 and normalised."""
        domain = self.cells.workload.domain
        sums = [np.zeros(size) for size in domain.sizes]
        for i, clique in enumerate(self.cells.cliques):
            table = values[self.cells.part(i)].reshape(domain.shape(clique))
            for j, column in enumerate(clique):
                sums[column] += table.sum(axis=tuple(a for a in range(len(clique)) if a != j))
        singles = []
        for size, summed in zip(domain.sizes, sums, strict=True):
            clipped = np.maximum(summed, 0.0)
            whole = clipped.sum()
            singles.append(clipped / whole if whole > 0.0 else np.full(size, 1.0 / size))
        return singles
