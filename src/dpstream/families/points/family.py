"""What a stream of points says about itself."""

from __future__ import annotations

from dpstream.core.contracts import Family, Limits
from dpstream.families.points.points_plan import Points

__all__ = ["POINTS"]

POINTS = Family(
    "points",
    "a stream of points",
    {"points": Points},
    Limits(
        units=("event-replace",),
        other_units="points cannot protect the unit {unit!r}: their clock counts points, so their number is public",
        deletes="points do not leave",
        no_tables=("one of points", ""),
    ),
)
