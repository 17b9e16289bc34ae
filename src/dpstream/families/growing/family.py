"""What a growing database says about itself: one whose black box is run again, and one that is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpstream.core.contracts import Alternative, Family, Limits
from dpstream.core.privacy import Unit
from dpstream.families.growing import pmwg_plan, scheduler
from dpstream.families.growing.boxes import SmallDB
from dpstream.families.growing.erm import ERM

_LIMITS = Limits(
    units=("event-replace",),
    other_units=scheduler.OTHER_UNIT,
    deletes="a growing database only grows",
)


def _narrow(recipe: Any) -> Limits:
    """The limits of one recipe: a classifier has no records and no table."""
    if not isinstance(recipe.box, ERM):
        return _LIMITS
    persistent = "a classifier has no persistent records"
    return replace(_LIMITS, no_records={"persistent": persistent}, no_tables=("one of classifiers", ""))


_SAME = ("black_box", "first_run", "workload", "size", "iterations", "max_cells")


def _alternatives(recipe: Any, unit: Unit) -> tuple[Alternative, ...]:
    """Both schedules of runs; classifiers have no tables to compare."""
    if isinstance(recipe.box, ERM):
        return ()
    runs = {} if isinstance(recipe.box, SmallDB) else {"gamma": "0.1"}
    return (Alternative("scheduler", runs, keeps=_SAME), Alternative("improver", keeps=_SAME))


GROWING = Family(
    "growing",
    "a growing database",
    {"scheduler": scheduler.BBScheduler, "improver": scheduler.BBImprover},
    _LIMITS,
    narrow=_narrow,
    alternatives=_alternatives,
    draft={"mechanism": {"first_run": 1000, "gamma": "0.1"}, "budget": {"epsilon": "1", "delta": "1e-9"}},
)
ASKED = Family(
    "asked",
    "a growing database",
    {"pmwg": pmwg_plan.PMWG},
    replace(_LIMITS, other_units=pmwg_plan.OTHER_UNIT, no_tables=("one that is asked", "")),
    asked=True,
    draft={"mechanism": {"alpha": "0.1", "start": 1000}, "budget": {"epsilon": "1"}},
)
