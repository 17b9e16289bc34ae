"""When cells begin and what they may spend: all public, all exact.

Ticks count points. Level ``r`` is ``[t_r, t_(r+1))`` with ``t_r = ceil(leaf 2^r / epsilon)``; level -1 is what comes
before ``t_0``. Cells of depth ``j`` begin with level ``j``, at tick ``t_j``.

What one arrival in level ``r`` pays, on the path of cells that holds it:

* each depth ``j <= r``: ``spent(j, r)``, in parts: the sparse counter of the level, the level's sum at its end, and the
  sum of the block that holds the arrival, where there are blocks;
* each depth ``j > r`` whose cells read level ``r`` when they begin: ``reread(j, r)``.

Under replacement two paths change, so the sum over all depths is at most ``epsilon/2``, for every ``r``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from dpstream.errors import BudgetError

__all__ = ["MAX_TICK", "Design", "Schedule"]

#: Points of one stream.
MAX_TICK = 2**38
#: Rational amounts below the printed, irrational ones: multiples of epsilon over this.
_GRID = 1 << 40
#: An average cell of a block holds so many times its noise's scale, or the sums are not worth their budget.
#: Little is enough: where points gather, cells hold more than the average.
_CLEAR_BLOCK = Fraction(1, 4)


@dataclass(frozen=True)
class Design:
    """Public constants of a variant; the guarantee holds for any.

    Attributes:
        leaf: ``t_r = ceil(leaf 2^r / epsilon)``.
        test_share: part of a level's budget for its sparse counter; the rest pays the level's sum at its end.
        factor: the sparse counter's threshold is ``factor b ln T``, ``b`` the scale of its tests' noise.
        tree: whether segments are counted by a binary tree (else by unbounded blocks with closed partitions).
        history: weight of the one sum of earlier points with which a depth begins, relative to its own first level.
            0 for none (``d >= 2``) or for one sum a level (``d = 1``), as in the text.
        tight: ``d = 1``: whether the constant uses up the budget.
        pooled: whether levels' sums are combined by variance, and parents split in proportion.
        blocks: into how many blocks a level is cut, each of which gives noisy sums of its own; 0 for none.
        block_share: part of a level's budget for these, at depths where they say something (``Schedule.blocks``).
    """

    leaf: Fraction
    test_share: Fraction
    factor: Fraction
    tree: bool
    history: Fraction
    tight: bool
    pooled: bool
    blocks: int = 0
    block_share: Fraction = Fraction(0)


PAPER = Design(Fraction(1), Fraction(1, 2), Fraction(9, 2), True, Fraction(0), False, False)
DEFAULT = Design(Fraction(16), Fraction(1, 8), Fraction(2), False, Fraction(1), True, True, 8, Fraction(1, 4))


@dataclass(frozen=True)
class Schedule:
    """Levels and budgets for one dimension and epsilon."""

    dimension: int
    epsilon: Fraction
    design: Design
    max_depth: int

    def start(self, level: int) -> int:
        """``t_r``; 1 for level -1."""
        return 1 if level < 0 else self._starts[level]

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """More levels than ``MAX_TICK`` can reach: epsilon is at most 1000."""
        return tuple(math.ceil(self.design.leaf * 2**level / self.epsilon) for level in range(64))

    def ticks(self, level: int) -> int:
        """How many ticks the level has; 0 for some early ones where epsilon is large."""
        return self.start(level + 1) - self.start(level)

    def level_of(self, tick: int) -> int:
        """The level that holds a tick (the last one that begins with it or before)."""
        level = -1
        while self.start(level + 1) <= tick:
            level += 1
        return level

    def block_ends(self, level: int) -> tuple[int, ...]:
        """Last ticks of the level's blocks; the last one ends with the level."""
        blocks, ticks = self.design.blocks, self.ticks(level)
        if level < 1 or ticks < max(blocks, 1):
            return ()
        return tuple(self.start(level) - 1 + ticks * i // blocks for i in range(1, blocks + 1))

    def has_blocks(self, depth: int, level: int) -> bool:
        """Whether cells of this depth give sums of blocks: where an average cell has points enough."""
        if not self.block_ends(level):
            return False
        mean = Fraction(self.ticks(level), self.design.blocks << depth)
        return mean * self.spent(depth, level) * self.design.block_share >= _CLEAR_BLOCK

    def depth(self, level: int) -> int:
        """The deepest cells of a level."""
        return min(max(level, 0), self.max_depth)

    @property
    def rereads_all(self) -> bool:
        """``d = 1``: cells begin with everything before, whatever its level."""
        return self.dimension == 1

    @cached_property
    def _decay(self) -> float:
        """``1/alpha``."""
        return math.exp2(-(1.0 - 1.0 / self.dimension) / 2.0)

    @cached_property
    def _constant(self) -> float:
        """``C``; one part in 2^40 is left for the errors of floating point."""
        if self.dimension == 1:
            whole = 0.5 / (math.pi**2 / 6.0 - 1.0) if self.design.tight else 3.0 / math.pi**2
        else:
            whole = 0.5 / (1.0 / (1.0 - self._decay) + float(self.design.history))
        return whole * (1.0 - 2.0**-40)

    def spent(self, depth: int, level: int) -> Fraction:
        """``epsilon_(j,r)``, rounded down to a rational number."""
        if not 1 <= depth <= min(level, self.max_depth):
            return Fraction(0)
        if self.dimension == 1:
            weight = self._constant / (depth + 1) ** 2
        else:
            weight = self._constant * self._decay ** (level - depth)
        return self.epsilon * Fraction(math.floor(weight * _GRID), _GRID)

    def reread(self, depth: int, level: int) -> Fraction:
        """What the first sum of cells of ``depth`` costs an arrival of an earlier level."""
        if not max(level, 0) < depth <= self.max_depth:
            return Fraction(0)
        if self.rereads_all:
            return self.spent(depth, depth)
        return self.spent(depth, depth) * self.design.history if level == depth - 1 else Fraction(0)

    def path_cost(self, level: int) -> Fraction:
        """What an arrival in ``level`` pays on one path, all depths together; exact."""
        return sum(
            (self.spent(j, level) + self.reread(j, level) for j in range(1, self.max_depth + 1)), Fraction(0)
        )

    def check(self) -> None:
        """Sum up every level up to ``MAX_TICK``.

        Errors:
            BudgetError: some arrival would pay more than half of epsilon on a path.
        """
        if max(self.path_cost(level) for level in range(-1, self.level_of(MAX_TICK) + 1)) > self.epsilon / 2:
            raise BudgetError("the levels' budgets add up to more than epsilon", where="points")


@lru_cache(maxsize=256)
def log_fraction(ticks: int) -> Fraction:
    """``ln T`` to six digits: a threshold is public, but should be the same number everywhere."""
    return Fraction(round(math.log(ticks), 6)).limit_denominator(10**6)
