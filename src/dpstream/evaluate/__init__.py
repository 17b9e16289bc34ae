"""Evaluation against private truth: never releasable. See README.md in this folder."""

from dpstream.evaluate.evaluation import Evaluation, StepEvaluation, evaluate_run
from dpstream.evaluate.evaluation_files import write_evaluation
from dpstream.evaluate.label import LABEL
from dpstream.evaluate.metrics import METRICS, WorkloadErrors, churn, total_variation, workload_errors
from dpstream.evaluate.prediction import Prediction, Score, predict
from dpstream.evaluate.private_folder import open_private_folder
from dpstream.evaluate.truth import TrueStep, TrueTable, true_steps
from dpstream.evaluate.utility import Utility, association, cramers_v

__all__ = [
    "LABEL",
    "METRICS",
    "Evaluation",
    "Prediction",
    "Score",
    "StepEvaluation",
    "TrueStep",
    "TrueTable",
    "Utility",
    "WorkloadErrors",
    "association",
    "churn",
    "cramers_v",
    "evaluate_run",
    "open_private_folder",
    "predict",
    "total_variation",
    "true_steps",
    "workload_errors",
    "write_evaluation",
]
