"""W1 of online synthetic points over time, beside the text, an offline run on the prefix, and uniform points.

d = 1: exact W1. d >= 2: a hierarchical upper bound on W1 (sup norm): masses on a grid of 2^-6 (d = 2) or 2^-4 (d = 3)
are balanced bottom up, whatever is matched inside a cell moves by its side. The same for every method.

The offline run spends the whole epsilon on one prefix (a tree of noisy counts, pooled and split as the default does):
it is what continual release has to be measured against, not a stream method.
"""

from __future__ import annotations

import argparse
import math
import time
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.points import OnlinePoints
from dpstream.points.consistency import Splits, pool
from dpstream.points.partition import codes_of, points_in
from dpstream.privacy import DiscreteLaplace, Randomness

LONG = "about 3 minutes"

Floats = NDArray[np.float64]


def stream(kind: str, n: int, d: int, seed: int) -> Floats:
    """Points one after the other: uniform, five clusters, or one cluster that walks through the cube."""
    g = np.random.default_rng(seed)
    if kind == "uniform":
        return g.random((n, d))
    if kind == "clustered":
        centres = g.random((5, d))
        return np.clip(centres[g.integers(0, 5, n)] + 0.03 * g.standard_normal((n, d)), 0.0, 1.0)
    way = np.linspace(0.1, 0.9, n)[:, None]
    return np.clip(way + 0.05 * g.standard_normal((n, d)), 0.0, 1.0)


def distance(true: Floats, made: Floats) -> float:
    """Exact W1 for d = 1, an upper bound else."""
    d = true.shape[1]
    return w1_line(true[:, 0], made[:, 0]) if d == 1 else w1_bound(true, made, 6 if d == 2 else 4)


def w1_line(one: Floats, two: Floats) -> float:
    """Exact, for equally many points."""
    return float(np.abs(np.sort(one) - np.sort(two)).mean())


def w1_bound(one: Floats, two: Floats, levels: int) -> float:
    """Cells of side 2^-levels; masses are balanced bottom up, at the side of the parent for what crosses."""
    d, side = one.shape[1], 1 << levels

    def grid(points: Floats) -> Floats:
        place = np.minimum((points * side).astype(int), side - 1)
        return np.bincount(np.ravel_multi_index(tuple(place.T), (side,) * d), minlength=side**d).reshape(
            (side,) * d
        ) / len(points)

    surplus, total = grid(one) - grid(two), 0.0
    for level in range(levels, 0, -1):
        shape = [half for _ in range(d) for half in (1 << (level - 1), 2)]
        blocks = surplus.reshape(shape)
        inner = tuple(range(1, 2 * d, 2))
        above = blocks.sum(axis=inner)
        # What is matched inside a block moves at most by its side.
        matched = (np.abs(blocks).sum(axis=inner) - np.abs(above)) / 2.0
        total += float(matched.sum()) * 2.0 ** -(level - 1)
        surplus = above
    return total


def curve(variant: str, points: Floats, times: list[int], epsilon: str) -> list[float]:
    """W1 at these times."""
    plan = OnlinePoints(points.shape[1], variant).calibrate(epsilon)  # type: ignore[arg-type]
    source = Randomness.system()
    state, done, result = plan.start(source), 0, []
    for t in times:
        plan.step(state, points[done:t], source)
        done = t
        result.append(distance(points[:t], plan.release(state).points))
    return result


def offline(points: Floats, epsilon: float) -> Floats:
    """Points made once, from all of epsilon: the budgets of the online tree at its end."""
    t, d = points.shape
    generator, source = np.random.default_rng(0), Randomness.system()
    depth = max(1, int(math.log2(epsilon * t / 8)))
    weights = [
        (j + 1.0) ** -2 if d == 1 else 2.0 ** ((j - depth) * (1 - 1 / d) / 2) for j in range(1, depth + 1)
    ]
    noises = [
        DiscreteLaplace(Fraction(2 * sum(weights) / (epsilon * w)).limit_denominator(10**6)) for w in weights
    ]
    codes = codes_of(points, depth)
    sums = [
        (np.bincount(codes >> (depth - j), minlength=1 << j) + source.draw(noise, 1 << j)).astype(float)
        for j, noise in enumerate(noises, start=1)
    ]
    pooled, variances = pool(sums, [noise.variance for noise in noises], float(t))
    counts = np.array([t])
    splits = Splits()
    for one, variance in zip(pooled, variances, strict=True):
        left = splits.split(counts, one[0::2] - one[1::2], 2 * variance, generator)
        counts = np.stack([left, counts - left], axis=1).ravel()
    return points_in(counts, depth, d, generator)


def main() -> None:
    """Print one line for each kind, dimension and method."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", default=["uniform", "clustered", "moving"])
    parser.add_argument(
        "--times", type=int, nargs="+", default=[1000, 3000, 10000, 17000, 30000, 70000, 100000]
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epsilon", default="1")
    asked = parser.parse_args()
    print("epsilon", asked.epsilon, "mean of", asked.runs, "runs; t =", asked.times)
    for d in asked.dimensions:
        for kind in asked.kinds:
            for variant in ("paper", "default"):
                begun = time.process_time()
                runs = [
                    curve(variant, stream(kind, max(asked.times), d, seed), asked.times, asked.epsilon)
                    for seed in range(asked.runs)
                ]
                mean = " ".join(f"{x:.4f}" for x in np.mean(runs, axis=0))
                print(
                    f"d={d} {kind:9s} {variant:8s} {mean}  ({time.process_time() - begun:.0f} s)", flush=True
                )
            points = [stream(kind, max(asked.times), d, seed) for seed in range(asked.runs)]
            once = [
                [distance(one[:t], offline(one[:t], float(asked.epsilon))) for t in asked.times]
                for one in points
            ]
            print(
                f"d={d} {kind:9s} offline  " + " ".join(f"{x:.4f}" for x in np.mean(once, axis=0)), flush=True
            )
            flat = np.random.default_rng(0).random(points[0].shape)
            mean = " ".join(
                f"{np.mean([distance(one[:t], flat[:t]) for one in points]):.4f}" for t in asked.times
            )
            print(f"d={d} {kind:9s} uniform  {mean}", flush=True)


if __name__ == "__main__":
    main()
