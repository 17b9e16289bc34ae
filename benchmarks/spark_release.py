"""Released tables drawn in Spark's executors, by rows: the driver's memory, CPU seconds, and that all rows are there.

    python benchmarks/spark_release.py [--rows 1000000 100000000] [--out benchmarks/results/spark_release.txt]

Four columns, a model of three pairs. The driver's peak is that of its Python process while a table is drawn (the mark
is set back before). Its Java process runs the local executors too, so that its memory says nothing. CPU seconds are
those of all processes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from made_by import write_result
from spark import cpu

from dpstream.core.graphical import Model, junction_tree
from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.io.sinks import StepFiles
from dpstream.mechanisms.table_release import ModelSynthesis
from dpstream.spark import session
from dpstream.spark.release_tables import SparkTables
from dpstream.stream.release.table_blocks import BLOCK, drawing

LONG = "about 10 minutes, 2 GB of disk, and a Java"
SCHEMA = Schema(
    (
        Categorical("zip", tuple(f"z{i:03}" for i in range(200))),
        Integer("age", min=0, max=99),
        Boolean("paid"),
        Integer("rooms", min=0, max=9),
    )
)
LABEL = {"title": "benchmark"}


def synthesis(rows: int) -> ModelSynthesis:
    """A model of as many records, of pairs that are not independent."""
    tree = junction_tree(SCHEMA.domain, [(0, 1), (1, 2), (1, 3)])
    parameters = np.random.default_rng(1).normal(0.0, 1.0, tree.parameters)
    return ModelSynthesis((Model(tree, parameters, float(rows)),), float(rows))


def peak(*, reset: bool = False) -> float:
    """The largest resident memory of this process since it was reset, in MiB."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def measure(rows: int) -> str:
    """One line of the result."""
    with tempfile.TemporaryDirectory() as folder:
        sink = SparkTables(folder)
        manifest = json.dumps({"stream": "x", "stream_id": "y"}).encode()
        made = synthesis(rows)
        files = StepFiles(
            1,
            ["manifest.json"],
            lambda _: manifest,
            drawing=lambda: drawing(made, SCHEMA, rows, 7, BLOCK, LABEL),
        )
        before, began = cpu(os.getpid()), time.monotonic()
        start = peak(reset=True)
        sink.put(files)
        clock, used, high = time.monotonic() - began, cpu(os.getpid()) - before, peak()
        told = json.loads((Path(folder) / "synthetic/step=1/_parts.json").read_bytes())
        found = session().read.parquet(f"{folder}/synthetic").count()
        size = sum(one["bytes"] for one in told["parts"]) / 1e6
        digest = hashlib.sha256("".join(one["sha256"] for one in told["parts"]).encode()).hexdigest()[:8]
    same = "yes" if found == rows else "NO"
    parts = len(told["parts"])
    numbers = f"{size:>8.0f} {used:>8.1f} {clock:>8.1f} {start:>9.0f} {high:>9.0f}"
    return f"{rows:>10} {parts:>6} {numbers} {same:>5} {digest}"


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    session("local[2]", memory="1g")
    measure(300_000)  # the executors' loops are compiled
    lines = [
        "four columns, blocks of 2^18 rows, 16 blocks a part; memory in MiB: the driver's Python process",
        "",
    ]
    lines.append("      rows  parts       MB    CPU s  clock s    before      peak   all hash")
    for rows in given.rows:
        lines.append(measure(rows))
        print(lines[-1], flush=True)
    if given.out is not None:
        write_result(given.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
