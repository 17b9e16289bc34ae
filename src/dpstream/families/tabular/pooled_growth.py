"""What is public of a pooled stream's memory, moved to columns with more values: new cells begin empty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model
from dpstream.core.schema.discrete import Found
from dpstream.families.tabular.pooled_book import PooledBook
from dpstream.families.tabular.pooled_estimates import Estimates
from dpstream.mechanisms.grown_tables import grown_model, shares_of_other, split_other
from dpstream.mechanisms.workload_cells import Cells

_Floats = NDArray[np.float64]


class Growth:
    """From the followed marginals of some columns to those of columns with more values.

    Args:
        others: the code of ``other`` of each column that grew. max_cells: of a model's tree.
    """

    def __init__(self, before: Cells, after: Cells, others: Mapping[int, int], max_cells: int) -> None:
        self._before, self._after = before, after
        self._others, self._max_cells = others, max_cells
        old = {clique: place for place, clique in enumerate(before.cliques)}
        #: Of each marginal now, its place before.
        self._places = [old[clique] for clique in after.cliques]

    def move(self, state: PooledBook, new: Mapping[int, Sequence[Found]], records: float) -> None:
        """Move all that a stream remembers.

        Args:
            new: the values of each column, by its position. records: in the discovery epoch that ended.
        """
        if state.ahead is not None:
            columns = self._ahead(
                state.ahead.columns, shares_of_other(state.latest, self._others, new, records)
            )
            state.ahead = replace(state.ahead, columns=columns)
        for side in state.sides:
            side.estimates = self.estimates(side.estimates)
        state.models = tuple(self._model(model, new, records) for model in state.models)
        state.latest = self._model(state.latest, new, records)
        # No record of the table has a new code yet.
        state.table = self._model(state.table, new, math.inf)
        state.base, state.moved = self.cells(state.base), None

    def _ahead(self, columns: _Floats, shares: Mapping[int, tuple[int, _Floats]]) -> _Floats:
        """What later steps let expect of the columns, whose new values get these shares of ``other``."""
        parts = list[NDArray[np.floating]]()
        for i, clique in enumerate(self._before.cliques):
            if len(clique) == 1:
                part, grew = columns[:, self._before.part(i)], clique[0] in shares
                parts.append(split_other(part, 1, *shares[clique[0]]) if grew else part)
        return np.concatenate(parts, axis=1)

    def _model(self, model: Model, new: Mapping[int, Sequence[Found]], records: float) -> Model:
        """A model whose new values have the shares of ``other`` that their noisy counts let expect."""
        shares = shares_of_other(model, self._others, new, records)
        return grown_model(model, self._after.workload.domain, shares, self._max_cells)

    def cells(self, values: NDArray[np.float64]) -> _Floats:
        """Cells of all marginals; the new ones are 0."""
        parts = [self._padded(values[self._before.part(i)], i) for i in self._places]
        return np.concatenate(parts)

    def _padded(self, values: _Floats, place: int) -> _Floats:
        """One marginal, ``place`` before."""
        clique = self._before.cliques[place]
        shape, wanted = (cells.workload.domain.shape(clique) for cells in (self._before, self._after))
        more = [(0, new - old) for old, new in zip(shape, wanted, strict=True)]
        return np.pad(values.reshape(shape), more).reshape(-1)

    def estimates(self, own: Estimates) -> Estimates:
        """All measurements; a marginal that is not followed any more is left out."""
        now = {old: new for new, old in enumerate(self._places)}
        kept = [j for j, marginal in enumerate(own.marginals) if marginal in now]
        return replace(
            own,
            cells=self._after,
            sums=self.cells(own.sums),
            variance=own.variance[self._places],
            open_sums=self.cells(own.open_sums),
            open_variance=own.open_variance[self._places],
            epochs=[own.epochs[j] for j in kept],
            spans=[own.spans[j] for j in kept],
            variances=[own.variances[j] for j in kept],
            marginals=[now[own.marginals[j]] for j in kept],
            measured=[self._padded(own.measured[j], own.marginals[j]) for j in kept],
        )
