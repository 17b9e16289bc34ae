"""Counters made of intervals: one engine for all the counters of this package.

At each tick ``t`` an interval counter draws one fresh vector of noise, for the sum over an interval
``(s, t]`` of ticks that ends at ``t``. Intervals are nested or disjoint: the new one swallows the
intervals inside it, and the estimate is the sum over the intervals that are left, which tile
``(0, t]``. A counter is therefore described by two public functions of ``t``: the *level* of the
interval (it swallows every open interval of a lower level) and its *share* of the budget.

Privacy. A change of one increment moves the noisy sums of the intervals which contain it, each by as
much as the increment. If the shares of those intervals add up to at most 1, for every tick,
the whole output costs at most the budget, by composition of independent (adaptive) releases:

* pure: an interval of share ``w`` gets Laplace noise of scale ``D1/(w epsilon)`` and costs ``w epsilon``;
* zCDP: it gets Gaussian noise of ``sigma^2 = D2^2/(2 w rho)`` and costs ``w rho``;

where ``D1 = D2^2`` is the number of cells that change (1 for add/remove, 2 for replace).

Sums are added modulo 2^64. That is post-processing, so noise however large breaks no guarantee.

Trusted base: kernel (holds exact sums, measures them).
"""

from __future__ import annotations

import collections
import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import (
    MAX_TICKS,
    Counter,
    CounterState,
    LinearMap,
    ShapedCounter,
    check_budget,
    check_count,
    check_event,
    check_noise,
)
from dpstream.core.privacy import Budget, Event, Noise, Noisy, Randomness, noise_for
from dpstream.core.privacy.law import Law, NoiseSum

_ALL = Fraction(1)
_HALF = Fraction(1, 2)
_THIRD = Fraction(1, 3)
_TWO_THIRDS = Fraction(2, 3)


class Interval(NamedTuple):
    """The interval that ends at a tick. ``level`` None: it swallows everything open, for good."""

    level: int | None
    share: Fraction


class IntervalCounter(Counter):
    """A recipe given by the interval that ends at each tick."""

    @abstractmethod
    def interval(self, t: int) -> Interval:
        """Level and share of the interval that ends at tick ``t`` (1, 2, ...)."""

    @abstractmethod
    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        """The intervals that tile ``(0, t]`` in the estimate after tick ``t``: (share, how many)."""

    @property
    @abstractmethod
    def open_levels(self) -> int:
        """An upper bound on the number of levels below None (rows of open noise in the state)."""

    @property
    @abstractmethod
    def smallest_share(self) -> Fraction:
        """The smallest share that any tick can use (up to ``MAX_TICKS``)."""

    def calibrate(self, budget: Budget, unit: Event) -> CalibratedIntervalCounter:
        """See ``Counter.calibrate``."""
        calibrated = CalibratedIntervalCounter(self, check_budget(budget), check_event(unit))
        check_noise(calibrated.noise(self.smallest_share), budget, self.name)
        return calibrated


@dataclass(frozen=True)
class CalibratedIntervalCounter(ShapedCounter):
    """An interval counter with its noise fixed.

    State: "t"; "settled", the noisy sum of the intervals that nothing will swallow (already released);
    and, unless every interval settles at once, "pending", the exact sum of the increments since,
    and "noise", whose row ``l`` holds the noise of all open intervals of level ``l`` and above.
    Cost of a tick: one draw and O(width) amortised; memory O(width x open levels so far).
    """

    recipe: IntervalCounter
    budget: Budget
    unit: Event
    _noise: dict[Fraction, Noise] = field(default_factory=dict, init=False, repr=False, compare=False)

    def describe(self) -> str:
        """Rule, budget and noise in words."""
        first = self.noise(self.recipe.interval(1).share)
        return f"{self.recipe.describe()}; {self.budget} for {self.unit.name}; at first {first.describe()}"

    def noise(self, share: Fraction) -> Noise:
        """The noise of an interval which has this share of the budget."""
        cached = self._noise.get(share)
        if cached is None:
            cells = self.unit.changed_cells
            cached = noise_for(self.budget.scaled(share), cells, cells)
            self._noise[share] = cached
        return cached

    def shapes(self, t: int, width: int) -> dict[str, tuple[int, ...]]:
        """See ``ShapedCounter.shapes``; levels that no interval had so far cost no memory."""
        if not self.recipe.open_levels:
            return {"settled": (width,)}
        rows = min(self.recipe.open_levels, t.bit_length())
        return {"settled": (width,), "pending": (width,), "noise": (rows, width)}

    def step(self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness) -> Noisy:
        """See ``CalibratedCounter.step``."""
        t = self.begin_tick(state, increment)
        settled = state["settled"]
        level, share = self.recipe.interval(t)
        law = self.noise(share)
        state["t"][0] = t
        if "noise" in state:
            state["noise"] = self._grown(state["noise"], t)
        if level is None:
            exact = settled + increment
            if "pending" in state:
                exact += state["pending"]
                state["pending"][:] = 0
                state["noise"][:] = 0
            estimate = randomness.measure(exact, law)
            settled[:] = estimate
            return estimate
        state["pending"] += increment
        noise = state["noise"]
        # The new interval begins where the estimate was ``exact``, but for its own increments. Row l sums the levels
        # from l upwards, so that the rows below a new interval all equal its own.
        exact = settled + state["pending"] + noise[level]
        estimate = randomness.measure(exact, law)
        noise[level] += estimate - exact
        noise[:level] = noise[level]
        return estimate

    def variance(self, t: int) -> float:
        """See ``CalibratedCounter.variance``."""
        return self.law(t, 1).variance if self.check_ticks(t) else 0.0

    def gain_variance(self, t: int) -> float:
        """See ``CalibratedCounter.gain_variance``; exact: the new interval's noise, and that of those it swallows.

        >>> from dpstream.core.privacy import Event, PureDP
        >>> block = BlockCounter(9, 3).calibrate(PureDP.of(1), Event())
        >>> [round(block.gain_variance(t) / block.gain_variance(1), 6) for t in (1, 2, 3, 4)]
        [1.0, 1.0, 3.0, 1.0]
        """
        after, before = self.variance(t), self.variance(t - 1)
        fresh = self.noise(self.recipe.interval(t).share).variance
        return fresh + (before - (after - fresh))

    def law(self, t: int, sides: int) -> Law:
        """See ``CalibratedCounter.law``; exact: whole noises are added up."""
        tiles = ((self.noise(share), count * sides) for share, count in self.recipe.tiling(t))
        return NoiseSum(tuple((noise, count) for noise, count in tiles if count))

    def gain_law(self, t: int) -> Law:
        """See ``CalibratedCounter.gain_law``; exact, as ``gain_variance``."""
        fresh = self.recipe.interval(t).share
        swallowed = self._tiles(t - 1) - (self._tiles(t) - collections.Counter({fresh: 1}))
        return NoiseSum(((self.noise(fresh), 1), *((self.noise(w), n) for w, n in swallowed.items())))

    def _tiles(self, t: int) -> collections.Counter[Fraction]:
        """How many intervals of each share the estimate adds up."""
        tiles = collections.Counter[Fraction]()
        for share, count in self.recipe.tiling(t) if t else ():
            tiles[share] += count
        return tiles

    def materialize(self, n: int) -> LinearMap:
        """See ``CalibratedCounter.materialize``."""
        n = self.check_matrix(n)
        encoder = np.zeros((n, n), np.int64)
        decoder = np.zeros((n, n), np.int64)
        for t, ends in enumerate(self.draws(n), start=1):
            encoder[t - 1, ends[-2] if len(ends) > 1 else 0 : t] = 1
            decoder[t - 1, [end - 1 for end in ends]] = 1
        scales = tuple(self.noise(self.recipe.interval(t).share) for t in range(1, n + 1))
        return LinearMap(encoder, decoder, scales)

    def draws(self, n: int) -> Iterator[list[int]]:
        """After each of ``n`` ticks: the ticks at which the noises in the estimate were drawn, oldest first; each
        one's interval begins where the one before ends."""
        open_: list[tuple[float, int]] = []  # (level, the tick at which the interval ends)
        for t in range(1, n + 1):
            level = self.recipe.interval(t).level
            height = np.inf if level is None else level
            while open_ and open_[-1][0] < height:
                open_.pop()
            open_.append((height, t))
            yield [end for _, end in open_]

    def _grown(self, noise: NDArray[np.int64], t: int) -> NDArray[np.int64]:
        """The open noise with the rows of tick ``t``."""
        shape = self.shapes(t, noise.shape[1])["noise"]
        if noise.shape == shape:
            return noise
        grown = np.zeros(shape, np.int64)
        grown[: len(noise)] = noise
        return grown


@dataclass(frozen=True)
class SimpleCounter(IntervalCounter):
    """Fresh noise of the full budget on every increment (Chan, Shi and Song 2010, "Simple Counting II").

    Guarantee: each increment is in one noisy sum, so one share. No horizon.
    Error after ``t`` ticks: standard deviation ``sqrt(2 t)/epsilon`` (pure, add/remove), ``O(sqrt t)``.
    Memory: two arrays; the state holds nothing but the last released estimate and the clock.
    Best for a few ticks: hard to beat below about 10.
    """

    name = "simple"
    open_levels = 0  # everything settles at once
    smallest_share = _ALL

    def describe(self) -> str:
        """The rule in one sentence."""
        return "simple counter: fresh noise on every increment"

    def interval(self, t: int) -> Interval:
        """Each tick is an interval of its own."""
        return Interval(None, _ALL)

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        """``t`` intervals of the full share."""
        yield _ALL, t


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
            check_count(self.block_size, what="block size", least=1, most=MAX_TICKS)

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
