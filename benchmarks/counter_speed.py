"""Counters: time of a tick and bytes of state by width, and to a million ticks.

Every counter by its name in configuration files, beside exact noise alone (the same entropy, one draw of the
same width). A counter is moved along a run by steps without noise where the run is long; the tick that is timed
draws real noise. Medians of several repetitions.

    python benchmarks/counter_speed.py [--quick]
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import COUNTER_NAMES, CalibratedCounter, CounterState, counter_by_name
from dpstream.core.errors import DpstreamError
from dpstream.core.privacy import ZCDP, Budget, Event, Noise, PureDP, Randomness, noise_for

LONG = "about 3 minutes"
WIDTHS = (1, 1_000, 100_000)
HORIZON = 1_024
LONG_RUN = 1_000_000
REPEATS = 5


class Silence(Randomness):
    """No noise, to come to a late tick quickly. Benchmarks only."""

    def __init__(self) -> None:
        return None

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


def calibrated(name: str, horizon: int) -> CalibratedCounter | None:
    """The counter under the first budget that it takes."""
    budgets: tuple[Budget, ...] = (PureDP.of(1), ZCDP.of("1/2"))
    for budget in budgets:
        try:
            return counter_by_name(name, horizon=horizon).calibrate(budget, Event())
        except DpstreamError:
            continue
    return None


def microseconds(action: Callable[[], object], calls: int) -> float:
    """Median CPU time of a call over the repetitions."""
    action()
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(calls):
            action()
        found.append((time.process_time() - start) / calls * 1e6)
    return statistics.median(found)


def state_bytes(state: CounterState) -> int:
    """All arrays."""
    return sum(array.nbytes for array in state.values())


def run(counter: CalibratedCounter, width: int, ticks: int) -> tuple[float, int]:
    """Mean CPU time of a tick in microseconds over ``ticks`` ticks with exact noise; bytes at the end."""
    state, ones, system = counter.init(width), np.ones(width, np.int64), Randomness.system()
    counter.step(state, ones, system)
    start = time.process_time()
    for _ in range(ticks - 1):
        counter.step(state, ones, system)
    used = time.process_time() - start
    return used / max(ticks - 1, 1) * 1e6, state_bytes(state)


def by_width(ticks: Callable[[int], int]) -> Iterator[str]:
    """A row per counter: microseconds per tick, and bytes per cell at the end, by width."""
    system = Randomness.system()
    noise = noise_for(PureDP.of("1/2"), 1, 1)
    cells = [f"{microseconds(partial(system.draw, noise, w), max(3, 20_000 // w)):.0f}" for w in WIDTHS]
    yield row("exact noise alone", cells)
    for name in COUNTER_NAMES:
        counter = calibrated(name, HORIZON)
        if counter is None:
            continue
        cells = []
        for width in WIDTHS:
            spent, size = run(counter, width, ticks(width))
            cells.append(f"{spent:.0f} / {size / width:.0f}")
        yield row(name, cells)


def to_a_million() -> Iterator[str]:
    """One cell through a million ticks: is a tick as cheap at the end as at the beginning?"""
    for name in COUNTER_NAMES:
        counter = calibrated(name, LONG_RUN)
        if counter is None:
            continue
        start = time.process_time()
        state, one, silence = counter.init(1), np.ones(1, np.int64), Silence()
        for _ in range(LONG_RUN):
            estimate = counter.step(state, one, silence)
        assert int(estimate[0]) == LONG_RUN
        spent = (time.process_time() - start) / LONG_RUN * 1e6
        yield row(name, [f"{spent:.1f}", f"{state_bytes(state)}", f"{counter.variance(LONG_RUN) ** 0.5:.1f}"])


def row(name: str, cells: list[str]) -> str:
    """One line of a table."""
    return f"{name:28}" + "".join(f"{cell:>18}" for cell in cells)


def python_loop() -> int:
    """A million additions: how fast this machine is."""
    total = 0
    for number in range(1_000_000):
        total += number
    return total


def main() -> None:
    """Print all tables."""
    quick = "--quick" in sys.argv
    print(f"python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}; one process")
    print(f"calibration: Python loop of 10^6 additions, CPU {microseconds(python_loop, 2) / 1000:.0f} ms")
    print(
        f"\nA tick with exact noise, horizon {HORIZON}: CPU microseconds / bytes of state a cell at the end"
    )
    print(row("", [f"{width} cells" for width in WIDTHS]))
    most = 100 if quick else HORIZON
    for line in by_width(lambda width: min(most, 64 if width > 10_000 else most)):
        print(line, flush=True)
    if not quick:
        print(f"\nOne cell through {LONG_RUN} ticks, horizon {LONG_RUN}")
        print(row("", ["us a tick, silent", "bytes at the end", "sd at the end"]))
        for line in to_a_million():
            print(line, flush=True)


if __name__ == "__main__":
    main()
