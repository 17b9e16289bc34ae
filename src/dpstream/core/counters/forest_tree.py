"""One tree of a forest: its branching, its shares of the budget, and where a tick is in it.

Trusted base: kernel (shares of budgets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import fsum, inf, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import (
    MAX_TICKS,
)


@dataclass(frozen=True)
class Tree:
    """One tree.

    Attributes:
        start: ticks before it.
        ticks: how many it serves; fewer than its leaves where the horizon cuts it off.
        branching: children of a node of level 1, 2, ..., ``L`` (the root). Empty: a single leaf, the root itself.
        shares: share of the budget of a node of level 0 (leaf), ..., ``L``. A root with share 0 has no noise.
    """

    start: int
    ticks: int
    branching: tuple[int, ...]
    shares: tuple[Fraction, ...]

    @property
    def levels(self) -> int:
        """``L``."""
        return len(self.branching)

    @property
    def has_root(self) -> bool:
        """Whether the root has a noisy sum."""
        return self.shares[-1] > 0

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """Ticks of a node of level 0, ..., ``L``."""
        return tuple(prod(self.branching[:level]) for level in range(self.levels + 1))

    @cached_property
    def first_rows(self) -> tuple[int, ...]:
        """Where the children of the open node of level 1, ..., ``L`` are among the rows of noise, and the root."""
        return tuple(sum(self.branching[:level]) for level in range(self.levels + 1))

    @property
    def rows(self) -> int:
        """Rows of noise in a state."""
        return self.first_rows[-1] + self.has_root


class TreePosition(NamedTuple):
    """Where a tick is in its tree.

    ``number`` is the tree's, ``position`` the tick's in the tree; both count from 0. ``digits[l]`` is the child of the
    open node of level ``l + 1`` that has the tick, ``children[l]`` how many that node has. Nodes up to level
    ``closed`` end with this tick (the leaf always).
    """

    number: int
    tree: Tree
    position: int
    digits: tuple[int, ...]
    children: tuple[int, ...]
    closed: int

    def opens(self, level: int) -> bool:
        """Whether the node of this level begins with this tick."""
        return self.position % self.tree.spans[level] == 0

    @property
    def ends_tree(self) -> bool:
        """Whether all leaves of the tree are used up."""
        return self.closed == self.tree.levels


class Filtered(NamedTuple):
    """Least squares inside an open tree.

    Attributes:
        variance: of the running sum ``P``.
        with_last: covariance of ``P`` with the last increment.
        gains: of each level from 1 on: how far the contradiction between the open node's noisy sum and its children's
            moves ``P``, and the sum of the node.
    """

    variance: float
    with_last: float
    gains: list[tuple[float, float]]


def filtered(
    own: Sequence[float], done: Sequence[float], digits: Sequence[Any], children: Sequence[int]
) -> Filtered:
    """Level by level from the leaf, where ``P``, the node's sum ``S`` and the last increment ``z`` are the same.

    Each level joins the children before (in ``P`` and ``S``) and after (in ``S`` only), then learns from the node's own
    noisy sum (a Kalman update with a scalar observation).

    Args:
        own, done: see ``_by_level``.
        digits, children: see ``TreePosition``; digits may be arrays, for many positions at once.
    """
    pp = ps = ss = pz = zs = own[0]
    gains = []
    for level, digit in enumerate(digits):
        before = digit * done[level]
        variance = own[level + 1]
        pp += before
        ps += before
        ss += before + (children[level] - 1 - digit) * own[level]
        if variance == inf:
            gains.append((0.0, 0.0))
            continue
        scale = 1.0 / (ss + variance)
        prefix = ps * scale
        left = variance * scale
        gains.append((prefix, ss * scale))
        pp -= prefix * ps
        pz -= prefix * zs
        ps *= left
        zs *= left
        ss *= left
    return Filtered(pp, pz, gains)


def finished(tree: Tree, own: Sequence[float]) -> list[float]:
    """By level: variance of the sum of a finished node by least squares; ``own``: of its own noisy sum."""
    done = [own[0]]
    for branching, variance in zip(tree.branching, own[1:], strict=True):
        children = branching * done[-1]
        done.append(children / (1.0 + children / variance))
    return done


_SAMPLES = 192
_MAX_TREES = 9
_MAX_LEVELS = 6


@lru_cache(maxsize=64)
def optimal_trees(horizon: int) -> tuple[Tree, ...]:
    """The trees of least predicted root mean square over ``1 .. horizon`` among those of ``_candidates``."""
    ticks = np.unique([(2 * i + 1) * horizon // (2 * _SAMPLES) for i in range(_SAMPLES)])
    best = inf
    chosen: tuple[Tree, ...] = ()
    for branching in _candidates(horizon):
        trees = _row(horizon, branching)
        error = _mean_variance(trees, ticks, best * len(ticks))
        if error < best:
            best, chosen = error, trees
    return chosen


def _candidates(horizon: int) -> Iterator[tuple[int, ...]]:
    """Branchings of trees which the horizon holds 1 to 9 of, children alike at all levels but the root's."""
    seen: set[tuple[int, ...]] = set()
    if horizon <= _SAMPLES:
        yield ()
    for count in range(1, min(_MAX_TREES, horizon) + 1):
        size = -(-horizon // count)
        for levels in range(1, _MAX_LEVELS + 1):
            even = root_of(size, levels)
            if even < 2:
                break
            for each in range(max(2, even - 2), even + 4):
                branching = (each,) * (levels - 1) + (max(1, -(-size // each ** (levels - 1))),)
                if branching[-1] > 1 and branching not in seen:
                    seen.add(branching)
                    yield branching


def _row(horizon: int, branching: tuple[int, ...]) -> tuple[Tree, ...]:
    """Equal trees one after the other; the more ticks come after a tree, the more its root gets."""
    size, levels = prod(branching), len(branching)
    trees = []
    for start in range(0, horizon, size):
        root = _root_share(max(0, horizon - start - size), size, levels)
        below = ((1 - root) / levels,) * levels if levels else ()
        trees.append(Tree(start, min(size, horizon - start), branching, (*below, root)))
    return tuple(trees)


def _root_share(later: int, size: int, levels: int) -> Fraction:
    """Share of a root that ``later`` ticks rest on, in a tree of ``size`` ticks, in 1024ths of the whole.

    The variance is about ``A later / root^2 + B size / rest^2``, least at ``root : rest`` as the cube root of
    ``later / size``. The factors were fitted at 1,000 ticks. In a tree of leaves and a root the root also serves the
    tree's own later half.
    """
    if not levels:
        return Fraction(1)
    if levels == 1:
        later += size * 3 // 20
    factor = {1: 660, 2: 375}.get(levels, 350)
    ratio = root_of(later * factor**3 // size, 3)
    return Fraction(1024 * ratio // (1000 + ratio), 1024)


def _mean_variance(trees: tuple[Tree, ...], ticks: NDArray[np.int64], most: float) -> float:
    """Mean of the predicted variance after the ticks (counted from 0); infinite once the sum passes ``most``."""
    total, settled = 0.0, 0.0
    for tree in trees:
        own = [_variance(share) for share in tree.shares]
        done = finished(tree, own)
        inside = ticks[(ticks >= tree.start) & (ticks < tree.start + tree.ticks)] - tree.start
        digits = [inside // span % many for span, many in zip(tree.spans, tree.branching, strict=False)]
        variances = np.full(len(inside), settled) + filtered(own, done, digits, tree.branching).variance
        total += fsum(variances.tolist())  # the same on every machine, whatever the order
        if total > most:
            return inf
        settled += done[-1]
    return total / len(ticks)


def _variance(share: Fraction) -> float:
    return float((1 / share) ** 2) if share else inf


@lru_cache(maxsize=1)
def epochs() -> tuple[Tree, ...]:
    """Trees of about ``8, 64, 216, ..., 8 e^3`` ticks up to ``MAX_TICKS``; a third of the budget to each root."""
    trees: list[Tree] = []
    start, number = 0, 1
    while start < MAX_TICKS:
        size = 8 * number**3
        levels = 1 + (size > 30) + (size > 3000) + (size > 100_000)
        each = root_of(size - 1, levels) + 1
        root = Fraction(1, 3)
        shares = (*((1 - root) / levels,) * levels, root)
        trees.append(Tree(start, each**levels, (each,) * levels, shares))
        start += each**levels
        number += 1
    return tuple(trees)


def root_of(value: int, degree: int) -> int:
    """The integer part of the root.

    >>> root_of(26, 3), root_of(27, 3), root_of(10**30, 5)
    (2, 3, 1000000)
    """
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**degree <= value:
            low = middle
        else:
            high = middle - 1
    return low
