"""Statistical comparisons of samples with laws, by chi-square.

Every statistical test of ``tests/privacy`` fails below P_LOW by the chi-square law (20 expected samples or more in a
cell); there are fewer than 200 such comparisons. The noise repeats itself, like that of all tests, so that none of
them fails by chance; ``pytest --fresh-noise tests/privacy`` draws it anew.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

P_LOW = 1e-9
#: What a wrong law has to reach in a negative control.
P_CERTAIN = 1e-12

Cdf = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def one_sample(samples: NDArray[np.int64], cdf: Cdf, bins: int = 40) -> float:
    """Chi-square p-value of integer samples against a distribution function, about equal bins."""
    span = int(np.abs(samples).max()) + 1
    # Bin edges from the law, not from the data: bisection for the quantiles.
    edges: list[int] = []
    for quantile in np.linspace(0, 1, bins + 1)[1:-1]:
        low, high = -8 * span - 64, 8 * span + 64
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if cdf(np.array([middle]))[0] >= quantile else (middle, high)
        edges.append(high)
    cuts = np.unique(edges)
    shares = np.diff(np.concatenate([[0.0], cdf(cuts), [1.0]]))
    return categorical(np.searchsorted(cuts, samples), shares)


def categorical(outcomes: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Chi-square p-value of outcomes against probabilities; rare outcomes are pooled."""
    from scipy import stats

    expected = probabilities * len(outcomes)
    observed = np.bincount(outcomes, minlength=len(expected)).astype(float)
    rare = expected < 20
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
        if expected[-1] < 20:
            # Too rare for a chi-square cell: a plain tail bound for it, the rest conditionally.
            tail = float(stats.poisson.sf(observed[-1] - 1, expected[-1])) if observed[-1] else 1.0
            return min(tail, _chi_square(observed[:-1], expected[:-1]))
    return _chi_square(observed, expected)


def _chi_square(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    from scipy import stats

    if len(expected) < 2:
        return 1.0
    return float(stats.chisquare(observed, expected * (observed.sum() / expected.sum())).pvalue)


def two_samples(a: NDArray[np.int64], b: NDArray[np.int64], bins: int = 30) -> float:
    """Chi-square p-value that two samples of equal size have one law."""
    from scipy import stats

    both = np.concatenate([a, b])
    cuts = np.unique(np.quantile(both, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    table = np.array([np.bincount(np.searchsorted(cuts, x), minlength=len(cuts) + 1) for x in (a, b)])
    table = table[:, table.sum(axis=0) >= 40]
    return float(stats.chi2_contingency(table).pvalue)
