"""How much a synthetic table changes from step to step: records that stay, beside tables that are drawn anew.

    python benchmarks/churn.py [--out benchmarks/results/churn.txt]

DP-STabS with its defaults, epsilon 1, on the simulated evictions and, with DPSTREAM_DATA, on the first steps of
Adult in batches of 50. One run each, and one model per step: both tables come from the same models. "Changed" is
the number of records that differ from the table before (deletes plus inserts, the smallest number that leads from
one to the other), as a share of the table. "Needed" is the least that any table of that law can change, in
expectation: what the two models' densities do not share (estimated from the table). Errors are AvgWE of all
pairs against the truth: evaluation only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch, Workload, count_marginals
from dpstream.families.tabular import DPStabs
from dpstream.lab.experiments import data_folder, kumar_stream
from dpstream.project import Config
from dpstream.stream import Batch
from dpstream.stream.admission import encode_batch
from dpstream.stream.release.persistent_records import carry
from dpstream.tools.evaluate import workload_errors
from dpstream.tools.simulate import simulate

LONG = "about 2 minutes"
#: Steps of each stream, and the first that counts: early tables are nearly empty.
STEPS, FROM = 120, 21
Step = tuple[EncodedBatch, np.ndarray, np.ndarray]


def evictions(folder: Path) -> tuple[Any, Schema, Iterator[Step]]:
    """The invented evictions with deletions."""
    config = Config.load(simulate("evictions", STEPS, folder))
    steps = (
        encode_batch(Batch(one.inserts, one.deletes), config.schema()) for one in config.source().steps(1)
    )
    workload = Workload.all_k_way(config.schema().domain, 2)
    return DPStabs(workload, deletions=True).calibrate(epsilon=1), config.schema(), steps


def adult(folder: Path) -> tuple[Any, Schema, Iterator[Step]]:
    """The first steps of the real records, in random order."""
    stream = kumar_stream("Adult-randomized-bs-50", folder)
    columns = [
        Categorical(name, [str(code) for code in range(size)])
        for name, size in zip(stream.domain.names, stream.domain.sizes, strict=True)
    ]
    none = np.empty((0, len(columns)), dtype=np.int32)
    schema = Schema(columns)
    steps = (
        (EncodedBatch(schema.domain, stream.inserts(step)), stream.inserts(step), none)
        for step in range(1, STEPS + 1)
    )
    workload = Workload.all_k_way(schema.domain, 2)
    return DPStabs(workload).calibrate(epsilon=1), schema, steps


def differing(old: np.ndarray, new: np.ndarray) -> int:
    """Deletes and inserts that lead from one multiset of rows to the other."""
    _, group = np.unique(np.concatenate([old, new]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    size = int(group.max()) + 1 if len(group) else 0
    left, right = (
        np.bincount(group[: len(old)], minlength=size),
        np.bincount(group[len(old) :], minlength=size),
    )
    return int(abs(left - right).sum())


def needed(old: np.ndarray, earlier: Any, after: Any, rows: int) -> float:
    """Expected changes of a maximal coupling: what leaves, and as much and the growth that comes."""
    ratio = np.log(rows / len(old)) + after.log_density(old) - earlier.log_density(old)
    leaving = float(-np.expm1(np.minimum(ratio, 0.0)).sum())
    return 2 * leaving + rows - len(old)


def measure(name: str, plan: Any, schema: Schema, steps: Iterator[Step]) -> list[str]:
    """Run one stream, and tell its lines."""
    state, randomness = plan.start(), Randomness.system()
    cliques = Workload.all_k_way(schema.domain, 2).cliques
    truth = [np.zeros(schema.domain.cells(clique), np.int64) for clique in cliques]
    before: tuple[Any, Any] | None = None
    fresh_before: np.ndarray | None = None
    shares: dict[str, list[float]] = {"fresh": [], "persistent": [], "needed": []}
    errors: dict[str, list[float]] = {"fresh": [], "persistent": []}
    cpu = []
    for step, (batch, inserts, deletes) in enumerate(steps, start=1):
        synthesis = plan.step(state, batch, randomness)
        for total, new, gone in zip(
            truth,
            count_marginals(inserts, schema.domain, cliques),
            count_marginals(deletes, schema.domain, cliques),
            strict=True,
        ):
            total += new - gone
        rows = max(0, round(synthesis.total))
        fresh = synthesis.sample(rows, step)
        begin = time.process_time()
        made = carry(before, synthesis, schema, rows, step)
        if step >= FROM and before is not None and fresh_before is not None and rows:
            cpu.append(time.process_time() - begin)
            shares["fresh"].append(differing(fresh_before, fresh) / rows)
            shares["persistent"].append((made.deletes + made.inserts) / rows)
            shares["needed"].append(needed(before[0].codes, before[1], synthesis, rows) / rows)
            size = int(truth[0].sum())
            for kind, codes in (("fresh", fresh), ("persistent", made.records.codes)):
                counts = [one.astype(float) for one in count_marginals(codes, schema.domain, cliques)]
                errors[kind].append(workload_errors(truth, counts, size).as_dict()["AvgWE"])
        before, fresh_before = (made.records, synthesis), fresh
    last = shares["persistent"][-20:]
    return [
        f"{name}: {step} steps, {len(schema)} columns, {rows} rows at the end; steps {FROM} to {step}",
        f"    changed records, share of the table: drawn anew {np.mean(shares['fresh']):.3f}, "
        f"persistent {np.mean(shares['persistent']):.3f} (last 20 steps {np.mean(last):.3f}), "
        f"needed {np.mean(shares['needed']):.3f}: {np.mean(shares['fresh']) / np.mean(shares['persistent']):.1f} "
        "times less",
        f"    AvgWE, mean: drawn anew {np.mean(errors['fresh']):.5f}, persistent {np.mean(errors['persistent']):.5f}",
        f"    CPU of carrying a table, median: {1e3 * np.median(cpu):.0f} ms",
    ]


def main() -> None:
    """Run both streams and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the lines here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = measure("simulated evictions", *evictions(Path(folder)))
    if os.environ.get("DPSTREAM_DATA"):
        lines += measure("Adult, batches of 50", *adult(data_folder(None)))
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_result(options.out, text)


if __name__ == "__main__":
    main()
