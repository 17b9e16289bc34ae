"""How a budget is divided between draws, and the noise of each: headlines, and histograms drawn together or apart.

Trusted base: kernel (shares of budgets).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import Budget, Event, HistogramsNoise, Noise, PureDP, noise_for

# Which histograms have less noise in one joint draw than apart. Public: it follows from their sizes only.

#: Larger histograms gain less than a twentieth, and take others along.
MAX_CELLS = 32
#: Dimensions of a joint draw: one of so many takes some ten milliseconds.
_MAX_DIMENSIONS = 128
#: The standard deviation of Laplace noise at a budget of 1, and what a histogram costs that is measured by itself.
_ALONE = math.sqrt(2.0)
_ALONE_COST = math.sqrt(_ALONE)
_Floats = NDArray[np.float64]


def together(sizes: Sequence[int], *, level: bool) -> list[tuple[int, ...]]:
    """Places of histograms, in groups that are drawn together; the others get noise of their own, one a group.

    Groups hold neighbours in the order of sizes. Those are taken that have the least sum of ``cost``: where every group
    gets a share in proportion to its cost, no histogram has more noise than by itself, with an equal share.

    Cost: some milliseconds for a new list of sizes.
    """
    order = sorted(range(len(sizes)), key=lambda place: (sizes[place], place))
    groups = _cut(tuple(sizes[place] for place in order), level)
    return [tuple(sorted(order[first:last])) for first, last in groups]


def cost(sizes: Sequence[int], *, level: bool) -> float:
    """What the share of a budget that histograms of one draw get is in proportion to.

    ``sqrt(A)``, A their summed standard deviations at a budget of 1, makes the errors of all groups least in sum. It is
    never less than ``c = s / sqrt(a)``, s the largest of these deviations and a that of a histogram by itself: among n
    histograms whose groups cost C in sum, ``C <= n sqrt(a)``, s becomes ``s C / c = C sqrt(a) <= n a``, which is what
    each of n histograms by itself has.
    """
    if len(sizes) == 1:
        return _ALONE_COST
    # Under replacement noise by itself is twice as large, too.
    errors = {
        cells: error / (2.0 if level else 1.0) for cells, error in deviations(sizes, level=level).items()
    }
    return max(math.sqrt(sum(errors[cells] for cells in sizes)), max(errors.values()) / _ALONE_COST)


def deviations(sizes: Sequence[int], *, level: bool) -> dict[int, float]:
    """Standard deviations of the cells of histograms that are drawn together at an epsilon of 1 (where noise is large),
    by their size."""
    inside = {cells: _block(cells, level) for cells in set(sizes)}
    weights, logs = _nodes(level)[1], sum((np.log(inside[cells][0]) for cells in sizes), np.zeros(1))
    shares = weights * np.exp(logs - logs.max())
    shares = shares / shares.sum()
    dimension = sum(sizes) - len(sizes) + (0 if level else 1)
    radius = (dimension + 1.0) * (dimension + 2.0)
    return {cells: math.sqrt(radius * float(shares @ own[1])) for cells, own in inside.items()}


@lru_cache(maxsize=256)
def _cut(sizes: tuple[int, ...], level: bool) -> tuple[tuple[int, int], ...]:
    """The best cut of sizes in order, as (first, last + 1)."""
    best: list[tuple[float, int]] = [(0.0, 0)]
    for last in range(1, len(sizes) + 1):
        found = (best[last - 1][0] + _ALONE_COST, last - 1)
        # Equal sizes are not torn apart, unless there are too many of them.
        for first in range(last - 2, -1, -1):
            group = sizes[first:last]
            if group[-1] > MAX_CELLS or sum(group) - len(group) + 1 > _MAX_DIMENSIONS:
                break
            if group[0] < 2:
                break
            if (
                first
                and sizes[first - 1] == group[0]
                and sum(group) + group[0] - len(group) <= _MAX_DIMENSIONS
            ):
                continue
            whole = best[first][0] + cost(group, level=level)
            if whole < found[0] - 1e-9:
                found = (whole, first)
        best.append(found)
    groups, at = list[tuple[int, int]](), len(sizes)
    while at:
        groups.append((best[at][1], at))
        at = best[at][1]
    return tuple(groups[::-1])


@lru_cache(maxsize=2)
def _nodes(level: bool) -> tuple[_Floats, _Floats]:
    """Common sums of blocks in a ball of radius 1, and their weights."""
    if level:
        return np.zeros(1), np.ones(1)
    nodes, weights = np.polynomial.legendre.leggauss(160)
    return (nodes + 1.0) / 2.0, weights / 2.0


@lru_cache(maxsize=128)
def _block(cells: int, level: bool) -> tuple[_Floats, _Floats]:
    """Of blocks in the ball of radius 1, by their sum: their volume, and the mean square of a cell."""
    sums, _ = _nodes(level)
    most = np.ones(1) if level else (1.0 - sums) / 2.0
    nodes, weights = np.polynomial.legendre.leggauss(cells + 4)
    n = most[:, None] * (nodes + 1.0) / 2.0
    p, each = sums[:, None] + n, most[:, None] * weights / 2.0
    # No negative cell.
    volume = sums ** (cells - 1) / math.factorial(cells - 1)
    squares = volume * 2.0 * sums**2 / (cells * (cells + 1))
    for k in range(1, cells):
        f = cells - k
        ways = math.comb(cells, k) / (math.factorial(k - 1) * math.factorial(f - 1))
        own = ways * p ** (k - 1) * n ** (f - 1) * each
        volume += own.sum(axis=1)
        squares += (own * (2.0 * p**2 / (k + 1) + 2.0 * n**2 / (f + 1)) / cells).sum(axis=1)
    return volume, squares / volume


#: Shares of a budget are whole numbers of this part of a cost of 1.
_GRID = 1 << 10


def draw_shares(sizes: Sequence[int], *, level: bool) -> list[tuple[tuple[int, ...], Fraction]]:
    """The groups of ``together``, each with its exact share of a budget; the shares add up to 1."""
    groups = together(sizes, level=level)
    weights = [weight_of(cost([sizes[place] for place in group], level=level)) for group in groups]
    return [(group, Fraction(weight, sum(weights))) for group, weight in zip(groups, weights, strict=True)]


def draws(sizes: Sequence[int], budget: Budget, unit: Event) -> list[tuple[tuple[int, ...], Budget]]:
    """Places of histograms in groups of one draw each, with each group's part of a budget; under zCDP none are
    together."""
    if isinstance(budget, PureDP):
        groups = draw_shares(sizes, level=unit.relation == "replace")
    else:
        groups = [((place,), Fraction(1, len(sizes))) for place in range(len(sizes))]
    return [(group, budget.scaled(share)) for group, share in groups]


def noise_of(budget: Budget, sizes: Sequence[int], unit: Event) -> Noise | HistogramsNoise:
    """The noise of one draw, which costs ``budget``: of each cell of a histogram, or of several histograms of the same
    records. A histogram moves by 1 in ``unit.changed_cells`` cells."""
    if len(sizes) == 1:
        return noise_for(budget, unit.changed_cells, unit.changed_cells)
    assert isinstance(budget, PureDP), "under zCDP nothing is drawn together"
    return HistogramsNoise(1 / budget.epsilon, tuple(sizes), unit.relation == "replace")


def weight_of(cost: float) -> int:
    """A cost as a whole number, by which budgets are divided exactly."""
    return max(1, round(_GRID * cost))
