"""What the fit of a DP-STabS step is asked to match. Everything here is public post-processing.

Two readings of "the past of a workload that was not always measured":

* ``literal`` (Kumar et al., Algorithm 3): ``m_i = C_i + r_i``, where ``r_i`` books the synthetic table's own
  answer for every step at which ``i`` was not measured. Only the workloads selected at this step are fitted;
  the rest of the model is carried by the warm start.
* ``measured``: ``C_i`` scaled from the steps it has seen to all steps (see ``strata``). All workloads of the
  model are fitted, weighted by their variances, and the columns' one-way marginals from all other measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.counters import CalibratedCounter
from dpstream.graphical import Measurement
from dpstream.schema.domain import Clique
from dpstream.tabular import strata
from dpstream.tabular.cells import Cells
from dpstream.tabular.limits import within
from dpstream.tabular.state import DPStabsState

__all__ = ["Scaled", "Targets"]


@dataclass(frozen=True)
class Scaled:
    """Every measured workload over all records: values (all cells) and the variance of one cell of each
    (infinite where it was never measured)."""

    values: NDArray[np.float64]
    variances: NDArray[np.float64]


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

    def scaled(self, state: DPStabsState, total: float) -> Scaled:
        """All measured workloads over all records.

        The variance has two parts: the counters' noise, scaled (exact for the simple counter, otherwise by its
        mean variance per tick); and what a part of the records says about all of them (sampling without
        replacement, for an average cell).
        """
        factor = strata.factors(state)
        values = strata.scaled(state, self.cells, factor)
        ticks = state.ticks
        per_tick = np.array([self.counter.variance(int(t)) / t if t else np.inf for t in ticks])
        noise = per_tick * np.where(ticks > 0, strata.effective_ticks(state, factor), 1.0)
        unseen = max(total, 1.0) * np.maximum(factor - 1.0, 0.0) / self.cells.sizes
        return Scaled(values, np.where(factor > 0, noise + unseen, np.inf))

    def measured(self, state: DPStabsState, scaled: Scaled) -> list[Measurement]:
        """Every marginal in the model, and the columns' own distributions from all others."""
        pairs = [
            Measurement(self.cells.cliques[i], scaled.values[self.cells.part(i)], float(scaled.variances[i]))
            for i in state.kept
            if np.isfinite(scaled.variances[i])
        ]
        usable = np.isfinite(scaled.variances)
        usable[state.kept] = False
        return pairs + self.columns(scaled, usable)

    def columns(self, scaled: Scaled, usable: NDArray[np.bool_]) -> list[Measurement]:
        """One-way marginals from some measured workloads.

        They come free of charge: summing a noisy histogram is post-processing. Estimates of one column from
        several workloads are averaged by inverse variance (a sum of ``n`` cells has ``n`` times the variance).
        """
        if not usable.any():
            return []
        domain, found = self.cells.workload.domain, []
        for column, (slots, owners, cells) in self._slots.items():
            variances = scaled.variances[owners] * self._summed[column]
            precision = np.where(usable[owners], 1.0 / variances, 0.0)
            whole = float(precision.sum())
            if whole <= 0.0:
                continue
            weights = np.repeat(precision / whole, self.cells.sizes[owners])
            estimate = np.bincount(slots, scaled.values[cells] * weights, minlength=domain.sizes[column])
            found.append(Measurement((column,), estimate.astype(np.float64), 1.0 / whole))
        return found

    @cached_property
    def _slots(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Per column: the value in each cell of the workloads that have it, those workloads, their cells."""
        domain = self.cells.workload.domain
        result = {}
        for column in range(len(domain)):
            owners = [i for i, clique in enumerate(self.cells.cliques) if column in clique]
            if not owners:
                continue
            slots, cells = [], []
            for i in owners:
                clique, part = self.cells.cliques[i], self.cells.part(i)
                slots.append(np.indices(domain.shape(clique))[clique.index(column)].ravel())
                cells.append(np.arange(part.start, part.stop))
            result[column] = (np.concatenate(slots), np.array(owners), np.concatenate(cells))
        return result

    @cached_property
    def _summed(self) -> dict[int, NDArray[np.float64]]:
        """Per column: how many cells of each of its workloads are summed for one value."""
        domain = self.cells.workload.domain
        return {c: self.cells.sizes[owners] / domain.sizes[c] for c, (_, owners, _) in self._slots.items()}

    def choose_kept(self, state: DPStabsState, scaled: Scaled) -> list[int]:
        """The workloads that the model should hold: greedily by gain, while the tree stays small enough.

        The gain is how far a measurement is from what the model would say without it, less what noise alone
        would make of it (both per cell, as the error is judged): a marginal whose noise is larger than its news
        would only add noise. Without it means independence for those in the model, and the model for the rest.
        """
        kept = set(state.kept)
        singles = self._independent(state, scaled)
        gains: list[tuple[float, int]] = []
        for i, clique in enumerate(self.cells.cliques):
            if not np.isfinite(scaled.variances[i]):
                continue
            part = self.cells.part(i)
            without = self._product(clique, singles, state.total) if i in kept else state.marginals[part]
            distance = float(np.abs(scaled.values[part] - without).mean())
            noise = float(np.sqrt(2.0 * scaled.variances[i] / np.pi))
            gain = (distance - noise) * float(self.cells.workload.weights[i])
            if gain > 0.0:
                gains.append((gain, i))
        chosen: list[int] = []
        for _, i in sorted(gains, reverse=True):
            # Each further one takes measurements away from the rest: about a tree's worth is enough.
            if len(chosen) < len(singles) and within(self.cells.workload, chosen, [i], self.max_cells):
                chosen.append(i)
        return chosen

    def _independent(self, state: DPStabsState, scaled: Scaled) -> list[NDArray[np.float64]]:
        """One probability vector per column from all measurements of it, clipped at 0 and normalised."""
        usable = np.isfinite(scaled.variances)
        measured = {m.clique[0]: m.values for m in self.columns(scaled, usable)}
        singles = []
        for column, size in enumerate(self.cells.workload.domain.sizes):
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
