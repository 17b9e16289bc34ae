"""Trees of noisy sums, decoded by least squares: the best known pure counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import CounterState
from dpstream.core.counters.designs import epochs, optimal_trees
from dpstream.core.counters.factored import as_floats, as_integers
from dpstream.core.counters.forest import CalibratedForest, ForestCounter, Tree, TreePosition
from dpstream.core.privacy.budget import PureDP
from dpstream.core.privacy.unit import Event

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness


@dataclass(frozen=True)
class OptimalTreeCounter(ForestCounter):
    """A few trees in a row for a known horizon, each tick decoded by least squares.

    Numbers of trees, levels and children are those with the least predicted error (root mean square over ``1 .. T``);
    trees that many later ticks rest on give more of the budget to their root.

    Guarantee: an increment is below one node of each level of its tree, whose shares add up to 1.
    Error: at epsilon 1 and 1,000 ticks a standard deviation of 10.6 (root mean square). ``O(log^1.5 T)``.
    Memory: one array for each child of the open nodes, ``O(L T^(1/L))`` with ``L`` levels; 34 at 1,000 ticks.

    Source: trees whose sums are also reached by subtraction: Andersson, Pagh and Torkamani 2024; least squares over
    trees: Honaker 2015, Hay et al. 2010. Drawing ahead, streaming and the shares of trees: ours.

    Args:
        horizon: number of ticks ``T``.
    """

    name = "optimal-tree"

    horizon: int

    def describe(self) -> str:
        """The rule in one sentence."""
        return f"trees of noisy sums decoded by least squares, horizon {self.horizon}"

    def trees(self) -> Sequence[Tree]:
        """Of least predicted error."""
        return optimal_trees(self.horizon)

    def calibrated(self, budget: PureDP, unit: Event) -> CalibratedOptimalForest:
        """See ``ForestCounter``."""
        return CalibratedOptimalForest(self, budget, unit)


@dataclass(frozen=True)
class OptimalEpochsCounter(ForestCounter):
    """Growing trees for an unknown horizon: the ``e``-th has about ``8 e^3`` ticks; decoded by least squares.

    Guarantee: an increment is below one node of each level of its tree, whose shares add up to 1.
    Error: at epsilon 1 a standard deviation of 13.9 over ticks 501 to 1,000 (root mean square). About
    ``(t/2)^(1/4)`` finished trees and a constant number of levels: ``O(t^(1/8))`` times a logarithm.
    Memory: one array for each child of the open nodes; 70 at 1,000 ticks. No horizon.

    Source: as ``OptimalTreeCounter``; epochs: Chan, Shi and Song 2010 ("Hybrid"). The sizes of the trees: ours.
    """

    name = "optimal-epochs"

    def describe(self) -> str:
        """The rule in one sentence."""
        return "growing trees of noisy sums decoded by least squares"

    def trees(self) -> Sequence[Tree]:
        """As many as ``MAX_TICKS`` can reach."""
        return epochs()

    def calibrated(self, budget: PureDP, unit: Event) -> CalibratedOptimalForest:
        """See ``ForestCounter``."""
        return CalibratedOptimalForest(self, budget, unit)


class _Gains(NamedTuple):
    """One level's update by the contradiction between the open node's noisy sum and its children's."""

    prefix: float
    total: float


class _Filter:
    """Covariances of the running sum ``P`` inside an open node, the node's sum ``S``, and the last increment ``z``.

    Started at the leaf, where all three are the same; each level joins the children before and after, then learns from
    the node's own noisy sum (a Kalman update with a scalar observation).
    """

    def __init__(self, leaf: float) -> None:
        self.pp = self.ps = self.ss = self.pz = self.zs = leaf

    def join(self, before: float, after: float) -> None:
        """The children before are in ``P`` and ``S``, those after in ``S`` only."""
        self.pp += before
        self.ps += before
        self.ss += before + after

    def learn(self, variance: float) -> _Gains:
        """Observe ``S`` with an independent noise of this variance."""
        if variance == float("inf"):
            return _Gains(0.0, 0.0)
        scale = 1.0 / (self.ss + variance)
        gains = _Gains(self.ps * scale, self.ss * scale)
        left = variance * scale
        self.pp -= gains.prefix * self.ps
        self.pz -= gains.prefix * self.zs
        self.ps *= left
        self.zs *= left
        self.ss *= left
        return gains


@dataclass(frozen=True)
class CalibratedOptimalForest(CalibratedForest):
    """Least squares over all nodes drawn so far, but for those below siblings to come (none are drawn there).

    Measured: the running sum with the noise of the nodes that tile it, left to right; and for each node that begins,
    its noise less its children's ("contradiction": the sums cancel, so it is known when the node begins).
    Decoded: the first, plus a correction that is linear in contradictions. Contradictions are as small as the noise, so
    floating point costs nothing however large the sums are.

    State besides the private half: "public", floats: contradiction of the open node of each level; corrections of
    the finished children of the open node of each level but the first; those of finished trees.
    Cost of a tick: O(levels) arrays, and the draws; amortised one draw per tick and a few in ``m_1``.
    """

    @property
    def public_arrays(self) -> frozenset[str]:
        """See ``FactoredCounter``."""
        return frozenset({"public"})

    def shapes(self, t: int, width: int) -> dict[str, tuple[int, ...]]:
        """See ``FactoredCounter.shapes``."""
        levels = self.place(t).tree.levels if t else 0
        return {**super().shapes(t, width), "public": (max(1, 2 * levels), width)}

    def measure(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """See ``FactoredCounter.measure``: the running sum, then the contradictions of the levels that begin."""
        place = self.place(self.begin_tick(state, increment))
        opened = self.open_nodes(state, place, randomness)
        noise, tree = state["noise"], place.tree
        state["t"] += 1
        state["sum"] += increment
        tiles = _tiles(place)
        canonical = sum((noise[rows].sum(axis=0) for rows in tiles), state["sum"])
        result = [canonical]
        for level in opened:
            if level < tree.levels or tree.has_root:
                first = tree.first_rows[level - 1]
                own = tree.first_rows[level] + (place.digits[level] if level < tree.levels else 0)
                result.append(noise[own] - noise[first : first + place.children[level - 1]].sum(axis=0))
        if place.ends_tree:
            state["sum"] = canonical.copy()
        return np.array(result)

    def estimate(
        self, state: CounterState, coordinates: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """See ``CalibratedForest.estimate``."""
        place = self.place(int(state["t"][0]))
        tree, levels = place.tree, place.tree.levels
        public = as_floats(state["public"])
        if not place.position:
            public = np.concatenate([np.zeros((max(0, 2 * levels - 1), public.shape[1])), public[-1:]])
        contradictions, finished, settled = public[:levels], public[levels - 1 : -1], public[-1]
        fresh = iter(coordinates[1:])
        for level in range(levels, 0, -1):
            if place.opens(level):
                if level > 1:
                    finished[level - 1] = 0.0
                contradictions[level - 1] = next(fresh) if level < levels or tree.has_root else 0
        correction = np.zeros_like(settled)  # of the running sum inside the open node
        whole = np.zeros_like(settled)  # of the open node's sum, beside its own noise
        for level, gains in enumerate(self._gains(place), start=1):
            known = finished[level - 1] if level > 1 else 0.0
            surprise = contradictions[level - 1] - known - whole
            correction = correction + known + gains.prefix * surprise
            if level > 1 and place.closed >= level - 1:
                finished[level - 1] += whole
            whole = (gains.total - 1.0) * surprise
            if place.closed >= level and (level < levels or tree.has_root):
                correction = whole
        result = correction + settled
        if place.ends_tree:
            settled[:] = result
        state["public"] = as_integers(public)
        return coordinates[0], result

    def variance(self, t: int) -> float:
        """See ``FactoredCounter``: of the estimate before it is rounded."""
        t = self.check_ticks(t)
        return self._after(t).pp + self._before(t) if t else 0.0

    def gain_variance(self, t: int) -> float:
        """See ``CalibratedCounter.gain_variance``; exact, before rounding.

        An estimate by least squares does not correlate with any contradiction known to it. So the estimates after
        ``t`` and ``t - 1`` correlate as if both were made with what is known at ``t``.
        """
        after = self._after(self.check_ticks(t))
        return self.variance(t - 1) - after.pp - self._before(t) + 2.0 * after.pz

    def _gains(self, place: TreePosition) -> Iterator[_Gains]:
        _, gains = self._run(place)
        return iter(gains)

    def _after(self, t: int) -> _Filter:
        return self._run(self.place(t))[0]

    def _before(self, t: int) -> float:
        """Variance of the finished trees."""
        return self._settled[self.place(t).number]

    def _run(self, place: TreePosition) -> tuple[_Filter, list[_Gains]]:
        own, done = self._by_level[place.number]
        state, gains = _Filter(own[0]), []
        for level, (digit, children) in enumerate(zip(place.digits, place.children, strict=True)):
            state.join(digit * done[level], (children - 1 - digit) * own[level])
            gains.append(state.learn(own[level + 1]))
        return state, gains

    @cached_property
    def _by_level(self) -> list[tuple[tuple[float, ...], list[float]]]:
        """For each tree and level: variance of a node's own noise, and of its sum by least squares when finished."""
        result = []
        for tree in self.trees:
            own = self.variances(tree)
            done = [own[0]]
            for branching, variance in zip(tree.branching, own[1:], strict=True):
                children = branching * done[-1]
                done.append(children / (1.0 + children / variance))
            result.append((own, done))
        return result

    @cached_property
    def _settled(self) -> list[float]:
        result = [0.0]
        for _, done in self._by_level:
            result.append(result[-1] + done[-1])
        return result


def _tiles(place: TreePosition) -> list[slice]:
    """Rows of the finished nodes that tile the tree up to this tick."""
    tree = place.tree
    if place.ends_tree and tree.has_root:
        return [slice(tree.first_rows[-1], tree.rows)]
    closed = min(place.closed, tree.levels - 1)
    return [
        slice(first, first + place.digits[level] + (level == closed))
        for level, first in enumerate(tree.first_rows[:-1])
        if level >= closed
    ]
