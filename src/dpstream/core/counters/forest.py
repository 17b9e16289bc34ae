"""Trees of noisy sums whose noise is drawn ahead, decoded by least squares: the best known pure counters.

Ticks are cut into trees, one after the other. A tree of branching ``(m_1, ..., m_L)`` has a leaf for each tick;
``m_1`` leaves make a node of level 1, ``m_2`` of those one of level 2, up to the root. Every node has one noise, drawn
when the node above it begins. So the noise of a sum that ends later can already be used: the running
sum inside a block is the block's noisy sum less the noisy sums of the ticks to come, and in that
difference the increments to come cancel.

Privacy. All outputs are functions of integers ``A z + L n`` with ``A = L R``, where row ``i`` of ``R`` says which
increments node ``i`` covers. Changing an increment by 1 is hidden by shifting the noise of the nodes above it by 1,
at a cost of their shares of the budget, which add up to at most 1 (``docs/theory/counters.md``). Pure budgets only:
noise that is in use before its increments are there is a discrete Gaussian on a coset of a lattice, given the past,
and there zCDP would not hold for somebody who picks the change while watching.

Any design is private whose shares ``calibrate`` accepts.

Trusted base: kernel (holds exact sums, measures them).
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
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
    Counter,
    CounterState,
    FactoredCounter,
    LinearMap,
    as_floats,
    as_integers,
    check_event,
    check_noise,
)
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy import AnyNoise, Budget, Event, Noise, Noisy, PureDP, Randomness, noise_for

# One tree of a forest: its branching, its shares of the budget, and where a tick is in it.


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


# Designs of forests: trees, levels, children and shares by predicted error; and least squares inside a tree. Public.
#
# A design must come out the same on every machine, since a stored state belongs to it. So it uses integers, and of
# floating point only sums, products and quotients in a fixed order, which are the same everywhere. Predictions use the
# variance ``1/share^2``: the choice does not depend on the budget.


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


class ForestCounter(Counter):
    """A recipe given by its trees, in the order of time."""

    @abstractmethod
    def trees(self) -> Sequence[Tree]:
        """Trees that cover every tick the counter may reach."""

    def calibrate(self, budget: Budget, unit: Event) -> CalibratedForest:
        """See ``Counter.calibrate``.

        Errors:
            BudgetError: a budget that is not pure. ConfigError: a design that costs more, or leaves out ticks.
        """
        unit = check_event(unit)
        if not isinstance(budget, PureDP):
            raise BudgetError(
                f"counter {self.name!r} draws noise ahead, for pure budgets only",
                where="budget",
                allowed="epsilon; for rho toeplitz (with a horizon) or blt (without) is better",
            )
        calibrated = CalibratedForest(self, budget, unit)
        ends = [0, *(tree.start + tree.ticks for tree in calibrated.trees)]
        if ends[-1] < (self.tick_limit or MAX_TICKS) or any(
            tree.start != end or tree.ticks > tree.spans[-1] or sum(tree.shares) > 1 or min(tree.shares) < 0
            for tree, end in zip(calibrated.trees, ends, strict=False)
        ):
            raise ConfigError(
                "trees skip ticks, or exceed the budget",
                where=f"counter {self.name}",
                allowed="consecutive trees with shares up to 1 together",
            )
        smallest = min(share for tree in calibrated.trees for share in tree.shares if share)
        check_noise(calibrated.noise(smallest), budget, self.name)
        return calibrated


@dataclass(frozen=True)
class OptimalTreeCounter(ForestCounter):
    """A few trees in a row for a known horizon, each tick decoded by least squares.

    Numbers of trees, levels and children are those with the least predicted error (root mean square over ``1 .. T``);
    trees that many later ticks rest on give more of the budget to their root.

    Guarantee: an increment is below one node of each level of its tree, whose shares add up to 1.
    Error: at epsilon 1 and 1,000 ticks a standard deviation of 10.6 (root mean square). ``O(log^1.5 T)``.
    Memory: one array for each child of the open nodes, ``O(L T^(1/L))`` with ``L`` levels; 36 at 1,000 ticks.

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


@dataclass(frozen=True)
class OptimalEpochsCounter(ForestCounter):
    """Growing trees for an unknown horizon: the ``e``-th has about ``8 e^3`` ticks; decoded by least squares.

    Guarantee: an increment is below one node of each level of its tree, whose shares add up to 1.
    Error: at epsilon 1 a standard deviation of 13.9 over ticks 501 to 1,000 (root mean square). About
    ``(t/2)^(1/4)`` finished trees and a constant number of levels: ``O(t^(1/8))`` times a logarithm.
    Memory: one array for each child of the open nodes; 72 at 1,000 ticks. No horizon.

    Source: as ``OptimalTreeCounter``; epochs: Chan, Shi and Song 2010 ("Hybrid"). The sizes of the trees: ours.
    """

    name = "optimal-epochs"

    def describe(self) -> str:
        """The rule in one sentence."""
        return "growing trees of noisy sums decoded by least squares"

    def trees(self) -> Sequence[Tree]:
        """As many as ``MAX_TICKS`` can reach."""
        return epochs()


@dataclass(frozen=True)
class CalibratedForest(FactoredCounter):
    """Least squares over all nodes drawn so far, but for those below siblings to come (none are drawn there).

    Measured: the running sum with the noise of the nodes that tile it, left to right; and for each node that begins,
    its noise less its children's ("contradiction": the sums cancel, so it is known when the node begins).
    Decoded: the first, plus a correction that is linear in contradictions. Contradictions are as small as the noise, so
    floating point costs nothing however large the sums are.

    State: "t"; "sum", the noisy sum of finished trees; "open", the exact sum so far of the open node of each level but
    the leaves'; "noise", of the children of the open node of each level, and of the root: the noisy sum of those that
    have ended, the noise of the others; "public", floats: contradiction of the open node of each level;
    corrections of the finished children of the open node of each level but the first; those of finished trees.
    Cost of a tick: O(levels) arrays, and the draws; amortised one draw per tick and a few in ``m_1``.
    """

    recipe: ForestCounter
    budget: PureDP
    unit: Event

    def describe(self) -> str:
        """Rule, budget and noise in words."""
        first = self.noise(self.trees[0].shares[0]).describe()
        return f"{self.recipe.describe()}; {self.budget} for {self.unit.name}; on each increment at first {first}"

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """All trees, in the order of time."""
        return tuple(self.recipe.trees())

    @cached_property
    def _noises(self) -> dict[Fraction, Noise]:
        return {}

    def noise(self, share: Fraction) -> Noise:
        """The noise of a node which has this share of the budget."""
        cached = self._noises.get(share)
        if cached is None:
            cells = self.unit.changed_cells
            cached = self._noises[share] = noise_for(self.budget.scaled(share), cells, cells)
        return cached

    def variances(self, tree: Tree) -> tuple[float, ...]:
        """Variance of a node's noise by level (infinite for a root that has none)."""
        return tuple(self.noise(share).variance if share else float("inf") for share in tree.shares)

    @cached_property
    def _starts(self) -> list[int]:
        return [tree.start for tree in self.trees]

    def place(self, t: int) -> TreePosition:
        """Where tick ``t`` is."""
        number = bisect_right(self._starts, t - 1) - 1
        tree = self.trees[number]
        position = t - 1 - tree.start
        digits, children, closed = [], [], 0
        for level, branching in enumerate(tree.branching):
            span = tree.spans[level]
            digits.append(position // span % branching)
            begin = position - position % tree.spans[level + 1]
            children.append(min(branching, -(-(tree.ticks - begin) // span)))
            closed += (position + 1) % tree.spans[level + 1] == 0
        return TreePosition(number, tree, position, tuple(digits), tuple(children), closed)

    @property
    def public_arrays(self) -> frozenset[str]:
        """See ``FactoredCounter``."""
        return frozenset({"public"})

    def shapes(self, t: int, width: int) -> dict[str, tuple[int, ...]]:
        """See ``FactoredCounter.shapes``."""
        tree = self.place(t).tree if t else None
        rows, levels = (tree.rows, tree.levels) if tree else (0, 0)
        return {
            "sum": (width,),
            "open": (levels, width),
            "noise": (rows, width),
            "public": (max(1, 2 * levels), width),
        }

    def measure(self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness) -> Noisy:
        """See ``FactoredCounter.measure``: the running sum, then the contradictions of the levels that begin."""
        place = self.place(self.begin_tick(state, increment))
        opened = self.open_nodes(state, place, randomness)
        noise, tree = state["noise"], place.tree
        contradictions = []
        for level in opened:
            if level < tree.levels or tree.has_root:
                first = tree.first_rows[level - 1]
                children = noise[first : first + place.children[level - 1]]
                contradictions.append(noise[_node_row(place, level)] - children.sum(axis=0))
        state["t"] += 1
        state["open"] += increment
        for level in range(place.closed + 1):
            if level < tree.levels or tree.has_root:
                exact, row = state["open"][level - 1] if level else increment, _node_row(place, level)
                noise[row] = randomness.measure(exact, self.noise(tree.shares[level]), noise[row])
        state["open"][: place.closed] = 0
        running = sum((noise[rows].sum(axis=0) for rows in _tiles(place)), state["sum"])
        if place.ends_tree:
            state["sum"] = running.copy()
        # Sums of measured nodes; and in contradictions the counts cancel.
        return Noisy(np.array([running, *contradictions]))

    def open_nodes(self, state: CounterState, place: TreePosition, randomness: Randomness) -> list[int]:
        """Draw the noise of what begins with this tick; the levels that begin, highest first."""
        tree, width = place.tree, state["sum"].shape[0]
        if not place.position:
            state["noise"] = np.zeros((tree.rows, width), np.int64)
            state["open"] = np.zeros((tree.levels, width), np.int64)
        for begin, count, level in self.drawn(place):
            fresh = randomness.draw(self.noise(tree.shares[level]), count * width)
            state["noise"][begin : begin + count] = fresh.reshape(count, width)
        return [level for level in range(tree.levels, 0, -1) if place.opens(level)]

    @staticmethod
    def drawn(place: TreePosition) -> Iterator[tuple[int, int, int]]:
        """What is drawn at this tick, in order: first row, how many nodes, their level."""
        tree = place.tree
        if not place.position and tree.has_root:
            yield tree.first_rows[-1], 1, tree.levels
        for level in range(tree.levels, 0, -1):
            if place.opens(level):
                yield tree.first_rows[level - 1], place.children[level - 1], level - 1

    def decode(self, state: CounterState, coordinates: Noisy) -> Noisy:
        """See ``FactoredCounter.decode``."""
        whole, correction = self.estimate(state, coordinates)
        return Noisy(whole + np.rint(correction).astype(np.int64))

    def estimate(
        self, state: CounterState, coordinates: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The public half before rounding: the whole part, and its correction."""
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
        for level, (prefix, total) in enumerate(self._run(place).gains, start=1):
            known = finished[level - 1] if level > 1 else 0.0
            surprise = contradictions[level - 1] - known - whole
            correction = correction + known + prefix * surprise
            if level > 1 and place.closed >= level - 1:
                finished[level - 1] += whole
            whole = (total - 1.0) * surprise
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
        place = self.place(t)
        return self._run(place).variance + self._settled[place.number] if t else 0.0

    def gain_variance(self, t: int) -> float:
        """See ``CalibratedCounter.gain_variance``; exact, before rounding.

        An estimate by least squares does not correlate with any contradiction known to it. So the estimates after
        ``t`` and ``t - 1`` correlate as if both were made with what is known at ``t``.
        """
        place = self.place(self.check_ticks(t))
        after = self._run(place)
        return self.variance(t - 1) - after.variance - self._settled[place.number] + 2.0 * after.with_last

    def materialize(self, n: int) -> LinearMap:
        """See ``CalibratedCounter.materialize``; the decoder by running on unit impulses, the encoder by the trees."""
        n = self.check_matrix(n)
        rows = []
        scales: list[Noise] = []
        for t in range(1, n + 1):
            place = self.place(t)
            first = place.tree.start + place.position
            for _, count, level in self.drawn(place):
                span = place.tree.spans[level]
                for begin in range(first, first + count * span, span):
                    row = np.zeros(n, np.int64)
                    row[begin : begin + span] = 1
                    rows.append(row)
                scales += [self.noise(place.tree.shares[level])] * count
        state, impulses = self.init(len(scales)), _Impulses(len(scales))
        zeros = np.zeros(len(scales), np.int64)
        decoder = np.zeros((n, len(scales)))
        for t in range(n):
            whole, correction = self.estimate(state, self.measure(state, zeros, impulses))
            decoder[t] = whole + correction
        exact = decoder.astype(np.int64)
        return LinearMap(np.array(rows), exact if (exact == decoder).all() else decoder, tuple(scales))

    def _run(self, place: TreePosition) -> Filtered:
        own, done = self._by_level[place.number]
        return filtered(own, done, place.digits, place.children)

    @cached_property
    def _by_level(self) -> list[tuple[tuple[float, ...], list[float]]]:
        """For each tree and level: variance of a node's own noise, and of its sum by least squares when finished."""
        owns = map(self.variances, self.trees)
        return [(own, finished(tree, own)) for tree, own in zip(self.trees, owns, strict=True)]

    @cached_property
    def _settled(self) -> list[float]:
        result = [0.0]
        for _, done in self._by_level:
            result.append(result[-1] + done[-1])
        return result


def _node_row(place: TreePosition, level: int) -> int:
    """Where the open node of this level is among the rows of noise."""
    return place.tree.first_rows[level] + (place.digits[level] if level < place.tree.levels else 0)


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


class _Impulses(Randomness):
    """The ``i``-th noise is 1 in cell ``i`` and 0 elsewhere: every cell follows one noise."""

    def __init__(self, cells: int) -> None:
        super().__init__(bytes)
        self._cells = cells
        self._next = 0

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        count = size // self._cells
        result = np.zeros((count, self._cells), np.int64)
        result[np.arange(count), np.arange(self._next, self._next + count)] = 1
        self._next += count
        return result.ravel()
