"""What a stream of points says about itself."""

from __future__ import annotations

from typing import Any

from dpstream.core.contracts import Alternative, Family, Limits
from dpstream.core.privacy import Unit
from dpstream.families.points.points_plan import OTHER_UNIT, Points


def _alternatives(recipe: Any, unit: Unit) -> tuple[Alternative, ...]:
    """The same synthesizer, as it is here and as it was published."""
    return tuple(Alternative("points", {"variant": word}, named=True) for word in ("default", "paper"))


POINTS = Family(
    "points",
    "a stream of points",
    {"points": Points},
    Limits(
        units=("event-replace",),
        other_units=OTHER_UNIT,
        deletes="points do not leave",
        no_tables=("one of points", ""),
    ),
    bins=False,
    bounds_only=True,
    alternatives=_alternatives,
)
