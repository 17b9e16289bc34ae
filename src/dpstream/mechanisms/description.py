"""What plans of tables know of themselves besides what any mechanism knows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from dpstream.core.counters import CalibratedCounter, Choice
from dpstream.core.privacy import DiscreteGaussian, DiscreteLaplace, HistogramsNoise, Noise
from dpstream.core.tables import Workload
from dpstream.mechanisms.headlines import headline_words

#: Numbers of measurements for which running sums are predicted.
TICKS = (1, 10, 100)


def table_facts(
    workload: Workload, deviation: float | None, running_sum: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The noise of one measurement, and the size of the marginals.

    Args:
        deviation: of one measurement, in records; None where a run divides its budget as it goes.
        running_sum: the deviation of a marginal's running sum, by the number of measurements.
    """
    noise: dict[str, Any] = {"one_measurement": deviation}
    if running_sum is not None:
        noise["running_sum"] = dict(running_sum)
    return {
        "noise": noise,
        "size": {
            "marginals": len(workload),
            "cells": workload.cells,
            "largest_marginal": max(workload.domain.cells(clique) for clique in workload.cliques),
        },
    }


def headline_facts(
    labels: Sequence[str],
    share: Fraction,
    draws: Sequence[tuple[Sequence[Any], Noise | HistogramsNoise]],
    *,
    all_columns: bool,
) -> dict[str, Any]:
    """What is measured whenever anything is; nothing where that is nothing in particular.

    Args:
        labels: of the headline marginals; ``draws``: their groups of one draw each, with their noise.
        all_columns: whether every column is measured then, headline or not.
    """
    if not draws and not all_columns:
        return {}
    facts: dict[str, Any] = {"columns_measured_anyway": all_columns}
    if draws:
        # Of cells of those that are drawn together: the largest.
        variances = [v for _, noise in draws for v in getattr(noise, "variances", (noise.variance,))]
        deviation = float(f"{math.sqrt(max(variances)):.6g}")
        alone = all(isinstance(noise, DiscreteLaplace | DiscreteGaussian) for _, noise in draws)
        facts |= {
            "marginals": list(labels),
            "share": str(share),
            "standard_deviation": deviation,
            "noise": headline_words(draws),
            "same_noise": draws[0][1].describe() if alone else None,
        }
    return {"headline": facts}


def counter_facts(workload: Workload, counter: CalibratedCounter, choice: Choice | None) -> dict[str, Any]:
    """The errors of a counter, and how it was chosen.

    Args:
        choice: None where nothing was compared.
    """
    most = counter.horizon
    sums = {str(n): math.sqrt(counter.variance(n)) for n in TICKS if most is None or n <= most}
    facts = table_facts(workload, sums["1"], sums)
    if choice is None:
        return facts
    candidates = [asdict(candidate) for candidate in choice.candidates]
    chosen = {"chosen": choice.name, "expected_measurements": choice.ticks, "candidates": candidates}
    return {**facts, "counter_choice": chosen}
