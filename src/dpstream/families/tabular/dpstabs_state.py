"""The state of a DP-STabS stream.

Trusted base: kernel (holds exact sums).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpstream.core.contracts import Packed, unpack_fields
from dpstream.core.counters import CalibratedCounter, CounterState
from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Model
from dpstream.families.tabular.dpstabs_book import DPStabsBook, PublicSide, TotalNoise
from dpstream.mechanisms.workload_cells import Cells


@dataclass
class DpstabsSide(PublicSide):
    """The same, and one vector counter per workload (C_i); they hold private sums."""

    counters: list[CounterState]


@dataclass
class DPStabsState(DPStabsBook):
    """All that DP-STabS remembers. The sides hold private sums: the state is secret."""

    sides: tuple[DpstabsSide, ...]


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


def _fresh_side(cells: Cells, counter: CalibratedCounter) -> DpstabsSide:
    return DpstabsSide(
        total=0.0,
        rate=0.0,
        counters=[counter.init(int(size)) for size in cells.sizes],
        ticks=np.zeros(len(cells.cliques), dtype=np.int64),
        estimates=np.zeros(cells.total, dtype=np.int64),
        remainder=np.zeros(cells.total),
        batch=Model.uniform(cells.workload.domain, 1.0),
        noise=TotalNoise.fresh(counter, cells.sizes),
    )


def unpack(packed: Packed, cells: Cells, counter: CalibratedCounter) -> DPStabsState:
    """The inverse of ``pack_fields``; StoreDamagedError if the counters' arrays do not fit the counter."""
    state = unpack_fields(DPStabsState, packed, counter=counter, sizes=cells.sizes)
    for side in state.sides:
        vectors = len(side.estimates), len(side.remainder), len(side.ticks), len(side.counters)
        if vectors != (cells.total, cells.total, len(cells.cliques), len(cells.cliques)):
            raise StoreDamagedError("the counts of a side do not fit the workload", where="state")
        for arrays, size in zip(side.counters, cells.sizes, strict=True):
            counter.check_state(arrays, int(size))
    return state
