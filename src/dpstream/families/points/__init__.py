"""Online synthetic points, without a horizon (He, Vershynin and Zhu 2024)."""

from dpstream.families.points.cells import PointsState
from dpstream.families.points.points_plan import Points, PointsPlan
from dpstream.families.points.points_release import PointsSynthesis
