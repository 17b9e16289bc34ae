"""Evaluation against private truth: never releasable. See README.md in this folder."""

from dpstream.evaluate.metrics import WorkloadErrors, workload_errors

__all__ = ["WorkloadErrors", "workload_errors"]
