"""From public noisy sums to whole counts of all cells that add up, and their errors. Public post-processing only.

First how unequally cells are split, then what is known of all cells.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpstream.families.points.cells import Schedule
from dpstream.families.points.pooling import FinishedBlocks, Floats, Ints, pool, pooled_variances

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


#: The open level counts as a change of habits where it differs by more standard deviations than this.
_CHANGED_HABITS = 1.5


class PublicCounts(NamedTuple):
    """What is public of ``PointsState`` and its parts."""

    points: int
    level: int
    depth: int
    counted: Ints
    stored: list[Floats]
    blocks: FinishedBlocks


def whole_counts(schedule: Schedule, state: PublicCounts, generator: np.random.Generator) -> Ints:
    """How many synthetic points are in each of the deepest cells."""
    counts, splits = np.array([state.points], np.int64), Splits()
    for depth, (cells, variance) in enumerate(cell_estimates(schedule, state), start=1):
        left, right = cells[0::2], cells[1::2]
        if schedule.design.pooled:
            # Points that came before the depth's cells are split as those since then: by the same factor for all.
            known = state.points / (state.points - _unseen(schedule, depth))
            chosen = splits.split(counts, known * (left - right), 2.0 * known**2 * variance, generator)
        else:
            chosen = split_evenly(counts, left.astype(np.int64), right.astype(np.int64))
        counts = np.stack([chosen, counts - chosen], axis=1).ravel()
    return counts


def cell_estimates(schedule: Schedule, state: PublicCounts) -> list[tuple[Floats, float]]:
    """Estimates of all cells of each depth, and the variance of one.

    In the text: what finished levels stored, and what the sparse counter has counted. The default expects of the open
    level what its blocks and the finished levels say, within what the sparse counter says: an open segment holds
    between 0 and about the threshold, so the level's count lies between ``counted`` and ``counted + threshold``, up to
    noise.
    """
    depth = state.depth
    stored, variances = state.stored[:depth], list(stored_variances(schedule, state.level)[:depth])
    if schedule.design.pooled and schedule.rereads_all and stored:
        stored, variances = pool(stored, variances, float(schedule.start(state.level) - 1))
    result = []
    for j in range(1, depth + 1):
        counted = state.counted[1 << j : 2 << j]
        if schedule.design.pooled:
            open_level, variance = _open_level(schedule, state, j, stored[j - 1], variances[j - 1])
            most = counted + schedule.rule(j, state.level).threshold
            result.append((stored[j - 1] + np.clip(open_level, counted, most), variance))
        else:
            result.append((stored[j - 1] + counted, variances[j - 1]))
    return result


def _unseen(schedule: Schedule, depth: int) -> int:
    """How many points came before the first ones that cells of ``depth`` count."""
    if schedule.rereads_all:
        return 0
    return schedule.start(depth - 1 if schedule.design.history else depth) - 1


def _open_level(
    schedule: Schedule, state: PublicCounts, depth: int, stored: Floats, variance: float
) -> tuple[Floats, float]:
    """What the level holds so far: what finished levels let expect, and what its blocks say otherwise beyond noise.

    Where the depth's blocks end before now, the newest one goes on. Also the variance of the sum of the first and
    ``stored``.
    """
    blocks, i = state.blocks, depth - 1
    before = schedule.start(state.level) - 1
    rate = (state.points - before) / max(before - _unseen(schedule, depth), 1)
    expected, total = rate * np.maximum(stored, 0.0), (1.0 + rate) ** 2 * variance
    if i >= len(blocks.newest):
        return expected, total
    growth, last = (state.points - blocks.known[i]) / blocks.lengths[i], blocks.spread[i]
    seen = blocks.pooled[i] + growth * np.maximum(blocks.newest[i], 0.0)
    if blocks.known[i] > before:
        # The newest block is also in ``pooled``.
        spread = max(blocks.bounds[i] - last, 0.0) + (1.0 + growth) ** 2 * last
    else:
        spread = growth**2 * last
    noise = _CHANGED_HABITS * math.sqrt(spread + rate**2 * variance)
    return expected + shrunk(seen - expected, noise), total


@lru_cache(maxsize=1024)
def stored_variances(schedule: Schedule, level: int) -> tuple[float, ...]:
    """Of one cell of what is stored when ``level`` begins, for each depth."""
    variances = [0.0] * schedule.depth(level)
    if schedule.rereads_all:
        for j in range(1, len(variances) + 1):
            variances[j - 1] = len(schedule.first_levels(j)) * schedule.first_noise(j).variance
    for before in range(-1, level):
        measured = schedule.measured_variances(before)
        if schedule.design.pooled and not schedule.rereads_all:
            measured = pooled_variances(measured)
        for j, variance in enumerate(measured):
            variances[j] += variance
    return tuple(variances)


def half_errors(schedule: Schedule, points: int) -> list[float]:
    """For each coordinate, in the order of cuts: the standard error of the number of points in one of its halves.

    Of the points that the cells of that depth have counted by the end of the last finished level. The first cuts halve
    each coordinate once, so the cells of the first depths say how many points lie in each half. A coordinate whose
    cells have not begun by then is left out.

    Args:
        points: read so far.
    """
    level = schedule.level_of(max(points, 1)) if points else -1
    # A level ends with its last point.
    last = level if points >= schedule.start(level + 1) - 1 else level - 1
    variances = stored_variances(schedule, last + 1)[: min(schedule.dimension, max(last, 0))]
    # Where cells are improved by others, two halves are moved by what their sum is off, so the error of one is half
    # that of their difference; of the cells above, what remains cancels in the half's sum.
    part = 0.5 if schedule.design.pooled and not schedule.rereads_all else 1.0
    return [math.sqrt(2.0**index * variance * part) for index, variance in enumerate(variances)]
