"""Distribution functions of integer noise, enclosed in integers to any precision.

Everything here is integer arithmetic on public parameters; nothing is rounded silently. A
distribution on 0, 1, 2, ... is a function ``bits -> iterator of (low, high)`` whose k-th item satisfies

    low <= F(k) * 2**bits <= high,        F(k) = Pr[X <= k],

and which ends with the first item whose ``high`` is ``2**bits``. Callers never need ``low`` and
``high`` to be close: a pair that is too wide only makes them ask again with more bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

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
