"""Reading, encoding, hashing and counting files of 20 columns of text, beside Polars and DuckDB.

    python benchmarks/reading.py [--rows 10000000] [--text-rows 1000000] [--out benchmarks/results/reading.txt]

The files are invented: 20 columns of text with 2 to 42 values, 1 % null and 1 % undeclared values. Each case runs in a
process of its own: CPU seconds of all its threads after its libraries are loaded, and its highest memory. "Tables
first" is what dpstream does where it needs the values themselves (`dpstream check`): the whole file as text, then the
codes. Polars and DuckDB read the same file and count the same pairs. Counts are compared. Elapsed times on a machine
with other work say little, so none is shown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench import peak, show_result

from dpstream.io.sources.source import ReadOptions

LONG = "about 5 minutes"
SIZES = (2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 10, 12, 12, 15, 16, 16, 20, 42)
NAMES = tuple(f"c{i}" for i in range(len(SIZES)))
#: 105 pairs of 15 columns.
PAIRS = tuple(itertools.combinations(range(15), 2))


def words(column: int) -> list[str]:
    """The declared values of a column."""
    return [f"value {column} {value}" for value in range(SIZES[column])]


def write_files(folder: Path, rows: int, text_rows: int) -> None:
    """A Parquet file of ``rows`` records; all three formats with ``text_rows``."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    generator = np.random.default_rng(1)

    def table(count: int) -> Any:
        columns = {}
        for i, size in enumerate(SIZES):
            codes = np.minimum((generator.random(count) ** 2 * size).astype(np.int32), size - 1)
            codes[generator.random(count) < 0.01] = size
            texts = pa.array([*words(i), "undeclared"])
            null = generator.random(count) < 0.01
            columns[NAMES[i]] = texts.take(pa.array(codes, mask=null))
        return pa.table(columns)

    def parts(count: int) -> Any:
        for start in range(0, count, 2**20):
            yield table(min(2**20, count - start))

    writer = None
    for part in parts(rows):
        writer = writer or pyarrow.parquet.ParquetWriter(folder / "large.parquet", part.schema)
        writer.write_table(part)
    writer.close()
    small = pa.concat_tables(list(parts(text_rows)))
    pyarrow.parquet.write_table(small, folder / "small.parquet")
    pyarrow.csv.write_csv(small, folder / "small.csv")
    with (folder / "small.ndjson").open("w") as file:
        for record in small.slice(0, text_rows // 10).to_pylist():
            file.write(json.dumps(record) + "\n")


def schema() -> Any:
    """The declaration."""
    from dpstream.core.schema import Categorical, Schema

    columns = [Categorical(NAMES[i], words(i), other="other", missing="missing") for i in range(len(SIZES))]
    return Schema(columns)


def ours(path: Path, *, early: bool) -> dict[str, float]:
    """CPU seconds of the parts of a step up to its counts."""
    from dpstream.core.tables import _counting_kernels, _siphash  # noqa: F401 - loaded before the clock runs
    from dpstream.io.sources import SourceOptions, open_source
    from dpstream.stream import Batch
    from dpstream.stream.admission import RecordRows, encode_blocks

    declared = schema()
    declared.encode({name: ["x"] for name in NAMES})  # what Arrow loads at first use
    clock = Clock()
    options = SourceOptions.parse({"path": path.name, "every": "files"})
    source = open_source(
        options, ReadOptions(base=path.parent, columns=declared.names, schema=declared if early else None)
    )
    (step,) = source.steps()
    batch, came, went = encode_blocks(Batch(step.inserts), declared)
    clock.mark("read and encode")
    RecordRows(declared.domain, came, went).fingerprint(bytes(32))
    clock.mark("hash")
    counts = batch.count(PAIRS)
    clock.mark("count")
    clock.parts["sum"] = float(sum(int(table.sum()) for table in counts))
    return clock.parts


def polars(path: Path) -> dict[str, float]:
    """Categories, then one group-by for each pair, all in one query."""
    import polars as pl

    clock = Clock()
    categories = dict.fromkeys(NAMES, pl.Categorical)
    if path.suffix == ".csv":
        frame = pl.read_csv(path, schema=categories)
    else:
        frame = pl.read_parquet(path).cast(categories)
    clock.mark("read and encode")
    lazy = frame.lazy()
    pairs = [(NAMES[a], NAMES[b]) for a, b in PAIRS]
    counts = pl.collect_all([lazy.group_by(pair).len() for pair in pairs])
    clock.mark("count")
    clock.parts["sum"] = float(sum(table["len"].sum() for table in counts))
    return clock.parts


def duckdb(path: Path) -> dict[str, float]:
    """One GROUP BY for each pair, on a table of its own."""
    import duckdb

    clock = Clock()
    connection = duckdb.connect()
    text = "read_csv(?, all_varchar = true)" if path.suffix == ".csv" else "read_parquet(?)"
    kinds = {}
    for i, name in enumerate(NAMES):
        kinds[name] = f"kind{i}"
        values = ", ".join(f"'{word}'" for word in [*words(i), "undeclared"])
        connection.execute(f"CREATE TYPE kind{i} AS ENUM ({values})")
    columns = ", ".join(f"nullif({name}, '')::{kind} AS {name}" for name, kind in kinds.items())
    connection.execute(f"CREATE TABLE records AS SELECT {columns} FROM {text}", [str(path)])
    clock.mark("read and encode")
    total = 0
    for a, b in PAIRS:
        found = connection.execute(
            f"SELECT {NAMES[a]}, {NAMES[b]}, count(*) FROM records GROUP BY ALL"
        ).fetchall()
        total += sum(row[2] for row in found)
    clock.mark("count")
    clock.parts["sum"] = float(total)
    return clock.parts


def loaded() -> dict[str, float]:
    """Nothing but the libraries."""
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401

    from dpstream.core.tables import _counting_kernels, _siphash  # noqa: F401
    from dpstream.io.sources import files  # noqa: F401
    from dpstream.stream import admission  # noqa: F401

    schema().encode({name: ["x"] for name in NAMES})
    return {}


def bandwidth() -> dict[str, float]:
    """Bytes of 400 MB that are read in a second of CPU, best of nine: the largest of their 64-bit words."""
    data = np.ones(5 * 10**7, np.uint64)
    times = []
    for _ in range(9):
        start = time.process_time()
        data.max()
        times.append(time.process_time() - start)
    return {"bytes": data.nbytes / min(times)}


CASES: dict[str, Callable[[Path], dict[str, float]]] = {
    "dpstream": lambda path: ours(path, early=True),
    "tables first": lambda path: ours(path, early=False),
    "polars": polars,
    "duckdb": duckdb,
    "loaded": lambda _: loaded(),
    "bandwidth": lambda _: bandwidth(),
}


class Clock:
    """CPU seconds between marks."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self._last = time.process_time()

    def mark(self, name: str) -> None:
        """End of a part."""
        now = time.process_time()
        self.parts[name], self._last = now - self._last, now


def run(case: str, path: Path) -> dict[str, float]:
    """A case in a process of its own."""
    command = [sys.executable, __file__, "--case", case, "--file", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def line(name: str, case: str, path: Path, first: dict[str, float]) -> str:
    found = run(case, path)
    if first.setdefault(path.name, found["sum"]) != found["sum"]:
        raise SystemExit(f"{name}, {case}: other counts")
    parts = [found.get(part, 0.0) for part in ("read and encode", "hash", "count")]
    shown = "".join(f"{part:>10.2f}" if part else f"{'-':>10}" for part in parts)
    return f"{name:<28}{case:<14}{shown}{sum(parts):>10.2f} s{found['peak']:>10.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--text-rows", type=int, default=10**6)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        result = CASES[arguments.case](arguments.file)
        result["peak"] = peak()
        print(json.dumps(result))
        return
    rows, text_rows = arguments.rows, arguments.text_rows
    lines = [
        f"python {platform.python_version()}, {platform.machine()}; CPU seconds of all threads and highest memory,",
        "on a machine shared with other work",
        "",
        f"{'file':<28}{'':<14}{'read+code':>10}{'hash':>10}{'105 pairs':>10}{'all':>12}{'memory':>13}",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder, first = Path(name), dict[str, float]()
        write_files(folder, rows, text_rows)
        base = run("loaded", folder)["peak"]
        for label, file, cases in (
            (f"Parquet, {rows:,} rows", "large.parquet", ("dpstream", "tables first")),
            (
                f"Parquet, {text_rows:,} rows",
                "small.parquet",
                tuple(CASES)[:4],
            ),
            (f"csv, {text_rows:,} rows", "small.csv", tuple(CASES)[:4]),
            (f"NDJSON, {text_rows // 10:,} rows", "small.ndjson", ("dpstream", "tables first")),
        ):
            lines += [line(label, case, folder / file, first) for case in cases]
        counted = run("dpstream", folder / "large.parquet")["count"]
        once = run("bandwidth", folder)["bytes"]
    read = 2 * len(PAIRS) * rows / counted
    lines += [
        "",
        f"The pairs read two columns each, a byte a record: {read / 1e9:.1f} GB in a second of CPU. Reading 400 MB",
        f"once gives {once / 1e9:.1f} GB a second: counting has {read / once:.2f} of the memory's bandwidth.",
        f"A process that only loads the libraries of dpstream has {base:.0f} MB. All engines found the same records.",
    ]
    text = "\n".join(lines) + "\n"
    show_result(text, arguments.out)


if __name__ == "__main__":
    main()
