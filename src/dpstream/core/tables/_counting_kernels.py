"""Compiled marginal counting: bitsets or scatter, one call for all cliques.

Imported only when a compiled count is asked for (Numba takes most of a second to load). Every array
argument is flat and its type is fixed by an explicit signature, so one compiled version (kept on disk)
serves every domain, set of cliques and number of rows.

Trusted base: kernel (counts private records).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from dpstream.core.compiling import njit

#: Rows that are counted together: a multiple of 64; bitsets and codes of a chunk should stay in the cache.
CHUNK_ROWS = 16384
_BLOCK_ROWS = 1024

_CODES = types.Array(types.int32, 2, "C", readonly=True)
_VECTOR = types.Array(types.int64, 1, "C")


@intrinsic  # type: ignore[untyped-decorator]
def _ones(typing_context: Any, word: Any) -> Any:
    """Number of set bits of a 64-bit word (LLVM's ctpop, which vectorises)."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(no_cpython_wrapper=True)
def _scatter(codes, start, stop, members, strides, sign, out, scratch):  # type: ignore[no-untyped-def]
    """Add ``sign`` to one cell of ``out`` per row."""
    # Unsigned cell numbers: a signed one makes Numba test every access for a negative index.
    if members.size == 1:
        column = codes[members[0]]
        for row in range(start, stop):
            out[np.uint32(column[row])] += sign
    elif members.size == 2:
        first, second = codes[members[0], start:stop], codes[members[1], start:stop]
        stride = np.uint64(strides[0])
        for row in range(stop - start):
            out[np.uint64(first[row]) * stride + np.uint64(second[row])] += sign
    else:
        for block in range(start, stop, _BLOCK_ROWS):
            rows = min(_BLOCK_ROWS, stop - block)
            for i in range(rows):
                scratch[i] = 0
            for j in range(members.size):
                column = codes[members[j], block : block + rows]
                stride = np.uint64(strides[j])
                for i in range(rows):
                    scratch[i] += np.uint64(column[i]) * stride
            for i in range(rows):
                out[scratch[i]] += sign


@njit(no_cpython_wrapper=True)
def _fill_bits(codes, start, stop, sizes, bit_starts, words, bits, ones):  # type: ignore[no-untyped-def]
    """One bitset per value of the columns that have a place in ``bits``, and how often the value occurs."""
    for column in range(sizes.size):
        first = bit_starts[column]
        if first < 0:
            continue
        bits[first : first + sizes[column], :words] = 0
        values = codes[column, start:stop]
        own = bits[first : first + sizes[column]]
        for row in range(stop - start):
            i = np.uint64(row)
            own[np.uint32(values[row]), i >> np.uint64(6)] |= np.uint64(1) << (i & np.uint64(63))
        for value in range(first, first + sizes[column]):
            total = np.uint64(0)
            for word in range(words):
                total += _ones(bits[value, word])
            ones[value] = np.int64(total)


@njit(no_cpython_wrapper=True)
def _pair_from_bits(bits, ones, words, first, first_size, second, second_size, sign, out, rest):  # type: ignore[no-untyped-def]
    """A pair's counts: AND and count, except for each column's last value, which follows from the others."""
    last = second_size - 1
    for b in range(second_size):
        rest[b] = ones[second + b]
    for a in range(first_size - 1):
        left = ones[first + a]
        row_bits = bits[first + a]
        for b in range(last):
            column_bits = bits[second + b]
            total = np.uint64(0)
            for word in range(words):
                total += _ones(row_bits[word] & column_bits[word])
            rows = np.int64(total)
            out[a * second_size + b] += sign * rows
            left -= rows
            rest[b] -= rows
        out[a * second_size + last] += sign * left
        rest[last] -= left
    for b in range(second_size):
        out[(first_size - 1) * second_size + b] += sign * rest[b]


@njit(
    types.void(
        _CODES,
        types.int64,
        _VECTOR,
        _VECTOR,
        _VECTOR,
        _VECTOR,
        _VECTOR,
        _VECTOR,
        _VECTOR,
        types.int64,
        types.int64,
        _VECTOR,
    ),
    cache=True,
    nogil=True,
)
def count_codes(  # type: ignore[no-untyped-def]
    codes, sign, sizes, starts, members, strides, offsets, by_bits, bit_starts, bit_rows, widest, out
):
    """Add ``sign`` times the counts of all cliques to ``out``.

    ``codes`` is (columns, rows), already checked to be in range. Clique ``c`` has the columns
    ``members[starts[c]:starts[c + 1]]`` with C-order ``strides``, and its cells begin at ``offsets[c]``.
    Pairs with ``by_bits`` set use the bitsets of their columns, at ``bit_starts`` (``bit_rows`` in all).
    """
    rows = codes.shape[1]
    chunk_words = min(CHUNK_ROWS, rows + 63) // 64 if bit_rows > 0 else 0
    bits = np.empty((bit_rows, chunk_words), np.uint64)
    ones = np.empty(bit_rows, np.int64)
    rest = np.empty(widest, np.int64)
    scratch = np.empty(_BLOCK_ROWS, np.uint64)
    for start in range(0, rows, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, rows)
        words = (stop - start + 63) // 64
        if bit_rows > 0:
            _fill_bits(codes, start, stop, sizes, bit_starts, words, bits, ones)
        for c in range(starts.size - 1):
            begin, end = starts[c], starts[c + 1]
            cells = out[offsets[c] : offsets[c + 1]]
            if begin == end:
                cells[0] += sign * (stop - start)
            elif bit_rows > 0 and by_bits[c] == 1:
                a, b = members[begin], members[begin + 1]
                _pair_from_bits(
                    bits, ones, words, bit_starts[a], sizes[a], bit_starts[b], sizes[b], sign, cells, rest
                )
            else:
                _scatter(codes, start, stop, members[begin:end], strides[begin:end], sign, cells, scratch)
