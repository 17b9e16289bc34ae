"""Counters: predicted error by horizon, time per tick by width beside noise alone and a plain running sum.

Errors are formulas (no simulation): the standard deviation of one cell's running count, as root mean square
and maximum over a window. Counters with a horizon: all ticks 1 .. T. Without: the ticks (T/2, T] of an
endless run. The rows "as published" give every node of a tree one share in floor(log2 T) + 1 (hybrid:
one in i + 1 of half the budget, or in i, since an epoch's sum stands for its tree's root); ours gives
a share only to levels that can be reached.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dpstream.checks import certify
from dpstream.core.counters import CalibratedCounter, Counter, HybridCounter, TreeCounter
from dpstream.core.counters import counter_by_name as by_name
from dpstream.core.counters.choose import PURE_COUNTER_NAMES, ZCDP_COUNTER_NAMES
from dpstream.core.counters.intervals import Interval
from dpstream.core.privacy import ZCDP, Budget, DiscreteLaplace, Event, Noise, PureDP, Randomness

HORIZONS = (10, 100, 1000, 10_000)
WIDTHS = (1, 100, 10_000, 100_000)


@dataclass(frozen=True)
class PublishedTree(TreeCounter):
    """Every node has the first tree's share."""

    def interval(self, t: int) -> Interval:
        return Interval(super().interval(t).level, Fraction(1, self.levels))

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        yield Fraction(1, self.levels), sum(count for _, count in super().tiling(t))


@dataclass(frozen=True)
class PublishedHybrid(HybridCounter):
    """All trees of an epoch have one share: ``i`` levels (or ``i + 1``), on half the budget."""

    spare: int = 1

    def interval(self, t: int) -> Interval:
        level = super().interval(t).level
        return Interval(
            level, Fraction(1, 2) if level is None else Fraction(1, 2 * (t.bit_length() - 1 + self.spare))
        )

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        exponent = t.bit_length() - 1
        position = t - (1 << exponent) + 1
        closed = position == 1 << exponent
        yield Fraction(1, 2), exponent + closed
        if not closed:
            yield Fraction(1, 2 * (exponent + self.spare)), position.bit_count()


def window(counter: CalibratedCounter, horizon: int) -> tuple[float, float]:
    """Root mean square and maximum of the standard deviation."""
    first = 1 if counter.horizon is not None else horizon // 2 + 1
    variances = [counter.variance(t) for t in range(first, horizon + 1)]
    return math.sqrt(sum(variances) / len(variances)), math.sqrt(max(variances))


def errors(title: str, budget: Budget) -> None:
    """One table: a row per counter, a column per horizon."""
    print(f"\n{title}: RMS / maximum of the standard deviation")
    print(f"{'counter':28}" + "".join(f"{f'T = {horizon}':>18}" for horizon in HORIZONS))
    recipes: dict[str, Callable[[int], Counter]] = {
        name: lambda horizon, name=name: by_name(name, horizon=horizon)  # type: ignore[misc]
        for name in (PURE_COUNTER_NAMES if isinstance(budget, PureDP) else ZCDP_COUNTER_NAMES)
    }
    recipes["tree as published"] = PublishedTree
    recipes["hybrid as published"] = lambda horizon: PublishedHybrid()
    recipes["hybrid, i levels"] = lambda horizon: PublishedHybrid(spare=0)
    for name, recipe in recipes.items():
        cells = [window(recipe(horizon).calibrate(budget, Event()), horizon) for horizon in HORIZONS]
        print(f"{name:28}" + "".join(f"{f'{rms:.2f} / {most:.2f}':>18}" for rms, most in cells))


class Silence(Randomness):
    """No noise: what is left is the counter's own time."""

    def __init__(self) -> None:
        return None

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


def microseconds(action: Callable[[], object], calls: int) -> float:
    """CPU time of one call."""
    action()
    start = time.process_time()
    for _ in range(calls):
        action()
    return (time.process_time() - start) / calls * 1e6


def speed() -> None:
    """Time per tick, without and with the noise."""
    print("\nCPU time of a tick in microseconds, epsilon = 1, horizon 4096: counter alone / with exact noise")
    print(f"{'':28}" + "".join(f"{f'{width} cells':>20}" for width in WIDTHS))
    system, two = Randomness.system(), DiscreteLaplace(Fraction(2))
    plain, noise = [], []
    for width in WIDTHS:
        total, ones = np.zeros(width, np.int64), np.ones(width, np.int64)
        plain.append(f"{microseconds(partial(plain_sum, total, ones), repeats(width)):.1f}")
        noise.append(f"{microseconds(partial(system.draw, two, width), repeats(width)):.1f}")
    show("a plain running sum", plain)
    show("exact noise alone", noise)
    for name in PURE_COUNTER_NAMES:
        counter = by_name(name, horizon=4096).calibrate(PureDP.of(1), Event())
        show(name, [" / ".join(tick_times(counter, width, (Silence(), system))) for width in WIDTHS])


def tick_times(counter: CalibratedCounter, width: int, sources: tuple[Randomness, ...]) -> Iterator[str]:
    """Time of a tick with each source of noise."""
    for source in sources:
        action = partial(counter.step, counter.init(width), np.ones(width, np.int64), source)
        yield f"{microseconds(action, repeats(width)):.1f}"


def plain_sum(total: NDArray[np.int64], increment: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a counter without privacy does."""
    total += increment
    return total.copy()


def repeats(width: int) -> int:
    """Few enough calls for the widest, within the horizon."""
    return min(2000, 2_000_000 // width)


def show(name: str, cells: list[str]) -> None:
    """One row."""
    print(f"{name:28}" + "".join(f"{cell:>20}" for cell in cells))


def python_loop() -> None:
    """A million additions: how fast this machine is."""
    total = 0
    for number in range(1_000_000):
        total += number


def certificates() -> None:
    """Time of a certificate, and what it says."""
    print("\nCertificates (epsilon = 1), seconds of CPU time")
    for ticks in (32, 128):
        for name in PURE_COUNTER_NAMES:
            counter = by_name(name, horizon=ticks).calibrate(PureDP.of(1), Event())
            start = time.process_time()
            proof = certify(counter, ticks)
            print(f"{time.process_time() - start:8.2f}  {proof}")


if __name__ == "__main__":
    print(f"python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}; one process")
    print(f"calibration: Python loop of 10^6 additions, CPU {microseconds(python_loop, 3) / 1000:.1f} ms")
    errors("Pure, epsilon = 1, add/remove", PureDP.of(1))
    errors("zCDP, rho = 1/2, add/remove", ZCDP.of("1/2"))
    speed()
    certificates()
