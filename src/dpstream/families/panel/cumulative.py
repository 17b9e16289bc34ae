"""Cumulative synthesizer: how many people have had at least b counted reports so far, as persistent synthetic people.

Bun, Gaboardi, Neunhoeffer and Zhang (2024), Algorithm 2, with any counter, and with the corrections of
``docs/theory/panel.md``.

Trusted base: kernel (holds exact histories, measures).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    NoisyCounts,
    Packed,
    Part,
    Recipe,
    Terms,
    check_whole,
    check_words,
    marginal_query,
)
from dpstream.core.counters import ZCDP_COUNTER_NAMES
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import ZCDP
from dpstream.core.privacy.randomness import Noisy, Randomness
from dpstream.families.panel.cumulative_facts import CumulativeFacts, CumulativeOptions
from dpstream.families.panel.cumulative_noise import calibrated_counters
from dpstream.families.panel.extension import append_columns, extend
from dpstream.families.panel.panel_options import common_fields
from dpstream.families.panel.people import PanelState, PeoplePlan
from dpstream.families.panel.people_release import PanelSynthesis

_MAX_PERIODS = 4096


@dataclass(frozen=True)
class PanelCumulative(CumulativeOptions, Recipe["CumulativePlan"]):
    """A stream of the cumulative synthesizer: how many people have had at least b so far.

    Attributes:
        schema: what a person reports: one column.
        counted: labels of the reports that are counted; ``true`` of a boolean column by default. All others are not,
            missing ones included. Synthetic people report 1, counted, and 0 only.
        thresholds: B, the largest threshold: "at least b so far" is tracked for b = 1 .. B; all periods by default. A
            synthetic person who has B counted reports gets no further ones.
        counter: a name of ``counters``, or "best": the smallest predicted error for each threshold.
        split: ``error`` gives each threshold what minimises the sum of all variances; ``levels`` is the text's rule.
        failure: beta, the probability that the stated bound fails anywhere.
        people, period_names: as in ``PanelWindow``.
    """

    def _plan(self, terms: Terms) -> CumulativePlan:
        common = common_fields(terms, self.schema, self.people, self.period_names, self.failure)
        counted = self._codes()
        periods = check_whole(common["horizon"], "periods", 1, _MAX_PERIODS, "panel")
        largest = (
            periods
            if self.thresholds is None
            else check_whole(self.thresholds, "thresholds", 1, periods, "panel")
        )
        names = ("best", *ZCDP_COUNTER_NAMES)
        if self.counter not in names:
            raise ConfigError(f"unknown counter {self.counter!r}", where="panel", allowed=", ".join(names))
        check_words(self, "panel")
        noise = calibrated_counters(
            periods, largest, self.counter, self.split, common["budget"], common["unit"]
        )
        return CumulativePlan(**common, counted=counted, split=self.split, **noise)


@dataclass(frozen=True)
class CumulativePlan(CumulativeFacts, PeoplePlan):
    """A calibrated cumulative synthesizer; frozen, without data. See ``PeoplePlan``.

    Guarantee: the synthetic people of all periods together satisfy rho-zCDP for one person's whole history, also if
    the reports are chosen in view of earlier releases. A person reaches each threshold at most once, so one person
    is in at most one increment of each counter (two when replaced: the counter's noise is fixed for the worst such
    pair). The counters' losses, and that of the number of people where it is private, add up to rho.

    Attributes:
        counted: codes of the reports that are counted.
        total: budget of the number of people; None where it is public.
        shares: rho of each threshold.
        counters: of each threshold.
    """

    def parts(self) -> tuple[Part, ...]:
        """The number of people, where it is private, and the counters of all thresholds."""
        rest = ZCDP(sum(self.shares, Fraction(0)))
        detail = f"at least 1 to {self.largest}; counters by threshold: {self._counter_names}"
        parts = [Part("thresholds", 1, rest, detail)]
        if self.total is not None and self.total_noise is not None:
            parts.insert(
                0, Part("people", 1, self.total, f"their number, with {self.total_noise.describe()}")
            )
        return tuple(parts)

    def start(self, people: int | None = None) -> PanelState:
        """See ``PeoplePlan.start``."""
        state = super().start(people)
        state.counters = [counter.init(1) for counter in self.counters]
        return state

    def unpack_state(self, packed: Packed) -> PanelState:
        """See ``PeoplePlan.unpack_state``."""
        state = super().unpack_state(packed)
        for counter, stored in zip(self.counters, state.counters, strict=True):
            counter.check_state(stored, 1)
        return state

    # A period.

    def _advance(
        self, state: PanelState, reports: NDArray[np.int32], randomness: Randomness
    ) -> PanelSynthesis:
        measured = self._begin(state, randomness) if state.period == 1 else []
        hits = np.isin(reports, self.counted)
        # For each b: how many people with exactly b counted reports get one more now.
        gains = np.bincount(state.private[hits], minlength=self.largest + 1)
        # People who have reached the largest threshold are not followed any further.
        state.private += hits & (state.private < self.largest)
        times = state.history.sum(axis=1, dtype=np.int32)
        exactly = np.bincount(times, minlength=self.largest + 1)
        before = np.cumsum(exactly[::-1])[::-1]  # synthetic people with at least b
        estimates = before.copy()
        for b in range(1, min(state.period, self.largest) + 1):
            counter, stored = self.counters[b - 1], state.counters[b - 1]
            estimates[b] = counter.step(stored, gains[b - 1 : b], randomness)[0]
        # From here on the code sees noisy counts, synthetic people, and public coins.
        generator = np.random.default_rng(randomness.coins("which synthetic people are extended", 4))
        reached = before.copy()
        reached[1:] = np.minimum(np.maximum(estimates[1:], before[1:]), before[:-1])
        # People who have reached the largest threshold get no further ones, so the sums need no limit.
        gained = np.append(reached[1:] - before[1:], 0)
        column = extend(times, np.stack([exactly - gained, gained], axis=1), generator)
        state.history = append_columns(state.history, column[:, None])
        return self._release(state, reached, [*measured, *self._measured(state.period, estimates)], estimates)

    def _begin(self, state: PanelState, randomness: Randomness) -> list[NoisyCounts]:
        """The synthetic people; the noisy number of true ones, where their number is private."""
        people, measured = len(state.private), list[NoisyCounts]()
        if self.total_noise is not None:
            values, query = randomness.measure(np.array([people]), self.total_noise), marginal_query([])
            measured = [NoisyCounts("number of people", "people", 1, 1, query, values, self.total_noise)]
            people = max(0, int(values[0]) + self.padding)
        state.history = np.zeros((people, 0), np.uint8)
        return measured

    def _measured(self, last: int, estimates: NDArray[np.int64]) -> list[NoisyCounts]:
        """The counters' running sums, one for each threshold that can be reached by now."""
        measured = []
        for times in range(1, min(last, self.largest) + 1):
            law = self.counters[times - 1].law(last - times + 1, 1)
            assert law is not None
            query = {
                "kind": "at least",
                "columns": [self.columns.names[0]],
                "codes": list(self.counted),
                "times": times,
            }
            draw, series = f"period {last}, at least {times}", f"at least {times}"
            values = Noisy(estimates[times : times + 1])
            measured.append(NoisyCounts(draw, "people", 1, last, query, values, law, series=series))
        return measured

    # Answers.
