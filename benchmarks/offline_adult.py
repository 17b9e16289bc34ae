"""Offline mechanisms on whole tables: AIM, MWEM+PGM and a table drawn again from the true one.

    DPSTREAM_DATA=... python benchmarks/offline_adult.py [--repeats N] [--tables NAME ...]

Tables: Adult (13 columns, 78 pairs), San Francisco evictions (22 columns, 231 pairs), and the two tables of
`dpstream simulate` (about 30,000 records each). The workload is all pairs; errors are means over the repetitions:

* AvgWE, MaxWE: mean and maximum over pairs of the mean error of a cell, as a share of the table; L1 and 3-way L1: mean
  over pairs, and over (up to 300 drawn) triples, of the summed error. In thousandths.
* model: AvgWE of the model of the same marginals without noise; the rest is noise.
* CPU: seconds of one process, its compiled functions loaded.

MWEM+PGM has k = 20 and 9/10 of the budget for measuring. The bootstrap draws as many records from the true ones: below
that no synthetic table can be expected. Compares with private truth: evaluation only.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.privacy import Budget, Event, PureDP, Randomness, approximate_to_zcdp
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.lab.experiments import data_folder
from dpstream.lab.experiments.replayed_streams import ConfigSource, KumarSource, Replay
from dpstream.mechanisms import AIM, MWEMPGM
from dpstream.tools.simulate import simulate

LONG = "about 5 minutes"

EPSILONS = ("1/2", "1", "2", "4")
DELTA = "1e-9"
MAX_TRIPLES = 300
#: Steps and records a step of the simulated tables.
SIMULATED = {"census": (20, 1500), "evictions": (150, 200)}

Arrays = Sequence[NDArray[np.float64]]
#: What a run's model says of some marginals.
Answers = Callable[[Sequence[Clique]], Arrays]


class Table:
    """A true table with the marginals that errors are about."""

    def __init__(self, name: str, replay: Replay) -> None:
        self.name, self.domain, self.records = name, replay.domain, len(replay.codes)
        self.codes, self.batch = replay.codes, EncodedBatch(replay.domain, replay.codes)
        self.workload = Workload.all_k_way(replay.domain, 2)
        triples = list(itertools.combinations(range(len(replay.domain)), 3))
        drawn = np.random.default_rng(0).permutation(len(triples))[:MAX_TRIPLES]
        self.triples = tuple(triples[i] for i in sorted(drawn))
        self.pairs_true = self.batch.count(self.workload.cliques, "inserts")
        self.triples_true = self.batch.count(self.triples, "inserts")

    def errors(self, answers: Answers) -> tuple[float, float, float, float]:
        """AvgWE, MaxWE, L1, 3-way L1."""
        pairs = self._distances(self.pairs_true, answers(self.workload.cliques))
        cells = np.array([len(true) for true in self.pairs_true])
        triples = self._distances(self.triples_true, answers(self.triples))
        we = pairs / cells
        return float(we.mean()), float(we.max()), float(pairs.mean()), float(triples.mean())

    def _distances(self, true: Sequence[NDArray[np.int64]], found: Arrays) -> NDArray[np.float64]:
        return np.array([np.abs(a - b).sum() for a, b in zip(true, found, strict=True)]) / self.records

    def model_part(self, cliques: Sequence[Clique]) -> float:
        """AvgWE of the model of some marginals without noise."""
        distinct = list(dict.fromkeys(cliques))
        exact = self.batch.count(distinct, "inserts")
        measured = [Measurement(c, y.astype(np.float64), 1.0) for c, y in zip(distinct, exact, strict=True)]
        model = fit(self.domain, measured, total=self.records, iterations=200, max_cells=10**8)
        cells = np.array([len(true) for true in self.pairs_true])
        answers = model.marginals(self.workload.cliques)
        return float((self._distances(self.pairs_true, answers) / cells).mean())


@dataclass(frozen=True)
class Run:
    """One repetition."""

    errors: tuple[float, float, float, float]
    model: float | None
    rounds: int | None
    seconds: float


def run_aim(table: Table, budget: Budget) -> Run:
    """Our AIM with its defaults, on stored counts."""
    plan = AIM().calibrate(table.workload, budget, Event())
    counts = table.batch.count(plan.counted, "inserts")
    began = time.process_time()
    run = plan.run_on(counts, Randomness.system())
    seconds = time.process_time() - began
    measured = [m.clique for m in run.measurements if m.clique]
    return Run(table.errors(run.model.marginals), table.model_part(measured), run.rounds, seconds)


def run_mwem(table: Table, budget: Budget) -> Run:
    """MWEM+PGM as it was best before."""
    plan = MWEMPGM(k=20, measure_share=Fraction(9, 10)).calibrate(table.workload, budget, Event())
    began = time.process_time()
    model: Model = plan.run(table.batch, "inserts", Randomness.system())
    seconds = time.process_time() - began
    return Run(table.errors(model.marginals), table.model_part(model.cliques), 20, seconds)


def run_bootstrap(table: Table, repeat: int) -> Run:
    """The true records, drawn with replacement."""
    rows = np.random.default_rng(repeat).integers(0, table.records, table.records)
    batch = EncodedBatch(table.domain, table.codes[rows])

    def answers(cliques: Sequence[Clique]) -> Arrays:
        return [counts.astype(np.float64) for counts in batch.count(cliques, "inserts")]

    return Run(table.errors(answers), None, None, 0.0)


def tables(names: Sequence[str]) -> Iterator[Table]:
    """The tables that are asked for, one after the other."""
    for name, stream in (("Adult", "Adult-ordered-bs-200"), ("evictions", "Eviction-weekly")):
        if name in names:
            yield Table(name, KumarSource(name, stream, data_folder(None)).load(0))
    for example, (steps, rows) in SIMULATED.items():
        name = f"simulated {example}"
        if name in names:
            with tempfile.TemporaryDirectory() as folder:
                path = simulate(example, steps, Path(folder) / example, rows_per_step=rows)
                yield Table(name, ConfigSource(name, path).load(0))


def row(name: str, budget: str, runs: Sequence[Run]) -> str:
    """One line of the table."""
    errors = np.mean([run.errors for run in runs], axis=0) * 1e3
    models = [run.model for run in runs if run.model is not None]
    rounds = [run.rounds for run in runs if run.rounds is not None]
    seconds = np.mean([run.seconds for run in runs])
    cells = [f"{errors[0]:.2f}", f"{errors[1]:.1f}", f"{errors[2]:.0f}", f"{errors[3]:.0f}"]
    cells.append(f"{np.mean(models) * 1e3:.2f}" if models else "")
    cells.append(f"{np.mean(rounds):.0f}" if rounds else "")
    cells.append(f"{seconds:.2f}" if seconds else "")
    return f"| {name} | {budget} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the tables as Markdown."""
    everything = ["Adult", "evictions", *(f"simulated {name}" for name in SIMULATED)]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--tables", nargs="+", default=everything, choices=everything)
    arguments = parser.parse_args()
    approximate = approximate_to_zcdp(1, DELTA)
    for table in tables(arguments.tables):
        pairs = len(table.workload)
        print(f"\n### {table.name}: {table.records:,} records, {len(table.domain)} columns, {pairs} pairs\n")
        print("| mechanism | budget | AvgWE | MaxWE | L1 | 3-way L1 | model | rounds | CPU |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        repeats = range(arguments.repeats)
        budgets: list[tuple[str, Budget]] = [(f"epsilon {text}", PureDP.of(text)) for text in EPSILONS]
        budgets.append((f"(1, {DELTA})", approximate))
        for run_one, name in ((run_mwem, "MWEM+PGM"), (run_aim, "AIM")):
            run_one(table, budgets[0][1])  # compiled functions are loaded, samplers built
            for label, budget in budgets:
                print(row(name, label, [run_one(table, budget) for _ in repeats]), flush=True)
        print(row("bootstrap", "", [run_bootstrap(table, repeat) for repeat in repeats]), flush=True)


if __name__ == "__main__":
    main()
