"""What a panel's plan predicts, before any data are read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpstream.core.contracts import StreamPlan
from dpstream.families.panel import AtLeast, CumulativeStreamPlan, WindowRelease, WindowStreamPlan

__all__ = ["describe_panel", "deviation"]


def describe_panel(plan: StreamPlan) -> dict[str, Any] | None:
    """Padding, bound and standard errors (in people) of a panel; None for other mechanisms."""
    if isinstance(plan, WindowStreamPlan):
        core = plan.core
        return {
            "words": core.describe(),
            "first_release": core.recipe.window,
            "padding": core.patterns * core.padding,
            "bound": core.bound,
            "errors": _window_errors(plan),
        }
    if isinstance(plan, CumulativeStreamPlan):
        counts = plan.core
        last = counts.recipe.periods
        return {
            "words": counts.describe(),
            "first_release": 1,
            "padding": counts.padding,
            "bound": counts.bounds[-1],
            "errors": [
                {
                    "question": f"at least {b} of all {last} periods",
                    "standard_error": math.sqrt(counts.variance(b, last)),
                }
                for b in _spread(counts.recipe.largest)
            ],
        }
    return None


def deviation(plan: StreamPlan) -> float | None:
    """Standard deviation of one noisy count, in people; None for other mechanisms."""
    if isinstance(plan, WindowStreamPlan):
        return math.sqrt(plan.core.noise.variance)
    if isinstance(plan, CumulativeStreamPlan):
        return math.sqrt(plan.core.variance(1, plan.core.recipe.periods))
    return None


def _window_errors(plan: WindowStreamPlan) -> list[dict[str, Any]]:
    """At the last period: of one pattern, and of at least so many of the last periods."""
    core = plan.core
    nobody = np.zeros(core.patterns, np.int64)
    last = WindowRelease(core, core.recipe.periods, np.zeros((0, 1), np.uint8), nobody, 0)
    asked = [("one pattern", np.eye(1, core.patterns)[0])]
    if core.recipe.symbols == 2:
        width = core.recipe.window
        asked += [(q.describe(), q.weights(2)) for q in (AtLeast(b, width) for b in _spread(width))]
    return [
        {"question": words, "standard_error": math.sqrt(last.error_variance(weights))}
        for words, weights in asked
    ]


def _spread(last: int) -> list[int]:
    """The first few and the last: tables of hundreds of lines help nobody."""
    return list(range(1, last + 1)) if last <= 6 else [1, 2, 3, last // 2, last]
