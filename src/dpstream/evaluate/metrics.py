"""Errors of a synthetic table against the truth. Evaluation only: every number here touches private data.

Notation of Kumar et al., 7.3: ``WE`` is the mean over a workload's cells of ``|q(f) - q(g)|``, divided by
``|f|`` (the text's formula lacks the division, its tables need it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["WorkloadErrors", "workload_errors"]


@dataclass(frozen=True)
class WorkloadErrors:
    """Per workload: ``we`` (mean cell error over the table's size), ``l1`` (summed cell error over it) and
    ``rel_we`` (mean relative error over the cells that are not empty in truth; NaN where all are)."""

    we: NDArray[np.float64]
    l1: NDArray[np.float64]
    rel_we: NDArray[np.float64]

    @property
    def avg_we(self) -> float:
        """Mean of WE over workloads."""
        return float(self.we.mean())

    @property
    def max_we(self) -> float:
        """Largest WE."""
        return float(self.we.max())

    @property
    def avg_l1(self) -> float:
        """Mean of L1 over workloads."""
        return float(self.l1.mean())


def workload_errors(
    truth: Sequence[NDArray[np.int64]], synthetic: Sequence[NDArray[np.float64]], records: int
) -> WorkloadErrors:
    """Compare marginals, workload by workload.

    Args:
        truth: counts of the true table, one flat array per workload.
        synthetic: the same of the synthetic table, in records.
        records: size of the true table; at least 1.

    >>> errors = workload_errors([np.array([3, 1])], [np.array([2.0, 2.0])], 4)
    >>> errors.avg_we, errors.avg_l1, errors.rel_we.round(3).tolist()
    (0.25, 0.5, [0.667])
    """
    we, l1, relative = [], [], []
    for real, made in zip(truth, synthetic, strict=True):
        difference = np.abs(real - made)
        we.append(difference.mean() / records)
        l1.append(difference.sum() / records)
        filled = real > 0
        relative.append(float((difference[filled] / real[filled]).mean()) if filled.any() else float("nan"))
    return WorkloadErrors(np.array(we), np.array(l1), np.array(relative))
