"""Recipes of panels, and the questions that their releases answer."""

from __future__ import annotations

from dpstream.families.panel import AtLeast, Consecutive, PanelCumulative, PanelWindow, Pattern

__all__ = ["AtLeast", "Consecutive", "PanelCumulative", "PanelWindow", "Pattern"]
