"""Online synthetic points, without a horizon (He, Vershynin and Zhu 2024): in the unit cube, and as streams."""

from dpstream.families.points.cells import PointsState
from dpstream.families.points.online import (
    OnlinePoints,
    OnlinePointsPlan,
    PointsRelease,
    Variant,
)
from dpstream.families.points.points_plan import Points, PointsStreamPlan
from dpstream.families.points.points_release import PointsSynthesis

__all__ = [
    "OnlinePoints",
    "OnlinePointsPlan",
    "Points",
    "PointsRelease",
    "PointsState",
    "PointsStreamPlan",
    "PointsSynthesis",
    "Variant",
]
