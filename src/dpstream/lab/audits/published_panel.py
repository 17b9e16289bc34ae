"""Whether a panel publishes just what its transcript holds: from the recorded noise and the reports themselves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import AnyNoise, Randomness
from dpstream.core.tables import EncodedReports
from dpstream.families.panel import CumulativePlan, WindowPlan
from dpstream.lab.audits.transcript_tape import Tape, TapedNoise
from dpstream.lab.audits.transcripts import rows_drawn

Ints = NDArray[np.int64]


def panel_published(
    plan: WindowPlan | CumulativePlan, panel: Ints, randomness: Randomness
) -> tuple[list[tuple[AnyNoise, Ints]], list[NoisyCounts]]:
    """Every draw of noise, and everything that is published.

    Args:
        panel: codes of the only column, shape (people, periods).
    """
    tape, published = Tape(), list[NoisyCounts]()
    state: Any = plan.start()
    marks = np.zeros((len(panel), 16), np.uint8)
    marks[:, 0] = np.arange(len(panel))
    for column in panel.T:
        batch = EncodedReports(plan.domain, column[:, None].astype(np.int32), marks)
        published += plan.step(state, batch, TapedNoise(randomness, tape)).noisy_counts
    return tape.draws, published


def windows_measured(
    plan: WindowPlan, panel: Ints, draws: Sequence[tuple[AnyNoise, Ints]]
) -> Iterator[tuple[AnyNoise, Ints]]:
    """The noise and the noisy counts of every window: its histogram and the draw of its period."""
    powers = plan.codes ** np.arange(plan.window - 1, -1, -1)
    for end, (noise, drawn) in zip(range(plan.window, plan.horizon + 1), draws, strict=True):
        patterns = panel[:, end - plan.window : end] @ powers
        yield noise, np.bincount(patterns, minlength=plan.patterns) + drawn


def thresholds_measured(
    plan: CumulativePlan, panel: Ints, draws: Sequence[tuple[AnyNoise, Ints]]
) -> Iterator[tuple[float, Ints]]:
    """The variance and the value of the number of people, where it is private, and of all running sums by period and
    threshold: each counter's matrices times its increments and the draws that are its own."""
    at = 0
    if plan.total_noise is not None:
        noise, drawn = draws[0]
        yield noise.variance, len(panel) + drawn
        at = 1
    ones = np.isin(panel, plan.counted)
    periods, largest = plan.horizon, plan.largest
    taken: list[list[int]] = [[] for _ in range(largest)]
    for period, b in itertools.product(range(1, periods + 1), range(1, largest + 1)):
        if period < b:
            continue
        counter, ticks = plan.counters[b - 1], period - b + 1
        for _ in rows_drawn(counter, periods - b + 1)[ticks - 1]:
            taken[b - 1] += draws[at][1].tolist()
            at += 1
        linear = counter.materialize(periods - b + 1)
        reached = ((np.cumsum(ones, axis=1) == b) & ones).sum(axis=0)[b - 1 : period]
        coordinates = linear.encoder[: len(taken[b - 1]), :ticks] @ reached + np.array(taken[b - 1])
        row = linear.decoder[ticks - 1, : len(coordinates)]
        whole = row.dtype == np.int64
        # Exact in whole numbers; a weighted mean is rounded as the counter does.
        value = row @ coordinates if whole else np.rint(float(row @ coordinates))
        variance = linear.variances()[ticks - 1] + (0.0 if whole else float(Fraction(1, 12)))
        yield float(variance), np.array([value], np.int64)
    if at != len(draws):
        raise ValueError("the panel drew more noise than its counters")
