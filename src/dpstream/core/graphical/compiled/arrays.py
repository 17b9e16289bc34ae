"""The flat arrays that describe a junction tree and its potentials to the compiled loops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class TreeArrays(NamedTuple):
    """Cliques in preorder (parents first, subtrees contiguous); ``m`` of them.

    A clique's table has its separator's axes first, then its residual's, each in ascending order of
    attributes: a matrix of ``sep`` rows and ``res`` columns.
    """

    parent: Ints  #: [m], -1 for the root of a component
    last: Ints  #: [m], end (exclusive) of the clique's subtree
    sep: Ints  #: [m], cells of the separator to the parent (1 for a root)
    res: Ints  #: [m], cells of the residual
    cell_off: Ints  #: [m + 1], offsets of the cliques' tables
    sep_off: Ints  #: [m + 1], offsets of the separators' tables
    axis_off: Ints  #: [m + 1]
    axes: Ints  #: attributes of each clique in the table's order
    sep_axes: Ints  #: [m], how many of them are the separator's
    map_off: Ints  #: [m + 1], offsets into ``maps``
    maps: NDArray[np.int32]  #: for each clique with a parent: parent's cell -> cell of the separator
    sizes: Ints  #: [p], sizes of all attributes
    #: [cells], the logarithm that each cell of the cliques' tables begins with: 0, or far below every potential where
    #: no record is; empty where every cell is possible
    floor: NDArray[np.float64]


class FactorArrays(NamedTuple):
    """Potentials: one per attribute first, then one per clique of two or more attributes."""

    clique: Ints  #: [F], tree clique that holds the potential
    table_off: Ints  #: [F + 1], offsets of the potentials' tables (C order of the sorted clique)
    map_off: Ints  #: [F + 1]
    maps: NDArray[np.int32]  #: tree clique's cell -> cell of the potential
