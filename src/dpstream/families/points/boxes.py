"""The binary partition of points: boxes of codes. What a box holds is public, and where its points are drawn.

Every column is an axis of so many codes: as many as a categorical column has values, and for a coordinate those of its
fine column (``schema.fine``). A cell is a box of codes. A cut halves the codes of one axis, the first half taking the
odd one; an axis with one code left is not cut any more. Categorical columns are cut first, one after the other, until
each has one value left; then the coordinates in turn. So:

* A category is a cell of depth ``ceil(log2 K)`` or one less, and its points have a partition of their own. No cell is
  empty because the category does not exist.
* Whole numbers and days (on a linear scale) are cut until each is alone, and never within one.
* A box whose axes all have one code is cut no more: what lies below it in the tree has the same one code.

The partition depends on the schema only, so whatever holds for a binary partition of the cube (budgets, counts) holds
for it: a point is in one cell of each depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.families.points.cells import MAX_DEPTH
from dpstream.families.points.pooling import Ints

#: The most combinations of values that all categorical columns may have together: each is a cell of its own.
MAX_CATEGORIES = 2**12

Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Boxes:
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
                "points need a coordinate column",
                where="schema",
                allowed='type real, integer, date or datetime; or mechanism "pooled"',
            )
        if self.categories > MAX_CATEGORIES:
            raise ConfigError(
                f"the categorical columns have {self.categories} values together",
                where="schema",
                allowed=f"at most {MAX_CATEGORIES}",
            )
        if self._category_depth >= self.depth:
            raise ConfigError(
                f"{self.categories} categories fill all {self.depth} depths before any coordinate",
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

    @cached_property
    def _first(self) -> tuple[int, ...]:
        return tuple(axis for axis, first in enumerate(self.categorical) if first)

    @cached_property
    def _others(self) -> tuple[int, ...]:
        return tuple(axis for axis, first in enumerate(self.categorical) if not first)

    def boxes(self, cells: Ints, depth: int) -> tuple[Ints, Ints]:
        """The codes that cells of ``depth`` hold: the first ones, and those after the last, each of shape (cells,
        axes)."""
        rows, turn = np.arange(len(cells)), np.zeros(len(cells), np.int64)
        low = np.zeros((len(cells), len(self.sizes)), np.int64)
        high = np.tile(np.array(self.sizes, np.int64), (len(cells), 1))
        for level in range(depth):
            axis, turn = self._next_cut(high - low, turn)
            end = high[rows, axis]
            middle = (low[rows, axis] + end + 1) // 2
            # A box of one code: everything is in its first half, and below it there is that box again.
            right = (cells >> (depth - 1 - level) & 1).astype(bool) & (middle < end)
            low[rows[right], axis[right]] = middle[right]
            high[rows[~right], axis[~right]] = middle[~right]
        return low, high

    def _next_cut(self, widths: Ints, turn: Ints) -> tuple[Ints, Ints]:
        """The axis of each box that is cut next, and whose turn it is afterwards.

        Args:
            turn: position in ``_others`` of the coordinate whose turn it is.
        """
        others, after = np.array(self._others), turn.copy()
        chosen, done = np.zeros(len(turn), np.int64), np.zeros(len(turn), bool)
        for axis in self._first:
            able = ~done & (widths[:, axis] > 1)
            chosen[able] = axis
            done |= able
        for more in range(len(others)):
            place = (turn + more) % len(others)
            able = ~done & (widths[np.arange(len(turn)), others[place]] > 1)
            chosen[able], after[able] = others[place][able], (place[able] + 1) % len(others)
            done |= able
        return chosen, after

    def draw(self, cells: Ints, depth: int, generator: np.random.Generator) -> Codes:
        """A record of each of these cells, uniform in it; shape (cells, axes)."""
        distinct, place = np.unique(cells, return_inverse=True)
        low, high = self.boxes(distinct, depth)
        place = place.reshape(-1)
        return generator.integers(low[place], high[place]).astype(np.int32)
