"""Fixed-window synthesizer: persistent synthetic people who are right about every few periods in a row.

Bun, Gaboardi, Neunhoeffer and Zhang, "Continual Release of Differentially Private Synthetic Data from Longitudinal
Data Collections" (2024), Algorithm 1, with the corrections of ``docs/theory/panel.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import check_share, check_whole
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.budget import ZCDP, Amount, exact_amount
from dpstream.core.privacy.noise import DiscreteGaussian, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Individual, Unit
from dpstream.families.panel.extension import (
    MAX_PEOPLE,
    MAX_SYMBOLS,
    check_people,
    check_period,
    check_reports,
    extend,
    individual,
    split_whole,
)
from dpstream.families.panel.queries import WindowQuery

#: Patterns of a window (symbols^window). Every pattern carries padding, so more would drown any panel.
MAX_PATTERNS = 2**16
_MAX_PERIODS = 10_000


@dataclass(frozen=True)
class FixedWindow:
    """Options of the fixed-window synthesizer.

    Attributes:
        periods: T, how many periods there will be.
        window: k, how many periods in a row the synthetic people are right about.
        symbols: q, the size of the alphabet: each person reports one of ``0 .. symbols - 1`` each period.
        failure: beta, the probability that the stated bound fails anywhere (and that a count has to be clipped).
    """

    periods: int
    window: int
    symbols: int = 2
    failure: Amount = "0.05"

    def __post_init__(self) -> None:
        # Python integers: a power of NumPy's own could pass 64 bits unseen.
        object.__setattr__(self, "periods", check_whole(self.periods, "periods", 1, _MAX_PERIODS, "panel"))
        object.__setattr__(self, "window", check_whole(self.window, "window", 1, self.periods, "panel"))
        object.__setattr__(self, "symbols", check_whole(self.symbols, "symbols", 2, MAX_SYMBOLS, "panel"))
        if self.symbols**self.window > MAX_PATTERNS:
            raise LimitError(
                f"{self.symbols} symbols over {self.window} periods make too many patterns",
                where="window",
                allowed=f"up to {MAX_PATTERNS} patterns",
            )
        check_share(self.failure, "failure", "panel")

    def calibrate(self, rho: Amount, unit: Unit | None = None) -> FixedWindowPlan:
        """Fix the noise so that all releases together cost one person's whole history ``rho``.

        Errors:
            UnitError: the unit is no individual. BudgetError: an amount that cannot be used.
            LimitError: so much noise that its padding would be more people than a panel can have.
        """
        protected = individual(unit)
        plan = FixedWindowPlan(self, ZCDP.of(rho), protected)
        if plan.padding * plan.patterns > MAX_PEOPLE:
            raise LimitError(
                f"a budget of {plan.budget} needs more than {MAX_PEOPLE} people of padding",
                where="panel",
                allowed="a larger rho, a shorter window or fewer periods",
            )
        return plan


@dataclass
class WindowState:
    """What is remembered between periods. Secret: ``private`` holds what people reported.

    Attributes:
        period: t, how many periods were read.
        private: code of the last (up to k) symbols of each person.
        synthetic: public; the same of each synthetic person, from period k on.
        clipped: public; how many groups of synthetic people had to be clipped so far.
    """

    period: int
    private: NDArray[np.int32]
    synthetic: NDArray[np.int32] | None = None
    clipped: int = 0


@dataclass(frozen=True)
class FixedWindowPlan:
    """A calibrated fixed-window synthesizer; frozen, without data.

    Guarantee: the synthetic people of all periods together satisfy rho-zCDP for one person's whole history, also if
    the reports are chosen in view of earlier releases. Each of the ``T - k + 1`` histograms over patterns gets
    fresh discrete Gaussian noise. A person is in one pattern of each, so a histogram has squared L2 sensitivity 1
    (added or removed) or 2 (replaced: one pattern less, another one more); the losses add up. Everything else,
    rounding and extending included, sees noisy counts and synthetic people only.
    """

    recipe: FixedWindow
    budget: ZCDP
    unit: Individual

    @property
    def histograms(self) -> int:
        """R, how many noisy histograms are released: ``T - k + 1``."""
        return self.recipe.periods - self.recipe.window + 1

    @property
    def patterns(self) -> int:
        """Patterns of a window: ``q^k``."""
        return int(self.recipe.symbols**self.recipe.window)

    @cached_property
    def noise(self) -> DiscreteGaussian:
        """The noise of each cell of each histogram; all have equal parts of the budget."""
        cells = 1 if self.unit.relation == "add-remove" else 2
        noise = noise_for(self.budget.scaled(Fraction(1, self.histograms)), cells, cells)
        assert isinstance(noise, DiscreteGaussian)
        return noise

    @property
    def rounding(self) -> float:
        """Variance proxy of all random rounding in one pattern's count (docs/theory/panel.md)."""
        return self.recipe.symbols / (4.0 * (self.recipe.symbols - 1))

    @cached_property
    def bound(self) -> float:
        """The error that is promised: with probability ``1 - failure`` nothing is clipped, and no debiased count is
        wrong by more.

        In people. A union bound over patterns, periods and both directions.
        """
        log_events = math.log(2.0 * self.patterns * self.histograms / self._beta)
        deviation = math.sqrt(2.0 * float(self.noise.sigma_squared)) + math.sqrt(2.0 * self.rounding)
        return deviation * math.sqrt(log_events)

    @property
    def padding(self) -> int:
        """Invented people added to every pattern, so that counts hardly ever become negative; public.

        As many as the bound: where it holds, nothing is clipped.
        """
        return math.ceil(self.bound)

    @property
    def _beta(self) -> float:
        return float(exact_amount(self.recipe.failure, where="failure"))

    def describe(self) -> str:
        """The plan in words."""
        recipe = self.recipe
        return (
            f"fixed window of {recipe.window} of {recipe.periods} periods, {recipe.symbols} symbols; {self.budget} for "
            f"{self.unit.describe()}; {self.histograms} histograms of {self.patterns} patterns, each with "
            f"{self.noise.describe()}; padding of {self.padding} people a pattern; every debiased count within "
            f"{self.bound:.4g} people with probability {1 - self._beta:g}"
        )

    def start(self, people: int) -> WindowState:
        """A fresh state for a panel of ``people``, who are told apart by their place in every period's array.

        Errors:
            ConfigError: the number of people cannot be used.
        """
        return WindowState(0, np.zeros(check_people(people), np.int32))

    def step(
        self, state: WindowState, reports: NDArray[np.integer], randomness: Randomness
    ) -> WindowRelease | None:
        """Read one period and extend the synthetic people by it; None before period k.

        Args:
            reports: private; one symbol for each person, in the order of all periods.

        Errors (before anything is drawn or changed):
            HorizonError: all periods were read. DataError: another number of people, or symbols outside.
        """
        recipe = self.recipe
        check_period(state.period, recipe.periods)
        symbols = check_reports(reports, len(state.private), recipe.symbols)
        state.private %= self.patterns // recipe.symbols
        state.private *= recipe.symbols
        state.private += symbols
        state.period += 1
        if state.period < recipe.window:
            return None
        counts = np.bincount(state.private, minlength=self.patterns).astype(np.int64)
        noisy = randomness.measure(counts + self.padding, self.noise)
        # From here on the code sees noisy counts, synthetic people, and coins that protect nobody.
        generator = np.random.default_rng(randomness.words(4))
        if state.synthetic is None:
            return self._begin(state, noisy)
        return self._extend(state, noisy, generator)

    def _begin(self, state: WindowState, noisy: NDArray[np.int64]) -> WindowRelease:
        people = np.maximum(noisy, 0)
        state.clipped += int((noisy < 0).sum())
        state.synthetic = np.repeat(np.arange(self.patterns, dtype=np.int32), people)
        powers = self.recipe.symbols ** np.arange(self.recipe.window - 1, -1, -1, dtype=np.int32)
        columns = (state.synthetic[:, None] // powers % self.recipe.symbols).astype(np.uint8)
        return WindowRelease(self, state.period, columns, people, state.clipped, noisy - self.padding)

    def _extend(
        self, state: WindowState, noisy: NDArray[np.int64], generator: np.random.Generator
    ) -> WindowRelease:
        assert state.synthetic is not None
        symbols = self.recipe.symbols
        # The split is indexed by the synthetic people: by the private ones it would leak.
        groups = state.synthetic % (self.patterns // symbols)
        available = np.bincount(groups, minlength=self.patterns // symbols).astype(np.int64)
        numbers, clipped = split_whole(noisy.reshape(-1, symbols), available, generator)
        column = extend(groups, numbers, generator)
        state.synthetic = groups * np.int32(symbols) + column
        state.clipped += clipped
        counts = numbers.ravel()
        return WindowRelease(self, state.period, column[:, None], counts, state.clipped, noisy - self.padding)


@dataclass(frozen=True)
class WindowAnswer:
    """An answer about the last few periods.

    Attributes:
        raw: share among the synthetic people as they are, padding included.
        value: debiased share: the padding's own answer is taken out.
        count: debiased number of people.
        standard_error, count_error: standard deviations of ``value`` and ``count``, from public noise scales (the
            coins of rounding are bounded from above); None for a query wider than the window.
        bound: with probability ``1 - failure`` all such counts of all periods are within their bounds (people);
            None for a query wider than the window.
        note: what has to be said about it; empty where all is as stated.
    """

    raw: float
    value: float
    count: float
    standard_error: float | None
    count_error: float | None
    bound: float | None
    note: str = ""


@dataclass(frozen=True)
class WindowRelease:
    """What one period gave; public.

    Attributes:
        period: t.
        columns: the new symbols of every synthetic person, shape (people, new periods): k of them at first.
        counts: synthetic people by the pattern of their last k periods.
        clipped: how many groups had to be clipped so far; answers are unbiased where it is 0.
        noisy: people by pattern, as measured: true counts and noise, without padding; what ``counts`` is made from.
            None in a release that was read back.
    """

    plan: FixedWindowPlan
    period: int
    columns: NDArray[np.uint8]
    counts: NDArray[np.int64]
    clipped: int
    noisy: NDArray[np.int64] | None = None

    @property
    def noise(self) -> DiscreteGaussian:
        """The noise of each count in ``noisy``, drawn independently."""
        return self.plan.noise

    @property
    def people(self) -> int:
        """Synthetic people, padding included; the same at every period."""
        return int(self.counts.sum())

    def answer(self, query: WindowQuery, *, people: int | None = None) -> WindowAnswer:
        """Answer a question about the last ``query.width`` periods, at most k.

        Args:
            people: n, where it is public (relation ``replace``); otherwise shares are of the released total.

        Errors:
            ConfigError: a query is wider than the window (see ``panel.history``), or n is given under add/remove
                or missing under replacement.
        """
        plan = self.plan
        weights = self._weights(query)
        if (people is not None) != (plan.unit.relation == "replace"):
            raise ConfigError(
                "the number of people is given exactly where it is public",
                where="panel",
                allowed="people=n under replacement, nothing otherwise",
            )
        base = np.ones(plan.patterns)
        count, total = self._count(weights), self._count(base) if people is None else people
        share = count / total if total > 0 else math.nan
        # A share of a noisy total: its error is that of the weights less the share (first order).
        around = weights - share * base if people is None and total > 0 else weights
        error = math.sqrt(self.error_variance(around)) / total if total > 0 else math.nan
        return WindowAnswer(
            raw=float(weights @ self.counts) / self.people if self.people else math.nan,
            value=share,
            count=count,
            standard_error=error,
            count_error=math.sqrt(self.error_variance(weights)),
            bound=plan.bound * float(np.abs(weights).sum()),
            note=f"{self.clipped} groups of people were clipped so far: not exactly unbiased"
            if self.clipped
            else "",
        )

    def _count(self, weights: NDArray[np.float64]) -> float:
        return float(weights @ self.counts - self.plan.padding * weights.sum())

    def _weights(self, query: WindowQuery) -> NDArray[np.float64]:
        """The question's weights on the patterns of the whole window."""
        recipe = self.plan.recipe
        if query.width > recipe.window:
            raise ConfigError(
                f"the question looks back {query.width} periods",
                where="panel",
                allowed=f"up to {recipe.window} periods: the synthetic people are right about no more in a row",
            )
        suffixes = np.arange(self.plan.patterns) % recipe.symbols**query.width
        weights: NDArray[np.float64] = query.weights(recipe.symbols)[suffixes]
        return weights

    def error_variance(self, weights: NDArray[np.float64]) -> float:
        """Variance of a weighted sum of the counts; exact for the noise, an upper bound for the coins of rounding.

        A count's error is its own noise less its group's mean noise, plus an even share of the group's earlier
        error. So the weights are followed back. After k periods they are even: even weights hear no later noise and
        round nothing. Where all noise is alike, its part is ``sigma^2`` times the sum of squared weights.
        """
        plan, symbols = self.plan, self.plan.recipe.symbols
        current = np.asarray(weights, dtype=np.float64)
        variance, newest = 0.0, self.period - plan.recipe.window
        for _ in range(min(newest, plan.recipe.window)):
            groups = current.reshape(-1, symbols)
            means = groups.mean(axis=1)
            # One rounding moves r of q symbols by one: covariance r(q - r)/(q(q - 1)) (I - J/q), at most this.
            own = plan.noise.variance + plan.rounding
            variance += own * float(((groups - means[:, None]) ** 2).sum())
            current = np.tile(means, symbols)
        return variance + plan.noise.variance * float(current @ current)
