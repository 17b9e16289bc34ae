"""The state of online points as arrays and JSON, and back: continues exactly, and is as small as that allows."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import StoreDamagedError, StoreFormatError
from dpstream.families.points.blocks import Blocks
from dpstream.families.points.cell_counters import PointCells
from dpstream.families.points.points_state import PointsState

if TYPE_CHECKING:
    from dpstream.core.counters import CounterState
    from dpstream.families.points.online import OnlinePointsPlan

_FORMAT = 1
#: The arrays of sums, ticks and variances that each depth has in the open level's blocks.
_BLOCK_SUMS = ("sums", "pooled", "newest")
_BLOCK_TICKS = ("known", "lengths")
_BLOCK_VARIANCES = ("variance", "bounds", "spread")
_BLOCK_LENGTHS = (("known", "sums", "pooled", "variance", "bounds"), ("newest", "lengths", "spread"))
_CELLS = ("total", "pending", "limit", "floor", "due", "counted")

Ints = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]


def pack_points(state: PointsState) -> Packed:
    """The whole state as arrays and JSON; secret.

    Whole numbers take as few bytes as the largest of them needs. The queue is not kept: ``due`` tells what is in it.
    """
    cells, blocks = state.cells, state.blocks
    meta = {
        "format": _FORMAT,
        "points": state.points,
        "level": state.level,
        "seed": state.seed,
        "cells": {"depth": cells.depth, "end": cells.end},
        "stored": len(state.stored),
        "kept": sorted(state.kept),
        "blocks": {
            "ends": list(blocks.ends),
            "done": blocks.done,
            **{name: len(getattr(blocks, name)) for name in _BLOCK_SUMS},
        },
    }
    arrays: Arrays = {f"cells/{name}": small(getattr(cells, name)) for name in _CELLS}
    arrays |= _pack_segments(cells.segments)
    arrays |= {f"stored/{i}": one for i, one in enumerate(state.stored)}
    arrays["variance"] = np.array(state.variance, np.float64)
    for level, parts in state.kept.items():
        codes, times = np.unique(np.concatenate(parts), return_counts=True)
        arrays |= {f"kept/{level}/codes": small(codes), f"kept/{level}/times": small(times)}
    for name in _BLOCK_SUMS:
        arrays |= {f"blocks/{name}/{i}": one for i, one in enumerate(getattr(blocks, name))}
    arrays |= {f"blocks/{name}": np.array(getattr(blocks, name), np.int64) for name in _BLOCK_TICKS}
    arrays |= {f"blocks/{name}": np.array(getattr(blocks, name), np.float64) for name in _BLOCK_VARIANCES}
    arrays["blocks/counted"] = small(blocks.counted)
    return Packed(meta, arrays)


def unpack_points(packed: Packed, plan: OnlinePointsPlan) -> PointsState:
    """The inverse.

    Errors:
        StoreFormatError: written by another version. StoreDamagedError: parts that do not fit each other or the plan.
    """
    meta, arrays = packed.meta, packed.arrays
    if meta.get("format") != _FORMAT:
        raise StoreFormatError(
            f"the points were packed in format {meta.get('format')!r}",
            where="state",
            allowed=f"format {_FORMAT}",
        )
    try:
        cells = _unpack_cells(meta, arrays, plan)
        blocks = _unpack_blocks(meta["blocks"], arrays)
        stored = [arrays[f"stored/{i}"] for i in range(meta["stored"])]
        variance = arrays["variance"].tolist()
        kept = {
            int(level): [np.repeat(wide(arrays[f"kept/{level}/codes"]), wide(arrays[f"kept/{level}/times"]))]
            for level in meta["kept"]
        }
        state = PointsState(
            int(meta["points"]), int(meta["level"]), cells, stored, variance, kept, int(meta["seed"]), blocks
        )
    except (KeyError, TypeError, ValueError):
        raise StoreDamagedError("the state of the points cannot be read", where="state") from None
    depths_fit = all(len(one) == 2 << depth for depth, one in enumerate(stored))
    if not depths_fit or len(variance) != len(stored) or cells.depth > len(stored):
        raise StoreDamagedError("the stored cells of the points do not fit each other", where="state")
    return state


def small(values: Ints) -> NDArray[Any]:
    """The same numbers in the smallest type that holds them.

    >>> small(np.array([3, -4], np.int64)).dtype.name
    'int8'
    """
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def wide(values: NDArray[Any]) -> Ints:
    """The inverse of ``small``."""
    return values.astype(np.int64)


def _pack_segments(segments: Mapping[int, CounterState]) -> Arrays:
    """Counters of segments, side by side: which cells have one, and each of their arrays with its lengths."""
    which = sorted(segments)
    packed: Arrays = {"segments": small(np.array(which, np.int64))}
    for name in segments[which[0]] if which else ():
        parts = [segments[cell][name] for cell in which]
        packed[f"segment/{name}/rows"] = small(np.array([len(part) for part in parts], np.int64))
        packed[f"segment/{name}"] = small(np.concatenate([part.ravel() for part in parts]))
    return packed


def _unpack_segments(arrays: Arrays, plan: OnlinePointsPlan, level: int) -> dict[int, CounterState]:
    which = wide(arrays["segments"]).tolist()
    states: dict[int, CounterState] = {cell: {} for cell in which}
    if not which:
        return states
    names = [n.split("/")[1] for n in arrays if n.startswith("segment/") and n.endswith("/rows")]
    for name in names:
        rows, values, at = wide(arrays[f"segment/{name}/rows"]), wide(arrays[f"segment/{name}"]), 0
        for cell, count in zip(which, rows.tolist(), strict=True):
            counter = plan.rule(cell.bit_length() - 1, level).segments
            like = counter.init(1)[name]
            states[cell][name] = values[at : at + count].reshape(-1, *like.shape[1:]).copy()
            at += count
    for cell, state in states.items():
        plan.rule(cell.bit_length() - 1, level).segments.check_state(state, 1)
    return states


def _unpack_cells(meta: dict[str, Any], arrays: Arrays, plan: OnlinePointsPlan) -> PointCells:
    depth, end, level = int(meta["cells"]["depth"]), int(meta["cells"]["end"]), int(meta["level"])
    own = {name: wide(arrays[f"cells/{name}"]) for name in _CELLS}
    if any(array.shape != (2 << depth,) for array in own.values()):
        raise ValueError("cells")
    rules = tuple(plan.rule(j, level) for j in range(1, depth + 1))
    waiting = np.flatnonzero(own["due"])
    queue = list(zip(own["due"][waiting].tolist(), waiting.tolist(), strict=True))
    heapq.heapify(queue)
    segments = _unpack_segments(arrays, plan, level)
    total, pending, limit, floor, due, counted = (own[name] for name in _CELLS)
    return PointCells(depth, end, rules, total, pending, limit, floor, due, counted, segments, queue)


def _unpack_blocks(meta: dict[str, Any], arrays: Arrays) -> Blocks:
    ends, counted = tuple(int(end) for end in meta["ends"]), wide(arrays["blocks/counted"])
    blocks = Blocks(ends, int(meta["done"]), counted=counted)
    for name in _BLOCK_SUMS:
        setattr(blocks, name, [arrays[f"blocks/{name}/{i}"] for i in range(meta[name])])
    for name in (*_BLOCK_TICKS, *_BLOCK_VARIANCES):
        setattr(blocks, name, arrays[f"blocks/{name}"].tolist())
    lengths = [{len(getattr(blocks, name)) for name in names} for names in _BLOCK_LENGTHS]
    if any(len(one) > 1 for one in lengths) or len(counted) != 2 << len(blocks.sums):
        raise ValueError("blocks")
    return blocks
