"""The square root of the running sum, for a known horizon (zCDP)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpstream.core.counters.binned import BinnedCounter, Weights, usable_tolerance

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
    Upadhyay and Upadhyay 2023; columns of one norm: Henzinger, Kalinin and Upadhyay 2025; bins: see ``lagbins``.

    Args:
        horizon: number of ticks ``T``, up to ``MAX_HORIZON``.
        tolerance: see ``LagBins``; more means fewer bins and a larger error, 0 keeps all increments. By default 4 %,
            less beyond 30,000 ticks.
    """

    name = "toeplitz"
    most_ticks = MAX_HORIZON

    horizon: int
    tolerance: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        usable_tolerance(self.tolerance, self.horizon)

    @property
    def share(self) -> float:
        """The tolerance in use."""
        return usable_tolerance(self.tolerance, self.horizon)

    def describe(self) -> str:
        """The rule in one sentence."""
        return f"square-root Toeplitz counter: horizon {self.horizon}"

    def weights(self) -> Weights:
        """The last weight is about ``1/sqrt(pi T)``; the grid resolves it to about two units or more."""
        ages = np.arange(1.0, self.horizon)
        exact = np.concatenate([[1.0], np.cumprod((2 * ages - 1) / (2 * ages))])
        grid = 1 << max(6, math.ceil(math.log2(2 * math.sqrt(math.pi * self.horizon))))
        return Weights.on_grid(exact, grid)
