"""The bound on the events of one user: which records of a batch enter the stream.

Guarantee: a stability map. Which events of a user are admitted follows from that user's own events (this batch's and
the number admitted before) and from a fixed key, never from other users' records, their order or their number. Adding
or removing all events of one user therefore changes what is admitted by at most ``max_events`` events, all of them
that user's. Proof: docs/theory/users.md.

Trusted base: kernel (bounds the events of a user).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema import arrow
from dpstream.core.schema.domain import Codes, Mask
from dpstream.core.tables.encoded_batch import EncodedBatch

#: Of a keyed hash of a user id. Two of a thousand million users share one with a probability below 10^-20.
ID_BYTES = 16

_IDS = "a text or whole number per record"
_INSERT, _DELETE = b"+", b"-"
#: Ids that are hashed at a time: each is a Python object meanwhile.
_BLOCK = 2**17

#: User ids of the inserts and of the deletes: ``pyarrow.ChunkedArray``, or None where there are none.
Columns = tuple[Any, Any]
EventCounts = NDArray[np.int64]
#: Hashed ids: rows of two words, of which the first one sorts first.
Words = NDArray[np.uint64]


@dataclass(frozen=True, repr=False)
class Owners:
    """Which record belongs to which user. Private, although ids are only there as keyed hashes.

    Attributes:
        ids: the batch's different users, each a keyed hash of ``ID_BYTES``, in ascending order (the store reads and
            writes neighbours faster; nothing else depends on it).
        inserts, deletes: for each record the position of its user in ``ids``.
    """

    ids: list[bytes]
    inserts: EventCounts
    deletes: EventCounts

    def words(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The users of the inserts and of the deletes as two integers each, for the batch's fingerprint."""
        words = owner_words(as_words(self.ids))
        return words[self.inserts], words[self.deletes]


@dataclass(frozen=True, repr=False)
class Admission:
    """What enters the stream, and what the store has to remember.

    Attributes:
        inserts, deletes: True for the records that are admitted.
        counts: for each of ``Owners.ids`` the number of events so far, this batch's included; of users with more than
            the bound, one more.
        dropped: records that are left out. cut: users with the first event beyond the bound. Private.
    """

    inserts: Mask
    deletes: Mask
    counts: EventCounts
    dropped: int
    cut: int

    def bounded(self, batch: EncodedBatch, inserts: Codes, deletes: Codes) -> EncodedBatch:
        """The batch without the records that are left out; it declares deletes exactly if it did before."""
        if not self.dropped:
            return batch
        declared = deletes[self.deletes] if batch.declares_deletes else None
        return EncodedBatch(batch.domain, inserts[self.inserts], declared)


def read_owners(
    columns: Columns, lengths: tuple[int, int], *, key: bytes, where: str, what: str = "user id"
) -> Owners:
    """The users of a batch's records, as keyed hashes.

    Args:
        columns: ids of the inserts and of the deletes.
        lengths: number of records of each.
        key: secret, the same for the whole life of a stream (up to 64 bytes).
        what: an id is called in messages.

    Ids are compared as texts: 12 and "12" are one user, "012" and "12 " are others.

    Errors:
        DataError: a null or empty id, another type, or another number of ids than of records.

    Cost: one hash for each different user, and sorting these hashes; about 2 s of CPU and 150 MB for 10^6 users.
    """
    import pyarrow as pa

    texts = []
    for column, length, rows in zip(columns, lengths, ("inserts", "deletes"), strict=True):
        if (0 if column is None else len(column)) != length:
            raise DataError(f"expected one {what} for each of the {rows}", where=where, allowed=_IDS)
        texts.append(id_bytes(column, where, what))
    words, row_ids = _hash_different(pa.concat_arrays(texts), key)
    order = np.lexsort((words[:, 1], words[:, 0]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    positions = rank[row_ids]
    return Owners(as_ids(words[order]), positions[: lengths[0]], positions[lengths[0] :])


def hash_ids(texts: Any, key: bytes, person: bytes = b"user") -> Words:
    """The keyed hashes of ids that ``id_bytes`` gave, two words each, in their order.

    Args:
        person: what the ids are of; others have other hashes.

    Cost: one hash for each different id.
    """
    words, row_ids = _hash_different(texts, key, person)
    return words[row_ids]


def owners_of(words: Words, inserts: int) -> Owners:
    """The users of records whose ids are hashed already (``hash_ids``): of ``inserts`` records that come, and then of
    those that go."""
    order = np.lexsort((words[:, 1], words[:, 0]))
    ascending = words[order]
    new = np.ones(len(words), np.bool_)
    new[1:] = (ascending[1:] != ascending[:-1]).any(axis=1)
    positions = np.empty(len(words), np.int64)
    positions[order] = np.cumsum(new) - 1
    return Owners(as_ids(ascending[new]), positions[:inserts], positions[inserts:])


def as_ids(words: Words) -> list[bytes]:
    """Hashed ids as bytes; words that ascend give bytes that ascend."""
    return list(np.frombuffer(words.astype(">u8").tobytes(), f"V{ID_BYTES}").tolist())


def as_words(ids: Sequence[bytes]) -> Words:
    """The inverse of ``as_ids``."""
    return np.frombuffer(b"".join(ids), ">u8").reshape(-1, 2).astype(np.uint64)


def owner_words(words: Words) -> NDArray[np.int64]:
    """Hashed ids as a batch's fingerprint has them: the bytes of each as two little-endian integers."""
    return words.astype(">u8").view("<i8").astype(np.int64)


def _hash_different(texts: Any, key: bytes, person: bytes = b"user") -> tuple[Words, NDArray[np.intp]]:
    """The hash of each different id, and which of them each record has."""
    joined = texts.dictionary_encode()
    return hash_each(joined.dictionary, key, person), joined.indices.to_numpy(zero_copy_only=False)


def hash_each(texts: Any, key: bytes, person: bytes) -> Words:
    """As ``hash_ids``, with a hash for each text: for texts that are different, this takes half the memory."""
    words = np.empty((len(texts), 2), np.uint64)
    start = hashlib.blake2b(digest_size=ID_BYTES, key=key, person=person)
    for first in range(0, len(texts), _BLOCK):
        hashes = list[bytes]()
        for value in texts.slice(first, _BLOCK).to_pylist():
            hashing = start.copy()
            hashing.update(value)
            hashes.append(hashing.digest())
        words[first : first + _BLOCK] = as_words(hashes)
    return words


def admit(
    inserts: Codes,
    deletes: Codes,
    owners: Owners,
    used: EventCounts,
    max_events: int,
    key: bytes,
    values: NDArray[np.int64] | None = None,
) -> Admission:
    """Decide which records of a batch enter the stream.

    Of a user with room for all events of the batch, all are admitted. Of others as many as there is room for, chosen
    by a keyed hash of the event itself (user, operation, record, and the number of the copy where a record occurs
    several times): in an order that prefers no value, and that is the same whatever the order of the rows.

    Args:
        inserts, deletes: the records as codes.
        used: for each of ``owners.ids`` the counter before (``Admission.counts``).
        max_events: the bound.
        key: secret, the same for the whole life of a stream.
        values: of the inserts, what their codes do not say of them (``Undiscovered.words``).

    Cost: linear in the records; one hash for each record of a user who exceeds the bound in this batch.
    """
    rows = np.concatenate([owners.inserts, owners.deletes])
    wanted = np.bincount(rows, minlength=len(owners.ids)).astype(np.int64)
    granted = np.minimum(wanted, np.maximum(max_events - used, 0))
    mask: Mask = (granted == wanted)[rows]
    contested = np.flatnonzero(~mask & (granted > 0)[rows])
    if contested.size:
        codes = np.concatenate([inserts, deletes])
        if values is not None:
            more = np.zeros((len(codes), 2 * values.shape[1]), np.int32)
            more[: len(values)] = np.ascontiguousarray(values).view(np.int32)
            codes = np.concatenate([codes, more], axis=1)
        codes = codes[contested]
        operations = contested >= len(owners.inserts)
        order = _private_order(codes, operations, rows[contested], owners.ids, key)
        users = rows[contested[order]]
        rank = np.arange(users.size) - np.searchsorted(users, users)
        mask[contested[order[rank < granted[users]]]] = True
    split, counts = len(owners.inserts), np.minimum(used + wanted, max_events + 1)
    cut = int(np.count_nonzero((counts > max_events) & (used <= max_events)))
    return Admission(mask[:split], mask[split:], counts, int(rows.size - granted.sum()), cut)


def id_bytes(column: Any, where: str, what: str = "user id") -> Any:
    """A column of user ids or keys (or None) as one Arrow array of bytes.

    Errors:
        DataError: a null or empty id, or another type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    chunks = plain_chunks(column)
    for chunk in chunks:
        if chunk.null_count or pa.types.is_null(chunk.type):
            raise no_id(where, what)
        wrong = id_problem(chunk.type, where, what)
        if wrong is not None:
            raise wrong
    texts = [chunk if _binary(chunk.type) else chunk.cast(pa.string()) for chunk in chunks]
    values = [chunk.cast(pa.large_binary()) for chunk in texts]
    joined = pa.concat_arrays(values) if values else pa.array([], pa.large_binary())
    if pc.any(pc.equal(pc.binary_length(joined), 0)).as_py():
        raise no_id(where, what)
    return joined


def plain_chunks(column: Any) -> list[Any]:
    """The arrays of a column (or of None) as they read without dictionaries."""
    import pyarrow as pa

    # A chunk of nothing says nothing: where no record came, a source may not know the type.
    chunks = [] if column is None else [arrow.plain(chunk) for chunk in column.chunks if len(chunk)]
    return [chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk for chunk in chunks]


def id_problem(kind: Any, where: str, what: str = "user id") -> DataError | None:
    """What keeps an Arrow type from holding ids; None if nothing does. (Nulls are refused elsewhere.)"""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return None
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if whole or pa.types.is_string(kind) or pa.types.is_large_string(kind) or _binary(kind):
        return None
    return no_ids_of(arrow.type_name(kind), where, what)


def no_ids_of(kind: str, where: str, what: str = "user id") -> DataError:
    """The refusal of a type that holds no ids."""
    return DataError(f"{what}s have the type {kind}", where=where, allowed=_IDS)


def _binary(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def no_id(where: str, what: str = "user id") -> DataError:
    """The refusal of a record of nobody."""
    return DataError(f"a record lacks a {what}", where=where, allowed=_IDS)


def _private_order(
    codes: Codes, operations: Mask, rows: EventCounts, ids: list[bytes], key: bytes
) -> NDArray[np.intp]:
    """Positions sorted by user, and for each user by the keyed hash of the event."""
    copies = _copies(codes, operations, rows)
    plain = np.ascontiguousarray(codes, dtype="<i4")
    tags = np.empty((len(rows), 2), np.uint64)
    for i, (user, copy) in enumerate(zip(rows.tolist(), copies.tolist(), strict=True)):
        event = (
            ids[user]
            + (_DELETE if operations[i] else _INSERT)
            + copy.to_bytes(8, "little")
            + plain[i].tobytes()
        )
        digest = hashlib.blake2b(event, digest_size=16, key=key, person=b"event").digest()
        tags[i] = np.frombuffer(digest, "<u8")
    return np.lexsort((tags[:, 1], tags[:, 0], rows))


def _copies(codes: Codes, operations: Mask, rows: EventCounts) -> EventCounts:
    """0, 1, 2, ... for the copies of an equal event of one user; which copy gets which number does not matter."""
    order = np.lexsort((*codes.T, operations, rows))
    new = np.ones(len(order), np.bool_)
    new[1:] = np.diff(rows[order]) != 0
    new[1:] |= np.diff(operations[order])
    new[1:] |= (np.diff(codes[order], axis=0) != 0).any(axis=1)
    starts = np.flatnonzero(new)
    numbers = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    copies = np.empty(len(order), np.int64)
    copies[order] = numbers
    return copies
