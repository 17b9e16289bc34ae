"""Longitudinal panels: persistent synthetic people for one person's whole history (Bun et al. 2024)."""

from dpstream.families.panel.cumulative import Cumulative, CumulativeAnswer, CumulativePlan, CumulativeRelease
from dpstream.families.panel.panel_plans import (
    CumulativeStreamPlan,
    PanelCumulative,
    PanelWindow,
    WindowStreamPlan,
)
from dpstream.families.panel.people_release import People
from dpstream.families.panel.queries import AtLeast, Consecutive, Pattern, WindowQuery
from dpstream.families.panel.window import FixedWindow, FixedWindowPlan, WindowAnswer, WindowRelease

__all__ = [
    "AtLeast",
    "Consecutive",
    "Cumulative",
    "CumulativeAnswer",
    "CumulativePlan",
    "CumulativeRelease",
    "CumulativeStreamPlan",
    "FixedWindow",
    "FixedWindowPlan",
    "PanelCumulative",
    "PanelWindow",
    "Pattern",
    "People",
    "WindowAnswer",
    "WindowQuery",
    "WindowRelease",
    "WindowStreamPlan",
]
