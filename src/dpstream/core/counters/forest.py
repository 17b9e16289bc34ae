"""Trees of noisy sums whose noise is drawn ahead: the private half of four counters.

Ticks are cut into trees, one after the other. A tree of branching ``(m_1, ..., m_L)`` has a leaf for each tick;
``m_1`` leaves make a node of level 1, ``m_2`` of those one of level 2, up to the root. Every node has one noise, drawn
when the node above it begins. So the noise of a sum that ends later can already be used: the running
sum inside a block is the block's noisy sum less the noisy sums of the ticks to come, and in that
difference the increments to come cancel. What is released is computed as ``exact running sum + noise``,
which is the same number.

Privacy. All outputs are functions of integers ``A z + L n`` with ``A = L R``, where row ``i`` of ``R`` says which
increments node ``i`` covers. Changing an increment by 1 is hidden by shifting the noise of the nodes above it by 1,
at a cost of their shares of the budget, which add up to at most 1 (``docs/theory/counters.md``). Pure budgets only:
noise that is in use before its increments are there is a discrete Gaussian on a coset of a lattice, given the past,
and there zCDP would not hold for somebody who picks the change while watching.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import (
    Counter,
    CounterState,
    LinearMap,
    check_event,
    check_noise,
)
from dpstream.core.counters.factored import FactoredCounter
from dpstream.core.errors import BudgetError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event


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


class ForestCounter(Counter):
    """A recipe given by its trees, in the order of time."""

    @abstractmethod
    def trees(self) -> Sequence[Tree]:
        """Trees that cover every tick the counter may reach."""

    @abstractmethod
    def calibrated(self, budget: PureDP, unit: Event) -> CalibratedForest:
        """The counter with its noise fixed, unchecked."""

    def calibrate(self, budget: Budget, unit: Event) -> CalibratedForest:
        """See ``Counter.calibrate``.

        Errors:
            BudgetError: a budget that is not pure.
        """
        unit = check_event(unit)
        if not isinstance(budget, PureDP):
            raise BudgetError(
                f"the counter {self.name!r} draws noise ahead and keeps pure budgets only",
                where="budget",
                allowed="epsilon; for rho the counters toeplitz (with a horizon) and blt (without) are better",
            )
        calibrated = self.calibrated(budget, unit)
        smallest = min(share for tree in calibrated.trees for share in tree.shares if share)
        check_noise(calibrated.noise(smallest), budget, self.name)
        return calibrated


@dataclass(frozen=True)
class CalibratedForest(FactoredCounter):
    """The private half: which noise is drawn when, and the exact sums.

    State: "t"; "sum", the exact running sum plus the noise of finished trees; "noise", the noise of the children of
    the open node of each level, and of the root. A subclass says which of it is released.
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

    def shapes(self, t: int, width: int) -> dict[str, tuple[int, ...]]:
        """See ``FactoredCounter.shapes``."""
        rows = self.place(t).tree.rows if t else 0
        return {"sum": (width,), "noise": (rows, width)}

    def open_nodes(self, state: CounterState, place: TreePosition, randomness: Randomness) -> list[int]:
        """Draw the noise of what begins with this tick; the levels that begin, highest first."""
        tree, width = place.tree, state["sum"].shape[0]
        if not place.position:
            state["noise"] = np.zeros((tree.rows, width), np.int64)
        # A draw even where nothing begins: a stream must know that what follows rests on noise (``WatchedRandomness``).
        randomness.draw(self.noise(tree.shares[0]), 0)
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

    @abstractmethod
    def estimate(
        self, state: CounterState, coordinates: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
        """The public half before rounding: whole part, and a correction (None: nothing to correct)."""

    def decode(self, state: CounterState, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """See ``FactoredCounter.decode``."""
        whole, correction = self.estimate(state, coordinates)
        return whole if correction is None else whole + np.rint(correction).astype(np.int64)

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
            decoder[t] = whole if correction is None else whole + correction
        exact = decoder.astype(np.int64)
        return LinearMap(np.array(rows), exact if (exact == decoder).all() else decoder, tuple(scales))


class _Impulses(Randomness):
    """The ``i``-th noise is 1 in cell ``i`` and 0 elsewhere: every cell follows one noise."""

    def __init__(self, cells: int) -> None:
        super().__init__(bytes)
        self._cells = cells
        self._next = 0

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        count = size // self._cells
        result = np.zeros((count, self._cells), np.int64)
        result[np.arange(count), np.arange(self._next, self._next + count)] = 1
        self._next += count
        return result.ravel()
