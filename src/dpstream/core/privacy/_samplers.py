"""Samplers of the two noise laws, built once per parameter and kept in a bounded cache."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import LimitError
from dpstream.core.privacy._coins import coins
from dpstream.core.privacy._exact import (
    gaussian_magnitude,
    geometric,
    geometric_digit,
    laplace_magnitude,
    negative_sign,
)
from dpstream.core.privacy._inversion import WORD_BITS, InversionTable, WordSource

#: Samples made at a time: the intermediate arrays stay in the processor's cache.
CHUNK = 1 << 16

# Above these the one table of magnitudes gets long to build (44 entries per unit of scale; 9 per sigma).
_LAPLACE_TABLE = 256
_GAUSSIAN_TABLE = 1024
_DIGIT_BITS = 10
# A sample of 2^62 has probability below exp(-10^6) at the largest scale allowed.
_LARGEST = 1 << 62


class Sampler(Protocol):
    """Exact samples of one law."""

    def sample(self, size: int, words: WordSource) -> NDArray[np.int64]:
        """``size`` independent samples."""
        ...


class _Signed:
    """A symmetric law: magnitude from the top bits of a word, sign from its lowest bit."""

    def __init__(self, magnitude: InversionTable) -> None:
        self._magnitude = magnitude

    def sample(self, size: int, words: WordSource) -> NDArray[np.int64]:
        drawn = words(size)
        value = self._magnitude.sample(drawn, words)
        return _with_sign(value, drawn)


class _Geometric:
    """``Pr[G = g] = (1 - q) q^g`` with ``q = exp(-1/scale)``, digit by digit.

    Written in a mixed base, ``G = sum_j d_j 2^(s_j)``, the weight ``q^G`` is a product over the digits, so they are
    independent: each a geometric cut off at its base, the top one not cut off.
    """

    def __init__(self, scale: Fraction, word_bits: int) -> None:
        shift = (int(scale) >> 5).bit_length()  # the top digit's own scale is then 16 to 32, or below
        rate = 1 / scale
        self._digits: list[tuple[int, InversionTable]] = []
        at = 0
        while at < shift:
            bits = min(_DIGIT_BITS, shift - at)
            table = InversionTable(geometric_digit(rate * (1 << at), 1 << bits), word_bits)
            self._digits.append((at, table))
            at += bits
        self._digits.append((shift, InversionTable(geometric(rate * (1 << shift)), word_bits)))
        self._largest_top = _LARGEST >> shift

    def sample(self, size: int, words: WordSource) -> NDArray[np.int64]:
        value = np.zeros(size, dtype=np.int64)
        digit = value
        for at, table in self._digits:
            digit = table.sample(words(size), words)
            value += digit << np.int64(at)
        _check_range(digit, self._largest_top)
        return value


class _LargeLaplace:
    """Discrete Laplace of a large scale: a sign and a geometric.

    ``X = G`` with probability ``1/(1 + q)``, else ``X = -1 - G``, where ``Pr[G = g] = (1 - q) q^g``: that
    gives ``Pr[X = k] = (1 - q)/(1 + q) q^|k|`` on both sides.
    """

    def __init__(self, scale: Fraction, word_bits: int) -> None:
        self._sign = InversionTable(negative_sign(scale), word_bits)
        self._magnitude = _Geometric(scale, word_bits)

    def sample(self, size: int, words: WordSource) -> NDArray[np.int64]:
        value = self._magnitude.sample(size, words)
        negative = self._sign.sample(words(size), words)
        return value ^ -negative  # -1 - G is the bitwise complement of G


class _LargeGaussian:
    """Discrete Gaussian of a large sigma: a coarse half-Gaussian, a uniform remainder, one exact coin.

    Propose ``y = m h + d`` with ``Pr[h] ~ exp(-(m h)^2 / (2 sigma^2))`` on 0, 1, ... and d uniform below
    m, and accept with probability ``exp(-d (2 m h + d) / (2 sigma^2))``: the product is proportional to
    ``exp(-y^2 / (2 sigma^2))``. A fair sign is added and "minus zero" rejected, which leaves every
    integer with that weight. At most about 1 proposal in 40 is rejected; what is rejected depends on noise
    only, never on data.
    """

    def __init__(self, sigma_squared: Fraction, word_bits: int) -> None:
        sigma = math.isqrt(int(sigma_squared))
        self._shift = (sigma >> 5).bit_length()  # sigma / m is from 16 to 32
        step = 1 << self._shift
        self._coarse = InversionTable(gaussian_magnitude(sigma_squared, step=step, folded=False), word_bits)
        self._twice = 2 * sigma_squared
        self._word_bits = word_bits
        self._largest_top = _LARGEST >> self._shift

    def sample(self, size: int, words: WordSource) -> NDArray[np.int64]:
        result = self._propose(size, words)
        while len(result) < size:
            missing = size - len(result)
            result = np.concatenate([result, self._propose(missing + missing // 16 + 1, words)])[:size]
        return result

    def _propose(self, size: int, words: WordSource) -> NDArray[np.int64]:
        coarse = self._coarse.sample(words(size), words)
        _check_range(coarse, self._largest_top)
        base = coarse << np.int64(self._shift)
        extra = words(size)
        # Sign: lowest bit. Remainder: the top bits, which are independent of it.
        rest = (extra >> np.uint64(64 - self._shift)).astype(np.int64)

        def exponent(i: int) -> Fraction:
            d = int(rest[i])
            return Fraction(d * (2 * int(base[i]) + d)) / self._twice

        near = rest.astype(np.float64) * (2.0 * base + rest) / float(self._twice)
        accept = coins(near, exponent, words, self._word_bits)
        value = base + rest
        accept &= (value != 0) | (extra & np.uint64(1) == 0)
        return _with_sign(value, extra)[accept]


def uniform_below(bound: int, words: WordSource) -> int:
    """An exactly uniform integer in ``0 .. bound - 1``, however large: as many top bits as needed, others rejected."""
    bits = (bound - 1).bit_length()
    count = -(-bits // 64)
    while True:
        value = 0
        for word in words(count).tolist():
            value = value << 64 | word
        value >>= 64 * count - bits
        if value < bound:
            return value


def _with_sign(value: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.int64]:
    sign = (words & np.uint64(1)).astype(np.int64)
    return (value ^ -sign) + sign


def _check_range(top: NDArray[np.int64], largest: int) -> None:
    if len(top) and int(top.max()) >= largest:
        raise LimitError("a noise value passes 64-bit integers", where="noise")


def build_laplace(scale: Fraction, word_bits: int = WORD_BITS) -> Sampler:
    """A sampler of the discrete Laplace; tests shorten the words to force ties."""
    if scale <= _LAPLACE_TABLE:
        return _Signed(InversionTable(laplace_magnitude(scale), word_bits))
    return _LargeLaplace(scale, word_bits)


def build_gaussian(sigma_squared: Fraction, word_bits: int = WORD_BITS) -> Sampler:
    """A sampler of the discrete Gaussian; tests shorten the words to force ties."""
    if sigma_squared <= _GAUSSIAN_TABLE**2:
        return _Signed(InversionTable(gaussian_magnitude(sigma_squared), word_bits))
    return _LargeGaussian(sigma_squared, word_bits)


def build_geometric(scale: Fraction, word_bits: int = WORD_BITS) -> Sampler:
    """A sampler of the geometric on 0, 1, 2, ...; tests shorten the words to force ties."""
    return _Geometric(scale, word_bits)


@lru_cache(maxsize=64)
def sampler_of_laplace(scale: Fraction) -> Sampler:
    """The kept sampler for this scale."""
    return build_laplace(scale)


@lru_cache(maxsize=64)
def sampler_of_gaussian(sigma_squared: Fraction) -> Sampler:
    """The kept sampler for this variance parameter."""
    return build_gaussian(sigma_squared)
