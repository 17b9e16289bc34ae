"""Headlines by periods beside headlines by epochs: flows, the number of records, and what tables lose.

    python benchmarks/clocks.py [--streams evictions hotel burst] [--runs 12] [--budget 1] [--result FILE]

Each arm runs on the same records with the same headline. ``table``: nothing is measured by periods. Scores are means
over steps that are no multiples of 13; ratios are to ``table`` with the same seed.
"""

from __future__ import annotations

import argparse
import datetime
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench import show_result
from keyed_streams import load
from targets import budget_of

from dpstream.core.privacy import Randomness
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.io.sources.calendar import CalendarPeriods, DayPeriods

LONG = "a quarter of an hour"

ARMS = ("table", "month", "quarter", "number")


@dataclass(frozen=True)
class Case:
    """A stream of weeks, the column of its headline, and its first day."""

    stream: str
    headline: str
    start: datetime.date


CASES = {
    "evictions": Case("Eviction-weekly", "zip", datetime.date(1997, 1, 2)),
    "hotel": Case("inserts:hotel:week", "country", datetime.date(2015, 7, 1)),
    "simulated": Case("simulated:evictions:100:260", "zip", datetime.date(2020, 1, 6)),
}


def recipe(case: Case, arm: str, workload: Workload) -> Pooled:
    """The mechanism of an arm."""
    grid = DayPeriods(case.start, 7)
    month = CalendarPeriods("month", grid)
    if arm == "table":
        return Pooled(workload)
    if arm == "number":
        return Pooled(workload, number=month)
    periods = CalendarPeriods(arm, grid)
    return Pooled(workload, headline=((case.headline,),), periods=periods, number=month)


def run(name: str, arm: str, seed: int, budget: str) -> dict[str, Any]:
    """Scores of one run."""
    case = CASES[name]
    stream = load(case.stream, seed)
    domain = stream.domain
    workload = Workload.all_k_way(domain, 2)
    cliques = list(combinations(range(len(domain)), 2))
    plan = recipe(case, arm, workload).calibrate(budget_of(budget), horizon=stream.steps)
    state, truth = plan.start(), [np.zeros(domain.cells(c)) for c in cliques]
    place = domain.index(case.headline)
    column, flow = np.zeros(domain.sizes[place]), np.zeros(domain.sizes[place])
    found: dict[str, list[float]] = {
        "tv": [],
        "error": [],
        "total": [],
        "headline": [],
        "flow": [],
        "errors": [],
    }
    at = {round(x) for x in np.linspace(20, stream.steps, 20)}
    at = {step + (step % 13 == 0) for step in at}
    for step, changes in enumerate(stream.changes(), start=1):
        batch = EncodedBatch(domain, changes.codes)
        release = plan.step(state, batch, Randomness.seeded(f"{name} {arm} {seed} {step}"))
        for own, counted in zip(truth, batch.count(cliques), strict=True):
            own += counted
        (now,) = batch.count([(place,)])
        column, flow = column + now, flow + now
        for one in release.noisy_counts:
            if one.draw.split(", ")[-1].startswith("headline"):
                found["flow"].append(float(np.mean((one.values - flow) ** 2)))
                flow = np.zeros_like(flow)
        if release.total_error:
            found["errors"].append(abs(release.total - column.sum()) / release.total_error)
        if step in at:
            made = release.marginals(cliques)
            size = max(column.sum(), 1.0)
            found["error"].append(
                float(np.mean([np.abs(a - b).sum() / size for a, b in zip(made, truth, strict=True)]))
            )
            shares = [(a / max(a.sum(), 1e-9), b / size) for a, b in zip(made, truth, strict=True)]
            found["tv"].append(float(np.mean([np.abs(a - b).sum() / 2 for a, b in shares])))
            found["total"].append(abs(release.total - column.sum()))
            found["headline"].append(float(np.abs(release.marginals([(place,)])[0] - column).mean()))
    scores = {key: float(np.mean(values)) if values else float("nan") for key, values in found.items()}
    return {
        **scores,
        "flow": scores["flow"] ** 0.5,
        "within": float(np.mean(np.array(found["errors"]) < 1.96)),
    }


def main() -> None:
    """Print a line for each stream and arm."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", nargs="+", default=list(CASES))
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--budget", default="1")
    parser.add_argument("--result", type=Path)
    asked = parser.parse_args()
    lines = [
        "| stream | arm | TV | AvgWE | total | headline | flow | within 1.96 told |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with ProcessPoolExecutor(2) as pool:
        made = {
            (name, arm, seed): pool.submit(run, name, arm, seed, asked.budget)
            for name in asked.streams for seed in range(asked.runs) for arm in asked.arms
        }  # fmt: skip
        for name in asked.streams:
            for arm in asked.arms:
                own = [made[name, arm, seed].result() for seed in range(asked.runs)]
                base = [made[name, asked.arms[0], seed].result() for seed in range(asked.runs)]
                ratio = {
                    k: median(a[k] / b[k] for a, b in zip(own, base, strict=True)) for k in ("tv", "error")
                }
                means = {k: float(np.mean([one[k] for one in own])) for k in own[0]}
                shown = [f"{means[k]:.4f} ({ratio[k]:.3f})" for k in ("tv", "error")]
                shown += [
                    f"{means['total']:.0f}",
                    *(f"{means[k]:.2f}" for k in ("headline", "flow", "within")),
                ]
                lines.append(f"| {' | '.join([name, arm, *shown])} |")
    if asked.result:
        show_result("\n".join([*lines, ""]), asked.result)


if __name__ == "__main__":
    main()
