"""What a growing database says about itself: one whose black box is run again, and one that is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpstream.core.contracts import Family, Limits
from dpstream.families.growing.erm import ERM
from dpstream.families.growing.pmwg import PMWG
from dpstream.families.growing.scheduler import BBImprover, BBScheduler

__all__ = ["ASKED", "GROWING"]

_LIMITS = Limits(
    units=("event-replace",),
    other_units="a growing database cannot protect the unit {unit!r}: runs are scheduled by the number of records, so "
    "it is public",
    deletes="a growing database only grows",
)


def _narrow(recipe: Any) -> Limits:
    """A classifier is no table."""
    if not isinstance(recipe.box, ERM):
        return _LIMITS
    persistent = "a classifier has no records that could persist"
    return replace(_LIMITS, no_records={"persistent": persistent}, no_tables=("one of classifiers", ""))


GROWING = Family(
    "growing",
    "a growing database",
    {"scheduler": BBScheduler, "improver": BBImprover},
    _LIMITS,
    narrow=_narrow,
    draft={"mechanism": {"first_run": 1000, "gamma": "0.1"}, "budget": {"epsilon": "1", "delta": "1e-9"}},
)
ASKED = Family(
    "asked",
    "a growing database",
    {"pmwg": PMWG},
    replace(
        _LIMITS,
        other_units="questions cannot protect the unit {unit!r}: answers are shares of the number of records, so it is "
        "public",
        no_tables=("one that is asked", ""),
    ),
    asked=True,
    draft={"mechanism": {"alpha": "0.1", "start": 1000}, "budget": {"epsilon": "1"}},
)
