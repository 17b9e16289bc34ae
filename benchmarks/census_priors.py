"""Public priors in a census: what a good one brings, and what a stale and wrong ones cost.

    python benchmarks/census_priors.py [--runs 5] [--out benchmarks/results/census_priors.md]

The invented register (``dpstream simulate stock``: ten columns, mean stay 12 steps, what is usual drifts), epsilon 1.
Priors as in ``priors.py``; the good one is drawn by the same law at step 1, the stale one half a round of the drift
later. Every run has the noise of the run without a prior: a census measures the same with any of them. Medians over
runs of the means over the steps named; ratios are those of a run to its partner. Evaluation only: it knows the truth.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from changing_tables import moments
from keyed_streams import KeyedStream, load
from made_by import write_result
from priors import measures, priors

from dpstream.core.contracts import PublicPrior
from dpstream.core.privacy import PureDP, Randomness, Record
from dpstream.core.tables import PresentBatch, PresentView, Workload
from dpstream.families.census import Census
from dpstream.tools.simulate import Stock

LONG = "about 10 minutes of one core"
STAY, STEPS, COMPARED = 12, 36, (1, 4, 8, 12, 18, 24, 30, 36)
#: Records, and how many times the runs: with few records chance is larger.
SIZES = ((300, 2), (1000, 2), (5000, 1))
#: A step at which what is usual is half a round away.
LATER = 61


def known(size: int, seed: int) -> dict[str, PublicPrior | None]:
    """Priors for a register of this seed."""
    stock = Stock(size, STAY, season=0.0, reload_at=None, burst_at=None)
    law = stock._law(np.random.default_rng(seed))
    good, stale = (stock._draw(law, 5000, step, np.random.default_rng([seed, step])) for step in (1, LATER))
    return priors(stock.schema.domain, good, stale)


def errors(stream: KeyedStream, recipe: Census, seed: int) -> list[tuple[float, float, float]]:
    """AvgWE, total variation and the first pair's L1 distance at the compared steps."""
    plan = recipe.calibrate(PureDP.of(1), Record())
    state, randomness, found = plan.start(), Randomness.seeded(seed), []
    cliques = recipe.workload.cliques
    for step, moment in moments(stream, STEPS, set(COMPARED)):
        release = plan.step(state, PresentBatch(PresentView(moment.after, moment.departed)), randomness)
        if step in COMPARED:
            found.append(measures(moment.after.count(cliques, 0), release.marginals(cliques)))
    return found


def one_size(size: int, runs: int) -> list[list[str]]:
    """The lines of the table of one register."""
    found = dict[str, list[list[tuple[float, float, float]]]]()
    for seed in range(runs):
        stream = load(f"stock:{size}:{STAY}:{STEPS}", seed)
        recipe = Census(Workload.all_k_way(stream.domain, 2), turnover=STAY)
        for label, prior in known(size, seed).items():
            found.setdefault(label, []).append(errors(stream, replace(recipe, prior=prior), seed))
    values, lines = {label: np.array(one) for label, one in found.items()}, []
    early = np.array(COMPARED) <= STAY
    for label, value in values.items():
        cells = [label]
        for part in (early, ~early):
            own, none = (one[:, part].mean(axis=1) for one in (value, values["none"]))
            ratio, worst = np.median(own[:, :2] / none[:, :2], axis=0), (own[:, 0] / none[:, 0]).max()
            cells += [f"{ratio[0]:.2f}", f"{worst:.2f}", f"{ratio[1]:.2f}", f"{np.median(own[:, 2]):.2f}"]
        lines.append(cells)
    return lines


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also write the lines here")
    options = parser.parse_args()
    heads = ["prior"]
    for part in (f"steps to {STAY}", "later"):
        heads += [f"{part}: AvgWE", f"{part}: AvgWE, worst run", f"{part}: TV", f"{part}: L1"]
    text = [
        "Medians over runs: AvgWE and mean total variation of the pairs (TV), each as a ratio to the same run without "
        "a prior; L1: of the first pair, as it is.",
    ]
    for size, times in SIZES:
        lines = one_size(size, times * options.runs)
        text += ["", f"## {size} records, {times * options.runs} runs", ""]
        text += [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines)]
        print("\n".join(text[-len(lines) - 4 :]), flush=True)
    if options.out is not None:
        write_result(options.out, "# Public priors in a census\n\n" + "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
