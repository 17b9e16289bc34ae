"""Exact integer noise: discrete Laplace and discrete Gaussian.

Guarantee: samples follow the stated law exactly (not up to a floating-point error), for every
rational parameter. See ``docs/theory/noise-and-selection.md`` for the proofs.

Trusted base: kernel (the laws of noise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy._samplers import (
    CHUNK,
    WordSource,
    capped_float,
    sampler_of_gaussian,
    sampler_of_laplace,
)
from dpstream.core.privacy.budget import Budget, PureDP

#: Largest scale and standard deviation. Beyond, sums of noise could pass 64-bit integers.
MAX_SCALE = 10**12


@dataclass(frozen=True)
class DiscreteLaplace:
    """Integer noise with ``Pr[k] = (1 - q)/(1 + q) q^|k|``, ``q = exp(-1/scale)``.

    Guarantee: added to an integer vector of L1 sensitivity ``d`` (an independent draw per cell),
    pure DP with ``epsilon = d / scale``.

    >>> DiscreteLaplace(Fraction(2)).describe()
    'discrete Laplace noise of scale 2 (standard deviation 2.799)'
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", exact_parameter(self.scale, "scale", MAX_SCALE))

    @property
    def variance(self) -> float:
        """``2 q / (1 - q)^2``."""
        rate = capped_float(1 / self.scale)
        return 2.0 * math.exp(-rate) / math.expm1(-rate) ** 2

    def pmf(self, k: int | NDArray[np.int64]) -> float | NDArray[np.float64]:
        """Probability of ``k`` (a number, or an array of them), to floating-point accuracy."""
        rate = capped_float(1 / self.scale)
        value = math.tanh(rate / 2) * np.exp(-rate * np.abs(np.asarray(k, dtype=np.float64)))
        return float(value) if np.ndim(value) == 0 else value

    def describe(self) -> str:
        """The law in words, for plans and manifests."""
        return f"discrete Laplace noise of scale {self.scale} (standard deviation {self.variance**0.5:.4g})"


@dataclass(frozen=True)
class DiscreteGaussian:
    """Integer noise with ``Pr[k] ~ exp(-k^2 / (2 sigma_squared))``.

    Guarantee: added to an integer vector of squared L2 sensitivity ``d2`` (an independent draw per
    cell), zCDP with ``rho = d2 / (2 sigma_squared)`` (Canonne, Kamath, Steinke 2020, Theorem 14).

    >>> DiscreteGaussian(Fraction(4)).describe()
    'discrete Gaussian noise with sigma^2 = 4 (standard deviation 2)'
    """

    sigma_squared: Fraction

    def __post_init__(self) -> None:
        exact = exact_parameter(self.sigma_squared, "sigma_squared", MAX_SCALE**2)
        object.__setattr__(self, "sigma_squared", exact)

    @property
    def variance(self) -> float:
        """The exact variance; ``sigma_squared`` itself except where that is small."""
        sigma_squared = float(self.sigma_squared)
        if sigma_squared >= 4:
            # Poisson summation: the relative difference is below 8 pi^2 s e^(-2 pi^2 s) < 1e-30.
            return sigma_squared
        squares = _squares()
        terms = np.exp(-squares / (2 * sigma_squared)) if sigma_squared > 0 else np.zeros_like(squares)
        return float(2 * (squares * terms).sum() / (1 + 2 * terms.sum()))

    def pmf(self, k: int | NDArray[np.int64]) -> float | NDArray[np.float64]:
        """Probability of ``k`` (a number, or an array of them), to floating-point accuracy."""
        sigma_squared = max(float(self.sigma_squared), 1e-300)
        if sigma_squared >= 4:
            whole = math.sqrt(2 * math.pi * sigma_squared)
        else:
            whole = 1 + 2 * float(np.exp(-_squares() / (2 * sigma_squared)).sum())
        value = np.exp(-(np.asarray(k, dtype=np.float64) ** 2) / (2 * sigma_squared)) / whole
        return float(value) if np.ndim(value) == 0 else value

    def describe(self) -> str:
        """The law in words, for plans and manifests."""
        return (
            f"discrete Gaussian noise with sigma^2 = {self.sigma_squared} "
            f"(standard deviation {self.variance**0.5:.4g})"
        )


#: Independent in every cell.
Noise = DiscreteLaplace | DiscreteGaussian


def noise_for(budget: Budget, l1: Fraction | int, l2_squared: Fraction | int) -> Noise:
    """The noise that releases integer counts of the given sensitivity at exactly ``budget``.

    Pure DP: discrete Laplace of scale ``l1 / epsilon``. zCDP: discrete Gaussian of
    ``sigma^2 = l2_squared / (2 rho)``. Amounts are rational, so nothing is rounded.

    Args:
        budget: the amount to spend.
        l1: how much the counts can change in sum of absolute values between neighbours.
        l2_squared: how much in sum of squares.

    >>> noise_for(PureDP.of("1/2"), 1, 1)
    DiscreteLaplace(scale=Fraction(2, 1))
    """
    sensitivity = Fraction(l1 if isinstance(budget, PureDP) else l2_squared)
    if sensitivity <= 0:
        raise ConfigError("the sensitivity must be positive", where="noise")
    if isinstance(budget, PureDP):
        return DiscreteLaplace(sensitivity / budget.epsilon)
    return DiscreteGaussian(sensitivity / (2 * budget.rho))


def sample_cells(noise: Noise, size: int, words: WordSource) -> NDArray[np.int64]:
    """``size`` exact samples; mechanisms call ``Randomness.measure`` instead."""
    if size < 0:
        raise ConfigError("negative number of samples", where="noise")
    if isinstance(noise, DiscreteLaplace):
        sampler = sampler_of_laplace(noise.scale)
    else:
        sampler = sampler_of_gaussian(noise.sigma_squared)
    if size <= CHUNK:
        return sampler.sample(size, words)
    result = np.empty(size, dtype=np.int64)
    for start in range(0, size, CHUNK):
        part = result[start : start + CHUNK]
        part[:] = sampler.sample(len(part), words)
    return result


def exact_parameter(value: object, name: str, maximum: int) -> Fraction:
    """A scale or variance; ConfigError where it is not exact or not positive, LimitError beyond ``maximum``."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise ConfigError("expected an exact noise parameter", where=name, allowed="Fraction or int")
    if value <= 0:
        raise ConfigError("the noise parameter must be positive", where=name)
    if value > maximum:
        raise LimitError("noise too large for 64-bit counts", where=name, allowed=f"up to {maximum:.0e}")
    return Fraction(value)


def _squares() -> NDArray[np.float64]:
    """1, 4, 9, ...: enough terms for sigma^2 below 4."""
    return np.arange(1.0, 100.0) ** 2
