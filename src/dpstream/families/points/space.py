"""Which cell of the partition (``boxes.py``) holds a record.

Trusted base: kernel (encodes private points).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dpstream.families.points.boxes import Boxes, Codes
from dpstream.families.points.pooling import Ints


class Space(Boxes):
    """The partition, and its cells of records."""

    @cached_property
    def _most_cuts(self) -> int:
        """Cuts of a coordinate beyond these are never among the first ``depth`` of a record.

        With many coordinates that is one or two. Without this, lengths of paths would differ in too many ways.
        """
        least = [size.bit_length() - 1 for size in self.sizes]
        of_categories = sum(least[axis] for axis in self._first)
        for cuts in range(1, self.depth):
            if of_categories + sum(min(least[axis], cuts) for axis in self._others) >= self.depth:
                return cuts
        return self.depth

    def cells_of(self, codes: Codes) -> Ints:
        """Index of each record's cell of depth ``depth``.

        Args:
            codes: shape (records, axes).

        Cost: a few array operations for each depth, once for every pattern of lengths of paths (of one axis they differ
        by at most one).
        """
        most = [self.depth if first else self._most_cuts for first in self.categorical]
        paths = [_halvings(codes[:, axis], size, most[axis]) for axis, size in enumerate(self.sizes)]
        cells = np.zeros(len(codes), np.int64)
        for some, rows in _alike([length for _, length in paths]):
            order = self._order(some)
            path = np.zeros(len(cells[rows]), np.int64)
            for axis, cut in order:
                path = path << 1 | (paths[axis][0][rows] >> (some[axis] - 1 - cut) & 1)
            # Below a box of one code there is that box again, on the left.
            cells[rows] = path << (self.depth - len(order))
        return cells

    def _order(self, lengths: Sequence[int]) -> list[tuple[int, int]]:
        """The cuts of a record whose axes have these lengths: the axis of each, and its number among the axis's
        cuts."""
        order = [(axis, cut) for axis in self._first for cut in range(lengths[axis])]
        rounds = range(max((lengths[axis] for axis in self._others), default=0))
        order += [(axis, cut) for cut in rounds for axis in self._others if cut < lengths[axis]]
        return order[: self.depth]

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


def _alike(lengths: list[Ints]) -> Iterator[tuple[list[int], Any]]:
    """The rows with equal lengths: the different combinations of lengths, and the rows of each."""
    least = [int(one.min(initial=99)) for one in lengths]
    longer = [axis for axis, one in enumerate(lengths) if int(one.max(initial=0)) > least[axis]]
    if not longer:
        yield least, slice(None)
        return
    key = sum((lengths[axis] - least[axis]) << i for i, axis in enumerate(longer))
    for value in np.unique(key).tolist():
        more = {axis: value >> i & 1 for i, axis in enumerate(longer)}
        yield [one + more.get(axis, 0) for axis, one in enumerate(least)], np.flatnonzero(key == value)


def _halvings(codes: Codes, size: int, most: int) -> tuple[Ints, Ints]:
    """The halves that each code is in, as bits, until it is alone or was cut ``most`` times; and how many halves."""
    if size & (size - 1) == 0:
        length = size.bit_length() - 1
        cuts = min(length, most)
        return codes.astype(np.int64) >> (length - cuts), np.full(len(codes), cuts)
    low, high = np.zeros(len(codes), np.int64), np.full(len(codes), size)
    bits, lengths = np.zeros(len(codes), np.int64), np.zeros(len(codes), np.int64)
    for _ in range(min((size - 1).bit_length(), most)):
        open_ = high - low > 1
        middle = (low + high + 1) // 2
        right = open_ & (codes >= middle)
        bits = np.where(open_, bits << 1 | right, bits)
        lengths += open_
        low, high = np.where(right, middle, low), np.where(open_ & ~right, middle, high)
    return bits, lengths
