"""Keyed records: CPU, memory and bytes written of a step, at several sizes of the table; snapshots compared; churn.

    python benchmarks/keyed_records.py [--records 1000000] [--snapshot 10000000] [--churn 1000000] [--out FILE]

Tables of ten columns with ten values each. The mechanism counts one marginal and draws noise, so that a step costs what
the stream does: reading, hashing, comparing, the store. A step has 10^4 changes: a third each of updates, inserts and
deletes. "Bytes written" is the length of SQLite's log after the step, emptied before it. CPU is this process's; the
calibration, hashes of 10^6 keys in a plain loop, tells how fast the machine is. Each size is a process of its own.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "streams"))

from bench import cpu, documented_parser, fresh, peak
from made_by import write_result
from toy_keyed import KeyedPlan

from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import PresentTable, ReadRequest
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.stream import KeyedBatch, KeyRules, Snapshot, StateKey, Stream, open_stream

LONG = "about 5 minutes"
CHANGES = 10_000
VALUES = [f"v{j}" for j in range(10)]
SCHEMA = Schema([Categorical(f"c{i}", VALUES) for i in range(10)])
MB = 2**20


def rows(keys: np.ndarray[Any, Any], rng: np.random.Generator) -> Any:
    """Records with these keys."""
    import pyarrow as pa

    words = pa.array(VALUES)
    cells = [pa.array(rng.integers(0, 10, len(keys), dtype=np.int32)) for _ in SCHEMA.names]
    columns = [pa.DictionaryArray.from_arrays(column, words) for column in cells]
    return pa.table([pa.array(keys), *columns], names=["id", *SCHEMA.names])


def changed(records: int, step: int, changes: int, rng: np.random.Generator) -> KeyedBatch:
    """Updates and deletes of keys among the first ones, and new keys."""
    import pyarrow as pa

    third = changes // 3
    known = rng.permutation(records)[: 2 * third]
    first = records + step * changes
    table = rows(np.concatenate([known, np.arange(first, first + third)]), rng)
    operations = np.repeat(["update", "delete", "insert"], third)
    rules = KeyRules(unknown="drop")
    return KeyedBatch(table.append_column("op", pa.array(operations)), "id", "op", rules=rules)


def opened(folder: str, key: StateKey | None, horizon: int) -> Stream:
    """The stream of a folder."""
    plan = KeyedPlan(domain=SCHEMA.domain, horizon=horizon)
    return open_stream(plan, SCHEMA, Path(folder) / "state", key=key)


def calibration() -> float:
    """Seconds for 10^6 keyed hashes in a loop."""
    key = b"k" * 32
    return cpu(lambda: [hashlib.blake2b(b"%d" % i, digest_size=16, key=key).digest() for i in range(10**6)])[
        0
    ]


def size(records: int, encrypted: bool) -> list[str]:
    """A load, three steps, and the reading of the present records by another process life."""
    rng, key = np.random.default_rng(1), StateKey.generate() if encrypted else None
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "state" / "stream.sqlite-wal"
        with opened(folder, key, 9) as stream:
            load, _ = cpu(lambda: stream.step(Snapshot(rows(np.arange(records), rng), "id"), "load"))
            seconds, written = [], []
            for step in range(1, 4):
                batch = changed(records, step, CHANGES, rng)
                stream._store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                stream._store._db.execute("PRAGMA wal_autocheckpoint = 0")
                seconds.append(cpu(lambda batch=batch, step=step: stream.step(batch, f"b{step}"))[0])
                written.append(log.stat().st_size)
        stored = sum(path.stat().st_size for path in log.parent.iterdir())
        with opened(folder, key, 9) as stream:
            reading, table = cpu(lambda: stream._store.present(SCHEMA.domain))
    own = (table.keys.nbytes + table.first.nbytes) / len(table)
    codes, log_bytes = table.codes.nbytes / len(table), sorted(written)[1]
    name = f"{records:,} records{', encrypted' if encrypted else ''}"
    return [
        f"{name}: loaded in {load:.1f} s, read again in {reading:.1f} s; {own:.0f} bytes of memory a record beside "
        f"{codes:.0f} of codes; {stored / records:.0f} bytes of the file a record",
        f"    a step of {CHANGES:,} changes: {sorted(seconds)[1]:.2f} s, {log_bytes / MB:.1f} MB written "
        f"({log_bytes / CHANGES:,.0f} bytes a change)",
    ]


def snapshot(records: int) -> list[str]:
    """A table that is compared with itself but for 10^4 records."""
    rng = np.random.default_rng(2)
    wanted = ReadRequest("present", SCHEMA, "record", None, b"k" * 32, "benchmark")
    given = rows(np.arange(records), rng)
    empty = PresentTable.empty(SCHEMA.domain)
    table, _ = empty.after(read_keyed(Snapshot(given, "id"), wanted).keyed.changes(empty), 1)  # type: ignore[union-attr]
    other = given.slice(CHANGES)
    reading, granted = cpu(lambda: read_keyed(Snapshot(other, "id"), wanted))
    marking, _ = cpu(lambda: granted.rows.fingerprint(b"f" * 32))
    comparing, changes = cpu(lambda: granted.keyed.changes(table))
    assert len(changes.keys) == CHANGES
    total = reading + marking + comparing
    parts = f"{reading:.1f} encoded, hashed and sorted; {marking:.1f} fingerprint; {comparing:.1f} merged"
    return [
        f"a snapshot of {records:,} keys compared: {total:.1f} s ({parts}); {peak():,.0f} MB at most, of which "
        f"{given.nbytes / MB:,.0f} MB are the snapshot"
    ]


def churn(changes: int) -> list[str]:
    """Records come and go at a constant size."""
    import pyarrow as pa

    rng, held, turn = np.random.default_rng(3), 50_000, 10_000
    steps = changes // (2 * turn)
    sizes, memory = [], []
    with tempfile.TemporaryDirectory() as folder, opened(folder, None, steps + 1) as stream:
        stream.step(Snapshot(rows(np.arange(held), rng), "id"), "load")
        for step in range(steps):
            come = np.arange(held + step * turn, held + (step + 1) * turn)
            table = rows(np.concatenate([come, come - held]), rng)
            operations = pa.array(np.repeat(["insert", "delete"], turn))
            stream.step(KeyedBatch(table.append_column("op", operations), "id", "op"), f"b{step}")
            sizes.append(sum(path.stat().st_size for path in (Path(folder) / "state").iterdir()) / MB)
            memory.append(peak())
    tenth = max(1, steps // 10)
    return [
        f"{changes:,} changes at {held:,} records, {steps} steps: the state {sizes[tenth - 1]:.1f} MB after a tenth of "
        f"them and {sizes[-1]:.1f} MB at the end; memory at most {memory[tenth - 1]:,.0f} and {memory[-1]:,.0f} MB"
    ]


def main() -> None:
    """Measure and print, or write."""
    parser = documented_parser(__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--snapshot", type=int, default=10_000_000)
    parser.add_argument("--churn", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    work: list[tuple[Callable[..., list[str]], tuple[Any, ...]]] = [
        (size, (given.records // 10, False)),
        (size, (given.records, False)),
        (size, (given.records, True)),
        (snapshot, (given.snapshot,)),
        (churn, (given.churn,)),
    ]
    machine = f"Python {platform.python_version()}, {platform.machine()}"
    text = f"{machine}. CPU seconds; 10^6 plain hashes: {calibration():.2f} s.\n"
    for function, arguments in work:
        lines = fresh(function, *arguments)
        print("\n".join(lines), flush=True)
        text += "".join(f"\n{line}" for line in lines)
    if given.out is not None:
        write_result(given.out, text + "\n")


if __name__ == "__main__":
    main()
