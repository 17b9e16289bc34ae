"""Longitudinal panels: persistent synthetic people for one person's whole history (Bun et al. 2024)."""

from dpstream.families.panel.cumulative import CumulativePlan, PanelCumulative
from dpstream.families.panel.people_release import PanelSynthesis
from dpstream.families.panel.queries import AtLeast, Consecutive, Pattern, WindowQuery
from dpstream.families.panel.window import PanelWindow, WindowPlan
