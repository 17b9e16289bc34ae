"""A batch's content as the store keeps it, so that a repetition can be told from other records.

A batch is a multiset: a retry that reads the same records in another order is the same batch. A stored content says
by its first byte by which rule it was made: contents of this version are ``RULE`` and a keyed fingerprint
(``MultisetHash``). Contents of the store's formats 1 to 8 have no such byte; they are 32 bytes, and a batch is compared
with them by the rule of their time. That rule can go when stores of these formats are no longer migrated.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.code_blocks import CodeBlocks
from dpstream.core.tables import MultisetHash
from dpstream.core.tables.sorted_rows import sorted_words

if TYPE_CHECKING:
    from dpstream.core.contracts import BatchRows
    from dpstream.core.schema.domain import Codes, Domain
    from dpstream.stream.store.store import Store

#: 2: ``MultisetHash``. The rule before it, a keyed hash of the sorted records, left no mark.
RULE = b"\x02"
#: What the key of the fingerprint is derived for.
ROWS = b"rows"
_UNMARKED_BYTES = 32

RowWords = NDArray[np.int64]


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
        return [part for codes, words in pairs for part in sorted_words(codes, self.domain.sizes, words)]


@dataclass(frozen=True, repr=False)
class BatchContent:
    """The records of one batch, to be stored and compared. Private."""

    store: Store
    rows: BatchRows

    @cached_property
    def stored(self) -> bytes:
        """What the store keeps of this batch."""
        return RULE + self.rows.fingerprint(self.store.derived_key(ROWS))

    def is_stored_as(self, content: bytes) -> bool:
        """Whether ``content`` was stored for these records, by whichever rule."""
        if len(content) != _UNMARKED_BYTES:
            return hmac.compare_digest(content, self.stored)
        parts = self.rows.in_order()
        return parts is not None and hmac.compare_digest(content, self.store.fingerprint(parts))
