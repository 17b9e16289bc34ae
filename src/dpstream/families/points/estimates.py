"""What is released: from public noisy sums to whole counts of all cells that add up. Public post-processing only."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.families.points.cell_schedule import Design, Schedule
from dpstream.families.points.consistency import Splits, pool, shrunk, split_evenly
from dpstream.families.points.points_state import PointsState

#: The open level counts as a change of habits where it differs by more standard deviations than this.
_CHANGED_HABITS = 1.5

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class _Rules(Protocol):
    """The parts of a plan that estimates use."""

    @property
    def design(self) -> Design: ...

    @property
    def schedule(self) -> Schedule: ...


def whole_counts(plan: _Rules, state: PointsState, generator: np.random.Generator) -> Ints:
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


def cell_estimates(plan: _Rules, state: PointsState) -> list[tuple[Floats, float]]:
    """Estimates of all cells of each depth, and the variance of one.

    In the text: what finished levels stored, and what the sparse counter has counted. The default expects of the open
    level what its blocks and the finished levels say, within what the sparse counter says: an open segment holds
    between 0 and about the threshold, so the level's count lies between ``counted`` and ``counted + threshold``, up to
    noise.
    """
    depth, schedule = state.cells.depth, plan.schedule
    stored, variances = state.stored[:depth], state.variance[:depth]
    if plan.design.pooled and schedule.rereads_all and stored:
        stored, variances = pool(stored, variances, float(schedule.start(state.level) - 1))
    result = []
    for j in range(1, depth + 1):
        counted = state.cells.counted[1 << j : 2 << j]
        if plan.design.pooled:
            open_level, variance = _open_level(plan, state, j, stored[j - 1], variances[j - 1])
            most = counted + state.cells.rules[j - 1].threshold
            result.append((stored[j - 1] + np.clip(open_level, counted, most), variance))
        else:
            result.append((stored[j - 1] + counted, variances[j - 1]))
    return result


def _unseen(plan: _Rules, depth: int) -> int:
    """How many points came before the first ones that cells of ``depth`` count."""
    if plan.schedule.rereads_all:
        return 0
    return plan.schedule.start(depth - 1 if plan.design.history else depth) - 1


def _open_level(
    plan: _Rules, state: PointsState, depth: int, stored: Floats, variance: float
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
