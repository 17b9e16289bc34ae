"""The zCDP counters by their weights: square-root Toeplitz, with a horizon, and BLT, without one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpstream.core.counters.binned import BinnedCounter, Weights
from dpstream.core.errors import ConfigError


def bin_tolerance(ticks: int) -> float:
    """4 %, less where more than 30,000 ticks let the bins' share of the error grow."""
    return round(0.04 * min(1.0, math.cbrt(30_000 / ticks)), 4)


#: The weights of all ages are kept once for a recipe: 100 MB at this horizon.
MAX_HORIZON = 2**22


@dataclass(frozen=True)
class ToeplitzCounter(BinnedCounter):
    """Weights ``binom(2k, k) / 4^k``, whose Toeplitz matrix is a square root of the running sum.

    Guarantee: zCDP; see ``BinnedCounter``. Columns are scaled up to one norm: increments near the horizon meet few
    weights and would waste budget.
    Error: at ``rho = 1/2`` and 1,000 ticks a standard deviation of 3.0 (root mean square); no linear counter
    is below 2.90.
    Memory: ``2 rows + 2`` arrays, 82 rows for 1,000 ticks.

    Source: the square root is Fichtenberger, Henzinger and Upadhyay 2023 ("Constant Matters"), and Henzinger,
    Upadhyay and Upadhyay 2023; columns of one norm: Henzinger, Kalinin and Upadhyay 2025; bins: see ``LagBins``.

    Args:
        horizon: number of ticks ``T``, up to ``MAX_HORIZON``.
    """

    name = "toeplitz"
    most_ticks = MAX_HORIZON

    horizon: int

    @property
    def tolerance(self) -> float:
        """Of the bins."""
        return bin_tolerance(self.horizon)

    def describe(self) -> str:
        """The rule in one sentence."""
        return f"square-root Toeplitz counter: horizon {self.horizon}"

    def weights(self) -> Weights:
        """The last weight is about ``1/sqrt(pi T)``; the grid resolves it to about two units or more."""
        ages = np.arange(1.0, self.horizon)
        exact = np.concatenate([[1.0], np.cumprod((2 * ages - 1) / (2 * ages))])
        grid = 1 << max(6, math.ceil(math.log2(2 * math.sqrt(math.pi * self.horizon))))
        return Weights.on_grid(exact, grid)


#: For each number of ticks: ``1 - theta`` and ``omega`` of every exponential. Made by ``benchmarks/blt_constants.py``.
CONSTANTS: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {
    1000: (
        (0.00238479303, 0.0337738316, 0.175563605, 0.597027067),
        (0.0688366861, 0.109155189, 0.173465811, 0.148992863),
    ),
    10_000: (
        (0.000243154956, 0.00433706156, 0.0421133113, 0.340661366),
        (0.0223136325, 0.0487480704, 0.141633013, 0.277283173),
    ),
    1_000_000: (
        (2.54916136e-06, 6.18422326e-05, 0.000991761615, 0.015670181, 0.222510665),
        (0.00234249311, 0.00693965446, 0.0276085668, 0.108182548, 0.322012598),
    ),
}


@dataclass(frozen=True)
class BLTCounter(BinnedCounter):
    """Weights 1, then ``sum_i omega_i theta_i^(k - 1)``.

    Guarantee: zCDP for any number of ticks; see ``BinnedCounter``. The sum of the squared weights is finite
    (``theta < 1``, and the rounded weights end), so no horizon is needed.
    Error: at ``rho = 1/2`` a standard deviation of 3.2 over ticks 501 to 1,000 with the constants for 1,000; far
    beyond ``ticks`` it grows with ``sqrt t``. With a horizon the noise is for the weights that are met until then.
    Memory: ``2 rows + 2`` arrays.

    Source: Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024 ("Efficient and Near-Optimal Noise Generation for
    Streaming Differential Privacy"); bins in place of its buffers (rounded buffers would have no bounded
    sensitivity): see ``LagBins``.

    Args:
        ticks: for how many ticks the constants are best: one of ``CONSTANTS``.
        horizon: number of ticks, up to ``MAX_HORIZON``; None: any number.
    """

    name = "blt"
    most_ticks = MAX_HORIZON

    ticks: int = 10_000
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.ticks, bool) or self.ticks not in CONSTANTS:
            raise ConfigError(
                f"no constants for {self.ticks!r} ticks",
                where="counter blt",
                allowed=", ".join(str(ticks) for ticks in CONSTANTS),
            )

    @property
    def tolerance(self) -> float:
        """Of the bins."""
        return bin_tolerance(self.ticks)

    def describe(self) -> str:
        """The rule in one sentence."""
        ends = "no horizon" if self.horizon is None else f"horizon {self.horizon}"
        return f"buffered linear Toeplitz counter: {ends}, best up to {self.ticks} ticks"

    def weights(self) -> Weights:
        """Cut where all are rounded to 0, or at the horizon."""
        rates, sizes = CONSTANTS[self.ticks]
        grid = 1 << math.ceil(math.log2(4 * math.sqrt(math.pi * self.ticks)))
        # Beyond, each exponential is below 1 / (2 grid) over their number.
        longest = max(
            math.log(2 * grid * len(rates) * size) / rate for rate, size in zip(rates, sizes, strict=True)
        )
        exact = np.zeros(math.ceil(longest) + 2)
        exact[0] = 1.0
        for rate, size in zip(rates, sizes, strict=True):
            exact[1:] += size * np.cumprod(np.concatenate([[1.0], np.full(len(exact) - 2, 1.0 - rate)]))
        return Weights.on_grid(exact[: self.horizon], grid)
