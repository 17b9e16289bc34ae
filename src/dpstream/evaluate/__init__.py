"""Evaluation against private truth: never releasable. See README.md in this folder."""

from dpstream.evaluate.metrics import METRICS, WorkloadErrors, churn, total_variation, workload_errors
from dpstream.evaluate.truth import TrueStep, TrueTable, true_steps

__all__ = [
    "METRICS",
    "TrueStep",
    "TrueTable",
    "WorkloadErrors",
    "churn",
    "total_variation",
    "true_steps",
    "workload_errors",
]
