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
from dpstream.tabular.synthesis import pack_models, unpack_models

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
        estimates: the counters' last outputs, all cells.
        remainder: what is booked for the steps at which a workload was not measured (r_i), all cells.
        batch: the model of recent batches (one record in total).
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
    estimates: NDArray[np.int64]
    remainder: NDArray[np.float64]
    batch: Model
    models: tuple[Model, ...]
    marginals: NDArray[np.float64]
    kept: list[int]
    rebuild_at: int


def fresh_state(cells: Cells, counter: CalibratedCounter) -> DPStabsState:
    """Before the first step: nothing counted, the uniform distribution over an unknown (zero) total."""
    count = len(cells.cliques)
    return DPStabsState(
        step=0,
        total=0.0,
        rate=0.0,
        counters=[counter.init(int(size)) for size in cells.sizes],
        ticks=np.zeros(count, dtype=np.int64),
        estimates=np.zeros(cells.total, dtype=np.int64),
        remainder=np.zeros(cells.total),
        batch=Model.uniform(cells.workload.domain, 1.0),
        models=(Model.uniform(cells.workload.domain, 0.0),),
        marginals=np.zeros(cells.total),
        kept=[],
        rebuild_at=1,
    )


_VECTORS = (
    "ticks",
    "estimates",
    "remainder",
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
    models, model_arrays = pack_models((state.batch, *state.models))
    arrays.update(model_arrays)
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
    models = unpack_models(meta["models"], arrays)
    return DPStabsState(
        step=meta["step"],
        total=meta["total"],
        rate=meta["rate"],
        counters=[{name: columns[name][i] for name in columns} for i in range(count)],
        batch=models[0],
        models=tuple(models[1:]),
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
