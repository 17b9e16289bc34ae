"""The noisy sums of the open level: it is cut into blocks, and each arrival is in one block of each depth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness
from dpstream.families.points.cell_counters import PointCells
from dpstream.families.points.cell_schedule import Schedule
from dpstream.families.points.consistency import pool

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def noisy(exact: Ints, noise: DiscreteLaplace, randomness: Randomness) -> Floats:
    """Whole numbers as floats: they stay far below 2^53."""
    return randomness.measure(exact, noise).astype(np.float64)


@dataclass(frozen=True)
class CellCounts:
    """Noisy counts of all cells of one depth, as measured; public.

    Attributes:
        depth: of the cells; ``values`` are in the order of their addresses.
        first, last: the ticks of the points that are counted.
        noise: of each value, drawn independently.
    """

    depth: int
    first: int
    last: int
    values: Floats
    noise: DiscreteLaplace


@dataclass
class Blocks:
    """Finished blocks of the open level. Lists have one entry for each depth from 1. Public but for ``counted``.

    Attributes:
        ends: last ticks of the shortest blocks, those of depth 1; the last one ends with the level.
        done: how many of them are finished.
        known: the tick up to which the depth's blocks are finished.
        sums: noisy counts of all finished blocks together.
        variance: of one cell of ``sums``.
        pooled: ``sums``, improved by those of the other depths.
        bounds: of the variance of one cell of ``pooled``.
        newest: the last finished block alone, that of an earlier level while there is none.
        lengths: its ticks.
        spread: its variance.
        counted: exact totals of the level at the end of the depth's last block, in heap order; secret.
    """

    ends: tuple[int, ...] = ()
    done: int = 0
    known: list[int] = field(default_factory=list)
    sums: list[Floats] = field(default_factory=list)
    variance: list[float] = field(default_factory=list)
    pooled: list[Floats] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    newest: list[Floats] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    counted: Ints = field(default_factory=lambda: np.zeros(2, np.int64))

    @classmethod
    def begin(cls, schedule: Schedule, level: int, before: Blocks) -> Blocks:
        """No block is finished yet; what was newest still is."""
        depth, start = schedule.depth(level), schedule.start(level) - 1
        sums = [np.zeros(1 << j) for j in range(1, depth + 1)]
        return cls(
            schedule.block_ends(level),
            0,
            [start] * depth,
            sums,
            [0.0] * depth,
            list(sums),
            [0.0] * depth,
            before.newest,
            before.lengths,
            before.spread,
            np.zeros(2 << depth, np.int64),
        )

    def end(
        self, cells: PointCells, schedule: Schedule, level: int, randomness: Randomness
    ) -> list[CellCounts]:
        """The shortest blocks that are open end now, and those of deeper cells that end with them: their sums."""
        tick, begun = self.ends[self.done], schedule.start(level) - 1
        self.done += 1
        ending, measured = 0, list[CellCounts]()
        for depth, rule in enumerate(cells.rules, start=1):
            if self.done % (len(self.ends) // schedule.blocks(depth, level)):
                break
            at = slice(1 << depth, 2 << depth)
            block = noisy(cells.total[at] - self.counted[at], rule.block, randomness)
            self.counted[at] = cells.total[at]
            measured.append(CellCounts(depth, self.known[depth - 1] + 1, tick, block, rule.block))
            self._add(depth - 1, block, rule.block.variance, tick)
            ending = depth
        pooled, bounds = pool(self.sums[:ending], self.variance[:ending], float(tick - begun))
        self.pooled[:ending], self.bounds[:ending] = pooled, bounds
        return measured

    def _add(self, i: int, block: Floats, variance: float, tick: int) -> None:
        self.sums[i] = self.sums[i] + block
        self.variance[i] += variance
        if i == len(self.newest):
            self.newest.append(block)
            self.lengths.append(0)
            self.spread.append(0.0)
        self.newest[i], self.lengths[i], self.spread[i] = block, tick - self.known[i], variance
        self.known[i] = tick
