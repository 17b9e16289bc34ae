"""What a growing database's plan says of its coming runs, or of its answers, before any data are read."""

from __future__ import annotations

from itertools import islice
from typing import Any

from dpstream.core.contracts import StreamPlan
from dpstream.families.growing.erm_stream import ClassifierPlan
from dpstream.families.growing.growing_plan import GrowingPlan
from dpstream.families.growing.pmwg_plan import PMWGPlan
from dpstream.families.growing.run_schedule import MAX_RECORDS, Improvement, Run

__all__ = ["coming_runs", "describe_asking", "describe_growing"]

#: Runs that a plan shows where nobody asks for more.
_SHOWN = 8
#: A request for the runs up to some size is answered with so many at most.
_MOST_SHOWN = 100_000


def describe_growing(plan: StreamPlan) -> dict[str, Any] | None:
    """The coming runs; None for other mechanisms."""
    if not isinstance(plan, GrowingPlan):
        return None
    runs = _first(plan)
    return {
        "words": plan.describe(),
        "runs": [_run(plan, run) for run in runs],
        "if_steps": isinstance(plan.schedule, Improvement),
        "crossed": "the budget of the last one, and the others' is not spent"
        if plan.schedule.paper is not None
        else "their budgets together",
        "promised": "bound on the excess risk"
        if isinstance(plan, ClassifierPlan)
        else "promised of a share, until the next",
        "promise": _promise(plan, runs[0]),
    }


def _first(plan: GrowingPlan) -> list[Run]:
    """The first runs; of an improver, which runs at every step, those of steps that double the database."""
    if not isinstance(plan.schedule, Improvement):
        return list(islice(plan.runs(), _SHOWN))
    runs, done = list[Run](), -1
    for doubling in range(_SHOWN):
        run = plan.schedule.due(done, plan.schedule.n << doubling)
        if run is not None and run.t <= MAX_RECORDS:
            runs.append(run)
            done = run.last
    return runs


def coming_runs(plan: StreamPlan, until: int) -> list[dict[str, Any]] | None:
    """All runs up to a number of records, at most 100,000; None for other mechanisms."""
    if not isinstance(plan, GrowingPlan):
        return None
    return [_run(plan, run) for run in islice(plan.runs(until), _MOST_SHOWN)]


def _run(plan: GrowingPlan, run: Run) -> dict[str, Any]:
    return {
        "records": run.t,
        "cost": str(run.cost),
        "left": float(plan.schedule.left(run.last)),
        "given": run.budget.as_dict(),
        "beta": float(run.beta),
        "alpha": run.alpha,
        "promise": plan.promise(run),
    }


def _promise(plan: GrowingPlan, run: Run) -> str:
    """What theory says of the accuracy, in words."""
    if isinstance(plan, ClassifierPlan):
        return (
            "The bound is on the mean over the noise, for the records that a run reads, against the best classifier of "
            "the assumed norm; nothing is bounded about new records, or about records that come before the next run."
        )
    if run.alpha is None:
        return (
            "Theory promises nothing about the accuracy of this black box: measure it on invented or public records of "
            "the same columns. A choice made by looking at the private table is outside the guarantee."
        )
    bound = plan.promise(run)
    if bound is None:
        return (
            f"Theory promises nothing here: its bound on the error of a share is {run.alpha:.3g}, and no share is "
            "wrong by more than 1."
        )
    return (
        f"Theory promises that every cell of the workload is within {bound:.3g} of its share of the records, until the "
        f"next run, but for a probability of {float(plan.schedule.beta):.3g} over all time."
    )


def describe_asking(plan: StreamPlan) -> dict[str, Any] | None:
    """Noise and promise at the start; None for other mechanisms."""
    if not isinstance(plan, PMWGPlan):
        return None
    xi = plan.noise.value(plan.first)
    return {
        "words": plan.describe(),
        "start": plan.first,
        "cells": plan.universe.cells,
        "threshold": float(plan.sparse.threshold),
        "noise_of_numbers": 8 / xi,
        "hard_questions": plan.hard_left(plan.start().books, 0, plan.first),
        "promise": plan.promise.words,
    }
