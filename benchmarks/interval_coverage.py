"""How often 95 % intervals hold the truth, and how the model's own values compare with the measurement.

    python benchmarks/interval_coverage.py [--runs N] [--out benchmarks/results/interval_coverage.txt]

Simulated streams of four columns (2, 3, 4 and 5 values, dependent), real noise from the operating system, every
mechanism as users run it. Checked at steps 1, 2, 3 and 16 of each run. Three kinds of intervals:

cells   every cell of every marginal that was measured at every step (``Release.marginal(...).interval()``)
sums    eight questions of several cells each (``Release.answer(...).interval()``)
total   the noisy number of records plus and minus 1.96 ``Release.total_standard_error``

"model" is the root mean square error of the model's values divided by that of the measurements, for the same cells
and questions: below 1, the released values are the better ones. Shares are over all checks; noise is shared by the
cells of a run's steps and by a cell's sums, so the last digit is noisy. "cells at 2/3" is the control: intervals of
two thirds of the width must fail. Numbers compare with simulated truth; no private data is read.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench import show_result
from numpy.typing import NDArray

from dpstream.core.privacy import Event, Randomness
from dpstream.core.schema import Integer, Schema, parse_predicate
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Baseline, DPStabs
from dpstream.mechanisms import MWEMPGM
from dpstream.stream import Release

LONG = "about 6 minutes"
SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}
SCHEMA = Schema([Integer(name, min=0, max=size - 1) for name, size in SIZES.items()])
PAIRS = Workload.all_k_way(SCHEMA.domain, 2)
EVERY = len(PAIRS.cliques)
STEPS = 16
CHECKED = (1, 2, 3, 16)
QUESTIONS = (
    "a = 1",
    "d in (0, 2, 4)",
    "b >= 1",
    "not c = 2",
    "a = 0 and b <= 1",
    "c < 2 or d = 0",
    "(a = 1 and d >= 3) or (a = 0 and d < 3)",
    "b = 0 or c = 3",
)


@dataclass(frozen=True)
class Case:
    """A plan, and the streams it is run on."""

    name: str
    recipe: DPStabs | Baseline
    budget: dict[str, Any]
    rows: int = 200


def all_measured(**options: Any) -> DPStabs:
    """DP-STabS that measures every marginal at every step."""
    return DPStabs(PAIRS, k=EVERY, **options)


COUNTERS = ("simple", "block", "tree", "unbounded-block", "unbounded-block-closed", "hybrid")
CASES = [
    *(Case(f"{c}, epsilon 1", all_measured(counter=c), {"epsilon": "1"}) for c in COUNTERS),
    *(Case(f"{c}, rho 1/8", all_measured(counter=c), {"rho": "1/8"}) for c in ("simple", "tree", "hybrid")),
    Case("simple, epsilon 1, deletions", all_measured(deletions=True), {"epsilon": "1"}),
    Case("block, rho 1/8, deletions", all_measured(counter="block", deletions=True), {"rho": "1/8"}),
    Case("hybrid, epsilon 1, 5 rows a step", all_measured(counter="hybrid"), {"epsilon": "1"}, 5),
    Case("simple, epsilon 1, 5,000 rows a step", all_measured(), {"epsilon": "1"}, 5000),
    Case("simple, epsilon 30 (noise of one record)", all_measured(), {"epsilon": "30"}),
    Case("simple, epsilon 1, net counts (literal)", all_measured(past="literal"), {"epsilon": "1"}),
    Case(
        "tree, epsilon 1, replace", all_measured(counter="tree"), {"epsilon": "1", "unit": Event("replace")}
    ),
]
SELECTED = [
    Case("simple, k = 5 of 6, epsilon 1", DPStabs(PAIRS, k=5), {"epsilon": "1"}),
    Case("tree, k = 5 of 6, epsilon 1", DPStabs(PAIRS, k=5, counter="tree"), {"epsilon": "1"}),
    Case("simple, k = 2 of 6, epsilon 1", DPStabs(PAIRS, k=2), {"epsilon": "1"}),
    Case("block, k = 2 of 6, epsilon 1", DPStabs(PAIRS, k=2, counter="block"), {"epsilon": "1"}),
    Case("hybrid, k = 2 of 6, deletions", DPStabs(PAIRS, k=2, counter="hybrid", deletions=True), {"epsilon": "1"}),
    Case("baseline, k = 3", Baseline(PAIRS, MWEMPGM(k=3)), {"epsilon": "1"}),
    Case("baseline, k = 3, deletions", Baseline(PAIRS, MWEMPGM(k=3), deletions=True), {"epsilon": "1"}),
]  # fmt: skip


@dataclass
class Tally:
    """Hits and squared errors of one case."""

    hits: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    squares: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def share(self, kind: str) -> str:
        found = self.hits.get(kind)
        return f"{100 * np.mean(found):6.1f}" if found else "     -"

    def ratio(self) -> str:
        if not self.squares:
            return "     -"
        model, measured = (np.mean(self.squares[kind]) for kind in ("model", "measured"))
        return f"{np.sqrt(model / measured):6.2f}" if measured else "     -"


def stream(case: Case, generator: np.random.Generator) -> list[tuple[EncodedBatch, NDArray[np.int32]]]:
    """Batches, and the table after each."""
    deletions = case.recipe.deletions
    table = np.empty((0, len(SIZES)), dtype=np.int32)
    found = []
    for _ in range(STEPS):
        a = generator.integers(0, 2, case.rows)
        b = np.where(generator.random(case.rows) < 0.6, a, generator.integers(0, 3, case.rows))
        c = (b + generator.integers(0, 3, case.rows)) % 4
        d = np.where(generator.random(case.rows) < 0.5, 4, generator.integers(0, 5, case.rows))
        rows = np.column_stack([a, b, c, d]).astype(np.int32)
        gone = table[: len(table) // 8]
        table = np.concatenate([table[len(gone) :] if deletions else table, rows])
        found.append((EncodedBatch(SCHEMA.domain, rows, gone if deletions else None), table))
    return found


def check(release: Release, table: NDArray[np.int32], tally: Tally) -> None:
    """One release against its truth."""
    for clique in PAIRS.cliques:
        marginal = release.marginal([SCHEMA.names[i] for i in clique])
        interval = marginal.interval()
        if interval is None:
            continue
        truth = np.zeros(marginal.values.shape)
        np.add.at(truth, tuple(table[:, clique].T), 1.0)
        low, high = interval
        tally.hits["cells"].extend(((low <= truth) & (truth <= high)).ravel().tolist())
        narrow = np.abs(truth - (low + high) / 2) <= (high - low) / 3
        tally.hits["narrow"].extend(narrow.ravel().tolist())
        tally.squares["model"].extend(((marginal.values - truth) ** 2).ravel().tolist())
        tally.squares["measured"].extend((((low + high) / 2 - truth) ** 2).ravel().tolist())
    for question in QUESTIONS:
        answer = release.answer(question)
        ends = answer.interval()
        if ends is None:
            continue
        predicate = parse_predicate(question, SCHEMA)
        true = float(predicate.mask()[tuple(table[:, predicate.columns].T)].sum())
        tally.hits["sums"].append(ends[0] <= true <= ends[1])
        tally.squares["model"].append((answer.value - true) ** 2)
        tally.squares["measured"].append((answer.measured_value - true) ** 2)
    error = release.total_standard_error
    if error is not None:
        tally.hits["total"].append(abs(release.total - len(table)) <= 1.96 * error)


def simulate(case: Case, runs: int, generator: np.random.Generator) -> Tally:
    """Many runs of one case."""
    tally = Tally()
    plan = case.recipe.calibrate(**case.budget, horizon=STEPS)
    for _ in range(runs):
        state, randomness = plan.start(), Randomness.system()
        for step, (batch, table) in enumerate(stream(case, generator), start=1):
            synthesis = plan.step(state, batch, randomness)
            if step in CHECKED:
                manifest = {"stream": "coverage", "rows_in_table": 0}
                check(Release(step, str(step), manifest, synthesis, 0, SCHEMA), table, tally)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    generator = np.random.default_rng()
    lines = [
        f"{arguments.runs} runs of each case, {STEPS} steps; per cent of truths inside 95 % intervals",
        "",
    ]
    begin = time.process_time()
    for title, cases in (
        ("every marginal measured at every step", CASES),
        ("marginals selected (the total only)", SELECTED),
    ):
        lines.append(f"{title:44}  cells   sums  total  model  cells at 2/3")
        for case in cases:
            tally = simulate(case, arguments.runs, generator)
            parts = [tally.share("cells"), tally.share("sums"), tally.share("total"), tally.ratio()]
            lines.append(f"{case.name:44} {' '.join(parts)} {tally.share('narrow')}")
            print(lines[-1], file=sys.stderr, flush=True)
        lines.append("")
    lines.append(f"CPU time {time.process_time() - begin:.0f} s")
    text = "\n".join(lines) + "\n"
    show_result(text, arguments.out)


if __name__ == "__main__":
    main()
