"""Errors of all counters by formula, partly simulated, over both windows, beside a lower bound.

Figures are the root mean square / maximum of one cell's standard deviation over a window: ``1 .. T`` with a horizon of
``T``, ``T/2 + 1 .. T`` of an endless run without. Beyond 10,000 ticks 4,000 ticks spread over the window stand for all.
The bound: no linear counter with Gaussian noise has a smaller root mean square over ``1 .. T`` (the nuclear norm of the
running-sum matrix over T); with Laplace noise none has less than sqrt 2 times it, as columns of L1 norm 1 have an L2
norm of at most 1. The first is nearly attained, the second far from anything known. Over the later half
without a horizon errors are larger than over ``1 .. T``, so the bound says less there.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpstream.core.counters import COUNTER_NAMES, CalibratedCounter, Counter, counter_by_name
from dpstream.core.errors import DpstreamError
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness

LONG = "about 5 minutes"
COLUMNS = (100, 1000, 10_000, 1_000_000)
SIMULATED = (100, 1000)
CELLS = 400
#: Formulas that cost too much at this many ticks are left out.
SECONDS = 20.0


class Row(NamedTuple):
    """A line of the table: a label, and the recipe for a number of ticks."""

    label: str
    recipe: Callable[[int], Counter]


ROWS = [Row(name, lambda ticks, name=name: counter_by_name(name, horizon=ticks)) for name in COUNTER_NAMES]


def window(counter: CalibratedCounter, ticks: int) -> range:
    """The ticks of a column; every one, or some thousands of them."""
    first = 1 if counter.horizon is not None else ticks // 2 + 1
    # An odd stride meets all places in trees and blocks.
    return range(first, ticks + 1, 1 if ticks <= 10_000 else (ticks - first) // 4000 | 1)


def predicted(counter: CalibratedCounter, ticks: int) -> tuple[float, float] | None:
    """Root mean square and maximum by formula; None where that takes too long."""
    start, variances = time.process_time(), []
    for t in window(counter, ticks):
        variances.append(counter.variance(t))
        if time.process_time() - start > SECONDS:
            return None
    return math.sqrt(math.fsum(variances) / len(variances)), math.sqrt(max(variances))


def simulated(counter: CalibratedCounter, ticks: int) -> float:
    """Root mean square of the errors of whole runs with the operating system's entropy."""
    state, randomness = counter.init(CELLS), Randomness.system()
    z = np.arange(CELLS, dtype=np.int64) - CELLS // 3
    chosen, squares = window(counter, ticks), 0.0
    for t in range(1, ticks + 1):
        error = counter.step(state, z, randomness) - t * z
        if t in chosen:
            squares += float((error.astype(np.float64) ** 2).mean())
    return math.sqrt(squares / len(chosen))


def bound(ticks: int) -> float:
    """The nuclear norm of the running-sum matrix over its size: root mean square at column norm 1, variance 1."""
    angles = (2 * np.arange(1, ticks + 1) - 1) * math.pi / (4 * ticks + 2)
    return float((0.5 / np.sin(angles)).sum() / ticks)


def table(title: str, budget: Budget, rows: list[Row], noise: float) -> None:
    """All rows at all columns, then the simulations."""
    print(f"\n{title}\n{'counter':24} {'horizon':8}" + "".join(f"{f'T = {ticks}':>18}" for ticks in COLUMNS))
    for row in rows:
        cells, horizon = [], "none"
        for ticks in COLUMNS:
            found = None
            try:
                counter = row.recipe(ticks).calibrate(budget, Event())
                horizon = "none" if counter.horizon is None else "T"
                found = predicted(counter, ticks)
            except DpstreamError:
                pass
            cells.append("-" if found is None else f"{found[0]:.2f} / {found[1]:.2f}")
        if any(cell != "-" for cell in cells):
            print(f"{row.label:24} {horizon:8}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
    bounds = [f">= {noise * bound(ticks):.2f}" for ticks in COLUMNS]
    print(f"{'lower bound over 1 .. T':33}" + "".join(f"{cell:>18}" for cell in bounds))


def simulations(budget: Budget, rows: list[Row]) -> None:
    """Measured beside predicted."""
    print(f"\nSimulated over {CELLS} cells: root mean square (ratio to the prediction)")
    for row in rows:
        cells = []
        for ticks in SIMULATED:
            try:
                counter = row.recipe(ticks).calibrate(budget, Event())
            except DpstreamError:
                break
            formula = predicted(counter, ticks)
            seen = simulated(counter, ticks)
            cells.append(f"{seen:.2f} ({seen / formula[0]:.3f})" if formula else f"{seen:.2f}")
        if cells:
            print(f"{row.label:33}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def main(names: list[str]) -> None:
    """All rows, or those named."""
    rows = [row for row in ROWS if not names or row.label in names]
    for title, budget, noise in (
        ("Pure, epsilon = 1, one unit of one increment", PureDP.of(1), math.sqrt(2)),
        ("zCDP, rho = 1/2, one unit of one increment", ZCDP.of("1/2"), 1.0),
    ):
        table(title, budget, rows, noise)
        simulations(budget, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
