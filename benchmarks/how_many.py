"""How many marginals a run measures where no column drifts: ``how_many = "predicted"`` beside ``"threshold"``.

    python benchmarks/how_many.py [--runs 3] [--streams LIST] [--result benchmarks/results/how_many.txt]

Streams as ORDER:RECORDS:STEPS:EPSILON, invented ones (``inserted_streams.py``); ``adult`` is shuffled Adult in batches
of 200 (DPSTREAM_DATA; one of the two real streams that options may be tuned on). Everything else is as
``dpstream init`` drafts it. Each line: AvgWE and total variation of pairs with the threshold, and their ratios with the
prediction, means over each third of the stream; in brackets the half width of a 95 % interval of the ratio of means
over the whole stream (t, of the logarithms of paired runs), the larger one of the two measures. For evaluation only.
"""

from __future__ import annotations

import argparse
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
from constants import errors_along
from made_by import write_result

from dpstream.io.sinks.simulated_errors import t_factor

LONG = "about 2 minutes of one core"
STREAMS = (
    "shuffled:3000:12:1", "shuffled:10000:40:1", "shuffled:30000:40:1", "shuffled:10000:40:4", "drift:20000:40:1",
    "drift:20000:40:2", "sorted:10000:40:1", "season:15000:48:1", "adult::244:1",
)  # fmt: skip


def line(stream: str, runs: int) -> str:
    """One stream."""
    order, records, steps, epsilon = stream.split(":")
    found = {
        name: np.array(
            [
                errors_along(order, int(records or 0), int(steps), seed, Fraction(epsilon), how_many=name)
                for seed in range(runs)
            ]
        )
        for name in ("threshold", "predicted")
    }
    before, after = found["threshold"], found["predicted"]
    apart = np.log(after.mean(axis=1) / before.mean(axis=1))
    width = t_factor(runs - 1) * apart.std(axis=0, ddof=1).max() / math.sqrt(runs)
    usual = before.mean(axis=(0, 1))
    thirds = np.array_split(np.arange(before.shape[1]), 3)
    ratios = [after[:, own].mean(axis=(0, 1)) / before[:, own].mean(axis=(0, 1)) for own in thirds]
    cells = "  ".join(f"{one[0]:4.2f} {one[1]:4.2f}" for one in ratios)
    whole = after.mean(axis=(0, 1)) / usual
    return f"{stream:22} {usual[0]:.5f} {usual[1]:.4f}   {cells}   {whole[0]:4.2f} {whole[1]:4.2f} ({width:4.2f})"


def main() -> None:
    """Print one line for each stream, as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--streams", nargs="+", default=STREAMS)
    parser.add_argument("--result", type=Path)
    chosen = parser.parse_args()
    lines = [f"{'':22} {'threshold':14}   {'first third':11}{'second':11}{'last':9}   whole stream"]
    print(lines[0], flush=True)
    for stream in chosen.streams:
        if stream.startswith("adult") and not os.environ.get("DPSTREAM_DATA"):
            continue
        lines.append(line(stream, chosen.runs))
        print(lines[-1], flush=True)
    if chosen.result:
        write_result(chosen.result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
