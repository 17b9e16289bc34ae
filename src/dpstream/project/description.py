"""What a plan promises, costs and disturbs, before any data are read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import PredictedError, StreamPlan
from dpstream.core.privacy import ZCDP, Budget, PureDP, User, decimal_text, zcdp_to_epsilon
from dpstream.families.growing.description import coming_runs, describe_asking, describe_growing
from dpstream.families.panel.description import describe_panel, deviation
from dpstream.families.panel.people import PeoplePlan
from dpstream.families.points import PointsStreamPlan
from dpstream.families.points.description import describe_points
from dpstream.families.tabular import BaselinePlan, DPStabsPlan, PooledPlan
from dpstream.families.tabular.description import describe_pooled
from dpstream.families.tabular.mwem_pgm import MWEMPGMPlan
from dpstream.stream.declared import shown_public
from dpstream.stream.predecessor_cost import base_words

if TYPE_CHECKING:
    from dpstream.project.config import Config

__all__ = [
    "coming_runs",
    "compare_budgets",
    "describe",
    "guarantee",
    "measurement_deviation",
    "predicted_errors",
]

_TICKS = (1, 10, 100)
#: Steps whose errors are predicted where the plan has no horizon.
_STEPS = (1, 10, 100, 1000)
#: The delta at which a rho is told as (epsilon, delta) where the file names none.
_USUAL_DELTA = "1e-9"


def guarantee(config: Config, plan: StreamPlan) -> str:
    """The promise in words."""
    kind = "pure" if isinstance(plan.budget, PureDP) else "zero-concentrated"
    words = (
        f"All releases of the stream {config.name!r} together, of every step, satisfy {kind} differential "
        f"privacy with {plan.budget}. Protected is {plan.unit.describe()}."
    )
    if isinstance(plan.budget, ZCDP):
        if config.budget.stated is not None:
            epsilon, delta = config.budget.stated
            words += f" This is within epsilon = {decimal_text(epsilon)} and delta = {decimal_text(delta)}."
        else:
            # Rounded up, exactly.
            epsilon = Fraction(zcdp_to_epsilon(plan.budget, _USUAL_DELTA))
            implied = decimal_text(Fraction(math.ceil(epsilon * 10**4), 10**4))
            words += f" It implies epsilon = {implied} at delta = {_USUAL_DELTA}."
    if isinstance(plan.unit, User):
        words += (
            f" Each event has {plan.unit.per_event(plan.budget)}, so that all events of a user together lose no "
            f"more than the whole; of a user with more than {plan.unit.max_events}, the others are left out."
        )
    if config.source_options.deletions and plan.unit.name == "event":
        words += " The stream deletes records: one that was inserted and is deleted has twice the loss."
    return words


def describe(config: Config) -> dict[str, Any]:
    """Everything that ``dpstream plan`` prints, JSON-able. Public: no data are read."""
    plan = config.plan()
    panel, points, growing = describe_panel(plan), describe_points(plan), describe_growing(plan)
    asking, pooled, facts = describe_asking(plan), describe_pooled(plan), config.facts()
    base = facts.get("base")
    return {
        "format": 1,
        "stream": config.name,
        "mechanism": plan.name,
        "guarantee": guarantee(config, plan),
        "unit": plan.unit.name,
        "budget": plan.budget.as_dict(),
        **_contribution(plan),
        "horizon": plan.horizon,
        "parts": [
            {
                "name": part.name,
                "times": part.times,
                "each": str(part.budget.amount),
                "total": str(part.total),
                "detail": part.detail,
            }
            for part in plan.parts()
        ],
        "sum": str(sum(part.total for part in plan.parts())),
        "noise": _noise(plan),
        **_choice(plan),
        "predicted_errors": predicted_errors(plan, base),
        **({} if panel is None else {"panel": panel}),
        **({} if points is None else {"points": points}),
        **({} if growing is None else {"growing": growing}),
        **({} if asking is None else {"asking": asking}),
        **({} if pooled is None else {"pooled": pooled}),
        "size": {
            "columns": len(plan.domain),
            **_marginals(plan),
            "state_bytes_at_start": sum(a.nbytes for a in plan.pack_state(plan.start()).arrays.values()),
            "state_grows": _growth(plan),
        },
        "declared_public": shown_public(facts),
        "base": None if base is None else {**base, "words": base_words(base)},
        "draft": not config.schema().confirmed,
        "options": plan.options(),
        "values": [
            {"section": used.section, "key": used.key, "value": used.value, "default_because": used.reason}
            for used in config.used
        ],
    }


def compare_budgets(config: Config, budgets: list[Budget]) -> list[dict[str, Any]]:
    """The noise of one measurement under other budgets; of points, when there are cells."""
    rows = []
    for budget in budgets:
        plan = config.plan(budget)
        points = describe_points(plan)
        rows.append(
            {
                "budget": budget.as_dict(),
                "text": str(budget),
                "deviation": measurement_deviation(plan),
                **({} if points is None else {"first_cells": points["first_cells"]}),
            }
        )
    return rows


def measurement_deviation(plan: StreamPlan) -> float | None:
    """Standard deviation of one cell of one measurement, in records; None for an unknown mechanism."""
    if isinstance(plan, DPStabsPlan):
        return math.sqrt(plan.counter.variance(1))
    if isinstance(plan, BaselinePlan) and isinstance(plan.offline, MWEMPGMPlan):
        return math.sqrt(plan.offline.noise.variance)
    if isinstance(plan, PooledPlan):
        return math.sqrt(plan.runner.cell_variance(plan.runner.design(0.0, drifts=True)))
    return deviation(plan)


def predicted_errors(plan: StreamPlan, base: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Standard errors in records at some steps: 1, 10, 100, 1000, or with a horizon its quarters.

    Args:
        base: the facts about what the stream begins with; its error is in the number of records for ever.
    """
    steps: tuple[int, ...] = _STEPS
    if plan.horizon is not None:
        steps = tuple(sorted({1, *(-(-plan.horizon * i // 4) for i in range(1, 5))}))
    predicted = plan.predicted_errors(steps)
    if predicted is None:
        return None
    words = _OF_RUNS if isinstance(plan, BaselinePlan) else _OF_COUNTERS
    if base is not None:
        predicted = tuple(_after(base["total_standard_error"], one) for one in predicted)
        words += f" {_OF_BASE}"
    return {"steps": [dataclasses.asdict(one) for one in predicted], "unit": "records", "words": words}


def _after(error: float | None, one: PredictedError) -> PredictedError:
    """The number of records carries the base's error as well, which is independent."""
    total = None if error is None or one.total is None else math.hypot(error, one.total)
    return dataclasses.replace(one, total=total)


_OF_BASE = (
    "The stream begins with another one's table: total holds that table's error too; every_step and even_share are "
    "of what came since."
)


_TURNS = (
    "even_share and total assume that all marginals are measured equally often; which ones a stream measures "
    "follows from its records."
)
_OF_COUNTERS = (
    "every_step: one cell of a marginal that is measured at every step. even_share: one cell of the running sum "
    "of a marginal's measurements; what the model books for the other steps is not included, so it is no error "
    f"of a released count. Where the stream may delete: of inserts less deletes. {_TURNS}"
)
_OF_RUNS = (
    "every_step, even_share: one cell of the sum of a marginal's measurements in independent runs. The released "
    f"table is drawn from models fitted to them, so these are no errors of a released count. {_TURNS}"
)


def _contribution(plan: StreamPlan) -> dict[str, Any]:
    """What a user and what each of the user's events may lose; nothing for other units."""
    if not isinstance(plan.unit, User):
        return {}
    return {
        "contribution": {
            "max_events": plan.unit.max_events,
            "each_event": plan.unit.per_event(plan.budget).as_dict(),
            "user": plan.budget.as_dict(),
            "events_in_times": plan.unit.factor(plan.budget),
        }
    }


def _choice(plan: StreamPlan) -> dict[str, Any]:
    """How the counter was chosen; nothing where the file names one."""
    if not isinstance(plan, DPStabsPlan) or plan.choice is None:
        return {}
    choice = plan.choice
    return {
        "counter_choice": {
            "chosen": choice.name,
            "expected_measurements": choice.ticks,
            "judged": choice.judged,
            "candidates": [dataclasses.asdict(one) for one in choice.candidates],
        }
    }


def _noise(plan: StreamPlan) -> dict[str, Any]:
    """One measurement, and a marginal's running sum after some measurements."""
    result: dict[str, Any] = {"one_measurement": measurement_deviation(plan)}
    if isinstance(plan, DPStabsPlan):
        most = plan.counter.horizon
        result["running_sum"] = {
            str(ticks): math.sqrt(plan.counter.variance(ticks))
            for ticks in _TICKS
            if most is None or ticks <= most
        }
    elif isinstance(plan, BaselinePlan):
        one = result["one_measurement"]
        # Every step adds an independent run, so the variances add up.
        result["running_sum"] = {str(n): one * math.sqrt(n) for n in _TICKS} if one is not None else {}
    return result


def _marginals(plan: StreamPlan) -> dict[str, int]:
    """Of the workload; nothing where a mechanism has none."""
    if not isinstance(plan, DPStabsPlan | BaselinePlan | PooledPlan):
        return {}
    workload = plan.recipe.workload
    return {
        "marginals": len(workload),
        "cells": workload.cells,
        "largest_marginal": max(plan.domain.cells(clique) for clique in workload.cliques),
    }


def _growth(plan: StreamPlan) -> str:
    if isinstance(plan, BaselinePlan):
        return "growing with the synthetic table"
    if isinstance(plan, PeoplePlan):
        return "then about 20 bytes a person, and a byte a synthetic person and period"
    if isinstance(plan, PooledPlan):
        return "then about 8 bytes for every cell that an epoch measures, whatever the number of rows"
    if isinstance(plan, PointsStreamPlan):
        return "then up to about 40 bytes a cell, and with one coordinate 4 bytes a point"
    return "whatever the number of rows"
