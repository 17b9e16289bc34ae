"""The state of a census stream, and its form as JSON and arrays.

Trusted base: kernel (holds what a stream remembers).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpstream.core.contracts import Packed, pack_fields, unpack_fields
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.graphical import Model
from dpstream.families.census.cohorts import Attrition, Cohort, PriorEvidence, ShapeTracker
from dpstream.families.census.totals_filter import LevelTotal, NewcomersRate
from dpstream.mechanisms.workload_cells import Cells

_FORMAT = 1


@dataclass
class CensusState:
    """All that the plan remembers. Secret, because of ``left``; everything else follows from released values.

    Attributes:
        step: steps done.
        last: the last census of each level that had one.
        left: private, for each level: records of its cohorts that left since the last count.
        totals: of each level that had a census, or is next.
        counted: for each level, the sum of what its censuses counted less the counted departures since it was last
            emptied, without any model; and the variance of its noise.
        newcomers: how many come in a step.
        attrition: which values leave sooner.
        cohorts: open ones, the oldest first.
        latest: the newest cohort of each level, as a model; None before its first census.
        trackers: of each level that had a census.
        seen: what censuses have measured of each marginal; None without a prior.
        newest: the newest cohort of level 0 with the prior in it; None where the prior says nothing of it.
    """

    step: int
    last: list[int]
    left: list[int]
    totals: list[LevelTotal]
    counted: list[tuple[float, float]]
    newcomers: NewcomersRate
    attrition: Attrition
    cohorts: list[Cohort] = field(default_factory=list)
    latest: list[Model | None] = field(default_factory=list)
    trackers: list[ShapeTracker] = field(default_factory=list)
    seen: PriorEvidence | None = None
    newest: Model | None = None


def pack(state: CensusState) -> Packed:
    """JSON and arrays; each model once."""
    packed = pack_fields(state)
    return Packed(
        {**packed.meta, "format": _FORMAT}, packed.arrays, frozenset(packed.arrays) - {"state/left"}
    )


def unpack(packed: Packed, cells: Cells) -> CensusState:
    """The inverse of ``pack``.

    Errors:
        StoreFormatError, StoreDamagedError: another format, or arrays that do not fit the workload.
    """
    if packed.meta.get("format") != _FORMAT:
        raise StoreFormatError(
            "this is no state of a census that this version reads", where="state", allowed=f"format {_FORMAT}"
        )
    state = unpack_fields(CensusState, packed, cells=cells, domain=cells.workload.domain)
    shape = (cells.total,), (len(cells.cliques),)
    described = [(cohort.shares.shape, cohort.variances.shape) for cohort in state.cohorts]
    if state.seen is not None:
        described += [
            (state.seen.values.shape, array.shape) for array in (state.seen.variances, state.seen.records)
        ]
    fresh, names = ShapeTracker.fresh(cells), ("values", "variances", "steps", "fits")
    fits = all(
        getattr(tracker, name).shape == getattr(fresh, name).shape
        for tracker in state.trackers
        for name in names
    )
    if not fits or any(shapes != shape for shapes in described):
        raise StoreDamagedError("what censuses have measured does not fit the workload", where="state")
    return state
