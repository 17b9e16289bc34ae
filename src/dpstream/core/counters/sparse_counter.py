"""The sparse counter: released only when enough has arrived (pure DP).

Each cell cuts its own stream into segments by a private test, "has enough arrived since the last release?", and
an ordinary counter counts the segments' sums. Between two releases its estimate stays as it is. It is not a linear
counter: when a cell is released depends on the data, and so do its errors.

Neighbours: as for every counter, one increment of one cell changed by 1 (``replace``: +1 in one cell and -1 in
another). Cells are tested and counted apart from each other, with noise of their own.

Privacy of one cell, budget ``e``. Given the same releases so far, the change is in one segment, or in none.

* The tests of that segment cost ``e/2``. Write ``N_t`` for what has arrived in the segment, ``L`` for the segment's one
  threshold noise and ``V_t`` for each test's fresh one, all discrete Laplace of scale ``2/e``. The answer is yes
  when ``N_t + V_t >= T + L``, and ends the segment. The change moves ``N_t`` by the same 1 from its tick on, up to the
  end of the segment; before, nothing changes. Is it up: move ``L`` up by 1 (costs ``e/2``); every no stays no, and the
  yes, which comes at the change or after it, stays yes. Is it down: leave ``L``; every no stays no, and the noise
  ``V`` of the yes moves up by 1 (costs ``e/2``). Only one of the two moves, so the segment costs ``e/2``, not ``e``.
  Other segments begin at 0 with fresh noise and cost nothing.
* The segment's sum moves by 1. It is one increment of the counter of segments, which costs ``e/2``.

With a threshold noise drawn anew for each test, or kept for the next segment, the proof fails.

Source: He, Vershynin and Zhu, "Online Differentially Private Synthetic Data Generation" (2024), Algorithm 2, after
Dwork, Naor, Reingold and Rothblum 2015. The proof with scale ``2/e`` for both noises is spelled out above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.bank import CounterBank
from dpstream.core.counters.binary_tree import TreeCounter
from dpstream.core.counters.block import UnboundedBlockCounter
from dpstream.core.counters.counter import (
    MAX_INCREMENT,
    MAX_WIDTH,
    CalibratedCounter,
    Counter,
    CounterState,
    LinearMap,
    check_count,
    check_event,
    check_increment,
)
from dpstream.core.counters.intervals import CalibratedIntervalCounter, IntervalCounter
from dpstream.core.errors import BudgetError, ConfigError, LimitError
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.unit import Event

if TYPE_CHECKING:
    from dpstream.core.privacy.randomness import Randomness


@dataclass(frozen=True)
class SparseCounter(Counter):
    """Segments by above-threshold, and a counter of segments.

    Error: about the threshold, and that of the counter of segments after as many ticks as there were segments.

    Args:
        horizon: number of ticks ``T``.
        inner: the counter of segments, at most ``T`` of them; by default unbounded blocks with closed partitions, whose
            error depends on the number of segments and not on ``T``.
        factor: the threshold is ``factor b ln T`` records, ``b`` the scale of the tests' noise. Public; the
            guarantee does not depend on it. With 2, a cell in which nothing arrives has a release at all with a
            probability of about ``(1 + ln T)/(2 T)``.
    """

    name = "sparse"

    horizon: int
    inner: IntervalCounter | None = None
    factor: Fraction = Fraction(2)

    def __post_init__(self) -> None:
        super().__post_init__()
        exact = isinstance(self.factor, (int, Fraction)) and not isinstance(self.factor, bool)
        if not exact or not 0 <= self.factor <= 1000:
            raise ConfigError(
                f"the factor is {self.factor!r}", where="counter sparse", allowed="a fraction from 0 to 1000"
            )
        limit = self.segments.tick_limit
        if limit is not None and limit < self.horizon:
            raise ConfigError(
                f"the counter of segments ends after {limit} segments",
                where="counter sparse",
                allowed=f"a horizon of {self.horizon} or more, or none",
            )

    @classmethod
    def published(cls, horizon: int) -> SparseCounter:
        """Algorithm 2 as printed: a binary tree, and a threshold of ``9 ln T`` over the budget."""
        return cls(horizon, TreeCounter(horizon), Fraction(9, 2))

    @property
    def segments(self) -> IntervalCounter:
        """The counter of segments."""
        return self.inner or UnboundedBlockCounter(close_partitions=True)

    def describe(self) -> str:
        """The rule in one sentence."""
        return f"sparse counter: horizon {self.horizon}, segments by above-threshold, then a {self.segments.describe()}"

    def calibrate(self, budget: Budget, unit: Event) -> CalibratedSparseCounter:
        """See ``Counter.calibrate``.

        Errors:
            BudgetError: a budget that is not pure.
        """
        unit = check_event(unit)
        if not isinstance(budget, PureDP):
            raise BudgetError(
                "the sparse counter tests with Laplace noise and keeps pure budgets",
                where="budget",
                allowed="epsilon",
            )
        tests, counted = budget.split(1, 1)
        noise = DiscreteLaplace(unit.changed_cells / tests.epsilon)
        # ln T as a fraction: a threshold is public, but should be the same number everywhere.
        least = self.factor * noise.scale * Fraction(round(math.log(self.horizon), 6))
        return CalibratedSparseCounter(
            self,
            budget,
            unit,
            noise,
            self.segments.calibrate(counted, unit),
            min(math.ceil(least), MAX_INCREMENT),
        )


@dataclass(frozen=True)
class CalibratedSparseCounter(CalibratedCounter):
    """A sparse counter with its noise fixed.

    State: "t"; "pending", what has arrived in the open segments; "shift", their threshold noises; "estimate", what was
    released last; "inner/...", the bank of the counters of segments. All but "estimate" and "t" are secret.
    Cost of a tick: one draw of the width, and for each cell that is released a step of its counter; memory four arrays
    and those of the counter of segments.

    Attributes:
        noise: of every test, and of every segment's threshold.
        segments: the counter of segments of one cell.
        threshold: in records.
    """

    recipe: SparseCounter
    budget: Budget
    unit: Event
    noise: DiscreteLaplace
    segments: CalibratedIntervalCounter
    threshold: int

    @property
    def most(self) -> int:
        """The largest increment of a cell: a whole segment must be one for the counter of segments."""
        return MAX_INCREMENT // self.recipe.horizon

    def describe(self) -> str:
        """Rule, budget and noise in words."""
        return (
            f"{self.recipe.describe()}; {self.budget} for {self.unit.name}, half for the tests (threshold "
            f"{self.threshold}, {self.noise.describe()}), half for {self.segments.describe()}"
        )

    def init(self, width: int) -> CounterState:
        """See ``CalibratedCounter.init``."""
        width = check_count(width, what="the number of cells", least=1, most=MAX_WIDTH)
        inner = _bank(self.segments, width).init()
        return {
            "t": np.zeros(1, np.int64),
            **{name: np.zeros(width, np.int64) for name in ("pending", "shift", "estimate")},
            **{f"inner/{name}": array for name, array in inner.items()},
        }

    def step(
        self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        """See ``CalibratedCounter.step``. One test a cell, after all of the tick's arrivals.

        Errors:
            LimitError: a cell beyond ``most``.
        """
        pending, shift, estimate = state["pending"], state["shift"], state["estimate"]
        width = len(pending)
        check_increment(increment, width)
        self._check_size(increment)
        t = int(state["t"][0]) + 1
        self.check_tick(t)
        if t == 1:
            shift[:] = randomness.draw(self.noise, width)
        tested = randomness.draw(self.noise, width)
        state["t"][0] = t
        pending += increment
        ended = np.flatnonzero(pending + tested >= self.threshold + shift)
        if len(ended):
            estimate[ended] = self._count(state, ended, randomness)
            pending[ended] = 0
            shift[ended] = randomness.draw(self.noise, len(ended))
        return estimate.copy()

    def _count(
        self, state: CounterState, ended: NDArray[np.intp], randomness: Randomness
    ) -> NDArray[np.int64]:
        """The noisy sums of all segments of these cells, their open ones now included."""
        inner = {name[6:]: array for name, array in state.items() if name.startswith("inner/")}
        bank = _bank(self.segments, len(state["pending"]))
        counted = bank.step(inner, state["pending"][ended], randomness, ended.tolist())
        state.update({f"inner/{name}": array for name, array in inner.items()})
        return counted

    def error_bound(self, failure: float, segments: int) -> float:
        """A cell's estimate is within this of its running sum while it has had at most so many segments.

        With ``segments`` the number of a cell's releases so far, this holds at all ticks together except with
        probability ``failure``, for increments that are not negative. Half of ``failure`` goes to the noises of
        tests and thresholds, all at most ``k``: then less than ``threshold + 2 k`` is pending. Half goes to the sums of
        segments, by Chernoff's bound for each number of them.

        Errors:
            ConfigError: ``failure`` is not a probability, ``segments`` not a number of segments.
        """
        if not 0.0 < failure < 1.0:
            raise ConfigError(f"failure = {failure!r}", where="counter sparse", allowed="between 0 and 1")
        segments = check_count(segments, what="the number of segments", least=0, most=self.recipe.horizon)
        # Pr[|X| > k] = 2 q^(k + 1) / (1 + q) <= 2 q^(k + 1), for at most 2 T noises.
        k = max(0, math.ceil(math.log(8 * self.recipe.horizon / failure) * float(self.noise.scale) - 1))
        counted = (self._tail(s, failure / (2 * s * (s + 1))) for s in range(1, segments + 1))
        return self.threshold + 2 * k + max(counted, default=0.0)

    def _tail(self, segments: int, failure: float) -> float:
        """``h`` with ``Pr[|noise of the sum of so many segments| > h] <= failure``, by Chernoff's bound."""
        tiling = self.segments.recipe.tiling(segments)
        kinds = [(self.segments.noise(share), count) for share, count in tiling if count]
        scales = [(float(noise.scale), n) for noise, n in kinds if isinstance(noise, DiscreteLaplace)]
        at = np.linspace(0.01, 0.99, 99) / max(scale for scale, _ in scales)
        # E exp(s X) <= 1 / (1 - (s b)^2) for discrete Laplace noise of scale b, as for the continuous one.
        exponents = sum((-n * np.log1p(-((at * scale) ** 2)) for scale, n in scales), np.zeros_like(at))
        return float(((math.log(2 / failure) + exponents) / at).min())

    def variance(self, t: int) -> float:
        """Refused: the error depends on the data.

        Errors:
            ConfigError: always.
        """
        self._not_linear()

    def gain_variance(self, t: int) -> float:
        """Refused, as ``variance``."""
        self._not_linear()

    def materialize(self, n: int) -> LinearMap:
        """Refused, as ``variance``."""
        self._not_linear()

    def check_state(self, state: Mapping[str, NDArray[np.int64]], width: int) -> None:
        """See ``CalibratedCounter.check_state``."""
        fresh = self.init(width)
        t = self.check_arrays(state, fresh)
        outer = ("t", "pending", "shift", "estimate")
        if any(state[name].shape != fresh[name].shape for name in outer):
            raise self.damaged("an array has the wrong shape")
        inner = {name[6:]: array for name, array in state.items() if name.startswith("inner/")}
        _bank(self.segments, width).check_state(inner)
        if (inner["t"] > t).any():
            raise self.damaged("a cell has had more segments than ticks")

    def _not_linear(self) -> NoReturn:
        raise ConfigError(
            "the errors of a sparse counter depend on the data",
            where="counter sparse",
            allowed="error_bound, or another counter where variances are needed",
        )

    def _check_size(self, increment: NDArray[np.int64]) -> None:
        if increment.max() > self.most or increment.min() < -self.most:
            raise LimitError(
                "a cell of the increment is beyond the declared bound",
                where=f"counter {self.name}",
                allowed=f"from -{self.most} to {self.most} (2^32 over the horizon)",
            )


@lru_cache(maxsize=16)
def _bank(counter: CalibratedIntervalCounter, width: int) -> CounterBank:
    return CounterBank(counter, (1,) * width)
