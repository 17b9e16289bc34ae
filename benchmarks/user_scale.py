"""A million user ids in one step: CPU time, memory and bytes per id, beside one plain insert of the same rows.

    python benchmarks/user_scale.py [--users 1000000] [--out benchmarks/results/user_scale.txt]

Each database is a process of its own. Steps: all users new; the same again (all come back); a tenth new and the rest
at their bound, which is two events; fifty users among all. "Plain" is what Python's own driver takes to put the same
rows into an empty table, one by one in the order of the ids, in one transaction: what a straightforward program does,
without reading, hashing or checking anything. CPU is this process's; a PostgreSQL server works besides (wall).
"""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "streams"))

from bench import fresh, peak, show_result
from postgres_server import Cluster, programs
from toy_stream import SCHEMA, ToyPlan

from dpstream.core.privacy import User
from dpstream.stream import Batch, PostgresServer, StateKey, open_stream

LONG = "about 3 minutes"
BOUND = 2
MB = 2**20


def ids_of(first: int, last: int) -> Any:
    """User ids as texts of 12 signs."""
    import pyarrow as pa

    return pa.array(np.char.zfill(np.arange(first, last).astype("U12"), 12))


def steps(users: int) -> dict[str, Any]:
    """The batches, one made after the other."""
    tenth = users // 10
    return {
        "new users": lambda: ids_of(0, users),
        "the same users again": lambda: ids_of(0, users),
        "a tenth new, the rest at the bound": lambda: ids_of(tenth, users + tenth),
        "50 of them": lambda: ids_of(0, 50),
    }


def measure(users: int, kind: str, url: str | None) -> list[str]:
    """One stream's life on one database."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        state = Path(folder) / "state"
        options: dict[str, Any] = {"server": PostgresServer(url, "user_scale") if url else None}
        options["key"] = StateKey.generate() if kind == "SQLite, encrypted" else None
        plan = ToyPlan(unit=User(BOUND))  # type: ignore[arg-type]
        lines = [f"{kind}" + (f"; plain insert {plain(users):.2f} s CPU" if kind == "SQLite" else "")]
        with open_stream(plan, SCHEMA, state, **options) as stream:
            # What is compiled or imported at the first step is not about users.
            stream.step(Batch(np.zeros((3, 3), np.int32), users=["x", "y", "z"]), "warm")
            for name, make in steps(users).items():
                ids = make()
                batch = Batch(np.zeros((len(ids), 3), np.int32), users=ids)
                before, cpu, wall = peak(), time.process_time(), time.perf_counter()
                stream.step(batch, name)
                spent = time.process_time() - cpu, time.perf_counter() - wall
                more = f"{peak() - before:+.0f} MB peak"
                lines.append(f"    {name:<36} {spent[0]:6.2f} s CPU {spent[1]:7.2f} s wall   {more}")
        cpu, wall = time.process_time(), time.perf_counter()
        open_stream(plan, SCHEMA, state, **options).close()
        spent = time.process_time() - cpu, time.perf_counter() - wall
        lines.append(
            f"    {'opening (all counters are checked)':<36} {spent[0]:6.2f} s CPU {spent[1]:7.2f} s wall"
        )
        size = table_size(state, url)
        lines.append(f"    {size / (users * 1.1):.1f} bytes for each of {users * 11 // 10:,} ids")
    return lines


def plain(users: int) -> float:
    """CPU seconds of one INSERT for each row, the calibration."""
    rows = sorted((secrets.token_bytes(16), 1) for _ in range(users))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        db = sqlite3.connect(Path(folder) / "plain.sqlite")
        db.execute("CREATE TABLE users (id BLOB PRIMARY KEY, events INTEGER NOT NULL) WITHOUT ROWID")
        before = time.process_time()
        with db:
            db.executemany("INSERT INTO users VALUES (?, ?)", rows)
        spent = time.process_time() - before
        db.close()
    return spent


def table_size(state: Path, url: str | None) -> int:
    """Bytes of the counters in the database (SQLite: of the whole file without its log)."""
    if url is None:
        return (state / "stream.sqlite").stat().st_size
    import psycopg

    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_total_relation_size('user_scale.users')").fetchone()
        assert row is not None
        return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        f"{options.users:,} users, one record each, at most {BOUND} events; python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        "",
    ]
    for kind in ("SQLite", "SQLite, encrypted"):
        lines += [*fresh(measure, options.users, kind, None), ""]
    tools = programs()
    if tools is None:
        lines.append("PostgreSQL: no server on this machine")
    else:
        cluster = Cluster(tools)
        try:
            lines += fresh(measure, options.users, "PostgreSQL", cluster.url)
        finally:
            cluster.remove()
    text = "\n".join(lines) + "\n"
    show_result(text, options.out)


if __name__ == "__main__":
    main()
