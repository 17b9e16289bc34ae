"""Users of a Spark stream: CPU of a step beside one process, and what an opening costs with up to 10^8 users.

    python benchmarks/spark_users.py [--users 1000000] [--openings 1000000 10000000 100000000]
        [--out benchmarks/results/spark_users.txt]

A step has one record of each of ``--users`` users, in three columns; the second step has the same users again, the
third one a hundredth of them. CPU seconds in Spark are those of all processes of the session (of Python workers that
Spark ends meanwhile they are lost); seconds by the clock depend on what else the machine does. ``openings`` fills the
files of a stream with so many random users, 20 bytes each, and opens it: names, sizes and a sample; then everything is
read.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench import show_result
from spark import measured

from dpstream.core.privacy import User
from dpstream.core.tables import CounterShards, ShardedEvents, Workload
from dpstream.core.tables.counter_files import write_file
from dpstream.spark import batch, session
from dpstream.spark.passes import SHARDS, begin
from dpstream.stream import Batch, Stream, open_stream
from dpstream.stream.inspection import check_store
from dpstream.stream.store.summed_rows import write_events
from dpstream.tabular import DPStabs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "streams"))

from toy_stream import SCHEMA

LONG = "about 10 minutes, a Java, and 2 GB of disk"
BOUND = 2


def start(state: Path) -> Stream:
    """A stream, new or there."""
    plan = DPStabs(Workload.all_k_way(SCHEMA.domain, 2)).calibrate(epsilon=1, unit=User(BOUND))
    return open_stream(plan, SCHEMA, state)


def records(first: int, last: int) -> pa.Table:
    """One of each user, whose id is a text of 12 signs."""
    rng = np.random.default_rng(first)
    rows = last - first
    zips = pa.array(["94102", "94103", "94110", "x"]).take(pa.array(rng.integers(0, 4, rows)))
    who = pa.array(np.char.zfill(np.arange(first, last).astype("U12"), 12))
    paid, rent = pa.array(rng.random(rows) < 0.5), pa.array(rng.integers(0, 1999, rows))
    return pa.table({"zip": zips, "paid": paid, "rent": rent, "who": who})


def steps(users: int, folder: Path, spark: Any) -> list[str]:
    """Three steps in Spark and in one process."""
    lines = []
    parts = {"all users new": users, "the same users again": users, "a hundredth of them": users // 100}
    paths = []
    for number, rows in enumerate(parts.values()):
        paths.append(folder / f"{number}.parquet")
        pq.write_table(records(0, rows), paths[-1])
    for name in ("one process", "Spark, 2 cores"):
        with start(folder / name.split()[0].strip(",")) as stream:
            for number, (what, path) in enumerate(zip(parts, paths, strict=True)):
                frame: Any = Batch(pq.read_table(path), users="who")
                if name != "one process":
                    frame = batch(spark.read.parquet(str(path)).repartition(8), users="who")
                own = time.process_time()
                cpu, clock, _ = measured(lambda frame=frame, number=number: stream.step(frame, f"{number}"))
                cpu = time.process_time() - own if name == "one process" else cpu
                lines.append(f"    {name:<16} {what:<24} {cpu:8.1f} s CPU {clock:8.1f} s by the clock")
        lines.append(f"    {name:<16} {'opening':<24} {opened(folder / name.split()[0].strip(','))}")
    _, shards = files_of(folder / "Spark")
    counters = sum(file.users for file in shards.all_files())
    lines.append(f"    {len(shards.all_files())} files, {counters:,} counters in them")
    return lines


def opened(state: Path) -> str:
    """What an opening costs."""
    cpu, clock, _ = measured(lambda: start(state).close())
    return f"{cpu:8.2f} s CPU {clock:8.2f} s by the clock"


def files_of(state: Path) -> tuple[Path, CounterShards]:
    """Folder and committed files."""
    with start(state) as stream:
        folder, shards = stream._store.counter_files()
    assert shards is not None
    return folder, shards


def fill(state: Path, users: int) -> None:
    """Give a stream in the place of its counters those of so many random users."""
    rng = np.random.default_rng(1)
    with start(state) as stream:
        store = stream._store
        folder, _ = store.counter_files()
        generation = begin(folder, None).generation
        assert generation is not None
        files = {}
        for shard in range(SHARDS):
            own = users * (shard + 1) // SHARDS - users * shard // SHARDS
            high = np.sort(rng.integers(0, 2**64 // SHARDS, own, np.uint64)) + np.uint64(
                shard * (2**64 // SHARDS)
            )
            ids = np.stack([high, rng.integers(0, 2**63, own, np.uint64)], axis=1)
            name = generation.file_name(shard, 0)
            files[shard] = (write_file(folder, generation, name, ids, np.ones(own, np.int64)),)
        with store._transaction() as db:
            events = ShardedEvents(CounterShards(SHARDS, files), 0)
            write_events(db, store.meta["key"], store.last_step, events)


def openings(sizes: list[int], folder: Path, first: Path) -> list[str]:
    """Open a stream with so many users, and read everything."""
    lines = []
    for users in sizes:
        state = folder / f"{users}"
        shutil.copytree(first, state)
        state.chmod(0o700)
        cpu, clock, _ = measured(lambda state=state, users=users: fill(state, users))
        lines.append(
            f"    {users:>12,} users: files written          {cpu:8.2f} s CPU {clock:8.2f} s by the clock"
        )
        lines.append(f"    {users:>12,} users: opened                 {opened(state)}")
        cpu, clock, found = measured(lambda state=state: check_store(state, None))
        assert found.problems == ()
        lines.append(
            f"    {users:>12,} users: everything is checked  {cpu:8.2f} s CPU {clock:8.2f} s by the clock"
        )
        size = sum(path.stat().st_size for path in (state / "users").glob("*/*"))
        lines.append(f"    {users:>12,} users: {size / users:.1f} bytes each")
        shutil.rmtree(state)
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=10**6)
    parser.add_argument("--openings", type=int, nargs="*", default=[10**6, 10**7, 10**8])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    spark = session("local[2]", memory="1500m", settings={"spark.sql.shuffle.partitions": "16"})
    lines = [
        f"{options.users:,} users, one record each, at most {BOUND} events; {SHARDS} shards; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
        "",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # What is compiled or started at the first step is not about users.
        warm = folder / "warm.parquet"
        pq.write_table(records(0, 100), warm)
        with start(folder / "warm") as stream:
            stream.step(batch(spark.read.parquet(str(warm)), users="who"), "warm")
        lines += steps(options.users, folder, spark)
        lines += ["", "a stream with so many users:"]
        lines += openings(options.openings, folder, folder / "warm")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines += ["", f"the driver's Python process: {peak:,.0f} MB at most, the run in one process included"]
    text = "\n".join(lines) + "\n"
    show_result(text, options.out)


if __name__ == "__main__":
    main()
