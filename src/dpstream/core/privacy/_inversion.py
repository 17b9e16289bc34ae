"""Whole-array exact inversion: uniform words against a table of a distribution function.

Let U be uniform on [0, 1) with infinitely many bits, of which the first w are the integer W: then
``W <= U 2^w < W + 1``. The sample is the smallest k with ``U < F(k)``: exactly distributed. The table
holds integers with ``T(k) <= F(k) 2^w <= T(k) + 1``, and so

* ``W < T(k)``  gives  ``U 2^w < W + 1 <= T(k) <= F(k) 2^w``, that is ``U < F(k)``;
* ``W > T(k)``  gives  ``U 2^w >= W >= T(k) + 1 >= F(k) 2^w``, that is ``U >= F(k)``.

Only ``W = T(k)`` is open (a tie, about ``2^-63`` per entry). Then further bits of the *same* U are
drawn and compared with enclosures of F at that depth, as deep as needed; a decision is taken only
where the enclosure proves it, so no rounding error ever enters. The end of the table is a tie
too: the last entry of an unbounded distribution is ``2^w - 1``, and everything beyond is reached
through refinement. With short words (tests) these paths are taken all the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import LimitError
from dpstream.core.privacy._exact import Distribution

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
            raise ValueError("word_bits is from 1 to 63")
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
    raise LimitError("this noise parameter cannot be tabulated", where="noise", allowed="another scale")


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
