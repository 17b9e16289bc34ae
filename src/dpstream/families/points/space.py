"""From the columns of a schema to cells of the binary partition, and back; all of it public.

Every column is an axis of so many codes: as many as a categorical column has values, and for a coordinate those of its
fine column (``schema.fine``). A cell is a box of codes. A cut halves the codes of one axis, the first half taking the
odd one; an axis with one code left is not cut any more. Categorical columns are cut first, one after the other, until
each has one value left; then the coordinates in turn. So:

* A category is a cell of depth ``ceil(log2 K)`` or one less, and its points have a partition of their own. No cell is
  empty because there is no such category.
* Whole numbers and days (on a linear scale) are cut until each is alone, and never within one.
* A box whose axes all have one code is cut no more: what lies below it in the tree has the same one code.

The partition depends on the schema only, so whatever holds for a binary partition of the cube (budgets, counts) holds
for it: a point is in one cell of each depth.

Trusted base: kernel (encodes private points).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.families.points.online import MAX_DEPTH

#: The most combinations of values that all categorical columns may have together: each is a cell of its own.
MAX_CATEGORIES = 2**12
#: So many records are led down the tree at a time: their boxes stay in the cache.
_CHUNK = 1 << 14

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Space:
    """The partition.

    Attributes:
        sizes: codes of each axis, in the order of the columns.
        categorical: for each axis, whether it is cut first.
        most: no cells are deeper.
    """

    sizes: tuple[int, ...]
    categorical: tuple[bool, ...]
    most: int

    def __post_init__(self) -> None:
        if all(self.categorical):
            raise ConfigError(
                "points have at least one coordinate, and no column is one",
                where="schema",
                allowed='a column of type real, integer, date or datetime (mechanism "pooled" for categories only)',
            )
        if self.categories > MAX_CATEGORIES:
            raise ConfigError(
                f"the categorical columns have {self.categories} values together",
                where="schema",
                allowed=f"at most {MAX_CATEGORIES}",
            )
        if self._category_depth >= self.depth:
            raise ConfigError(
                f"{self.categories} categories fill all {self.depth} depths, and leave none to coordinates",
                where="max_depth",
                allowed=f"more than {self._category_depth}, up to {MAX_DEPTH}",
            )

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return self.categorical.count(False)

    @cached_property
    def categories(self) -> int:
        """How many combinations of values the categorical columns have."""
        product = 1
        for size, first in zip(self.sizes, self.categorical, strict=True):
            product *= size if first else 1
        return product

    @cached_property
    def depth(self) -> int:
        """The depth of the deepest cells: ``most``, or where every box has been cut down to one code."""
        return min(self.most, sum((size - 1).bit_length() for size in self.sizes))

    @cached_property
    def _category_depth(self) -> int:
        pairs = zip(self.sizes, self.categorical, strict=True)
        return sum((size - 1).bit_length() for size, first in pairs if first)

    def cells_of(self, codes: Codes) -> Ints:
        """Index of each record's cell of depth ``depth``.

        Args:
            codes: shape (records, axes).

        Cost: a few array operations for each depth.
        """
        cells = np.zeros(len(codes), np.int64)
        for first in range(0, len(codes), _CHUNK):
            found = cells[first : first + _CHUNK]
            walk, values = _Walk(self, len(found)), codes[first : first + _CHUNK].ravel()
            for _ in range(self.depth):
                sides, middle = walk.cut()
                right = values[sides] >= middle
                walk.take(sides, middle, right)
                found[:] = found << 1 | right
        return cells

    def boxes(self, cells: Ints, depth: int) -> tuple[Ints, Ints]:
        """The codes that cells of ``depth`` hold: the first ones, and those after the last, each of shape (cells,
        axes)."""
        walk = _Walk(self, len(cells))
        for level in range(depth):
            sides, middle = walk.cut()
            right = (cells >> (depth - 1 - level) & 1).astype(bool)
            # Below a box of one code there is that box again.
            walk.take(sides, middle, right & (middle < walk.high[sides]))
        shape = (len(cells), len(self.sizes))
        return walk.low.reshape(shape), walk.high.reshape(shape)

    def gathered(self, counts: Ints) -> Ints:
        """The same points, where several cells are one box of one code in the first of these.

        That is where ``cells_of`` finds such records again, so that they can stay from release to release.
        """
        depth = len(counts).bit_length() - 1
        if depth <= sum(size.bit_length() - 1 for size in self.sizes):
            return counts  # no record runs out of cuts
        cells = np.flatnonzero(counts)
        low, _ = self.boxes(cells, depth)
        first = self.cells_of(low.astype(np.int32)) >> (self.depth - depth)
        moved = np.zeros_like(counts)
        np.add.at(moved, first, counts[cells])
        return moved

    def draw(self, cells: Ints, depth: int, generator: np.random.Generator) -> Codes:
        """A record of each of these cells, uniform in it; shape (cells, axes)."""
        distinct, place = np.unique(cells, return_inverse=True)
        low, high = self.boxes(distinct, depth)
        place = place.reshape(-1)
        return generator.integers(low[place], high[place]).astype(np.int32)


class _Walk:
    """Boxes on their way down the tree, all at once.

    Attributes:
        low, high: the first code of each side, and the one after the last; box after box, flat.
    """

    def __init__(self, space: Space, boxes: int) -> None:
        axes, coordinate = len(space.sizes), ~np.array(space.categorical)
        self.low, self.high = (
            np.zeros(boxes * axes, np.int64),
            np.tile(np.array(space.sizes, np.int64), boxes),
        )
        self._first = np.arange(boxes) * axes
        #: Of each axis its place among the coordinates; -1 for a categorical one.
        self._place = np.where(coordinate, np.cumsum(coordinate) - 1, -1)
        #: Place of the coordinate whose turn it is.
        self._turn = np.zeros(boxes, np.int64)
        turns = np.arange(space.dimension)[:, None]
        #: By that place: axes in the order in which they are asked whether they can be cut.
        self._ranks = np.where(
            coordinate, (self._place - turns) % space.dimension, np.arange(axes) - axes
        ).astype(np.int16)

    def cut(self) -> tuple[Ints, Ints]:
        """The side of each box that is cut next, and the first code of its second half."""
        able = (self.high - self.low > 1).reshape(len(self._turn), len(self._place))
        axis = np.where(able, self._ranks[self._turn], np.int16(2**14)).argmin(axis=1)
        place = self._place[axis]
        self._turn = np.where(place < 0, self._turn, (place + 1) % len(self._ranks))
        sides = self._first + axis
        # A box of one code: everything is in its first half.
        return sides, (self.low[sides] + self.high[sides] + 1) >> 1

    def take(self, sides: Ints, middle: Ints, right: NDArray[np.bool_]) -> None:
        """Go on with one half of each box."""
        self.low[sides] = np.where(right, middle, self.low[sides])
        self.high[sides] = np.where(right, self.high[sides], middle)
