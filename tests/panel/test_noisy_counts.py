"""Panels publish what they drew, all of it and nothing else, and it is the truth but for noise of the stated law."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from door_runs import drawn_and_published
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import Individual, Randomness
from dpstream.core.schema import Boolean, Schema
from dpstream.core.tables import EncodedReports
from dpstream.families.panel import CumulativePlan, PanelCumulative, PanelWindow
from dpstream.tools.audit.door import Door, Measured

POOR = Schema((Boolean("poor"),))
UNITS = [Individual(), Individual("replace")]


def panel(people: int, periods: int, symbols: int, seed: int = 3) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, symbols, (people, periods))


class LeakingThresholds(CumulativePlan):
    """BROKEN: a number that has no noise is published besides."""

    def _advance(self, state: Any, symbols: Any, randomness: Randomness) -> Any:
        made = super()._advance(state, symbols, randomness)
        last = made.noisy_counts[-1]
        exact = np.array([(state.private > 0).sum()])
        return replace(made, noisy_counts=[*made.noisy_counts, replace(last, draw="more", values=exact)])


def copied(kind: type, plan: Any) -> Any:
    return kind(*(getattr(plan, name) for name in plan.__dataclass_fields__))


def reports(plan: Any, people: NDArray[np.int64]) -> list[EncodedReports]:
    """The steps of a panel of the only column, shape (people, periods)."""
    marks = np.zeros((len(people), 16), np.uint8)
    marks[:, 0] = np.arange(len(people))
    return [EncodedReports(plan.domain, column[:, None].astype(np.int32), marks) for column in people.T]


def thresholds_of(plan: CumulativePlan, measured: list[Measured]) -> Iterator[tuple[float, Any]]:
    """The variance and the value of the number of people, where it is private, and of all running sums by period and
    threshold: from what passed the door, and each counter's matrices."""
    passed = iter(measured)
    if plan.total_noise is not None:
        yield plan.total_noise.variance, next(passed).noisy
    periods, largest = plan.horizon, plan.largest
    known: list[list[int]] = [[] for _ in range(largest)]
    for period, b in itertools.product(range(1, periods + 1), range(1, largest + 1)):
        if period < b:
            continue
        counter, ticks = plan.counters[b - 1], period - b + 1
        linear = counter.materialize(periods - b + 1)
        known[b - 1] += next(passed).noisy.tolist()
        row = linear.decoder[ticks - 1, :ticks]
        # The estimates of interval counters are what they measure; halves of others decode numbers and round.
        whole = row.dtype == np.int64
        value = known[b - 1][-1] if whole else np.rint(float(row @ np.array(known[b - 1])))
        yield linear.variances()[ticks - 1] + (0.0 if whole else 1 / 12), np.array([value], np.int64)
    assert next(passed, None) is None


def same(expected: Any, counts: list[NoisyCounts]) -> bool:
    """Whether running sums are the transcript's, value by value, with the variance that their draws have."""
    known = list(expected)
    return len(known) == len(counts) == len({one.draw for one in counts}) and all(
        np.array_equal(values, one.values) and one.variance == pytest.approx(variance, rel=1e-4)
        for (variance, values), one in zip(known, counts, strict=True)
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.relation)
@pytest.mark.parametrize("counter", ["best", "simple", "tree", "toeplitz", "blt", "unbounded-block-closed"])
def test_thresholds_publish_what_their_transcript_holds(unit: Individual, counter: str) -> None:
    recipe = PanelCumulative(POOR, counter=counter, thresholds=4)
    plan, people = recipe.calibrate(rho="1/20", unit=unit, horizon=6), panel(30, 6, 2)

    def published(tried: CumulativePlan) -> tuple[list[Measured], list[NoisyCounts]]:
        door, state, counts = Door(b"1"), tried.start(), list[NoisyCounts]()
        for batch in reports(plan, people):
            counts += tried.step(state, batch, door).noisy_counts
        return door.measured, counts

    measured, counts = published(plan)
    assert same(thresholds_of(plan, measured), counts)
    private = unit.relation == "add-remove"
    assert len(counts) == private + 1 + 2 + 3 + 4 * 3
    assert (counts[0].query == {"kind": "marginal", "columns": []}) == private
    last = counts[-1]
    assert (last.first, last.last, last.series) == (1, 6, "at least 4")
    assert last.query == {"kind": "at least", "columns": ["poor"], "codes": [1], "times": 4}
    measured, counts = published(copied(LeakingThresholds, plan))
    assert not same(thresholds_of(plan, measured), counts)


def judged(errors: NDArray[np.float64], variance: float) -> bool:
    """Whether independent errors of Gaussian noise have mean 0 and the stated variance.

    False alarms: below 1e-6 each. Both statistics are within five and a half standard deviations.
    """
    mean = abs(float(errors.mean())) < 5.5 * np.sqrt(variance / errors.size)
    return mean and abs(float((errors**2).mean()) / variance - 1.0) < 5.5 * np.sqrt(2.0 / errors.size)


def test_noisy_patterns_are_unbiased_without_padding_and_have_the_stated_variance() -> None:
    """False alarms below 1e-6; the controls state half of the variance, and leave the padding in."""
    plan, people = PanelWindow(POOR, 10).calibrate(rho="1/10", horizon=13), panel(100, 13, 2)
    _, counts = drawn_and_published(plan, reports(plan, people), Randomness.system())
    powers = 2 ** np.arange(9, -1, -1)
    errors = np.concatenate(
        [
            one.values - np.bincount(people[:, one.first - 1 : one.last] @ powers, minlength=1024)
            for one in counts
        ]
    )
    assert errors.size == 4096
    assert judged(errors, counts[0].variance)
    assert not judged(errors, counts[0].variance / 2)
    assert not judged(errors + plan.padding, counts[0].variance)
