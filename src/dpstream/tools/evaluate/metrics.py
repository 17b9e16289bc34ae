"""Errors of a synthetic table against the truth. Evaluation only: every number here touches private data.

Notation of Kumar et al., 7.3: ``WE`` is the mean over a workload's cells of ``|q(f) - q(g)|``, divided by
``|f|`` (the text's formula lacks the division, its tables need it).

Streams with deletions: the true table is inserts minus deletes so far. A delete of a record that was never
inserted makes a true count negative; it stays negative here, because that is what a mechanism is asked to
follow. Relative errors divide by counts of at least 1 only, so negative cells are left out of ``rel_we`` and
count with a divisor of 1 in ``rel_we_floor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError

#: Of all public draws and of classifiers.
SEED: Final = 20240901
#: The errors of a marginal by the names that papers give them, and what each is.
ERRORS: Final = {
    "WE": "a cell's error / size of the table",
    "RelWE": "a filled cell's error / its count",
    "RelWEFloor": "a cell's error / its count or 1",
    "L1": "sum of the cells' errors / size of the table",
    "TV": "total variation",
}
#: Keys of ``WorkloadErrors.as_dict``, in the order in which people read them.
METRICS: Final = tuple(f"{kind}{name}" for name in ERRORS for kind in ("Avg", "Max"))


@dataclass(frozen=True)
class WorkloadErrors:
    """Errors per workload, one entry each.

    Attributes:
        we: mean cell error over the table's size.
        rel_we: mean relative error over the cells that are not empty in truth; NaN where all are.
        rel_we_floor: mean over all cells of the error divided by ``max(true count, 1)``.
        l1: summed cell error over the table's size.
        tv: total variation, each table as shares of its own size (``total_variation``); 1 where only the synthetic
            marginal is empty, NaN where the true one is.
    """

    we: NDArray[np.float64]
    rel_we: NDArray[np.float64]
    rel_we_floor: NDArray[np.float64]
    l1: NDArray[np.float64]
    tv: NDArray[np.float64]

    def as_dict(self) -> dict[str, float]:
        """Means and maxima over workloads under the names of ``METRICS``; without NaN, and NaN where every one is."""
        errors = (self.we, self.rel_we, self.rel_we_floor, self.l1, self.tv)
        known = [values[~np.isnan(values)] for values in errors]
        summaries = [
            float(summary(values)) if values.size else float("nan")
            for values in known
            for summary in (np.mean, np.max)
        ]
        return dict(zip(METRICS, summaries, strict=True))


def workload_errors(
    truth: Sequence[NDArray[np.int64]], synthetic: Sequence[NDArray[np.float64]], records: int
) -> WorkloadErrors:
    """Compare marginals, workload by workload.

    Args:
        truth: counts of the true table, one array per workload; negative where more was deleted than inserted.
        synthetic: the same of the synthetic table, in records.
        records: size of the true table.

    What is a share of an empty true table (no record, or fewer) is NaN; ``rel_we_floor`` needs no size.

    Errors:
        DataError: no workload, or arrays that do not fit each other.

    Cost: one pass over all cells.

    >>> errors = workload_errors([np.array([3, 1])], [np.array([2.0, 2.0])], 4)
    >>> errors.as_dict()["AvgWE"], errors.as_dict()["AvgL1"], errors.rel_we.round(3).tolist()
    (0.25, 0.5, [0.667])
    >>> workload_errors([np.array([4, 0])], [np.array([2.0, 2.0])], 4).rel_we_floor.tolist()
    [1.25]
    """
    size = float(records) if records >= 1 else float("nan")
    cells = np.array([table.size for table in truth], dtype=np.int64)
    if [table.size for table in synthetic] != cells.tolist() or not cells.size or not cells.all():
        raise DataError(
            "marginals differ in shape",
            where="workload_errors",
            allowed="equally large arrays",
        )
    # All workloads side by side: a pair has few cells, and a thousand steps have a few hundred pairs each.
    starts = np.concatenate([[0], np.cumsum(cells)[:-1]])
    real = np.concatenate([np.ravel(table) for table in truth]).astype(np.float64)
    made = np.concatenate([np.ravel(table) for table in synthetic]).astype(np.float64)
    difference = np.abs(real - made)
    filled = real > 0
    ratios = np.divide(difference, real, out=np.zeros_like(real), where=filled)
    counted = np.add.reduceat(filled.astype(np.int64), starts)
    relative = np.full(len(cells), np.nan)
    np.divide(np.add.reduceat(ratios, starts), counted, out=relative, where=counted > 0)
    summed = np.add.reduceat(difference, starts)
    floored = np.add.reduceat(difference / np.maximum(real, 1.0), starts)
    variation = _variation(np.maximum(real, 0.0), np.maximum(made, 0.0), starts, cells)
    return WorkloadErrors(summed / cells / size, relative, floored / cells, summed / size, variation)


def total_variation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Half the L1 distance of two tables of counts, each divided by its sum: 0 (equal) to 1 (disjoint).

    Negative counts cannot be shares and are taken as 0. NaN where a table has no positive count.

    >>> total_variation(np.array([3, 1]), np.array([1, 1]))
    0.25
    """
    first, second = np.maximum(a, 0), np.maximum(b, 0)
    if not (first.sum() > 0 and second.sum() > 0):
        return float("nan")
    return float(0.5 * np.abs(first / first.sum() - second / second.sum()).sum())


def churn(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> float:
    """Mean total variation between two releases' marginals: how much a release differs from the one before.

    Touches releases only, so it is public. NaN where a release is empty.

    >>> churn([np.array([1, 1])], [np.array([2, 0])])
    0.5
    """
    moved = np.array([total_variation(a, b) for a, b in zip(before, after, strict=True)])
    known = moved[~np.isnan(moved)]
    return float(known.mean()) if known.size else float("nan")


def cramers_v(table: NDArray[Any]) -> float:
    """Bias-corrected Cramer's V of a table of counts, shape (rows, columns): 0 (independent) to 1.

    Source: Bergsma, "A bias-correction for Cramer's V and Tschuprow's T" (2013). Empty rows and columns do
    not count; negative counts are taken as 0; what exceeds 1 (tiny tables) is cut to 1. NaN where a side
    has a single value (or the correction leaves none), and for tables of at most one record.

    >>> cramers_v(np.array([[50, 0], [0, 50]])), cramers_v(np.array([[5, 5], [0, 0]]))
    (1.0, nan)
    """
    counts = np.maximum(np.asarray(table, dtype=np.float64), 0.0)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    total, (rows, columns) = counts.sum(), counts.shape
    if total <= 1 or min(rows, columns) < 2:
        return float("nan")
    # In two steps: the product of the margins of a large table can pass what a float holds exactly.
    expected = counts.sum(axis=1)[:, None] / total * counts.sum(axis=0)[None, :]
    phi = float(((counts - expected) ** 2 / expected).sum() / total)
    corrected = max(0.0, phi - (rows - 1) * (columns - 1) / (total - 1))
    sides = [side - (side - 1) ** 2 / (total - 1) for side in (rows, columns)]
    if min(sides) <= 1:
        return float("nan")
    return float(min(1.0, np.sqrt(corrected / (min(sides) - 1))))


def _variation(
    real: NDArray[np.float64], made: NDArray[np.float64], starts: NDArray[np.int64], cells: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``total_variation`` of all workloads at once; counts are not negative."""
    shares, empty = [], []
    for counts in (real, made):
        totals = np.add.reduceat(counts, starts)
        empty.append(totals <= 0.0)
        shares.append(counts / np.repeat(np.where(totals > 0.0, totals, 1.0), cells))
    apart = 0.5 * np.add.reduceat(np.abs(shares[0] - shares[1]), starts)
    apart[empty[1]] = 1.0
    apart[empty[0]] = np.nan
    return apart
