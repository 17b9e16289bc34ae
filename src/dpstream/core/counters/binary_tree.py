"""Binary-tree counters: the bounded tree, and the unbounded hybrid of growing trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpstream.core.counters.counter import MAX_TICKS
from dpstream.core.counters.intervals import Interval, IntervalCounter

_ALL = Fraction(1)
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class TreeCounter(IntervalCounter):
    """Noise on dyadic intervals (Chan, Shi and Song 2010, "Binary Mechanism"; Dwork et al. 2010).

    Tick ``t`` ends the interval of ``2^i`` ticks, ``2^i`` the largest power of two that divides ``t``.

    Guarantee: an increment is in at most one interval of each level. Cut the horizon ``T`` into complete
    trees, one for each binary digit of ``T``, largest first: inside a tree of ``2^i`` ticks
    the levels are ``0 .. i``, each with a share ``1/(i + 1)``; no increment pays for a level whose
    interval the horizon cannot reach. The first tree has ``floor(log2 T) + 1`` levels: its first
    increment is in all of them (``log2 T`` levels would be one too few where ``T`` is a power of two).
    Error: at most ``log2 T`` intervals, variance ``O(log^3 T)``.
    Memory: at most ``floor(log2 T) + 3`` arrays, the levels allocated when first reached.

    Args:
        horizon: number of ticks ``T``.
    """

    name = "tree"

    horizon: int

    @property
    def levels(self) -> int:
        """``floor(log2 T) + 1``: in how many noisy sums the first increment is."""
        return self.horizon.bit_length()

    def describe(self) -> str:
        """The rule in one sentence."""
        return f"binary tree counter: {self.levels} levels, horizon {self.horizon}"

    def interval(self, t: int) -> Interval:
        """The largest dyadic interval that ends at ``t``."""
        digit, start = _tree(self.horizon, t)
        level = _trailing_zeros(t - start)
        return Interval(None if level == digit else level, _share(digit + 1))

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        """The finished trees, and the binary digits of the position in the open one."""
        digit, start = _tree(self.horizon, t)
        yield from _finished(start)
        yield _share(digit + 1), (t - start).bit_count()

    @property
    def open_levels(self) -> int:
        """All levels but the root, which settles."""
        return self.levels - 1

    @property
    def smallest_share(self) -> Fraction:
        """One part in ``levels``."""
        return _share(self.levels)


@dataclass(frozen=True)
class HybridCounter(IntervalCounter):
    """The first tick alone, then a tree inside each ``[2^i, 2^(i+1))`` (Chan, Shi and Song 2010, "Hybrid").

    Half the budget goes to the trees, half to one noisy sum of each finished ``[2^i, 2^(i+1))``.

    Guarantee: an increment is in the sum of its finished interval (a half), and in the nodes of one tree. The
    interval's last tick releases the interval's sum, so the tree inside serves ``2^i - 1`` ticks and
    needs ``i`` levels, not ``i + 1``; it is cut into complete trees as in ``TreeCounter``. The first
    tick is in one sum only and has the whole budget.
    Error: at most ``log2 t`` interval sums and ``log2 t`` nodes, variance ``O(log^3 t)``. No horizon.
    Memory: ``O(log t)`` arrays, allocated when first reached.
    """

    name = "hybrid"

    def describe(self) -> str:
        """The rule in one sentence."""
        return "hybrid counter: a binary tree inside each [2^i, 2^(i+1)), closed by one noisy sum"

    def interval(self, t: int) -> Interval:
        """A node of the tree inside ``[2^i, 2^(i+1))``, or at its last tick the whole of it."""
        exponent, position = _epoch(t)
        if position == 1 << exponent:
            return Interval(None, _HALF if exponent else _ALL)
        digit, _ = _tree((1 << exponent) - 1, position)
        return Interval(_trailing_zeros(position), _share(2 * (digit + 1)))

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        """The finished intervals, and the nodes of the open one's tree."""
        exponent, position = _epoch(t)
        finished = exponent
        if position == 1 << exponent:
            finished, position = exponent + 1, 0
        if finished:
            yield _ALL, 1
            yield _HALF, finished - 1
        if position:
            digit, start = _tree((1 << exponent) - 1, position)
            for share, count in _finished(start):
                yield share / 2, count
            yield _share(2 * (digit + 1)), (position - start).bit_count()

    @property
    def open_levels(self) -> int:
        """As many as ``MAX_TICKS`` can reach."""
        return MAX_TICKS.bit_length()

    @property
    def smallest_share(self) -> Fraction:
        """Of the last tree that ``MAX_TICKS`` reaches."""
        return _share(2 * MAX_TICKS.bit_length())


def _tree(horizon: int, t: int) -> tuple[int, int]:
    """The complete tree that holds tick ``t``: its exponent, and the ticks before it.

    The highest binary digit in which ``t - 1 < horizon`` differs from the horizon is the tree's.

    >>> [_tree(100, t) for t in (1, 64, 65, 96, 97, 100)]
    [(6, 0), (6, 0), (5, 64), (5, 64), (2, 96), (2, 96)]
    """
    digit = (horizon ^ (t - 1)).bit_length() - 1
    return digit, (t - 1) >> digit << digit


def _finished(start: int) -> Iterator[tuple[Fraction, int]]:
    """The roots of the complete trees before ``start``, one for each binary digit of it."""
    for digit in range(start.bit_length()):
        if start >> digit & 1:
            yield _share(digit + 1), 1


def _epoch(t: int) -> tuple[int, int]:
    """``i`` with ``t`` in ``[2^i, 2^(i+1))``, and the position of ``t`` there (1, 2, ...)."""
    exponent = t.bit_length() - 1
    return exponent, t - (1 << exponent) + 1


def _trailing_zeros(t: int) -> int:
    return (t & -t).bit_length() - 1


@lru_cache(maxsize=256)
def _share(parts: int) -> Fraction:
    return Fraction(1, parts)
