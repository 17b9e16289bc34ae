"""Fixed-window synthesizer: persistent synthetic people who are right about every few periods in a row.

Bun, Gaboardi, Neunhoeffer and Zhang, "Continual Release of Differentially Private Synthetic Data from Longitudinal
Data Collections" (2024), Algorithm 1, with the corrections of ``docs/theory/panel.md``.

From the top: the recipe; the plan, with its noise, a period, errors, and answers.

Trusted base: kernel (holds exact histories, measures).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    MarginalError,
    NoisyCounts,
    Part,
    PeopleEstimate,
    Recipe,
    Terms,
    check_whole,
    option,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import ZCDP, Amount, DiscreteGaussian, Noisy, Randomness, noise_for
from dpstream.core.schema import Clique, Schema
from dpstream.families.panel.extension import append_columns, extend, split_whole
from dpstream.families.panel.panel_options import (
    FAILURE,
    MAX_PEOPLE,
    MAX_SYMBOLS,
    PEOPLE,
    PERIOD_NAMES,
    WINDOW,
    common_fields,
    first_and_last,
    readable,
)
from dpstream.families.panel.people import PanelState, PeoplePlan
from dpstream.families.panel.people_release import PanelSynthesis, answer_wider
from dpstream.families.panel.queries import AtLeast, Consecutive, WindowQuery, digits, spelled

#: Patterns of a window (symbols^window). Every pattern carries padding, so more would drown any panel.
MAX_PATTERNS = 2**16
_MAX_PERIODS = 10_000


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
                f"{plan.budget} needs more than {MAX_PEOPLE} people of padding",
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
    def first_release(self) -> int:  # type: ignore[override]
        """The first full window."""
        return self.window

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

    def parts(self) -> tuple[Part, ...]:
        """One histogram over patterns at each period from the first full window on."""
        detail = f"{self.patterns} patterns of {self.window} periods, each with {self.noise.describe()}"
        return (Part("histograms", self.histograms, self.each, detail),)

    # A period.

    def _advance(
        self, state: PanelState, reports: NDArray[np.int32], randomness: Randomness
    ) -> PanelSynthesis:
        state.private %= self.patterns // self.codes
        state.private *= self.codes
        state.private += reports
        if state.period < self.window:
            return self._release(state, np.zeros(self.patterns, np.int64), ())
        counts = np.bincount(state.private, minlength=self.patterns).astype(np.int64)
        noisy = randomness.measure(counts + self.padding, self.noise)
        # From here on the code sees noisy counts, synthetic people, and public coins.
        generator = np.random.default_rng(randomness.coins("which synthetic people are extended", 4))
        if state.period == self.window:
            released, clipped = np.maximum(noisy, 0), int((noisy < 0).sum())
            columns = np.repeat(digits(self.window, self.codes).astype(np.uint8), released, axis=0)
        else:
            groups = self._groups(state)
            available = np.bincount(groups, minlength=self.patterns // self.codes)
            numbers, clipped = split_whole(noisy.reshape(-1, self.codes), available, generator)
            released, columns = numbers.ravel(), extend(groups, numbers, generator)[:, None]
        state.clipped += clipped
        state.history = append_columns(state.history, columns)
        last, first = state.period, state.period - self.window + 1
        draw = f"window, periods {first} to {last}"
        query = {"kind": "patterns", "columns": list(self.columns.names), "periods": self.window}
        # As measured, without padding.
        measured = NoisyCounts(draw, "people", first, last, query, Noisy(noisy - self.padding), self.noise)
        return self._release(state, released, (measured,))

    def _groups(self, state: PanelState) -> NDArray[np.int64]:
        """Who is split together: synthetic people who are alike in the last k - 1 periods. By the private ones it would
        leak."""
        return spelled(state.history[:, state.period - self.window :], self.codes)

    # What the plan says in public.

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

    @property
    def padding_of_reports(self) -> NDArray[np.float64]:
        """See ``PeoplePlan.padding_of_reports``."""
        return np.full(self.codes, float(self.padding * self.patterns // self.codes))

    def padded(self, history: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See ``PeoplePlan.padded``: the groups are patterns of the last k periods."""
        groups = spelled(history[:, history.shape[1] - self.window :], self.codes)
        return groups, np.full(self.patterns, self.padding)

    def summed_up(self, history: NDArray[np.integer], period: int) -> NDArray[np.int32]:
        """See ``PeoplePlan.summed_up``: the window, or what there is of it."""
        return history[:, max(period - self.window, 0) : period].astype(np.int32)

    def total_variance(self, period: int) -> float:
        """See ``PeoplePlan.total_variance``."""
        return self.error_variance(np.ones(self.patterns), period)

    def cell_error(self, clique: Clique, period: int) -> float | None:
        """See ``PeoplePlan.cell_error``: the same for every cell."""
        first = np.zeros(self.columns.sizes)
        first[tuple(0 if i in clique else slice(None) for i in range(len(self.columns)))] = 1.0
        return math.sqrt(self.error_variance(np.tile(first.ravel(), self.patterns // self.codes), period))

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
        return Schema(tuple(map(readable, schema.columns)))

    def facts(self) -> dict[str, Any]:
        """Errors at the last period: of one pattern, and of at least so many of the last periods."""
        asked = [("one pattern", np.eye(1, self.patterns)[0])]
        if self.codes == 2:
            least = [AtLeast(b, self.window) for b in first_and_last(self.window)]
            asked += [(question.describe(), question.weights(2)) for question in least]
        panel = self._panel_facts(
            [
                (question, math.sqrt(self.error_variance(weights, self.horizon)))
                for question, weights in asked
            ],
            kind="window",
            window=self.window,
            symbols=self.codes,
            histograms=self.histograms,
            patterns=self.patterns,
            noise=self.noise.describe(),
            padding_of_a_pattern=self.padding,
            padding=self.patterns * self.padding,
            bound=self.bound,
        )
        return {
            "noise": {"one_measurement": math.sqrt(self.noise.variance)},
            "panel": panel,
            "noisy_counts": {"each": self.patterns, "all": self.patterns * self.histograms},
        }

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
        names, columns = self.columns.names, range(len(self.columns))
        cliques: list[Clique] = [*((i,) for i in columns), *combinations(columns, 2)]
        marginals = [
            MarginalError(
                tuple(names[i] for i in clique),
                self.columns.cells(clique),
                self.cell_error(clique, step) or 0.0,
            )
            for clique in cliques
        ]
        total = 0.0 if self.places is not None else math.sqrt(self.total_variance(step))
        return ExpectedErrors(step, expected.size_at(step), total, tuple(marginals))

    def answer(self, release: PanelSynthesis, question: Any) -> PeopleEstimate:
        """See ``PanelSynthesis.answer``: shares are of the public number of people, or of the released total."""
        if not isinstance(question, WindowQuery):
            raise ConfigError(
                "unreadable question",
                where="panel",
                allowed="words, or AtLeast, Consecutive, Pattern",
            )
        if question.width > self.window:
            return answer_wider(question, release.history, self.codes)
        weights = question.weights(self.codes)[np.arange(self.patterns) % self.codes**question.width]
        count, total = float(weights @ (release.counts - self.padding)), release.total
        share = count / total if total > 0 else math.nan
        # A share of a noisy total: its error is that of the weights less the share (first order).
        around = weights - share if release.people is None and total > 0 else weights
        error, of_share = (
            math.sqrt(self.error_variance(values, release.period)) for values in (weights, around)
        )
        return PeopleEstimate(
            count,
            error,
            share,
            of_share / total if total > 0 else math.nan,
            self.bound * float(np.abs(weights).sum()),
            float(weights @ release.counts) / release.counts.sum() if release.counts.any() else math.nan,
            f"{question.describe()}; {_ERROR_NOTE}",
        )

    def usual_questions(self) -> list[WindowQuery]:
        """Of yes and no: how often, and in a row; none of more symbols."""
        if self.codes != 2:
            return []
        often = [AtLeast(times, self.window) for times in range(1, self.window + 1)]
        return [*often, *(Consecutive(times, self.window) for times in range(2, self.window))]

    def accuracy(self, release: PanelSynthesis) -> dict[str, Any]:
        """See ``PeoplePlan.accuracy``."""
        asked = self.usual_questions() if release.history.shape[1] else []
        answers = [(query.describe(), self.answer(release, query)) for query in asked]
        return {
            "padding_of_a_pattern": self.padding,
            "patterns": self.patterns,
            "clipped_groups": release.clipped,
            "bound": self.bound,
            "failure": str(self.failure),
            "answers": [
                {
                    "question": words,
                    "count": _finite(answer.count),
                    "count_standard_error": answer.count_error,
                    "share": _finite(answer.share),
                    "share_standard_error": _finite(answer.share_error),
                }
                for words, answer in answers
            ],
        }


_ERROR_NOTE = (
    "the standard error follows from public noise scales (the coins of rounding are bounded from above)"
)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
