"""Experiments on panels: the paper's figures, with real noise. For evaluation only."""

from dpstream.evaluate.panels.data import PANELS, Panel, load_panel
from dpstream.evaluate.panels.repeat import CumulativeRun, WindowRun
from dpstream.evaluate.panels.reproduce import BUN_RHOS, PanelOutcome, reproduce_bun
from dpstream.evaluate.panels.tables import Line, lines_of

__all__ = [
    "BUN_RHOS",
    "PANELS",
    "CumulativeRun",
    "Line",
    "Panel",
    "PanelOutcome",
    "WindowRun",
    "lines_of",
    "load_panel",
    "reproduce_bun",
]
