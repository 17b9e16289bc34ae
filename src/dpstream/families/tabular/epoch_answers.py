"""What an epoch's measurements tell of columns, and a model's answers moved to them. Public: measurements only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement
from dpstream.mechanisms.workload_cells import Cells


def with_margins(
    cells: Cells, measured: Mapping[int, Measurement], repeated: Collection[int]
) -> dict[int, Measurement]:
    """The measurements, and of every column in any of them the mean by precision of all that tells of it.

    A sum over the other columns' cells has the sum of their noises' variances.

    Args:
        measured: one run's measurements, by marginal.
        repeated: marginals that were made from their columns' measurements: they tell nothing new of these.
    """
    place = {clique[0]: i for i, clique in enumerate(cells.cliques) if len(clique) == 1}
    told = dict[int, list[tuple[NDArray[np.float64], float]]]()
    for index, own in measured.items():
        clique = cells.cliques[index]
        table = own.values.reshape(cells.workload.domain.shape(clique))
        for axis, column in enumerate(clique):
            if column not in place or (index in repeated and len(clique) > 1):
                continue
            others = tuple(a for a in range(table.ndim) if a != axis)
            summed = table.size / table.shape[axis]
            told.setdefault(place[column], []).append((table.sum(axis=others), own.variance * summed))
    found = dict(measured)
    for index, parts in told.items():
        precision = sum(1.0 / variance for _, variance in parts)
        values = np.sum([values / variance for values, variance in parts], axis=0) / precision
        found[index] = Measurement(cells.cliques[index], values, 1.0 / precision)
    return found


#: Marginals of one shape are moved together, at most so many cells at a time.
_CELLS_AT_ONCE = 1 << 20


def move_to_columns(
    cells: Cells, values: NDArray[np.float64], measured: NDArray[np.bool_], total: float
) -> None:
    """Move the answers of marginals that were not measured, in place, to their columns, where these were.

    A model has no negative counts: where noise is large it gives rare values too many records, always to the same
    side, and that would add up over epochs. Measured columns are right on average.

    Args:
        values: of all marginals: of the measured ones as they were measured, of the others a model's answers.
        total: number of records.
    """
    domain, groups = cells.workload.domain, cells.of_shape
    place = np.full(len(domain), -1, dtype=np.int64)
    for i, clique in enumerate(cells.cliques):
        if len(clique) == 1:
            place[clique[0]] = i
    for shape, (indices, members) in groups.items():
        if len(shape) < 2:
            continue
        left = ~measured[indices]
        at_once = max(1, _CELLS_AT_ONCE // int(np.prod(shape)))
        wanted, owners = indices[left], place[members[left]]
        for begin in range(0, len(wanted), at_once):
            own = wanted[begin : begin + at_once]
            _move(cells, values, measured, total, own, owners[begin : begin + at_once], shape)


def _move(
    cells: Cells,
    values: NDArray[np.float64],
    measured: NDArray[np.bool_],
    total: float,
    indices: NDArray[np.int64],
    columns: NDArray[np.int64],
    shape: tuple[int, ...],
) -> None:
    """Marginals of one shape; ``columns``: the positions of their columns, shape (marginals, axes)."""
    size = int(np.prod(shape))
    parts = cells.starts[indices, None] + np.arange(size)
    tables = values[parts].reshape(len(indices), *shape)
    for axis, length in enumerate(shape):
        place = columns[:, axis]
        known = np.flatnonzero((place >= 0) & measured[place])
        if not len(known):
            continue
        wanted = values[cells.starts[place[known], None] + np.arange(length)]
        wanted = wanted + ((total - wanted.sum(axis=1)) / length)[:, None]
        own = tables[known]
        others = tuple(i for i in range(1, tables.ndim) if i != axis + 1)
        excess = (wanted - own.sum(axis=others)) * length / size
        tables[known] = own + np.expand_dims(excess, others)
    values[parts] = tables.reshape(len(indices), size)
