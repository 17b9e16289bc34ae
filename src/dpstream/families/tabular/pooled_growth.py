"""What is public of a pooled stream's memory, moved to columns with more values: new cells begin empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model, tree_cells
from dpstream.core.graphical.junction_tree import junction_tree
from dpstream.core.schema.column import MAX_CODES
from dpstream.core.schema.discrete import Found
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import Workload
from dpstream.families.tabular.pooled_book import PooledBook
from dpstream.families.tabular.pooled_estimates import Estimates
from dpstream.mechanisms.workload_cells import Cells

_Floats = NDArray[np.float64]
#: What is left of a model's mass for new values where none came yet, and at least for ``other`` where they came.
_NOTHING, _LEAST_OTHER = 1e-12, 0.05


def grown_workload(workload: Workload, more: Mapping[str, int], max_cells: int) -> Workload:
    """The workload over columns with so many more codes, without wide marginals that have become too large."""
    domain = workload.domain
    sizes = tuple(size + more.get(name, 0) for name, size in zip(domain.names, domain.sizes, strict=True))
    domain = replace(domain, sizes=sizes)
    kept = [
        (clique, weight)
        for clique, weight in zip(workload.cliques, workload.weights, strict=True)
        if len(clique) == 1 or domain.cells(clique) <= max_cells
    ]
    return Workload(domain, tuple(clique for clique, _ in kept), tuple(weight for _, weight in kept))


def room_of(domain: Domain, column: str, headlines: Sequence[Clique], max_cells: int) -> int:
    """How many more values a column can have before the headlines, or the column, outgrow the table's model. Public."""
    place = domain.index(column)
    own = [clique for clique in headlines if place in clique]

    def fits(size: int) -> bool:
        sizes = tuple(size if i == place else other for i, other in enumerate(domain.sizes))
        larger = Domain(domain.names, sizes)
        return not own or tree_cells(larger, headlines) <= max_cells

    low, high = domain.sizes[place], min(max_cells, MAX_CODES) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low - domain.sizes[place]


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
        for side in state.sides:
            side.estimates = self.estimates(side.estimates)
        state.models = tuple(self._model(model, new, records) for model in state.models)
        state.latest = self._model(state.latest, new, records)
        # No record of the table has a new code yet.
        state.table = self._model(state.table, new, None)
        state.base, state.moved = self.cells(state.base), None

    def _model(self, model: Model, new: Mapping[int, Sequence[Found]], records: float | None) -> Model:
        """A model whose new values have the shares of ``other`` that their noisy counts let expect; None: nothing."""
        shares = dict[int, tuple[int, NDArray[np.float64]]]()
        for place, values in new.items():
            other, own = self._others[place], np.zeros(len(values))
            if records is not None:
                own = shares_of_other(model, place, other, values, records)
            shares[place] = other, own
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


def shares_of_other(
    model: Model, column: int, other: int, new: Sequence[Found], records: float
) -> NDArray[np.float64]:
    """Which shares of a column's ``other`` new values let expect: their noisy counts, by those of the epoch's records
    that were in ``other``. Public."""
    part = float(model.with_total(1.0).marginal((column,))[other])
    shares = np.array([float(one.count) for one in new]) / max(part * records, 1.0)
    return np.asarray(shares * min(1.0, (1.0 - _LEAST_OTHER) / max(float(shares.sum()), 1e-9)))


def grown_model(
    model: Model, domain: Domain, new: Mapping[int, tuple[int, NDArray[np.float64]]], max_cells: int
) -> Model:
    """A model over columns with more values, which are distributed as ``other`` is.

    Args:
        new: of each column that grew, the code of ``other``, and the shares of it that its new values get.
        max_cells: of its tree; marginals with new values that exceed it are left out.
    """
    kept = list[Clique]()
    for clique in model.cliques:
        if tree_cells(domain, (*kept, clique)) <= max_cells:
            kept.append(clique)
    tree = junction_tree(domain, tuple(kept))
    old, before = model.potentials, model.tree
    potentials = np.zeros(tree.parameters)
    for clique in (*((i,) for i in range(len(domain))), *kept):
        table = old[before.slot(clique)].reshape(model.domain.shape(clique))
        for axis, column in enumerate(clique):
            if column not in new:
                continue
            other, shares = new[column]
            more = np.repeat(table.take([other], axis=axis), len(shares), axis=axis)
            if len(clique) == 1:
                more = more + np.log(np.maximum(shares, _NOTHING))
                table = table.copy()
                table[other] += np.log1p(-float(shares.sum()))
            table = np.concatenate([table, more], axis=axis)
        potentials[tree.slot(clique)] = table.reshape(-1)
    return Model(tree, potentials, model.total, cliques=tuple(kept))
