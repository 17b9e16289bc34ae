"""Online synthetic points in the unit cube, without a horizon (He, Vershynin and Zhu 2024)."""

from dpstream.points.online import OnlinePoints, OnlinePointsPlan, PointsRelease, PointsState, Variant

__all__ = ["OnlinePoints", "OnlinePointsPlan", "PointsRelease", "PointsState", "Variant"]
