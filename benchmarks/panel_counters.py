"""Cumulative panels: error by counter and by split of the budget, predicted and measured, and what calibrating costs.

    python benchmarks/panel_counters.py [--out benchmarks/results/panel_counters.txt]

Each person is tracked for every threshold (at least 1 .. T ones). "RMS" is the root mean square, over all thresholds
and periods, of the standard deviation of a count in people: the prediction is a formula; measured are the counters'
own estimates against the truth, over some runs on an invented panel. "Bound" holds for all counts at once with
probability 95 %. The tree with the split by levels is the paper's.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
from made_by import write_result

from dpstream.core.privacy import Individual, Randomness
from dpstream.families.panel import Cumulative, CumulativePlan
from dpstream.families.panel.cumulative import Split
from dpstream.tools.simulate import PovertyPanel

LONG = "about 4 minutes"
RHO = "0.005"
#: T -> runs that are measured.
RUNS = {12: 200, 60: 20, 240: 1}
METHODS: tuple[tuple[str, Split], ...] = (
    ("tree", "levels"), ("tree", "error"), ("simple", "error"), ("toeplitz", "error"), ("blt", "error"),
    ("best", "levels"), ("best", "error"),
)  # fmt: skip
PEOPLE = 5000
Relation = Literal["replace", "add-remove"]
RELATIONS: tuple[Relation, ...] = ("replace", "add-remove")


def predicted(plan: CumulativePlan) -> float:
    """Root mean square of the standard deviation, over all counts."""
    periods = plan.recipe.periods
    variances = [plan.variance(b, t) for b in range(1, periods + 1) for t in range(b, periods + 1)]
    return math.sqrt(math.fsum(variances) / len(variances))


def measured(plan: CumulativePlan, runs: int) -> float:
    """The same from the errors of the estimates."""
    periods = plan.recipe.periods
    panel = PovertyPanel(people=PEOPLE, periods=periods).draw(seed=1)
    so_far = panel.cumsum(axis=1, dtype=np.int64)
    squares = []
    for _ in range(runs):
        state, randomness = plan.start(PEOPLE), Randomness.system()
        for t in range(1, periods + 1):
            release = plan.step(state, panel[:, t - 1], randomness)
            truth = np.array([(so_far[:, t - 1] >= b).sum() for b in range(1, t + 1)])
            squares.append((release.estimates[1 : t + 1] - truth) ** 2)
    return math.sqrt(float(np.concatenate(squares).mean()))


def calibrating(periods: int, counter: str, split: Split, relation: Relation) -> float:
    """CPU seconds until the bound is known, where nothing is remembered from before."""
    begin = time.process_time()
    Cumulative(periods, counter=counter, split=split).calibrate(RHO, Individual(relation)).bounds  # noqa: B018
    return time.process_time() - begin


def fresh(*args: Any) -> float:
    """``calibrating`` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(calibrating, *args).result()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        f"rho {RHO}; python {platform.python_version()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        "",
        f"{'T':>4} {'relation':<11} {'counter':<13} {'split':<7} {'RMS':>7} {'measured':>9} {'bound':>7} "
        f"{'of tree, levels':>16} {'calibrating':>12}",
    ]
    for periods, runs in RUNS.items():
        for relation in RELATIONS:
            paper = math.nan
            for counter, split in METHODS:
                used = fresh(periods, counter, split, relation)
                plan = Cumulative(periods, counter=counter, split=split).calibrate(RHO, Individual(relation))
                rms, bound = predicted(plan), plan.bounds[-1]
                if (counter, split) == METHODS[0]:
                    paper = rms
                # The tree takes minutes a run at T = 240.
                worth = counter == "best" or (counter == "tree" and periods < 240)
                seen = f"{measured(plan, runs):9.1f}" if worth else f"{'':9}"
                lines.append(
                    f"{periods:>4} {relation:<11} {counter:<13} {split:<7} {rms:7.1f} {seen} {bound:7.0f} "
                    f"{rms / paper:>15.0%}  {used:>9.2f} s"
                )
                print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if options.out:
        write_result(options.out, text)


if __name__ == "__main__":
    main()
