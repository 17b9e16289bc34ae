"""Fixed-window synthesizer: persistent synthetic people who are right about every few periods in a row.

Bun, Gaboardi, Neunhoeffer and Zhang, "Continual Release of Differentially Private Synthetic Data from Longitudinal
Data Collections" (2024), Algorithm 1, with the corrections of ``docs/theory/panel.md``.

Trusted base: kernel (holds exact histories, measures).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    UNPACKED,
    CellEstimate,
    ExpectedErrors,
    ExpectedTable,
    Explanation,
    MarginalError,
    NoisyCounts,
    Option,
    Packed,
    Part,
    PeopleEstimate,
    Recipe,
    Terms,
    check_whole,
    option,
    unpack_fields,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.contracts.explanation import with_measurements
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.budget import ZCDP, Amount
from dpstream.core.privacy.noise import DiscreteGaussian, noise_for
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique
from dpstream.families.panel.extension import MAX_PEOPLE, MAX_SYMBOLS, extend, first_and_last, split_whole
from dpstream.families.panel.people import (
    FAILURE,
    PEOPLE,
    PERIOD_NAMES,
    PanelState,
    PeoplePlan,
    common_fields,
    readable_schema,
)
from dpstream.families.panel.people_release import PanelSynthesis, Weights, append_columns, window_weights
from dpstream.families.panel.queries import AtLeast, Consecutive, WindowQuery, parse_question

#: Patterns of a window (symbols^window). Every pattern carries padding, so more would drown any panel.
MAX_PATTERNS = 2**16
_MAX_PERIODS = 10_000

WINDOW = Option(
    "a number of periods from 1 to the horizon",
    "How many periods in a row the synthetic people are right about. Every further one multiplies the patterns, "
    "and the padding, by the number of values.",
)


@dataclass(frozen=True)
class PanelWindow(Recipe["WindowPlan"]):
    """A stream of the fixed-window synthesizer.

    Attributes:
        schema: what a person reports; several columns are taken together, so their sizes multiply.
        window: k, how many periods in a row the synthetic people are right about.
        failure: beta, the probability that the stated bound fails anywhere (and that a count has to be clipped).
        people: how many places the panel has, declared public; without it, the people of the first period are all.
        period_names: how published tables call the periods, one name for each; None: by their numbers.

    A plan needs a rho, and the number of periods as its horizon. All periods together cost one person's whole history
    that rho; the unit is ``Individual()``, or with ``people`` ``Individual("replace")``.
    """

    schema: Schema
    window: int = option(of=WINDOW)
    failure: Amount = option("0.05", FAILURE)
    people: int | None = option(None, PEOPLE)
    period_names: tuple[str, ...] | None = option(None, PERIOD_NAMES)

    def _plan(self, terms: Terms) -> WindowPlan:
        common = common_fields(terms, self.schema, self.people, self.period_names, self.failure)
        periods = check_whole(common["horizon"], "periods", 1, _MAX_PERIODS, "panel")
        # Python integers: a power of NumPy's own could pass 64 bits unseen.
        plan = WindowPlan(**common, window=check_whole(self.window, "window", 1, periods, "panel"))
        check_whole(plan.codes, "symbols", 2, MAX_SYMBOLS, "panel")
        if plan.patterns > MAX_PATTERNS:
            raise LimitError(
                f"{plan.codes} symbols over {plan.window} periods make too many patterns",
                where="window",
                allowed=f"up to {MAX_PATTERNS} patterns",
            )
        if plan.padding * plan.patterns > MAX_PEOPLE:
            raise LimitError(
                f"a budget of {plan.budget} needs more than {MAX_PEOPLE} people of padding",
                where="panel",
                allowed="a larger rho, a shorter window or fewer periods",
            )
        return plan


@dataclass(frozen=True)
class WindowPlan(PeoplePlan):
    """A calibrated fixed-window synthesizer; frozen, without data. See ``PeoplePlan``.

    Guarantee: the synthetic people of all periods together satisfy rho-zCDP for one person's whole history, also if
    the reports are chosen in view of earlier releases. Each of the ``T - k + 1`` histograms over patterns gets
    fresh discrete Gaussian noise. A person is in one pattern of each, so a histogram has squared L2 sensitivity 1
    (added or removed) or 2 (replaced: one pattern less, another one more); the losses add up. Everything else,
    rounding and extending included, sees noisy counts and synthetic people only.

    Attributes:
        window: k.
    """

    window: int
    name = "panel-window"

    @property
    def histograms(self) -> int:
        """R, how many noisy histograms are released: ``T - k + 1``."""
        return self.horizon - self.window + 1

    @property
    def each(self) -> ZCDP:
        """The budget of each histogram."""
        return self.budget.scaled(Fraction(1, self.histograms))

    @property
    def patterns(self) -> int:
        """Patterns of a window: ``q^k``."""
        return int(self.codes**self.window)

    @cached_property
    def noise(self) -> DiscreteGaussian:
        """The noise of each cell of each histogram; all have equal parts of the budget."""
        cells = 1 if self.unit.relation == "add-remove" else 2
        noise = noise_for(self.each, cells, cells)
        assert isinstance(noise, DiscreteGaussian)
        return noise

    @property
    def rounding(self) -> float:
        """Variance proxy of all random rounding in one pattern's count (docs/theory/panel.md)."""
        return self.codes / (4.0 * (self.codes - 1))

    @cached_property
    def bound(self) -> float:
        """The error that is promised: with probability ``1 - failure`` nothing is clipped, and no debiased count is
        wrong by more.

        In people. A union bound over patterns, periods and both directions.
        """
        log_events = math.log(2.0 * self.patterns * self.histograms / self.beta)
        deviation = math.sqrt(2.0 * float(self.noise.sigma_squared)) + math.sqrt(2.0 * self.rounding)
        return deviation * math.sqrt(log_events)

    @property
    def padding(self) -> int:
        """Invented people added to every pattern, so that counts hardly ever become negative; public.

        As many as the bound: where it holds, nothing is clipped.
        """
        return math.ceil(self.bound)

    def error_variance(self, weights: NDArray[np.float64], period: int) -> float:
        """Variance of a weighted sum of a period's counts: exact for the noise, at most so for the coins of rounding.

        A count's error is its own noise less its group's mean noise, plus an even share of the group's earlier
        error. So the weights are followed back. After k periods they are even: even weights hear no later noise and
        round nothing. Where all noise is alike, its part is ``sigma^2`` times the sum of squared weights.
        """
        current = np.asarray(weights, dtype=np.float64)
        variance, newest = 0.0, period - self.window
        for _ in range(min(newest, self.window)):
            groups = current.reshape(-1, self.codes)
            means = groups.mean(axis=1)
            # One rounding moves r of q symbols by one: covariance r(q - r)/(q(q - 1)) (I - J/q), at most this.
            each = self.noise.variance + self.rounding
            variance += each * float(((groups - means[:, None]) ** 2).sum())
            current = np.tile(means, self.codes)
        return variance + self.noise.variance * float(current @ current)

    def describe(self) -> str:
        """The plan in words."""
        return (
            f"fixed window of {self.window} of {self.horizon} periods, {self.codes} symbols; {self.budget} for "
            f"{self.unit.describe()}; {self.histograms} histograms of {self.patterns} patterns, each with "
            f"{self.noise.describe()}; padding of {self.padding} people a pattern; every debiased count within "
            f"{self.bound:.4g} people with probability {1 - self.beta:g}"
        )

    def parts(self) -> tuple[Part, ...]:
        """One histogram over patterns at each period from the first full window on."""
        detail = f"{self.patterns} patterns of {self.window} periods, each with {self.noise.describe()}"
        return (Part("histograms", self.histograms, self.each, detail),)

    def options(self) -> dict[str, Any]:
        """All options."""
        return {
            "periods": self.horizon,
            "window": self.window,
            "symbols": self.codes,
            "failure": str(self.failure),
            "padding": self.padding,
            "people": self.places,
            "period_names": None if self.period_names is None else list(self.period_names),
        }

    def released_schema(self, schema: Schema) -> Schema:
        """The columns, numbers and dates by the labels of their bins."""
        return readable_schema(schema)

    def explain(self) -> Explanation:
        """Errors at the last period: of one pattern, and of at least so many of the last periods."""
        asked = [("one pattern", np.eye(1, self.patterns)[0])]
        if self.codes == 2:
            least = [AtLeast(b, self.window) for b in first_and_last(self.window)]
            asked += [(question.describe(), question.weights(2)) for question in least]
        panel = {"first_release": self.window, "padding": self.patterns * self.padding, "bound": self.bound}
        measured = (
            f"from period {self.window} on {self.patterns:,} numbers a period, those of the newest window"
        )
        facts = {"each": self.patterns, "all": self.patterns * self.histograms}
        errors = [(words, math.sqrt(self.error_variance(weights, self.horizon))) for words, weights in asked]
        explained = self._explained(math.sqrt(self.noise.variance), panel, errors)
        return with_measurements(explained, measured, facts)

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...] | None:
        """Of the newest period's reports: the number of people, every column, every pair of them."""
        if expected is None:
            return None
        return tuple(self._expected(step, expected) for step in check_steps(steps, self.horizon))

    def _expected(self, step: int, expected: ExpectedTable) -> ExpectedErrors:
        if step < self.window:
            return ExpectedErrors(step, expected.size_at(step), None)
        release = self._synthesis(step, np.zeros((0, 1), np.uint8), 0, self.places, self._nobody, 0)
        names, columns = self.columns.names, range(len(self.columns))
        cliques = [*((i,) for i in columns), *combinations(columns, 2)]
        marginals = [
            MarginalError(
                tuple(names[i] for i in clique),
                self.columns.cells(clique),
                release.marginal(clique).standard_error or 0.0,
            )
            for clique in cliques
        ]
        return ExpectedErrors(step, expected.size_at(step), release.total_error, tuple(marginals))

    def unpack_synthesis(self, packed: Packed) -> WindowSynthesis:
        """The inverse of ``WindowSynthesis.pack``."""
        return unpack_fields(WindowSynthesis, packed, **self._given(self.columns))

    def _synthesis(
        self,
        period: int,
        history: NDArray[np.uint8],
        new: int,
        people: int | None,
        counts: NDArray[np.int64],
        clipped: int,
        noisy_counts: Sequence[NoisyCounts] = (),
    ) -> WindowSynthesis:
        return WindowSynthesis(
            self.columns,
            period,
            history,
            new,
            people,
            self,
            counts,
            clipped,
            period_names=self.period_names,
            noisy_counts=noisy_counts,
        )

    @property
    def _nobody(self) -> NDArray[np.int64]:
        return np.zeros(self.patterns, np.int64)

    # A period.

    def _advance(
        self, state: PanelState, reports: NDArray[np.int32], randomness: Randomness
    ) -> WindowSynthesis:
        state.private %= self.patterns // self.codes
        state.private *= self.codes
        state.private += reports
        if state.period < self.window:
            people = self.public_people(state)
            return self._synthesis(state.period, state.history, 0, people, self._nobody, state.clipped)
        counts = np.bincount(state.private, minlength=self.patterns).astype(np.int64)
        noisy = randomness.measure(counts + self.padding, self.noise)
        # From here on the code sees noisy counts, synthetic people, and coins that protect nobody.
        generator = np.random.default_rng(randomness.words(4))
        if state.period == self.window:
            return self._begin(state, noisy)
        return self._extend(state, noisy, generator)

    def _begin(self, state: PanelState, noisy: NDArray[np.int64]) -> WindowSynthesis:
        people = np.maximum(noisy, 0)
        state.clipped += int((noisy < 0).sum())
        synthetic = np.repeat(np.arange(self.patterns, dtype=np.int32), people)
        powers = self.codes ** np.arange(self.window - 1, -1, -1, dtype=np.int32)
        return self._grown(state, (synthetic[:, None] // powers % self.codes).astype(np.uint8), people, noisy)

    def _extend(
        self, state: PanelState, noisy: NDArray[np.int64], generator: np.random.Generator
    ) -> WindowSynthesis:
        # The split is indexed by the synthetic people: by the private ones it would leak.
        groups = np.zeros(len(state.history), np.int32)
        for period in range(state.period - self.window, state.period - 1):
            groups = groups * np.int32(self.codes) + state.history[:, period]
        available = np.bincount(groups, minlength=self.patterns // self.codes).astype(np.int64)
        numbers, clipped = split_whole(noisy.reshape(-1, self.codes), available, generator)
        state.clipped += clipped
        return self._grown(state, extend(groups, numbers, generator)[:, None], numbers.ravel(), noisy)

    def _grown(
        self,
        state: PanelState,
        columns: NDArray[np.uint8],
        counts: NDArray[np.int64],
        noisy: NDArray[np.int64],
    ) -> WindowSynthesis:
        """The release of a period: its new ``columns``, and the histogram of the newest window as measured, without
        padding."""
        state.history = append_columns(state.history, columns)
        last, first = state.period, state.period - self.window + 1
        query = {"kind": "patterns", "columns": list(self.columns.names), "periods": self.window}
        measured = NoisyCounts(
            f"window, periods {first} to {last}",
            "people",
            first,
            last,
            query,
            noisy - self.padding,
            self.noise,
        )
        people, new = self.public_people(state), columns.shape[1]
        return self._synthesis(last, state.history, new, people, counts, state.clipped, (measured,))


@dataclass(frozen=True)
class WindowSynthesis(PanelSynthesis):
    """The synthetic people of the fixed window: right about every ``window`` periods in a row.

    Attributes:
        counts: synthetic people by the pattern of their last k periods.
        clipped: how many groups had to be clipped so far; answers are unbiased where it is 0.
    """

    plan: WindowPlan = field(metadata=UNPACKED)
    counts: NDArray[np.int64]
    clipped: int

    @property
    def _padding(self) -> int:
        return self.plan.padding

    def _weights(self, period: int) -> Weights | None:
        plan = self.plan
        if period < plan.window:
            return None
        return window_weights(self.history[:, :period], plan.window, plan.codes, plan.padding)

    @property
    def total(self) -> float:
        """See ``PanelSynthesis.total``."""
        if not self.history.shape[1]:
            return 0.0
        if self.people is not None:
            return float(self.people)
        return self._count(np.ones(self.plan.patterns))

    @property
    def total_error(self) -> float | None:
        """See ``PanelSynthesis.total_error``."""
        if not self.history.shape[1]:
            return None
        return 0.0 if self.people is not None else self._error(np.ones(self.plan.patterns))

    def marginal(self, clique: Clique) -> CellEstimate:
        """See ``PanelSynthesis.marginal``; the standard error is that of every cell."""
        self._need_release()
        plan, codes = self.plan, np.arange(self.plan.patterns) % self.plan.codes
        cells = np.indices(self.domain.sizes).reshape(len(self.domain), -1)[list(clique)]
        cell = (
            np.ravel_multi_index(tuple(cells), self.domain.shape(clique))
            if clique
            else np.zeros(plan.codes, np.int64)
        )
        values = np.bincount(
            cell[codes], self.counts - float(plan.padding), minlength=self.domain.cells(clique)
        ).astype(np.float64)
        error = self._error((cell[codes] == 0).astype(np.float64))
        return CellEstimate(values.reshape(self.domain.shape(clique)), error)

    def own_answer(self, question: Any, codes_of: Callable[[str], tuple[int, ...]]) -> PeopleEstimate:
        """A ``WindowQuery``, or words (see ``parse_question``)."""
        # A question without a condition is about the second of two symbols.
        default = (1,) if self.plan.codes == 2 else None
        query = parse_question(question, codes_of, default) if isinstance(question, str) else question
        if not isinstance(query, WindowQuery):
            raise ConfigError(
                "the question cannot be read",
                where="panel",
                allowed="words, or AtLeast, Consecutive, Pattern",
            )
        return self.answer(query)

    def answer(self, query: WindowQuery) -> PeopleEstimate:
        """Answer a question about the last ``query.width`` periods, with errors up to the window: shares are of the
        public number of people, or of the released total.

        A wider one is answered from the synthetic people as they are: padding included, and without errors.

        Errors:
            ConfigError: there are fewer periods, or no such symbol.
        """
        self._need_release()
        plan = self.plan
        if query.width > plan.window:
            return answer_wider(query, self.history, plan.codes)
        suffixes = np.arange(plan.patterns) % plan.codes**query.width
        weights, base = query.weights(plan.codes)[suffixes], np.ones(plan.patterns)
        count, total = self._count(weights), self._count(base) if self.people is None else self.people
        share = count / total if total > 0 else math.nan
        # A share of a noisy total: its error is that of the weights less the share (first order).
        around = weights - share * base if self.people is None and total > 0 else weights
        return PeopleEstimate(
            count,
            self._error(weights),
            share,
            self._error(around) / total if total > 0 else math.nan,
            plan.bound * float(np.abs(weights).sum()),
            float(weights @ self.counts) / self.counts.sum() if self.counts.any() else math.nan,
            f"{query.describe()}; {_ERROR_NOTE}",
        )

    def accuracy(self) -> dict[str, Any]:
        """Errors, padding and clipping, for the manifest; JSON-able."""
        plan = self.plan
        panel = {
            "padding_of_a_pattern": plan.padding,
            "patterns": plan.patterns,
            "clipped_groups": self.clipped,
            "bound": plan.bound,
            "failure": str(plan.failure),
            "answers": self._usual_answers() if self.history.shape[1] else [],
        }
        return self._accuracy(panel, plan.bound, self.clipped, "count of one pattern of any period")

    def _usual_answers(self) -> list[dict[str, Any]]:
        """Usual questions about yes and no, answered."""
        if self.plan.codes != 2:
            return []
        width = self.plan.window
        asked: list[WindowQuery] = [AtLeast(times, width) for times in range(1, width + 1)]
        asked += [Consecutive(times, width) for times in range(2, width)]
        answers = [(query.describe(), self.answer(query)) for query in asked]
        return [
            {
                "question": words,
                "count": _finite(answer.count),
                "count_standard_error": answer.count_error,
                "share": _finite(answer.share),
                "share_standard_error": _finite(answer.share_error),
            }
            for words, answer in answers
        ]

    def _count(self, weights: NDArray[np.float64]) -> float:
        return float(weights @ self.counts - self.plan.padding * weights.sum())

    def _error(self, weights: NDArray[np.float64]) -> float:
        return math.sqrt(self.plan.error_variance(weights, self.period))


_ERROR_NOTE = (
    "the standard error follows from public noise scales (the coins of rounding are bounded from above)"
)
_WIDER_NOTE = (
    "looks back on more periods than the synthetic people are right about in a row: it may be wrong by any amount, and "
    "the padding is still in it"
)


def answer_wider(query: WindowQuery, history: NDArray[np.uint8], symbols: int) -> PeopleEstimate:
    """Answer a question that the noise scales say nothing about, from the released people as they are.

    Args:
        history: their symbols, shape (people, periods).

    Errors:
        ConfigError: there are fewer periods, or no such symbol.
    """
    periods = history.shape[1]
    if query.width > periods:
        raise ConfigError(
            f"the question looks back {query.width} periods",
            where="panel",
            allowed=f"up to {periods}, the periods so far",
        )
    query.check(symbols)
    count = float(query.of(history[:, -query.width :]).sum())
    share = count / len(history) if len(history) else math.nan
    return PeopleEstimate(count, None, share, None, None, share, f"{query.describe()}: {_WIDER_NOTE}")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
