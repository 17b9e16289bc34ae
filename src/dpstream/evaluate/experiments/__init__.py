"""Experiments on whole streams: the paper's, and comparisons of any methods. For evaluation only."""

from dpstream.evaluate.experiments.compare import Comparison
from dpstream.evaluate.experiments.grid import Result, Silent, Watch, run_grid
from dpstream.evaluate.experiments.methods import KUMAR_METHODS, OWN_METHODS, Method
from dpstream.evaluate.experiments.offline import Offline, Peer
from dpstream.evaluate.experiments.published import PAPER, Published, published_kumar
from dpstream.evaluate.experiments.reproduce import KUMAR_EPSILONS, Outcome, data_folder, reproduce_kumar
from dpstream.evaluate.experiments.runs import Task, evaluated_steps, run_task
from dpstream.evaluate.experiments.streams import (
    KUMAR_STREAMS,
    ConfigSource,
    KumarSource,
    Replay,
    StreamSource,
    kumar_stream,
)
from dpstream.evaluate.experiments.tables import Line, summarise

__all__ = [
    "KUMAR_EPSILONS",
    "KUMAR_METHODS",
    "KUMAR_STREAMS",
    "OWN_METHODS",
    "PAPER",
    "Comparison",
    "ConfigSource",
    "KumarSource",
    "Line",
    "Method",
    "Offline",
    "Outcome",
    "Peer",
    "Published",
    "Replay",
    "Result",
    "Silent",
    "StreamSource",
    "Task",
    "Watch",
    "data_folder",
    "evaluated_steps",
    "kumar_stream",
    "published_kumar",
    "reproduce_kumar",
    "run_grid",
    "run_task",
    "summarise",
]
