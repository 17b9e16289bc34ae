"""Experiments on panels: the paper's figures, with real noise. For evaluation only."""

from dpstream.lab.panels.bun import BUN_RHOS, PanelOutcome, reproduce_bun
from dpstream.lab.panels.bun_tables import AnswerLine, lines_of
from dpstream.lab.panels.data import KNOWN_PANELS, Panel, load_panel
from dpstream.lab.panels.repeat import CumulativeRun, WindowRun

__all__ = [
    "BUN_RHOS",
    "KNOWN_PANELS",
    "AnswerLine",
    "CumulativeRun",
    "Panel",
    "PanelOutcome",
    "WindowRun",
    "lines_of",
    "load_panel",
    "reproduce_bun",
]
