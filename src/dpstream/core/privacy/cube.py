"""Exact integer noise for many bounded answers at once: its density falls with the largest coordinate.

Guarantee: samples follow the stated law exactly, for every rational scale. Proof: docs/theory/noise-and-selection.md.

Trusted base: kernel (joint noise of bounded answers).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy._samplers import (
    WORD_BITS,
    Distribution,
    InversionTable,
    Sampler,
    WordSource,
    build_geometric,
    capped_float,
    exp_bounds,
)
from dpstream.core.privacy.budget import Budget, PureDP
from dpstream.core.privacy.noise import MAX_SCALE, DiscreteGaussian, exact_parameter

#: Most coordinates drawn together: tables of so many long integers are built in a fraction of a second.
MAX_DIMENSION = 512
#: Sums of ``MAX_DIMENSION`` geometric numbers of the largest scale stay far below it.
_LARGEST = 1 << 60


@dataclass(frozen=True)
class CubeNoise:
    """A vector of ``dimension`` integers with ``Pr[z] ~ exp(-max_i |z_i| / scale)`` (Hardt, Talwar 2010).

    Guarantee: added to integers that all change by at most ``d`` between neighbours (each of them, in any direction),
    pure DP with ``epsilon = d / scale``: the largest absolute value obeys the triangle inequality.

    One coordinate has a standard deviation of about ``dimension / sqrt(3)`` scales; discrete Laplace noise on each
    would need ``dimension * sqrt(2)``.

    >>> CubeNoise(Fraction(2), 20).describe()
    'jointly drawn noise on 20 sums, bounded by its largest value, of scale 2 (standard deviation 24.82 each)'
    """

    scale: Fraction
    dimension: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", exact_parameter(self.scale, "scale", MAX_SCALE))
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise ConfigError("too many sums to draw together", where="dimension", allowed="1 to 512")

    @property
    def cells(self) -> int:
        """Of one draw."""
        return self.dimension

    @cached_property
    def variance(self) -> float:
        """Of one coordinate: the mean of ``R (R + 1) / 3`` over the radius of the mixture in ``sample``."""
        rate = capped_float(1 / self.scale)
        q = math.exp(-rate)
        odds = -math.log(math.expm1(rate)) if rate < 700 else -rate  # log(q / (1 - q))
        weights = _differences(self.dimension)
        logs = np.array([math.log(w) + k * odds if w else -math.inf for k, w in enumerate(weights)])
        shares = np.exp(logs - logs.max())
        k = np.arange(len(weights), dtype=np.float64)
        mean = k + (k + 1.0) * q / -math.expm1(-rate)
        spread = (k + 1.0) * q / math.expm1(-rate) ** 2
        return float(shares @ (mean**2 + spread + mean) / shares.sum() / 3.0)

    def describe(self) -> str:
        """The law in words, for plans and manifests."""
        return (
            f"jointly drawn noise on {self.dimension} sums, bounded by its largest value, of scale {self.scale} "
            f"(standard deviation {self.variance**0.5:.4g} each)"
        )

    def sample(self, words: WordSource) -> NDArray[np.int64]:
        """One exact draw of the whole vector; mechanisms call ``Randomness.measure``."""
        return _sampler(self.scale, self.dimension).sample(words)


def noise_for_bounded(budget: Budget, sums: int, change: int) -> CubeNoise | DiscreteGaussian:
    """The noise that releases ``sums`` integers, each of which changes by at most ``change``, at exactly ``budget``.

    Pure DP: ``CubeNoise`` of scale ``change / epsilon``. zCDP, where a bound on the largest change gains nothing:
    discrete Gaussian with ``l2_squared = sums * change**2``.

    >>> noise_for_bounded(PureDP.of("1/2"), 20, 1)
    CubeNoise(scale=Fraction(2, 1), dimension=20)
    """
    if sums < 1 or change < 1:
        raise ConfigError("the number of sums and their change must be positive", where="noise")
    if isinstance(budget, PureDP):
        return CubeNoise(change / budget.epsilon, sums)
    return DiscreteGaussian(Fraction(sums * change**2) / (2 * budget.rho))


class _CubeSampler:
    """A radius R with ``Pr[R] ~ (2R + 1)^m q^R``, then each coordinate uniform on ``-R .. R``.

    A vector of largest value r is reached from all ``R >= r``, each time with weight ``q^R``: together
    ``q^r / (1 - q)``. The radius: ``(2R + 1)^m = sum_k a_k C(R, k)`` with the finite differences
    ``a_k >= 0``, and ``sum_R C(R, k) q^R = q^k / (1 - q)^(k+1)``. So k is drawn with weight
    ``a_k (q / (1 - q))^k``, and given k the radius is k plus the sum of ``k + 1`` geometric numbers.
    """

    def __init__(self, scale: Fraction, dimension: int, word_bits: int = WORD_BITS) -> None:
        self._dimension = dimension
        self._degree = InversionTable(_degrees(1 / scale, _differences(dimension)), word_bits)
        self._geometric: Sampler = build_geometric(scale, word_bits)

    def sample(self, words: WordSource) -> NDArray[np.int64]:
        degree = int(self._degree.sample(words(1), words)[0])
        radius = degree + sum(self._geometric.sample(degree + 1, words).tolist())
        if radius >= _LARGEST:
            raise LimitError("noise beyond 64-bit integers", where="noise")
        value: NDArray[np.int64] = _uniform(2 * radius + 1, self._dimension, words) - radius
        return value


@lru_cache(maxsize=64)
def _sampler(scale: Fraction, dimension: int) -> _CubeSampler:
    return _CubeSampler(scale, dimension)


@lru_cache(maxsize=64)
def _differences(dimension: int) -> tuple[int, ...]:
    """Finite differences at 0 of ``(2R + 1)^dimension``: the polynomial in the basis of binomials ``C(R, k)``.

    >>> _differences(2)  # (2R + 1)^2 = 1 + 8 R + 8 R (R - 1) / 2
    (1, 8, 8)
    """
    row = [(2 * r + 1) ** dimension for r in range(dimension + 1)]
    found = []
    while row:
        found.append(row[0])
        row = [b - a for a, b in pairwise(row)]
    return tuple(found)


def _degrees(rate: Fraction, weights: tuple[int, ...]) -> Distribution:
    """``Pr[k] ~ weights[k] (q / (1 - q))^k`` with ``q = exp(-rate)``, enclosed in integers.

    All weights are multiplied by ``(1 - q)^m``, which leaves products of numbers below 1.
    """
    top = len(weights) - 1
    # 1 - q may be tiny, and its powers more so.
    lost = max(0, (rate.denominator // rate.numerator).bit_length() + 1) * (top + 1)
    # Beyond, q itself is far below any weight: its powers need bits of their own.
    lost += (top + 1) * 2 * (int(min(rate, Fraction(64))) + 1)

    def bounds(bits: int) -> Iterator[tuple[int, int]]:
        work = bits + lost + 64
        one, end = 1 << work, 1 << bits
        q = exp_bounds(rate, work)
        rest = (one - q[1], one - q[0])
        powers = [
            (_powers(q[side], top, work, side), _powers(rest[side], top, work, side)) for side in (0, 1)
        ]
        terms = [
            tuple(weight * (of_q[k] * of_rest[top - k] >> work) for of_q, of_rest in powers)
            for k, weight in enumerate(weights)
        ]
        lows = [low for low, _ in terms]
        highs = [high + weight for (_, high), weight in zip(terms, weights, strict=True)]
        whole_low, whole_high = sum(lows), sum(highs)
        at_low = at_high = 0
        for low, high in zip(lows[:-1], highs[:-1], strict=True):
            at_low, at_high = at_low + low, at_high + high
            yield (at_low << bits) // whole_high, min(-(-(at_high << bits) // max(whole_low, 1)), end)
        yield end, end

    return bounds


def _powers(base: int, most: int, work: int, up: int) -> list[int]:
    """``base**0 .. base**most`` in units of ``2**-work``, rounded down, or up."""
    powers = [1 << work]
    for _ in range(most):
        powers.append((powers[-1] * base >> work) + up)
    return powers


def _uniform(bound: int, size: int, words: WordSource) -> NDArray[np.int64]:
    """Exactly uniform on ``0 .. bound - 1``: as many top bits as needed, larger ones rejected."""
    if bound == 1:
        return np.zeros(size, dtype=np.int64)
    shift = np.uint64(64 - (bound - 1).bit_length())
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < size:
        drawn = (words(2 * (size - len(numbers)) + 4) >> shift).astype(np.int64)
        numbers = np.concatenate((numbers, drawn[drawn < bound]))
    return numbers[:size]
