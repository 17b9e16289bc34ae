"""What the fits of DP-STabS are asked to match. Everything here is public post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter
from dpstream.core.graphical import Measurement
from dpstream.families.tabular.limits import Room
from dpstream.families.tabular.state import DPStabsState, Side
from dpstream.families.tabular.workload_cells import Cells

#: The smallest variance that fits use: at huge budgets the noise's own is below what floating point can weigh.
LEAST_VARIANCE = 1e-9


@dataclass(frozen=True)
class Targets:
    """Turns counter outputs into measurements for the fits."""

    cells: Cells
    counter: CalibratedCounter
    max_cells: int

    def gain_variance(self, ticks: int) -> float:
        """Variance of what one cell of a counter gained at its latest tick. Only a weight in fits.

        Outputs of a counter share most of their noise: the sum of both variances would be far too much.
        """
        return max(self.counter.gain_variance(ticks), LEAST_VARIANCE)

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

    def cell_variance(self, state: DPStabsState, index: int) -> float:
        """Noise variance of one cell of a workload's ``m_i``."""
        return sum(self.variance(max(int(side.ticks[index]), 1)) for side in state.sides)

    def total_variance(self, side: Side, step: int) -> float | None:
        """Variance of a side's noisy total; None where it is not known."""
        if side.noise is not None:
            return side.noise.variance
        if (side.ticks == step).all():
            # The weights never changed, so that the counters' gains add up to their outputs.
            return self.variance(step) / float((1.0 / self.cells.sizes).sum())
        return None

    def booked(self, state: DPStabsState, indices: Sequence[int]) -> list[Measurement]:
        """``m_i = C_i + r_i`` (Algorithm 3) for some workloads."""
        values = state.booked
        return [
            Measurement(self.cells.cliques[i], values[self.cells.part(i)], self.cell_variance(state, i))
            for i in indices
        ]

    def columns(self, state: DPStabsState) -> list[Measurement]:
        """Every column's own distribution: the mean of what its workloads say of it.

        A column that depends on no other is in no kept workload, and would be uniform in the table's model.
        """
        values, everything = state.booked, range(len(self.cells.cliques))
        variances = np.array([self.cell_variance(state, i) for i in everything])
        means = []
        for column, (slots, owners, cells) in self._slots.items():
            size = self.cells.workload.domain.sizes[column]
            summed = np.bincount(slots, values[cells], minlength=size) / len(owners)
            variance = float((variances[owners] * self.cells.sizes[owners]).sum()) / size
            means.append(Measurement((column,), summed.astype(np.float64), variance / len(owners) ** 2))
        return means

    @cached_property
    def _slots(self) -> dict[int, tuple[NDArray[np.int64], list[int], NDArray[np.int64]]]:
        """Per column: its value in each cell of the workloads that have it, those workloads, their cells."""
        domain = self.cells.workload.domain
        slots_of = {}
        for column in range(len(domain)):
            owners = [i for i, clique in enumerate(self.cells.cliques) if column in clique]
            if not owners:
                continue
            slots, cells = [], []
            for i in owners:
                clique, part = self.cells.cliques[i], self.cells.part(i)
                slots.append(np.indices(domain.shape(clique))[clique.index(column)].ravel())
                cells.append(np.arange(part.start, part.stop))
            slots_of[column] = (np.concatenate(slots), owners, np.concatenate(cells))
        return slots_of

    def choose_kept(self, state: DPStabsState) -> list[int]:
        """The workloads that the table's model should hold: greedily by what independence would get wrong per
        cell (as the error is judged), while the junction tree stays small enough."""
        values = state.booked
        gains: list[tuple[float, int]] = []
        singles = self._singles(state)
        for i, clique in enumerate(self.cells.cliques):
            product = np.array([max(state.total, 0.0)])
            for column in clique:
                product = np.outer(product, singles[column]).ravel()
            distance = float(np.abs(values[self.cells.part(i)] - product).mean())
            gains.append((distance * float(self.cells.workload.weights[i]), i))
        room = Room(self.cells.workload, self.max_cells)
        return room.take_in_order([i for _, i in sorted(gains, reverse=True)])

    def _singles(self, state: DPStabsState) -> list[NDArray[np.float64]]:
        """One probability vector per column, clipped at 0 and normalised; uniform where nothing is known."""
        known = {m.clique[0]: np.maximum(m.values, 0.0) for m in self.columns(state)}
        singles = []
        for column, size in enumerate(self.cells.workload.domain.sizes):
            values = known.get(column, np.ones(size))
            whole = values.sum()
            singles.append(values / whole if whole > 0.0 else np.full(size, 1.0 / size))
        return singles
