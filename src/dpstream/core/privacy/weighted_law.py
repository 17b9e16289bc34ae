"""The law of a weighted sum of independent draws: means of measurements, and sums of cells. Public arithmetic only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy._histogram_law import law_of_sum
from dpstream.core.privacy.cube import CubeNoise
from dpstream.core.privacy.joint import HistogramCells
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace, check_confidence, log_characteristic
from dpstream.core.privacy.noise import Noise

#: Grid steps to a standard deviation where weights differ, and half of the grid in standard deviations.
_FINEST, _REACH = 1024, 32
#: The grid sees the sum with normal noise of so many steps added; beyond ``_MARGIN`` steps that has less than 1e-7.
_SMOOTH, _MARGIN = 2.0, 11
#: Radii of joint noise that are looked at, and how far from the most probable one (in powers of e).
_RADII, _RARE = 512, 45.0
_CHUNK = 1024


@dataclass(frozen=True)
class WeightedSum:
    """A sum of independent draws, each times a weight; symmetric around 0.

    Attributes:
        parts: (noise, weight, number of such draws).
        joint: (noise, the weights of some coordinates of one draw, number of such draws).
        histograms: (noise of a histogram that was drawn with others, number of its cells that are added up, weight of
            each, number of such draws); ``has_law`` says which sums of cells have a law.
        loose: variance of parts of which nothing else is known.
        laplace: variance of sums of Laplace draws with unknown weights (``WeightedLaplace``).

    >>> noise = NoiseSum.unpack([["laplace", "2", 1]]).parts[0][0]
    >>> half = WeightedSum(((noise, 0.5, 2),))  # the mean of two draws
    >>> round(half.variance, 3), half.half_width(0.95), half.exact
    (3.918, 4.0, True)
    """

    parts: tuple[tuple[Noise, float, int], ...] = ()
    joint: tuple[tuple[CubeNoise, tuple[float, ...], int], ...] = ()
    loose: float = 0.0
    laplace: float = 0.0
    histograms: tuple[tuple[HistogramCells, int, float, int], ...] = ()

    @property
    def variance(self) -> float:
        """Of the sum. Coordinates of a joint draw are not correlated."""
        own = sum(count * weight**2 * noise.variance for noise, weight, count in self.parts)
        own += sum(
            count * noise.variance * sum(w**2 for w in weights) for noise, weights, count in self.joint
        )
        own += sum(
            count * weight**2 * noise.variance_of_sum(many, many)
            for noise, many, weight, count in self.histograms
        )
        return own + self.loose + self.laplace

    @property
    def exact(self) -> bool:
        """Whether intervals are those of the law itself; else they are wider, and hold for every law of this
        variance."""
        return not self.loose and not (self.laplace and (self.parts or self._whole))

    @property
    def _whole(self) -> bool:
        """Whether there are draws of whole vectors."""
        return bool(self.joint or self.histograms)

    def half_width(self, confidence: float) -> float:
        """A width ``h`` with ``Pr[|sum| <= h] >= confidence``, in records.

        Where all weights are equal: the smallest such width, as ``NoiseSum`` gives it. Where they differ, or draws are
        joint: up to about 2 % more. Where only variances are known: by Chebyshev's inequality.

        Errors:
            ConfigError: a confidence outside of 0 to ``MAX_CONFIDENCE``.

        Cost: one Fourier transform of 65,536 numbers at most; with joint draws about a second at most; remembered.
        """
        check_confidence(confidence)
        if self.variance == 0.0:
            return 0.0
        if not self.exact:
            return math.sqrt(self.variance / (1.0 - confidence))
        if self.laplace:
            return WeightedLaplace(Fraction(self.laplace)).half_width(confidence)
        weights = {abs(weight) for _, weight, _ in self.parts}
        if len(weights) == 1 and not self._whole:
            lattice = NoiseSum(tuple((noise, count) for noise, _, count in self.parts))
            return weights.pop() * lattice.half_width(confidence)
        return float(np.interp(confidence, *_widths(self)))


@lru_cache(maxsize=256)
def _widths(law: WeightedSum) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probabilities, and the widths that hold them, for a law whose draws do not lie on one lattice."""
    step = math.sqrt(law.variance) / _FINEST
    knots = 2 * _REACH * _FINEST
    angles = np.linspace(0.0, math.pi, knots // 2 + 1)
    logarithm = -((_SMOOTH * angles) ** 2) / 2.0
    for noise, weight, count in law.parts:
        turned = np.remainder(weight * angles / step, 2.0 * math.pi)
        logarithm += count * log_characteristic(noise, np.minimum(turned, 2.0 * math.pi - turned))
    values, hidden = np.exp(logarithm), 0.0
    for first in range(0, len(angles), _CHUNK):
        part = slice(first, first + _CHUNK)
        if (law.joint or law.histograms) and np.abs(values[part]).max() > 1e-12:
            for cells, many, weight, count in law.histograms:
                own = _histogram_characteristic(cells, many, weight * angles[part] / step)
                values[part] *= own**count
            for joint, weights, count in law.joint:
                values[part] *= _joint_characteristic(joint, weights, angles[part] / step) ** count
            if np.abs(values[part]).max() <= 1e-12:
                # What may come back at higher angles only says that the sum lies on multiples of the weights.
                values[first + _CHUNK :] = 0.0
                hidden = max([0.0, *(abs(weight) for _, weights, _ in law.joint for weight in weights)])
                hidden = max([hidden, *(abs(weight) for _, weight, _ in law.parts)])
                widest = [
                    abs(weight) * law_of_sum(noise, many)[0] for noise, many, weight, _ in law.histograms
                ]
                hidden = max([hidden, *widest])
                break
    probabilities = np.fft.irfft(values, knots)[: knots // 2]
    inside = np.maximum.accumulate(2.0 * np.cumsum(probabilities) - probabilities[0]) - 2e-7
    # One step up for the grid, and what the added normal noise may have hidden.
    widths = np.arange(len(inside), dtype=np.float64) + 1.0 + _MARGIN
    return inside, widths * step + hidden


def _histogram_characteristic(
    noise: HistogramCells, many: int, angles: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``E cos(angle * sum of cells)``."""
    _, values, shares = law_of_sum(noise, many)
    there = shares > 1e-15
    found: NDArray[np.float64] = np.cos(np.outer(angles, values[there])) @ shares[there]
    return found


def _joint_characteristic(
    noise: CubeNoise, weights: tuple[float, ...], angles: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``E cos(angle * sum of weighted coordinates)``: given the radius, coordinates are uniform and independent."""
    rate, m = float(1 / noise.scale), noise.dimension
    middle = max(0.0, m / rate)
    spread = (math.sqrt(m) + 1.0) / rate
    low = max(0, math.floor(middle - 10.0 * spread - 2))
    high = math.ceil(middle + (12.0 * spread + _RARE / rate) + 2)
    radii = np.unique(np.round(np.linspace(low, high, min(_RADII, high - low + 1))))
    logs = m * np.log1p(2.0 * radii) - rate * radii
    shares = np.exp(logs - logs.max()) * np.gradient(radii) if len(radii) > 1 else np.ones(1)
    result = np.zeros(len(angles))
    for radius, share in zip(radii.tolist(), (shares / shares.sum()).tolist(), strict=True):
        if share < 1e-15:
            continue
        product = np.full(len(angles), share)
        for weight in set(weights):
            half = weight * angles / 2.0
            sine = np.sin(half)
            whole = np.abs(sine) < 1e-9
            own = np.where(
                whole,
                1.0,
                np.sin((2.0 * radius + 1.0) * half) / np.where(whole, 1.0, (2.0 * radius + 1.0) * sine),
            )
            product *= own ** weights.count(weight)
        result += product
    return result
