"""Time and memory of online points: per point as the stream grows, and of a release; both variants, beside a sort."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import Randomness
from dpstream_lab.audits.points_audit import cube_cells, cube_plan

BATCH = 10_000
#: Where the time is read: the same number of points follow each other in each level.
READ = [BATCH * 2**i for i in range(11)]

Floats = NDArray[np.float64]


def cases(generator: np.random.Generator, long: bool) -> Iterator[tuple[str, str, Floats]]:
    """Name, variant, points."""
    yield "default, d = 2", "default", generator.random((10**6, 2))
    yield "paper, d = 2", "paper", generator.random((10**6, 2))
    yield "default, d = 8", "default", generator.random((10**5, 8))
    yield "default, d = 1", "default", generator.random((10**6, 1))
    yield (
        "default, d = 2, clustered",
        "default",
        np.clip(0.5 + 0.01 * generator.normal(size=(10**6, 2)), 0, 1),
    )
    equal = 10**7 if long else 10**6
    yield "default, d = 2, all equal", "default", np.full((equal, 2), 0.3)


def main() -> None:
    """CPU microseconds a point between the ticks named; then the release."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="ten million equal points")
    for name, variant, points in cases(np.random.default_rng(1), parser.parse_args().long):
        plan, source = cube_plan(points.shape[1], variant), Randomness.system()
        state, begun, parts, last = plan.start(), time.process_time(), [], (0, 0.0)
        for first in range(0, len(points), BATCH):
            plan.read(state, cube_cells(points[first : first + BATCH], 20), source)
            if state.points in READ or state.points == len(points):
                spent = time.process_time() - begun
                parts.append(f"{state.points} {(spent - last[1]) / (state.points - last[0]) * 1e6:.2f}")
                last = (state.points, spent)
        begun = time.process_time()
        plan.counts(state)
        released = time.process_time() - begun
        begun = time.process_time()
        np.sort(points, axis=0)
        compared = time.process_time() - begun
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{name}: microseconds a point up to t: {', '.join(parts)}", flush=True)
        print(
            f"  {last[1]:.2f} s in all; release of {state.points} points {released:.2f} s; a sort of them "
            f"{compared:.2f} s; at most {memory:.2f} GB so far",
            flush=True,
        )


if __name__ == "__main__":
    main()
