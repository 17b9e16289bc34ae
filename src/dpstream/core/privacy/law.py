"""The law of a sum of independent draws of exact noise, and intervals from it. Public arithmetic only.

The law of a sum is found from its characteristic function on a grid (a discrete Fourier transform), not from
a normal limit: one draw of Laplace noise has heavier tails than a normal number of the same variance, and
where the noise is below about one record the sum takes few values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise

#: Beyond, the tail is of the order of rounding errors.
MAX_CONFIDENCE = 1 - 1e-6

#: Sums of a larger standard deviation are computed on a grid that is coarser than the integers.
_FINEST = 1024.0
#: Half of the grid, in standard deviations. A symmetric log-concave law has less than e^-30 beyond.
_REACH = 32


def check_confidence(confidence: float) -> float:
    """A confidence above 0 and up to ``MAX_CONFIDENCE``, or ConfigError."""
    number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not number or not 0.0 < confidence <= MAX_CONFIDENCE:
        raise ConfigError(
            f"confidence = {confidence!r}", where="interval", allowed=f"above 0 and up to {MAX_CONFIDENCE}"
        )
    return float(confidence)


@dataclass(frozen=True)
class NoiseSum:
    """A sum of independent draws: ``parts`` are (noise, number of draws).

    >>> two = NoiseSum(((DiscreteLaplace(Fraction(1)), 2),))
    >>> round(two.variance, 3), two.half_width(0.95)
    (3.683, 4.0)
    """

    parts: tuple[tuple[Noise, int], ...]

    @property
    def variance(self) -> float:
        """The variances of all draws together."""
        return float(sum(count * noise.variance for noise, count in self.parts))

    def times(self, number: int) -> NoiseSum:
        """The sum of ``number`` independent copies, such as of as many cells of one marginal."""
        return NoiseSum(tuple((noise, count * number) for noise, count in self.parts if count * number))

    def half_width(self, confidence: float) -> float:
        """The smallest ``h`` with ``Pr[|sum| <= h] >= confidence``, in records.

        Exact (a whole number) up to a standard deviation of 1,024; beyond, up to a grid step of a 1,024th of
        it more. On integers the probability of ``h`` can be well above ``confidence`` where the noise is small.

        Errors:
            ConfigError: a confidence outside of 0 to ``MAX_CONFIDENCE``.

        Cost: one Fourier transform of 65,536 numbers at most; remembered.
        """
        return _half_width(self, check_confidence(confidence))

    def pack(self) -> list[list[Any]]:
        """JSON-able and exact."""
        return [
            ["laplace", str(noise.scale), count]
            if isinstance(noise, DiscreteLaplace)
            else ["gaussian", str(noise.sigma_squared), count]
            for noise, count in self.parts
        ]

    @classmethod
    def unpack(cls, packed: Sequence[Sequence[Any]]) -> NoiseSum:
        """The inverse of ``pack``."""
        kinds: dict[str, type[Noise]] = {"laplace": DiscreteLaplace, "gaussian": DiscreteGaussian}
        return cls(tuple((kinds[kind](Fraction(amount)), int(count)) for kind, amount, count in packed))


@dataclass(frozen=True)
class WeightedLaplace:
    """A sum of independent Laplace draws with unknown real weights, rounded to a whole number: its variance is known.

    Such a sum is a normal number whose variance is itself random, and less so than that of a single Laplace draw.
    Small confidences are missed most by the normal law, large ones by a single draw, so the wider of the two is
    taken. Just between (near 91 %) sums of a few equal draws are wider by up to 5 in 10,000, which the factor covers
    (docs/theory/errors.md).

    >>> round(WeightedLaplace(Fraction(10_000)).half_width(0.95), 1)
    212.8
    """

    total: Fraction

    #: Over the wider of the two laws.
    MARGIN: ClassVar[float] = 1.002

    @property
    def variance(self) -> float:
        """The variance, that of rounding included."""
        return float(self.total)

    def times(self, number: int) -> WeightedLaplace:
        """The sum of ``number`` independent copies."""
        return WeightedLaplace(self.total * number)

    def half_width(self, confidence: float) -> float:
        """A width ``h`` with ``Pr[|sum| <= h] >= confidence``, in records; half a record is for rounding.

        Errors:
            ConfigError: a confidence outside of 0 to ``MAX_CONFIDENCE``.
        """
        check_confidence(confidence)
        normal = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
        single = -math.log1p(-confidence) / math.sqrt(2.0)
        return self.MARGIN * max(normal, single) * math.sqrt(self.variance) + 0.5

    def pack(self) -> list[list[Any]]:
        """JSON-able and exact."""
        return [["weighted laplace", str(self.total), 1]]


Law = NoiseSum | WeightedLaplace


def unpack_law(packed: Sequence[Sequence[Any]]) -> Law:
    """The inverse of ``pack``."""
    if packed and packed[0][0] == "weighted laplace":
        return WeightedLaplace(Fraction(packed[0][1]))
    return NoiseSum.unpack(packed)


@lru_cache(maxsize=1024)
def _half_width(law: NoiseSum, confidence: float) -> float:
    deviation = math.sqrt(law.variance)
    if deviation == 0.0:
        return 0.0
    step = max(1.0, deviation / _FINEST)
    knots = 1 << max(10, math.ceil(math.log2(2 * _REACH * deviation / step)))
    angles = np.linspace(0.0, math.pi, knots // 2 + 1)
    # A grid coarser than the integers keeps the low frequencies, which hold all but about 1e-6 of the law.
    logarithm = sum(
        (count * log_characteristic(noise, angles / step) for noise, count in law.parts),
        np.zeros_like(angles),
    )
    probabilities = np.fft.irfft(np.exp(logarithm), knots)[: knots // 2]
    inside = 2.0 * np.cumsum(probabilities) - probabilities[0]
    reached = int(np.searchsorted(inside, confidence - 1e-12))
    # Between two points of a coarse grid: the outer one, and one more for what the grid cannot see.
    return float(reached) if step == 1.0 else (reached + 1) * step


def log_characteristic(noise: Noise, angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of ``E cos(angle X)``, which is positive for both noises; angles from 0 to pi."""
    if isinstance(noise, DiscreteLaplace):
        # (1 - q)^2 / (1 - 2 q cos a + q^2), with the variance 2 q / (1 - q)^2.
        laplace: NDArray[np.float64] = -np.log1p(2.0 * noise.variance * np.sin(angles / 2.0) ** 2)
        return laplace
    sigma_squared = float(noise.sigma_squared)
    if sigma_squared < 1.0:
        k = np.arange(1, 41)
        weights = 2.0 * np.exp(-(k**2) / (2.0 * max(sigma_squared, 1e-300)))
        small: NDArray[np.float64] = np.log1p(np.cos(np.outer(angles, k)) @ weights) - np.log1p(weights.sum())
        return small
    # Poisson summation: the characteristic function is a sum of normal ones, 2 pi apart.
    j = 2.0 * math.pi * np.array([-2.0, -1.0, 1.0, 2.0])
    others = np.exp(-sigma_squared * (np.outer(angles, 2.0 * j) + j**2) / 2.0).sum(axis=1)
    at_zero = np.exp(-sigma_squared * j**2 / 2.0).sum()
    result: NDArray[np.float64] = -sigma_squared * angles**2 / 2.0 + np.log1p(others) - math.log1p(at_zero)
    return result
