"""The state of a DP-STabS stream, and its form as JSON and arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, StartTable
from dpstream.core.counters import CalibratedCounter, CounterState
from dpstream.core.graphical import Model
from dpstream.families.tabular.accuracy import TotalNoise
from dpstream.families.tabular.table_release import pack_models, unpack_models
from dpstream.families.tabular.workload_cells import Cells

_FORMAT = 1


@dataclass
class Side:
    """What is remembered of one kind of events: all of them, or the inserts, or the deletes.

    Attributes:
        total: noisy number of these events so far.
        rate: smoothed noisy number per step, the prediction for the next one.
        counters: one vector counter per workload (C_i); they hold private sums.
        ticks: their invocations.
        estimates: their last outputs, all cells.
        remainder: what is booked for the steps at which a workload was not measured (r_i), all cells.
        batch: the model of recent batches; only its distribution matters.
        noise: what is known of the noise in ``total``; None for a counter that does not tell, and in states that
            were begun by versions which did not keep it.
    """

    total: float
    rate: float
    counters: list[CounterState]
    ticks: NDArray[np.int64]
    estimates: NDArray[np.int64]
    remainder: NDArray[np.float64]
    batch: Model
    noise: TotalNoise | None

    @property
    def booked(self) -> NDArray[np.float64]:
        """``m_i = C_i + r_i`` of every workload, all cells."""
        return self.estimates + self.remainder


@dataclass
class DPStabsState:
    """All that DP-STabS remembers. The sides hold private sums: the state is secret.

    Attributes:
        step: steps done.
        sides: one, or with ``deletions`` two: inserts and deletes.
        models: the models whose equal mixture is the current release (g_t).
        marginals: the release's marginals, all cells (used by the literal reading).
        kept: workloads in the table's model (used by the predicted reading).
        rebuild_at: the step at which ``kept`` is chosen anew.
        with_base: whether the stream began with another one's table, so that counters hold only what came since.
        base_variance: of that table's number of records; None where it is not known.
    """

    step: int
    sides: tuple[Side, ...]
    models: tuple[Model, ...]
    marginals: NDArray[np.float64]
    kept: list[int]
    rebuild_at: int
    with_base: bool = False
    base_variance: float | None = 0.0

    @property
    def total(self) -> float:
        """Noisy number of records: what came less what went."""
        return self.sides[0].total - sum(side.total for side in self.sides[1:])

    @property
    def passed(self) -> tuple[float, float] | None:
        """Noisy numbers of what came and what went; None where they are not followed apart."""
        return (self.sides[0].total, self.sides[1].total) if len(self.sides) == 2 else None

    @property
    def estimates(self) -> NDArray[np.int64]:
        """The counters' last outputs, all cells: of the inserts less of the deletes."""
        values = self.sides[0].estimates.copy()
        for side in self.sides[1:]:
            values -= side.estimates
        return values

    @property
    def booked(self) -> NDArray[np.float64]:
        """``m_i`` of the table, all cells: of the inserts less of the deletes."""
        values = self.sides[0].booked
        for side in self.sides[1:]:
            values = values - side.booked
        return values


def fresh_state(cells: Cells, counter: CalibratedCounter, sides: int) -> DPStabsState:
    """The state before the first step: nothing is counted; the model is uniform over an unknown (zero) total."""
    domain = cells.workload.domain
    return DPStabsState(
        step=0,
        sides=tuple(_fresh_side(cells, counter) for _ in range(sides)),
        models=(Model.uniform(domain, 0.0),),
        marginals=np.zeros(cells.total),
        kept=[],
        rebuild_at=1,
    )


def start_with(state: DPStabsState, base: StartTable, marginals: NDArray[np.float64]) -> None:
    """Book a public table before the first step, as something that came and was not measured (``r_i``).

    Args:
        marginals: the table's, all cells.
    """
    side = state.sides[0]
    side.total, side.remainder = base.total, marginals
    state.with_base = True
    state.base_variance = None if base.total_error is None else base.total_error**2


def _fresh_side(cells: Cells, counter: CalibratedCounter) -> Side:
    return Side(
        total=0.0,
        rate=0.0,
        counters=[counter.init(int(size)) for size in cells.sizes],
        ticks=np.zeros(len(cells.cliques), dtype=np.int64),
        estimates=np.zeros(cells.total, dtype=np.int64),
        remainder=np.zeros(cells.total),
        batch=Model.uniform(cells.workload.domain, 1.0),
        noise=TotalNoise.fresh(counter, cells.sizes),
    )


_VECTORS = ("ticks", "estimates", "remainder")


def pack(state: DPStabsState) -> Packed:
    """The state as JSON and arrays; the counters' arrays of one name stand one after the other."""
    arrays: dict[str, NDArray[Any]] = {"marginals": state.marginals}
    sides = []
    for number, side in enumerate(state.sides):
        arrays.update({f"side/{number}/{name}": getattr(side, name) for name in _VECTORS})
        shapes: dict[str, list[list[int]]] = {}
        for name in side.counters[0]:
            column = [counter[name] for counter in side.counters]
            shapes[name] = [list(array.shape) for array in column]
            arrays[f"side/{number}/counter/{name}"] = np.concatenate([array.ravel() for array in column])
        own: dict[str, Any] = {"total": side.total, "rate": side.rate, "shapes": shapes}
        if side.noise is not None:
            own["settled"] = side.noise.settled
            arrays[f"side/{number}/open"] = side.noise.open
        sides.append(own)
    models, model_arrays = pack_models((*(side.batch for side in state.sides), *state.models))
    arrays.update(model_arrays)
    meta = {
        "format": _FORMAT,
        "step": state.step,
        "sides": sides,
        "kept": state.kept,
        "rebuild_at": state.rebuild_at,
        "models": models,
    }
    if state.with_base:
        meta["base"] = {"variance": state.base_variance}
    return Packed(meta, arrays)


def unpack(packed: Packed, cells: Cells, counter: CalibratedCounter) -> DPStabsState:
    """The inverse of ``pack``; StoreDamagedError if a counter's arrays do not fit the counter."""
    meta, arrays = packed.meta, packed.arrays
    models = unpack_models(meta["models"], arrays)
    sides = []
    for number, own in enumerate(meta["sides"]):
        prefix = f"side/{number}/"
        columns = {name: _cut(arrays[f"{prefix}counter/{name}"], s) for name, s in own["shapes"].items()}
        counters = [{name: columns[name][i] for name in columns} for i in range(len(cells.cliques))]
        for state, size in zip(counters, cells.sizes, strict=True):
            counter.check_state(state, int(size))
        vectors = {name: arrays[prefix + name].copy() for name in _VECTORS}
        noise = _unpack_noise(own, arrays.get(f"{prefix}open"), cells, counter)
        sides.append(Side(own["total"], own["rate"], counters, **vectors, batch=models[number], noise=noise))
    return DPStabsState(
        step=meta["step"],
        sides=tuple(sides),
        models=tuple(models[len(sides) :]),
        marginals=arrays["marginals"].copy(),
        kept=list(meta["kept"]),
        rebuild_at=meta["rebuild_at"],
        with_base="base" in meta,
        base_variance=meta["base"]["variance"] if "base" in meta else 0.0,
    )


def _unpack_noise(
    own: dict[str, Any], still_open: NDArray[Any] | None, cells: Cells, counter: CalibratedCounter
) -> TotalNoise | None:
    """The noise's bookkeeping; None for a state that began without it, since it cannot be made up afterwards."""
    noise = TotalNoise.fresh(counter, cells.sizes)
    if noise is None or still_open is None:
        return None
    noise.settled, noise.open = own["settled"], still_open.astype(np.float64)
    return noise


def _cut(flat: NDArray[Any], shapes: list[list[int]]) -> list[NDArray[Any]]:
    parts, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape, dtype=np.int64))
        parts.append(flat[start : start + size].reshape(shape).copy())
        start += size
    return parts
