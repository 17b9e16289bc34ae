"""The state of a census stream, and its form as JSON and arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.core.graphical import Model
from dpstream.families.census.cohorts import Attrition, Cohort, PriorEvidence, ShapeTracker
from dpstream.families.census.totals_filter import LevelTotal, NewcomersRate, levels_of, numbers_of
from dpstream.mechanisms.table_release import pack_models, unpack_models
from dpstream.mechanisms.workload_cells import Cells

_FORMAT = 1
#: Arrays of ``PriorEvidence``.
_SEEN = ("values", "variances", "records")


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
    """JSON and arrays; models side by side, each once."""
    models: list[Model] = []

    def place(model: Model | None) -> int | None:
        if model is None:
            return None
        for index, known in enumerate(models):
            if known is model:
                return index
        models.append(model)
        return len(models) - 1

    cohorts = [[c.level, c.low, c.high, place(c.model)] for c in state.cohorts]
    latest = [place(model) for model in state.latest]
    shown, newest = [place(cohort.shown) for cohort in state.cohorts], place(state.newest)
    metas, arrays = pack_models(models)
    rate = state.newcomers
    arrays |= {
        "last": np.array(state.last, dtype=np.int64),
        "left": np.array(state.left, dtype=np.int64),
        "totals": numbers_of(state.totals),
        "counted": np.array(state.counted, dtype=np.float64).reshape(-1, 2),
        "newcomers": np.stack([rate.rates, rate.variances, rate.fits]),
        "sizes": np.array([[c.size, c.exposure] for c in state.cohorts], dtype=np.float64).reshape(-1, 2),
        "attrition/pulls": state.attrition.pulls,
        "attrition/variances": state.attrition.variances,
        "attrition/fits": state.attrition.fits,
    }
    for number, cohort in enumerate(state.cohorts):
        arrays[f"cohort/{number}/shares"] = cohort.shares
        arrays[f"cohort/{number}/variances"] = cohort.variances
    if state.seen is not None:
        arrays |= {f"seen/{name}": getattr(state.seen, name) for name in _SEEN}
    for number, tracker in enumerate(state.trackers):
        arrays |= {f"tracker/{number}/{name}": own for name, own in tracker.arrays().items()}
    meta = {
        "format": _FORMAT,
        "step": state.step,
        "cohorts": cohorts,
        "latest": latest,
        "trackers": len(state.trackers),
        "models": metas,
        "shown": shown,
        "newest": newest,
    }
    return Packed(meta, arrays, frozenset(arrays) - {"left"})


def unpack(packed: Packed, cells: Cells) -> CensusState:
    """The inverse of ``pack``.

    Errors:
        StoreFormatError, StoreDamagedError: another format, or arrays that do not fit the workload.
    """
    meta, arrays = packed.meta, packed.arrays
    if meta.get("format") != _FORMAT:
        raise StoreFormatError(
            "this is no state of a census that this version reads", where="state", allowed=f"format {_FORMAT}"
        )
    models = unpack_models(meta["models"], arrays)
    cohorts, shown = [], meta.get("shown", [None] * len(meta["cohorts"]))
    seen, newest = _seen(cells, arrays), meta.get("newest")
    for number, (level, low, high, model) in enumerate(meta["cohorts"]):
        shares, variances = (arrays[f"cohort/{number}/{name}"] for name in ("shares", "variances"))
        if len(shares) != cells.total or len(variances) != len(cells.cliques):
            raise StoreDamagedError("a cohort does not fit the workload", where="state")
        size, exposure = arrays["sizes"][number].tolist()
        also = None if shown[number] is None else models[shown[number]]
        cohorts.append(
            Cohort(level, low, high, size, shares.copy(), variances.copy(), models[model], exposure, also)
        )
    rates, variances, fits = (row.copy() for row in arrays["newcomers"])
    return CensusState(
        step=meta["step"],
        last=arrays["last"].tolist(),
        left=arrays["left"].tolist(),
        totals=levels_of(arrays["totals"]),
        counted=[(row[0], row[1]) for row in arrays["counted"].tolist()],
        newcomers=NewcomersRate(rates, variances, fits),
        attrition=Attrition(
            cells.workload.domain,
            *(arrays[f"attrition/{name}"].copy() for name in ("pulls", "variances", "fits")),
        ),
        cohorts=cohorts,
        latest=[None if index is None else models[index] for index in meta["latest"]],
        trackers=[_tracker(cells, number, arrays) for number in range(meta["trackers"])],
        seen=seen,
        newest=None if newest is None else models[newest],
    )


def _seen(cells: Cells, arrays: dict[str, NDArray[Any]]) -> PriorEvidence | None:
    if "seen/values" not in arrays:
        return None
    found = PriorEvidence(*(arrays[f"seen/{name}"].copy() for name in _SEEN))
    if len(found.values) != cells.total or len(found.records) != len(cells.cliques):
        raise StoreDamagedError("what censuses have measured does not fit the workload", where="state")
    return found


def _tracker(cells: Cells, number: int, arrays: dict[str, NDArray[Any]]) -> ShapeTracker:
    prefix = f"tracker/{number}/"
    own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    return ShapeTracker.of(cells, own)
