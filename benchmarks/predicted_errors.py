"""Predicted standard errors beside measured ones: tables, panels and points, both budgets, seeded noise.

    python benchmarks/predicted_errors.py [--runs 200] [--out FILE]

Each stream is run so often on the same invented records with other noise. Measured is the root mean square distance of
the measured sums (of epochs, counters, runs, or a panel's debiased counts) from the truth, over all cells of a column,
and of the number of records; predicted is what the plan says of a table of that size. Their ratio should be within
10 %. Chance moves a ratio by a few per cent, so the last column says by how many standard deviations of such a ratio it
is off 1. Pooled is taken to find that its columns drift, so that it measures all of them in every epoch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from made_by import write_result

from dpstream.core.contracts import ExpectedTable
from dpstream.core.graphical import Model
from dpstream.core.privacy import ZCDP, Budget, Event, Individual, PureDP, Randomness
from dpstream.core.schema import Boolean, Schema
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.families.points.estimates import half_errors
from dpstream.families.tabular import Baseline, DPStabs, Pooled
from dpstream.families.tabular.pooled import PooledPlan
from dpstream.mechanisms import MWEMPGM
from dpstream_lab.audits.points_audit import cube_cells, cube_plan

LONG = "about 4 minutes"
STEPS, EACH = 20, 400
#: Iterations of a model's fit: what was measured does not rest on it.
FITS = 1
DOMAIN = Domain(("a", "b", "c", "d"), (2, 3, 6, 2))
BUDGETS: dict[str, Budget] = {"epsilon = 1": PureDP.of(1), "rho = 1/50": ZCDP.of("1/50")}
PEOPLE, PERIODS = 2000, 6
Row = tuple[str, str, str, float, float, float]


@dataclass
class Distances:
    """Of measured numbers from the truth: one list a run."""

    runs: list[list[float]]

    def error(self) -> tuple[float, float]:
        """Root mean square, and its standard deviation by chance, as a share."""
        squares = np.array([np.mean(np.square(run)) for run in self.runs])
        mean = float(squares.mean())
        return math.sqrt(mean), float(squares.std(ddof=1) / math.sqrt(len(squares)) / (2.0 * mean))


def batches() -> list[EncodedBatch]:
    """Records of a column ``b`` that drifts; the same in every run."""
    generator = np.random.default_rng(1)
    made = []
    for step in range(STEPS):
        codes = np.column_stack([generator.integers(0, size, EACH) for size in DOMAIN.sizes]).astype(np.int32)
        weights = np.array([1.0, 2.0, 3.0]) ** (2.0 if step % 2 else -2.0)
        codes[:, 1] = generator.choice(3, EACH, p=weights / weights.sum())
        made.append(EncodedBatch(DOMAIN, codes))
    return made


def rows(name: str, budget: str, plan, expected: ExpectedTable, step: int, found: dict) -> list[Row]:
    """One row for the number of records and for each column."""
    (one,) = plan.expected_errors([step], expected)
    predicted = {", ".join(own.columns): own.error for own in one.marginals} | {"total": one.total}
    made = []
    for what, distances in found.items():
        measured, chance = distances.error()
        made.append((name, budget, what, predicted[what], measured, chance))
    return made


class MeasuringPlan(PooledPlan):
    """A pooled plan whose table is not fitted: no measurement rests on it, and it takes most of the time."""

    def _estimates(self, state, shapes):
        return None, None

    def _fit(self, values, variances, total):
        return Model.uniform(self.domain, total)


def pooled(budget: Budget, runs: int, unit: Event) -> tuple[object, dict[str, Distances]]:
    """The sums over all epochs."""
    plan, parts = (
        Pooled(Workload.all_k_way(DOMAIN, 2), iterations=FITS).calibrate(budget, unit, STEPS),
        batches(),
    )
    cells = plan.cells
    truth = sum(np.concatenate(part.count(cells.cliques, "net")) for part in parts)
    found = {name: Distances([]) for name in ("total", *DOMAIN.names)}
    for run in range(runs):
        state, randomness = plan.start(), Randomness.seeded(run)
        for part in parts:
            release = plan.step(state, part, randomness)
        own = state.sides[0].estimates
        sums = np.zeros(cells.total)
        for index, values in zip(own.marginals, own.measured, strict=True):
            sums[cells.part(index)] += values
        found["total"].runs.append([release.total - STEPS * EACH])
        for i, name in enumerate(DOMAIN.names):
            found[name].runs.append((sums - truth)[cells.part(i)].tolist())
    if unit.relation == "replace":
        found.pop("total")
    return plan, found


def dpstabs(budget: Budget, runs: int) -> tuple[object, dict[str, Distances]]:
    """All marginals at every step: what the release says of them."""
    workload, parts = Workload.all_k_way(DOMAIN, 1), batches()
    plan = DPStabs(workload, k=len(workload.cliques), iterations=FITS).calibrate(budget, Event(), STEPS)
    truth = [sum(part.count([(i,)], "net")[0] for part in parts) for i in range(len(DOMAIN))]
    found = {name: Distances([]) for name in ("total", *DOMAIN.names)}
    for run in range(runs):
        state, randomness = plan.start(), Randomness.seeded(run)
        for part in parts:
            release = plan.step(state, part, randomness)
        found["total"].runs.append([release.total - STEPS * EACH])
        for i, name in enumerate(DOMAIN.names):
            found[name].runs.append((release.measured[(i,)].values - truth[i]).ravel().tolist())
    return plan, found


def baseline(budget: Budget, runs: int) -> tuple[object, dict[str, Distances]]:
    """The number of records only: a run keeps a model, and no sums."""
    workload, parts = Workload.all_k_way(DOMAIN, 1), batches()
    offline = MWEMPGM(k=len(workload.cliques), iterations=FITS)
    plan = Baseline(workload, offline).calibrate(budget, Event(), STEPS)
    found = {"total": Distances([])}
    for run in range(runs):
        state, randomness = plan.start(), Randomness.seeded(run)
        for part in parts:
            release = plan.step(state, part, randomness)
        found["total"].runs.append([release.total - STEPS * EACH])
    return plan, found


def panel(rho: ZCDP, runs: int) -> list[tuple[str, object, dict[str, Distances]]]:
    """What releases say of one period's reports, without padding; and of those with at least so many so far."""
    reports = np.random.default_rng(2).random((PERIODS, PEOPLE)) < 0.3
    schema, unit = Schema((Boolean("poor"),)), Individual()
    window = PanelWindow(schema, 3).calibrate(rho, unit, PERIODS)
    cumulative = PanelCumulative(schema).calibrate(rho, unit, PERIODS)
    of_window = {name: Distances([]) for name in ("total", "poor")}
    of_cumulative = {f"at least {b}": Distances([]) for b in (1, 2, 3)}
    so_far = reports.sum(axis=0)
    for run in range(runs):
        randomness = Randomness.seeded(run)
        state, counting = window.start(PEOPLE), cumulative.start(PEOPLE)
        for now in reports:
            release = window.advance(state, now.astype(np.int64), randomness)
            reached = cumulative.advance(counting, now.astype(np.int64), randomness)
        counts = release.counts - window.padding
        of_window["total"].runs.append([float(counts.sum()) - PEOPLE])
        of_window["poor"].runs.append([float(counts[1::2].sum()) - float(reports[-1].sum())])
        for b in (1, 2, 3):
            off = float(reached.estimates[b]) - float((so_far >= b).sum())
            of_cumulative[f"at least {b}"].runs.append([off])
    return [("panel-window", window, of_window), ("panel-cumulative", cumulative, of_cumulative)]


def points(runs: int) -> list[Row]:
    """The sums of the finished levels, in halves of coordinates; as the cells of that depth counted them."""
    made: list[Row] = []
    for dimension in (1, 2, 3):
        plan = cube_plan(dimension)
        schedule = plan.schedule
        level = schedule.level_of(3000)
        last = schedule.start(level) - 1
        where = np.random.default_rng(3).random((last + 1, dimension)) ** 1.7
        predicted = half_errors(plan.schedule, last)
        found = [Distances([]) for _ in predicted]
        for run in range(runs):
            randomness = Randomness.seeded(run)
            state = plan.start()
            plan.read(state, cube_cells(where, 20), randomness)
            for depth, distances in enumerate(found):
                since = 0 if schedule.rereads_all else schedule.start(depth) - 1
                true = float((where[since:last, depth] >= 0.5).sum())
                distances.runs.append([float(state.stored[depth].reshape(-1, 2)[:, 1].sum()) - true])
        for depth, (error, distances) in enumerate(zip(predicted, found, strict=True), 1):
            what = f"half of coordinate {depth}"
            made.append((f"points, {dimension} coordinates", "epsilon = 1", what, error, *distances.error()))
    return made


def measure(runs: int) -> list[Row]:
    """All rows."""
    made: list[Row] = []
    grows = ExpectedTable(STEPS * EACH, EACH, "grows")
    for label, budget in BUDGETS.items():
        for relation in ("add-remove", "replace"):
            plan, found = pooled(budget, runs, Event(relation))
            name = "pooled" if relation == "add-remove" else "pooled, public total"
            made += rows(name, label, plan, grows, STEPS, found)
        cases: tuple[tuple[str, Callable[..., tuple[object, dict[str, Distances]]]], ...] = (
            ("dpstabs", dpstabs),
            ("baseline", baseline),
        )
        for name, run in cases:
            plan, found = run(budget, runs)
            made += rows(name, label, plan, grows, STEPS, found)
    for name, plan, found in panel(ZCDP.of("1/50"), 10 * runs):
        steady = ExpectedTable(PEOPLE, 0, "steady")
        made += rows(name, "rho = 1/50", plan, steady, PERIODS, found)
    return made + points(runs)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "predicted-errors.md")
    asked = parser.parse_args()
    found = measure(asked.runs)
    lines = [
        "# Predicted standard errors beside measured ones",
        "",
        f"{STEPS} steps of {EACH} records; panels: {PEOPLE} people, {PERIODS} periods. {asked.runs} runs (panels: ten",
        "times as many). Chance: the standard deviation of the ratio that so many runs leave.",
        "",
        "| stream | budget | of | predicted | measured | measured / predicted | chance | off by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    inside = 0
    for name, budget, what, predicted, measured, chance in found:
        ratio = measured / predicted
        inside += abs(ratio - 1.0) <= 0.1
        off = (ratio - 1.0) / chance
        lines.append(
            f"| {name} | {budget} | {what} | {predicted:.2f} | {measured:.2f} | {ratio:.3f} | {chance:.3f} "
            f"| {off:+.1f} |"
        )
    lines += ["", f"{inside} of {len(found)} ratios are within 10 % of 1.", ""]
    write_result(asked.out, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
