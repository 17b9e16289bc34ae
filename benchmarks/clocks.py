"""Headlines by periods beside headlines by epochs: flows, the number of records, and what tables lose.

    python benchmarks/clocks.py [--streams evictions hotel] [--runs 12] [--times 1] [--result FILE]
    python benchmarks/clocks.py --levels [--runs 12]

Each arm runs on the same records with the same headline. ``table``: nothing is measured by periods. Scores are means
over steps that are no multiples of 13; ratios are to ``table`` with the same seed. ``ends``: the number of records at
ends of months. ``--times 0`` or ``3``: the last month has so many times its records; ``last``: how often its number is
within 1.96 published standard errors. ``--levels``: root mean squares of 10 regions of 100
places as measured and in tables; then where tables do not agree with levels.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench import documented_parser, show_result
from keyed_streams import load
from targets import budget_of

from dpstream.core.contracts import EACH_STEP, StepPeriods, ends
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.io.sources.calendar import CalendarPeriods, DayPeriods

LONG = "a quarter of an hour"

ARMS = ("table", "month", "quarter")


#: Streams of weeks, the column of each headline, and the first day.
CASES = {
    "evictions": ("Eviction-weekly", "zip", datetime.date(1997, 1, 2)),
    "hotel": ("inserts:hotel:week", "country", datetime.date(2015, 7, 1)),
    "simulated": ("simulated:evictions:100:260", "zip", datetime.date(2020, 1, 6)),
}


def recipe(headline: str, start: datetime.date, arm: str, workload: Workload) -> Pooled:
    """The mechanism of an arm."""
    grid = DayPeriods(start, 7)
    month = CalendarPeriods("month", grid)
    if arm == "table":
        return Pooled(workload)
    periods = CalendarPeriods(arm, grid)
    return Pooled(workload, headline=((headline,),), periods=periods, number=month)


def run(name: str, arm: str, seed: int, times: int) -> dict[str, Any]:
    """Scores of one run."""
    source, headline, start = CASES[name]
    stream = load(source, seed)
    domain = stream.domain
    workload = Workload.all_k_way(domain, 2)
    cliques = list(combinations(range(len(domain)), 2))
    month = CalendarPeriods("month", DayPeriods(start, 7))
    final, horizon = stream.steps, stream.steps
    if times != 1:  # the stream goes on after the last month that is scored
        final, horizon = max(s for s in range(1, final) if ends(month, s)), horizon + 52
    plan = recipe(headline, start, arm, workload).calibrate(budget_of("1"), horizon=horizon)
    state, truth = plan.start(), [np.zeros(domain.cells(c)) for c in cliques]
    place = domain.index(headline)
    column, flow = np.zeros(domain.sizes[place]), np.zeros(domain.sizes[place])
    found: dict[str, list[float]] = defaultdict(list)
    at = {round(x) + (round(x) % 13 == 0) for x in np.linspace(20, stream.steps, 20)}
    for step, changes in enumerate(islice(stream.changes(), final), start=1):
        codes = changes.codes
        if month.number(step) == month.number(final):
            codes = np.concatenate([codes] * times) if times else codes[:0]
        batch = EncodedBatch(domain, codes)
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
        if ends(month, step):
            found["ends"].append(abs(release.total - column.sum()))
        if step in at:
            made = release.marginals(cliques)
            size = max(column.sum(), 1.0)
            apart = [np.abs(a - b).sum() / size for a, b in zip(made, truth, strict=True)]
            found["error"].append(float(np.mean(apart)))
            shares = [(a / max(a.sum(), 1e-9), b / size) for a, b in zip(made, truth, strict=True)]
            found["tv"].append(float(np.mean([np.abs(a - b).sum() / 2 for a, b in shares])))
            found["headline"].append(float(np.abs(release.marginals([(place,)])[0] - column).mean()))
    scores = {key: float(np.mean(values)) for key, values in found.items()}
    within = np.array(found["errors"]) < 1.96
    flow = scores.get("flow", float("nan")) ** 0.5
    last = float(release.total_error is not None and within[-1])
    return {**scores, "flow": flow, "within": float(within.mean()), "last": last}


def levels(seed: int, agree: bool) -> list[float]:
    """Mean squares of regions' errors as measured and in the table. ``agree``: the table agrees with its levels."""
    places = {"region": [f"r{i // 100}" for i in range(1000)], "zip": [f"z{i}" for i in range(1000)]}
    columns = (Categorical("zip", places["zip"]), Boolean("paid"))
    schema = Schema(columns).with_levels("place", tuple(places), places)
    workload, random = Workload.all_k_way(schema.domain, 2), np.random.default_rng(seed)
    recipe = Pooled(workload, headline=(("place",),), periods=StepPeriods(3), number=EACH_STEP)
    plan = recipe.calibrate(budget_of("1"))
    vars(plan).update({} if agree else {"trees": []})
    state, found, shares = plan.start(), np.zeros((3, 10)), random.dirichlet(np.full(1000, 0.3))
    for step in range(1, 40):
        zips = random.choice(1000, random.poisson(2000), p=shares).astype(np.int32)
        batch = EncodedBatch(schema.domain, np.column_stack([zips, zips % 2]))
        release = plan.step(state, batch, Randomness.seeded(f"{seed} {step}"))
        found[0] += np.bincount(zips // 100, minlength=10)
        found[1] += sum(one.values for one in release.noisy_counts if one.columns == ("region",))
    found[2] = release.marginals([(0,)])[0].reshape(10, 100).sum(axis=1)
    return np.mean((found[1:] - found[0]) ** 2, axis=1).tolist()


def main() -> None:
    """Print a line for each stream and arm."""
    parser = documented_parser(__doc__)
    parser.add_argument("--streams", nargs="+", default=list(CASES))
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--levels", action="store_true")
    parser.add_argument("--result", type=Path)
    asked = parser.parse_args()
    if asked.levels:
        found = [levels(seed, True) + levels(seed, False) for seed in range(asked.runs)]
        print(np.sqrt(np.mean(found, axis=0)).round(1).tolist())
        return
    lines = ["| stream | arm | TV | AvgWE | ends | headline | flow | within 1.96 | last |", "|---" * 9 + "|"]
    with ProcessPoolExecutor(2) as pool:
        made = {
            (name, arm, seed): pool.submit(run, name, arm, seed, asked.times)
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
                shown += [f"{means[k]:.0f}" for k in ("ends",)]
                shown += [f"{means[k]:.2f}" for k in ("headline", "flow", "within", "last")]
                lines.append(f"| {' | '.join([name, arm, *shown])} |")
    show_result("\n".join([*lines, ""]), asked.result)


if __name__ == "__main__":
    main()
