"""One tree of a forest: its branching, its shares of the budget, and where a tick is in it.

Trusted base: kernel (shares of budgets).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import NamedTuple


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
