"""Trees of noisy sums, each running sum made of the fewest: also by subtraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import MAX_TICKS, CounterState, check_count
from dpstream.core.counters.designs import growing_blocks, kary_tree
from dpstream.core.counters.forest import CalibratedForest, ForestCounter, Tree, TreePosition
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.unit import Event

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness


@dataclass(frozen=True)
class SubtractBlocksCounter(ForestCounter):
    """Growing blocks of 4, 8, 12, ... ticks; past its middle a block's sum less the ticks to come.

    Guarantee: an increment is in one noise of its own and in its block's, a half each.
    Error: at epsilon 1 a standard deviation of 17.4 over ticks 501 to 1,000 (root mean square); ``O(t^(1/4))``.
    Memory: one array for each tick of the open block, ``sqrt(8 t)``; 90 at 1,000 ticks. No horizon.

    Source: blocks: Chan, Shi and Song 2010; subtraction: Andersson, Pagh and Torkamani 2024; together: ours.
    """

    name = "subtract-blocks"

    def describe(self) -> str:
        """The rule in one sentence."""
        return "blocks of 4, 8, 12, ... ticks, sums also reached by subtraction"

    def trees(self) -> Sequence[Tree]:
        """A tree of one level for each block."""
        return growing_blocks()

    def calibrated(self, budget: PureDP, unit: Event) -> CalibratedSubtraction:
        """See ``ForestCounter``."""
        return CalibratedSubtraction(self, budget, unit)


@dataclass(frozen=True)
class KaryTreeCounter(ForestCounter):
    """One tree with ``k`` children at each node, sums also reached by subtraction.

    Guarantee: an increment is below one node of each level, an equal share each.
    Error: at epsilon 1 and 1,000 ticks a standard deviation of 13.0 (root mean square); ``O(log^1.5 T)``.
    Memory: ``k`` arrays a level.

    Source: Andersson, Pagh and Torkamani 2024.

    Args:
        horizon: number of ticks ``T``.
        children: ``k``, 2 or more; by default that of the least predicted error.
    """

    name = "k-ary"

    horizon: int
    children: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.children is not None:
            check_count(self.children, what="the number of children", least=2, most=MAX_TICKS)

    def describe(self) -> str:
        """The rule in one sentence."""
        most = "as many children as predicted best" if self.children is None else f"{self.children} children"
        return f"tree of noisy sums with {most}, sums also reached by subtraction, horizon {self.horizon}"

    def trees(self) -> Sequence[Tree]:
        """One."""
        return (kary_tree(self.horizon, self.children),)

    def calibrated(self, budget: PureDP, unit: Event) -> CalibratedSubtraction:
        """See ``ForestCounter``."""
        return CalibratedSubtraction(self, budget, unit)


class _Way(NamedTuple):
    """A sum of noisy sums: its variance, and for rows of noise whether they are added or subtracted."""

    variance: float
    rows: tuple[tuple[int, int, int], ...] = ()  # first row, row after the last, sign

    def plus(self, first: int, last: int, sign: int, each: float) -> _Way:
        """With these rows besides."""
        if first == last:
            return self
        return _Way(self.variance + (last - first) * each, (*self.rows, (first, last, sign)))

    def negative(self) -> _Way:
        """The same rows with other signs."""
        return _Way(self.variance, tuple((first, last, -sign) for first, last, sign in self.rows))


@dataclass(frozen=True)
class CalibratedSubtraction(CalibratedForest):
    """Measured and released: the running sum with the noise of the cheapest tiling. Integers only.

    Cost of a tick: a few additions for each child of the open nodes, and the draws.
    """

    @property
    def public_arrays(self) -> frozenset[str]:
        """See ``FactoredCounter``."""
        return frozenset()

    def measure(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """See ``FactoredCounter.measure``: the estimate itself, in one row."""
        place = self.place(self.begin_tick(state, increment))
        self.open_nodes(state, place, randomness)
        state["t"] += 1
        state["sum"] += increment
        estimate = state["sum"].copy()
        for first, last, sign in self._way(place).rows:
            estimate += sign * state["noise"][first:last].sum(axis=0)
        if place.ends_tree:
            state["sum"] = estimate.copy()
        return estimate[np.newaxis]

    def estimate(
        self, state: CounterState, coordinates: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """See ``CalibratedForest.estimate``."""
        return coordinates[0], None

    def variance(self, t: int) -> float:
        """See ``CalibratedCounter.variance``."""
        t = self.check_ticks(t)
        if not t:
            return 0.0
        place = self.place(t)
        return self._settled(place.number) + self._way(place).variance

    def gain_variance(self, t: int) -> float:
        """See ``CalibratedCounter.gain_variance``; exact."""
        place = self.place(self.check_ticks(t))
        if not place.position:
            return self._way(place).variance
        own, gain = self.variances(place.tree), self._nodes(place)
        for node, sign in self._nodes(self.place(t - 1)).items():
            gain[node] = gain.get(node, 0) - sign
        return float(sum(sign**2 * own[node[0]] for node, sign in gain.items()))

    def _way(self, place: TreePosition) -> _Way:
        """The least variance for the running sum inside the tree, over all choices level by level."""
        tree, own = place.tree, self.variances(place.tree)
        if not tree.levels:
            return _Way(0.0).plus(0, 1, 1, own[0])
        prefix, suffix = _Way(0.0), _Way(0.0)  # of the open child: up to this tick, and after it
        for level, (digit, children) in enumerate(zip(place.digits, place.children, strict=True)):
            first, each = tree.first_rows[level], own[level]
            here = first + digit
            if level == 0:
                prefix = prefix.plus(here, here + 1, 1, each)
            left = prefix.plus(first, here, 1, each)
            right = suffix.plus(here + 1, first + children, 1, each)
            prefix, suffix = left, right
            if level + 1 < tree.levels or tree.has_root:
                node = tree.first_rows[level + 1] + (
                    place.digits[level + 1] if level + 1 < tree.levels else 0
                )
                prefix = min(left, right.negative().plus(node, node + 1, 1, own[level + 1]), key=_variance)
                suffix = min(right, left.negative().plus(node, node + 1, 1, own[level + 1]), key=_variance)
        return prefix

    def _nodes(self, place: TreePosition) -> dict[tuple[int, int], int]:
        """Signs of the nodes of a tick's tiling, by level and number in the tree."""
        tree, signs = place.tree, {}
        for first, last, sign in self._way(place).rows:
            for row in range(first, last):
                level = next(i for i in range(tree.levels, -1, -1) if tree.first_rows[i] <= row)
                begin = place.position // tree.spans[level + 1] if level < tree.levels else 0
                number = begin * tree.branching[level] if level < tree.levels else 0
                signs[level, number + row - tree.first_rows[level]] = sign
        return signs

    def _settled(self, index: int) -> float:
        """Variance of the trees before, each at its last tick."""
        known = self._known
        while len(known) <= index:
            tree = self.trees[len(known) - 1]
            known.append(known[-1] + self._way(self.place(tree.start + tree.ticks)).variance)
        return known[index]

    @cached_property
    def _known(self) -> list[float]:
        return [0.0]


def _variance(way: _Way) -> float:
    return way.variance
