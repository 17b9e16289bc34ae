"""Noisy counts of cells: what finished blocks have, how counts of all depths improve each other, how they are packed.

Public post-processing of noisy counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.noise import DiscreteLaplace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def pool(
    counts: Sequence[Floats], variances: Sequence[float], root: float
) -> tuple[list[Floats], list[float]]:
    """Least squares in a binary tree: every cell's count from all noisy counts of the same points.

    Args:
        counts: one array a depth, for depth 1, 2, ...; unbiased, independent.
        variances: of one cell of each depth.
        root: the number of all points, known.

    Returns: estimates that add up from depth to depth, and their variances before the depths above were used (an upper
    bound; two halves of one cell differ by noise of exactly twice that).

    Source: Hay, Rastogi, Miklau and Suciu 2010, with unequal variances.
    """
    pooled, below = [np.array(values, np.float64) for values in counts], pooled_variances(variances)
    for j in range(len(counts) - 2, -1, -1):
        sums, theirs = pooled[j + 1].reshape(-1, 2).sum(axis=1), 2.0 * below[j + 1]
        pooled[j] = (pooled[j] * theirs + sums * variances[j]) / (variances[j] + theirs)
    above = np.array([root])
    for one in pooled:
        pairs = one.reshape(-1, 2)
        pairs += (above - pairs.sum(axis=1))[:, None] / 2.0
        above = one
    return pooled, below


def pooled_variances(variances: Sequence[float]) -> list[float]:
    """The variances that ``pool`` gives."""
    below = list(variances)
    for j in range(len(below) - 2, -1, -1):
        theirs = 2.0 * below[j + 1]
        below[j] = below[j] * theirs / (below[j] + theirs)
    return below


@dataclass(frozen=True)
class CellCounts:
    """Noisy counts of all cells of one depth, as measured; public.

    Attributes:
        depth: of the cells; ``values`` are in the order of their addresses.
        first, last: the ticks of the points that are counted.
        noise: of each value, drawn independently.
    """

    depth: int
    first: int
    last: int
    values: Floats
    noise: DiscreteLaplace


@dataclass
class FinishedBlocks:
    """Finished blocks of the open level. Lists have one entry for each depth from 1. Public.

    Attributes:
        ends: last ticks of the shortest blocks, those of depth 1; the last one ends with the level.
        done: how many of them are finished.
        known: the tick up to which the depth's blocks are finished.
        sums: noisy counts of all finished blocks together.
        variance: of one cell of ``sums``.
        pooled: ``sums``, improved by those of the other depths.
        bounds: of the variance of one cell of ``pooled``.
        newest: the last finished block alone, that of an earlier level while there is none.
        lengths: its ticks.
        spread: its variance.
    """

    ends: tuple[int, ...] = ()
    done: int = 0
    known: list[int] = field(default_factory=list)
    sums: list[Floats] = field(default_factory=list)
    variance: list[float] = field(default_factory=list)
    pooled: list[Floats] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    newest: list[Floats] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)

    def add(self, i: int, block: Floats, variance: float, tick: int) -> None:
        """A further block of the ``i``-th depth, which ends with ``tick``."""
        self.sums[i] = self.sums[i] + block
        self.variance[i] += variance
        if i == len(self.newest):
            self.newest.append(block)
            self.lengths.append(0)
            self.spread.append(0.0)
        self.newest[i], self.lengths[i], self.spread[i] = block, tick - self.known[i], variance
        self.known[i] = tick


# Counts as they are packed: in as few bytes as the largest of them needs.


def small(values: Ints) -> NDArray[Any]:
    """The same numbers in the smallest type that holds them.

    >>> small(np.array([3, -4], np.int64)).dtype.name
    'int8'
    """
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def wide(values: NDArray[Any]) -> Ints:
    """The inverse of ``small``."""
    return values.astype(np.int64)
