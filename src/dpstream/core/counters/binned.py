"""Counters by a decreasing sequence of weights, kept in bins: one engine for the zCDP counters.

At tick ``t`` the counter measures one noisy number a cell,

    y_t = sum_s w(t, s) m_s z_s + N_t,

where ``w(t, s)`` are integer weights that fall with the age ``t - s`` (``LagBins``), ``m_s`` an integer that
makes up for increments which meet smaller weights than the first, and ``N_t`` exact discrete Gaussian noise. The
estimate is what the measurements say about the running sum: ``w`` is lower triangular, so they determine
every ``m_s z_s`` up to noise, one after the other.

Privacy. ``y`` is an integer linear map of the increments plus independent noise. A change of one cell by 1 at
tick ``s`` moves it by column ``s``, whose sum of squares is at most that of the first column, exactly (see
``multipliers``). With ``sigma^2 = cells * that / (2 rho)`` all of ``y`` together, chosen adaptively, costs ``rho``. The
rest is computed from ``y`` and the clock alone. Proof: docs/theory/counters-zcdp.md.

Arithmetic. Everything is integers modulo 2^64. The decoder works with multiples of a small unit; however large the
sums, its rounding moves an estimate by at most two hundredths in ``10^6`` ticks, before it is rounded to an integer.

Bins: ``lag_bins.py``. Weights: ``toeplitz.py``.

Trusted base: kernel (holds exact sums, measures them).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.counter import (
    MAX_NOISE_SCALE,
    MAX_TICKS,
    Counter,
    CounterState,
    FactoredCounter,
    LinearMap,
    check_count,
    check_event,
)
from dpstream.core.counters.lag_bins import LagBins, Weights
from dpstream.core.counters.noise_table import NoiseTable
from dpstream.core.errors import BudgetError, LimitError
from dpstream.core.privacy.budget import ZCDP, Budget
from dpstream.core.privacy.noise import DiscreteGaussian
from dpstream.core.privacy.randomness import Noisy, Randomness
from dpstream.core.privacy.unit import Event

#: ``m_0``: the multiplier of the first increment. Others are at least this, and rounded down by at most one part in it.
_BASE = 1024
# An increment, and the noise in what the measurements say about it, stay below 2^32 each.
_VALUE_BITS = 33
# The estimate is a whole part and a part in units of 2^-40.
_PART = 40


class BinnedCounter(Counter):
    """A recipe given by a decreasing sequence of weights."""

    @property
    @abstractmethod
    def tolerance(self) -> float:
        """By how much the weights of increments that are kept together may differ (see ``LagBins``)."""

    @abstractmethod
    def weights(self) -> Weights:
        """The weights; the first rounded one is a power of two."""

    def calibrate(self, budget: Budget, unit: Event) -> CalibratedBinnedCounter:
        """See ``Counter.calibrate``.

        Errors:
            BudgetError: a pure budget.
        """
        unit = check_event(unit)
        if not isinstance(budget, ZCDP):
            raise BudgetError(
                f"the counter {self.name!r} adds Gaussian noise and cannot keep a pure budget",
                where="budget",
                allowed="rho, or a counter for pure budgets",
            )
        design = design_of(self)
        sigma_squared = unit.changed_cells * design.squared_norm / (2 * budget.rho)
        # What the measurements say about one increment has about this standard deviation.
        if sigma_squared > (design.unit * MAX_NOISE_SCALE) ** 2:
            raise LimitError(
                f"the noise of a budget of {budget} does not fit 64-bit sums",
                where=f"counter {self.name}",
                allowed=f"a budget that needs noise of a scale up to {MAX_NOISE_SCALE}",
            )
        return CalibratedBinnedCounter(self, budget, unit, DiscreteGaussian(sigma_squared), design)


class BinnedDesign:
    """What a recipe's weights come to; public, made once for each recipe.

    Attributes:
        bins: which increments are kept together, and their weights.
        squared_norm: the largest sum of squares of a column of the measurements, for one cell.
        grid: the weight of an increment at its own tick, before the multiplier.
        unit: by how much the first increment moves its own measurement.
        shift: the decoder works in units of ``2^-shift``.
    """

    def __init__(self, weights: Weights, tolerance: float, horizon: int | None) -> None:
        self.weights = weights
        self.bins = LagBins(weights.rounded, weights.exact, tolerance)
        self.squared_norm = _BASE**2 * self.bins.squared_norm
        self.grid = int(weights.rounded[0])
        self.unit = self.grid * _BASE
        self._horizon = horizon
        self._chunks = lru_cache(maxsize=8)(self._chunk)
        largest = math.isqrt(self.squared_norm // self.grid**2)
        self.shift = 62 - _VALUE_BITS - (self.grid - 1).bit_length() - largest.bit_length()

    @cached_property
    def table(self) -> NoiseTable:
        """The variances of the estimates."""
        return NoiseTable(self.bins, self.multiplier, self.grid, self.weights.exact, self._horizon)

    def multipliers(self, ticks: int) -> NDArray[np.int64]:
        """``m_s`` of the first ``ticks`` increments: the largest integer which keeps column ``s`` within the first.

        ``m_s^2`` times the sum of squares of the weights that increment ``s`` meets is at most
        ``squared_norm``; equal for the first.
        """
        return np.array([self.multiplier(tick) for tick in range(ticks)], np.int64)

    def multiplier(self, tick: int) -> int:
        """``m_s`` of one increment."""
        chunk, place = divmod(tick, 1024)
        return int(self._chunks(chunk)[place])

    def _chunk(self, chunk: int) -> NDArray[np.int64]:
        numbers = np.arange(chunk * 1024, (chunk + 1) * 1024)
        if self._horizon is not None:
            numbers = numbers[numbers < self._horizon]
        norms = self.bins.squared_norms(numbers, self._horizon)
        return np.array([math.isqrt(self.squared_norm // int(norm)) for norm in norms], np.int64)


@lru_cache(maxsize=16)
def design_of(recipe: BinnedCounter) -> BinnedDesign:
    """The design of a recipe, remembered."""
    return BinnedDesign(recipe.weights(), recipe.tolerance, recipe.tick_limit)


@dataclass(frozen=True)
class CalibratedBinnedCounter(FactoredCounter):
    """A binned counter with its noise fixed.

    State: "t"; "sums", the exact sums of the bins (private, times multipliers); public: "values", the same sums as
    the measurements tell them, and "whole" and "part", the estimate in integers and in units of ``2^-40``.
    Cost of a tick: one draw, two products of ``rows x width`` (``LagBins.rows``: 80 for 1,000 ticks, 210 for
    ``10^6``); memory ``2 rows + 2`` arrays of the width, allocated as the rows are reached.
    """

    recipe: BinnedCounter
    budget: Budget
    unit: Event
    noise: DiscreteGaussian
    design: BinnedDesign

    @property
    def public_arrays(self) -> frozenset[str]:
        """See ``FactoredCounter.public_arrays``."""
        return frozenset({"values", "whole", "part"})

    def describe(self) -> str:
        """Rule, budget and noise in words."""
        return (
            f"{self.recipe.describe()}; {self.budget} for {self.unit.name}; measurements in units of "
            f"1/{self.design.unit} with {self.noise.describe()}"
        )

    def shapes(self, t: int, width: int) -> dict[str, tuple[int, ...]]:
        """See ``FactoredCounter.shapes``."""
        rows = (self.design.bins.rows_at(t - 1) if t else 0, width)
        return {"sums": rows, "values": rows, "whole": (width,), "part": (width,)}

    def measure(self, state: CounterState, increment: NDArray[np.int64], randomness: Randomness) -> Noisy:
        """See ``FactoredCounter.measure``: one number a cell."""
        t = self.begin_tick(state, increment)
        state["t"][0] = t
        sums = self._moved(state, "sums", t - 1)
        sums[self.design.bins.newest(t - 1)] = self.design.multiplier(t - 1) * increment
        return Noisy(randomness.measure(self._product(sums, t - 1), self.noise)[None])

    def decode(self, state: CounterState, coordinates: Noisy) -> Noisy:
        """See ``FactoredCounter.decode``: forward substitution, in integers."""
        design, tick = self.design, int(state["t"][0]) - 1
        values = self._moved(state, "values", tick)
        newest = design.bins.newest(tick)
        values[newest] = 0
        rest = (coordinates[0] << design.shift) - self._product(values, tick)
        value = (rest + design.grid // 2) >> (design.grid.bit_length() - 1)
        values[newest] = value
        divisor = design.multiplier(tick) << design.shift
        whole, remainder = np.divmod(value, divisor)
        part = state["part"] + ((remainder << _PART) + divisor // 2) // divisor
        state["whole"] += whole + (part >> _PART)
        state["part"] = part & ((1 << _PART) - 1)
        return Noisy(state["whole"] + ((state["part"] + (1 << (_PART - 1))) >> _PART))

    def _moved(self, state: CounterState, name: str, tick: int) -> NDArray[np.int64]:
        """The rows of "sums" or "values" with this tick's bins made of two, and room for the new increment."""
        rows = state[name]
        needed = self.design.bins.rows_at(tick)
        if len(rows) < needed:
            grown = np.zeros((needed, rows.shape[1]), np.int64)
            grown[: len(rows)] = rows
            state[name] = rows = grown
        for row, older, newer in self.design.bins.merges(tick):
            np.add(rows[older], rows[newer], out=rows[row])
        return rows

    def _product(self, rows: NDArray[np.int64], tick: int) -> NDArray[np.int64]:
        weights = self.design.bins.coefficients(tick)[: len(rows)]
        result: NDArray[np.int64] = np.einsum("r,rw->w", weights, rows)
        return result

    def variance(self, t: int) -> float:
        """See ``CalibratedCounter.variance``; exact up to tick 8,192, beyond see ``NoiseTable``.

        Cost: the first call for a recipe some 30 us for each tick up to ``t``; then nothing.
        """
        t = self.check_ticks(t)
        return self.design.table.variance(t) * self.noise.variance if t else 0.0

    def gain_variance(self, t: int) -> float:
        """See ``CalibratedCounter.gain_variance``; exact as far as ``variance`` is."""
        t = check_count(t, what="the number of ticks", least=1, most=MAX_TICKS)
        self.check_tick(t)
        return self.design.table.gain(t) * self.noise.variance

    def materialize(self, n: int) -> LinearMap:
        """See ``CalibratedCounter.materialize``; the decoder is that of the estimate before rounding."""
        n = self.check_matrix(n)
        encoder = self.design.bins.matrix(n) * self.design.multipliers(n)
        running = np.tril(np.ones((n, n)))
        decoder = np.linalg.solve(encoder.T.astype(np.float64), running.T).T
        return LinearMap(encoder, decoder, (self.noise,) * n)

    def check_state(self, state: Mapping[str, NDArray[np.int64]], width: int) -> None:
        """See ``CalibratedCounter.check_state``."""
        super().check_state(state, width)
        if ((state["part"] < 0) | (state["part"] >> _PART > 0)).any():
            raise self.damaged("a fraction is out of range")
