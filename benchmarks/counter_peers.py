"""Counters beside those of dpcrpy: stated error over 1,024 ticks and time of a tick, one cell.

    pip install --target DIR dpcrpy; PYTHONPATH=DIR python benchmarks/counter_peers.py

Without dpcrpy only our rows are printed. Both sides state their own variance; every mechanism has a horizon of 1,024
ticks (BCRG and ABCRG of 1,023), epsilon 1 with Laplace noise or rho 1/2 with Gaussian noise. dpcrpy scales its noise to
the sensitivity that its mechanism states (not verified here) and draws floating-point noise from a general-purpose
generator; ours is exact integer noise from the operating system's entropy.
"""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpstream.core.counters import COUNTER_NAMES, counter_by_name
from dpstream.core.errors import BudgetError
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness

TICKS = 1_024
REPEATS = 5
BUDGETS: dict[str, Budget] = {"epsilon 1": PureDP.of(1), "rho 1/2": ZCDP.of("1/2")}
ONE = np.ones(1, np.int64)


def ours(name: str, budget: Budget) -> tuple[float, float, float] | None:
    """RMS, maximum, microseconds a tick; None for a counter of the other kind of budget."""
    try:
        counter = counter_by_name(name, horizon=TICKS).calibrate(budget, Event())
    except BudgetError:
        return None
    system, times = Randomness.system(), []
    for _ in range(REPEATS):
        state, start = counter.init(1), time.process_time()
        for _ in range(TICKS):
            counter.step(state, ONE, system)
        times.append(time.process_time() - start)
    variances = [counter.variance(t) for t in range(1, TICKS + 1)]
    return (*figures(variances), 1e6 * statistics.median(times) / TICKS)


def peers(pure: bool) -> dict[str, Callable[[Any], Any]]:
    """dpcrpy's mechanisms for 1,024 ticks, by their names there (KTCR 1.0.0 states no L1 sensitivity)."""
    import dpcrpy

    gaussian = {} if pure else {"KTCR, k = 4": lambda noise: dpcrpy.KTCR(h=5, k=4, noiMech=noise)}
    return {
        **gaussian,
        "TwoLevel": lambda noise: dpcrpy.TwoLevel(kOrder=32, noiMech=noise),
        "BinMech": lambda noise: dpcrpy.BinMech(kOrder=10, noiMech=noise),
        "Honaker": lambda noise: dpcrpy.Honaker(kOrder=10, noiMech=noise),
        "FDA": lambda noise: dpcrpy.FDA(kOrder=10, noiMech=noise),
        "BCRG": lambda noise: dpcrpy.BCRG(kOrder=10, noiMech=noise),
        "ABCRG": lambda noise: dpcrpy.ABCRG(kOrder=10, noiMech=noise),
        "AuBCR": lambda noise: dpcrpy.AuBCR(kOrder=10, noiMech=noise),
    }


def theirs(make: Callable[[Any], Any], budget: Budget) -> tuple[float, float, float]:
    """The same of a mechanism of dpcrpy, noise scaled to the sensitivity that it states."""
    import dpcrpy

    pure = isinstance(budget, PureDP)
    noise = dpcrpy.noiMech.LapNoiMech(epsilon=1.0) if pure else dpcrpy.noiMech.GaussNoiMech(sigma0=1.0)
    mechanism = make(noise)
    noise.setSens(float(mechanism.getL1Sens() if pure else mechanism.getL2Sens()))
    variances, times = [], []
    for _ in range(REPEATS):
        mechanism.init()
        start = time.process_time()
        variances = [float(mechanism.dpRelease(1)[-1]) for _ in range(min(TICKS, mechanism.size()))]
        times.append(time.process_time() - start)
    return (*figures(variances), 1e6 * statistics.median(times) / len(variances))


def figures(variances: list[float]) -> tuple[float, float]:
    """Root mean square and maximum of the standard deviation."""
    return math.sqrt(math.fsum(variances) / len(variances)), math.sqrt(max(variances))


def rows(budget: Budget) -> Iterator[str]:
    """Ours, then theirs."""
    for name in COUNTER_NAMES:
        found = ours(name, budget)
        if found is not None:
            yield line(name, found)
    try:
        others = peers(isinstance(budget, PureDP))
    except ImportError:
        yield "dpcrpy is not installed"
        return
    for name, make in others.items():
        yield line(f"dpcrpy {name}", theirs(make, budget))


def line(name: str, found: tuple[float, float, float]) -> str:
    """One line of a table."""
    return f"{name:28}{found[0]:>12.2f}{found[1]:>12.2f}{found[2]:>16.1f}"


def main() -> None:
    """Both tables."""
    print(f"python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}; one process")
    for label, budget in BUDGETS.items():
        print(f"\n{label}, {TICKS} ticks, one cell")
        print(f"{'':28}{'RMS':>12}{'maximum':>12}{'us a tick':>16}")
        for text in rows(budget):
            print(text, flush=True)


if __name__ == "__main__":
    main()
