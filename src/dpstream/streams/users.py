"""The events admitted of each user, in the store: exact, and a few bytes for each.

The table holds keyed hashes of user ids, and a checksum tells whether a counter was changed or lost.
All writing happens inside the step's transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpstream.errors import DataError
from dpstream.privacy.unit import User
from dpstream.streams.batch import Batch, Codes, canonical_bytes, encode_batch
from dpstream.streams.contribution import ID_BYTES, Owners, admit, checksum, read_owners, separate
from dpstream.streams.database import Database, Rows
from dpstream.tables import EncodedBatch

if TYPE_CHECKING:
    from dpstream.mechanism import StreamPlan
    from dpstream.schema import Schema
    from dpstream.streams.store import Store

__all__ = ["Owned", "UserEvents", "dropped", "read_batch", "read_events", "verify_events", "write_events"]

#: Ids of one query; SQLite takes 32,766 parameters, PostgreSQL 65,535.
_CHUNK = 10_000
_WORD = 2**64

Counts = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class UserEvents:
    """What a step changes: events admitted before and after, for each user of its batch. Private."""

    ids: list[bytes]
    before: Counts
    after: Counts
    dropped: int


@dataclass(frozen=True, repr=False)
class Owned:
    """A batch's records and whose they are, before it is decided which of them are admitted. Private."""

    owners: Owners
    inserts: Codes
    deletes: Codes
    max_events: int
    key: bytes

    def admit(
        self, batch: EncodedBatch, events: Callable[[list[bytes]], Counts]
    ) -> tuple[EncodedBatch, UserEvents]:
        """The batch as the mechanism may see it, and what its step commits.

        Args:
            events: the committed counters (``Store.user_events``), so that a step that is computed afresh after a
                crash admits the same records.
        """
        before = events(self.owners.ids)
        found = admit(self.inserts, self.deletes, self.owners, before, self.max_events, self.key)
        changes = UserEvents(self.owners.ids, before, found.counts, found.dropped)
        return found.bounded(batch, self.inserts, self.deletes), changes


def read_batch(
    batch: Batch, plan: StreamPlan, schema: Schema, store: Store, where: str
) -> tuple[EncodedBatch, bytes, Owned | None]:
    """A whole batch as codes, the keyed hash of its content, and whose records they are where the unit is a user.

    Errors:
        DataError, SchemaError: records or users that do not fit, or users that the unit does not use.
    """
    unit = plan.unit
    if isinstance(unit, User) and isinstance(batch, Batch):
        batch, columns = separate(batch, schema, where)
        encoded, inserts, deletes = encode_batch(batch, schema, where=where)
        key = store.derived_key(b"user ids")
        owners = read_owners(columns, (len(inserts), len(deletes)), key=key, where=where)
        words = (owners.words(owners.inserts), owners.words(owners.deletes))
        owned = Owned(owners, inserts, deletes, unit.max_events, key)
        return encoded, store.fingerprint(canonical_bytes(schema.domain, inserts, deletes, words)), owned
    encoded, inserts, deletes = encode_batch(batch, schema, where=where)
    if batch.users is not None:
        raise DataError(
            f"the batch says whose records they are, and the unit is {unit.name!r}, which does not use it",
            where=where,
            allowed="a plan with the unit user, or a batch without users",
        )
    return encoded, store.fingerprint(canonical_bytes(schema.domain, inserts, deletes)), None


def read_events(db: Database, ids: list[bytes]) -> Counts:
    """Events admitted so far of some users; 0 for those that never came."""
    known: dict[bytes, int] = {}
    for start in range(0, len(ids), _CHUNK):
        part = ids[start : start + _CHUNK]
        marks = ", ".join("?" * len(part))
        known.update(
            _counters(db, db.execute(f"SELECT id, events, sealed FROM users WHERE id IN ({marks})", part))
        )
    return np.array([known.get(user, 0) for user in ids], dtype=np.int64)


def write_events(db: Database, step: int, changes: UserEvents, key: bytes) -> None:
    """The new counters, and what all of them add up to, inside the caller's transaction."""
    changed = np.flatnonzero(changes.before != changes.after)
    old, new = changes.before[changed], changes.after[changed]
    ids = [changes.ids[i] for i in changed.tolist()]
    db.executemany(
        "INSERT INTO users (id, events, sealed) VALUES (?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET events = excluded.events, sealed = excluded.sealed",
        [
            (user, *db.sealing.seal_count(count, "events", user))
            for user, count in sorted(zip(ids, new.tolist(), strict=True))
        ],
    )
    total, left_out = _total(db)
    known = old > 0
    total += checksum(ids, new, key)
    total -= checksum([user for user, was in zip(ids, known.tolist(), strict=True) if was], old[known], key)
    summed = db.sealing.seal((total % _WORD).to_bytes(8, "little"), "checksum", step)
    row = (step, summed, *db.sealing.seal_count(left_out + changes.dropped, "dropped", step))
    db.execute("DELETE FROM contribution")
    db.execute("INSERT INTO contribution (id, step, checksum, dropped, sealed) VALUES (1, ?, ?, ?, ?)", row)


def verify_events(db: Database, last_step: int, key: bytes) -> str | None:
    """What is wrong with the counters; None if nothing is. Cost: one pass, about a second for a million users."""
    row = db.execute("SELECT step, checksum FROM contribution").fetchone()
    rows = list(_counters(db, db.execute("SELECT id, events, sealed FROM users")))
    if row is None:
        return "counters of users are there without their sum" if rows else None
    ids, counts = [user for user, _ in rows], np.array([events for _, events in rows], dtype=np.int64)
    if any(len(user) != ID_BYTES for user in ids) or (counts < 1).any():
        return "a user's counter was changed"
    total = db.sealing.open(bytes(row[1]), "checksum", row[0])
    if row[0] != last_step or total != checksum(ids, counts, key).to_bytes(8, "little"):
        return "a user's counter was changed or lost"
    return None


def dropped(db: Database) -> int:
    """Events left out so far."""
    return _total(db)[1]


def _total(db: Database) -> tuple[int, int]:
    row = db.execute("SELECT step, checksum, dropped, sealed FROM contribution").fetchone()
    if row is None:
        return 0, 0
    step, total, left_out, sealed = row
    opened = db.sealing.open(bytes(total), "checksum", step)
    return int.from_bytes(opened, "little"), db.sealing.open_count(int(left_out), sealed, "dropped", step)


def _counters(db: Database, rows: Rows) -> Iterator[tuple[bytes, int]]:
    for user, events, sealed in rows:
        name = bytes(user)
        yield name, db.sealing.open_count(int(events), sealed, "events", name)
