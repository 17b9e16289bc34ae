"""What a plan of points says of its cells, before any data are read."""

from __future__ import annotations

from typing import Any

from dpstream.core.contracts import StreamPlan
from dpstream.families.points.points_plan import PointsStreamPlan

__all__ = ["describe_points"]


def describe_points(plan: StreamPlan) -> dict[str, Any] | None:
    """From which point on there are cells of which depth; None for other mechanisms."""
    if not isinstance(plan, PointsStreamPlan):
        return None
    schedule = plan.core.schedule
    return {
        "words": plan.describe(),
        "coordinates": plan.coordinates,
        "categories": plan.space.categories,
        "first_cells": schedule.start(1),
        "most_points": plan.core.horizon,
        "depths": [
            {"depth": depth, "cells": 2**depth, "from_point": schedule.start(depth)}
            for depth in range(1, plan.space.depth + 1)
            if schedule.start(depth) <= plan.core.horizon
        ],
    }
