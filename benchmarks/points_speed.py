"""Time and memory of online points: per point as the stream grows, and of a release; both variants, beside a sort."""

from __future__ import annotations

import resource
import time

import numpy as np

from dpstream.points import OnlinePoints
from dpstream.privacy import Randomness

BATCH = 10_000


def main() -> None:
    """One line for each case: CPU seconds for each tenfold part of the stream."""
    generator = np.random.default_rng(1)
    for variant, dimension, points in (
        ("default", 2, generator.random((10**6, 2))),
        ("paper", 2, generator.random((10**6, 2))),
        ("default", 8, generator.random((10**5, 8))),
        ("default", 1, generator.random((10**6, 1))),
        ("default, all equal", 2, np.full((10**6, 2), 0.3)),
        ("default, clustered", 2, np.clip(0.5 + 0.01 * generator.standard_normal((10**6, 2)), 0, 1)),
    ):
        plan = OnlinePoints(dimension, variant.split(",")[0]).calibrate("1")  # type: ignore[arg-type]
        source = Randomness.system()
        state, begun, parts = plan.start(source), time.process_time(), []
        for first in range(0, len(points), BATCH):
            plan.step(state, points[first : first + BATCH], source)
            if state.points in (10**4, 10**5, 10**6):
                parts.append(f"{time.process_time() - begun:.2f} s by {state.points}")
        begun = time.process_time()
        plan.release(state)
        released = time.process_time() - begun
        begun = time.process_time()
        np.sort(points, axis=0)
        compared = time.process_time() - begun
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{variant}, d = {dimension}: {', '.join(parts)}; release {released:.2f} s; a sort {compared:.2f} s; "
            f"at most {memory:.2f} GB so far",
            flush=True,
        )


if __name__ == "__main__":
    main()
