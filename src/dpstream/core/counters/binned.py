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
rest is computed from ``y`` and the clock alone. Proof: docs/theory/counters.md.

Arithmetic. Everything is integers modulo 2^64. The decoder works with multiples of a small unit; however large the
sums, its rounding moves an estimate by at most two hundredths in ``10^6`` ticks, before it is rounded to an integer.

Bins: ``LagBins``. Weights: ``toeplitz.py``.

Trusted base: kernel (holds exact sums, measures them).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters.binned_noise import NoiseTable
from dpstream.core.counters.counter import (
    MAX_NOISE_SCALE,
    MAX_TICKS,
    Counter,
    CounterState,
    FactoredCounter,
    LinearMap,
    check_count,
    check_event,
    too_noisy,
)
from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy import ZCDP, Budget, DiscreteGaussian, Event, Noisy, Randomness

# Old increments in bins: neighbours whose weights differ little are kept as one sum.
#
# Bins. The weights fall slowly, so old increments need not be kept one by one: neighbours whose weights differ by a few
# per cent are kept as one sum (a bin), with the weight of the oldest of them. Bins are dyadic: bin ``b`` of
# level ``l`` holds the increments ``b 2^l .. (b + 1) 2^l - 1``, and two bins of a level become one of the
# next as soon as the weights allow. Everything here is public and depends on the clock only.
#
# Source: the idea of binning is Andersson and Pagh, "Streaming Private Continual Counting via Binning"
# (2024). Dyadic bins, integer weights and the exact column norms are ours.

#: Sums of squares of so many weights as ages are kept stay below 2^62.
_LARGEST_WEIGHT = 2**18


class Weights(NamedTuple):
    """A decreasing sequence: rounded to integers (``grid`` first), and before rounding, over ``grid``."""

    rounded: NDArray[np.int64]
    exact: NDArray[np.float64]

    @classmethod
    def on_grid(cls, exact: NDArray[np.float64], grid: int) -> Weights:
        """Rounded to multiples of ``1/grid``, and cut where they are 0."""
        rounded = np.rint(grid * exact).astype(np.int64)
        length = int(np.count_nonzero(rounded))
        return cls(rounded[:length], exact[:length])


class LagBins:
    """The bins of a sequence of integer weights. Increments are numbered from 0.

    Args:
        weights: int64, not increasing, positive: ``weights[k]`` is for the increment ``k`` ticks ago. Older
            increments than ``len(weights)`` have weight 0.
        tolerance: two neighbouring bins become one when the exact weights of the oldest and of the newest increment
            in it differ by at most this share. 0 keeps every increment by itself.
        exact: float64, the weights before rounding (which steps would hide).

    Attributes:
        rows: how many sums are kept at most.
    """

    def __init__(self, weights: NDArray[np.int64], exact: NDArray[np.float64], tolerance: float) -> None:
        if (np.diff(weights) > 0).any() or not 1 <= weights[-1] <= weights[0] <= _LARGEST_WEIGHT:
            raise ConfigError("weights rise or are too large", where="counter", allowed="decreasing weights")
        self._weights = np.append(weights, 0)
        self._squares = np.concatenate([[0], np.cumsum(weights**2)])
        self._starts = np.array(_thresholds(exact, tolerance), np.int64)
        ends = np.append(self._starts[1:], len(weights))
        levels = np.arange(len(self._starts))
        sizes = (ends - 1 - self._starts >> levels) + 1
        self._first_row = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._sizes = sizes
        self._ends = ends
        self.rows = int(sizes.sum())
        self._level_of = np.repeat(levels, sizes)
        self._index_of = np.arange(self.rows) - self._first_row[self._level_of]
        self._size_of = sizes[self._level_of]

    @property
    def squared_norm(self) -> int:
        """The largest sum of squares of the weights that one increment meets: that of increment 0.

        An increment's bin never starts after it, so each of its weights is at most ``weights[k]``; the
        bins of increment 0 start with it, so all of its weights are ``weights[k]``.
        """
        return int(self._squares[-1])

    def squared_norms(self, numbers: NDArray[np.int64], ticks: int | None = None) -> NDArray[np.int64]:
        """The sum of squares of the weights that each of these increments meets: for ever, or in ``ticks`` ticks.

        Exact. Increment ``s`` is in its bin of level ``l``, which starts at ``a``, from the tick ``a + starts[l]``
        until the bin of the next level is there; its weights then are ``weights[t - a]``.
        """
        most = len(self._weights) - 1
        total = np.zeros(len(numbers), np.int64)
        entered = numbers
        for level in range(len(self._starts)):
            start = numbers >> level << level
            if level + 1 < len(self._starts):
                left = (numbers >> level + 1 << level + 1) + self._starts[level + 1]
            else:
                left = start + most
            if ticks is not None:
                left = np.minimum(left, ticks)
            upper, lower = np.minimum(left - start, most), np.minimum(entered - start, most)
            total += self._squares[upper] - self._squares[np.minimum(lower, upper)]
            entered = left
        return total

    def coefficients(self, tick: int) -> NDArray[np.int64]:
        """The weight of every row at tick ``tick`` (0, 1, ...); 0 for a row that is not in use."""
        newest, oldest = self._live(tick)
        newest_of = newest[self._level_of]
        bins = newest_of - (newest_of - self._index_of) % self._size_of
        lags = np.minimum(tick - (bins << self._level_of), len(self._weights) - 1)
        result: NDArray[np.int64] = np.where(bins >= oldest[self._level_of], self._weights[lags], 0)
        return result

    def merges(self, tick: int) -> Iterator[tuple[int, int, int]]:
        """(row, older row, newer row) for each bin that is made of two at this tick, in the order to do it.

        They come before the new increment takes its row.
        """
        for level in range(len(self._starts) - 1, 0, -1):
            start = tick - int(self._starts[level])
            if start >= 0 and start % (1 << level) == 0:
                number = start >> level
                yield (
                    self._row(level, number),
                    self._row(level - 1, 2 * number),
                    self._row(level - 1, 2 * number + 1),
                )

    def newest(self, tick: int) -> int:
        """The row of the increment of this tick."""
        return self._row(0, tick)

    def rows_at(self, tick: int) -> int:
        """How many rows are in use after tick ``tick``; levels come one after the other."""
        level = int(np.searchsorted(self._starts, tick, side="right")) - 1
        reached = (tick - int(self._starts[level]) >> level) + 1
        return int(self._first_row[level]) + min(reached, int(self._sizes[level]))

    def matrix(self, ticks: int) -> NDArray[np.int64]:
        """Row ``t`` holds the weights of all increments at tick ``t``: int64 (ticks, ticks)."""
        result = np.zeros((ticks, ticks), np.int64)
        for tick in range(ticks):
            for level, (newest, oldest) in enumerate(zip(*self._live(tick), strict=True)):
                starts = np.arange(max(int(oldest), 0), int(newest) + 1) << level
                if len(starts):
                    row = result[tick, starts[0] : starts[-1] + (1 << level)]
                    lags = np.minimum(tick - starts, len(self._weights) - 1)
                    # The newest bins may reach beyond the last tick.
                    row[:] = np.repeat(self._weights[lags], 1 << level)[: len(row)]
        return np.tril(result)

    def _live(self, tick: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The newest and the oldest bin of every level."""
        levels = np.arange(len(self._starts))
        newest = tick - self._starts >> levels
        above = (tick - self._ends >> levels + 1) + 1
        oldest = np.maximum(above * 2, 0)
        oldest[-1] = max((tick - int(self._ends[-1]) >> int(levels[-1])) + 1, 0)
        return newest, oldest

    def _row(self, level: int, number: int) -> int:
        return int(self._first_row[level]) + number % int(self._sizes[level])


def _thresholds(exact: NDArray[np.float64], tolerance: float) -> list[int]:
    """``starts[l]``: how many ticks after its first increment a bin of level ``l`` is made of two."""
    starts = [0]
    while True:
        size = 2 << len(starts) - 1
        if size > len(exact):
            return starts
        fine = exact[size - 1 :] >= (1.0 - tolerance) * exact[: len(exact) - size + 1]
        wrong = np.flatnonzero(~fine)
        first = (int(wrong[-1]) + 1 if len(wrong) else 0) + size - 1
        # Both halves are there since an earlier tick, so the increment of the tick itself stays alone.
        first = max(first, starts[-1] + size // 2 + 1)
        if first >= len(exact) or tolerance == 0.0:
            return starts
        starts.append(first)


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
                f"counter {self.name!r} is Gaussian, and the budget pure",
                where="budget",
                allowed="rho, or a counter for pure budgets",
            )
        design = design_of(self)
        sigma_squared = unit.changed_cells * design.squared_norm / (2 * budget.rho)
        # What the measurements say about one increment has about this standard deviation.
        if sigma_squared > (design.unit * MAX_NOISE_SCALE) ** 2:
            raise too_noisy(budget, self.name)
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
        t = check_count(t, what="number of ticks", least=1, most=MAX_TICKS)
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
