"""Densities of points and the cells that hold them, as numbers: what the pictures of a point stream are drawn from.

Everything is in the unit cube. A map is an array of shares of all points, ``[row, column]``, the first row at the top
(the highest second coordinate), so that it is drawn as it is printed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpstream.families.points.space import Space
from dpstream.tools.evaluate.array_types import Floats, Ints

#: Steps of the colour scale beside "nothing".
LEVELS = 9
#: Pairs of coordinates that are drawn at most.
MOST_PAIRS = 6


@dataclass(frozen=True)
class Leaves:
    """Cells of the partition: corners in the unit cube, each of shape (cells, coordinates), and their points."""

    low: Floats
    high: Floats
    points: Ints


def pairs_of(names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The coordinates that are drawn together: one alone, or all pairs up to six; first the one that goes to the right.

    A latitude goes upwards beside a longitude, as on every map.

    >>> pairs_of(["price"]), pairs_of(["x", "y", "hour"]), pairs_of(["latitude", "longitude"])
    (((0,),), ((0, 1), (0, 2), (1, 2)), ((1, 0),))
    """
    if len(names) == 1:
        return ((0,),)
    pairs = itertools.islice(itertools.combinations(range(len(names)), 2), MOST_PAIRS)
    return tuple(pair[::-1] if is_map(names, pair) else pair for pair in pairs)


def is_map(names: Sequence[str], pair: tuple[int, int]) -> bool:
    """Whether the two are a latitude and a longitude, in this order."""
    first, second = (names[i].lower() for i in pair)
    return first.startswith("lat") and second.startswith(("lon", "lng"))


def density(points: Floats, axes: tuple[int, int], sides: tuple[int, int]) -> Floats:
    """Shares of all points in ``sides[0]`` columns and ``sides[1]`` rows; zeros without points.

    >>> density(np.array([[0.1, 0.9], [0.2, 1.0], [0.9, 0.1]]), (0, 1), (2, 2)).round(2).tolist()
    [[0.67, 0.0], [0.0, 0.33]]
    """
    columns, rows = sides
    x, y = _places(points[:, axes[0]], columns), _places(points[:, axes[1]], rows)
    counts = np.bincount((rows - 1 - y) * columns + x, minlength=rows * columns).reshape(rows, columns)
    return counts / max(1, len(points))


def profile(points: Floats, side: int) -> Floats:
    """Shares of all points in ``side`` parts of the only coordinate."""
    return np.bincount(_places(points[:, 0], side), minlength=side) / max(1, len(points))


def top_share(maps: Sequence[Floats]) -> float:
    """Where a colour scale for all these maps ends: the largest share but for the densest hundredth of filled squares.

    One spike (an address that thousands share) would make everything else look empty.

    >>> top_share([np.zeros((2, 2))])
    1.0
    """
    filled = np.concatenate([one[one > 0].ravel() for one in maps]) if maps else np.zeros(0)
    return float(np.quantile(filled, 0.99)) if len(filled) else 1.0


def levels(shares: Floats, top: float) -> Ints:
    """0 for nothing, then 1 to ``LEVELS`` by the square root of the share: thin parts are seen as well.

    >>> levels(np.array([0.0, 0.0001, 0.25, 1.0, 2.0]), 1.0).tolist()
    [0, 1, 5, 9, 9]
    """
    steps = np.ceil(LEVELS * np.sqrt(np.minimum(shares / top, 1.0)) - 1e-9)
    return np.where(shares > 0, np.maximum(steps, 1), 0).astype(np.int64)


def leaves(space: Space, cells: Ints, depth: int, most: int, category: tuple[int, ...] = ()) -> Leaves:
    """The cells that hold records, each cut as long as it holds more than ``1/most`` of them and the tree goes on.

    A cell that is cut no more counts its records; cells without any are among them, so that the whole space is covered.

    Args:
        cells: of the records, at ``depth``; released ones, whose tree this is.
        category: code of each categorical column, which all these records have; the cells are those within it.
    """
    limit, level, ordered = len(cells) / most, 0, np.sort(cells)
    waiting, found = np.zeros(1, np.int64), []
    while len(waiting):
        ends = np.stack([waiting, waiting + 1]) << (depth - level)
        before, until = np.searchsorted(ordered, ends)
        counts = until - before
        low, high = space.boxes(waiting, level)
        first, sizes = np.array(space.categorical), high - low
        inside = (sizes[:, first] == 1).all(axis=1) & (low[:, first] == category).all(axis=1)
        done = (counts <= limit) | (sizes[:, ~first] == 1).all(axis=1) | (level == depth)
        keep = inside & done
        found.append((low[keep][:, ~first], high[keep][:, ~first], counts[keep]))
        # A cell of several categories is cut whatever it holds; one of another category leads nowhere.
        touches = (low[:, first] <= category).all(axis=1) & (np.array(category) < high[:, first]).all(axis=1)
        on = waiting[touches & ~keep & (level < depth)]
        # The second half of a cell with one code is that cell again.
        waiting, level = np.stack([on << 1, on << 1 | 1], axis=1).ravel(), level + 1
    lows, highs, counts_ = (np.concatenate(parts) for parts in zip(*found, strict=True))
    whole = np.array(space.sizes)[~np.array(space.categorical)]
    return Leaves(lows / whole, highs / whole, counts_)


def _places(values: Floats, side: int) -> Ints:
    return np.clip((values * side).astype(np.int64), 0, side - 1)
