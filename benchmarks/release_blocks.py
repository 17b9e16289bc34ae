"""A large release: draw, decode and write it, as a whole (as before) and in blocks.

    python benchmarks/release_blocks.py [--out benchmarks/results/release_blocks.txt] [--rows 1e6 1e7]

Each line is a process of its own. ``CPU`` is its CPU time (all threads) for drawing, decoding, writing and hashing one
table of 20 columns of mixed types from a graphical model; ``memory`` is how much its peak (ru_maxrss) lies above what
it took before, imports, compiled code and model included. ``clock`` is only worth reading on an idle machine: the load
average is told. The model is random; no data is involved.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from made_by import write_result

from dpstream.core.graphical import Model
from dpstream.core.graphical.junction_tree import junction_tree
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.families.tabular.table_release import ModelSynthesis
from dpstream.io.sinks import Publisher
from dpstream.stream.release import table_blocks
from dpstream.stream.release.manifest import labelled
from dpstream.stream.store.staging import Staging

LABEL: dict[str, Any] = {"title": "benchmark", "words": "synthetic"}


def schema() -> Schema:
    """Eight columns of texts, one of flags, five of whole numbers, three of real ones, three of times."""
    texts = [
        Categorical(f"text{i}", [f"value {j}" for j in range(size)], missing="missing" if i % 2 else None)
        for i, size in enumerate((2, 3, 5, 8, 12, 20, 30, 50))
    ]
    return Schema(
        [
            *texts,
            Boolean("flag"),
            Integer("age", min=0, max=99),
            Integer("count", edges=[0, 10, 100, 1000, 10000]),
            Integer("score", edges=list(range(0, 1000, 50)), missing="missing"),
            Integer("children", min=0, max=20),
            Categorical("class", [10, 20, 30, 40]),
            Real("rent", [0, 500, 1000, 2000, 5000]),
            Real("share", [i / 20 for i in range(21)], missing="missing"),
            Real("change", [-1, 0, 1, 100]),
            Date("since", start="2020-01-01", end="2024-12-31", every="month"),
            Date("seen", start="2024-01-01", end="2024-12-31", every="week"),
            DateTime("at", edges=["2024-01-01T00:00", "2024-01-01T12:00", "2024-01-02T00:00"]),
        ]
    )


def synthesis(columns: Schema, models: int) -> ModelSynthesis:
    """Chains of pairs with random potentials."""
    generator = np.random.default_rng(1)
    domain = columns.domain
    tree = junction_tree(domain, [(i, i + 1) for i in range(len(domain) - 1)])
    parts = tuple(Model(tree, generator.normal(0.0, 0.5, tree.parameters), 1.0) for _ in range(models))
    return ModelSynthesis(parts, 1.0)


def write(how: str, columns: Schema, model: ModelSynthesis, rows: int, folder: Path, form: str) -> int:
    """Make the table's file and its hash; the number of bytes."""
    sink = Publisher(folder / "releases", format=form)  # type: ignore[arg-type]
    if how == "whole":
        files = sink.render(labelled(model.released(columns, rows, 1), LABEL))
        [data] = [data for name, data in files.items() if name == sink.table_name]
        hashlib.sha256(data).hexdigest()
        (folder / "table").write_bytes(data)
        return len(data)
    blocks = table_blocks.decoded_blocks(model, columns, rows, 1, table_blocks.BLOCK, dictionaries=True)
    assert blocks is not None
    staged = table_blocks.write_blocks(sink, Staging(folder), 1, columns, LABEL, blocks)[sink.table_name]
    return staged.size  # type: ignore[union-attr]


def peak() -> float:
    """MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(how: str, rows: int, threads: int, models: int, form: str) -> dict[str, float]:
    """One table, in this process."""
    os.environ["DPSTREAM_THREADS"] = str(threads)
    columns = schema()
    model = synthesis(columns, models)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "first").mkdir()
        write(how, columns, model, 1000, folder / "first", form)  # compiled code and libraries are loaded
        base, cpu, clock = peak(), time.process_time(), time.perf_counter()
        size = write(how, columns, model, rows, folder, form)
        return {
            "cpu": time.process_time() - cpu,
            "clock": time.perf_counter() - clock,
            "memory": peak() - base,
            "base": base,
            "size": size / 1e6,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--one", help="internal: measure this one, as JSON")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*json.loads(arguments.one))))
        return
    lines = [
        f"{platform.machine()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the beginning.",
        "20 columns; CPU and clock in seconds; memory in MB above the base.",
        "",
        f"{'rows':>10} {'format':8} {'models':>6} {'how':8} {'threads':>7} {'CPU':>7} {'clock':>7} "
        f"{'memory':>8} {'base':>6} {'file MB':>8}",
    ]
    for rows in map(int, arguments.rows):
        for form, models, how, threads in (
            ("parquet", 1, "whole", 1),
            ("parquet", 1, "blocks", 1),
            ("parquet", 1, "blocks", 2),
            ("parquet", 3, "whole", 1),
            ("parquet", 3, "blocks", 2),
            ("csv", 1, "whole", 1),
            ("csv", 1, "blocks", 2),
        ):
            if rows > 5_000_000 and (form, models) != ("parquet", 1):
                continue  # the smaller tables tell as much
            asked = json.dumps([how, rows, threads, models, form])
            done = subprocess.run(
                [sys.executable, __file__, "--one", asked], check=True, capture_output=True, text=True
            )
            got = json.loads(done.stdout)
            lines.append(
                f"{rows:>10} {form:8} {models:>6} {how:8} {threads:>7} {got['cpu']:>7.2f} {got['clock']:>7.2f} "
                f"{got['memory']:>8.0f} {got['base']:>6.0f} {got['size']:>8.1f}"
            )
            print(lines[-1], flush=True)
    lines += ["", f"Load average {os.getloadavg()[0]:.1f} at the end."]
    if arguments.out:
        write_result(arguments.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
