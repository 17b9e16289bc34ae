"""What measured marginals of several columns tell of single ones. Public: it reads measurements only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement
from dpstream.families.tabular.workload_cells import Cells


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
