"""Longitudinal panels: persistent synthetic people for one person's whole history (Bun et al. 2024)."""

from dpstream.panel.cumulative import Cumulative, CumulativeAnswer, CumulativePlan, CumulativeRelease
from dpstream.panel.history import People
from dpstream.panel.queries import AtLeast, Consecutive, Pattern, Weighted, WindowQuery
from dpstream.panel.streams import CumulativeStream, CumulativeStreamPlan, WindowStream, WindowStreamPlan
from dpstream.panel.window import FixedWindow, FixedWindowPlan, WindowAnswer, WindowRelease

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
