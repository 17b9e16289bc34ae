"""The events admitted of each user, in the store: exact, and a few bytes for each.

The table holds keyed hashes of user ids, and a checksum tells whether a counter was changed or lost. Where the counters
are files, the table is empty, and in the place of the checksum there are their names (``sharded_users.py``).
All writing happens inside the step's transaction.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpstream.core.contracts import CounterShards, ShardedEvents, UserEvents
from dpstream.core.tables.contribution import (
    ID_BYTES,
    EventCounts,
    checksum,
)
from dpstream.stream.sharded_users import pack_shards, unpack_shards
from dpstream.stream.store.store_database import StoreDatabase

#: Ids of one query; SQLite takes 32,766 parameters, PostgreSQL 65,535.
_CHUNK = 10_000
#: Rows that are in memory at a time, where all users are gone through.
_PAGE = 50_000
_SELECT = "SELECT id, events, sealed FROM users"
_WORD = 2**64
#: Of a checksum; names of files are longer.
_CHECKSUM = 8


def read_events(db: StoreDatabase, ids: list[bytes]) -> EventCounts:
    """Events admitted so far of some users; 0 for those that never came. Any order; a sorted one is faster.

    Cost: where the batch's users are many of all users, ranges of ids are read whole (under a second for 10^6), else
    each id is looked up (twice that). Memory: what ``_CHUNK`` ids take, and 8 bytes for each id.
    """
    events, dense = np.zeros(len(ids), np.int64), True
    for start in range(0, len(ids), _CHUNK):
        part = ids[start : start + _CHUNK]
        most = 4 * len(part)
        rows: list[tuple[bytes, int, bytes | None]] = []
        if dense:
            span = (min(part), max(part), most)
            rows = db.execute(f"{_SELECT} WHERE id BETWEEN ? AND ? LIMIT ?", span).fetchall()
            dense = len(rows) < most
        if not dense:
            rows = db.execute(f"{_SELECT} WHERE id IN ({', '.join('?' * len(part))})", part).fetchall()
        known = dict(_opened(db, rows))
        events[start : start + len(part)] = [known.get(user, 0) for user in part]
    return events


def read_shards(db: StoreDatabase) -> CounterShards | None:
    """The files of the counters; None where they are rows, or there are none yet."""
    data, _ = _stated(db)
    return None if len(data) <= _CHECKSUM else unpack_shards(data, db.where)


def write_events(db: StoreDatabase, step: int, changes: UserEvents | ShardedEvents, key: bytes) -> None:
    """The new counters, and what all of them add up to, inside the caller's transaction."""
    data, left_out = _stated(db)
    if isinstance(changes, ShardedEvents):
        stated = pack_shards(changes.shards)
    else:
        before = int.from_bytes(data, "little")
        stated = (_write_rows(db, before, changes, key) % _WORD).to_bytes(_CHECKSUM, "little")
    row = (step, db.sealing.seal(stated, "checksum", step))
    left_out += changes.dropped
    counted = db.sealing.seal_count(left_out, "dropped", step)
    db.execute("DELETE FROM contribution")
    db.execute(
        "INSERT INTO contribution (id, step, checksum, dropped, sealed, seal) VALUES (1, ?, ?, ?, ?, ?)",
        (*row, *counted, _left_out_seal(key, step, left_out)),
    )


def _left_out_seal(key: bytes, step: int, left_out: int) -> bytes:
    return hmac.digest(key, b"left out %d %d" % (step, left_out), "sha256")


def _write_rows(db: StoreDatabase, total: int, changes: UserEvents, key: bytes) -> int:
    """The rows that changed; gives what all of them add up to."""
    changed = np.flatnonzero(changes.before != changes.after)
    old, new = changes.before[changed], changes.after[changed]
    ids = [changes.ids[i] for i in changed.tolist()]
    _put(db, ids, new.tolist())
    known = np.flatnonzero(old)
    return total + checksum(ids, new, key) - checksum([ids[i] for i in known.tolist()], old[known], key)


def verify_events(db: StoreDatabase, last_step: int, key: bytes) -> str | None:
    """What is wrong with the counters; None if nothing is. Files are looked at by ``problem_of_files``.

    Cost: one pass, about a second for 10^6 users; memory for ``_PAGE`` of them.
    """
    row = db.execute("SELECT step, checksum, seal FROM contribution").fetchone()
    total = 0
    for page in _pages(db):
        if row is None:
            return "counters of users are there without their sum"
        ids, counts = [user for user, _ in page], np.array([events for _, events in page], dtype=np.int64)
        if any(len(user) != ID_BYTES for user in ids) or (counts < 1).any():
            return "a user's counter was changed"
        total += checksum(ids, counts, key)
    if row is None:
        return None
    stated = db.sealing.open(bytes(row[1]), "checksum", row[0])
    files = len(stated) > _CHECKSUM and db.execute("SELECT 1 FROM users LIMIT 1").fetchone() is None
    if row[0] != last_step or not (files or stated == (total % _WORD).to_bytes(_CHECKSUM, "little")):
        return "a user's counter was changed or lost"
    if not hmac.compare_digest(_left_out_seal(key, row[0], dropped(db)), row[2]):
        return "the number of events that were left out was changed"
    return None


def dropped(db: StoreDatabase) -> int:
    """Events left out so far."""
    return _stated(db)[1]


def _stated(db: StoreDatabase) -> tuple[bytes, int]:
    """The checksum of the rows, or what is said of the files; and the events left out."""
    row = db.execute("SELECT step, checksum, dropped, sealed FROM contribution").fetchone()
    if row is None:
        return bytes(_CHECKSUM), 0
    step, total, left_out, sealed = row
    opened = db.sealing.open(bytes(total), "checksum", step)
    return opened, db.sealing.open_count(int(left_out), sealed, "dropped", step)


def _put(db: StoreDatabase, ids: list[bytes], counts: list[int]) -> None:
    """Write each user's counter, new or changed."""
    for start in range(0, len(ids), _PAGE):
        users, events = ids[start : start + _PAGE], counts[start : start + _PAGE]
        columns: dict[str, list[Any]] = {"id": users, "events": events}
        if db.sealing.name is not None:
            pairs = zip(users, events, strict=True)
            sealed = [db.sealing.seal_count(count, "events", user) for user, count in pairs]
            columns |= {"events": [count for count, _ in sealed], "sealed": [data for _, data in sealed]}
        changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name != "id")
        db.insert("users", columns, f"ON CONFLICT (id) DO UPDATE SET {changed}")


def _pages(db: StoreDatabase) -> Iterator[list[tuple[bytes, int]]]:
    """All counters, ``_PAGE`` at a time, in the order of the ids."""
    after, last = ">=", b""
    while rows := db.execute(f"{_SELECT} WHERE id {after} ? ORDER BY id LIMIT ?", (last, _PAGE)).fetchall():
        yield _opened(db, rows)
        after, last = ">", bytes(rows[-1][0])


def _opened(db: StoreDatabase, rows: list[tuple[bytes, int, bytes | None]]) -> list[tuple[bytes, int]]:
    if db.sealing.name is None and all(sealed is None for _, _, sealed in rows):
        return [(user, events) for user, events, _ in rows]
    return [
        (user, db.sealing.open_count(events, sealed, "events", bytes(user))) for user, events, sealed in rows
    ]
