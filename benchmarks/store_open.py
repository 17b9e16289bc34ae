"""Time to open a stream of 10,000 steps, encrypted and not, beside reading the same rows and files without checks.

    python benchmarks/store_open.py [--steps 10000] [--out benchmarks/results/store_open.txt]

A real stream: DP-STabS on three columns, every step published, tables and models kept of the last ten steps. The
encrypted one is a copy of it after ``rekey_store``, each value under a salt of its own (the worst case: every step was
made by another process). Opening checks the store's structure, every seal, the head, the
state, and that every released manifest is the committed one. Calibration: the same rows by SQLite alone and the same
manifests, with SHA-256 over them. Every opening is a new process, after one that fills the
file cache; CPU and wall time in that process, after a new stream was opened there (imports); medians of five, taking
turns.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import show_result

from dpstream import Batch, Publisher, Schema
from dpstream.core.contracts import StreamPlan
from dpstream.core.privacy import Event
from dpstream.core.schema import Boolean, Categorical
from dpstream.core.tables import Workload
from dpstream.families.tabular import DPStabs
from dpstream.stream import Publishing, StateKey, Stream, open_stream
from dpstream.stream.release.outlet import ReleasePublisher
from dpstream.stream.store import encryption
from dpstream.stream.store.encryption import write_key
from dpstream.stream.store.upkeep import rekey_store

LONG = "about 3 minutes"
RUNS = 5
KEEP = 10
SCHEMA = Schema(
    [Categorical("zip", ["94102", "94103"], other="other"), Boolean("paid"), Categorical("kind", ["a", "b"])]
)
ROWS = {"zip": ["94102", "94103", "10001"] * 4, "paid": [True, False] * 6, "kind": ["a", "b", "b"] * 4}


def plan() -> StreamPlan:
    """One marginal of pairs at every step."""
    workload = Workload.all_k_way(SCHEMA.domain, 2)
    return DPStabs(workload, k=1, counter="simple").calibrate(epsilon="1", unit=Event())


def opened(home: Path, key: StateKey | None) -> Stream:
    """The stream, with all checks of its opening."""
    sink = Publisher(home / "releases", format="csv")
    return open_stream(
        plan(), SCHEMA, home / "state", publish_to=sink, publishing=Publishing(keep=KEEP), key=key
    )


def build(home: Path, steps: int, key: StateKey) -> dict[str, Path]:
    """The stream, and its encrypted copy."""
    places = {"plain": home / "plain", "encrypted": home / "encrypted"}
    write = ReleasePublisher._write_catalogue
    with opened(places["plain"], None) as stream:
        for step in range(stream.last_step + 1, steps + 1):
            # The catalogue lists all steps; once is enough here.
            ReleasePublisher._write_catalogue = write if step == steps else lambda *arguments: None  # type: ignore[method-assign]
            stream.step(Batch(ROWS), f"b{step}", position={"rows": step})
    shutil.copytree(places["plain"], places["encrypted"])
    encryption._VALUES = 1
    rekey_store(places["encrypted"] / "state", old=None, new=key)
    return places


def calibration(home: Path) -> None:
    """Fetch and hash what opening has to look at."""
    db = sqlite3.connect(home / "state" / "stream.sqlite")
    total = hashlib.sha256()
    for row in db.execute("SELECT * FROM steps ORDER BY step"):
        for value in row:
            total.update(value if isinstance(value, bytes) else repr(value).encode())
    db.close()
    for path in (home / "releases").glob("step-*/manifest.json"):
        total.update(path.read_bytes())


def measure(work: str, home: Path, key: Path) -> tuple[float, float]:
    """Seconds of CPU (user and system) and of the clock, in this process."""
    secret = StateKey.from_file(key) if work == "encrypted" else None
    with tempfile.TemporaryDirectory() as folder:
        opened(Path(folder), secret).close()  # imports everything
    start, clock = time.process_time(), time.perf_counter()
    if work == "calibration":
        calibration(home)
    else:
        opened(home, secret).close()
    return time.process_time() - start, time.perf_counter() - clock


def child(work: str, home: Path, key: Path) -> tuple[float, float]:
    """One measurement in a new process."""
    command = [sys.executable, __file__, "--work", work, "--home", str(home), "--key", str(key)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(found[0]), float(found[1])


def report(steps: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        places = build(Path(folder), steps, write_key(key))
        works = {"calibration": places["plain"], **places}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for run in range(RUNS + 1):
            for name, home in works.items():
                found = child(name, home, key)
                if run:
                    times[name].append(found)
        sizes = {
            name: (home / "state" / "stream.sqlite").stat().st_size / 2**20 for name, home in places.items()
        }
    base = statistics.median(cpu for cpu, _ in times["calibration"])
    lines = [
        f"python {platform.python_version()}, {os.cpu_count()} cores shared with other work "
        f"(load average {os.getloadavg()[0]:.1f}); medians of {RUNS} runs, {steps} steps",
        "",
        f"{'opening a stream, seconds':<34}{'CPU':>7}{'range':>16}{'calibration':>14}{'clock':>10}{'store, MB':>11}",
    ]
    names = {
        "calibration": "rows and manifests, only hashed",
        "plain": "not encrypted",
        "encrypted": "encrypted",
    }
    for name, values in times.items():
        cpu, clock = ([pair[i] for pair in values] for i in (0, 1))
        middle, spread = statistics.median(cpu), f"{min(cpu):.2f} to {max(cpu):.2f}"
        size = f"{sizes[name]:.0f}" if name in sizes else ""
        lines.append(
            f"{names[name]:<34}{middle:>7.2f}{spread:>16}{middle / base:>13.1f}x"
            f"{statistics.median(clock):>10.2f}{size:>11}"
        )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", type=Path, help="also write the table here")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--key", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        print(*measure(options.work, options.home, options.key))
        return
    text = report(options.steps)
    show_result(text, options.out)


if __name__ == "__main__":
    main()
