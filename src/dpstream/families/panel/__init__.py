"""Longitudinal panels: persistent synthetic people for one person's whole history (Bun et al. 2024)."""

from dpstream.families.panel.cumulative import CumulativePlan, CumulativeSynthesis, PanelCumulative
from dpstream.families.panel.queries import AtLeast, Consecutive, Pattern, WindowQuery
from dpstream.families.panel.window import PanelWindow, WindowPlan, WindowSynthesis

__all__ = [
    "AtLeast",
    "Consecutive",
    "CumulativePlan",
    "CumulativeSynthesis",
    "PanelCumulative",
    "PanelWindow",
    "Pattern",
    "WindowPlan",
    "WindowQuery",
    "WindowSynthesis",
]
