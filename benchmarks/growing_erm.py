"""Excess risk and accuracy over time of private classifiers on Adult, growing from 2,000 records.

    python benchmarks/growing_erm.py [--runs 10] [--out benchmarks/results/growing_erm]

Who earns more than 50,000, from six columns (27 features). A fifth of the records is held out for accuracy; the others
come in random order, 2,000 first and then 200 a step. Classifiers between runs are the last ones. Excess risk: the mean
loss over the records so far, less that of the best linear classifier without noise. "once": all of epsilon at that size
(no stream: it could be made once).

The private truth is needed to measure: evaluation only. Needs DPSTREAM_DATA.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from bench import drawing, open_frame, save_figure
from made_by import write_result
from numpy.typing import NDArray

from dpstream.core.privacy import Budget, PureDP, Randomness, approximate_to_zcdp
from dpstream.core.schema import Categorical, Schema
from dpstream.families.growing import ERM, BBImprover, BBScheduler, Database
from dpstream.families.growing.erm_run import (
    LOSSES,
    ErmRun,
    FeatureMap,
    LinearClassifier,
    LossName,
    Rows,
    minimise,
)

LONG = "about 4 minutes"
START, STEP, DELTA = 2_000, 200, "1e-6"
COLUMNS = ("education", "marital-status", "age", "hours-per-week", "capital-gain", "sex")
NUMBERS = (("age", 10), ("hours-per-week", 10), ("capital-gain", 13))
#: Nearly none: of the best classifier without noise.
WEAK = 2.0**-13

Codes = NDArray[np.int32]
#: The classifier in force at each size that is looked at.
Made = Iterator[tuple[int, LinearClassifier]]


@dataclass(frozen=True)
class Adult(ERM):
    """A classifier of the coded table, some of whose columns have a code beside their bins."""

    @cached_property
    def features(self) -> FeatureMap:
        """How codes become features."""
        return FeatureMap(self.schema.domain, self.target, columns=COLUMNS, numbers=NUMBERS)


def adult() -> tuple[Schema, Codes]:
    """The columns, and all records."""
    folder = Path(os.environ["DPSTREAM_DATA"]) / "adult"
    sizes = json.loads((folder / "adult-domain.json").read_text())
    names = (*COLUMNS, "income>50K")
    with gzip.open(folder / "adult.csv.gz", "rt", newline="") as file:
        table = np.array([[row[name] for name in names] for row in csv.DictReader(file)], np.int32)
    columns = (Categorical(name, [str(code) for code in range(sizes[name])]) for name in names)
    return Schema(tuple(columns)), table


def margins(features: FeatureMap, codes: Codes, made: LinearClassifier) -> NDArray[np.float64]:
    """What the classifier says of records: above 0, the positive class."""
    return features.margins([codes[:, position] for position in features.positions], made.coefficients)


def risk(loss: LossName, scores: NDArray[np.float64], labels: NDArray[np.float64]) -> float:
    """The mean loss, without regularisation."""
    m = scores * labels
    if loss == "logistic":
        return float(np.logaddexp(0.0, -m).mean())
    return float(np.where(m > 1.5, 0.0, np.where(m < 0.5, 1.0 - m, (1.5 - m) ** 2 / 2)).mean())


def looks(records: int) -> list[int]:
    """Sizes at which classifiers are judged: ends of steps, evenly spread on a logarithmic scale."""
    wanted = np.geomspace(START, records, 12)
    return sorted({START + STEP * int((size - START) // STEP) for size in wanted})


def database(box: ERM, codes: Codes) -> Database:
    """The counts that the box reads."""
    domain, (clique,) = box.features.domain, box.reads.cliques
    cells = np.ravel_multi_index(tuple(codes[:, i] for i in clique), domain.shape(clique))
    counts = np.bincount(cells, minlength=domain.cells(clique))
    return Database(len(codes), (counts,))


def scheduled(rerun: Any, budget: Budget) -> Callable[[ERM, Codes], Made]:
    """Through a scheduler or an improver."""

    def run(box: ERM, codes: Codes) -> Made:
        amount = {"epsilon": budget.epsilon} if isinstance(budget, PureDP) else {"rho": budget.rho}
        schedule = rerun(box).calibrate(**amount).schedule
        done, source, wanted = -1, Randomness.system(), looks(len(codes))
        for t in range(START, wanted[-1] + 1, STEP):
            due = schedule.due(done, t)
            if due is not None:
                made, done = box.run(due.budget, database(box, codes[:t]), source).released, due.last
            if t in wanted:
                yield t, made

    return run


def once(budget: Budget) -> Callable[[ERM, Codes], Made]:
    """All of the budget at each size."""

    def run(box: ERM, codes: Codes) -> Made:
        for t in looks(len(codes)):
            yield t, box.run(budget, database(box, codes[:t]), Randomness.system()).released

    return run


def without_noise(box: ERM, codes: Codes) -> Made:
    """The best one, not private."""
    for t in looks(len(codes)):
        rows = Rows(box.features, database(box, codes[:t]).counts[0], t)
        point = minimise(rows, ErmRun(box.features, LOSSES[box.loss], WEAK, PureDP.of(1), t))
        yield t, LinearClassifier(box.features, box.loss, point, 1e-9, t, WEAK)


def methods() -> dict[str, Callable[[ERM, Codes], Made]]:
    """By name."""
    pure, zcdp = PureDP.of(1), approximate_to_zcdp("1", DELTA)
    return {
        "pure: scheduler, gamma 1/10": scheduled(lambda box: BBScheduler(box, START, gamma="1/10"), pure),
        "pure: scheduler, gamma 1/2": scheduled(lambda box: BBScheduler(box, START, gamma="1/2"), pure),
        "pure: once": once(pure),
        "zCDP: scheduler, gamma 1/10": scheduled(lambda box: BBScheduler(box, START, gamma="1/10"), zcdp),
        "zCDP: scheduler, gamma 1/2": scheduled(lambda box: BBScheduler(box, START, gamma="1/2"), zcdp),
        "zCDP: improver, c 1/10": scheduled(lambda box: BBImprover(box, START, c="1/10"), zcdp),
        "zCDP: once": once(zcdp),
        "without noise": without_noise,
    }


def measure(name: str, loss: LossName, seed: int) -> tuple[dict[int, tuple[float, float]], float]:
    """Mean loss and held-out accuracy at each size; CPU seconds."""
    schema, table = adult()
    box = Adult(schema, "income>50K", loss=loss)
    table = table[np.random.default_rng(seed).permutation(len(table))]
    held = table[: len(table) // 5]
    codes = table[len(table) // 5 :]
    begun, found = time.process_time(), {}
    labels, target = 2.0 * codes[:, -1] - 1.0, held[:, -1] == 1
    for t, made in methods()[name](box, codes):
        right = (margins(box.features, held, made) > 0) == target
        found[t] = risk(loss, margins(box.features, codes[:t], made), labels[:t]), float(right.mean())
    return found, time.process_time() - begun


def main() -> None:
    """A table for each loss, and one picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/growing_erm"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Private classifiers on Adult, growing from 2,000 records",
        "",
        f"`make bench BENCH=growing_erm` ({asked.runs} runs). Measured on private truth: evaluation only.",
        f"Epsilon 1: pure, or with delta {DELTA} through zCDP; one record's values replaced. Excess risk (mean loss",
        "over the records so far, less that of the best linear classifier) / accuracy on held-out records in percent.",
        "",
    ]
    excess: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    for loss in ("logistic", "svm"):
        excess[loss] = {}
        for name in methods():
            runs = [measure(name, loss, seed) for seed in range(asked.runs)]  # type: ignore[arg-type]
            sizes = list(runs[0][0])
            excess[loss][name] = {
                t: (
                    float(np.mean([run[0][t][0] for run in runs])),
                    float(np.mean([run[0][t][1] for run in runs])),
                )
                for t in sizes
            }
            print(loss, name, f"{np.median([spent for _, spent in runs]):.1f} s", flush=True)
        best = excess[loss]["without noise"]
        zero = LOSSES[loss].at_zero
        shown = sorted({*list(best)[::2], list(best)[-1]})
        lines += [f"## {loss}", "", "| | " + " | ".join(f"{t:,}" for t in shown) + " |"]
        lines.append("|---|" + "---|" * len(shown))
        for name, found in excess[loss].items():
            cells = [f"{found[t][0] - best[t][0]:.3f} / {100 * found[t][1]:.1f}" for t in shown]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        _, table = adult()
        negative = 100 * float((table[:, -1] == 0).mean())
        cells = [f"{zero - best[t][0]:.3f} / {negative:.1f}" for t in shown]
        lines += ["| all coefficients 0, all negative | " + " | ".join(cells) + " |", ""]
    write_result(asked.out / "README.md", "\n".join(lines))
    print("\n".join(lines))
    draw(asked.out, excess["logistic"])


def draw(out: Path, found: dict[str, dict[int, tuple[float, float]]]) -> None:
    """Excess risk and accuracy of logistic regression."""
    figure, (left, right) = drawing().subplots(1, 2, figsize=(9.5, 4.6))
    best = found["without noise"]
    for number, (name, line) in enumerate(found.items()):
        style = ":" if "once" in name or name == "without noise" else "-"
        colour = f"C{number}"
        sizes = list(line)
        if name != "without noise":
            left.plot(sizes, [line[t][0] - best[t][0] for t in sizes], style, color=colour, label=name)
        right.plot(sizes, [100 * line[t][1] for t in sizes], style, color=colour, label=name)
    left.set(xscale="log", yscale="log", xlabel="records", ylabel="excess risk")
    left.set_yticks([0.02, 0.05, 0.1, 0.2, 0.35], ["0.02", "0.05", "0.1", "0.2", "0.35"])
    right.set(xscale="log", xlabel="records", ylabel="accuracy on held-out records, %")
    for panel in (left, right):
        panel.set_xticks(
            [2_000, 5_000, 10_000, 20_000, 40_000], ["2,000", "5,000", "10,000", "20,000", "40,000"]
        )
        panel.minorticks_off()
        open_frame(panel)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, fontsize=8, frameon=False)
    save_figure(figure, out / "risk.svg", below=0.11)


if __name__ == "__main__":
    main()
