"""How often 95 % intervals of `dpstream.tools.errors.estimate` cover what the private table itself gives.

    [DPSTREAM_DATA=...] python benchmarks/simulated_inference.py [--repeats 6] [--runs 20] [--only WORD] [--out FILE]

Two invented streams (evictions, without and with headlines; the survey) and Adult, mechanism pooled, epsilon 1 and 4:
means, differences of two groups and coefficients of least squares on the last released table, against the same on the
private table. *Stated*: of how many releases there is an interval, because the columns were measured together.
*Covered*: of these. *Bare*: what Student's t times the runs' root mean square errors alone would cover, of all
releases. Adult only where DPSTREAM_DATA names its folder. Evaluation only.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result
from simulated_errors import Case, prepare

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Randomness
from dpstream.io.sinks import read_table
from dpstream.io.sinks.simulated_errors import t_factor
from dpstream.lab.experiments import kumar_stream
from dpstream.project import Config
from dpstream.tools.errors import Simulation, difference, estimate, least_squares, mean, simulate_errors
from dpstream.tools.evaluate.synthetic_side import read_codes
from dpstream.tools.evaluate.true_table import true_steps

Asked = Callable[[Simulation], Any]
ADULT = "Adult-ordered-bs-200"
_HEADLINES = '[["rent", "nuisance"], ["rent", "non_payment"], ["rent", "bedrooms"], ["bedrooms", "nuisance"]]'
_EVICTIONS: tuple[tuple[str, Asked], ...] = (
    ("mean", lambda s: mean(s, "nuisance")),
    ("mean in a group", lambda s: mean(s, "rent", "nuisance")),
    ("difference", lambda s: difference(s, "rent", "non_payment", "not non_payment")),
    ("least squares", lambda s: least_squares(s, "rent", ["bedrooms", "nuisance"])),
)
CASES: tuple[tuple[Case, str, tuple[tuple[str, Asked], ...]], ...] = (
    (Case("evictions", "evictions", 32), "", _EVICTIONS),
    (Case("evictions, headlines", "evictions", 32), f"[accuracy]\nheadline = {_HEADLINES}\n", _EVICTIONS),
    (
        Case("census survey", "census", 48),
        "",
        (
            ("mean", lambda s: mean(s, "hours")),
            ("mean in a group", lambda s: mean(s, "age", "marital = 'widowed'")),
            ("difference", lambda s: difference(s, "income_over_50k", "sex = 'male'", "sex = 'female'")),
            ("least squares", lambda s: least_squares(s, "income_over_50k", ["age", "hours"])),
        ),
    ),
    (
        Case("Adult", ADULT, 24),
        "",
        (
            ("mean", lambda s: mean(s, "education_num")),
            ("mean in a group", lambda s: mean(s, "hours_per_week", "marital_status = 0")),
            ("difference", lambda s: difference(s, "age_10", "marital_status = 0", "marital_status != 0")),
            ("least squares", lambda s: least_squares(s, "hours_per_week", ["education_num", "age_10"])),
        ),
    ),
)


@dataclass(frozen=True)
class One:
    """One number of one release: how far it is off, its standard error by simulation, and what covers it."""

    off: float
    spread: float
    bare: bool
    covered: bool | None
    half_width: float


def prepared(case: Case, budget: str, extra: str, folder: Path) -> Path:
    """The stream's configuration."""
    path = adult(case.steps, budget, folder) if case.source == ADULT else prepare(case, budget, folder)
    path.write_text(f"{path.read_text()}\n{extra}")
    return path


def adult(steps: int, budget: str, folder: Path) -> Path:
    """Adult with its codes as whole numbers, so that there are means of them."""
    stream = kumar_stream(ADULT, Path(os.environ["DPSTREAM_DATA"]))
    names = [re.sub(r"\W", "_", name) for name in stream.domain.names]
    (folder / "data").mkdir(parents=True)
    with (folder / "data" / "all.csv").open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["when", *names])
        for step in range(1, steps + 1):
            writer.writerows([step, *row] for row in stream.inserts(step).tolist())
    columns = "\n".join(
        f'[schema.columns.{name}]\ntype = "integer"\nedges = {list(range(size + 1))}'
        for name, size in zip(names, stream.domain.sizes, strict=True)
    )
    path = folder / "dpstream.toml"
    path.write_text(
        f'format = 1\n[stream]\nname = "adult"\nunit = "event"\n[source]\npath = "data/*.csv"\n'
        f'time_column = "when"\nstart = 1\nend = {steps}\nlate = "error"\n{columns}\n[mechanism]\nname = "pooled"\n'
        f'workload = "all-2-way"\n[budget]\nepsilon = "{budget}"\n[output]\ndir = "releases"\n'
    )
    return path


def measure(simulation: Simulation, asked: Any, rows: Any) -> list[One]:
    """Each number of a statistic, against the private table."""
    config, step = simulation.config, simulation.steps[-1]
    released = read_codes(read_table(simulation.releases.folder, step), config.schema(), "table")
    truth, values = (asked.compute(codes, np.ones(len(codes))) for codes in (rows, released))
    invented = simulation.invented.truth[step].table.codes
    about = asked.compute(invented, np.ones(len(invented)))
    runs = np.stack(
        [asked.compute(run[step].codes, np.ones(len(run[step].codes))) for run in simulation.runs]
    )
    spread = np.sqrt(((runs - about) ** 2).mean(axis=0))
    off, factor = values - truth, t_factor(len(runs))
    try:
        widths = estimate(simulation, asked).half_widths
    except ConfigError:
        widths = np.full(len(off), np.nan)
    return [
        One(o, s, abs(o) <= factor * s, None if np.isnan(w) else bool(abs(o) <= w), w)
        for o, s, w in zip(off.tolist(), spread.tolist(), widths.tolist(), strict=True)
    ]


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [
        "| stream | epsilon | statistic | stated | covered | bare | half width | root mean square |",
        "|---|---|---|---|---|---|---|---|",
    ]
    every: list[One] = []
    for case, extra, statistics in CASES:
        if asked.only not in case.label or (case.source == ADULT and "DPSTREAM_DATA" not in os.environ):
            continue
        for epsilon in ("1", "4"):
            found: dict[str, list[One]] = defaultdict(list)
            for repeat in range(asked.repeats):
                with tempfile.TemporaryDirectory() as place:
                    config = Config.load(prepared(case, epsilon, extra, Path(place) / "stream"))
                    for _ in config.run(randomness=Randomness.seeded(f"inference {repeat}")):
                        pass
                    simulation = simulate_errors(config, runs=asked.runs)
                    *_, last = true_steps(config)
                    for word, make in statistics:
                        statistic = make(simulation)
                        own = measure(simulation, statistic, last.table.rows())
                        for name, one in zip(statistic.names, own, strict=True):
                            found[f"{word}: {name}"].append(one)
            for name, values in found.items():
                lines.append(f"| {case.label}, {case.steps} steps | {epsilon} | {name} | {_told(values)} |")
                print(lines[-1], flush=True)
                every += values
            if (
                asked.out is not None
            ):  # after every stream, so that a call that is stopped leaves what it found
                stated = [one for one in every if one.covered is not None]
                text = [
                    "# Intervals of statistics by simulation",
                    "",
                    f"{asked.repeats} releases each, {asked.runs} simulated runs on each. Together {len(every)} "
                    f"numbers: {len(stated)} intervals are stated, "
                    f"and {np.mean([one.covered for one in stated]):.0%} of them "
                    f"cover; bare ones would cover {np.mean([one.bare for one in every]):.0%} of all numbers, and "
                    f"{np.mean([one.bare for one in stated]):.0%} of those with an interval. *Half width*: their "
                    "median. *Root mean square*: simulated over true.",
                    "",
                    *lines,
                    "",
                ]
                write_result(asked.out, "\n".join(text))


def _told(values: list[One]) -> str:
    stated = [one for one in values if one.covered is not None]
    covered = f"{np.mean([one.covered for one in stated]):.0%}" if stated else "-"
    width = f"{np.median([one.half_width for one in stated]):.3g}" if stated else "-"
    ratio = np.sqrt(np.mean([one.spread**2 for one in values]) / np.mean([one.off**2 for one in values]))
    bare = np.mean([one.bare for one in values])
    return f"{len(stated)} of {len(values)} | {covered} | {bare:.0%} | {width} | {ratio:.2f}"


if __name__ == "__main__":
    main()
