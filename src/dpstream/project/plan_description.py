"""What a plan promises, costs and disturbs, before any data are read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpstream.core.contracts import Explanation, PredictedError, StreamPlan
from dpstream.core.privacy import ZCDP, Budget, InsertedRecord, PureDP, User, decimal_text, zcdp_to_epsilon
from dpstream.project.planning import expected_facts
from dpstream.stream.declared import shown_public
from dpstream.stream.predecessor_cost import base_words, broken_words, covered

if TYPE_CHECKING:
    from dpstream.project.config import Config

#: Steps whose errors are predicted where the plan has no horizon.
_STEPS = (1, 10, 100, 1000)
#: The delta at which a rho is told as (epsilon, delta) where the file names none.
_USUAL_DELTA = "1e-9"


def told_base(config: Config, plan: StreamPlan) -> dict[str, Any] | None:
    """The facts about the earlier stream as they are now; None where there is none."""
    base = config.base()
    return None if base is None else base.told(plan.budget)


def guarantee(config: Config, plan: StreamPlan) -> str:
    """The promise in words, for all records whose marks are in the tables: also those of an earlier stream."""
    base = told_base(config, plan)
    budget = covered(plan.budget, base)
    kind = "pure" if isinstance(budget, PureDP) else "zero-concentrated"
    words = (
        f"All releases of the stream {config.name!r} together, of every step, satisfy {kind} differential "
        f"privacy with {budget}. Protected is {plan.unit.describe()}."
    )
    if base is not None:
        words = f"{broken_words(base.get('broken', ()))}{words}"
        if base["composition"]["rule"] == "parallel":
            words += f" A record that only this stream has seen has {plan.budget}."
    if isinstance(budget, ZCDP):
        if config.budget.stated is not None and budget == config.budget.budget:
            epsilon, delta = config.budget.stated
            words += f" This is within epsilon = {decimal_text(epsilon)} and delta = {decimal_text(delta)}."
        else:
            # Rounded up, exactly.
            epsilon = Fraction(zcdp_to_epsilon(budget, _USUAL_DELTA))
            implied = decimal_text(Fraction(math.ceil(epsilon * 10**4), 10**4))
            words += f" It implies epsilon = {implied} at delta = {_USUAL_DELTA}."
    if isinstance(plan.unit, User) and not isinstance(plan.unit, InsertedRecord):
        words += (
            f" Each event has {plan.unit.per_event(plan.budget)}, so that all events of a user together lose no "
            f"more than the whole; of a user with more than {plan.unit.max_events}, the others are left out."
        )
    if config.source_options.deletions and plan.unit.name == "event":
        words += " The stream deletes records: one that was inserted and is deleted has twice the loss."
    return words


def describe(config: Config, at: int | None = None) -> dict[str, Any]:
    """Everything that ``dpstream plan`` prints, JSON-able. Public: no data are read.

    Args:
        at: the step whose verdicts are told; None: the last one, or a year's.
    """
    plan = config.plan()
    told, facts = plan.explain(), config.facts()
    base = told_base(config, plan)
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
        "noise": {
            "one_measurement": told.deviation,
            **({} if told.running_sum is None else {"running_sum": dict(told.running_sum)}),
        },
        "predicted_errors": _predicted_errors(plan, told, base),
        "expect": config.expected is not None,
        "expected_errors": expected_facts(config, plan, at),
        "advice": _advice(config, plan),
        **told.facts,
        "size": {
            "columns": len(plan.domain),
            **told.size,
            "state_bytes_at_start": sum(a.nbytes for a in plan.pack_state(plan.start()).arrays.values()),
            "state_grows": told.growth,
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


def _advice(config: Config, plan: StreamPlan) -> list[str]:
    """What public guesses say for other options, in sentences."""
    told = config.family.advice
    return (
        []
        if told is None or config.expected is None
        else list(told(config.recipe, plan, config.expected.table))
    )


def compare_budgets(config: Config, budgets: list[Budget]) -> list[dict[str, Any]]:
    """The noise of one measurement under other budgets, or what the plan compares in its place."""
    rows = []
    for budget in budgets:
        told = config.plan(budget).explain()
        own = {} if told.compared is None else {told.compared[0]: told.compared[2]}
        rows.append({"budget": budget.as_dict(), "text": str(budget), "deviation": told.deviation, **own})
    return rows


def _predicted_errors(
    plan: StreamPlan, told: Explanation, base: Mapping[str, Any] | None
) -> dict[str, Any] | None:
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
    words = told.predicted
    if any(one.even_share is not None for one in predicted):
        words += f" {_TURNS}"
    if base is not None:
        predicted = tuple(_after(base["total_standard_error"], one) for one in predicted)
        words += f" {_OF_BASE}"
    return {"steps": [dataclasses.asdict(one) for one in predicted], "unit": "records", "words": words}


def _after(error: float | None, one: PredictedError) -> PredictedError:
    """Add the error of the base's number of records, which is independent of the stream's own."""
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


def _contribution(plan: StreamPlan) -> dict[str, Any]:
    """What a user and what each of the user's events may lose; nothing for other units."""
    if not isinstance(plan.unit, User) or isinstance(plan.unit, InsertedRecord):
        return {}
    return {
        "contribution": {
            "max_events": plan.unit.max_events,
            "each_event": plan.unit.per_event(plan.budget).as_dict(),
            "user": plan.budget.as_dict(),
            "events_in_times": plan.unit.factor(plan.budget),
        }
    }
