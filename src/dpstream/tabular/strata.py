"""From the steps at which a workload was measured to all steps (public post-processing).

A workload is measured at some steps only. Two things carry what its counter says of those steps to all of them:

* **Strata of time.** A stratum closes after ``STRATUM_TICKS`` measurements, and inside it the measured steps stand
  for the others in proportion to the (predicted) arrivals. Selection prefers workloads that the model explains
  badly, so measurements come in bursts; one factor for the whole past would let a burst speak for times that
  looked different. The last closed stratum stays together with the open one, so that there is enough to scale.
* **A difference estimator.** What the columns' own current distributions predict for a workload
  (``tracker``) is added up over all steps, and only the difference between measurement and prediction is scaled.
  A change that other measurements have seen is then not lost because this workload was not measured just then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.tabular.cells import Cells
from dpstream.tabular.state import DPStabsState

__all__ = ["STRATUM_TICKS", "arrive", "close_full", "effective_ticks", "factors", "scaled", "tick"]

#: Few enough to follow drift, enough that the scaling factor of a stratum is not mostly chance.
STRATUM_TICKS = 8

_ROWS, _COVERED, _TICKS = 0, 1, 2
#: Rows of ``sums`` and ``marks``: the counter's output; what was predicted for all steps; for the measured ones.
_COUNTED, _PREDICTED, _EXPLAINED = 0, 1, 2


def arrive(state: DPStabsState, expected: float, prediction: NDArray[np.float64]) -> None:
    """A step begins: about ``expected`` records arrive for every workload, looking like ``prediction``."""
    state.strata[1, _ROWS] += expected
    state.sums[_PREDICTED] += prediction


def tick(
    state: DPStabsState, cells: Cells, index: int, expected: float, prediction: NDArray[np.float64]
) -> None:
    """Workload ``index`` is measured at this step; ``estimates`` already holds the counter's output."""
    part = cells.part(index)
    state.strata[1, _COVERED, index] += expected
    state.strata[1, _TICKS, index] += 1
    state.sums[_COUNTED, part] = state.estimates[part]
    state.sums[_EXPLAINED, part] += prediction[part]


def close_full(state: DPStabsState, cells: Cells, chosen: list[int]) -> None:
    """Close the open stratum of every workload that has enough measurements; settle the one before it."""
    for i in chosen:
        if state.strata[1, _TICKS, i] < STRATUM_TICKS:
            continue
        part = cells.part(i)
        rows, covered, ticks = state.strata[0, :, i]
        if ticks > 0:
            factor = rows / covered
            counted, predicted, explained = state.marks[1, :, part] - state.marks[0, :, part]
            state.settled[part] += predicted + factor * (counted - explained)
            state.settled_ticks[i] += factor**2 * ticks
        state.marks[0, :, part] = state.marks[1, :, part]
        state.marks[1, :, part] = state.sums[:, part]
        state.strata[0, :, i] = state.strata[1, :, i]
        state.strata[1, :, i] = 0.0


def factors(state: DPStabsState) -> NDArray[np.float64]:
    """Per workload, what the last two strata are scaled by; 0 where nothing was measured in them."""
    rows, covered, _ = state.strata.sum(axis=0)
    return np.asarray(np.divide(rows, covered, out=np.zeros_like(rows), where=covered > 0))


def scaled(state: DPStabsState, cells: Cells, factor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every workload's marginal over all records, all cells (the prediction where it was never measured)."""
    spread = np.repeat(factor, cells.sizes)
    counted, predicted, explained = state.sums - state.marks[0]
    return np.asarray(state.settled + predicted + spread * (counted - explained))


def effective_ticks(state: DPStabsState, factor: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ticks weighted by squared scaling: times the variance of one tick, the variance of ``scaled``."""
    recent: NDArray[np.float64] = state.strata[:, _TICKS].sum(axis=0)
    return np.asarray(state.settled_ticks + factor**2 * recent)
