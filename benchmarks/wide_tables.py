"""Tables of 100 and 500 columns: plan, opening, steps with publication, and counting beside Polars.

    python benchmarks/wide_tables.py [--rows 100000] [--steps 12] [--columns 100 500]
        [--out benchmarks/results/wide_tables.md]

All data is invented: columns of 2 to 20 values in groups of ten that depend on a hidden class; every step brings
``rows`` new records, and every released table has at most as many. The mechanism is the default one, with all pairs.
Times are CPU seconds of this process (the machine is shared); compiled code is on disk already. Every number of columns
is a process of its own. Counting: the same pairs of the same table, by this program and by Polars (all groups in one
``collect_all``); of 500 columns 5,000 of the pairs.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from bench import cpu, fresh, peak, show_result
from numpy.typing import NDArray

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Domain, Schema
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Pooled
from dpstream.io.sinks import Publisher
from dpstream.stream import Batch, Publishing, open_stream

LONG = "about 15 minutes"

#: Numbers of values of a column, and how common each is.
SIZES, SHARES = (2, 3, 4, 5, 8, 12, 20), (0.25, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05)
GROUP = 10
COUNTED_PAIRS = 5_000
EPSILON = 1

Result = dict[str, Any]


def domain(columns: int) -> Domain:
    sizes = np.random.default_rng(0).choice(SIZES, p=SHARES, size=columns)
    return Domain(tuple(f"c{i}" for i in range(columns)), tuple(sizes.tolist()))


def records(own: Domain, rows: int, step: int) -> NDArray[np.int32]:
    """The records of one step: two fifths of the values follow the group's hidden class."""
    draw = np.random.default_rng([1, step])
    hidden = draw.integers(0, 4, size=(rows, -(-len(own) // GROUP)))
    out = np.empty((rows, len(own)), np.int32, order="F")
    for i, size in enumerate(own.sizes):
        alone, together = draw.random(rows) ** 2 * size, hidden[:, i // GROUP] * size / 4
        values = np.where(draw.random(rows) < 0.4, together, alone).astype(np.int32)
        out[:, i] = np.minimum(values, size - 1)
    out.flags.writeable = False
    return out


def stream(columns: int, rows: int, steps: int) -> Result:
    """One process: plan, opening, steps."""
    own = domain(columns)
    schema = Schema([Categorical(n, range(s)) for n, s in zip(own.names, own.sizes, strict=True)])
    planning, plan = cpu(lambda: Pooled(Workload.all_k_way(own, 2)).calibrate(epsilon=EPSILON))
    explaining, _ = cpu(plan.facts)
    # Compiled code is loaded from the disk before anything is timed.
    small = Pooled(Workload.all_k_way(domain(4), 2)).calibrate(epsilon=100)
    state = small.start()
    for step in range(2):
        small.step(state, EncodedBatch(domain(4), records(domain(4), 600, step)), Randomness.system()).sample(
            9, 1
        )
    mechanism: list[float] = []

    def measured(*given: Any) -> Any:
        seconds, made = cpu(lambda: type(plan).step(plan, *given))
        mechanism.append(seconds)
        return made

    object.__setattr__(plan, "step", measured)
    with tempfile.TemporaryDirectory() as folder:
        opening, durable = cpu(
            lambda: open_stream(
                plan,
                schema,
                Path(folder) / "state",
                publish_to=Publisher(Path(folder) / "releases"),
                publishing=Publishing(max_rows=rows, keep=2),
            )
        )
        times = []
        with durable:
            for step in range(1, steps + 1):
                batch = Batch(records(own, rows, step))
                times.append(cpu(lambda batch=batch, step=step: durable.step(batch, f"b{step}"))[0])
        memory = peak()
    return {
        "columns": columns,
        "pairs": len(plan.recipe.workload),
        "cells": plan.cells.total,
        "plan": planning + explaining,
        "open": opening,
        "times": times,
        "mechanism": mechanism,
        "peak": memory,
    }


def counting(columns: int, rows: int) -> Result:
    """The same pairs of one table: this program and Polars."""
    import polars

    own = domain(columns)
    codes = records(own, rows, 1)
    pairs = list(itertools.combinations(range(columns), 2))
    if len(pairs) > COUNTED_PAIRS:
        pairs = sorted(random.Random(1).sample(pairs, COUNTED_PAIRS))
    batch = EncodedBatch(own, codes)
    batch.count(pairs)
    ours = min(cpu(lambda: batch.count(pairs))[0] for _ in range(3))
    frame = polars.DataFrame({f"c{i}": codes[:, i] for i in range(columns)}).lazy()

    def grouped() -> object:
        return polars.collect_all([frame.group_by(f"c{i}", f"c{j}").len() for i, j in pairs])

    theirs, tables = cpu(grouped)
    assert all(int(table["len"].sum()) == rows for table in tables)
    return {"pairs": len(pairs), "ours": ours, "theirs": theirs}


def report(columns: list[int], rows: int, steps: int) -> str:
    found = [fresh(stream, one, rows, steps) for one in columns]
    counted = [fresh(counting, one, rows) for one in columns]
    lines = [
        f"{rows:,} new records at each of {steps} steps, releases of at most {rows:,} rows, epsilon {EPSILON}, default "
        f"mechanism, all pairs; python {platform.python_version()}, numpy {np.__version__}. CPU seconds.",
        "",
        "| columns | pairs | cells | plan | opening | step, mean | last step | largest step | of a step the mechanism "
        "| peak MB |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in found:
        times = one["times"]
        lines.append(
            f"| {one['columns']} | {one['pairs']:,} | {one['cells']:,} | {one['plan']:.2f} | {one['open']:.2f} | "
            f"{statistics.mean(times):.2f} | {times[-1]:.2f} | {max(times):.2f} | "
            f"{statistics.mean(one['mechanism']):.2f} | {one['peak']:,.0f} |"
        )
    lines += ["", "| columns | pairs counted | this program | Polars | ratio |", "|--:|--:|--:|--:|--:|"]
    for number, one in zip(columns, counted, strict=True):
        lines.append(
            f"| {number} | {one['pairs']:,} | {one['ours']:.2f} | {one['theirs']:.2f} | "
            f"{one['theirs'] / one['ours']:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--columns", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--out", type=Path, help="also write the tables here")
    options = parser.parse_args()
    text = report(options.columns, options.rows, options.steps)
    show_result(text, options.out)


if __name__ == "__main__":
    main()
