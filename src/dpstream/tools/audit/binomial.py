"""Exact confidence limits of a probability from counted runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import from_extra

Floats = NDArray[np.float64]


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, alpha: float) -> tuple[Floats, Floats]:
    """The exact lower and upper limits of binomial probabilities. Each fails with probability at most ``alpha``.

    Together they are a two-sided interval of confidence ``1 - 2 alpha``. Arguments may be arrays. ``successes`` may be
    fractions (for planning), but the guarantee holds for whole numbers only.

    >>> low, high = clopper_pearson(0, 10, 0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.2589)
    """
    with from_extra("evaluate", "audit"):
        from scipy.special import betaincinv

    check_rate(alpha, "alpha")
    k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    if np.any(n < 1) or np.any(k < 0) or np.any(k > n):
        raise DataError(
            "successes are not between 0 and trials",
            where="clopper_pearson",
            allowed="0 <= successes <= trials",
        )
    # The limits solve P(X >= k) = alpha and P(X <= k) = alpha, which are incomplete beta functions. For k = 0 and k = n
    # the inverse is not defined, and the limit is 0 or 1.
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1e-300), n - k + 1, alpha), 0.0)
        high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-300), 1 - alpha), 1.0)
    return low, high


def check_rate(value: float, name: str) -> None:
    """Refuse what is not strictly between 0 and 1 (ConfigError)."""
    if not 0.0 < value < 1.0:
        raise ConfigError(f"{name} = {value} is outside of 0 to 1", where="audit", allowed="between 0 and 1")
