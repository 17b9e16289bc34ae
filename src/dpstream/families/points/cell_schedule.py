"""When cells begin and what they may spend: all public, all exact.

Ticks count points. Level ``r`` is ``[t_r, t_(r+1))`` with ``t_r = ceil(leaf 2^r / epsilon)``; level -1 is what comes
before ``t_0``. Cells of depth ``j`` begin with level ``j``, at tick ``t_j``.

What one arrival in level ``r`` pays, on the path of cells that holds it:

* each depth ``j <= r``: ``spent(j, r)``, in two parts: the sparse counter of the level, and the sum of the block that
  holds the arrival (one block is the whole level);
* each depth ``j > r`` whose cells read level ``r`` when they begin: ``reread(j, r)``.

Under replacement two paths change, so the sum over all depths is at most ``epsilon/2``, for every ``r``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from dpstream.core.errors import BudgetError

#: Points of one stream.
MAX_TICK = 2**38
#: Amounts are multiples of epsilon over this: rational ones just below the printed, irrational ones.
_GRID = 1 << 40
#: An average cell of a block holds this many times its noise's scale, or the level is cut into fewer blocks: each one
#: adds its noise. Little is enough: where points gather, cells hold more than the average.
_CLEAR_BLOCK = 2
#: ``d = 1``: depth ``j`` pays in proportion to ``1 / (j + _EVEN)``.
_EVEN = 4


@dataclass(frozen=True)
class Design:
    """Public constants of a variant; the guarantee holds for any.

    Attributes:
        leaf: ``t_r = ceil(leaf 2^r / epsilon)``.
        test_share: part of a level's budget for its sparse counter; the rest pays the sums of its blocks.
        factor: the sparse counter's threshold is ``factor b ln T``, ``b`` the scale of its tests' noise.
        tree: whether segments are counted by a binary tree (else by unbounded blocks with closed partitions).
        history: weight of the one sum of earlier points with which a depth begins, relative to its own first level.
            0 for none (``d >= 2``) or for one sum a level (``d = 1``), as in the text.
        even: ``d = 1``: whether depths pay about alike, up to the deepest one (else as in the text, for ever less).
        pooled: whether levels' sums are combined by variance, and parents split as far as that is more than noise.
        blocks: into how many blocks a level is cut at most, each of which has its own noisy sums; a power of two.
    """

    leaf: Fraction
    test_share: Fraction
    factor: Fraction
    tree: bool
    history: Fraction
    even: bool
    pooled: bool
    blocks: int = 1


#: Default: cells begin the earlier, the more of them are needed for one more cut of every side.
_LEAVES = {1: Fraction(16), 2: Fraction(8), 3: Fraction(16, 3)}

PAPER = Design(Fraction(1), Fraction(1, 2), Fraction(9, 2), True, Fraction(0), False, False)
DEFAULT = Design(Fraction(16), Fraction(1, 32), Fraction(2), False, Fraction(1), True, True, 8)


def default_design(dimension: int) -> Design:
    """What ``variant = "default"`` means."""
    return replace(DEFAULT, leaf=_LEAVES.get(dimension, Fraction(4)))


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

    def blocks(self, depth: int, level: int) -> int:
        """How many blocks of a level give sums of cells of this depth: as many as leave an average cell points enough.

        A power of two, so that blocks of some depth are made of blocks of any depth above.
        """
        number, ticks = 1, self.ticks(level)
        scale = 1 / (self.spent(depth, level) * (1 - self.design.test_share))
        most = min(self.design.blocks, ticks)
        while 2 * number <= most and Fraction(ticks, 2 * number << depth) >= _CLEAR_BLOCK * scale:
            number *= 2
        return number

    def block_ends(self, level: int) -> tuple[int, ...]:
        """Last ticks of the blocks of depth 1, the shortest ones; the last one ends with the level."""
        if level < 1 or not self.ticks(level):
            return ()
        blocks = self.blocks(1, level)
        return tuple(self.start(level) - 1 + self.ticks(level) * i // blocks for i in range(1, blocks + 1))

    def measured(self, level: int) -> int:
        """How many noisy counts the cells of a level draw: the sums of its blocks, and the first counts of a depth that
        begins with it."""
        depth, numbers = self.depth(level), 0
        if self.ticks(level):
            numbers += sum(self.blocks(j, level) << j for j in range(1, depth + 1))
        if 1 <= level <= self.max_depth:
            reads = [
                before for before in range(-1, level) if self.ticks(before) and self.reread(level, before)
            ]
            whole = self.rereads_all and self.design.history > 0
            numbers += (min(1, len(reads)) if whole else len(reads)) << level
        return numbers

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
            whole = 3.0 / math.pi**2
            if self.design.even:
                whole = 0.5 / sum(1.0 / (j + _EVEN) for j in range(1, self.max_depth + 1))
        else:
            whole = 0.5 / (1.0 / (1.0 - self._decay) + float(self.design.history))
        return whole * (1.0 - 2.0**-40)

    def spent(self, depth: int, level: int) -> Fraction:
        """``epsilon_(j,r)``, rounded down to a rational number."""
        if not 1 <= depth <= min(level, self.max_depth):
            return Fraction(0)
        if self.dimension == 1:
            weight = self._constant / (depth + _EVEN if self.design.even else (depth + 1) ** 2)
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
