"""Panels: the paper's 1,000 repetitions, ten million people in 24 periods, and what a period costs as time goes on.

    python benchmarks/panel_speed.py [--people 10000000] [--out benchmarks/results/panel_speed.txt]

Each part runs in fresh processes. CPU is that of the step itself; the reports are made outside of it. The calibration
loop is a plain NumPy histogram of the same people, which any method has to make at every period.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from bench import fresh, show_result

from dpstream.core.privacy import Individual, Randomness
from dpstream.tools.simulate import poverty_panel
from dpstream_lab.audits.panel_audit import cumulative_plan, window_plan

LONG = "about 2 minutes"
REPEATS = 1000
PROCESSES = 2


def repetitions(times: int) -> float:
    """So many runs of the paper's case, one after the other; CPU seconds, without compiling."""
    columns = poverty_panel().T.copy()
    plan = window_plan(12, 3, rho="0.005", unit=Individual("replace"))
    randomness = Randomness.system()
    begin = 0.0
    for number in range(times + 1):
        if number == 1:
            begin = time.process_time()
        state = plan.start(columns.shape[1])
        for column in columns:
            plan.advance(state, column, randomness)
    return time.process_time() - begin


def shared(times: int) -> tuple[float, float]:
    """The same on two processes: wall seconds of all, starting them included, and their CPU seconds."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        used = sum(pool.map(repetitions, [times // PROCESSES] * PROCESSES))
    return time.perf_counter() - begin, used


def large(people: int, periods: int, window: int) -> tuple[float, float, float, float]:
    """One run: CPU and wall seconds of the steps, peak memory in GB, CPU seconds of plain histograms."""
    plan = window_plan(periods, window, rho="0.005", unit=Individual("replace"))
    state, randomness = plan.start(people), Randomness.system()
    generator = np.random.default_rng(0)
    poor = generator.random(people, dtype=np.float32) < 0.12
    used = wall = plain = 0.0
    for _ in range(periods):
        draw = generator.random(people, dtype=np.float32)
        poor = draw < np.where(poor, np.float32(0.93), np.float32(0.01))
        reports = poor.astype(np.uint8)
        begin, clock = time.process_time(), time.perf_counter()
        plan.advance(state, reports, randomness)
        used += time.process_time() - begin
        wall += time.perf_counter() - clock
        begin = time.process_time()
        np.bincount(state.private, minlength=plan.patterns)
        plain += time.process_time() - begin
    return used, wall, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, plain


def over_time(plan: Any, people: int) -> list[float]:
    """Milliseconds of CPU of every period of one long run: the median of three."""
    columns = poverty_panel(people, plan.horizon).T.copy()
    runs = []
    for _ in range(3):
        state, randomness, costs = plan.start(people), Randomness.system(), []
        for column in columns:
            begin = time.process_time()
            plan.advance(state, column, randomness)
            costs.append(1000 * (time.process_time() - begin))
        runs.append(costs)
    return [statistics.median(costs) for costs in zip(*runs, strict=True)]


def show_over_time(name: str, costs: list[float]) -> str:
    """Medians over twenty periods each."""
    places = (11, 60, 110, 160, 221)
    parts = [f"{statistics.median(costs[t - 1 : t + 19]):.2f} ({t}-{t + 19})" for t in places]
    return f"    {name:<44} {'  '.join(parts)}"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--people", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        f"python {platform.python_version()}, numpy {np.__version__}; load {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} cores",
        "",
        "The paper's case: 23,374 people, 12 periods, window 3, rho 0.005, replace",
    ]
    alone = fresh(repetitions, 100)
    wall, used = shared(REPEATS)
    lines += [
        f"    one run                                      {10 * alone:.1f} ms CPU (mean of 100)",
        f"    {REPEATS:,} runs on {PROCESSES} processes                  {wall:.1f} s wall, {used:.1f} s CPU",
        "",
        f"{options.people:,} people, 24 periods, window 4, one process",
    ]
    used, wall, peak, plain = fresh(large, options.people, 24, 4)
    window = window_plan(240, 3, rho="0.05", unit=Individual("replace"))
    cumulative = cumulative_plan(240, rho="0.05", unit=Individual("replace"), thresholds=12)
    lines += [
        f"    steps                                        {used:.1f} s CPU, {wall:.1f} s wall",
        f"    of which plain histograms would take         {plain:.1f} s CPU",
        f"    peak memory (reports included)               {peak:.2f} GB",
        "",
        "CPU of a period in ms, 100,000 people, 240 periods: median of twenty periods (which)",
        show_over_time("window 3", fresh(over_time, window, 100_000)),
        show_over_time("cumulative, thresholds up to 12", fresh(over_time, cumulative, 100_000)),
    ]
    text = "\n".join(lines) + "\n"
    show_result(text, options.out)


if __name__ == "__main__":
    main()
