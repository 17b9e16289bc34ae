"""Exact samplers of the two noise laws and of coins, built once per parameter and kept in a bounded cache.

Distribution functions are enclosed in integers to any precision: integer arithmetic on public parameters, nothing is
rounded silently. A distribution on 0, 1, 2, ... is a function ``bits -> iterator of (low, high)`` whose k-th item
satisfies

    low <= F(k) * 2**bits <= high,        F(k) = Pr[X <= k],

and which ends with the first item whose ``high`` is ``2**bits``. Callers never need ``low`` and
``high`` to be close: a pair that is too wide only makes them ask again with more bits.

Inversion (``InversionTable``): uniform words of a whole array against a table of a distribution function. Let U be
uniform on [0, 1) with infinitely many bits, of which the first w are the integer W: then ``W <= U 2^w < W + 1``. The
sample is the smallest k with ``U < F(k)``: exactly distributed. The table holds integers with ``T(k) <= F(k) 2^w <=
T(k) + 1``, and so

* ``W < T(k)``  gives  ``U 2^w < W + 1 <= T(k) <= F(k) 2^w``, that is ``U < F(k)``;
* ``W > T(k)``  gives  ``U 2^w >= W >= T(k) + 1 >= F(k) 2^w``, that is ``U >= F(k)``.

Only ``W = T(k)`` is open (a tie, about ``2^-63`` per entry). Then further bits of the *same* U are
drawn and compared with enclosures of F at that depth, as deep as needed; a decision is taken only
where the enclosure proves it, so no rounding error ever enters. The end of the table is a tie
too: the last entry of an unbounded distribution is ``2^w - 1``, and everything beyond is reached
through refinement. With short words (tests) these paths are taken all the time.

Coins (``coins``) show heads with probability ``exp(-x)``, x rational, for whole arrays. A coin is ``U < exp(-x)`` for
a uniform U with infinitely many bits, of which the first w are the integer W: ``W <= U 2^w < W + 1``. Floating point
gives an approximation p of ``exp(-x)``, and the coin is decided in floating point only where W lies clear of ``p
2^w`` by a relative margin of ``2^-40`` plus 1. That is exact, because the margin covers every error:

* x is approximated with relative error at most ``2^-48`` (a few correctly rounded operations), which
  moves ``exp(-x)`` by a relative ``x 2^-48 < 2^-42`` while ``x <= 60``; for ``x > 60`` the probability
  is below ``2^-86``, within the added 1;
* the exponential itself is accurate to a few units in the last place (``2^-50``);
* the conversion of W and the products round with ``2^-53`` each.

All other coins (about one in ``2^39``; all of them when tests shorten the words enough) draw more
bits of the same U and compare with integer enclosures of ``exp(-x)`` until these decide.

Trusted base: kernel (draws exact noise).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import LimitError

Bounds = tuple[int, int]
Distribution = Callable[[int], Iterator[Bounds]]


def exp_bounds(x: Fraction, bits: int) -> Bounds:
    """Integers with ``low <= exp(-x) * 2**bits <= high`` for rational ``x >= 0``; they differ by a few units.

    ``exp(y)``, ``y = x / 2**s <= 1/256``, by its series; squaring ``s`` times with outward rounding
    gives ``exp(x)``, and a division ``exp(-x)``.
    """
    if x == 0:
        return 1 << bits, 1 << bits
    if x > bits:  # exp(-x) < 2**-x < 2**-bits
        return 0, 1
    squarings = (x.numerator // x.denominator).bit_length() + 8
    work = bits + squarings + 32
    low, high = _exp_series(x.numerator, x.denominator << squarings, work)
    for _ in range(squarings):
        low = low * low >> work
        high = (high * high >> work) + 1
    return (1 << (work + bits)) // high, -(-(1 << (work + bits)) // low)


def _exp_series(top: int, bottom: int, work: int) -> Bounds:
    """Bounds of ``exp(y) * 2**work`` for ``y = top / bottom <= 1/2``.

    Terms are non-negative. Each floored one is at most 2 units below its true value (the error of the
    one before is multiplied by ``y/n <= 1/2`` and one floor is added), and once a term is 0 the true
    rest is below 4 units; so n terms add up to a number between ``total`` and ``total + 2n + 4``.
    """
    term = total = 1 << work
    terms = 1
    while term:
        term = term * top // (bottom * terms)
        total += term
        terms += 1
    return total, total + 2 * terms + 4


def _powers(x: Fraction, work: int) -> Iterator[Bounds]:
    """Bounds of ``exp(-x k) * 2**work`` for k = 1, 2, ..."""
    low, high = exp_bounds(x, work)
    at_low, at_high = low, high
    while True:
        yield at_low, at_high
        at_low = at_low * low >> work
        at_high = (at_high * high >> work) + 1


def laplace_magnitude(scale: Fraction) -> Distribution:
    """|X| of the discrete Laplace: ``F(k) = 1 - 2 q**(k+1) / (1 + q)``, ``q = exp(-1/scale)``."""
    rate = 1 / scale

    def bounds(bits: int) -> Iterator[Bounds]:
        work = bits + 64
        one, end = 1 << work, 1 << bits
        q_low, q_high = exp_bounds(rate, work)
        for low, high in _powers(rate, work):
            least = end - -(-(2 * high << bits) // (one + q_low))
            most = end - (2 * low << bits) // (one + q_high)
            yield max(least, 0), most
            if most == end:
                return

    return bounds


def geometric(rate: Fraction) -> Distribution:
    """Geometric on 0, 1, 2, ...: ``F(k) = 1 - exp(-rate (k+1))``."""

    def bounds(bits: int) -> Iterator[Bounds]:
        work, end = bits + 64, 1 << bits
        for low, high in _powers(rate, work):
            most = end - (low >> 64)
            yield max(end - -(-high >> 64), 0), most
            if most == end:
                return

    return bounds


def geometric_digit(rate: Fraction, base: int) -> Distribution:
    """A geometric cut off at ``base``: ``F(d) = (1 - exp(-rate (d+1))) / (1 - exp(-rate base))``."""
    # 1 - exp(-rate) may be tiny: as many extra bits as the division loses.
    lost = max(0, (rate.denominator // rate.numerator).bit_length())

    def bounds(bits: int) -> Iterator[Bounds]:
        work, end = bits + 64 + 2 * lost, 1 << bits
        one = 1 << work
        last_low, last_high = exp_bounds(rate * base, work)
        for digit, (low, high) in enumerate(_powers(rate, work)):
            if digit == base - 1:
                yield end, end
                return
            least = (max(one - high, 0) << bits) // (one - last_low)
            # The interval stays open above until the last digit: one - low < one - last_high there.
            most = -(-((one - low) << bits) // max(one - last_high, 1))
            yield least, min(most, end)

    return bounds


def negative_sign(scale: Fraction) -> Distribution:
    """Whether a discrete Laplace is below zero: ``F(0) = Pr[X >= 0] = 1 / (1 + q)``."""

    def bounds(bits: int) -> Iterator[Bounds]:
        one = 1 << bits
        low, high = exp_bounds(1 / scale, bits)
        yield (one << bits) // (one + high), -(-(one << bits) // (one + low))
        yield one, one

    return bounds


def gaussian_magnitude(sigma_squared: Fraction, *, step: int = 1, folded: bool = True) -> Distribution:
    """|X| of the discrete Gaussian on multiples of ``step``, in steps.

    ``F(k) = A(k) / A(infinity)``, ``A(k) = 1 + c sum_{j<=k} t_j``, ``t_j = exp(-(j step)^2 / (2 sigma^2))``;
    ``folded`` counts both signs (c = 2), otherwise the half line with its full weight at 0 (c = 1).
    Terms follow ``t_{j+1} = t_j r_j`` and ``r_{j+1} = r_j r``, ``r = exp(-step^2 / sigma^2)``. The
    terms after J add up to at most ``t_J r_J / (1 - r_J)``, because the ratios fall.
    """
    rate = Fraction(step * step) / (2 * sigma_squared)
    weight = 2 if folded else 1
    # Rounding errors of terms and sums stay below the square of 1/rate, in units of 2^-work.
    size = (rate.denominator // rate.numerator).bit_length()
    drift = 2 * size + 32
    # Upper bounds of terms settle at 1/(1 - r_J) units instead of 0; what is left is bounded by ``rest``.
    negligible = 1 << (size + 8)

    def bounds(bits: int) -> Iterator[Bounds]:
        work = bits + drift
        one, end = 1 << work, 1 << bits
        ratio = exp_bounds(rate, work)
        factor = exp_bounds(2 * rate, work)
        term = (one, one)
        sums = [(one, one)]
        while term[1] > negligible:
            term = (term[0] * ratio[0] >> work, (term[1] * ratio[1] >> work) + 1)
            ratio = (ratio[0] * factor[0] >> work, (ratio[1] * factor[1] >> work) + 1)
            sums.append((sums[-1][0] + weight * term[0], sums[-1][1] + weight * term[1]))
        rest = term[1] * ratio[1] // max(one - ratio[1], 1) + 1
        whole_low, whole_high = sums[-1][0], sums[-1][1] + weight * rest
        for low, high in sums:
            most = min(-(-(high << bits) // whole_low), end)
            yield (low << bits) // whole_high, most
            if most == end:
                return
        yield (sums[-1][0] << bits) // whole_high, end

    return bounds


def capped_float(value: Fraction) -> float:
    """The nearest float; a rate beyond all floats counts as the largest."""
    return float(min(value, Fraction(10**300)))


WORD_BITS = 63
#: Words from an entropy source: ``words(n)`` gives n independent uniform 64-bit integers.
WordSource = Callable[[int], NDArray[np.uint64]]

# Above this many values the guide pays for its extra passes.
_GUIDED = 256
_MAX_GUARD = 1 << 14


class InversionTable:
    """Exact samples of one distribution on 0, 1, 2, ...

    Cost: building, one multiplication of long integers per entry; sampling, 10 to 40 ns a value.
    """

    def __init__(self, distribution: Distribution, word_bits: int = WORD_BITS) -> None:
        if not 1 <= word_bits <= WORD_BITS:
            raise ValueError("word_bits: 1 to 63")
        self._distribution = distribution
        self._word_bits = word_bits
        self._table = _first_table(distribution, word_bits)
        self._levels: dict[int, Level] = {}
        self._guide, self._open_cell, self._guide_shift = _guide(self._table, word_bits)

    def __len__(self) -> int:
        return len(self._table)

    def sample(self, words: NDArray[np.uint64], more: WordSource) -> NDArray[np.int64]:
        """One value per word, from the word's top bits; ``more`` is asked only on ties."""
        uniform = words >> np.uint64(64 - self._word_bits)
        if len(uniform) >= _GUIDED:
            cell = (uniform >> self._guide_shift).astype(np.intp)
            values = self._guide[cell]
            rest = np.flatnonzero(self._open_cell[cell])
            if len(rest):
                values[rest] = self._search(uniform[rest], more)
            return values
        return self._search(uniform, more)

    def _search(self, uniform: NDArray[np.uint64], more: WordSource) -> NDArray[np.int64]:
        places = np.searchsorted(self._table, uniform).astype(np.int64, copy=False)
        ties = self._table[places] == uniform
        if ties.any():
            for i in np.flatnonzero(ties):
                places[i] = self._refine(int(uniform[i]), more)
        return places

    def _refine(self, uniform: int, more: WordSource) -> int:
        """Decide a tie: append bits to the same uniform until the enclosures leave one value."""
        bits = self._word_bits
        while True:
            uniform = uniform << self._word_bits | int(more(1)[0]) >> (64 - self._word_bits)
            bits += self._word_bits
            level = self._levels.get(bits)
            if level is None:
                level = self._levels[bits] = Level(self._distribution(bits))
            value = level.find(uniform)
            if value is not None:
                return value


class Level:
    """Enclosures of F at one depth, extended as far as somebody asked."""

    def __init__(self, bounds: Iterator[tuple[int, int]]) -> None:
        self._bounds = bounds
        self._low: list[int] = []
        self._high: list[int] = []

    def find(self, uniform: int) -> int | None:
        """The value k that this many bits of U prove, or None."""
        while not self._high or self._high[-1] <= uniform:
            low, high = next(self._bounds)
            # F does not fall: running maxima stay enclosures and can be searched.
            self._low.append(max(low, self._low[-1]) if self._low else low)
            self._high.append(max(high, self._high[-1]) if self._high else high)
        k = bisect_right(self._high, uniform)  # every j < k has F(j) 2^bits <= high <= uniform: U >= F(j)
        return k if uniform < self._low[k] else None  # uniform + 1 <= low: U < F(k)


def _first_table(distribution: Distribution, word_bits: int) -> NDArray[np.uint64]:
    guard = 64
    while guard <= _MAX_GUARD:
        entries = _entries(distribution, word_bits, guard)
        if entries is not None:
            return np.array(entries, dtype=np.uint64)
        guard *= 4
    # F(k) would have to agree with a multiple of 2^-63 to thousands of digits. Decided by the public
    # parameter alone, before any data is touched.
    raise LimitError("noise parameter too large to tabulate", where="noise", allowed="another scale")


def _entries(distribution: Distribution, word_bits: int, guard: int) -> list[int] | None:
    """``T`` with ``T(k) <= F(k) 2^w <= T(k) + 1``, or None where ``guard`` more bits do not prove it."""
    entries: list[int] = []
    last = (1 << word_bits) - 1
    for low, high in distribution(word_bits + guard):
        entry = low >> guard
        if -(-high >> guard) > entry + 1:
            return None
        entries.append(entry)
        if entry >= last:
            break
    return entries


def _guide(
    table: NDArray[np.uint64], word_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], np.uint64]:
    """For each value of the top bits: the answer where no table entry has these top bits."""
    guide_bits = min(word_bits, max(8, (8 * len(table)).bit_length()), 16)
    shift = np.uint64(word_bits - guide_bits)
    starts = np.arange(1 << guide_bits, dtype=np.uint64) << shift
    guide = np.searchsorted(table, starts).astype(np.int64)
    is_open = np.zeros(1 << guide_bits, dtype=np.bool_)
    inside = table[table < np.uint64(1 << word_bits)]
    is_open[(inside >> shift).astype(np.intp)] = True
    return guide, is_open, shift


COIN_MARGIN = 2.0**-40


def coins(
    near: NDArray[np.float64],
    exponent: Callable[[int], Fraction],
    words: WordSource,
    word_bits: int = WORD_BITS,
) -> NDArray[np.bool_]:
    """Independent coins, heads with probability exactly ``exp(-exponent(i))``.

    Args:
        near: the exponents to a relative accuracy of ``2^-48`` (beyond 60, any number beyond 60).
        exponent: the exact exponent of coin i, at least 0.
        words: the entropy.
        word_bits: bits compared at a time; tests shorten them.
    """
    uniform = words(len(near)) >> np.uint64(64 - word_bits)
    at = uniform.astype(np.float64)
    level = np.exp(-near) * 2.0**word_bits
    heads = at + 1.0 < level * (1.0 - COIN_MARGIN)
    unclear = ~heads & (at <= level * (1.0 + COIN_MARGIN) + 1.0)
    if unclear.any():
        for i in np.flatnonzero(unclear):
            heads[i] = _exact_coin(int(uniform[i]), word_bits, exponent(int(i)), words)
    return heads


def _exact_coin(uniform: int, bits: int, exponent: Fraction, words: WordSource) -> bool:
    if exponent == 0:
        return True
    step = bits
    while True:
        low, high = exp_bounds(exponent, bits)
        if uniform + 1 <= low:
            return True
        if uniform >= high:
            return False
        uniform = uniform << step | int(words(1)[0]) >> (64 - step)
        bits += step


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
        raise LimitError("noise beyond 64-bit integers", where="noise")


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
