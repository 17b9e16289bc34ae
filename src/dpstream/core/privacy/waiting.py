"""How long until a test with fresh noise says yes: drawn at once instead of test by test.

Trusted base: kernel (waiting times of noisy tests).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.privacy._samplers import WordSource, build_geometric, capped_float, coins, exp_bounds
from dpstream.core.privacy.noise import DiscreteLaplace

_WORD = 64
#: Words nearer than this to 0 or 1 are decided by integers only: their logarithms are not accurate enough.
_EDGE = 1 << 42
#: Relative error allowed to floating point; the true one is below 2^-40 (see ``waiting_times``).
_MARGIN = 2.0**-36
#: Beyond this exponent a probability counts as 0, and ``exp`` has left its accurate range.
_VANISHED = 700.0
#: So many tests are looked at together.
_MOST = 1 << 60


def waiting_times(
    noise: DiscreteLaplace, gaps: NDArray[np.int64], limit: int, words: WordSource
) -> NDArray[np.int64]:
    """For each gap the number of the first of ``limit`` tests whose fresh noise is at least the gap; 0 where none is.

    Guarantee: the law of each is exactly that of drawing ``noise`` again and again, 1, 2, ... times, until
    ``noise >= gap``: geometric with the exact probability of a yes; the draws are independent. While neither count nor
    threshold of an above-threshold segment change, one draw stands for all its tests; when one changes, draw again
    for the tests that are still to come (what was drawn for them before must not be used).

    How: with ``r = Pr[noise < gap]`` there are ``k`` noes in a row with probability ``r^k``. A uniform ``U`` in
    [0, 1) is compared with ``r^k`` by bisection over ``k``; its bits are drawn as far as integer enclosures of
    ``r^k`` need them to decide, so nothing is rounded. Most draws need no bisection.
    One word ``W`` gives the first 64 bits of each uniform ``U``; the number of noes is the integer part of ``log U
    / log r``. Floating point decides only where that quotient is clear of an integer by a relative ``2^-36``. Its
    error is below ``2^-40``: the unknown bits of ``U`` move ``log U`` by less than ``2^-41`` of itself while ``W``
    is ``2^42`` away from both ends; ``gap/scale`` is at most 700 and accurate to ``2^-52`` of itself, which moves
    the probability by less than ``2^-42`` of itself; all else is a few units in the last place. Other draws (about
    one in a million) go on with more bits of the same ``U`` and integer enclosures.

    Cost: some 100 ns a draw.

    Errors: ConfigError for a limit below 1 or above 2^60.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
        raise ConfigError(f"limit = {limit!r}", where="waiting time", allowed="1 to 2^60")
    first = words(len(gaps))
    clear = (first > _EDGE) & (first < (1 << _WORD) - _EDGE)
    below = np.where(clear, first, 1 << 63).astype(np.uint64)
    above = np.uint64(0) - below  # 2^64 (1 - U), exactly
    low_half = below < np.uint64(1 << 63)
    surprise = np.where(
        low_half, -np.log(below * 2.0**-_WORD), -np.log1p(-np.where(low_half, 0.5, above * 2.0**-_WORD))
    )
    with np.errstate(divide="ignore"):
        noes = surprise / _rate_of_no(noise, gaps)
    least, most = np.floor(noes * (1.0 - _MARGIN)), np.floor(noes * (1.0 + _MARGIN))
    none = least >= limit
    times = np.where(none, 0, np.minimum(least, limit) + 1).astype(np.int64)
    for i in np.flatnonzero(~clear | (~none & (least != most))):
        uniform = _Uniform(noise, int(gaps[i]), words, _WORD, int(first[i]))
        times[i] = _first(uniform, limit) or 0
    return times


def reaches(noise: DiscreteLaplace, known: int, gap: int, words: WordSource) -> bool:
    """Whether a noise that is known to be at least ``known`` is at least ``gap``; exact.

    With ``waiting_times(noise, [known], ...)`` this is a test against ``gap`` by thinning: ticks at which the
    noise is at least ``known`` stay what they are while the gap falls, down to ``known``.

    Args:
        known: 0 or more; there ``Pr[noise >= k]`` is proportional to ``exp(-k/scale)``.
        gap: ``known`` or more.

    Errors: ConfigError for other numbers.
    """
    if gap == known:
        return True
    if not 0 <= known < gap:
        raise ConfigError("the gap is too small", where="waiting time", allowed="0 <= known <= gap")
    exponent = (gap - known) / noise.scale
    return bool(coins(np.array([capped_float(exponent)]), lambda _: exponent, words)[0])


def exceeding(noise: DiscreteLaplace, above: int, size: int, words: WordSource) -> list[tuple[int, int]]:
    """Of ``size`` independent draws those above a limit of 0 or more, each with its number from 0; exact.

    The others are never drawn: waiting times lead from one to the next, and what such a draw has beyond the limit is 1
    plus a geometric. Cost: in proportion to how many there are.
    """
    if above < 0:
        raise ConfigError("the limit is negative", where="exceeding", allowed="0 or more")
    found, at, beyond = list[tuple[int, int]](), 0, build_geometric(noise.scale)
    while at < size:
        span = min(size - at, _MOST)
        wait = int(waiting_times(noise, np.array([above + 1]), span, words)[0])
        if wait:
            found.append((at + wait - 1, above + 1 + int(beyond.sample(1, words)[0])))
        at += wait or span
    return found


def _rate_of_no(noise: DiscreteLaplace, gaps: NDArray[np.int64]) -> NDArray[np.float64]:
    """``-log Pr[noise < gap]``, to a relative accuracy of ``2^-41``; 0 where it is below ``exp(-700)``."""
    rate = capped_float(1 / noise.scale)
    q = np.exp(-rate)
    exponent = np.maximum(gaps, 1) * rate
    yes = np.where(exponent > _VANISHED, 0.0, np.exp(-np.minimum(exponent, _VANISHED)) / (1.0 + q))
    result: NDArray[np.float64] = np.where(
        gaps >= 1, -np.log1p(-yes), (1.0 - np.minimum(gaps, 1)) * rate + np.log1p(q)
    )
    return result


def _first(uniform: _Uniform, limit: int) -> int | None:
    """Number of the first yes among ``limit`` tests: one more than the largest ``k`` with ``U < r^k``."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        if uniform.below_power(middle):
            low = middle
        else:
            high = middle
    return None if low == limit else low + 1


class _Uniform:
    """A uniform number in [0, 1), of which the first ``bits`` bits are known, and ``Pr[noise < gap]`` to as many."""

    def __init__(
        self,
        noise: DiscreteLaplace,
        gap: int,
        words: WordSource,
        word_bits: int,
        first: int | None = None,
    ) -> None:
        self._noise, self._gap = noise, gap
        self._words, self._step = words, word_bits
        self._bits, self._value = 0, 0
        self._append(self._word() if first is None else first)

    def _word(self) -> int:
        return int(self._words(1)[0])

    def _append(self, whole: int) -> None:
        word = whole >> (_WORD - self._step)
        self._value = self._value << self._step | word
        self._bits += self._step
        self._no = _no(self._noise, self._gap, self._bits + _WORD)

    def below_power(self, k: int) -> bool:
        """Whether the number is below ``Pr[noise < gap]^k``; draws bits until that is proved."""
        while True:
            low, high = _power(*self._no, k, self._bits + _WORD)
            if self._value + 1 << _WORD <= low:
                return True
            if self._value << _WORD >= high:
                return False
            self._append(self._word())


def _no(noise: DiscreteLaplace, gap: int, bits: int) -> tuple[int, int]:
    """Bounds of ``Pr[noise < gap] 2^bits``: ``1 - q^gap/(1 + q)``, or ``q^(1 - gap)/(1 + q)`` from 0 downwards."""
    one = 1 << bits
    q_low, q_high = exp_bounds(1 / noise.scale, bits)
    tail_low, tail_high = exp_bounds((gap if gap >= 1 else 1 - gap) / noise.scale, bits)
    low = (tail_low << bits) // (one + q_high)
    high = -(-(tail_high << bits) // (one + q_low))
    return (one - high, one - low) if gap >= 1 else (low, high)


def _power(low: int, high: int, k: int, bits: int) -> tuple[int, int]:
    """Bounds of the k-th power of a number in [0, 1], all times ``2^bits``."""
    power_low = power_high = 1 << bits
    while k:
        if k & 1:
            power_low = power_low * low >> bits
            power_high = -(-power_high * high >> bits)
        low = low * low >> bits
        high = -(-high * high >> bits)
        k >>= 1
    return power_low, power_high
