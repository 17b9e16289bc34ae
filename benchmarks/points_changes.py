"""How many points change from release to release: drawn anew, carried over, and the least that their counts allow."""

from __future__ import annotations

import time

import numpy as np

from dpstream.core.privacy import Event, Randomness
from dpstream.core.schema import Categorical, Real, Schema
from dpstream.core.tables import EncodedRecords
from dpstream.families.points import Points, PointsSynthesis
from dpstream.tools.simulate.city_points import rides

STEPS, ROWS = 104, 2000
SCHEMA = Schema(
    (
        Categorical("vehicle", ["bike", "scooter"]),
        Real("latitude", [46.9, 47.0], outside="clip"),
        Real("longitude", [7.3, 7.5], outside="clip"),
        Real("hour", [0, 24]),
    )
)


def least(old: PointsSynthesis, new: PointsSynthesis, codes: np.ndarray) -> int:
    """Points that have to go: of each new cell those that are too many."""
    cells = new.space.cells_of(codes) >> (new.space.depth - new.depth)
    return int(np.maximum(np.bincount(cells, minlength=len(new.counts)) - new.counts, 0).sum())


def main() -> None:
    """The invented rides, week by week."""
    plan = Points(SCHEMA, periodic=("hour",)).calibrate(epsilon="1", unit=Event("replace"))
    source, state = Randomness.system(), plan.start()
    frames = rides(ROWS, np.random.default_rng(0))
    before, codes, shares, seconds, needed, deeper = None, np.zeros((0, 4), np.int32), [], [], 0, []
    for step in range(1, STEPS + 1):
        frame = {name: values for name, values in next(frames).items() if name != "day"}
        batch = EncodedRecords(plan.reading.domain, plan.reading.encode(frame))
        now = plan.step(state, batch, source)
        if before is None:
            codes = now.records(now.points, step)
        else:
            needed = least(before, now, codes)
            begun = time.process_time()
            stays, added = now.follow(codes, now.points, step)
            seconds.append(time.process_time() - begun)
            assert len(stays) - stays.sum() == needed
            shares.append(needed / len(codes))
            deeper.append(now.depth > before.depth)
            codes = np.concatenate([codes[stays], added])
        before = now
    assert before is not None
    late, deep = np.array(shares[-52:]), np.array(deeper[-52:])
    print(
        f"simulated rides: {STEPS} steps, 3 coordinates and 2 categories, {before.points} points at the end, in "
        f"{len(before.counts)} cells\n"
        "    points that go, share of the table, in the last 52 steps: drawn anew 1, carried over "
        f"{late.mean():.4f} (the least that the counts allow), median {np.median(late):.4f}; in {deep.sum()} steps "
        f"with a new depth {late[deep].mean():.3f}\n"
        f"    CPU of carrying over, median: {1000 * np.median(seconds[-52:]):.0f} ms"
    )


if __name__ == "__main__":
    main()
