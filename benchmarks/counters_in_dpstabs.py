"""Counters inside DP-STabS: errors of the released tables, where marginals take turns and where all are measured.

    DPSTREAM_DATA=... python benchmarks/counters_in_dpstabs.py [--repeats N] [--plans NAME ...] [--counters NAME ...]

Each run is a whole stream at epsilon 1, everything else default; AvgWE and MaxWE are means over the last ten
steps, shown as mean (smallest - largest) over the repetitions, beside the predicted error of a cell's
running sum over the expected measurements. Compares with private truth: evaluation only.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dpstream.core.counters import COUNTER_NAMES
from dpstream.core.counters.choose import rms_deviation
from dpstream.core.errors import BudgetError
from dpstream.families.tabular import DPStabsPlan
from dpstream.families.tabular.choice import expected_ticks
from dpstream.lab.experiments import data_folder
from dpstream.lab.experiments.methods import Method
from dpstream.lab.experiments.replayed_streams import KumarSource
from dpstream.lab.experiments.runs import Task, run_task

LONG = "about 20 minutes"


@dataclass(frozen=True)
class Plan:
    """A stream and a workload."""

    stream: str
    workload: Any
    k: int | None = None

    def method(self, counter: str) -> Method:
        """DP-STabS with this counter."""
        options: dict[str, Any] = {"name": "dpstabs", "counter": counter}
        return Method(counter, options if self.k is None else {**options, "k": self.k})


PLANS = {
    "Adult, 4 of 78 pairs": Plan("Adult-ordered-bs-200", "all-2-way"),
    "Evictions, 4 of 22 columns": Plan("Eviction-weekly", "all-1-way"),
    "Adult, all 13 columns": Plan("Adult-ordered-bs-50", "all-1-way", 13),
    "Evictions, all 22 columns": Plan("Eviction-weekly", "all-1-way", 22),
}


def tasks(plan: Plan, counter: str, repeats: int) -> Iterator[Task]:
    """The runs of one row."""
    source = KumarSource(plan.stream, plan.stream, data_folder(None))
    for repeat in range(repeats):
        yield Task(source, plan.method(counter), "1", repeat, workload=plan.workload)


def row(plan: Plan, counter: str, repeats: int) -> str | None:
    """One line of the table; None for a counter of another kind of budget."""
    chosen = list(tasks(plan, counter, repeats))
    stream = chosen[0].source.load(0)
    try:
        calibrated = plan.method(counter).plan(stream, "1", plan.workload)
    except BudgetError:
        return None
    assert isinstance(calibrated, DPStabsPlan)
    marginals = len(calibrated.recipe.workload)
    ticks = expected_ticks(len(stream), calibrated.recipe.rounds, marginals)
    predicted = rms_deviation(calibrated.counter, ticks)
    results = [run_task(task) for task in chosen]
    figures = [spread([result["final"][metric] for result in results]) for metric in ("AvgWE", "MaxWE")]
    seconds = statistics.median(result["cpu_seconds"] for result in results)
    label = counter if calibrated.choice is None else f"{counter} = {calibrated.counter.name}"
    cells = [
        label,
        str(len(stream)),
        str(ticks),
        f"{predicted:.1f}",
        *figures,
        f"{1e3 * seconds / len(stream):.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def spread(values: list[float]) -> str:
    """Mean (smallest - largest)."""
    return f"{statistics.mean(values):.5f} ({min(values):.5f}-{max(values):.5f})"


def main() -> None:
    """Print a table for each plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plans", nargs="+", default=list(PLANS))
    parser.add_argument("--counters", nargs="+", default=["best", *COUNTER_NAMES])
    chosen = parser.parse_args()
    print("Evaluation only: compares with private truth. Not releasable.")
    for name in chosen.plans:
        plan = PLANS[name]
        print(f"\n{name} ({plan.stream}, epsilon 1, {chosen.repeats} runs)\n")
        print(
            "| counter | steps | expected measurements | predicted RMS of a cell | AvgWE | MaxWE | CPU ms a step |"
        )
        print("|---|---|---|---|---|---|---|")
        for counter in chosen.counters:
            line = row(plan, counter, chosen.repeats)
            if line is not None:
                print(line, flush=True)


if __name__ == "__main__":
    main()
