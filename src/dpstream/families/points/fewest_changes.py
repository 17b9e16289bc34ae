"""From one release to the next by as few changes as possible; public post-processing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PointChanges:
    """What becomes of the points of the release before; public.

    Attributes:
        stays: for each of them, whether it stays where it is.
        moved: for each that goes to another cell its position among them, and the cell, shape (moved, 2).
        removed: positions of those that go and come nowhere.
        added: cells of points that are new.
    """

    stays: NDArray[np.bool_]
    moved: Ints
    removed: Ints
    added: Ints

    def apply(self, cells: Ints) -> Ints:
        """The cells of the next release's points, from those of the one before: what stays, what moved, what is new."""
        return np.concatenate([cells[self.stays], self.moved[:, 1], self.added])


def kept(cells: Ints, counts: Ints, generator: np.random.Generator) -> tuple[NDArray[np.bool_], Ints]:
    """Which points stay, and the cells of those that are needed besides.

    Of every cell stays as much as it may hold: no fewer points can go, and no fewer come. Which ones is drawn.

    Args:
        cells: of the points there are, at the depth of ``counts``.
        counts: how many points each cell shall hold.
    """
    order = generator.permutation(len(cells))
    order = order[np.argsort(cells[order], kind="stable")]
    sorted_ = cells[order]
    rank = np.arange(len(cells)) - np.searchsorted(sorted_, sorted_)
    stays = np.zeros(len(cells), bool)
    stays[order] = rank < counts[sorted_]
    missing = counts - np.bincount(cells[stays], minlength=len(counts))
    return stays, np.repeat(np.arange(len(counts)), missing)


def changes(cells: Ints, counts: Ints, generator: np.random.Generator) -> PointChanges:
    """The fewest changes after which every cell holds its count, and the shortest moves among these.

    A point that goes moves to a place that is free: first within the smallest cells that hold both, then within
    the larger ones. So no choice of as many moves goes up less high in the tree, added over all moves.

    Args:
        cells: of the points there are, at the depth of ``counts``.
        counts: how many points each cell of one depth shall hold; 2^depth of them.

    Errors:
        ConfigError: another number of counts, or points outside of these cells.
    """
    depth = len(counts).bit_length() - 1
    outside = len(cells) > 0 and (cells.min() < 0 or cells.max() >= len(counts))
    if len(counts) != 1 << depth or counts.min() < 0 or outside:
        raise ConfigError(
            "the counts do not fit the points", where="changes", allowed="2^depth counts from 0"
        )
    stays, needed = kept(cells, counts, generator)
    going = np.flatnonzero(~stays)
    pairs = [np.zeros((0, 2), np.int64)]
    for up in range(1, depth + 1):
        if not len(going) or not len(needed):
            break
        left, right = _matched(cells[going] >> up, needed >> up)
        pairs.append(np.column_stack([going[left], needed[right]]))
        going, needed = np.delete(going, left), np.delete(needed, right)
    return PointChanges(stays, np.concatenate(pairs), going, needed)


def _matched(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """The positions of as many pairs of equals as there are, each in one pair."""
    first, second = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
    a, b = left[first], right[second]
    rank = np.arange(len(a)) - np.searchsorted(a, a)
    begin, end = np.searchsorted(b, a), np.searchsorted(b, a, side="right")
    there = rank < end - begin
    return first[there], second[begin[there] + rank[there]]
