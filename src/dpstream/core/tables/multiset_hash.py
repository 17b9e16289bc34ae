"""A keyed fingerprint of rows as a multiset, which parts of a batch can compute apart and add up.

Trusted base: kernel (hashes private records).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.code_blocks import BLOCK_ROWS, AnyCodes, CodeBlocks
from dpstream.core.threads import in_order

#: Half of the key is for the rows, half for the end.
HASH_KEY_BYTES = 32


@dataclass(frozen=True, repr=False)
class MultisetHash:
    """The sum mod 2^128 of a keyed function of each row, and the number of rows. Private until it is finished.

    Guarantee: the order of the rows and the parts they come in change nothing. For two different multisets that were
    chosen without knowledge of the key or of any sum, the sums are equal with a probability of at most ``2^(v - 128)``,
    where ``2^v`` is the highest power of two that divides every difference of multiplicities (``v = 0`` as soon as one
    row is there an odd number of times more or less; below 2^63 rows ``v`` is below 63). Proof: take a row whose
    difference ``d`` has only ``v`` factors of two, and its value last. Given the values of all other rows the sums are
    equal only if ``d`` times its value is one number mod 2^128, which ``2^v`` of the 2^128 values fulfil. To this comes
    what tells SipHash-2-4-128 from a random function; its designers claim that nothing better than guessing its
    128-bit key does. ``n`` comparisons add up to ``n`` times the bound.

    This is MSet-Add-Hash of Clarke, Devadas, van Dijk, Gassend and Suh (ASIACRYPT 2003) without its nonce: there the
    hash is shown, here only its keyed hash (``finish``) is kept, in the secret state. Whoever knows the key or sees
    sums can find collisions. Never XOR: two equal rows would cancel, and their number would not count.
    """

    total: int = 0
    rows: int = 0

    @classmethod
    def of(
        cls,
        codes: NDArray[np.int32] | CodeBlocks,
        owners: NDArray[np.int64] | None,
        key: bytes,
        *,
        deletes: bool = False,
    ) -> Self:
        """The hash of rows.

        Args:
            codes: rows x columns; the type of the codes changes nothing.
            owners: whose rows they are, in integers (rows x words); None: nobody's.
            key: secret, ``HASH_KEY_BYTES``; the same for all parts.
            deletes: whether the rows leave; an insert and a delete of the same record differ.

        Cost: linear in the cells, in a few threads; copies of a few thousand rows.
        """
        from dpstream.core.tables._siphash import add_rows

        words = np.empty((len(codes), 0), np.int64) if owners is None else owners
        if len(words) != len(codes):  # the compiled loop does not look
            raise ValueError("owners and codes differ in rows")
        blocks = codes if isinstance(codes, CodeBlocks) else CodeBlocks(codes.shape[1], [codes])
        header = np.uint64(int(deletes) | words.shape[1] << 8 | blocks.columns << 32)
        first, second = _words(key)

        def work(part: tuple[AnyCodes, NDArray[np.int64]]) -> int:
            wide = np.ascontiguousarray(part[0], np.int32)
            low, high = add_rows(first, second, header, wide, part[1])
            return int(low) | int(high) << 64

        parts = (
            (block[low : low + BLOCK_ROWS], words[start + low : start + low + BLOCK_ROWS])
            for start, block in blocks.placed()
            for low in range(0, len(block), BLOCK_ROWS)
        )
        return cls(sum(in_order(work, parts)) % 2**128, len(blocks))

    def merge(self, other: Self) -> Self:
        """The hash of the rows of both."""
        return type(self)((self.total + other.total) % 2**128, self.rows + other.rows)

    def finish(self, sizes: Sequence[int], key: bytes) -> bytes:
        """What may be kept, 32 bytes: HMAC-SHA256 of the columns' sizes, the number of rows and the sum.

        Without the key it tells nothing of the rows or of their number.
        """
        columns = struct.pack(f"<Q{len(sizes)}Q", len(sizes), *sizes)
        end = struct.pack("<Q", self.rows) + self.total.to_bytes(16, "little")
        return hmac.digest(key[HASH_KEY_BYTES // 2 : HASH_KEY_BYTES], columns + end, "sha256")


def _words(key: bytes) -> tuple[np.uint64, np.uint64]:
    if len(key) != HASH_KEY_BYTES:
        raise ValueError(f"the key has {len(key)} bytes, and needs {HASH_KEY_BYTES}")
    first, second = struct.unpack("<QQ", key[: HASH_KEY_BYTES // 2])
    return np.uint64(first), np.uint64(second)
