"""Cumulative synthesizer: how many people have had at least b ones so far, as persistent synthetic people.

Bun, Gaboardi, Neunhoeffer and Zhang (2024), Algorithm 2, with any counter, and with the corrections of
``docs/theory/panel.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import check_share, check_whole, check_words
from dpstream.core.counters import ZCDP_COUNTER_NAMES, CalibratedCounter, CounterState, best, counter_by_name
from dpstream.core.counters.counter import MAX_NOISE_SCALE, LinearMap
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.budget import ZCDP, Amount, exact_amount
from dpstream.core.privacy.noise import DiscreteGaussian, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event, Individual, Unit
from dpstream.families.panel.extension import (
    MAX_SYMBOLS,
    check_people,
    check_period,
    check_reports,
    extend,
    individual,
)
from dpstream.families.panel.queries import AtLeast

# The counter of one threshold of a cumulative panel: which one, and what one person's history costs there.
#
# Everything here is public: it depends on numbers of ticks, names and the relation only.

#: At this budget all noise is so large that variances are in proportion to one over the budget.
_SMALL_BUDGET = ZCDP(Fraction(1, 1000))
#: A counter that is later in the list of names is chosen only if it is better by this part.
_BETTER_BY = 0.01
#: Up to this number of ticks the worst moved change is searched for in the matrix; beyond it, twice is charged.
_MAX_SEARCHED_TICKS = 512
_REMEMBERED = 8192


@lru_cache(maxsize=_REMEMBERED)
def chosen_counter(ticks: int, unit: Individual) -> str:
    """The counter with the smallest error; public: it depends on the number of ticks and the relation only."""
    choice = best(_SMALL_BUDGET, Event(), horizon=ticks)
    if unit.relation == "add-remove":
        return choice.name
    chosen, least = choice.name, choice.deviation**2 * float(person_factor(choice.name, ticks, unit))
    for other in choice.candidates:
        # A factor is 1 at least: most candidates are out without looking at their matrices.
        if other.deviation is None or other.deviation**2 >= (1 - _BETTER_BY) * least:
            continue
        error = other.deviation**2 * float(person_factor(other.name, ticks, unit))
        if error < (1 - _BETTER_BY) * least:
            chosen, least = other.name, error
    return chosen


@lru_cache(maxsize=_REMEMBERED)
def spread(name: str, ticks: int) -> float:
    """Sum of the variances over all ticks."""
    counter = counter_by_name(name, horizon=ticks).calibrate(_SMALL_BUDGET, Event())
    return math.fsum(counter.variance(t) for t in range(1, ticks + 1))


@lru_cache(maxsize=_REMEMBERED)
def person_factor(name: str, ticks: int, unit: Individual) -> Fraction:
    """How many times the cost of one changed increment one person has: from the counter's own matrix.

    A replaced person has at most twice, where no entry of the matrix is negative (as in all counters by name).
    """
    if unit.relation == "add-remove":
        return Fraction(1)
    if ticks > _MAX_SEARCHED_TICKS:
        return Fraction(2)
    counter = counter_by_name(name, horizon=ticks).calibrate(_SMALL_BUDGET, Event())
    return max(Fraction(1), moved_loss(counter.materialize(ticks)) / _SMALL_BUDGET.rho)


def moved_loss(linear: LinearMap) -> Fraction:
    """The worst loss (rho) of an increment that falls by 1 while another one rises by 1, or of either alone; exact."""
    if not all(isinstance(noise, DiscreteGaussian) for noise in linear.scales):
        raise ConfigError("a counter's noise is not Gaussian", where="panel", allowed="counters for zCDP")
    each = [1 / (2 * noise.sigma_squared) for noise in linear.scales if isinstance(noise, DiscreteGaussian)]
    common = math.lcm(*(loss.denominator for loss in each))
    ticks = linear.encoder.shape[1]
    total, alone = np.zeros((ticks, ticks), dtype=object), np.zeros(ticks, dtype=object)
    for loss in set(each):
        part = linear.encoder[[i for i, one in enumerate(each) if one == loss]]
        # Whole numbers below 2^53 are exact as floats, whose product is far quicker than that of integers.
        exact = np.float64 if 4 * int(np.abs(part).max()) ** 2 * len(part) < 2**53 else object
        part = part.astype(exact)
        squares = (part**2).sum(axis=0)
        distance = squares[:, None] + squares[None, :] - 2 * (part.T @ part)
        total += _whole(distance) * int(loss * common)
        alone += _whole(squares) * int(loss * common)
    return Fraction(int(max(total.max(), alone.max())), common)


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    """The same as Python's integers."""
    return values if values.dtype == object else values.astype(np.int64).astype(object)


def proxies(counter: CalibratedCounter, rho: Fraction, ticks: int) -> NDArray[np.float64]:
    """Variance proxy of each estimate: how wide a Gaussian is that has heavier tails.

    It is the variance itself where every ``sigma^2`` is 4 or more, which a budget up to 1/8 makes sure of; narrow
    discrete Gaussians have a smaller variance than ``sigma^2``, and tails like it.
    """
    if rho <= Fraction(1, 8):
        return np.array([counter.variance(t) for t in range(1, ticks + 1)])
    linear = counter.materialize(ticks)
    squares = [float(noise.sigma_squared) for noise in linear.scales if isinstance(noise, DiscreteGaussian)]
    result: NDArray[np.float64] = linear.decoder.astype(np.float64) ** 2 @ np.array(squares)
    return result


#: How the budget is shared among the thresholds: by the error it causes, or as in the text.
Split = Literal["error", "levels"]

_MAX_PERIODS = 4096
#: Share of the budget for the number of people, where it is private.
_TOTAL_SHARE = Fraction(1, 20)


@dataclass(frozen=True)
class Cumulative:
    """Options of the cumulative synthesizer.

    Attributes:
        periods: T, how many periods there will be; each person reports one symbol each period.
        thresholds: B, the largest threshold: "at least b ones" is tracked for b = 1 .. B; all T by default. A
            synthetic person who has B ones gets no further ones.
        counter: a name of ``counters``, or "best": the smallest predicted error for each threshold.
        split: ``error`` gives each threshold what minimises the sum of all variances; ``levels`` is the text's rule.
        failure: beta, the probability that the stated bound fails anywhere.
        symbols: q, the size of the alphabet of the reports.
        ones: the symbols that count as a one; all others count as 0. Synthetic people have 0 and 1 only.
    """

    periods: int
    thresholds: int | None = None
    counter: str = "best"
    split: Split = "error"
    failure: Amount = "0.05"
    symbols: int = 2
    ones: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "periods", check_whole(self.periods, "periods", 1, _MAX_PERIODS, "panel"))
        if self.thresholds is not None:
            object.__setattr__(
                self, "thresholds", check_whole(self.thresholds, "thresholds", 1, self.periods, "panel")
            )
        if self.counter not in ("best", *ZCDP_COUNTER_NAMES):
            raise ConfigError(
                f"unknown counter {self.counter!r}",
                where="panel",
                allowed=", ".join(("best", *ZCDP_COUNTER_NAMES)),
            )
        object.__setattr__(self, "symbols", check_whole(self.symbols, "symbols", 2, MAX_SYMBOLS, "panel"))
        # Refuses anything but a tuple of symbols of the alphabet.
        AtLeast(1, 1, self.ones).check(self.symbols)
        check_words(self, "panel")
        check_share(self.failure, "failure", "panel")

    @property
    def largest(self) -> int:
        """The largest threshold, B."""
        return self.periods if self.thresholds is None else self.thresholds

    def calibrate(self, rho: Amount, unit: Unit | None = None) -> CumulativePlan:
        """Fix the noise so that all releases together cost one person's whole history ``rho``.

        Errors:
            UnitError: the unit is no individual. BudgetError: an amount that cannot be used, or a counter for pure
            budgets only. LimitError: a threshold's share is too small for 64-bit sums.
        """
        protected = individual(unit)
        budget = ZCDP.of(rho)
        private_people = protected.relation == "add-remove"
        total = budget.scaled(_TOTAL_SHARE) if private_people else None
        left = budget.rho - (total.rho if total else 0)
        shares = self._shares(protected)
        counters = tuple(
            self._counter(b, ZCDP(left * share), protected) for b, share in enumerate(shares, start=1)
        )
        # The number of people may have the smallest budget of all: its noise has to fit, too.
        if total is not None and noise_for(total, 1, 1).variance > MAX_NOISE_SCALE**2:
            raise LimitError(
                f"a budget of {budget} needs noise that does not fit 64-bit sums",
                where="panel",
                allowed="a larger rho",
            )
        return CumulativePlan(self, budget, protected, total, tuple(left * one for one in shares), counters)

    def _shares(self, unit: Individual) -> list[Fraction]:
        """The share of the budget of each threshold; they add up to 1 exactly."""
        ticks = [self.periods - b + 1 for b in range(1, self.largest + 1)]
        if self.split == "levels":
            weights = [Fraction(n.bit_length() ** 3) for n in ticks]
        else:
            # A variance is in proportion to one over its share, so square roots make the sum of variances the smallest.
            weights = [
                Fraction(f"{self._difficulty(b, unit) ** 0.5:.6g}") for b in range(1, self.largest + 1)
            ]
        whole_sum = sum(weights, Fraction(0))
        return [weight / whole_sum for weight in weights]

    def _difficulty(self, b: int, unit: Individual) -> float:
        """The sum of the variances of threshold ``b`` over its ticks, at a budget at which all noise is large."""
        ticks = self.periods - b + 1
        name = self._name(ticks, unit)
        return spread(name, ticks) * float(person_factor(name, ticks, unit))

    def _name(self, ticks: int, unit: Individual) -> str:
        return chosen_counter(ticks, unit) if self.counter == "best" else self.counter

    def _counter(self, b: int, budget: ZCDP, unit: Individual) -> CalibratedCounter:
        """The counter of threshold ``b``, so that one person's whole history costs at most ``budget`` there.

        A person who is added or removed changes one increment of it by 1. One who is replaced changes two (the
        period at which the threshold is reached moves), so the cost of one change is that of the worst pair.
        """
        ticks = self.periods - b + 1
        name = self._name(ticks, unit)
        factor = person_factor(name, ticks, unit)
        return counter_by_name(name, horizon=ticks).calibrate(budget.scaled(1 / factor), Event())


@dataclass
class CumulativeState:
    """What is remembered between periods. Secret: ``private`` and ``counters`` hold what people reported.

    Attributes:
        period: t, how many periods were read.
        private: how many ones each person has had, at most B.
        counters: private; a counter's state for each threshold.
        reached: public; synthetic people with at least b ones, for b = 0 .. B.
        synthetic: public; how many ones each synthetic person has had.
    """

    period: int
    private: NDArray[np.int32]
    counters: list[CounterState]
    reached: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    synthetic: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(frozen=True)
class CumulativePlan:
    """A calibrated cumulative synthesizer; frozen, without data.

    Guarantee: the synthetic people of all periods together satisfy rho-zCDP for one person's whole history, also if
    the reports are chosen in view of earlier releases. A person reaches each threshold at most once, so one person
    is in at most one increment of each counter (two when replaced: the counter's noise is fixed for the worst such
    pair). The counters' losses, and that of the number of people where it is private, add up to rho.

    Attributes:
        total: budget of the number of people; None where it is public.
        shares: rho of each threshold.
    """

    recipe: Cumulative
    budget: ZCDP
    unit: Individual
    total: ZCDP | None
    shares: tuple[Fraction, ...]
    counters: tuple[CalibratedCounter, ...]

    @cached_property
    def total_noise(self) -> DiscreteGaussian | None:
        """The noise of the number of people, where it is private."""
        if self.total is None:
            return None
        noise = noise_for(self.total, 1, 1)
        assert isinstance(noise, DiscreteGaussian)
        return noise

    @cached_property
    def padding(self) -> int:
        """Invented people without any one, so that the released number is hardly ever too small; public."""
        if self.total_noise is None:
            return 0
        return math.ceil(math.sqrt(2.0 * float(self.total_noise.sigma_squared) * math.log(2.0 / self._beta)))

    @property
    def _beta(self) -> float:
        return float(exact_amount(self.recipe.failure, where="failure"))

    def variance(self, threshold: int, period: int) -> float:
        """Variance of the number of people with at least ``threshold`` ones after ``period``, as it is counted."""
        ticks = period - threshold + 1
        return self.counters[threshold - 1].variance(ticks) if ticks > 0 else 0.0

    @cached_property
    def _deviations(self) -> NDArray[np.float64]:
        """Standard deviation of each estimate's sub-Gaussian bound, shape (B + 1, T + 1); 0 where nothing is noisy."""
        table = np.zeros((self.recipe.largest + 1, self.recipe.periods + 1))
        for b, counter in enumerate(self.counters, start=1):
            table[b, b:] = np.sqrt(proxies(counter, self.shares[b - 1], self.recipe.periods - b + 1))
        return table

    @cached_property
    def _bounds(self) -> NDArray[np.float64]:
        """The largest deviation of all estimates that a count can come from, for each threshold and period.

        A count is its estimate, or the count of the period before, or that of one threshold less at the period
        before: making it monotone moves no count farther from a monotone truth than the worst of these.
        """
        worst = np.maximum.accumulate(self._deviations, axis=1)
        for b in range(1, len(worst)):
            worst[b, 1:] = np.maximum(worst[b, 1:], worst[b - 1, :-1])
        periods, largest = self.recipe.periods, self.recipe.largest
        events = sum(min(t, largest) for t in range(1, periods + 1))
        # Half of the failure is for the number of people, where it is private.
        beta = self._beta if self.total_noise is None else self._beta / 2.0
        # Estimates are whole numbers: rounding adds a half.
        result: NDArray[np.float64] = worst * math.sqrt(2.0 * math.log(2.0 * events / beta)) + 0.5
        return result

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """A bound for each period: with probability ``1 - failure`` no count of any period is ever wrong by more
        (people).

        The running sums are sums of independent noise, each of which is no wider than a Gaussian, so a union bound
        over all thresholds and periods holds.
        """
        return tuple(self._bounds[1:, 1:].max(axis=0).tolist())

    def bound(self, threshold: int, period: int) -> float:
        """The same bound for one threshold and period; all of them hold at once."""
        return float(self._bounds[threshold, period])

    def describe(self) -> str:
        """The plan in words."""
        names = sorted({counter.name for counter in self.counters})
        people = (
            "their number is public"
            if self.total_noise is None
            else f"their number costs {self.total} and has {self.total_noise.describe()}"
        )
        return (
            f"cumulative counts of at least 1 .. {self.recipe.largest} ones in {self.recipe.periods} periods; "
            f"{self.budget} for {self.unit.describe()}; {people}; counters: {', '.join(names)}; every count within "
            f"{self.bounds[-1]:.4g} people with probability {1 - self._beta:g}"
        )

    def start(self, people: int) -> CumulativeState:
        """A fresh state for a panel of ``people``, who are told apart by their place in every period's array.

        Errors:
            ConfigError: the number of people cannot be used.
        """
        number = check_people(people)
        return CumulativeState(0, np.zeros(number, np.int32), [counter.init(1) for counter in self.counters])

    def step(
        self, state: CumulativeState, reports: NDArray[np.integer], randomness: Randomness
    ) -> CumulativeRelease:
        """Read one period and extend the synthetic people by it.

        Args:
            reports: private; one symbol for each person, in the order of all periods.

        Errors (before anything is drawn or changed):
            HorizonError: all periods were read. DataError: another number of people, or symbols outside.
        """
        check_period(state.period, self.recipe.periods)
        hits = np.isin(check_reports(reports, len(state.private), self.recipe.symbols), self.recipe.ones)
        noisy_people = self._begin(state, randomness) if state.period == 0 else None
        state.period += 1
        largest = self.recipe.largest
        # For each b: how many people with exactly b ones get one more now.
        gains = np.bincount(state.private[hits], minlength=largest + 1)
        # People who have reached the largest threshold are not followed any further.
        state.private += hits & (state.private < largest)
        estimates = state.reached.copy()
        for b in range(1, min(state.period, largest) + 1):
            increment = np.array([gains[b - 1]], np.int64)
            counter, kept = self.counters[b - 1], state.counters[b - 1]
            estimates[b] = counter.step(kept, increment, randomness)[0]
        # From here on the code sees noisy counts, synthetic people, and coins that protect nobody.
        released = self._extend(state, estimates, np.random.default_rng(randomness.words(4)))
        return replace(released, noisy_people=noisy_people)

    def _begin(self, state: CumulativeState, randomness: Randomness) -> int | None:
        """The synthetic people; the noisy number of true ones, where their number is private."""
        people, noisy = len(state.private), None
        if self.total_noise is not None:
            noisy = int(randomness.measure(np.array([people]), self.total_noise)[0])
            people = max(0, noisy + self.padding)
        state.synthetic = np.zeros(people, np.int32)
        state.reached = np.zeros(self.recipe.largest + 1, np.int64)
        state.reached[0] = people
        return noisy

    def _extend(
        self, state: CumulativeState, estimates: NDArray[np.int64], generator: np.random.Generator
    ) -> CumulativeRelease:
        before = state.reached
        after = np.minimum(np.maximum(estimates[1:], before[1:]), before[:-1])
        gained = after - before[1:]
        waiting = before - np.append(before[1:], 0)  # synthetic people with exactly b ones
        numbers = np.stack([waiting, np.zeros_like(waiting)], axis=1)
        numbers[:-1, 1] = gained
        numbers[:-1, 0] -= gained
        column = extend(state.synthetic, numbers, generator)
        state.synthetic += column
        state.reached = np.append(before[:1], after)
        return CumulativeRelease(self, state.period, column[:, None], state.reached.copy(), estimates)


@dataclass(frozen=True)
class CumulativeAnswer:
    """How many people have had at least some number of ones so far.

    Attributes:
        value: share among the synthetic people, without padding; never falls from period to period.
        count: the same in people.
        unbiased: the counter's own estimate in people; it may fall, and be outside of what is possible.
        standard_error: standard deviation of ``unbiased``, from public noise scales.
        share_error: that of ``unbiased`` as a share of the released number of people, to first order; NaN where that
            number is not above 0.
        bound: with probability ``1 - failure`` all counts of all periods are within their bounds (people).
    """

    value: float
    count: int
    unbiased: int
    standard_error: float
    share_error: float
    bound: float


@dataclass(frozen=True)
class CumulativeRelease:
    """What one period gave; public.

    Attributes:
        period: t.
        columns: the new symbol of every synthetic person, shape (people, 1).
        reached: synthetic people with at least b ones, for b = 0 .. B; ``reached[0]`` is all of them.
        estimates: the counters' own estimates of the same.
        noisy_people: the number of people as measured, without padding: at the first period, where it is private.
    """

    plan: CumulativePlan
    period: int
    columns: NDArray[np.uint8]
    reached: NDArray[np.int64]
    estimates: NDArray[np.int64]
    noisy_people: int | None = None

    @property
    def people(self) -> int:
        """Synthetic people, padding included; the same at every period."""
        return int(self.reached[0])

    def at_least(self, times: int) -> CumulativeAnswer:
        """How many people have had at least ``times`` ones in the first ``period`` periods.

        Errors:
            ConfigError: not a threshold that is tracked.
        """
        check_whole(times, "times", 1, self.plan.recipe.largest, "panel")
        plan, total = self.plan, self.people - self.plan.padding
        count, variance = int(self.reached[times]), self.plan.variance(times, self.period)
        share = count / total if total > 0 else math.nan
        # The number of people has noise of its own, independent of the counters': the errors' squares add up.
        of_total = 0.0 if plan.total_noise is None else share**2 * plan.total_noise.variance
        return CumulativeAnswer(
            value=share,
            count=count,
            unbiased=int(self.estimates[times]),
            standard_error=math.sqrt(variance),
            share_error=math.sqrt(variance + of_total) / total if total > 0 else math.nan,
            bound=self.plan.bound(times, self.period),
        )
