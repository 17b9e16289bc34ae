"""How many integer vectors lie in the balls of joint noise on histograms, and sums of squares over them. Exact.

A vector has a block for each histogram, and all blocks have the same sum ``s``. Its norm is the largest L1 norm of a
block; where the sum is 0 (``level``), half of that, which is then a whole number. With ``p`` and ``n`` the positive and
negative sums of a block, ``p - n = s`` and its L1 norm is ``|s| + 2 min(p, n)``: so a block in a ball of radius R with
sum ``s >= 0`` has a negative sum up to ``(R - s) // 2``.

The balls are dilations of a polytope whose corners are lattice vectors (plus and minus what one record adds), so their
numbers of vectors are a polynomial in R whose series has whole, non-negative numerators (Ehrhart, Stanley).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Arrays of Python integers.
_Integers = NDArray[np.object_]


def dimension_of(sizes: tuple[int, ...], *, level: bool) -> int:
    """Dimension of the vectors whose blocks have the same sum (``level``: the sum 0)."""
    return sum(sizes) - len(sizes) + (0 if level else 1)


@lru_cache(maxsize=64)
def _coefficients(cells: int) -> tuple[tuple[int, int, int], ...]:
    """``(f, a, factor)`` of the terms in ``block_vectors``."""
    return tuple(
        (f, a, comb(cells, f) * comb(a + f - 1, f - 1)) for f in range(1, cells) for a in range(cells - f)
    )


def block_vectors(cells: int, total: int, most: int) -> int:
    """Number of blocks with the sum ``total >= 0`` and a negative sum up to ``most``, in closed form.

    With k positive cells and ``f = cells - k`` others, a negative sum n has ``C(p-1, k-1) C(n+f-1, f-1)`` blocks,
    ``p = total + n``; by Vandermonde's identity the sum over n is one of products of two binomials.

    >>> block_vectors(3, 0, 1), block_vectors(2, 5, 0), block_vectors(3, 1, 10**6)
    (7, 6, 3000006000003)
    """
    if most < 0:
        return 0
    if total == 0:
        return sum(comb(cells - 1, j) ** 2 * comb(most + cells - 1 - j, cells - 1) for j in range(cells))
    ways = [comb(total - 1, b) for b in range(cells)]
    return ways[cells - 1] + sum(
        factor * ways[cells - f - 1 - a] * comb(most + f, a + f) for f, a, factor in _coefficients(cells)
    )


@dataclass(frozen=True)
class BallSeries:
    """Numerators of power series in the radius: ``sum_R q^R f(R) = sum_j numerators[j] q^j / (1 - q)^power``.

    Attributes:
        vectors: f(R) the number of vectors of the ball, ``power`` = dimension + 1.
        squares: for each size of a block, f(R) the sum of squares of one of its cells; ``power`` = dimension + 3.
        sums: f(R) the sum of squares of the common sum, in the same way.
    """

    vectors: tuple[int, ...]
    squares: dict[int, tuple[int, ...]]
    sums: tuple[int, ...]


@lru_cache(maxsize=64)
def ball_series(sizes: tuple[int, ...], *, level: bool) -> BallSeries:
    """All series of one vector of blocks.

    Cost: grows with the square of the dimension: some milliseconds for 25, about a second for 512.
    """
    dimension = dimension_of(sizes, level=level)
    radii = dimension + 3
    blocks = Counter(sizes)
    tables = {cells: _tables(cells, radii) for cells in blocks}
    whole: _Integers | int = 1
    for cells, many in blocks.items():
        whole = whole * tables[cells][0] ** many
    assert not isinstance(whole, int)
    squares = {}
    for cells, (vectors, own) in tables.items():
        others: Any = vectors ** (blocks[cells] - 1)
        for other, many in blocks.items():
            if other != cells:
                others = others * tables[other][0] ** many
        squares[cells] = _numerators(_balls(others * own, level=level), dimension + 3)
    weights = np.array([s * s for s in range(radii)], dtype=object)[:, None]
    return BallSeries(
        _numerators(_balls(whole, level=level)[: dimension + 1], dimension + 1),
        squares,
        _numerators(_balls(whole * weights, level=level), dimension + 3),
    )


def _tables(cells: int, radii: int) -> tuple[_Integers, _Integers]:
    """By sum ``s`` and largest negative sum ``t``: numbers of blocks, and sums of squares of a cell."""
    size = 2 * radii
    other = np.zeros((size, size), dtype=object)  # by positive and negative sum, of cells but one
    other[0, 0] = 1
    for _ in range(cells - 1):
        other = _with_cell(other)
    # A cell v > 0 counts v^2: the series x (1 + x) / (1 - x)^3, on either side.
    squares = np.zeros_like(other)
    for axis in (0, 1):
        moved = np.moveaxis(other, axis, 0)
        for _ in range(3):
            moved = np.cumsum(moved, axis=0)
        own = np.zeros_like(moved)
        own[1:] += moved[:-1]
        own[2:] += moved[:-2]
        squares += np.moveaxis(own, 0, axis)
    return _along(_with_cell(other), radii), _along(squares, radii)


def _with_cell(table: _Integers) -> _Integers:
    """One cell more: zero or positive, or negative."""
    found: _Integers = np.cumsum(table, axis=0)
    found[:, 1:] += np.cumsum(table, axis=1)[:, :-1]
    return found


def _along(table: _Integers, radii: int) -> _Integers:
    """Entry (s, t): the sum over negative sums n up to t of the entries (s + n, n)."""
    s, n = np.ogrid[:radii, :radii]
    found: _Integers = np.cumsum(table[s + n, n], axis=1)
    return found


def _balls(table: _Integers, *, level: bool) -> list[int]:
    """Sums over the ball of each radius; sums ``-s`` have as many vectors as ``s``."""
    radii = len(table)
    if level:
        return [int(table[0, t]) for t in range(radii)]
    return [
        int(table[0, radius // 2] + 2 * sum(table[s, (radius - s) // 2] for s in range(1, radius + 1)))
        for radius in range(radii)
    ]


def _numerators(values: list[int], power: int) -> tuple[int, ...]:
    """``values`` as a series, times ``(1 - q)^power``."""
    for _ in range(power):
        values = [b - a for a, b in zip([0, *values], values, strict=False)]
    return tuple(values)
