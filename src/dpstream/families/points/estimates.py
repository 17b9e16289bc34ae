"""From public noisy sums to whole counts of all cells that add up, and their errors. Public post-processing only."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpstream.families.points.cell_noise import CellNoise
from dpstream.families.points.cells import (
    FinishedBlocks,
)
from dpstream.families.points.splits import Floats, Ints, Splits, pool, pooled_variances, shrunk, split_evenly

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


def whole_counts(plan: CellNoise, state: PublicCounts, generator: np.random.Generator) -> Ints:
    """How many synthetic points are in each of the deepest cells."""
    counts, splits = np.array([state.points], np.int64), Splits()
    for depth, (cells, variance) in enumerate(cell_estimates(plan, state), start=1):
        left, right = cells[0::2], cells[1::2]
        if plan.design.pooled:
            # Points that came before the depth's cells are split as those since then: by the same factor for all.
            known = state.points / (state.points - _unseen(plan, depth))
            chosen = splits.split(counts, known * (left - right), 2.0 * known**2 * variance, generator)
        else:
            chosen = split_evenly(counts, left.astype(np.int64), right.astype(np.int64))
        counts = np.stack([chosen, counts - chosen], axis=1).ravel()
    return counts


def cell_estimates(plan: CellNoise, state: PublicCounts) -> list[tuple[Floats, float]]:
    """Estimates of all cells of each depth, and the variance of one.

    In the text: what finished levels stored, and what the sparse counter has counted. The default expects of the open
    level what its blocks and the finished levels say, within what the sparse counter says: an open segment holds
    between 0 and about the threshold, so the level's count lies between ``counted`` and ``counted + threshold``, up to
    noise.
    """
    depth, schedule = state.depth, plan.schedule
    stored, variances = state.stored[:depth], list(stored_variances(plan, state.level)[:depth])
    if plan.design.pooled and schedule.rereads_all and stored:
        stored, variances = pool(stored, variances, float(schedule.start(state.level) - 1))
    result = []
    for j in range(1, depth + 1):
        counted = state.counted[1 << j : 2 << j]
        if plan.design.pooled:
            open_level, variance = _open_level(plan, state, j, stored[j - 1], variances[j - 1])
            most = counted + plan.rule(j, state.level).threshold
            result.append((stored[j - 1] + np.clip(open_level, counted, most), variance))
        else:
            result.append((stored[j - 1] + counted, variances[j - 1]))
    return result


def _unseen(plan: CellNoise, depth: int) -> int:
    """How many points came before the first ones that cells of ``depth`` count."""
    if plan.schedule.rereads_all:
        return 0
    return plan.schedule.start(depth - 1 if plan.design.history else depth) - 1


def _open_level(
    plan: CellNoise, state: PublicCounts, depth: int, stored: Floats, variance: float
) -> tuple[Floats, float]:
    """What the level holds so far: what finished levels let expect, and what its blocks say otherwise beyond noise.

    Where the depth's blocks end before now, the newest one goes on. Also the variance of the sum of the first and
    ``stored``.
    """
    schedule, blocks, i = plan.schedule, state.blocks, depth - 1
    before = schedule.start(state.level) - 1
    rate = (state.points - before) / max(before - _unseen(plan, depth), 1)
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
def stored_variances(plan: CellNoise, level: int) -> tuple[float, ...]:
    """Of one cell of what is stored when ``level`` begins, for each depth."""
    schedule = plan.schedule
    variances = [0.0] * schedule.depth(level)
    if schedule.rereads_all:
        for j in range(1, len(variances) + 1):
            variances[j - 1] = len(plan.first_levels(j)) * plan.first_noise(j).variance
    for before in range(-1, level):
        measured = plan.measured_variances(before)
        if plan.design.pooled and not schedule.rereads_all:
            measured = pooled_variances(measured)
        for j, variance in enumerate(measured):
            variances[j] += variance
    return tuple(variances)


def half_errors(plan: CellNoise, points: int) -> list[float]:
    """For each coordinate, in the order of cuts: the standard error of the number of points in one of its halves.

    Of the points that the cells of that depth have counted by the end of the last finished level. The first cuts halve
    each coordinate once, so the cells of the first depths say how many points lie in each half. A coordinate whose
    cells have not begun by then is left out.

    Args:
        points: read so far.
    """
    schedule = plan.schedule
    level = schedule.level_of(max(points, 1)) if points else -1
    # A level ends with its last point.
    last = level if points >= schedule.start(level + 1) - 1 else level - 1
    variances = stored_variances(plan, last + 1)[: min(schedule.dimension, max(last, 0))]
    # Where cells are improved by others, two halves are moved by what their sum is off, so the error of one is half
    # that of their difference; of the cells above, what remains cancels in the half's sum.
    part = 0.5 if plan.design.pooled and not schedule.rereads_all else 1.0
    return [math.sqrt(2.0**index * variance * part) for index, variance in enumerate(variances)]
