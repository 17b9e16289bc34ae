"""Experiments on whole streams: the paper's, and comparisons of any methods. For evaluation only."""

from dpstream.lab.experiments.comparison import Comparison
from dpstream.lab.experiments.grid import Result, RunWatch, Silent, run_grid
from dpstream.lab.experiments.kumar import KUMAR_EPSILONS, ExperimentOutcome, data_folder, reproduce_kumar
from dpstream.lab.experiments.kumar_tables import ErrorLine, summarise
from dpstream.lab.experiments.methods import KUMAR_METHODS, OWN_METHODS, Method
from dpstream.lab.experiments.offline_ceiling import Offline, Peer
from dpstream.lab.experiments.printed_numbers import PRINTED_IN, PrintedNumber, published_kumar
from dpstream.lab.experiments.replayed_streams import (
    KUMAR_STREAMS,
    ConfigSource,
    KumarSource,
    Replay,
    StreamSource,
    kumar_stream,
)
from dpstream.lab.experiments.runs import Task, evaluated_steps, run_task

__all__ = [
    "KUMAR_EPSILONS",
    "KUMAR_METHODS",
    "KUMAR_STREAMS",
    "OWN_METHODS",
    "PRINTED_IN",
    "Comparison",
    "ConfigSource",
    "ErrorLine",
    "ExperimentOutcome",
    "KumarSource",
    "Method",
    "Offline",
    "Peer",
    "PrintedNumber",
    "Replay",
    "Result",
    "RunWatch",
    "Silent",
    "StreamSource",
    "Task",
    "data_folder",
    "evaluated_steps",
    "kumar_stream",
    "published_kumar",
    "reproduce_kumar",
    "run_grid",
    "run_task",
    "summarise",
]
