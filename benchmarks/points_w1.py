"""W1 of online synthetic points against the text's constants, uniform points and a fresh offline run, over time.

d = 1: exact W1. d >= 2: a hierarchical upper bound on W1 (sup norm) on a grid of 2^-6 (d = 2) or 2^-4 (d = 3), all mass of a cell
moved within its parent; the same for every method, so ratios say something, levels are too high.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from dpstream.points import OnlinePoints
from dpstream.privacy import Randomness

LONG = "about 5 minutes"

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


def main() -> None:
    """Print one line for each kind, dimension and method."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", default=["uniform", "clustered", "moving"])
    parser.add_argument("--times", type=int, nargs="+", default=[1000, 3000, 10000, 17000, 30000, 70000, 100000])
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
                print(f"d={d} {kind:9s} {variant:8s} {mean}  ({time.process_time() - begun:.0f} s)", flush=True)
            points = [stream(kind, max(asked.times), d, seed) for seed in range(asked.runs)]
            flat = np.random.default_rng(0).random(points[0].shape)
            mean = " ".join(
                f"{np.mean([distance(one[:t], flat[:t]) for one in points]):.4f}" for t in asked.times
            )
            print(f"d={d} {kind:9s} uniform  {mean}", flush=True)


if __name__ == "__main__":
    main()
