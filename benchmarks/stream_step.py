"""One step of DP-STabS: CPU time, publishing and memory, beside the same loop on mbi 2.0.

    python benchmarks/stream_step.py [--out benchmarks/results/stream_step.txt] [--without-mbi]

Adult's 13 columns and 78 pairs in random order (with DPSTREAM_DATA set the real ones, else simulated records
of the same sizes), batches of 50, epsilon 1. Every line is its own process, one after another. CPU is that of
all threads of the process; "calibration" is a fixed NumPy workload, timed in the process before and after.

The mbi loop does what the ``k`` rounds of a step do: all 78 pairs from the model, scores, a noisy choice, a
noisy measurement, a warm-started refit of what this step has measured, with the same number of iterations. It
leaves out what our step does besides (exact noise, counters, the table's own model, its fit and its answers).
A long stream on mbi lies between its two lines: clique sets that come back are compiled already, and every new
one takes more memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench import fresh, peak, show_result
from graphical import ADULT, PAIRS, records
from numpy.typing import NDArray

from dpstream.core.privacy import Randomness
from dpstream.core.schema import Categorical, Schema
from dpstream.core.tables import EncodedBatch, Workload, count_marginals
from dpstream.families.tabular import DPStabs, DPStabsPlan
from dpstream.io.sinks import Publisher
from dpstream.mechanisms.limits import TreeCapacity
from dpstream.stream import Batch, open_stream
from dpstream.stream.store import container
from dpstream_lab.experiments import Replay, data_folder, kumar_stream

LONG = "about 15 minutes, most of it in mbi; 2 minutes with --without-mbi"

ROUNDS = (8, 4)
BATCH = 50
#: Steps done before anything is timed, and steps timed.
WARM, TIMED = 100, 100
PUBLISHED = 20
#: Steps on mbi, for each of ``ROUNDS``; they take minutes.
PEER_STEPS = {8: 1, 4: 2}
EPSILON = 1

Result = dict[str, Any]


def adult_stream() -> Replay:
    """Batches of 50 in random order."""
    if os.environ.get("DPSTREAM_DATA"):
        return kumar_stream("Adult-randomized-bs-50", data_folder(None))
    data, what = records()
    codes = data[np.random.default_rng(0).permutation(len(data))].astype(np.int32)
    borders = np.append(np.arange(0, len(codes), BATCH), len(codes))
    return Replay(what, ADULT, codes, borders)


def make_plan(stream: Replay, k: int) -> DPStabsPlan:
    workload = Workload.all_k_way(stream.domain, 2)
    return DPStabs(workload, k=k).calibrate(epsilon=EPSILON, horizon=len(stream))


def calibration() -> list[float]:
    """CPU milliseconds of a fixed workload, several times."""
    rng = np.random.default_rng(2)
    values, indices = rng.normal(size=200_000), rng.integers(0, 9_000, 200_000)
    times = []
    for _ in range(15):
        begin = time.process_time()
        weights = np.exp(values)
        for _ in range(4):
            weights = np.log1p(np.abs(weights))
            np.bincount(indices, weights=weights, minlength=9_000).cumsum()
        times.append(1e3 * (time.process_time() - begin))
    return times


def calibrated(measure: Callable[[Replay, int], Result], k: int) -> Result:
    """In a fresh process: one measurement between two calibrations."""
    before, load = calibration(), os.getloadavg()[0]
    result = measure(adult_stream(), k)
    times = before + calibration()
    return {**result, "calibration": statistics.median(times), "load": (load, os.getloadavg()[0])}


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """CPU and wall milliseconds."""
    begin, clock = time.process_time(), time.perf_counter()
    work()
    return 1e3 * (time.process_time() - begin), 1e3 * (time.perf_counter() - clock)


def plain(stream: Replay, k: int) -> Result:
    """The plan in a loop, over the whole stream."""
    plan, randomness = make_plan(stream, k), Randomness.system()
    state, cpu = plan.start(), []
    peaks, sizes = {}, {}
    for step in range(1, len(stream) + 1):
        batch = EncodedBatch(stream.domain, stream.inserts(step))
        cpu.append(timed(lambda batch=batch: plan.step(state, batch, randomness))[0])
        if step in (WARM, WARM + 300, len(stream)):
            peaks[step] = peak()
            packed = plan.pack_state(state)
            sizes[step] = (sum(a.nbytes for a in packed.arrays.values()), len(container.dump(packed)))
    return {"cpu": cpu, "peaks": peaks, "sizes": sizes}


def published(stream: Replay, k: int) -> Result:
    """The durable stream, with every release published as a Parquet file."""
    columns = [
        Categorical(name, range(size))
        for name, size in zip(stream.domain.names, stream.domain.sizes, strict=True)
    ]
    plan, times = make_plan(stream, k), []
    with tempfile.TemporaryDirectory() as folder:
        sink = Publisher(Path(folder) / "releases")
        with open_stream(plan, Schema(columns), Path(folder) / "state", publish_to=sink) as durable:
            for step in range(1, WARM + PUBLISHED + 1):
                batch = Batch(np.ascontiguousarray(stream.inserts(step)))
                times.append(timed(lambda batch=batch, step=step: durable.step(batch, f"b{step}")))
            rows = round(durable.release().total)
    late = times[WARM:]
    return {"cpu": [t[0] for t in late], "wall": [t[1] for t in late], "rows": rows}


class MbiLoop:
    """Select, measure, fit with mbi's models. Ordinary floating-point noise: a timing, not a mechanism."""

    def __init__(self, stream: Replay, k: int) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        import mbi
        from mbi import estimation

        self.mbi, self.estimation, self.stream, self.k = mbi, estimation, stream, k
        self.recipe = DPStabs(Workload.all_k_way(stream.domain, 2), k=k)
        # mbi runs iterations in compiled blocks of this many; its 50 would be more than ours.
        estimation.CALLBACK_EVERY = self.recipe.iterations
        self.domain = mbi.Domain(stream.domain.names, stream.domain.sizes)
        self.scale = float(k / (EPSILON * (1 - self.recipe.select_share)))
        self.select = float(EPSILON * self.recipe.select_share / k)
        self.rng = np.random.default_rng(3)
        self.model: Any = None

    def names(self, index: int) -> tuple[str, ...]:
        return tuple(self.stream.domain.names[i] for i in PAIRS[index])

    def pairs(self) -> list[NDArray[np.float64]]:
        """All 78 pairs, for one record."""
        if self.model is None:
            cells = [self.stream.domain.cells(pair) for pair in PAIRS]
            return [np.full(n, 1.0 / n) for n in cells]
        total = float(self.model.total)
        return [np.asarray(self.model.project(self.names(i)).datavector()) / total for i in range(len(PAIRS))]

    def choose(self, counts: list[NDArray[np.int64]], chosen: list[int]) -> int:
        """Permute-and-flip (as the largest of scores with exponential noise) among what fits."""
        expected = self.pairs()
        remaining = [i for i in range(len(PAIRS)) if i not in chosen]
        allowed = TreeCapacity(self.recipe.workload, self.recipe.max_cells, chosen).within(remaining).tolist()
        scores = [float(np.abs(counts[i] - BATCH * expected[i]).sum()) - len(counts[i]) for i in allowed]
        noisy = np.array(scores) + self.rng.exponential(2 / self.select, len(scores))
        return allowed[int(noisy.argmax())]

    def step(self, counts: list[NDArray[np.int64]], sequence: list[int] | None = None) -> list[int]:
        """One step; ``sequence`` repeats earlier choices, for which everything is compiled already."""
        prior, chosen, linear = self.model, [], []
        for turn in range(self.k):
            index = self.choose(counts, chosen)
            index = index if sequence is None else sequence[turn]
            chosen.append(index)
            values = counts[index] + self.rng.laplace(0, self.scale, len(counts[index]))
            stddev = self.scale * 2**0.5
            linear.append(self.mbi.LinearMeasurement(values, self.names(index), stddev=stddev))
            self.model = self.estimation.MirrorDescent().estimate(
                self.domain,
                linear,
                known_total=max(1.0, self.estimation.minimum_variance_unbiased_total(linear)),
                iters=self.recipe.iterations,
                warm_start=prior,
            )
        return chosen


def peer(stream: Replay, k: int) -> Result:
    """First steps as they come, then the choices of the last of them twice more."""
    warnings.simplefilter("ignore")
    loop, peaks = MbiLoop(stream, k), []
    fresh: list[tuple[float, float]] = []
    sequence: list[int] = []

    def run(step: int, repeat: list[int] | None) -> None:
        codes = stream.inserts(step)
        sequence[:] = loop.step(count_marginals(codes, stream.domain, PAIRS), repeat)

    last = PEER_STEPS[k]
    for step in range(1, last + 1):
        fresh.append(timed(lambda step=step: run(step, None)))
        peaks.append(peak())
    # The model that a step starts from has its own structure: after one repetition all of it was seen.
    run(last + 1, list(sequence))
    later = range(last + 2, last + 7)
    again = [timed(lambda step=step: run(step, list(sequence))) for step in later]
    return {"fresh": fresh, "again": again, "peaks": peaks}


def row(name: str, times: list[float], unit: float) -> str:
    median = statistics.median(times)
    high = float(np.quantile(times, 0.9))
    return f"{name:<58}{median:>9.1f}{high:>9.1f}{median / unit:>15.2f}"


def ours(k: int) -> tuple[list[str], float, list[str]]:
    """Lines of times, the median that the peer is held against, and lines of memory."""
    loop, durable = fresh(calibrated, plain, k), fresh(calibrated, published, k)
    cpu, unit = loop["cpu"], loop["calibration"]
    late, what = cpu[WARM : WARM + TIMED], f"k = {k}"
    lines = [
        row(f"{what}: step, without publishing ({WARM + 1} to {WARM + TIMED})", late, unit),
        row(f"{what}: the same, last {TIMED} of {len(cpu)} steps", cpu[-TIMED:], unit),
        row(
            f"{what}: step and publication, {durable['rows']} rows, {PUBLISHED} steps",
            durable["cpu"],
            durable["calibration"],
        ),
        f"    whole stream without publishing: {sum(cpu) / 1e3:.1f} s CPU; first step {cpu[0]:.0f} ms; "
        f"published step {statistics.median(durable['wall']):.0f} ms wall; "
        f"calibration {unit:.1f} and {durable['calibration']:.1f} ms; "
        f"load {min(loop['load']):.1f} to {max(durable['load']):.1f}",
    ]
    first, last = WARM, WARM + 300
    peaks, sizes = loop["peaks"], loop["sizes"]
    memory = [
        f"k = {k}: peak {peaks[first]:.1f} MB at step {first}, {peaks[last]:.1f} at {last} "
        f"({peaks[last] - peaks[first]:+.1f}), {peaks[len(cpu)]:.1f} at {len(cpu)}",
        f"    state in kB (stored): {first}: {kilobytes(sizes[first])}; {last}: {kilobytes(sizes[last])}; "
        f"{len(cpu)}: {kilobytes(sizes[len(cpu)])}",
    ]
    return lines, statistics.median(late), memory


def kilobytes(sizes: tuple[int, int]) -> str:
    return f"{sizes[0] / 1e3:.0f} ({sizes[1] / 1e3:.0f})"


def theirs(k: int, mine: float) -> list[str]:
    found = fresh(calibrated, peer, k)
    first, again = found["fresh"], found["again"]
    each = ", ".join(f"{cpu / 1e3:.1f} s ({wall / 1e3:.1f} wall)" for cpu, wall in first)
    middle = statistics.median(cpu for cpu, _ in first)
    compiled = statistics.median(cpu for cpu, _ in again)
    peaks = ", ".join(f"{p:.0f}" for p in found["peaks"])
    return [
        f"k = {k}: first {len(first)} step(s): {each}: {middle / mine:,.0f} times ours; "
        f"peak memory after each {peaks} MB",
        f"    the same cliques again, all compiled (median of {len(again)}): {compiled:.0f} ms: "
        f"{compiled / mine:.1f} times ours; calibration {found['calibration']:.1f} ms; "
        f"load {min(found['load']):.1f} to {max(found['load']):.1f}",
    ]


def report(with_mbi: bool) -> str:
    stream = adult_stream()
    lines = [
        f"{stream.name}: {len(stream)} steps of {BATCH}, {len(PAIRS)} pairs, epsilon {EPSILON}; "
        f"python {platform.python_version()}, numpy {np.__version__}; {os.cpu_count()} cores, shared with other "
        "work (load averages below)",
        "",
        f"{'CPU milliseconds of one step':<58}{'median':>9}{'90 %':>9}{'/ calibration':>15}",
    ]
    memory, medians = [], {}
    for k in ROUNDS:
        times, medians[k], held = ours(k)
        lines += times
        memory += held
    lines += ["", "Memory", *memory]
    if with_mbi:
        lines += ["", "The loop on mbi 2.0, CPU of a step (against ours, without publishing)"]
        for k in sorted(ROUNDS):
            lines += theirs(k, medians[k])
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the table here")
    parser.add_argument("--without-mbi", action="store_true", help="leave out the peer, which takes minutes")
    options = parser.parse_args()
    text = report(not options.without_mbi)
    show_result(text, options.out)


if __name__ == "__main__":
    main()
