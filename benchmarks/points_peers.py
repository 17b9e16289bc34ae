"""Streams of points and peers of the online synthesizer, for ``points_w1``; benchmarks only.

PHDStream: Kumar, Strohmer and Vershynin, "An Algorithm for Streaming Differentially Private Data" (2024), rebuilt from
its public description. Points come in batches. At each batch half of the budget pays a PrivTree run (Zhang, Xiao and
Xie 2016) over the batch and what was released before: a cell of depth ``j`` is split where
``max(new + released - j delta, theta - delta) + Laplace(lambda) > theta``, with fanout 2, ``lambda = 3/(epsilon/2)``,
``delta = lambda ln 2`` and ``theta = 0``; where it is not, its cells below are merged into it. Half pays the counters:
each leaf counts the batch's points in it by an unbounded block counter (Algorithm 4 of the same authors), which rests
while the cell is no leaf. A cell's released count is its own counter, half of what its parent holds from its time as a
leaf (and so on upwards), and what the counters below it hold. Here, under the same guarantee as ours:

* a replaced point is two changes, so all of it runs at ``epsilon/2``;
* noise is integer noise of the same scales; ``t`` is public, so the leaves' counts (clipped at 0) are scaled to ``t``;
* batches of 1,000 points. The description leaves the size open; each batch pays noise in each leaf.
"""

from __future__ import annotations

import gzip
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CounterState, UnboundedBlockCounter
from dpstream.core.privacy import DiscreteLaplace, Event, PureDP, Randomness
from dpstream.families.points.estimates import Splits
from dpstream.families.points.pooling import pool
from dpstream_lab.audits.points_audit import cube_cells, cube_points

Floats = NDArray[np.float64]

#: Streams by whose joint mean the default's constants were chosen, and streams that were only looked at afterwards.
TUNED = ("uniform", "clustered", "moving", "ring", "towns", "heavy", "line", "fractal")
UNSEEN = ("evictions", "spiral", "checkers", "turns")


def stream(kind: str, n: int, d: int, seed: int) -> Floats:
    """Points one after the other, in the unit cube; ``evictions`` are real, and at most 88,412.

    ``spiral`` is for at most three dimensions.
    """
    g = np.random.default_rng(seed)
    if kind == "evictions":
        return evictions(d)[:n]
    if kind == "uniform":
        return g.random((n, d))
    if kind == "clustered":
        centres = g.random((5, d))
        return np.clip(centres[g.integers(0, 5, n)] + 0.03 * g.standard_normal((n, d)), 0.0, 1.0)
    if kind == "moving":
        return np.clip(np.linspace(0.1, 0.9, n)[:, None] + 0.05 * g.standard_normal((n, d)), 0.0, 1.0)
    if kind == "ring":
        way: Floats = g.standard_normal((n, d))
        way /= np.linalg.norm(way, axis=1)[:, None]
        return np.clip(0.5 + 0.35 * way + 0.01 * g.standard_normal((n, d)), 0.0, 1.0)
    if kind == "towns":
        centres, sizes = g.random((50, d)), g.dirichlet(np.ones(50))
        return np.clip(centres[g.choice(50, n, p=sizes)] + 0.008 * g.standard_normal((n, d)), 0.0, 1.0)
    if kind == "heavy":
        far = 0.5 + 0.02 * g.standard_t(1.5, (4 * n, d))
        return far[((far >= 0.0) & (far <= 1.0)).all(axis=1)][:n]
    places: Floats
    if kind == "line":
        places = g.random((n, d))
        places[:, 0] = np.clip(np.linspace(0.05, 0.95, n) + 0.01 * g.standard_normal(n), 0.0, 1.0)
        return places
    if kind == "spiral":
        angle = 6.0 * np.pi * np.sqrt(g.random(n))
        arm = np.stack([np.cos(angle), np.sin(angle), np.cos(2.0 * angle)], axis=1)[:, :d]
        winding: Floats = 0.5 + 0.025 * angle[:, None] * arm + 0.005 * g.standard_normal((n, d))
        return np.clip(winding, 0.0, 1.0)
    if kind == "checkers":
        cells = g.integers(0, 7, (2 * n, d))
        black: Floats = ((cells + g.random((2 * n, d))) / 7.0)[cells.sum(axis=1) % 2 == 0]
        return black[:n]
    if kind == "turns":
        # A crowd that is at one of two places, in turns of 7,000 points.
        second = (np.arange(n) // 7000 % 2)[:, None]
        crowd: Floats = 0.22 + 0.51 * second + 0.06 * g.standard_normal((n, d))
        return np.clip(crowd, 0.0, 1.0)
    assert kind == "fractal"
    dust = np.zeros((n, d))
    for k in range(1, 20):
        dust += 2.0 * g.integers(0, 2, (n, d)) * 3.0**-k
    return dust


def evictions(d: int) -> Floats:
    """Evictions in New York City in order of time: latitude; with longitude; with the day of the year.

    Public bounds: latitude 40.49 to 40.92, longitude -74.26 to -73.70.
    """
    path = Path(os.environ["DPSTREAM_DATA"]) / "nyc_evictions_geo" / "points.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        next(lines)
        rows = [line.split(",")[:3] for line in lines]
    days = np.array([row[0] for row in rows], "datetime64[D]")
    year = (days - days.astype("datetime64[Y]")).astype(int) / 366.0
    latitude = (np.array([row[1] for row in rows], float) - 40.49) / (40.92 - 40.49)
    longitude = (np.array([row[2] for row in rows], float) + 74.26) / (74.26 - 73.70)
    return np.stack([latitude, longitude, year], axis=1)[:, :d]


def offline(points: Floats, epsilon: float) -> Floats:
    """Points made once from a whole prefix, with all of epsilon for it (PMM of the same authors, from our parts).

    Noisy counts of a tree with the budgets of the online tree at its end, least squares over the tree, and parents
    split as the default does.
    """
    t, d = points.shape
    generator, source = np.random.default_rng(0), Randomness.system()
    depth = max(1, int(math.log2(epsilon * t / 8)))
    weights = [
        1.0 / (j + 4) if d == 1 else 2.0 ** ((j - depth) * (1 - 1 / d) / 2) for j in range(1, depth + 1)
    ]
    noises = [
        DiscreteLaplace(Fraction(2 * sum(weights) / (epsilon * w)).limit_denominator(10**6)) for w in weights
    ]
    codes = cube_cells(points, depth)
    sums = [
        (np.bincount(codes >> (depth - j), minlength=1 << j) + source.draw(noise, 1 << j)).astype(float)
        for j, noise in enumerate(noises, start=1)
    ]
    pooled, variances = pool(sums, [noise.variance for noise in noises], float(t))
    counts, splits = np.array([t]), Splits()
    for one, variance in zip(pooled, variances, strict=True):
        left = splits.split(counts, one[0::2] - one[1::2], 2 * variance, generator)
        counts = np.stack([left, counts - left], axis=1).ravel()
    return cube_points(counts, d, generator)


class PHDStream:
    """See above. Cells in heap order: the root is 1."""

    BATCH = 1000
    DEPTH = 14

    def __init__(self, dimension: int, epsilon: float) -> None:
        half = Fraction(epsilon).limit_denominator(10**6) / 4
        self._dimension, self._source = dimension, Randomness.system()
        self._tests = DiscreteLaplace(3 / half)
        self._delta = float(self._tests.scale) * math.log(2.0)
        self._counter = UnboundedBlockCounter().calibrate(PureDP(half), Event())
        self._counters: dict[int, CounterState] = {}
        cells = 2 << self.DEPTH
        self._own, self._above, self._below = np.zeros((3, cells))
        self._leaves: list[int] = []
        self.points = 0

    def step(self, points: Floats) -> None:
        """One batch."""
        self.points += len(points)
        codes = cube_cells(points, self.DEPTH) | (1 << self.DEPTH)
        new = np.zeros(2 << self.DEPTH, np.int64)
        for depth in range(self.DEPTH + 1):
            new += np.bincount(codes >> depth, minlength=len(new))
        self._leaves, open_cells = [], np.array([1])
        for depth in range(self.DEPTH + 1):
            released = self._own[open_cells] + self._above[open_cells] + self._below[open_cells]
            biased = np.maximum(new[open_cells] + released - depth * self._delta, -self._delta)
            split = biased + self._source.draw(self._tests, len(open_cells)) > 0
            split &= depth < self.DEPTH
            for cell in open_cells[~split].tolist():
                self._count(cell, int(new[cell]))
            parents = open_cells[split]
            for child in (2 * parents, 2 * parents + 1):
                self._above[child] = (self._above[parents] + self._own[parents]) / 2.0
            open_cells = np.concatenate([2 * parents, 2 * parents + 1])
            if not len(open_cells):
                break
        for depth in range(self.DEPTH - 1, -1, -1):
            at = np.arange(1 << depth, 2 << depth)
            self._below[at] = sum(self._own[child] + self._below[child] for child in (2 * at, 2 * at + 1))

    def _count(self, cell: int, new: int) -> None:
        state = self._counters.setdefault(cell, self._counter.init(1))
        self._own[cell] = self._counter.step(state, np.array([new]), self._source)[0]
        self._leaves.append(cell)

    def release(self) -> Floats:
        """As many points as there were."""
        generator, leaves = np.random.default_rng(0), np.array(self._leaves)
        held = np.maximum(self._own[leaves] + self._above[leaves] + self._below[leaves], 0.0) + 1e-9
        counts = generator.multinomial(self.points, held / held.sum())
        made = []
        for depth in range(self.DEPTH + 1):
            at = np.flatnonzero((leaves >= 1 << depth) & (leaves < 2 << depth))
            every = np.zeros(1 << depth, np.int64)
            every[leaves[at] - (1 << depth)] = counts[at]
            made.append(cube_points(every, self._dimension, generator))
        return np.concatenate(made)
