"""Predicted errors of halves of coordinates: from public levels, blocks and budgets alone.

Finished levels are stored as sums of cells whose noise has a public law; with every level that ends, such a sum becomes
final. The first cuts halve each coordinate once, so the cells of the first depths say how many points lie in each half.
"""

from __future__ import annotations

import math

from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.families.points.cell_counters import cell_rule
from dpstream.families.points.cell_schedule import Design, Schedule


def half_errors(schedule: Schedule, design: Design, points: int) -> list[float]:
    """For each coordinate, in the order of cuts: the standard error of the number of points in one of its halves.

    Of the points that the cells of that depth have counted by the end of the last finished level. A coordinate whose
    cells have not begun by then is left out.

    Args:
        points: read so far.
    """
    level = schedule.level_of(max(points, 1)) if points else -1
    # A level ends with its last point.
    last = level if points >= schedule.start(level + 1) - 1 else level - 1
    variances = [0.0] * min(schedule.dimension, schedule.max_depth, max(last, 0))
    for one in range(-1, last + 1):
        for index, variance in enumerate(_of_level(schedule, design, one)[: len(variances)]):
            variances[index] += variance
    if schedule.rereads_all and variances:
        variances[0] += _first_count(schedule, design)
    return [math.sqrt(variance) for variance in variances]


def _of_level(schedule: Schedule, design: Design, level: int) -> list[float]:
    """What a level adds to the variance of a half, by depth."""
    ticks = schedule.ticks(level)
    if not ticks:
        return []
    own = [
        schedule.blocks(depth, level) * cell_rule(schedule.spent(depth, level), ticks, design).block.variance
        for depth in range(1, schedule.depth(level) + 1)
    ]
    if schedule.rereads_all:
        return own
    first = schedule.reread(level + 1, level)
    if first:
        own.append(DiscreteLaplace(1 / first).variance)
    if not design.pooled:
        return [2.0**index * variance for index, variance in enumerate(own)]
    # As ``consistency.pool``: cells are improved by those below. Then two halves are moved by what their sum is off, so
    # the error of one is half that of their difference; of the cells above, what remains cancels in the half's sum.
    for index in range(len(own) - 2, -1, -1):
        below = 2.0 * own[index + 1]
        own[index] = own[index] * below / (own[index] + below)
    return [2.0**index * variance / 2.0 for index, variance in enumerate(own)]


def _first_count(schedule: Schedule, design: Design) -> float:
    """``d = 1``: the first cells count all earlier points when they begin."""
    levels = sum(bool(schedule.ticks(level)) for level in range(-1, 1))
    whole = design.history > 0
    noise = DiscreteLaplace((1 if whole else 2) / schedule.reread(1, 0))
    return noise.variance * (1 if whole else levels)
