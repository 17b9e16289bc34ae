"""What a cumulative synthesizer says in public: its options, its errors, and answers from its releases."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    MarginalError,
    Option,
    PeopleEstimate,
    RecipeContext,
    SectionReader,
    check_whole,
    option,
    shown,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.counters import ZCDP_COUNTER_NAMES
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import Amount
from dpstream.core.schema import Boolean, Schema
from dpstream.core.schema.domain import Domain
from dpstream.families.panel.cumulative_noise import CumulativeNoise, Split, proxies
from dpstream.families.panel.panel_options import FAILURE, PEOPLE, PERIOD_NAMES
from dpstream.families.panel.people_facts import first_and_last
from dpstream.families.panel.people_release import PanelSynthesis
from dpstream.families.panel.queries import AtLeast, WindowQuery


def _counted(
    section: SectionReader, given: RecipeContext, earlier: Mapping[str, Any]
) -> tuple[str, ...] | None:
    if not section.has("counted"):
        return None
    listed = section.raw("counted")
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(label, str | int) for label in listed)
    ):
        raise section.wrong("counted", f"{shown(listed)} is no list of values")
    section.note("counted", ", ".join(str(label) for label in listed), default=False)
    # Values are compared as labels: those of a boolean column are false and true.
    return tuple(str(label).lower() if isinstance(label, bool) else str(label) for label in listed)


COUNTER = Option(
    meaning="How noisy running sums are kept. `best`: the counter with the smallest predicted error for each "
    "threshold. A stream keeps the counters that it began with.",
    reason="the counter with the smallest predicted error for the periods that are left to a threshold",
    words=("best", *ZCDP_COUNTER_NAMES),
)
THRESHOLDS = Option(
    "a number from 1 to the horizon",
    'The largest number of times that is followed: "at least b so far" for b = 1, 2, ... up to it.',
    "each threshold that is left out leaves its budget to the others",
    "the horizon",
)
COUNTED = Option(
    'a list of values of the column, such as ["late"]',
    "The reports that are counted; all others, missing ones included, are not.",
    "a boolean column says itself what is counted",
    "true, of a boolean column",
    read=_counted,
    fragment={"type": "array", "minItems": 1, "items": {"type": ["string", "integer", "boolean"]}},
)


@dataclass(frozen=True)
class CumulativeOptions:
    """What may be chosen; see ``PanelCumulative``."""

    schema: Schema
    counted: tuple[str, ...] | None = option(None, COUNTED)
    thresholds: int | None = option(None, THRESHOLDS)
    counter: str = option("best", COUNTER)
    split: Split = "error"
    failure: Amount = option("0.05", FAILURE)
    people: int | None = option(None, PEOPLE)
    period_names: tuple[str, ...] | None = option(None, PERIOD_NAMES)

    def _codes(self) -> tuple[int, ...]:
        if len(self.schema) != 1:
            raise ConfigError(
                "a cumulative panel follows one column",
                where="schema",
                allowed="one column, or a stream for each",
            )
        column = self.schema.columns[0]
        labels = column.labels()
        given = self.counted
        if given is None and isinstance(column, Boolean):
            given = ("true",)
        if given is None:
            raise ConfigError(
                f"nothing says which reports of {column.name!r} are counted",
                where="counted",
                allowed=f"some of {', '.join(labels[:20])}",
            )
        unknown = [label for label in given if label not in labels]
        if unknown or not given or len(set(given)) == len(labels):
            what = f"{unknown[0]!r} is no value of" if unknown else "no value, or every value is counted of"
            raise ConfigError(
                f"{what} {column.name!r}", where="counted", allowed=f"some of {', '.join(labels[:20])}"
            )
        return tuple(sorted(labels.index(label) for label in set(given)))


@dataclass(frozen=True)
class CumulativeFacts(CumulativeNoise):
    """What a calibrated cumulative synthesizer says; see ``CumulativePlan``."""

    @cached_property
    def released(self) -> Domain:
        """Whether a report is counted."""
        return Domain(self.columns.names, (2,))

    @property
    def largest(self) -> int:
        """The largest threshold, B."""
        return len(self.counters)

    @cached_property
    def padding(self) -> int:
        """Invented people without any one, so that the released number is hardly ever too small; public."""
        if self.total_noise is None:
            return 0
        return math.ceil(math.sqrt(2.0 * float(self.total_noise.sigma_squared) * math.log(2.0 / self.beta)))

    @property
    def padding_of_reports(self) -> NDArray[np.float64]:
        """See ``PeoplePlan.padding_of_reports``: no padding is ever counted."""
        return np.array([float(self.padding), 0.0])

    def padded(self, history: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See ``PeoplePlan.padded``: the groups are those who have had none so far, and all others."""
        return np.asarray(history.any(axis=1), np.int64), np.array([self.padding, 0])

    def followed(self, reports: NDArray[np.integer]) -> NDArray[np.integer]:
        """See ``PeoplePlan.followed``."""
        return np.isin(reports, self.counted).astype(np.int64)

    def reported(self, symbols: NDArray[np.integer]) -> NDArray[np.integer]:
        """See ``PeoplePlan.reported``."""
        return np.where(symbols > 0, self.counted[0], min(set(range(self.codes)) - set(self.counted)))

    def summed_up(self, history: NDArray[np.integer], period: int) -> NDArray[np.int32]:
        """See ``PeoplePlan.summed_up``: how many times so far, up to the largest threshold."""
        times = np.minimum(history[:, :period].sum(axis=1), self.largest)
        return np.asarray(times[:, None], np.int32)

    def total_variance(self, period: int) -> float:
        """See ``PeoplePlan.total_variance``."""
        return 0.0 if self.total_noise is None else self.total_noise.variance

    def variance(self, threshold: int, period: int) -> float:
        """Variance of the number of people with at least ``threshold`` ones after ``period``, as it is counted."""
        ticks = period - threshold + 1
        return self.counters[threshold - 1].variance(ticks) if ticks > 0 else 0.0

    @cached_property
    def _deviations(self) -> NDArray[np.float64]:
        """Standard deviation of each estimate's sub-Gaussian bound, shape (B + 1, T + 1); 0 where nothing is noisy."""
        table = np.zeros((self.largest + 1, self.horizon + 1))
        for b, counter in enumerate(self.counters, start=1):
            table[b, b:] = np.sqrt(proxies(counter, self.shares[b - 1], self.horizon - b + 1))
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
        periods, largest = self.horizon, self.largest
        events = sum(min(t, largest) for t in range(1, periods + 1))
        # Half of the failure is for the number of people, where it is private.
        beta = self.beta if self.total_noise is None else self.beta / 2.0
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

    def options(self) -> dict[str, Any]:
        """All options. Each threshold's counter is there by name, and a hash of what it gets of the budget."""
        shares = json.dumps([str(share) for share in self.shares]).encode()
        return {
            "periods": self.horizon,
            "thresholds": self.largest,
            "counters": self._counter_names,
            "split": self.split,
            "shares": "sha256:" + hashlib.sha256(shares).hexdigest(),
            "counted": list(self.counted),
            "failure": str(self.failure),
            "padding": self.padding,
            "people": self.places,
            "period_names": None if self.period_names is None else list(self.period_names),
        }

    @property
    def _counter_names(self) -> str:
        return _runs([counter.name for counter in self.counters])

    def released_schema(self, schema: Schema) -> Schema:
        """One boolean column: whether the synthetic person's report is counted."""
        return Schema((Boolean(schema.columns[0].name),))

    def facts(self) -> dict[str, Any]:
        """Errors at the last period, of thresholds."""
        last, most = self.horizon, self.largest
        deviations = {b: math.sqrt(self.variance(b, last)) for b in first_and_last(most)}
        sums = sum(min(t, most) for t in range(1, last + 1))
        panel = self._panel_facts(
            [(f"at least {b} of all {last} periods", error) for b, error in deviations.items()],
            kind="cumulative",
            thresholds=most,
            counters=sorted({counter.name for counter in self.counters}),
            people_cost=None if self.total is None else str(self.total),
            people_noise=None if self.total_noise is None else self.total_noise.describe(),
            padding=self.padding,
            bound=self.bounds[-1],
        )
        return {
            "noise": {"one_measurement": deviations[1]},
            "panel": panel,
            "noisy_counts": {"most": most, "running_sums": sums, "all": sums + (self.total is not None)},
        }

    def expected_errors(
        self, steps: Sequence[int], expected: ExpectedTable | None = None
    ) -> tuple[ExpectedErrors, ...] | None:
        """Of the number of people, and of those with at least so many counted reports: a yes or a no, so two cells."""
        if expected is None:
            return None
        return tuple(
            ExpectedErrors(
                step,
                expected.size_at(step),
                math.sqrt(self.total_variance(step)),
                tuple(
                    MarginalError((f"at least {b}",), 2, math.sqrt(self.variance(b, step)))
                    for b in range(1, min(step, self.largest) + 1)
                ),
            )
            for step in check_steps(steps, self.horizon)
        )

    def answer(self, release: PanelSynthesis, question: Any) -> PeopleEstimate:
        """See ``PanelSynthesis.answer``: a number of times, or the same as a question about all periods so far."""
        if isinstance(question, WindowQuery):
            if type(question) is not AtLeast or question != AtLeast(question.times, release.period):
                raise ConfigError(
                    "cumulative releases are right about all periods so far only",
                    where="panel",
                    allowed='a question such as "at least 3 so far"',
                )
            question = question.times
        times = check_whole(question, "times", 1, self.largest, "panel")
        count, unbiased, total = int(release.counts[times]), int(release.estimates[times]), release.total
        variance = self.variance(times, release.period)
        share = count / total if total > 0 else math.nan
        # The number of people has noise of its own, independent of the counters': the errors' squares add up.
        of_total = 0.0 if self.total_noise is None else share**2 * self.total_noise.variance
        return PeopleEstimate(
            float(count),
            math.sqrt(variance),
            share,
            math.sqrt(variance + of_total) / total if total > 0 else math.nan,
            self.bound(times, release.period),
            count / len(release.history) if len(release.history) else math.nan,
            f"at least {times} of the first {release.period} periods; the standard error is that of the counter's "
            f"unbiased estimate, {unbiased}{'' if release.people is not None else _SHARE_NOTE}",
            float(unbiased),
        )

    def accuracy(self, release: PanelSynthesis) -> dict[str, Any]:
        """See ``PeoplePlan.accuracy``."""
        return {
            "padding": self.padding,
            "bound": self.bounds[release.period - 1],
            "failure": str(self.failure),
            "answers": [
                {
                    "question": f"at least {b} of the first {release.period} periods",
                    "count": int(release.counts[b]),
                    "unbiased": int(release.estimates[b]),
                    "unbiased_standard_error": math.sqrt(self.variance(b, release.period)),
                }
                for b in range(1, min(release.period, self.largest) + 1)
            ],
        }


_SHARE_NOTE = "; that of the share holds the noise of the number of people, too"


def _runs(names: Sequence[str]) -> str:
    """Equal neighbours together.

    >>> _runs(["tree", "tree", "simple"])
    '1-2 tree, 3 simple'
    """
    parts, first = [], 1
    for name, run in groupby(names):
        last = first + len(list(run)) - 1
        parts.append(f"{first} {name}" if first == last else f"{first}-{last} {name}")
        first = last + 1
    return ", ".join(parts)
