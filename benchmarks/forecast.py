"""What ``dpstream plan`` predicts beside the true errors: the default mechanism on the committed streams.

    python benchmarks/forecast.py [--streams LIST] [--coarse] [--result FILE]

Predicted: the standard errors of plan's first screen, from a file with guesses and no data. Guesses are right to two
digits; with ``--coarse`` they are 1, 3, 10, 30, ...
True: root mean squares over runs on the stream itself, of released rows: 20 runs, and on (to 100) for 40 s of CPU.
Both are of the table after the last step.
Known streams were looked at while the method was made; the new ones once, when it was
done; two of them are the first steps of known ones.
"""

from __future__ import annotations

import tempfile
import time
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
from bench import documented_parser, show_result
from keyed_streams import is_there, load
from targets import coarse, configuration, facts, mechanism, moments

from dpstream.core.privacy import Randomness
from dpstream.core.tables import count_marginals
from dpstream.project import Config
from dpstream.tools.forecast import forecast

LONG = "about half an hour"
#: Runs at least and at most, and seconds of CPU in which no further one is begun.
LEAST, MOST, SECONDS = 20, 100, 40.0
#: A prediction is right within this factor.
WITHIN = 1.5
TUNED_ON = """simulated:evictions:100:32 simulated:census:1000:20 stock:200:3:60 stock:200:60:200 stock:5000:3:100
    Adult-ordered-bs-50@30 Adult-ordered-bs-200@100 inserts:shuffled:20000:100 inserts:both:29787:96"""
LOOKED_AT = """simulated:evictions:100:3 simulated:census:100:12 stock:200:0.5:100 stock:5000:60:100
    Adult-randomized-bs-50@60#0,1 Eviction-weekly@60 inserts:drift:20000:100 inserts:eviction:month hotel:week
    hotel:day"""
NEW = """hotel:week@60 hotel:day@400 satellites:year@60 adult:5000:3:60 stock:1000:12:60 inserts:hotel:month
    inserts:satellites:year Adult-randomized-bs-200@100 inserts:season:29787:96"""


def right(records: float) -> int:
    """To two digits, as a guess of somebody who knows how many there are.

    >>> [right(number) for number in (0.2, 1.8, 1667)]
    [1, 2, 1700]
    """
    return max(1, round(float(f"{records:.2g}")))


def predicted(config: Config, steps: int) -> dict[str, float]:
    """Of the number of records, and of a cell in half of the columns and of the pairs, in records."""
    made = forecast(config, steps)
    errors = {width: [x.error for x in made.marginals if len(x.columns) == width] for width in (1, 2)}
    return {"total": made.total, **{NAMES[width]: median(known) for width, known in errors.items() if known}}


NAMES = {1: "columns", 2: "pairs"}


def true(stream: str, config: Config) -> dict[str, float]:
    """The same of releases, against the true tables."""
    columns = range(len(facts(stream).domain))
    cliques = [clique for width in NAMES for clique in combinations(columns, width)]
    squares: list[list[float]] = []
    began = time.process_time()
    for run in range(MOST):
        if run >= LEAST and time.process_time() - began > SECONDS:
            break
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
    parser.add_argument("--streams", nargs="+", default=f"{TUNED_ON} {LOOKED_AT} {NEW}".split())
    parser.add_argument("--coarse", action="store_true")
    parser.add_argument("--result", type=Path)
    asked = parser.parse_args()
    lines = ["| stream | of | predicted | true | predicted / true |  |", "|---|---|---:|---:|---:|---|"]
    close: dict[str, list[bool]] = {"known": [], "new": []}
    for stream in filter(is_there, asked.streams):
        kind = "new" if stream in NEW.split() else "known"
        with tempfile.TemporaryDirectory() as folder:
            config = configuration(stream, "default", "1", Path(folder), coarse if asked.coarse else right)
            said, found = predicted(config, facts(stream).steps), true(stream, config)
        for use, error in found.items():
            if error > 0 and use in said:
                ratio = said[use] / error
                close[kind].append(1 / WITHIN <= ratio <= WITHIN)
                mark = "" if close[kind][-1] else "!"
                name = f"{stream}{' (new)' * (kind == 'new')}"
                lines.append(f"| {name} | {use} | {said[use]:.3g} | {error:.3g} | {ratio:.2f} | {mark} |")
                print(lines[-1], flush=True)
    words = [f"{sum(marks)} of {len(marks)} on {kind} streams" for kind, marks in close.items()]
    show_result(
        "\n".join([*lines, "", f"Within a factor of {WITHIN:g}: {', '.join(words)}.", ""]), asked.result
    )


if __name__ == "__main__":
    main()
