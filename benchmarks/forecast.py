"""What ``dpstream plan`` predicts beside the true errors: the default mechanism on the committed streams.

    python benchmarks/forecast.py [--streams LIST] [--jobs N] [--result FILE]

Predicted: the standard errors of plan's first screen, from a file with guesses and no data. Guesses are right to two
digits.
True: root mean squares over runs on the stream itself, of released rows: 20 runs, and on (to 100) for 40 s of CPU.
Both are of the table after the last step at which its size is within a fifth of the guess (hotels empty at the end of
their data), else after the last.
Known streams were looked at while the method was made; the new ones once, when it was
done; two of them are the first steps of known ones.
"""

from __future__ import annotations

import math
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
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


def medians(total: float, cells: list[float], columns: int) -> dict[str, float]:
    """The total's error, and that of a cell in half of the columns, which come first, and in half of the pairs."""
    parts = {"columns": cells[:columns], "pairs": cells[columns:]}
    return {"total": total, **{name: median(errors) for name, errors in parts.items() if errors}}


def moment_of(stream: str, config: Config) -> int:
    """The step whose tables are compared."""
    size = config.expected.size if config.expected else math.inf
    near = [
        moment.step for moment in moments(load(stream, 0)) if size / 1.2 <= moment.table.records <= size * 1.2
    ]
    return max(near, default=facts(stream).steps)


def true(stream: str, config: Config, step: int) -> dict[str, float]:
    """Errors of releases of a step against the true tables."""
    columns = range(len(facts(stream).domain))
    cliques = [clique for width in (1, 2) for clique in combinations(columns, width)]
    squares: list[list[float]] = []
    began = time.process_time()
    for run in range(MOST):
        if run >= LEAST and time.process_time() - began > SECONDS:
            break
        method = mechanism(config.plan(), Randomness.seeded(f"forecast {stream} {run}"))
        for moment in moments(load(stream, run)):
            release = method(moment)
            if release is not None and moment.step == step:
                rows = release.sample(max(0, round(release.total)), moment.step)
                made = count_marginals(rows, moment.table.domain, cliques)
                pairs = zip(moment.table.marginals(cliques), made, strict=True)
                cells = [float(np.mean((np.asarray(b, float) - a) ** 2)) for a, b in pairs]
                squares.append([(release.total - moment.table.records) ** 2, *cells])
    total, *cells = np.sqrt(np.mean(squares, axis=0)).tolist()
    return medians(total, cells, len(columns))


def compared(stream: str) -> list[tuple[str, float, float]]:
    """Each use with its predicted and its true error, in records."""
    with tempfile.TemporaryDirectory() as folder:
        config = configuration(stream, "default", "1", Path(folder), right)
        step = moment_of(stream, config)
        made, found = forecast(config, step), true(stream, config, step)
    said = medians(made.total, [one.error for one in made.marginals], len(facts(stream).domain))
    return [(use, said[use], error) for use, error in found.items() if error > 0 and use in said]


def main() -> None:
    """Print a line for each stream and use."""
    parser = documented_parser(__doc__)
    parser.add_argument("--streams", nargs="+", default=f"{TUNED_ON} {LOOKED_AT} {NEW}".split())
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--result", type=Path)
    asked = parser.parse_args()
    lines = ["| stream | of | predicted | true | predicted / true |  |", "|---|---|---:|---:|---:|---|"]
    close: dict[str, list[bool]] = {"known": [], "new": []}
    streams = list(filter(is_there, asked.streams))
    with ProcessPoolExecutor(asked.jobs) as pool:
        for stream, made in zip(streams, pool.map(compared, streams), strict=True):
            kind = "new" if stream in NEW.split() else "known"
            for use, said, error in made:
                close[kind].append(1 / WITHIN <= said / error <= WITHIN)
                mark, name = "" if close[kind][-1] else "!", f"{stream}{' (new)' * (kind == 'new')}"
                lines.append(f"| {name} | {use} | {said:.3g} | {error:.3g} | {said / error:.2f} | {mark} |")
                print(lines[-1], flush=True)
    words = [f"{sum(marks)} of {len(marks)} on {kind} streams" for kind, marks in close.items()]
    show_result(
        "\n".join([*lines, "", f"Within a factor of {WITHIN:g}: {', '.join(words)}.", ""]), asked.result
    )


if __name__ == "__main__":
    main()
