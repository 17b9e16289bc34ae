"""W1 of online synthetic points over time, beside the text, PHDStream, an offline run on the prefix, uniform points.

W1 in the sup norm: exact for d = 1; for d = 2 (d = 3) exact between the points moved to the middles of 40^2 (10^3)
squares, by a cheapest flow (``dpstream.tools.families.points.transport``). The same for every method. Evaluation only:
it needs the truth.

The offline run spends the whole epsilon on one prefix: it is what continual release has to be measured against, no
stream method. ``points_peers`` says how PHDStream was rebuilt, and which streams were never used to choose constants.
``points_plot`` draws the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from points_peers import TUNED, UNSEEN, Floats, PHDStream, offline, stream

from dpstream.core.privacy import Randomness
from dpstream.tools.families.points.transport import grid_distance, line
from dpstream_lab.audits.points_audit import cube_cells, cube_plan, cube_points

LONG = "about half an hour"

TIMES = (1000, 3000, 10000, 17000, 30000, 60000, 100000)
METHODS = ("paper", "default", "phdstream", "offline", "uniform")
_SQUARES = {2: 40, 3: 10}


def distance(true: Floats, made: Floats) -> float:
    """W1; see above."""
    d = true.shape[1]
    return line(true[:, 0], made[:, 0]) if d == 1 else grid_distance(true, made, _SQUARES[d])


def releases(method: str, points: Floats, times: list[int], epsilon: str) -> Iterator[Floats]:
    """Synthetic points at these times."""
    d, source = points.shape[1], Randomness.system()
    if method == "offline":
        yield from (offline(points[:t], float(epsilon)) for t in times)
    elif method == "uniform":
        yield from (np.random.default_rng(t).random((t, d)) for t in times)
    elif method == "phdstream":
        other = PHDStream(d, float(epsilon))
        for end in range(other.BATCH, times[-1] + 1, other.BATCH):
            other.step(points[end - other.BATCH : end])
            if end in times:
                yield other.release()
    else:
        plan, done = cube_plan(d, method, epsilon=Fraction(epsilon)), 0
        state = plan.start()
        for t in times:
            plan.read(state, cube_cells(points[done:t], 20), source)
            done = t
            yield cube_points(plan.counts(state), d, np.random.default_rng(t))


def show(kind: str, d: int, epsilon: str, methods: tuple[str, ...], runs: int, times: list[int]) -> None:
    """One line for each method, and by how much the default is better than the text from t = 10,000 on."""
    means = {}
    for method in methods:
        curves = []
        for seed in range(runs):
            points = stream(kind, max(times), d, seed)
            made = releases(method, points, times, epsilon)
            curves.append([distance(points[:t], one) for t, one in zip(times, made, strict=True)])
        means[method] = np.mean(curves, axis=0)
        numbers = " ".join(f"{value:.4f}" for value in means[method])
        print(f"d={d} epsilon={epsilon} {kind:9s} {method:9s} {numbers}", flush=True)
    if "paper" in means and "default" in means:
        gains = (means["paper"] / means["default"])[[t >= 10_000 for t in times]]
        mean = np.exp(np.log(gains).mean())
        print(
            f"  text over default from 10,000 on: {mean:.1f} on average, {gains.min():.1f} at least",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dimensions", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", default=[*UNSEEN, *TUNED])
    parser.add_argument("--epsilons", nargs="+", default=["1"])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    for d in asked.dimensions:
        for kind in asked.kinds:
            for epsilon in asked.epsilons:
                times = (
                    [t for t in (*TIMES[:-1], 88000) if t <= 88000] if kind == "evictions" else list(TIMES)
                )
                print(f"# d={d} {kind}: t = {' '.join(map(str, times))}; mean of {asked.runs}", flush=True)
                show(kind, d, epsilon, tuple(asked.methods), asked.runs, times)


if __name__ == "__main__":
    main()
