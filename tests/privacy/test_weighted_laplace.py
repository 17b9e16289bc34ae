"""Intervals of errors that are weighted sums of Laplace draws with unknown weights."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace, unpack_law
from dpstream.core.privacy.noise import DiscreteLaplace

_ANGLES = np.linspace(1e-6, 60.0, 24_001)
#: Far above one record, so that whole numbers do not matter.
_VARIANCE = 10**8


def _families() -> list[NDArray[np.float64]]:
    """How the draws share the variance: evenly, one large beside many small, and at random."""
    even = [np.full(n, 1.0 / n) for n in (1, 2, 3, 4, 6, 10, 20, 60)]
    uneven = [np.r_[x, np.full(m, (1.0 - x) / m)] for x in (0.3, 0.6, 0.9) for m in (2, 20)]
    generator = np.random.default_rng(5)
    return even + uneven + [generator.dirichlet(np.full(8, 0.5)) for _ in range(4)]


def _coverage(shares: NDArray[np.float64], width: float) -> float:
    """``Pr[|sum| <= width]`` for a sum of variance 1, by inverting its characteristic function."""
    characteristic = np.prod([1.0 / (1.0 + share * _ANGLES**2 / 2.0) for share in shares], axis=0)
    return float(2.0 / np.pi * np.trapezoid(characteristic * np.sin(width * _ANGLES) / _ANGLES, _ANGLES))


def _shortfall(factor: float) -> float:
    """The largest lack of coverage over all families and confidences; the integral is good to about 1e-4."""
    lacking = []
    for confidence in (0.3, 0.5, 0.8, 0.88, 0.9, 0.905, 0.91, 0.92, 0.95, 0.99, 0.999):
        width = factor * WeightedLaplace(Fraction(_VARIANCE)).half_width(confidence) / _VARIANCE**0.5
        lacking += [confidence - _coverage(shares, width) for shares in _families()]
    return max(lacking)


def test_intervals_hold_for_all_weights() -> None:
    assert _shortfall(1.0) < 2e-4
    # Negative control: 2 % narrower, and some sum is missed too often.
    assert _shortfall(0.98) > 3e-3


def test_several_cells_packing_and_refusals() -> None:
    law = WeightedLaplace(Fraction(1, 3))
    assert law.times(3) == WeightedLaplace(Fraction(1))
    assert unpack_law(law.pack()) == law
    exact = NoiseSum(((DiscreteLaplace(Fraction(2)), 3),))
    assert unpack_law(exact.pack()) == exact
    with pytest.raises(ConfigError, match="confidence"):
        law.half_width(1.0)
