"""Two-level counters: noise on increments inside a block, and on the sums of finished blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.counters.counter import MAX_TICKS, check_count
from dpstream.core.counters.intervals import Interval, IntervalCounter

_ALL = Fraction(1)
_HALF = Fraction(1, 2)
_THIRD = Fraction(1, 3)
_TWO_THIRDS = Fraction(2, 3)


@dataclass(frozen=True)
class BlockCounter(IntervalCounter):
    """Blocks of a fixed size (Chan, Shi and Song 2010, "Two-Level Counting").

    Inside a block each increment gets noise of half the budget; the tick that ends a block
    replaces them by the block's sum with one noise of half the budget.

    Guarantee: an increment is in one noise inside its block and in its block's sum: two halves. The last
    increment of a block is in the block's sum only. Ticks of a last block which the horizon
    cuts off are in no block sum and use the whole budget each; so does every tick where the block size is 1.
    Error: at most ``T/B`` block sums and ``B - 1`` increments, ``O(T^(1/4))`` with ``B = sqrt T``.
    Memory: four arrays.

    Args:
        horizon: number of ticks ``T``.
        block_size: ``B``; by default the square root of the horizon, rounded up.
    """

    name = "block"

    horizon: int
    block_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block_size is not None:
            check_count(self.block_size, what="the block size", least=1, most=MAX_TICKS)

    @property
    def size(self) -> int:
        """The block size in use."""
        return self.block_size if self.block_size is not None else math.isqrt(self.horizon - 1) + 1

    def describe(self) -> str:
        """The rule in one sentence."""
        return f"block counter: blocks of {self.size} ticks, horizon {self.horizon}"

    def interval(self, t: int) -> Interval:
        """A tick inside a block, or the block that it ends."""
        size = self.size
        if t % size == 0:
            return Interval(None, _ALL if size == 1 else _HALF)
        return Interval(0, self._inner(t))

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        """The finished blocks, and the ticks of the open one."""
        blocks, inside = divmod(t, self.size)
        yield (_ALL if self.size == 1 else _HALF), blocks
        yield self._inner(t), inside

    def _inner(self, t: int) -> Fraction:
        # A block that ends beyond the horizon never pays for a block sum.
        return _ALL if t > self.horizon // self.size * self.size else _HALF

    @property
    def open_levels(self) -> int:
        """One level inside a block."""
        return 0 if self.size == 1 else 1

    @property
    def smallest_share(self) -> Fraction:
        """Half where both levels occur, else everything."""
        return _HALF if 1 < self.size <= self.horizon else _ALL


@dataclass(frozen=True)
class UnboundedBlockCounter(IntervalCounter):
    """Partitions of 4, 9, 16, ... ticks with blocks of 2, 3, 4, ... (Kumar et al., DP-STabS, Algorithm 4).

    With ``close_partitions`` the last tick of a partition also replaces the partition's block sums by
    one noisy sum of the partition (three levels instead of two; ours).

    Guarantee: borders depend on the clock only. As in Algorithm 4, an increment is in at most one
    noise inside its block and one block sum, a half each. Closed: in at most one noise inside the block,
    one block sum and one partition sum, a third each; the last block of a partition is never
    summed by itself (the partition's sum ends at the same tick), so the ticks inside it use two thirds.
    Error: Algorithm 4 has about ``(3t)^(2/3)/2`` finished blocks, so ``O(t^(1/3))``; closed ``O(t^(1/6))``.
    Memory: four arrays (five rows when closed). No horizon.
    """

    close_partitions: bool = False

    @property
    def name(self) -> str:
        """Name in configuration files."""
        return "unbounded-block-closed" if self.close_partitions else "unbounded-block"

    def describe(self) -> str:
        """The rule in one sentence."""
        tail = ", each partition closed by one noisy sum" if self.close_partitions else ""
        return f"unbounded block counter: partitions of 4, 9, 16, ... ticks in blocks of 2, 3, 4, ...{tail}"

    def interval(self, t: int) -> Interval:
        """A tick inside a block, the block that it ends, or (closed) the partition that it ends."""
        size, position = _partition(t)
        ends_block = position % size == 0
        if not self.close_partitions:
            return Interval(None, _HALF) if ends_block else Interval(0, _HALF)
        if position == size * size:
            return Interval(None, _THIRD)
        if ends_block:
            return Interval(1, _THIRD)
        return Interval(0, _TWO_THIRDS if position > size * (size - 1) else _THIRD)

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        """Finished partitions or all their blocks, finished blocks, ticks of the open block."""
        size, position = _partition(t)
        blocks, inside = divmod(position, size)
        if not self.close_partitions:
            # The partitions before have blocks of 2 .. size - 1, as many as their size.
            yield _HALF, size * (size - 1) // 2 - 1 + blocks + inside
            return
        if position == size * size:
            yield _THIRD, size - 1
            return
        yield _THIRD, size - 2 + blocks
        yield (_TWO_THIRDS if blocks == size - 1 else _THIRD), inside

    @property
    def open_levels(self) -> int:
        """Inside a block; and, where partitions are closed, finished blocks."""
        return 2 if self.close_partitions else 1

    @property
    def smallest_share(self) -> Fraction:
        """A half, or a third where partitions are closed."""
        return _THIRD if self.close_partitions else _HALF


def _partition(t: int) -> tuple[int, int]:
    """Block size of the partition which tick ``t`` is in, and its position there (1, 2, ...).

    >>> [_partition(t) for t in (1, 4, 5, 13, 14)]
    [(2, 1), (2, 4), (3, 1), (3, 9), (4, 1)]
    """
    size = max(2, round((3 * t) ** (1 / 3)))
    while _ticks_through(size) < t:
        size += 1
    while size > 2 and _ticks_through(size - 1) >= t:
        size -= 1
    return size, t - (_ticks_through(size - 1) if size > 2 else 0)


def _ticks_through(size: int) -> int:
    """4 + 9 + ... + size^2."""
    return size * (size + 1) * (2 * size + 1) // 6 - 1
