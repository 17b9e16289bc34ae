"""Cumulative synthesizer: how many people have had at least b counted reports so far, as persistent synthetic people.

Bun, Gaboardi, Neunhoeffer and Zhang (2024), Algorithm 2, with any counter, and with the corrections of
``docs/theory/panel.md``.

From the top: the counters, and what one person's history costs there; the recipe; the plan, with a period, errors, and
answers.

Trusted base: kernel (holds exact histories, measures).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    ExpectedErrors,
    ExpectedTable,
    MarginalError,
    NoisyCounts,
    Packed,
    Part,
    PeopleEstimate,
    Recipe,
    Terms,
    check_whole,
    check_words,
    marginal_query,
    option,
)
from dpstream.core.contracts.expectations import check_steps
from dpstream.core.counters import ZCDP_COUNTER_NAMES, CalibratedCounter, best, counter_by_name
from dpstream.core.counters.counter import MAX_NOISE_SCALE, LinearMap
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.paths import sha256_hex
from dpstream.core.privacy import ZCDP, Amount, DiscreteGaussian, Noisy, Randomness, noise_for
from dpstream.core.privacy.law import Law
from dpstream.core.privacy.unit import Event, Individual
from dpstream.core.schema import Boolean, Domain, Schema
from dpstream.families.panel.extension import append_columns, extend
from dpstream.families.panel.panel_options import (
    COUNTED,
    COUNTER,
    FAILURE,
    PEOPLE,
    PERIOD_NAMES,
    THRESHOLDS,
    common_fields,
    first_and_last,
)
from dpstream.families.panel.people import PanelState, PeoplePlan
from dpstream.families.panel.people_release import PanelSynthesis
from dpstream.families.panel.queries import AtLeast, WindowQuery

_MAX_PERIODS = 4096
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
        raise ConfigError("a counter's noise must be Gaussian", where="panel", allowed="counters for zCDP")
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
#: Share of the budget for the number of people, where it is private.
_TOTAL_SHARE = Fraction(1, 20)


@lru_cache(maxsize=16)
def calibrated_counters(
    periods: int, largest: int, counter: str, split: Split, budget: ZCDP, unit: Individual
) -> dict[str, Any]:
    """The noise with which all releases together cost one person's whole history the budget: ``total``, ``shares`` and
    ``counters`` of a ``CumulativePlan``. Remembered: choosing counters for hundreds of thresholds takes seconds.

    A person who is added or removed changes one increment of a threshold's counter by 1. One who is replaced changes
    two (the period at which the threshold is reached moves), so the cost of one change is that of the worst pair.

    Errors:
        BudgetError: an amount that cannot be used. LimitError: a threshold's share is too small for 64-bit sums.
    """
    total = budget.scaled(_TOTAL_SHARE) if unit.relation == "add-remove" else None
    left = budget.rho - (total.rho if total else 0)
    ticks = range(periods, periods - largest, -1)
    names = [chosen_counter(n, unit) if counter == "best" else counter for n in ticks]
    factors = [person_factor(name, n, unit) for name, n in zip(names, ticks, strict=True)]
    if split == "levels":
        weights = [Fraction(n.bit_length() ** 3) for n in ticks]
    else:
        # A variance is in proportion to one over its share, so square roots make the sum of variances the smallest.
        difficulties = (
            spread(name, n) * float(factor) for name, n, factor in zip(names, ticks, factors, strict=True)
        )
        weights = [Fraction(f"{difficulty**0.5:.6g}") for difficulty in difficulties]
    shares = tuple(left * weight / sum(weights) for weight in weights)
    counters = tuple(
        counter_by_name(name, horizon=n).calibrate(ZCDP(share).scaled(1 / factor), Event())
        for name, n, share, factor in zip(names, ticks, shares, factors, strict=True)
    )
    # The number of people may have the smallest budget of all: its noise has to fit, too.
    if total is not None and noise_for(total, 1, 1).variance > MAX_NOISE_SCALE**2:
        raise LimitError(
            f"the noise of {budget} exceeds 64-bit sums",
            where="panel",
            allowed="a larger rho",
        )
    return {"total": total, "shares": shares, "counters": counters}


@dataclass(frozen=True)
class PanelCumulative(Recipe["CumulativePlan"]):
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

    schema: Schema
    counted: tuple[str, ...] | None = option(None, COUNTED)
    thresholds: int | None = option(None, THRESHOLDS)
    counter: str = option("best", COUNTER)
    split: Split = "error"
    failure: Amount = option("0.05", FAILURE)
    people: int | None = option(None, PEOPLE)
    period_names: tuple[str, ...] | None = option(None, PERIOD_NAMES)

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

    def _codes(self) -> tuple[int, ...]:
        if len(self.schema) != 1:
            raise ConfigError(
                "a cumulative panel follows one column",
                where="schema",
                allowed="one column, or several streams",
            )
        column = self.schema.columns[0]
        labels = column.labels()
        given = self.counted
        if given is None and isinstance(column, Boolean):
            given = ("true",)
        if given is None:
            raise ConfigError(
                f"the counted reports of {column.name!r} are undefined",
                where="counted",
                allowed=f"some of {', '.join(labels[:20])}",
            )
        unknown = [label for label in given if label not in labels]
        if unknown or not given or len(set(given)) == len(labels):
            what = f"{unknown[0]!r} is outside" if unknown else "none, or every value, is counted of"
            raise ConfigError(
                f"{what} {column.name!r}", where="counted", allowed=f"some of {', '.join(labels[:20])}"
            )
        return tuple(sorted(labels.index(label) for label in set(given)))


@dataclass(frozen=True)
class CumulativePlan(PeoplePlan):
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

    counted: tuple[int, ...]
    split: Split
    total: ZCDP | None
    shares: tuple[Fraction, ...]
    counters: tuple[CalibratedCounter, ...]
    name = "panel-cumulative"
    so_far = True

    @cached_property
    def total_noise(self) -> DiscreteGaussian | None:
        """The noise of the number of people, where it is private."""
        if self.total is None:
            return None
        noise = noise_for(self.total, 1, 1)
        assert isinstance(noise, DiscreteGaussian)
        return noise

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
            law = self._law(times, last)
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

    # What the plan says in public.

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

    def _law(self, threshold: int, period: int) -> Law:
        """The law of the error of a published estimate, which is rounded."""
        law = self.counters[threshold - 1].law(period - threshold + 1, 1)
        assert law is not None
        return law

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

        The running sums are sums of independent noise, each at most as wide as a Gaussian, so a union bound
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
            "shares": "sha256:" + sha256_hex(shares),
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
                    "cumulative releases answer about all periods so far only",
                    where="panel",
                    allowed='such as "at least 3 so far"',
                )
            question = question.times
        times = check_whole(question, "times", 1, self.largest, "panel")
        count, unbiased, total = int(release.counts[times]), int(release.estimates[times]), release.total
        variance = self._law(times, release.period).variance if times <= release.period else 0.0
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
                    "unbiased_standard_error": math.sqrt(self._law(b, release.period).variance),
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
