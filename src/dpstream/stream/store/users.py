"""The events admitted of each user: rows of the store, exact, and a few bytes for each; or files beside it.

The table holds keyed hashes of user ids, and a checksum tells whether a counter was changed or lost. Where the counters
are files, which Spark's executors read and write, the table is empty, and in the place of the checksum there are their
names. All writing happens inside the step's transaction."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CounterFile, CounterShards, Packed, ShardedEvents, UserEvents
from dpstream.core.contracts.user_counters import COUNTER
from dpstream.core.tables.contribution import (
    ID_BYTES,
    EventCounts,
    checksum,
)
from dpstream.core.tables.counter_files import damaged_files, file_bytes, missing_files
from dpstream.stream.store import container
from dpstream.stream.store.lock import USERS
from dpstream.stream.store.store_database import StoreDatabase

# The counters of users, or the records that are present, in files: what the store's row says of them, and
# whether they are what it says.
#
# The files are in the folder ``users`` of the secret state directory, or where a link of that name leads, in a folder
# named by the stream's id: executors on other machines have to see it under the same path. The row (``contribution``)
# has in the place of a checksum the names of the files, their sizes, keys and tags. Nothing else makes a file
# believed, so that a stop between the files and the transaction leaves files that nobody reads, which are removed.

_FORMAT = 1
_KEY, _TAG = 32, 16
#: Bytes of files that are read again at each opening.
_SAMPLE = 2**26


def user_folder(state: Path, meta: Mapping[str, bytes]) -> Path:
    """Where a stream's files are, which may not be there."""
    return state / USERS / meta["stream_id"].hex()


def problem_of_files(folder: Path, shards: CounterShards, step: int, *, everything: bool) -> str | None:
    """What is wrong with the committed files; None if nothing is.

    Args:
        everything: whether all of them are read. Else names and sizes are looked at, and some files are read: with
            each step other ones. (A task reads no file without its tag.)

    Cost: a look at each name (some thousand), and reading 64 MiB; or reading everything, 20 bytes a user.
    """
    files = shards.all_files()
    if missing_files(folder, files):
        return "a file in the folder users is missing, or was cut short"
    chosen, size = files if everything else [], 0
    while not everything and len(chosen) < len(files) and size < _SAMPLE:
        chosen.append(files[(step + len(chosen)) % len(files)])
        size += file_bytes(chosen[-1])
    return "a file in the folder users was changed" if damaged_files(folder, chosen) else None


def pack_shards(shards: CounterShards) -> bytes:
    """What the row says of the files."""
    files = [(shard, file) for shard in sorted(shards.files) for file in shards.files[shard]]
    keys = sorted({file.key for _, file in files})
    meta = {"format": _FORMAT, "shards": shards.number, "names": [file.name for _, file in files]}
    # The width of counters is the usual one, and left out.
    widths = {file.width for _, file in files} - {COUNTER}
    meta |= {"width": widths.pop()} if widths else {}
    arrays: dict[str, NDArray[Any]] = {
        "shard": np.array([shard for shard, _ in files], np.int64),
        "users": np.array([file.users for _, file in files], np.int64),
        "key": np.array([keys.index(file.key) for _, file in files], np.int64),
        "keys": np.frombuffer(b"".join(keys), np.uint8),
        "tags": np.frombuffer(b"".join(file.tag for _, file in files), np.uint8),
    }
    return container.dump(Packed(meta, arrays))


def unpack_shards(data: bytes, where: str) -> CounterShards:
    """The inverse of ``pack_shards``.

    Errors:
        StoreDamagedError: it was changed. StoreFormatError: a newer version wrote it.
    """
    packed = container.load(data, where=where)
    arrays, names = packed.arrays, packed.meta["names"]
    keys = arrays["keys"].tobytes()
    keys_of = [keys[start : start + _KEY] for start in range(0, len(keys), _KEY)]
    tags = arrays["tags"].tobytes()
    files: dict[int, list[CounterFile]] = {}
    width = int(packed.meta.get("width", COUNTER))
    columns = (arrays[name].tolist() for name in ("shard", "users", "key"))
    for number, (name, shard, users, key) in enumerate(zip(names, *columns, strict=True)):
        file = CounterFile(str(name), users, tags[_TAG * number : _TAG * (number + 1)], keys_of[key], width)
        files.setdefault(shard, []).append(file)
    return CounterShards(int(packed.meta["shards"]), {one: tuple(found) for one, found in files.items()})


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
