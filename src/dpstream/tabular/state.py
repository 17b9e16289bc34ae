"""The state of a DP-STabS stream, and its form as JSON and arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.counters import CalibratedCounter, CounterState
from dpstream.graphical import Model
from dpstream.mechanism import Packed
from dpstream.tabular.cells import Cells
from dpstream.tabular.tracker import Columns, Tracker

__all__ = ["DPStabsState", "fresh_state", "pack", "unpack"]

_FORMAT = 1


@dataclass
class DPStabsState:
    """All that DP-STabS remembers. ``counters`` hold private sums: the state is secret.

    Attributes:
        step: steps done.
        total: noisy number of records (N).
        rate: smoothed noisy number of records per step, the prediction for the next one.
        counters: one vector counter per workload (C_i); ``ticks`` counts their invocations.
        measured_at: the last step at which each workload was measured (0: never).
        estimates: the counters' last outputs, all cells.
        remainder: what is booked for the steps at which a workload was not measured (r_i), all cells.
        settled: what closed strata say of all records, all cells (see ``strata``).
        settled_ticks: per workload, the sum over closed strata of ticks times squared scaling.
        sums: running sums for ``strata``, shape (3, cells).
        marks: ``sums`` at the start of the last and of the open stratum, shape (2, 3, cells).
        strata: shape (2, 3, workloads): for the last and the open stratum the records that arrived, those of
            them in steps at which the workload was measured (both predicted, public), and the ticks.
        levels, spread, score: the columns' current distributions, see ``tracker``.
        models: the models whose equal mixture is the current release (g_t).
        marginals: the release's marginals, all cells.
        kept: workloads in the model, in order of their admission.
        rebuild_at: the step at which ``kept`` is chosen anew.
    """

    step: int
    total: float
    rate: float
    counters: list[CounterState]
    ticks: NDArray[np.int64]
    measured_at: NDArray[np.int64]
    estimates: NDArray[np.int64]
    remainder: NDArray[np.float64]
    settled: NDArray[np.float64]
    settled_ticks: NDArray[np.float64]
    sums: NDArray[np.float64]
    marks: NDArray[np.float64]
    strata: NDArray[np.float64]
    levels: NDArray[np.float64]
    spread: NDArray[np.float64]
    score: NDArray[np.float64]
    models: tuple[Model, ...]
    marginals: NDArray[np.float64]
    kept: list[int]
    rebuild_at: int


def fresh_state(cells: Cells, counter: CalibratedCounter) -> DPStabsState:
    """Before the first step: nothing counted, the uniform distribution over an unknown (zero) total."""
    count = len(cells.cliques)
    levels, spread, score = Tracker.fresh(Columns(cells))
    return DPStabsState(
        step=0,
        total=0.0,
        rate=0.0,
        counters=[counter.init(int(size)) for size in cells.sizes],
        ticks=np.zeros(count, dtype=np.int64),
        measured_at=np.zeros(count, dtype=np.int64),
        estimates=np.zeros(cells.total, dtype=np.int64),
        remainder=np.zeros(cells.total),
        settled=np.zeros(cells.total),
        settled_ticks=np.zeros(count),
        sums=np.zeros((3, cells.total)),
        marks=np.zeros((2, 3, cells.total)),
        strata=np.zeros((2, 3, count)),
        levels=levels,
        spread=spread,
        score=score,
        models=(Model.uniform(cells.workload.domain, 0.0),),
        marginals=np.zeros(cells.total),
        kept=[],
        rebuild_at=1,
    )


_VECTORS = (
    "ticks",
    "measured_at",
    "estimates",
    "remainder",
    "settled",
    "settled_ticks",
    "sums",
    "marks",
    "strata",
    "levels",
    "spread",
    "score",
    "marginals",
)


def pack(state: DPStabsState) -> Packed:
    """JSON and arrays; the counters' arrays are laid one after the other, per name."""
    arrays: dict[str, NDArray[Any]] = {name: getattr(state, name) for name in _VECTORS}
    shapes: dict[str, list[list[int]]] = {}
    for name in state.counters[0]:
        column = [counter[name] for counter in state.counters]
        shapes[name] = [list(array.shape) for array in column]
        arrays[f"counter/{name}"] = np.concatenate([array.ravel() for array in column])
    models = []
    for i, model in enumerate(state.models):
        packed = model.pack()
        models.append(packed.meta)
        arrays.update({f"model/{i}/{key}": value for key, value in packed.arrays.items()})
    meta = {
        "format": _FORMAT,
        "step": state.step,
        "total": state.total,
        "rate": state.rate,
        "kept": state.kept,
        "rebuild_at": state.rebuild_at,
        "shapes": shapes,
        "models": models,
    }
    return Packed(meta, arrays)


def unpack(packed: Packed) -> DPStabsState:
    """The inverse of ``pack``."""
    meta, arrays = packed.meta, packed.arrays
    columns = {name: _cut(arrays[f"counter/{name}"], shapes) for name, shapes in meta["shapes"].items()}
    count = len(arrays["ticks"])
    models = []
    for i, model_meta in enumerate(meta["models"]):
        prefix = f"model/{i}/"
        own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
        models.append(Model.unpack(Packed(model_meta, own)))
    return DPStabsState(
        step=meta["step"],
        total=meta["total"],
        rate=meta["rate"],
        counters=[{name: columns[name][i] for name in columns} for i in range(count)],
        models=tuple(models),
        kept=list(meta["kept"]),
        rebuild_at=meta["rebuild_at"],
        **{name: arrays[name].copy() for name in _VECTORS},
    )


def _cut(flat: NDArray[Any], shapes: list[list[int]]) -> list[NDArray[Any]]:
    parts, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape, dtype=np.int64))
        parts.append(flat[start : start + size].reshape(shape).copy())
        start += size
    return parts
