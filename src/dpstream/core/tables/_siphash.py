"""SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012), compiled: one value a row, and their sum.

Imported only when rows are hashed. The one explicit signature serves every number of columns and every layout.

Trusted base: kernel (hashes private records).
"""

from __future__ import annotations

import numpy as np
from numba import types

from dpstream.core.compiling import njit

_WORD = types.uint64
_CODES = types.Array(types.int32, 2, "A", readonly=True)
_OWNERS = types.Array(types.int64, 2, "A", readonly=True)


@njit(no_cpython_wrapper=True)
def _round(v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    v0 += v1
    v2 += v3
    v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
    v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
    v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
    v2 += v1
    v0 += v3
    v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
    v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
    v2 = (v2 << np.uint64(32)) | (v2 >> np.uint64(32))
    return v0, v1, v2, v3


@njit(no_cpython_wrapper=True)
def _absorb(v0, v1, v2, v3, word):  # type: ignore[no-untyped-def]
    v3 ^= word
    for _ in range(2):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@njit(types.UniTuple(_WORD, 2)(_WORD, _WORD, _WORD, _CODES, _OWNERS), cache=True, nogil=True)
def add_rows(key0, key1, header, codes, owners):  # type: ignore[no-untyped-def]
    """The sum mod 2^128, low and high half, of SipHash-2-4-128 of every row.

    A row's message in bytes, little endian: the header (8), its codes (4 each, and 4 zero bytes after an odd number
    of them), its owner (8 each word).
    """
    columns, words = codes.shape[1], owners.shape[1]
    length = np.uint64(1 + (columns + 1) // 2 + words) * np.uint64(8)
    # The same for all rows: key and header.
    s0 = key0 ^ np.uint64(0x736F6D6570736575)
    s1 = key1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    s2 = key0 ^ np.uint64(0x6C7967656E657261)
    s3 = key1 ^ np.uint64(0x7465646279746573)
    s0, s1, s2, s3 = _absorb(s0, s1, s2, s3, header)
    low, high = np.uint64(0), np.uint64(0)
    for row in range(codes.shape[0]):
        v0, v1, v2, v3 = s0, s1, s2, s3
        for pair in range(columns // 2):
            word = np.uint64(np.uint32(codes[row, 2 * pair]))
            word |= np.uint64(np.uint32(codes[row, 2 * pair + 1])) << np.uint64(32)
            v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, word)
        if columns % 2:
            v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(np.uint32(codes[row, columns - 1])))
        for i in range(words):
            v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(owners[row, i]))
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, length << np.uint64(56))
        v2 ^= np.uint64(0xEE)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        first = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        low += first
        high += v0 ^ v1 ^ v2 ^ v3
        if low < first:
            high += np.uint64(1)
    return low, high
