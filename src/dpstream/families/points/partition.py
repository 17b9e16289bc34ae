"""The binary partition of the cube: points to cells, cells to points.

Depth ``j`` halves coordinate ``(j - 1) mod d``. A cell of depth ``j`` is its index among ``2^j``; in heap order (used
by all arrays here) it is ``2^j + index``, so the cell above is one bit shorter and the root is 1.

Cells are half-open, ``[a, b)``, but for those at the upper border, which hold the value 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import check_whole
from dpstream.core.errors import DataError

#: Deepest partition: arrays of all cells then take about two gigabytes.
MAX_DEPTH = 24
_MAX_DIMENSION = 64


def check_points(points: NDArray[np.float64], dimension: int) -> NDArray[np.float64]:
    """One batch as an array (m, d) of float64; messages name no value and no number of points.

    Errors:
        DataError: another shape or kind, a value that is no number, or one outside of 0 to 1.
    """
    array = np.asarray(points)
    if array.ndim != 2 or array.shape[1] != dimension or array.dtype.kind not in "fiu":
        raise DataError(
            "a batch is not an array of points of the declared dimension",
            where="points",
            allowed=f"numbers, shape (any, {dimension})",
        )
    array = array.astype(np.float64, copy=False)
    # Written so that NaN fails as well.
    if not ((array >= 0.0) & (array <= 1.0)).all():
        raise DataError("a coordinate is not in the unit cube", where="points", allowed="from 0 to 1")
    return array


def codes_of(points: NDArray[np.float64], depth: int) -> NDArray[np.int64]:
    """The index of each point's cell of this depth. Exact: only powers of two are multiplied."""
    dimension = points.shape[1]
    code = np.zeros(len(points), np.int64)
    for axis in range(min(dimension, depth)):
        bits = len(range(axis, depth, dimension))
        place = np.minimum((points[:, axis] * 2.0**bits).astype(np.int64), (1 << bits) - 1)
        for i in range(bits):
            code |= (place >> (bits - 1 - i) & 1) << (depth - 1 - axis - i * dimension)
    return code


def cell_corners(cells: NDArray[np.int64], depth: int, dimension: int) -> tuple[NDArray[np.float64], ...]:
    """The lower corner (n, d) and the side lengths (d,) of cells, given by their indices at ``depth``."""
    low, side = np.zeros((len(cells), dimension)), np.ones(dimension)
    for level in range(depth):
        axis = level % dimension
        side[axis] /= 2.0
        low[:, axis] += side[axis] * (cells >> (depth - 1 - level) & 1)
    return low, side


def points_in(
    counts: NDArray[np.int64], depth: int, dimension: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """As many points of each cell of ``depth`` as ``counts`` says, uniform in the cell, in the order of cells."""
    cells = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    low, side = cell_corners(cells, depth, dimension)
    low += generator.random(low.shape) * side
    return low


def check_dimension(value: object) -> int:
    """The number of coordinates, checked."""
    return check_whole(value, "dimension", 1, _MAX_DIMENSION, "points")
