"""What a stream of points remembers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpstream.families.points.blocks import Blocks, CellCounts
from dpstream.families.points.cell_counters import PointCells

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class PointsState:
    """What is remembered between batches. Secret, but for ``stored``, ``variance`` and ``seed``.

    Attributes:
        points: how many were read.
        level: of the last point read (-1 before ``t_0``).
        cells: the level's sparse counters.
        stored: noisy counts of finished levels for each depth from 1; public.
        variance: of one cell of ``stored``, for each depth; depends on nothing private.
        kept: codes of points by level, as long as some cells still read them.
        seed: of the places of released points; public.
        blocks: noisy counts of the open level's finished blocks; public.
        measured: what was measured while the newest points were read; public, and not kept with the state.
    """

    points: int
    level: int
    cells: PointCells
    stored: list[Floats]
    variance: list[float]
    kept: dict[int, list[Ints]]
    seed: int
    blocks: Blocks = field(default_factory=lambda: Blocks())
    measured: list[CellCounts] = field(default_factory=list)
