"""What a user hands to one step: frames of inserted and deleted records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.tables import EncodedBatch

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.schema.domain import Domain

__all__ = ["Batch", "Codes", "canonical_bytes", "encode_batch"]

Codes = NDArray[np.int32]
Words = NDArray[np.int64]

# A mixed-radix word must stay below 2**63.
_WORD = 2**63


@dataclass(frozen=True, repr=False)
class Batch:
    """The private records of one step.

    Args:
        inserts: records that arrive: a dict of arrays, a pyarrow table, a pandas, Polars or DuckDB frame,
            or an int32 array of codes (records x columns) that is already encoded. None: no record.
        deletes: records that leave, in the same form. None: no record.
        users: whose records they are, with the unit ``user`` only: the name of a column of both frames, or the ids
            of the inserts (texts or whole numbers, one for each record), or a pair of those of the inserts and
            those of the deletes.

    Both may be empty. The representation never shows a value or a number of records.

    >>> Batch({"zip": ["94102"], "paid": [True]})
    Batch(records hidden)
    """

    inserts: Any = None
    deletes: Any = None
    users: Any = None

    def __repr__(self) -> str:
        return "Batch(records hidden)"


def encode_batch(
    batch: Batch, schema: Schema, *, where: str = "step", kind: type[EncodedBatch] = EncodedBatch
) -> tuple[EncodedBatch, Codes, Codes]:
    """The batch as a plan reads it, and its codes.

    Errors:
        DataError: values that do not fit the schema (columns are named, no values). Nothing was spent.
    """
    inserts = _codes(batch.inserts, schema, f"{where}, inserts")
    deletes = _codes(batch.deletes, schema, f"{where}, deletes")
    # "None" and "no rows" differ: a source without deletions declares none, whatever the step holds.
    declared = None if batch.deletes is None else deletes
    return kind(schema.domain, inserts, declared), inserts, deletes


def _codes(frame: Any, schema: Schema, where: str) -> Codes:
    if frame is None:
        return np.empty((0, len(schema.domain)), dtype=np.int32, order="F")
    if isinstance(frame, np.ndarray):
        if frame.ndim != 2 or frame.dtype != np.int32:
            raise DataError(
                "an array of codes needs type int32 and two dimensions",
                where=where,
                allowed="records x columns",
            )
        return frame
    codes: Codes = schema.encode(frame, where=where)
    codes.flags.writeable = False  # nobody else holds it: the batch need not copy it
    return codes


def canonical_bytes(
    domain: Domain, inserts: Codes, deletes: Codes, users: tuple[Words, Words] | None = None
) -> list[bytes]:
    """The batch's content, independent of the records' order, for a keyed hash.

    A batch is a multiset: a retry that reads the same records in another order is the same batch.

    Args:
        users: whose records they are, in integers (records x words); part of the content.

    Cost: one sort.
    """
    given = (None, None) if users is None else users
    pairs = zip((inserts, deletes), given, strict=True)
    return [part for codes, words in pairs for part in _sorted_words(codes, domain.sizes, words)]


def _sorted_words(codes: Codes, sizes: Sequence[int], users: Words | None) -> list[bytes]:
    words: list[NDArray[np.int64]] = [] if users is None else list(users.T)
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
