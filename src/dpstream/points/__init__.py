"""Online synthetic points, without a horizon (He, Vershynin and Zhu 2024): in the unit cube, and as streams."""

from dpstream.points.changes import PointChanges, changes
from dpstream.points.online import OnlinePoints, OnlinePointsPlan, PointsRelease, PointsState, Variant
from dpstream.points.streams import PointsStream, PointsStreamPlan
from dpstream.points.synthesis import PointsSynthesis

__all__ = [
    "OnlinePoints",
    "OnlinePointsPlan",
    "PointChanges",
    "PointsRelease",
    "PointsState",
    "PointsStream",
    "PointsStreamPlan",
    "PointsSynthesis",
    "Variant",
    "changes",
]
