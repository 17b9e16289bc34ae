"""Exact selection of the best candidate: permute-and-flip and the exponential mechanism.

Scores are exact rationals ``numerators[i] / denominators[i]``; larger is better. With
``x_i = epsilon (best - score_i) / (2 sensitivity)``:

* permute-and-flip (McKenna, Sheldon 2020, Algorithm 1) goes through the candidates in random order,
  shows each a coin with heads probability ``exp(-x_i)``, and takes the first that shows heads. The
  order is independent of the coins, so the first head in a uniformly random order is a uniformly
  random one among all candidates that would show heads: all coins are flipped at once and one
  exactly uniform integer replaces the permutation. The best candidate always shows heads.
* the exponential mechanism takes candidate i with probability proportional to ``exp(-x_i)``.

Both are decided in floating point only where an error bound proves the decision, and in integer
arithmetic on further bits of the same uniform otherwise (see ``_samplers``).

Trusted base: kernel (exact selection).
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy._samplers import (
    WORD_BITS,
    Level,
    WordSource,
    capped_float,
    coins,
    exp_bounds,
    uniform_below,
)

Integers = NDArray[np.int64] | NDArray[np.object_] | Sequence[int]

# Exponents beyond this have probabilities below any margin; capping them keeps floats finite.
_FAR = 10**6


@dataclass(frozen=True)
class Selection(ABC):
    """The law of a selection. ``Randomness.select`` makes one.

    Attributes:
        epsilon: exact and positive.
        sensitivity: by how much at most a score changes between neighbours, in any direction; exact and positive.
    """

    epsilon: Fraction
    sensitivity: Fraction | int

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, (int, Fraction)) or self.epsilon <= 0:
            raise BudgetError("expected an exact positive epsilon", where="selection")
        if not isinstance(self.sensitivity, (int, Fraction)) or self.sensitivity <= 0:
            raise ConfigError("expected an exact positive sensitivity", where="selection")

    @abstractmethod
    def choose(self, numerators: Integers, denominators: Integers | int, words: WordSource) -> int:
        """The index of a candidate, by these words; mechanisms call ``Randomness.select`` instead.

        Args:
            numerators, denominators: one integer each per candidate (denominators positive; one integer
                serves all). int64 arrays are fast; Python integers of any size are accepted.
        """

    @abstractmethod
    def probabilities(self, numerators: Integers, denominators: Integers | int) -> NDArray[np.float64]:
        """Of every outcome, to floating-point accuracy."""

    def _read(self, numerators: Integers, denominators: Integers | int) -> _Scores:
        return _read(numerators, denominators, Fraction(self.epsilon) / (2 * Fraction(self.sensitivity)))


@dataclass(frozen=True)
class PermuteAndFlip(Selection):
    """Guarantee: pure DP with ``epsilon``. Its error is never worse than the exponential mechanism's.

    Cost: about 50 us, hardly more for hundreds of candidates; the number of coins is that of candidates.

    >>> from dpstream.core.privacy import Randomness
    >>> Randomness.system().select([3, 900], 1, PermuteAndFlip(Fraction(1), 1))
    1
    """

    def choose(self, numerators: Integers, denominators: Integers | int, words: WordSource) -> int:
        """See ``Selection``."""
        return _permute_and_flip(self._read(numerators, denominators), words, WORD_BITS)

    def probabilities(self, numerators: Integers, denominators: Integers | int) -> NDArray[np.float64]:
        """See ``Selection``.

        ``p_i * integral_0^1 prod_{j != i} (1 - p_j + p_j t) dt``: heads for i, times the mean of
        ``1 / (1 + other heads)``. The integrand is a polynomial, so Gauss-Legendre nodes integrate it exactly. Cost:
        candidates squared.
        """
        heads = np.exp(-self._read(numerators, denominators).near)
        nodes, weights = np.polynomial.legendre.leggauss(len(heads) // 2 + 1)
        factors = 1.0 - 0.5 * heads[:, None] * (1.0 - nodes[None, :])
        ones = np.ones((1, len(nodes)))
        before = np.concatenate([ones, np.cumprod(factors, axis=0)[:-1]])
        after = np.concatenate([np.cumprod(factors[::-1], axis=0)[-2::-1], ones])
        result: NDArray[np.float64] = heads * ((before * after) @ (0.5 * weights))
        return result


@dataclass(frozen=True)
class ExponentialMechanism(Selection):
    """Candidate i with probability proportional to ``exp(epsilon score / (2 sensitivity))``.

    Guarantee: pure DP with ``epsilon``, and zCDP with ``rho = epsilon^2 / 8`` (its privacy loss has range
    epsilon; Cesar, Rogers 2021). Under zCDP take epsilon from ``selection_epsilon(rho)``.
    """

    def choose(self, numerators: Integers, denominators: Integers | int, words: WordSource) -> int:
        """See ``Selection``."""
        return _exponential(self._read(numerators, denominators), words, WORD_BITS)

    def probabilities(self, numerators: Integers, denominators: Integers | int) -> NDArray[np.float64]:
        """See ``Selection``."""
        weights = np.exp(-self._read(numerators, denominators).near)
        result: NDArray[np.float64] = weights / weights.sum()
        return result


def selection_epsilon(rho: Fraction) -> Fraction:
    """The epsilon at which the exponential mechanism costs at most ``rho``: ``sqrt(8 rho)``, rounded down.

    Guarantee: ``epsilon^2 / 8 <= rho``, by less than a part in ``2^60``.

    >>> selection_epsilon(Fraction(1, 2))
    Fraction(2, 1)
    """
    if rho <= 0:
        raise BudgetError("rho is not positive", where="selection")
    eightfold = 8 * Fraction(rho)
    shift = 64 + max(0, eightfold.denominator.bit_length() - eightfold.numerator.bit_length())
    root = math.isqrt((eightfold.numerator << 2 * shift) // eightfold.denominator)
    return Fraction(root, 1 << shift)


@dataclass(frozen=True)
class _Scores:
    """Exponents x_i >= 0: approximately for all, exactly for one at a time."""

    near: NDArray[np.float64]
    exact: Callable[[int], Fraction]


def _permute_and_flip(scores: _Scores, words: WordSource, word_bits: int) -> int:
    heads = np.flatnonzero(coins(scores.near, scores.exact, words, word_bits))
    return int(heads[uniform_below(len(heads), words)])


def _exponential(scores: _Scores, words: WordSource, word_bits: int) -> int:
    """Inversion: the smallest k with ``U < F(k)``, F the cumulative weights over their sum.

    Weights are accurate to a relative ``2^-42`` (or smaller than ``2^-80``), the sum is at least 1, and
    adding n numbers loses at most a relative ``n 2^-53``: every F(k) is within ``margin``. U itself is
    known to ``2^-w``. If U lies clear of both neighbouring steps by that much, the choice is proved.
    """
    uniform = int(words(1)[0]) >> (64 - word_bits)
    sums = np.cumsum(np.exp(-scores.near))
    steps = sums / sums[-1]
    at = math.ldexp(uniform, -word_bits)
    margin = 2.0**-38 + len(steps) * 2.0**-51 + 2.0**-word_bits
    k = min(int(np.searchsorted(steps, at, side="right")), len(steps) - 1)
    clear_below = k == 0 or at - steps[k - 1] > margin
    clear_above = k == len(steps) - 1 or steps[k] - at > margin
    if clear_below and clear_above:
        return k
    exponents = [scores.exact(i) for i in range(len(steps))]
    bits = word_bits
    while True:
        choice = Level(_cumulative(exponents, bits)).find(uniform)
        if choice is not None:
            return choice
        uniform = uniform << word_bits | int(words(1)[0]) >> (64 - word_bits)
        bits += word_bits


def _cumulative(exponents: list[Fraction], bits: int) -> Iterator[tuple[int, int]]:
    """Enclosures of the cumulative probabilities times ``2**bits``; the last one is exact."""
    work, end = bits + 64, 1 << bits
    weights = [exp_bounds(x, work) for x in exponents]
    whole_low, whole_high = sum(low for low, _ in weights), sum(high for _, high in weights)
    at_low = at_high = 0
    for low, high in weights[:-1]:
        at_low, at_high = at_low + low, at_high + high
        yield (at_low << bits) // whole_high, min(-(-(at_high << bits) // whole_low), end)
    yield end, end


def _read(numerators: Integers, denominators: Integers | int, factor: Fraction) -> _Scores:
    top = _integers(numerators)
    if isinstance(denominators, (int, np.integer)):
        bottom = _integers([int(denominators)]).repeat(len(top))
    else:
        bottom = _integers(denominators)
    if len(top) == 0:
        raise ConfigError("candidates missing", where="selection", allowed="one or more")
    if len(top) != len(bottom):
        raise ConfigError("numerators and denominators differ in number", where="selection")
    largest_bottom = int(bottom.max())
    if int(bottom.min()) < 1:
        raise ConfigError("a denominator is below 1", where="selection")
    # Differences of scores are n_m d_i - n_i d_m over d_m d_i: in 64 bits where that cannot overflow.
    largest = max(int(top.max()), -int(top.min()), largest_bottom)
    if top.dtype == object or bottom.dtype == object or largest * largest_bottom >= 1 << 61:
        return _large(top.tolist(), bottom.tolist(), factor)
    return _small(top.astype(np.int64, copy=False), bottom.astype(np.int64, copy=False), factor)


def _small(top: NDArray[np.int64], bottom: NDArray[np.int64], factor: Fraction) -> _Scores:
    best = int(np.argmax(top / bottom))
    while True:
        gaps = top[best] * bottom - top * bottom[best]
        lowest = int(np.argmin(gaps))
        if gaps[lowest] >= 0:
            break
        best = lowest  # floats put an exactly better score second
    scale = int(bottom[best])
    # Five roundings. Where a tiny factor leaves the normal floats, exp(-x) is 1 to within any margin.
    with np.errstate(over="ignore"):
        near = (gaps / bottom) * capped_float(factor / scale)

    def exact(i: int) -> Fraction:
        return Fraction(int(gaps[i]), int(bottom[i]) * scale) * factor

    return _Scores(near, exact)


def _large(top: list[int], bottom: list[int], factor: Fraction) -> _Scores:
    scores = [Fraction(n, d) for n, d in zip(top, bottom, strict=True)]
    best = max(scores)
    exponents = [(best - score) * factor for score in scores]
    near = np.array([float(min(x, Fraction(_FAR))) for x in exponents])
    return _Scores(near, exponents.__getitem__)


def _integers(values: Integers) -> NDArray[np.int64] | NDArray[np.object_]:
    """A one-dimensional integer array: int64 where everything fits."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise ConfigError("expected scores as a one-dimensional array", where="selection")
        if values.dtype == np.int64:
            return values
        values = values.tolist()
    try:
        exact = [operator.index(value) for value in values]
    except TypeError:
        raise ConfigError("expected exact integer scores", where="selection") from None
    if all(-(1 << 62) < value < 1 << 62 for value in exact):
        return np.array(exact, dtype=np.int64)
    return np.array(exact, dtype=object)
