"""Exact coins that show heads with probability ``exp(-x)``, x rational, for whole arrays.

A coin is ``U < exp(-x)`` for a uniform U with infinitely many bits, of which the first w are the
integer W: ``W <= U 2^w < W + 1``. Floating point gives an approximation p of ``exp(-x)``, and the coin
is decided in floating point only where W lies clear of ``p 2^w`` by a relative margin of ``2^-40``
plus 1. That is exact, because the margin covers every error:

* x is approximated with relative error at most ``2^-48`` (a few correctly rounded operations), which
  moves ``exp(-x)`` by a relative ``x 2^-48 < 2^-42`` while ``x <= 60``; for ``x > 60`` the probability
  is below ``2^-86``, within the added 1;
* the exponential itself is accurate to a few units in the last place (``2^-50``);
* the conversion of W and the products round with ``2^-53`` each.

All other coins (about one in ``2^39``; all of them when tests shorten the words enough) draw more
bits of the same U and compare with integer enclosures of ``exp(-x)`` until these decide.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy._exact import exp_bounds
from dpstream.core.privacy._inversion import WORD_BITS, WordSource

MARGIN = 2.0**-40


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
    heads = at + 1.0 < level * (1.0 - MARGIN)
    unclear = ~heads & (at <= level * (1.0 + MARGIN) + 1.0)
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
