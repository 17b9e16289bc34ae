"""What a durable step adds at Adult's size: milliseconds, transactions, fsyncs and stored bytes.

    python benchmarks/commit_cost.py [--folder DISK] [--slow MS] [--out benchmarks/results/commit_cost.txt]

DP-STabS on Adult's 13 columns and 78 pairs in random order (with DPSTREAM_DATA set the real ones, else simulated
records of the same sizes), batches of 50, epsilon 1, Parquet releases, nothing expires. Every part of the
protocol (docs/guide/durability.md) is timed by itself, wall clock, medians over steps. A bare write with fsync is
timed in the same run, because it takes 0.1 ms on one disk and 10 ms on the next: the fsyncs are what to compare.
They are counted in the C library (a small preloaded library, built with cc; without a compiler only
milliseconds are told), which can also make each one slower by ``--slow`` milliseconds. Peer: the bare fsync, and
the step without all this.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bench import show_result
from stream_step import BATCH, adult_stream, calibration, make_plan

from dpstream.core import durable
from dpstream.core.schema import Categorical, Schema
from dpstream.io.sinks import Publisher
from dpstream.stream import Batch, open_stream
from dpstream.stream.release.outlet import ReleasePublisher
from dpstream.stream.store import container
from dpstream.stream.store.store import Store

#: Steps before anything is timed, steps timed in one process, and steps timed with a process (an opening) each.
WARM, TIMED, SINGLE = 800, 60, 15
GOAL = 20.0
COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
long dpstream_syncs = 0;
static int pass(const char *name, int descriptor) {
  const char *slow = getenv("DPSTREAM_SYNC_MS");
  dpstream_syncs++;
  if (slow) usleep(1000 * atof(slow));
  return ((int (*)(int))dlsym(RTLD_NEXT, name))(descriptor);
}
int fsync(int descriptor) { return pass("fsync", descriptor); }
int fdatasync(int descriptor) { return pass("fdatasync", descriptor); }
"""


class Meter:
    """Milliseconds and fsyncs of each part of a step, the innermost part that is running."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        self.syncs: dict[str, list[int]] = defaultdict(list)
        self._stack: list[list[float]] = []
        counter = getattr(ctypes.CDLL(None), "dpstream_syncs", None) if counting() else None
        self._counter = None if counter is None else ctypes.c_long.in_dll(ctypes.CDLL(None), "dpstream_syncs")

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Time ``owner.name`` as ``part``."""
        original = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.measure(part):
                return original(*arguments, **options)

        setattr(owner, name, timed)

    @contextlib.contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """What runs inside, without the parts within it."""
        begin, syncs = time.perf_counter(), self._syncs()
        self._stack.append([0.0, 0])
        try:
            yield
        finally:
            took, made = 1e3 * (time.perf_counter() - begin), self._syncs() - syncs
            inner_took, inner_made = self._stack.pop()
            if self._stack:
                self._stack[-1][0] += took
                self._stack[-1][1] += made
            self.times[part].append(took - inner_took)
            self.syncs[part].append(made - int(inner_made))

    def _syncs(self) -> int:
        return 0 if self._counter is None else int(self._counter.value)


def counting() -> bool:
    """Whether the counter is loaded."""
    return os.environ.get("DPSTREAM_SYNCS") == "1"


#: What each part is called; all but the files are the commit.
PARTS = {
    "pack": "state and model to bytes",
    "reserve": "reserve (transaction)",
    "commit": "commit (transaction)",
    "head": "head.json",
    "mark": "mark as published (transaction, not fsynced)",
    "files": "release, manifest, catalogue (files)",
}


def instrument(meter: Meter) -> None:
    """Time the calls that stand behind the steps of the protocol."""
    meter.wrap(Store, "reserve", "reserve")
    meter.wrap(container, "dump", "pack")
    meter.wrap(Store, "commit_step", "commit")
    meter.wrap(Store, "write_head", "head")
    meter.wrap(ReleasePublisher, "publish", "files")
    meter.wrap(Store, "mark_published", "mark")


def run(folder: Path) -> list[str]:
    """One stream, its steps measured."""
    stream = adult_stream()
    columns = [
        Categorical(name, range(size))
        for name, size in zip(stream.domain.names, stream.domain.sizes, strict=True)
    ]
    plan, meter = make_plan(stream, 4), Meter()
    transactions = [0]
    commit = durable.commit

    def counted(connection: Any) -> None:
        transactions[0] += 1
        commit(connection)

    durable.commit = counted

    def opened() -> Any:
        sink = Publisher(folder / "releases")
        return open_stream(plan, Schema(columns), folder / "state", publish_to=sink)

    def take(live: Any, step: int) -> None:
        live.step(Batch(np.ascontiguousarray(stream.inserts(step))), f"b{step}")

    with opened() as live:
        for step in range(1, WARM + 1):
            take(live, step)
        instrument(meter)
        transactions[0], before = 0, size(folder)
        for step in range(WARM + 1, WARM + TIMED + 1):
            with meter.measure("step"):
                take(live, step)
        grown, made = size(folder) - before, transactions[0] / TIMED
    lines = table(meter, made)
    lines += contents(folder, grown)
    lines += [single(opened, take, meter)]
    return lines


def table(meter: Meter, transactions: float) -> list[str]:
    """One line a part, and the sums."""
    lines = [f"{'part of a step':<48}{'median ms':>10}{'90 %':>8}{'fsyncs':>8}"]
    took = {part: by_step(meter.times[part]) for part in PARTS}
    made = {part: by_step(meter.syncs[part]) for part in PARTS}
    lines += [line(name, took[part], made[part]) for part, name in PARTS.items()]
    inside = [part for part in PARTS if part != "files"]
    lines.append(
        line("the commit: all but the files", sum(map(took.get, inside)), sum(map(made.get, inside)))
    )
    every = sum(took.values())
    lines.append(line("all of it", every, sum(made.values())))
    rest = float(np.median(by_step(meter.times["step"])))
    lines.append(
        f"the step without all this: {rest:.0f} ms; transactions: {transactions:.1f} a step; goal of a commit: "
        f"{GOAL:.0f} ms"
    )
    return lines


def by_step(values: list[Any]) -> Any:
    """Sums over the calls of each step."""
    return np.array(values[: len(values) // TIMED * TIMED]).reshape(TIMED, -1).sum(axis=1)


def line(name: str, took: Any, made: Any) -> str:
    counted = f"{np.mean(made):>8.1f}" if counting() else f"{'?':>8}"
    return f"{name:<48}{np.median(took):>10.1f}{np.quantile(took, 0.9):>8.1f}{counted}"


def contents(folder: Path, grown: int) -> list[str]:
    """Sizes in the store, read past the program."""
    db = sqlite3.connect(f"file:{folder / 'state' / 'stream.sqlite'}?mode=ro", uri=True)
    (state,) = db.execute("SELECT length(value) FROM latest WHERE name = 'state'").fetchone()
    model, manifest = db.execute(
        "SELECT avg(length(synthesis)), avg(length(manifest)) FROM steps WHERE step > ?", (WARM,)
    ).fetchone()
    db.close()
    released = sorted((folder / "releases").glob("step-*"))[-1]
    tables = sum(path.stat().st_size for path in released.glob("table.*"))
    return [
        f"bytes: state {state / 1e3:.0f} kB (replaced), model of a step {model / 1e3:.0f} kB, manifest "
        f"{manifest / 1e3:.1f} kB, released table {tables / 1e3:.0f} kB (dropped once it is published)",
        f"the store grows by {grown / TIMED / 1e3:.0f} kB a step (log included)",
    ]


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "state").iterdir())


def single(opened: Callable[[], Any], take: Callable[[Any, int], None], meter: Meter) -> str:
    """As from cron: the stream is opened, one step is taken, and it is closed (the log goes into the file)."""
    meter.times.clear()
    meter.syncs.clear()
    last = WARM + TIMED
    for step in range(last + 1, last + SINGLE + 1):
        with contextlib.ExitStack() as closing:
            with meter.measure("open"):
                live = opened()
            closing.callback(live.close)
            with meter.measure("step"):
                take(live, step)
            closing.enter_context(meter.measure("close"))
            closing.callback(live.close)
    syncs = (
        f"{sum(map(sum, meter.syncs.values())) / SINGLE:.1f} fsyncs" if counting() else "fsyncs not counted"
    )
    opening, close = (statistics.median(meter.times[part]) for part in ("open", "close"))
    return f"a process for each step: {syncs} in all; opening takes {opening:.0f} ms, closing {close:.1f} ms"


def bare(folder: Path) -> str:
    """What the disk takes for a small write with fsync, by itself."""
    times = []
    descriptor = os.open(folder / "bare", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(60):
        os.write(descriptor, b"x" * 4096)
        begin = time.perf_counter()
        os.fsync(descriptor)
        times.append(1e3 * (time.perf_counter() - begin))
    os.close(descriptor)
    return f"{statistics.median(times):.2f} ms (90 %: {np.quantile(times, 0.9):.2f})"


def child(folder: Path) -> None:
    """In a process with the counter."""
    load = os.getloadavg()[0]
    times = calibration()
    lines = run(folder)
    print(f"Adult's size, batches of {BATCH}, k = 4; steps {WARM + 1} to {WARM + TIMED}, one process")
    print("\n".join(lines))
    print(
        f"this disk: 4 kB and fsync {bare(folder)}; calibration {statistics.median(times):.1f} ms; load "
        f"{load:.1f} to {os.getloadavg()[0]:.1f}; {platform.machine()}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}"
    )


def preload(folder: Path, slow: float | None) -> dict[str, str]:
    """The environment in which fsyncs are counted; without a compiler, none of it."""
    compiler = shutil.which("cc")
    if compiler is None:
        return {}
    source, library = folder / "counter.c", folder / "counter.so"
    source.write_text(COUNTER)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True)
    found = {"LD_PRELOAD": str(library), "DPSTREAM_SYNCS": "1"}
    return found if slow is None else {**found, "DPSTREAM_SYNC_MS": str(slow)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="measure on this disk (default: that of temporary files)")
    parser.add_argument("--out", type=Path, help="also write the lines there")
    parser.add_argument("--slow", type=float, help="every fsync takes so many milliseconds more")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        found = subprocess.run(
            [sys.executable, __file__, "--child", str(folder)],
            env={**os.environ, **preload(folder, options.slow)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    show_result(found.stdout, options.out)


if __name__ == "__main__":
    main()
