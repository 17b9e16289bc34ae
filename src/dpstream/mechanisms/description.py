"""What plans of tables say about themselves besides what any mechanism says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any

from dpstream.core.contracts.explanation import COUNTS_UNKNOWN, Explanation, PrintedTable, shown_bytes
from dpstream.core.counters import CalibratedCounter, Choice
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise
from dpstream.core.tables import Workload
from dpstream.mechanisms.headlines import headline_words

#: Numbers of measurements for which running sums are predicted.
TICKS = (1, 10, 100)


def explain_table(
    usual: Explanation,
    workload: Workload,
    deviation: float | None,
    running_sum: Mapping[str, float] | None = None,
) -> Explanation:
    """What all plans of tables say.

    Args:
        usual: what any mechanism says.
        deviation: of one measurement, in records; None where a run divides its budget as it goes.
        running_sum: see ``Explanation``.
    """
    says: tuple[str, ...] = (
        "Noise of one measurement: see the parts; how a run divides its budget follows from noisy numbers."
        if deviation is None
        else f"Noise of one measurement: standard deviation {deviation:.4g} records in every cell.",
    )
    if running_sum:
        sums = ", ".join(f"{ticks}: {value:.4g}" for ticks, value in running_sum.items())
        says += (f"Of a marginal's running sum, after so many measurements: {sums}.",)
    return replace(
        usual,
        counts_told=COUNTS_UNKNOWN,
        says=says,
        deviation=deviation,
        running_sum=running_sum,
        size={
            "marginals": len(workload),
            "cells": workload.cells,
            "largest_marginal": max(workload.domain.cells(clique) for clique in workload.cliques),
        },
    )


def turnover_words(*, cancelled: bool) -> str:
    """How errors follow from what comes and goes, where inserts and deletes are followed apart.

    Args:
        cancelled: whether equal rows that come and go within a step are left out.
    """
    within = (
        " Of equal rows that come and go within a step only the difference is followed."
        if cancelled
        else " Equal rows that come and go within a step are counted as both."
    )
    return (
        "Records that come and records that leave are followed apart, from the first step on, and subtracted. So "
        "errors of counts are those of all that ever came and left, not of the table as it is: where a record stays 10 "
        "steps on average, that is 21 records for each that is there at step 100, and 201 at step 1000."
        f'{within} Where records have keys, [stream] unit = "record" follows the table itself.'
    )


def with_turnover(own: Explanation, *, cancelled: bool) -> Explanation:
    """The same, with that."""
    turnover = {"words": turnover_words(cancelled=cancelled)}
    return replace(
        own, further=(*own.further, turnover["words"]), facts={**(own.facts or {}), "turnover": turnover}
    )


def with_headline(
    own: Explanation,
    labels: Sequence[str],
    share: Fraction,
    draws: Sequence[tuple[Sequence[int], Noise | HistogramsNoise]],
    when: str,
    *,
    all_columns: bool,
    of: str = "a record's budget",
) -> Explanation:
    """The same, with what is measured whenever anything is.

    Args:
        labels: of the headline marginals; ``draws``: their groups of one draw each, with their noise.
        when: "where a group of steps ends".
        of: what their share is part of.
        all_columns: whether every column is measured then, headline or not.
    """
    words = []
    if draws:
        how = f"Together they get {share} of {of}: {headline_words(draws)}, each time."
        apart = ""
        if all(isinstance(noise, DiscreteLaplace | DiscreteGaussian) for _, noise in draws):
            how = f"Together they get {share} of {of}: {draws[0][1].describe()} in every cell, each time."
            apart = ", by itself"
        words.append(
            f"Headlines: {', '.join(labels)}. Each is measured {when}{apart}, whatever is measured besides. {how}"
        )
    if all_columns:
        words.append(f"All columns are measured {when}: for single columns no headline is needed.")
    if not words:
        return own
    facts: dict[str, Any] = {"columns_measured_anyway": all_columns, "words": " ".join(words)}
    if draws:
        # Of cells of those that are drawn together: the largest.
        variances = [v for _, own in draws for v in getattr(own, "variances", (own.variance,))]
        deviation = float(f"{math.sqrt(max(variances)):.6g}")
        facts |= {"marginals": list(labels), "share": str(share), "standard_deviation": deviation}
    return replace(own, further=(*own.further, *words), facts={**(own.facts or {}), "headline": facts})


def explain_counters(
    usual: Explanation,
    workload: Workload,
    counter: CalibratedCounter,
    choice: Choice | None,
    *,
    every_step: bool,
) -> Explanation:
    """What a plan with counters says: its errors, and how the counter was chosen.

    Args:
        choice: None where nothing was compared.
        every_step: whether all marginals are measured at every step.
    """
    most = counter.horizon
    sums = {str(n): math.sqrt(counter.variance(n)) for n in TICKS if most is None or n <= most}
    own = explain_table(usual, workload, sums["1"], sums)
    if every_step:
        own = replace(own, counts_told=", and how wrong counts over the measured columns may be")
    if choice is None:
        return own
    headings = {
        "name": "counter",
        "deviation": f"over {choice.ticks} measurements",
        "last": "at the last",
        "why_not": "state, or why not",
    }
    candidates = [asdict(one) for one in choice.candidates]
    rows = [one | {"why_not": one["why_not"] or shown_bytes(one["state_bytes"])} for one in candidates]
    facts = {
        "chosen": choice.name,
        "expected_measurements": choice.ticks,
        "candidates": candidates,
    }
    return replace(
        own,
        facts={"counter_choice": facts},
        further=(
            f"Counter: {choice.name}, chosen by the predicted error of the running sum of one cell.",
            PrintedTable(headings, rows),
            "A stream keeps the counter that it began with. To hold on to it in later versions of this program, write "
            f'counter = "{choice.name}".',
        ),
    )
