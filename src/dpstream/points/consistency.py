"""From noisy counts of cells to whole, non-negative counts that add up. Public post-processing only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["pool", "shrunk", "split_evenly", "split_in_proportion"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shrunk(values: Floats, noise: float) -> Floats:
    """Values times ``1 - (noise/value)^2``, or 0 where that is negative: the factor of James and Stein, one by one."""
    size = np.abs(values)
    clear = size > noise
    return np.where(clear, values * (1.0 - (noise / np.where(clear, size, 1.0)) ** 2), 0.0)


def split_evenly(parents: Ints, left: Ints, right: Ints) -> Ints:
    """Algorithm 4: children (clipped at 0) both move by about half of what is missing, none below 0.

    Gives the left children's counts; the right ones have the rest. An odd unit goes to the right.
    """
    left, right = np.maximum(left, 0), np.maximum(right, 0)
    moved = left + (parents - left - right) // 2
    return np.minimum(np.maximum(moved, 0), parents)


def split_in_proportion(
    parents: Ints, left: Floats, right: Floats, noise: float, generator: np.random.Generator
) -> Ints:
    """Parents split as their children's estimates (clipped at 0), drawn towards halves as far as these are noise.

    What the children differ by is ``shrunk``. Fractions are rounded up with their probability.

    Args:
        noise: a public standard deviation of the difference, times a public constant.
    """
    left, right = np.maximum(left, 0.0), np.maximum(right, 0.0)
    both = left + right
    share = 0.5 + 0.5 * shrunk(left - right, noise) / np.where(both > 0.0, both, 1.0)
    return np.minimum(np.floor(parents * share + generator.random(len(parents))).astype(np.int64), parents)


def pool(
    counts: Sequence[Floats], variances: Sequence[float], root: float
) -> tuple[list[Floats], list[float]]:
    """Least squares in a binary tree: every cell's count from all noisy counts of the same points.

    Args:
        counts: one array a depth, for depth 1, 2, ...; unbiased, independent.
        variances: of one cell of each depth.
        root: the number of all points, known.

    Returns: estimates that add up from depth to depth, and their variances before the depths above were used (an upper
    bound).

    Source: Hay, Rastogi, Miklau and Suciu 2010, with unequal variances.
    """
    pooled, below = [np.array(one, np.float64) for one in counts], list(variances)
    for j in range(len(counts) - 2, -1, -1):
        sums, own, theirs = pooled[j + 1].reshape(-1, 2).sum(axis=1), below[j], 2.0 * below[j + 1]
        pooled[j] = (pooled[j] * theirs + sums * own) / (own + theirs)
        below[j] = own * theirs / (own + theirs)
    above = np.array([root])
    for one in pooled:
        pairs = one.reshape(-1, 2)
        pairs += (above - pairs.sum(axis=1))[:, None] / 2.0
        above = one
    return pooled, below
