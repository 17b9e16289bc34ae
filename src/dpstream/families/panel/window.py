"""Fixed-window synthesizer: persistent synthetic people who are right about every few periods in a row.

Bun, Gaboardi, Neunhoeffer and Zhang, "Continual Release of Differentially Private Synthetic Data from Longitudinal
Data Collections" (2024), Algorithm 1, with the corrections of ``docs/theory/panel.md``.

Trusted base: kernel (holds exact histories, measures).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    NoisyCounts,
    Part,
    Recipe,
    Terms,
    check_whole,
)
from dpstream.core.errors import LimitError
from dpstream.core.privacy.randomness import Noisy, Randomness
from dpstream.families.panel.extension import append_columns, extend, split_whole
from dpstream.families.panel.panel_options import (
    MAX_PEOPLE,
    MAX_SYMBOLS,
    common_fields,
)
from dpstream.families.panel.people import PanelState, PeoplePlan
from dpstream.families.panel.people_release import PanelSynthesis
from dpstream.families.panel.queries import digits, spelled
from dpstream.families.panel.window_facts import WindowFacts, WindowOptions

#: Patterns of a window (symbols^window). Every pattern carries padding, so more would drown any panel.
MAX_PATTERNS = 2**16
_MAX_PERIODS = 10_000


@dataclass(frozen=True)
class PanelWindow(WindowOptions, Recipe["WindowPlan"]):
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
class WindowPlan(WindowFacts, PeoplePlan):
    """A calibrated fixed-window synthesizer; frozen, without data. See ``PeoplePlan``.

    Guarantee: the synthetic people of all periods together satisfy rho-zCDP for one person's whole history, also if
    the reports are chosen in view of earlier releases. Each of the ``T - k + 1`` histograms over patterns gets
    fresh discrete Gaussian noise. A person is in one pattern of each, so a histogram has squared L2 sensitivity 1
    (added or removed) or 2 (replaced: one pattern less, another one more); the losses add up. Everything else,
    rounding and extending included, sees noisy counts and synthetic people only.

    Attributes:
        window: k.
    """

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

    # Answers.
