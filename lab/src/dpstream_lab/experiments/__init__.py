"""Experiments on streams and panels: two papers', and comparisons of any methods. For evaluation only."""

from dpstream_lab.experiments.bun import BUN_RHOS, PanelOutcome, reproduce_bun
from dpstream_lab.experiments.bun_tables import AnswerLine, lines_of
from dpstream_lab.experiments.comparison import Comparison
from dpstream_lab.experiments.grid import Result, RunWatch, Silent, run_grid
from dpstream_lab.experiments.kumar import KUMAR_EPSILONS, ExperimentOutcome, data_folder, reproduce_kumar
from dpstream_lab.experiments.kumar_tables import ErrorLine, error_lines
from dpstream_lab.experiments.methods import KUMAR_METHODS, OWN_METHODS, Method
from dpstream_lab.experiments.offline_ceiling import Offline, Peer
from dpstream_lab.experiments.panel_data import KNOWN_PANELS, Panel, load_panel
from dpstream_lab.experiments.panel_runs import CumulativeRun, WindowRun
from dpstream_lab.experiments.printed_numbers import PRINTED_IN, PrintedNumber, published_kumar
from dpstream_lab.experiments.replayed_streams import (
    KUMAR_STREAMS,
    ConfigSource,
    KumarSource,
    Replay,
    StreamSource,
    kumar_stream,
)
from dpstream_lab.experiments.runs import Task, evaluated_steps, run_task

__all__ = [
    "BUN_RHOS",
    "KNOWN_PANELS",
    "KUMAR_EPSILONS",
    "KUMAR_METHODS",
    "KUMAR_STREAMS",
    "OWN_METHODS",
    "PRINTED_IN",
    "AnswerLine",
    "Comparison",
    "ConfigSource",
    "CumulativeRun",
    "ErrorLine",
    "ExperimentOutcome",
    "KumarSource",
    "Method",
    "Offline",
    "Panel",
    "PanelOutcome",
    "Peer",
    "PrintedNumber",
    "Replay",
    "Result",
    "RunWatch",
    "Silent",
    "StreamSource",
    "Task",
    "WindowRun",
    "data_folder",
    "error_lines",
    "evaluated_steps",
    "kumar_stream",
    "lines_of",
    "load_panel",
    "published_kumar",
    "reproduce_bun",
    "reproduce_kumar",
    "run_grid",
    "run_task",
]
