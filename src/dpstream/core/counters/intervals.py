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
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import (
    MAX_WIDTH,
    CalibratedCounter,
    Counter,
    CounterState,
    LinearMap,
    check_budget,
    check_count,
    check_event,
    check_increment,
    check_noise,
    check_size,
)
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.unit import Event

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness


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
class CalibratedIntervalCounter(CalibratedCounter):
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

    def init(self, width: int) -> CounterState:
        """See ``CalibratedCounter.init``."""
        width = check_count(width, what="the number of cells", least=1, most=MAX_WIDTH)
        state = {"t": np.zeros(1, np.int64), "settled": np.zeros(width, np.int64)}
        if self.recipe.open_levels:
            state["pending"] = np.zeros(width, np.int64)
            state["noise"] = np.zeros((0, width), np.int64)
        return state

    def step(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """See ``CalibratedCounter.step``."""
        settled = state["settled"]
        width = settled.shape[0]
        check_increment(increment, width)
        check_size(increment, self.name)
        t = int(state["t"][0]) + 1
        self.check_tick(t)
        level, share = self.recipe.interval(t)
        fresh = randomness.draw(self.noise(share), width)
        state["t"][0] = t
        if level is None:
            settled += increment
            settled += fresh
            if "pending" in state:
                settled += state["pending"]
                state["pending"][:] = 0
                state["noise"][:] = 0
            return settled.copy()
        state["pending"] += increment
        noise = self._rows(state, level)
        # Row l sums the levels from l upwards, so that the rows below a new interval all equal its own.
        noise[level] += fresh
        noise[:level] = noise[level]
        estimate: NDArray[np.int64] = settled + state["pending"]
        estimate += noise[0]
        return estimate

    def variance(self, t: int) -> float:
        """See ``CalibratedCounter.variance``."""
        t = self.check_ticks(t)
        tiling = self.recipe.tiling(t) if t else ()
        return float(sum(count * self.noise(share).variance for share, count in tiling))

    def gain_variance(self, t: int) -> float:
        """See ``CalibratedCounter.gain_variance``; exact: the new interval's noise, and that of those it swallows.

        >>> from dpstream.core.counters import counter_by_name
        >>> from dpstream.core.privacy import Event, PureDP
        >>> block = counter_by_name("block", horizon=9, block_size=3).calibrate(PureDP.of(1), Event())
        >>> [round(block.gain_variance(t) / block.gain_variance(1), 6) for t in (1, 2, 3, 4)]
        [1.0, 1.0, 3.0, 1.0]
        """
        after, before = self.variance(t), self.variance(t - 1)
        fresh = self.noise(self.recipe.interval(t).share).variance
        return fresh + (before - (after - fresh))

    def materialize(self, n: int) -> LinearMap:
        """See ``CalibratedCounter.materialize``."""
        n = self.check_matrix(n)
        encoder = np.zeros((n, n), np.int64)
        decoder = np.zeros((n, n), np.int64)
        scales = []
        tiles: list[tuple[float, int]] = []  # (level, the tick at which the interval ends)
        for t in range(1, n + 1):
            level, share = self.recipe.interval(t)
            height = np.inf if level is None else level
            while tiles and tiles[-1][0] < height:
                tiles.pop()
            start = tiles[-1][1] if tiles else 0
            tiles.append((height, t))
            encoder[t - 1, start:t] = 1
            decoder[t - 1, [end - 1 for _, end in tiles]] = 1
            scales.append(self.noise(share))
        return LinearMap(encoder, decoder, tuple(scales))

    def check_state(self, state: Mapping[str, NDArray[np.int64]], width: int) -> None:
        """See ``CalibratedCounter.check_state``."""
        expected = {"t", "settled"} | ({"pending", "noise"} if self.recipe.open_levels else set())
        self.check_arrays(state, expected)
        shapes = {"t": (1,), "settled": (width,), "pending": (width,)}
        if any(state[key].shape != shapes[key] for key in expected - {"noise"}):
            raise self.damaged("an array has the wrong shape")
        if "noise" in expected and not self._noise_fits(state["noise"], width):
            raise self.damaged("the open noise has the wrong shape")

    def _noise_fits(self, noise: NDArray[np.int64], width: int) -> bool:
        return noise.ndim == 2 and noise.shape[1] == width and noise.shape[0] <= self.recipe.open_levels

    @staticmethod
    def _rows(state: CounterState, level: int) -> NDArray[np.int64]:
        """The open noise with at least ``level + 1`` rows; levels never used so far cost no memory."""
        noise = state["noise"]
        if level >= noise.shape[0]:
            grown = np.zeros((level + 1, noise.shape[1]), np.int64)
            grown[: noise.shape[0]] = noise
            state["noise"] = noise = grown
        return noise
