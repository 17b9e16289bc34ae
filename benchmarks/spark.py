"""Counting in Spark beside counting in one process: CPU seconds of driver, JVM and Python workers, by rows.

    python benchmarks/spark.py [--rows 100000 1000000] [--cores 1 2] [--out benchmarks/results/spark.txt]

105 pairs of 15 columns, 1 % null, 1 % undeclared values. All counts and hashes are compared. CPU seconds are those of
all processes of the session; seconds by the clock depend on what else the machine does. ``parts`` spreads the same rows
over up to 1,000 partitions. ``transport`` sends the records to Python workers that drop them.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from made_by import write_result

from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch, ReadRequest
from dpstream.spark import batch, session
from dpstream.stream.admission import RecordRows

LONG = "about 5 minutes, and a Java"
COLUMNS, KEY = 15, bytes(range(32))
SIZES = tuple(3 + (7 * i) % 20 for i in range(COLUMNS))
SCHEMA = Schema(
    tuple(
        Categorical(f"c{i}", tuple(f"v{j}" for j in range(size)), other="other", missing="missing")
        for i, size in enumerate(SIZES)
    )
)
PAIRS = tuple(itertools.combinations(range(COLUMNS), 2))


def table(rows: int) -> pa.Table:
    """Text columns; value ``size`` is not declared."""
    rng = np.random.default_rng(rows)
    columns = {}
    for i, size in enumerate(SIZES):
        codes = np.minimum((rng.random(rows) ** 2 * size).astype(np.int64), size - 1)
        codes[rng.random(rows) < 0.01] = size
        texts = pa.array([f"v{j}" for j in range(size + 1)])
        columns[f"c{i}"] = texts.take(pa.array(codes, mask=rng.random(rows) < 0.01))
    return pa.table(columns)


def cpu(process: int) -> float:
    """CPU seconds of a process and of all that it has started, those that ended included."""
    found, tick = 0.0, os.sysconf("SC_CLK_TCK")
    children: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            times[int(entry.name)] = sum(map(int, fields[11:15])) / tick
    waiting = [process]
    while waiting:
        one = waiting.pop()
        found += times.get(one, 0.0)
        waiting += children.get(one, [])
    return found


def measured(action: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds of everything, seconds by the clock, and the result."""
    before, began = cpu(os.getpid()), time.monotonic()
    result = action()
    return cpu(os.getpid()) - before, time.monotonic() - began, result


def in_spark(frame: Any) -> tuple[bytes, list[Any]]:
    """One pass: the content's hash and all pairs."""
    granted = batch(frame).grant(ReadRequest("counts", SCHEMA, "event", None, KEY, "step", PAIRS))
    assert granted.view is not None
    return granted.rows.fingerprint(KEY), granted.view.count(PAIRS)


def in_process(path: Path) -> tuple[bytes, list[Any]]:
    """The same from the same file."""
    codes = SCHEMA.encode(pq.read_table(path))
    codes.flags.writeable = False
    rows = RecordRows(SCHEMA.domain, codes, codes[:0])
    return rows.fingerprint(KEY), EncodedBatch(SCHEMA.domain, codes).count(PAIRS)


def dropped(batches: Any) -> Any:
    """Take all records, give none."""
    for one in batches:
        yield one.slice(0, 0)


def equal(one: tuple[bytes, list[Any]], two: tuple[bytes, list[Any]]) -> bool:
    """Whether hash and all counts are the same."""
    return one[0] == two[0] and all(map(np.array_equal, one[1], two[1]))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [
        f"{len(PAIRS)} pairs, {sum(map(SCHEMA.domain.cells, PAIRS))} cells; {os.cpu_count()} processors",
        "",
    ]
    lines.append(f"{'rows':>9} {'what':32} {'CPU s':>7} {'clock s':>8}  equal")

    def tell(rows: int, what: str, found: tuple[float, float, Any], good: bool | None) -> None:
        word = "" if good is None else "yes" if good else "NO"
        lines.append(f"{rows:9} {what:32} {found[0]:7.2f} {found[1]:8.2f}  {word}")
        print(lines[-1], flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder, expected = Path(name), {}
        for rows in options.rows:
            path = folder / f"{rows}.parquet"
            pq.write_table(table(rows), path, row_group_size=max(rows // 8, 1))
            in_process(path)
            best = min(
                (measured(lambda path=path: in_process(path)) for _ in range(3)), key=lambda one: one[0]
            )
            expected[rows] = best[2]
            tell(rows, "one process", best, None)
        for cores in options.cores:
            settings = {"spark.sql.shuffle.partitions": "8", "spark.sql.files.maxPartitionBytes": "8m"}
            start = measured(
                lambda cores=cores, settings=settings: session(
                    f"local[{cores}]", memory="1g", settings=settings
                )
            )
            spark = start[2]
            tell(0, f"start of a session, {cores} cores", start, None)
            for rows in options.rows:
                frame = spark.read.parquet(str(folder / f"{rows}.parquet"))
                in_spark(frame)  # workers import and compile once
                for what, action in (
                    (f"Spark, {cores} cores", lambda frame=frame: in_spark(frame)),
                    (
                        f"Spark, {cores} cores, transport",
                        lambda frame=frame: frame.mapInArrow(dropped, frame.schema).toArrow(),
                    ),
                ):
                    found = min((measured(action) for _ in range(3)), key=lambda one: one[0])
                    good = None if "transport" in what else equal(found[2], expected[rows])
                    tell(rows, what, found, good)
            rows = options.rows[0]
            for parts in (1, 10, 100, 1000):
                frame = spark.read.parquet(str(folder / f"{rows}.parquet")).repartition(parts)
                found = measured(lambda frame=frame: in_spark(frame))
                tell(rows, f"Spark, {cores} cores, {parts} parts", found, equal(found[2], expected[rows]))
            spark.stop()
    if options.out is not None:
        write_result(options.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
