"""What a renewal costs in accuracy: a successor that begins with the last table, beside a stream that goes on.

    python benchmarks/renewal.py [--out benchmarks/results/renewal.txt]

The simulated evictions (inserts and deletes), DP-STabS with its defaults, epsilon 1 for every stream. After 104 steps
the stream is renewed; 52 steps later all releases are compared with the truth. "goes on": no renewal. "table": the
successor begins with the released table (what dpstream does). "model": it begins with the marginals of the old
stream's model, without the sampling error of a table. "added": the successor begins empty, and the old table is added
to what it says. Means and standard errors over some runs; evaluation only.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result
from numpy.typing import NDArray

from dpstream.core.contracts import StartTable, Synthesis
from dpstream.core.privacy import Randomness
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import DPStabs
from dpstream.project import Config
from dpstream.project.base import ColumnSource, MappedTable
from dpstream.stream import Batch
from dpstream.stream.admission import encode_batch
from dpstream.tools.evaluate import workload_errors
from dpstream.tools.simulate import simulate

LONG = "about 2 minutes"
BORDER, STEPS, RUNS = 104, 156, 6
WAYS = ("goes on", "table", "model", "added")


@dataclass(frozen=True)
class ModelStart:
    """A ``StartTable`` that answers from a model."""

    synthesis: Synthesis
    total_error: float | None = None

    @property
    def domain(self) -> Domain:
        return self.synthesis.domain

    @property
    def total(self) -> float:
        return self.synthesis.total

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        return self.synthesis.marginals(cliques)

    def records(self) -> NDArray[np.int32]:
        return self.synthesis.sample(round(self.total), 1)


def table_of(synthesis: Synthesis, seed: int) -> MappedTable:
    """The released table, every column as it is."""
    rows = max(0, round(synthesis.total))
    codes, domain = synthesis.sample(rows, seed), synthesis.domain
    columns = tuple(ColumnSource(codes[:, i], np.eye(size)) for i, size in enumerate(domain.sizes))
    return MappedTable(domain, columns, float(rows), None, seed)


def run(plan: Any, batches: Sequence[EncodedBatch], begin: StartTable | None) -> tuple[Any, list[Synthesis]]:
    """State and releases of one stream."""
    state, randomness = plan.start() if begin is None else plan.start_from(begin), Randomness.system()
    return state, [plan.step(state, batch, randomness) for batch in batches]


def one_run(plan: Any, batches: list[EncodedBatch], seed: int) -> dict[str, list[NDArray[np.float64]]]:
    """The last marginals by way."""
    cliques = Workload.all_k_way(plan.domain, 2).cliques
    _, old = run(plan, batches, None)
    last = old[BORDER - 1]
    table = table_of(last, seed)
    found = {"goes on": old[-1].marginals(cliques)}
    for way, begin in (("table", table), ("model", ModelStart(last))):
        _, new = run(plan, batches[BORDER:], begin)
        found[way] = new[-1].marginals(cliques)
    _, new = run(plan, batches[BORDER:], None)
    found["added"] = [
        a + b for a, b in zip(table.marginals(cliques), new[-1].marginals(cliques), strict=True)
    ]
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the lines here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Config.load(simulate("evictions", STEPS, folder))
        schema = config.schema()
        batches = [encode_batch(Batch(s.inserts, s.deletes), schema)[0] for s in config.source().steps(1)]
    workload = Workload.all_k_way(schema.domain, 2)
    plan, cliques = DPStabs(workload, deletions=True).calibrate(epsilon=1), workload.cliques
    truth = [np.sum(counts, axis=0) for counts in zip(*(b.count(cliques) for b in batches), strict=True)]
    records = int(truth[0].sum())
    errors: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for seed in range(RUNS):
        for way, marginals in one_run(plan, batches, seed).items():
            made = workload_errors(truth, marginals, records)
            errors[way].append((made.avg_we, made.max_we))
    lines = [f"{STEPS} steps, renewed after {BORDER}; {records} true records in the end; {RUNS} runs", ""]
    lines.append(f"{'':10}{'AvgWE':>18}{'MaxWE':>18}")
    for way in WAYS:
        values = np.array(errors[way])
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(RUNS)
        cells = (f"{m:.4f} +- {e:.4f}" for m, e in zip(mean, error, strict=True))
        lines.append(f"{way:10}" + "".join(f"{cell:>18}" for cell in cells))
    print("\n".join(lines))
    if options.out is not None:
        write_result(options.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
