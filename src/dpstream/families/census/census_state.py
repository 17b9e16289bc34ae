"""The state of a census stream, and its form as JSON and arrays.

Trusted base: kernel (holds what a stream remembers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpstream.core.contracts import Packed, pack_fields, unpack_fields
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.graphical import Model
from dpstream.families.census.cohorts import Attrition, Cohort, PriorEvidence, ShapeTracker
from dpstream.families.census.totals_filter import LevelTotal, NewcomersRate
from dpstream.mechanisms.workload_cells import Cells

_FORMAT = 1


@dataclass
class Level:
    """The book of a level that had a census, or is next. Public.

    Attributes:
        total: how many records it has.
        tracker: what they look like.
        latest: its newest cohort, as a model; None before its first census.
    """

    total: LevelTotal
    tracker: ShapeTracker
    latest: Model | None = None


@dataclass
class CensusState:
    """All that the plan remembers. Secret, because of ``left``; everything else follows from released values.

    Attributes:
        attrition: which values leave sooner.
        seen: what censuses have measured of each marginal; None without a prior.
        step: steps done.
        last: the last census of each level that had one.
        left: private, for each level: records of its cohorts that left since the last count.
        levels: the book of each.
        newcomers: how many come in a step.
        cohorts: open ones, the oldest first.
        newest: the newest cohort of level 0 with the prior in it; None where the prior says nothing of it.
    """

    attrition: Attrition
    seen: PriorEvidence | None = None
    step: int = 0
    last: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    newcomers: NewcomersRate = field(default_factory=NewcomersRate)
    cohorts: list[Cohort] = field(default_factory=list)
    newest: Model | None = None

    @property
    def hazard(self) -> float:
        """The rate at which newcomers leave."""
        return math.exp(self.levels[0].total.log_hazard)


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
    fresh, names = ShapeTracker.fresh(cells), ("values", "variances", "steps", "fits")
    whole, marginals = (cells.total,), (len(cells.cliques),)
    fits = [
        getattr(book.tracker, name).shape == getattr(fresh, name).shape
        for book in state.levels
        for name in names
    ]
    fits += [cohort.shares.shape == whole and cohort.variances.shape == marginals for cohort in state.cohorts]
    if state.seen is not None:
        seen = state.seen
        fits.append(seen.values.shape == whole and seen.variances.shape == seen.records.shape == marginals)
    if not all(fits):
        raise StoreDamagedError("what censuses have measured does not fit the workload", where="state")
    return state
