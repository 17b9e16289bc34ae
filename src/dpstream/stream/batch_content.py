"""A batch's content as the store keeps it, so that a repetition can be told from other records.

A batch is a multiset: a retry that reads the same records in another order is the same batch. A stored content says
by its first byte by which rule it was made: contents of this version are ``RULE`` and a keyed fingerprint
(``MultisetHash``). Contents of the store's formats 1 to 8 have no such byte; they are 32 bytes, and a batch is compared
with them by the rule of their time. That rule can go when stores of these formats are no longer migrated.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.code_blocks import CodeBlocks
from dpstream.core.tables import MultisetHash

if TYPE_CHECKING:
    from dpstream.core.contracts import BatchRows
    from dpstream.core.schema.domain import Codes, Domain
    from dpstream.stream.store.store import Store

__all__ = ["RULE", "BatchContent", "RecordRows"]

#: 2: ``MultisetHash``. The rule before it, a keyed hash of the sorted records, left no mark.
RULE = b"\x02"
_UNMARKED_BYTES = 32

RowWords = NDArray[np.int64]

# A mixed-radix word must stay below 2**63.
_WORD = 2**63


@dataclass(frozen=True, repr=False)
class RecordRows:
    """The records of frames as a multiset; a ``BatchRows``. Private.

    Attributes:
        inserts, deletes: the records as codes, whose type changes nothing.
        owners: whose records they are, in integers (records x words) of the inserts and of the deletes; part of the
            content. None: nobody's.
    """

    domain: Domain
    inserts: Codes | CodeBlocks
    deletes: Codes | CodeBlocks
    owners: tuple[RowWords, RowWords] | None = None

    def fingerprint(self, key: bytes) -> bytes:
        """See ``BatchRows``. Cost: linear in the records."""
        first, second = (None, None) if self.owners is None else self.owners
        here = MultisetHash.of(self.inserts, first, key)
        gone = MultisetHash.of(self.deletes, second, key, deletes=True)
        return here.merge(gone).finish(self.domain.sizes, key)

    def in_order(self) -> list[bytes]:
        """The sorted records. Cost: one sort."""
        given = (None, None) if self.owners is None else self.owners
        rows = [
            part.whole() if isinstance(part, CodeBlocks) else part for part in (self.inserts, self.deletes)
        ]
        pairs = zip(rows, given, strict=True)
        return [part for codes, words in pairs for part in _sorted_words(codes, self.domain.sizes, words)]


@dataclass(frozen=True, repr=False)
class BatchContent:
    """The records of one batch, to be stored and compared. Private."""

    store: Store
    rows: BatchRows

    @cached_property
    def stored(self) -> bytes:
        """What the store keeps of this batch."""
        return RULE + self.rows.fingerprint(self.store.derived_key(b"rows"))

    def is_stored_as(self, content: bytes) -> bool:
        """Whether ``content`` was stored for these records, by whichever rule."""
        if len(content) != _UNMARKED_BYTES:
            return hmac.compare_digest(content, self.stored)
        parts = self.rows.in_order()
        return parts is not None and hmac.compare_digest(content, self.store.fingerprint(parts))


def _sorted_words(codes: Codes, sizes: Sequence[int], owners: RowWords | None) -> list[bytes]:
    words: list[RowWords] = [] if owners is None else list(owners.T)
    span = _WORD
    for position, size in enumerate(sizes):
        if span * size >= _WORD:
            words.append(np.zeros(len(codes), dtype=np.int64))
            span = 1
        words[-1] *= size
        words[-1] += codes[:, position]
        span *= size
    order = np.lexsort(words)
    return [len(codes).to_bytes(8, "little"), *(word[order].astype("<i8").tobytes() for word in words)]
