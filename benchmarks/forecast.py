"""What ``dpstream plan`` predicts beside the true errors: the default mechanism on the committed streams.

    python benchmarks/forecast.py [--streams LIST] [--runs 20] [--result FILE]

Predicted: the standard errors of plan's first screen, from a file with coarse guesses (1, 3, 10, 30, ...) and no data.
True: root mean squares over runs on the stream itself, of released rows. Both are of the table after the last step.
Streams are those of ``targets.py``; the invented stream was tuned on the first nine, and on four others, only.
"""

from __future__ import annotations

import tempfile
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
from bench import documented_parser, show_result
from keyed_streams import is_there, load
from targets import configuration, facts, mechanism, moments

from dpstream.core.privacy import Randomness
from dpstream.core.tables import count_marginals
from dpstream.project import Config
from dpstream.tools.forecast import forecast

LONG = "about half an hour"
#: A prediction is right within this factor.
WITHIN = 1.5
TUNED_ON = """simulated:evictions:100:32 simulated:census:1000:20 stock:200:3:60 stock:200:60:200 stock:5000:3:100
    Adult-ordered-bs-50@30 Adult-ordered-bs-200@100 inserts:shuffled:20000:100 inserts:both:29787:96"""
LOOKED_AT_ONCE = """simulated:evictions:100:3 simulated:census:100:12 stock:200:0.5:100 stock:5000:60:100
    Adult-randomized-bs-50@60#0,1 Eviction-weekly@60 inserts:drift:20000:100 inserts:eviction:month hotel:week
    hotel:day"""


def predicted(config: Config, steps: int) -> dict[str, float]:
    """Of the number of records, and of a cell in half of the columns and of the pairs, in records."""
    made = forecast(config, steps)
    errors = {width: [x.error for x in made.marginals if len(x.columns) == width] for width in (1, 2)}
    return {"total": made.total, **{NAMES[width]: median(known) for width, known in errors.items() if known}}


NAMES = {1: "columns", 2: "pairs"}


def true(stream: str, config: Config, runs: int) -> dict[str, float]:
    """The same of releases, against the true tables."""
    columns = range(len(facts(stream).domain))
    cliques = [clique for width in NAMES for clique in combinations(columns, width)]
    squares: list[list[float]] = []
    for run in range(runs):
        method = mechanism(config.plan(), Randomness.seeded(f"forecast {stream} {run}"))
        for moment in moments(load(stream, run)):
            release = method(moment)
            if release is not None and moment.step == facts(stream).steps:
                rows = release.sample(max(0, round(release.total)), moment.step)
                made = count_marginals(rows, moment.table.domain, cliques)
                pairs = zip(moment.table.marginals(cliques), made, strict=True)
                cells = [float(np.mean((np.asarray(b, float) - a) ** 2)) for a, b in pairs]
                squares.append([(release.total - moment.table.records) ** 2, *cells])
    total, *cells = np.sqrt(np.mean(squares, axis=0)).tolist()
    widths = {
        name: [error for error, clique in zip(cells, cliques, strict=True) if len(clique) == width]
        for width, name in NAMES.items()
    }
    return {"total": total, **{name: median(errors) for name, errors in widths.items() if errors}}


def main() -> None:
    """Print a line for each stream and use."""
    parser = documented_parser(__doc__)
    parser.add_argument("--streams", nargs="+", default=f"{TUNED_ON} {LOOKED_AT_ONCE}".split())
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--result", type=Path)
    asked = parser.parse_args()
    lines = ["| stream | of | predicted | true | predicted / true |  |", "|---|---|---:|---:|---:|---|"]
    right: dict[bool, list[bool]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        for stream in filter(is_there, asked.streams):
            config = configuration(stream, "default", "1", Path(folder))
            tuned = stream in TUNED_ON.split()
            said, found = predicted(config, facts(stream).steps), true(stream, config, asked.runs)
            for use, error in found.items():
                if error > 0 and use in said:
                    ratio = said[use] / error
                    close = 1 / WITHIN <= ratio <= WITHIN
                    right[tuned].append(close)
                    name, mark = f"{stream}{' (tuned on)' * tuned}", "" if close else "!"
                    lines.append(f"| {name} | {use} | {said[use]:.3g} | {error:.3g} | {ratio:.2f} | {mark} |")
                    print(lines[-1], flush=True)
    counted = {tuned: f"{sum(marks)} of {len(marks)}" for tuned, marks in right.items()}
    words = f"Within a factor of {WITHIN:g}: {counted[True]} where it was tuned, {counted[False]} on other streams."
    show_result("\n".join([*lines, "", words, ""]), asked.result)


if __name__ == "__main__":
    main()
