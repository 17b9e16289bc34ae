"""What the fit of a DP-STabS step is asked to match. Everything here is public post-processing.

Two readings of "the past of a workload that was not always measured":

* ``literal`` (Kumar et al., Algorithm 3): ``m_i = C_i + r_i``, where ``r_i`` books the synthetic table's own
  answer for every step at which ``i`` was not measured. Only the workloads selected at this step are fitted;
  the rest of the model is carried by the warm start.
* ``measured``: ``C_i`` scaled from the records it has seen to all records. All workloads measured so far are
  fitted, weighted by their variances, as far as the model's size allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.counters import CalibratedCounter
from dpstream.graphical import Measurement, tree_cells
from dpstream.schema.domain import Clique
from dpstream.tabular.cells import Cells
from dpstream.tabular.state import DPStabsState

__all__ = ["Targets"]


@dataclass(frozen=True)
class Targets:
    """Turns counter outputs into measurements for the fit."""

    cells: Cells
    counter: CalibratedCounter
    max_cells: int

    def literal(self, state: DPStabsState, chosen: Sequence[int]) -> list[Measurement]:
        """``m_j = C_j + r_j`` for the workloads selected at this step."""
        return [
            Measurement(
                self.cells.cliques[j],
                state.estimates[self.cells.part(j)] + state.remainder[self.cells.part(j)],
                self.counter.variance(int(state.ticks[j])),
            )
            for j in chosen
        ]

    def measured(self, state: DPStabsState, total: float) -> list[Measurement]:
        """Every marginal in the model scaled to all records, and the columns' own distributions."""
        variances = self.scaled_variances(state, total)
        factors = self._factors(state, total)
        pairs = [
            Measurement(
                self.cells.cliques[i],
                state.estimates[self.cells.part(i)] * factors[i],
                float(variances[i]),
            )
            for i in state.kept
            if np.isfinite(variances[i])
        ]
        return pairs + self._columns(state, factors, variances)

    def scaled_variances(self, state: DPStabsState, total: float) -> NDArray[np.float64]:
        """Variance of one cell of each scaled marginal; infinite where nothing usable was measured.

        Two parts: the counter's noise, scaled; and what a random part of the records says about all of them
        (sampling without replacement, with the average cell ``1/|q_i|``).
        """
        factors = self._factors(state, total)
        noise = np.array([self.counter.variance(int(t)) if t else np.inf for t in state.ticks])
        unseen = max(total, 1.0) * np.maximum(factors - 1.0, 0.0) / self.cells.sizes
        return np.where(np.isfinite(factors), noise * factors**2 + unseen, np.inf)

    def _factors(self, state: DPStabsState, total: float) -> NDArray[np.float64]:
        """All records over the records seen, at least 1; infinite while the latter is mostly noise."""
        # A noisy number of covered records below a few standard deviations of its own noise can be near zero
        # or negative, and its inverse anything.
        usable = (state.ticks > 0) & (state.covered > 0.02 * max(total, 1.0)) & (state.covered > 1.0)
        factors = np.full(len(state.covered), np.inf)
        np.divide(max(total, 1.0), state.covered, out=factors, where=usable)
        return np.where(usable, np.maximum(factors, 1.0), np.inf)

    def _columns(
        self, state: DPStabsState, factors: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> list[Measurement]:
        """One-way marginals from the measured workloads that the model itself does not hold.

        They come free of charge: summing a noisy histogram is post-processing. Estimates of one column from
        several workloads are averaged by inverse variance (a sum of ``n`` cells has ``n`` times the variance).
        """
        domain = self.cells.workload.domain
        usable = np.isfinite(variances)
        usable[state.kept] = False
        if not usable.any():
            return []
        spread = np.repeat(np.where(usable, factors, 0.0), self.cells.sizes)
        values = state.estimates * spread
        found = []
        for column, (slots, owners, summed) in self._slots.items():
            precision = np.where(usable[owners], 1.0 / (variances[owners] * summed), 0.0)
            if precision.sum() <= 0.0:
                continue
            weights = np.zeros(len(self.cells.cliques))
            weights[owners] = precision / precision.sum()
            cell_weights = np.repeat(weights, self.cells.sizes)
            size = domain.sizes[column]
            inside = slots >= 0
            estimate = np.bincount(slots[inside], (values * cell_weights)[inside], minlength=size)
            found.append(Measurement((column,), estimate, float(1.0 / precision.sum())))
        return found

    @cached_property
    def _slots(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
        """Per column: the value of every cell (-1 where its workload lacks the column), the workloads that
        have it, and how many cells of each are summed for one value."""
        domain = self.cells.workload.domain
        result = {}
        for column in range(len(domain)):
            slots = np.full(self.cells.total, -1, dtype=np.int64)
            owners, summed = [], []
            for i, clique in enumerate(self.cells.cliques):
                if column not in clique:
                    continue
                shape = domain.shape(clique)
                grid = np.indices(shape)[clique.index(column)]
                slots[self.cells.part(i)] = grid.ravel()
                owners.append(i)
                summed.append(self.cells.sizes[i] / domain.sizes[column])
            if owners:
                result[column] = (slots, np.array(owners), np.array(summed, dtype=np.float64))
        return result

    def choose_kept(self, state: DPStabsState, total: float) -> list[int]:
        """The workloads that the model should hold: greedily by gain, while the tree stays small enough.

        The gain of a pair is how far its measurement is from what the current model says of it, less what
        noise alone would make of it (both per cell, as the error is judged): a pair whose noise is larger
        than its news would only add noise to the model.
        """
        variances = self.scaled_variances(state, total)
        factors = self._factors(state, total)
        gains: list[tuple[float, int]] = []
        singles = self._independent(state, factors, variances)
        for i, clique in enumerate(self.cells.cliques):
            if not np.isfinite(variances[i]):
                continue
            part = self.cells.part(i)
            measured = state.estimates[part] * factors[i]
            reference = self._product(clique, singles, total)
            distance = float(np.abs(measured - reference).sum())
            noise = float(np.sqrt(2.0 * variances[i] / np.pi)) * int(self.cells.sizes[i])
            gain = (distance - noise) / int(self.cells.sizes[i]) * float(self.cells.workload.weights[i])
            if gain > 0.0:
                gains.append((gain, i))
        return self._greedy([i for _, i in sorted(gains, reverse=True)])

    def _greedy(self, order: Sequence[int]) -> list[int]:
        domain = self.cells.workload.domain
        kept: list[int] = []
        for i in order:
            if self.fits(kept, i):
                kept.append(i)
        del domain
        return kept

    def fits(self, kept: Sequence[int], candidate: int) -> bool:
        """Whether the model with one more workload stays within its size."""
        cliques = [self.cells.cliques[i] for i in (*kept, candidate)]
        return tree_cells(self.cells.workload.domain, cliques) <= self.max_cells

    def _independent(
        self, state: DPStabsState, factors: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> list[NDArray[np.float64]]:
        """One probability vector per column: all measurements of it, clipped at 0 and normalised."""
        domain = self.cells.workload.domain
        everything = DPStabsState(**{**state.__dict__, "kept": []})
        measured = {m.clique[0]: m.values for m in self._columns(everything, factors, variances)}
        singles = []
        for column, size in enumerate(domain.sizes):
            values = np.maximum(measured.get(column, np.ones(size)), 0.0)
            whole = values.sum()
            singles.append(values / whole if whole > 0.0 else np.full(size, 1.0 / size))
        return singles

    def _product(
        self, clique: Clique, singles: Sequence[NDArray[np.float64]], total: float
    ) -> NDArray[np.float64]:
        product = np.array([max(total, 0.0)])
        for column in clique:
            product = np.outer(product, singles[column]).ravel()
        return product
