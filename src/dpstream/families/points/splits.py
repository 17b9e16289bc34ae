"""From noisy counts of cells to whole, non-negative counts that add up. Public post-processing only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: The standard deviations that splits may differ by, as shares of the parent.
_SPLIT_SPREADS = np.array([0.0, *(2.0**-i for i in range(6, -1, -1))])
#: The depth above counts for this many splits.
_PRIOR_SPLITS = 0.5
_ROUNDS = 20
#: The logarithm of a likelihood is at most this far below the best one.
_MAX_LOG_RATIO = 300.0


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


class Splits:
    """How unequally cells are split, learned depth by depth from the noisy differences; parents are split with it.

    Empirical Bayes: what a parent's halves truly differ by is ``n s`` with ``n`` the parent's count, and ``s`` comes
    from a mixture of normal laws around 0, from "by chance only" to "all in one half". The mixture's weights are those
    under which the seen differences of the depth are likeliest (expectation maximisation, from the weights of the depth
    above). Each difference becomes its mean given what was seen: little where it may well be noise, nearly all where
    it is clear, or where most splits of the depth are.
    """

    def __init__(self) -> None:
        self.weights = np.full(len(_SPLIT_SPREADS), 0.5 / (len(_SPLIT_SPREADS) - 1))
        self.weights[0] = 0.5

    def split(
        self, parents: Ints, difference: Floats, variance: float, generator: np.random.Generator
    ) -> Ints:
        """The left children's counts; the right ones have the rest. Fractions are rounded up with their probability.

        Args:
            difference: noisy, left less right.
            variance: of its noise.
        """
        share, full = np.full(len(parents), 0.5), np.flatnonzero(parents > 0)
        count, seen = parents[full].astype(np.float64), difference[full]
        spread = variance + count[:, None] + (count[:, None] * _SPLIT_SPREADS) ** 2
        likely = -0.5 * (seen[:, None] ** 2 / spread + np.log(spread))
        likely = np.exp(np.maximum(likely - likely.max(axis=1, keepdims=True), -_MAX_LOG_RATIO))
        above = self.weights
        for _ in range(_ROUNDS):
            odds = likely * self.weights
            odds /= odds.sum(axis=1, keepdims=True)
            total = odds.sum(axis=0) + _PRIOR_SPLITS * above
            self.weights = total / total.sum()
        odds = likely * self.weights
        kept = seen * (odds * (1.0 - variance / spread)).sum(axis=1) / odds.sum(axis=1)
        share[full] += 0.5 * np.clip(kept / count, -1.0, 1.0)
        left: Ints = np.floor(parents * share + generator.random(len(parents))).astype(np.int64)
        return np.minimum(left, parents)


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
