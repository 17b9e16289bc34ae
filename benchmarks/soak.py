"""A long stream of small steps: whether a late step costs more than an early one, in CPU, memory and written bytes.

    python benchmarks/soak.py [--steps 30000] [--out benchmarks/results/soak.txt]

DP-STabS on two small columns, 20 records a step, tables cut at 20 rows and published as CSV, nothing expires: what is
measured is what goes with a step (store, ledger, manifest, catalogue), not the mechanism. CPU is the median over a
window of steps; a fixed workload, timed in the same windows, says what the machine did meanwhile ("calibration"). The
bytes are those that the process gave to the kernel (/proc/self/io), the log of the database included: its checkpoints
come every few dozen steps, so the mean over a window counts. Asked for: CPU at the end at most 1.2 times that at step
300, memory and bytes flat.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench import show_result

from dpstream.core import durable
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.tables import Workload
from dpstream.families.tabular import DPStabs
from dpstream.io.sinks import Publisher
from dpstream.stream import Batch, Publishing, open_stream

LONG = "about 15 minutes"
#: Steps on each side of the one that a window is named after.
HALF = 100
FIRST = 300


@dataclass
class Step:
    """What one step cost."""

    cpu: float
    calibration: float
    written: int
    files: int
    memory: float


def calibration() -> float:
    """CPU milliseconds of a fixed workload."""
    begin = time.process_time()
    np.sort(np.arange(20_000)[::-1] % 977)
    sum(range(10_000))
    return 1e3 * (time.process_time() - begin)


def written() -> int:
    """Bytes this process gave to the kernel so far."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(text.split("wchar: ")[1].split()[0])


def memory() -> float:
    """Memory of this process now, in MB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def soak(steps: int, windows: list[int], folder: Path) -> dict[int, list[Step]]:
    """Run the stream; the steps of each window."""
    schema = Schema([Categorical("zip", ["94102", "94103", "94110"]), Boolean("paid")])
    plan = DPStabs(Workload.all_k_way(schema.domain, 2), k=1).calibrate(epsilon=1, horizon=steps)
    rng, given = np.random.default_rng(0), [0]
    write = durable.write

    def counted(descriptor: int, data: bytes) -> None:
        given[0] += len(data)
        write(descriptor, data)

    durable.write = counted
    found: dict[int, list[Step]] = {window: [] for window in windows}
    sink = Publisher(folder / "releases", format="csv")
    with open_stream(
        plan, schema, folder / "state", publish_to=sink, publishing=Publishing(max_rows=20)
    ) as stream:
        for step in range(1, steps + 1):
            codes = np.stack([rng.integers(0, 3, 20), rng.integers(0, 2, 20)], axis=1).astype(np.int32)
            batch = Batch(codes)
            chosen = [window for window in windows if window - HALF < step <= window + HALF]
            if not chosen:
                stream.step(batch, f"b{step}")
                continue
            fixed, bytes_before = calibration(), written()
            given[0], begin = 0, time.process_time()
            stream.step(batch, f"b{step}")
            cpu = 1e3 * (time.process_time() - begin)
            if step % HALF == 0:
                gc.collect()
            found[chosen[0]].append(Step(cpu, fixed, written() - bytes_before, given[0], memory()))
    return found


def table(found: dict[int, list[Step]]) -> list[str]:
    """One line a window, and the ratios of the last one to the first."""
    lines = [
        f"{'around step':>11}{'CPU ms':>9}{'calibration ms':>16}{'/ calibration':>15}{'written kB':>12}"
        f"{'of it files kB':>16}{'memory MB':>11}"
    ]
    rows = []
    for window, steps in found.items():
        cpu = statistics.median(step.cpu for step in steps)
        fixed = statistics.median(step.calibration for step in steps)
        kilobytes = statistics.mean(step.written for step in steps) / 1e3
        files = statistics.mean(step.files for step in steps) / 1e3
        most = max(step.memory for step in steps)
        rows.append((cpu, fixed, cpu / fixed, kilobytes, files, most))
        lines.append(
            f"{window:>11}{cpu:>9.2f}{fixed:>16.3f}{cpu / fixed:>15.1f}{kilobytes:>12.1f}{files:>16.2f}{most:>11.1f}"
        )
    ratios = [last / first for first, last in zip(rows[0], rows[-1], strict=True)]
    lines.append(
        f"{'last/first':>11}{ratios[0]:>9.2f}{ratios[1]:>16.2f}{ratios[2]:>15.2f}{ratios[3]:>12.2f}"
        f"{ratios[4]:>16.2f}{ratios[5]:>11.2f}"
    )
    return lines


def main() -> None:
    """Run, print, and write where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    later = [window for window in (1_000, 3_000, 10_000, 20_000) if window <= options.steps - 3 * HALF]
    with tempfile.TemporaryDirectory() as folder:
        found = soak(options.steps, [FIRST, *later, options.steps - HALF], Path(folder))
    head = f"{options.steps} steps; python {platform.python_version()}, numpy {np.__version__}; one process"
    text = "\n".join([head, "", *table(found)]) + "\n"
    show_result(text, options.out)


if __name__ == "__main__":
    main()
