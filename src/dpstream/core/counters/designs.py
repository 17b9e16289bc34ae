"""Which trees: numbers of levels, children and shares, by predicted error.

A design must come out the same on every machine, since a stored state belongs to it. So it uses integers, and of
floating point only sums, products and quotients in a fixed order, which are the same everywhere. Predictions use
the variance ``1/share^2``: the choice does not depend on the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import inf, prod

from dpstream.core.counters.counter import MAX_TICKS
from dpstream.core.counters.forest import Tree

_SAMPLES = 192
_MOST_TREES = 9
_MOST_LEVELS = 6


@lru_cache(maxsize=64)
def optimal_trees(horizon: int) -> tuple[Tree, ...]:
    """The trees of least predicted root mean square over ``1 .. horizon`` among those of ``_candidates``."""
    ticks = sorted({(2 * i + 1) * horizon // (2 * _SAMPLES) for i in range(_SAMPLES)})
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
    for count in range(1, min(_MOST_TREES, horizon) + 1):
        size = -(-horizon // count)
        for levels in range(1, _MOST_LEVELS + 1):
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


def _mean_variance(trees: tuple[Tree, ...], ticks: list[int], most: float) -> float:
    """Mean of the predicted variance after the ticks (counted from 0); infinite once the sum passes ``most``."""
    total, settled, following = 0.0, 0.0, iter(ticks)
    tick = next(following, None)
    for tree in trees:
        own = [_variance(share) for share in tree.shares]
        done = [own[0]]
        for branching, variance in zip(tree.branching, own[1:], strict=True):
            children = branching * done[-1]
            done.append(children / (1.0 + children / variance))
        while tick is not None and tick < tree.start + tree.ticks:
            total += settled + _least_squares(tree, own, done, tick - tree.start)
            if total > most:
                return inf
            tick = next(following, None)
        settled += done[-1]
    return total / len(ticks)


def _least_squares(tree: Tree, own: list[float], done: list[float], position: int) -> float:
    """Variance of the running sum inside a tree (see ``optimal``)."""
    prefix = both = total = own[0]
    for level, branching in enumerate(tree.branching):
        position, digit = divmod(position, branching)
        before = digit * done[level]
        prefix += before
        both += before
        total += before + (branching - 1 - digit) * own[level]
        if own[level + 1] < inf:
            scale = 1.0 / (total + own[level + 1])
            prefix -= both * both * scale
            both *= own[level + 1] * scale
            total *= own[level + 1] * scale
    return prefix


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


@lru_cache(maxsize=64)
def kary_tree(horizon: int, children: int | None) -> Tree:
    """One tree with ``children`` at each node (None: as many as predicted best), its root without noise."""
    if children is not None:
        return _even_tree(horizon, children)
    ticks = sorted({(2 * i + 1) * horizon // (2 * _SAMPLES) for i in range(_SAMPLES)})
    choices = {
        min(most, horizon + 1) for levels in range(1, 30) for most in _around(root_of(horizon, levels))
    }
    trees = [_even_tree(horizon, each) for each in sorted(choices)]
    return min(trees, key=lambda tree: sum(_fewest(tree, position) for position in ticks))


def _around(even: int) -> range:
    """Numbers of children for which a level more or less may pay."""
    return range(max(2, even), even + 2)


def _even_tree(horizon: int, children: int) -> Tree:
    levels = 1
    while children**levels < horizon:
        levels += 1
    branching = (children,) * (levels - 1) + (-(-horizon // children ** (levels - 1)),)
    return Tree(0, horizon, branching, (*(Fraction(1, levels),) * levels, Fraction(0)))


def _fewest(tree: Tree, position: int) -> float:
    """Variance by the fewest noisy sums, all shares but the root's being equal."""
    prefix, suffix = 1, 0
    for level, branching in enumerate(tree.branching):
        position, digit = divmod(position, branching)
        prefix, suffix = digit + prefix, branching - 1 - digit + suffix
        if level + 1 < tree.levels:
            prefix, suffix = min(prefix, 1 + suffix), min(suffix, 1 + prefix)
    return prefix * _variance(tree.shares[0])


@lru_cache(maxsize=1)
def growing_blocks() -> tuple[Tree, ...]:
    """Blocks of 4, 8, 12, ... ticks up to ``MAX_TICKS``, half the budget to a tick and half to its block."""
    half, start = Fraction(1, 2), 0
    trees: list[Tree] = []
    while start < MAX_TICKS:
        size = 4 * (len(trees) + 1)
        trees.append(Tree(start, size, (size,), (half, half)))
        start += size
    return tuple(trees)
