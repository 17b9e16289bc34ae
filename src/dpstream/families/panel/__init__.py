"""Longitudinal panels: persistent synthetic people for one person's whole history (Bun et al. 2024)."""

from dpstream.families.panel.cumulative import Cumulative, CumulativeAnswer, CumulativePlan, CumulativeRelease
from dpstream.families.panel.panel_plans import (
    CumulativeStream,
    CumulativeStreamPlan,
    WindowStream,
    WindowStreamPlan,
)
from dpstream.families.panel.people_history import People
from dpstream.families.panel.queries import AtLeast, Consecutive, Pattern, Weighted, WindowQuery
from dpstream.families.panel.window import FixedWindow, FixedWindowPlan, WindowAnswer, WindowRelease

__all__ = [
    "AtLeast",
    "Consecutive",
    "Cumulative",
    "CumulativeAnswer",
    "CumulativePlan",
    "CumulativeRelease",
    "CumulativeStream",
    "CumulativeStreamPlan",
    "FixedWindow",
    "FixedWindowPlan",
    "Pattern",
    "People",
    "Weighted",
    "WindowAnswer",
    "WindowQuery",
    "WindowRelease",
    "WindowStream",
    "WindowStreamPlan",
]
