"""The events admitted of each user: rows of the store, exact, and a few bytes for each; or files beside it.

The table holds keyed hashes of user ids, and a checksum tells whether a counter was changed or lost. Where the counters
are files, which Spark's executors read and write, the table is empty, and in the place of the checksum there are their
names. All writing happens inside the step's transaction.

Trusted base: store (holds counters of users).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.tables.access import CounterFile, CounterShards, ShardedEvents, UserEvents
from dpstream.core.tables.contribution import (
    ID_BYTES,
    EventCounts,
    checksum,
)
from dpstream.core.tables.counter_files import damaged_files, file_bytes, missing_files
from dpstream.stream.store import container
from dpstream.stream.store.lock import USERS
from dpstream.stream.store.sealed_history import COUNTERS, USER_SUM, derive, read_latest, write_latest
from dpstream.stream.store.store_database import (
    StoreDatabase,
    key_chunks,
    opened_values,
    put_values,
    value_pages,
)

# The counters of users, or the records that are present, in files: what the store says of them, and
# whether they are what it says.
#
# The files are in the folder ``users`` of the secret state directory, or where a link of that name leads, in a folder
# named by the stream's id: executors on other machines have to see it under the same path. The value ``user sum``
# has in the place of a checksum the names of the files, their sizes, keys and tags. Nothing else makes a file
# believed, so that a stop between the files and the transaction leaves files that nobody reads, which are removed.

_FORMAT = 1
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
    """What the store says of the files."""
    files = [
        [shard, file.name, file.users, file.tag.hex(), file.key.hex(), file.width]
        for shard in sorted(shards.files)
        for file in shards.files[shard]
    ]
    return container.dump(Packed({"format": _FORMAT, "shards": shards.number, "files": files}, {}))


def unpack_shards(data: bytes, where: str) -> CounterShards:
    """The inverse of ``pack_shards``.

    Errors:
        StoreDamagedError: it was changed. StoreFormatError: another version wrote it.
    """
    meta = container.load(data, where=where).meta
    files: dict[int, tuple[CounterFile, ...]] = {}
    for shard, name, users, tag, key, width in meta["files"]:
        file = CounterFile(name, users, bytes.fromhex(tag), bytes.fromhex(key), width)
        files[shard] = (*files.get(shard, ()), file)
    return CounterShards(int(meta["shards"]), files)


_WORD = 2**64
#: Bytes of a checksum, and of a counter.
_CHECKSUM, _COUNTER = 8, 4
_USERS = "users"


def read_events(db: StoreDatabase, ids: list[bytes]) -> EventCounts:
    """Events admitted so far of some users; 0 for those that never came. Any order; a sorted one is faster.

    Cost: where the batch's users are many of all users, ranges of ids are read whole (under a second for 10^6), else
    each id is looked up (twice that). Memory: what a query's ids take, and 8 bytes for each id.
    """
    events, dense, start = np.zeros(len(ids), np.int64), True, 0
    for part, marks in key_chunks(ids):
        most = 4 * len(part)
        rows: list[tuple[bytes, bytes]] = []
        if dense:
            span = (min(part), max(part), most)
            rows = db.execute(
                "SELECT key, value FROM users WHERE key BETWEEN ? AND ? LIMIT ?", span
            ).fetchall()
            dense = len(rows) < most
        if not dense:
            rows = db.execute(f"SELECT key, value FROM users WHERE key IN ({marks})", part).fetchall()
        counts = _counts(opened_values(db, _USERS, rows)).tolist()
        known = dict(zip((bytes(user) for user, _ in rows), counts, strict=True))
        events[start : start + len(part)] = [known.get(user, 0) for user in part]
        start += len(part)
    return events


def read_shards(db: StoreDatabase, key: bytes) -> CounterShards | None:
    """The files of the counters; None where they are rows, or there are none yet.

    Args:
        key: of the store, here and below.
    """
    _, _, data = _stated(db, key)
    return None if len(data) <= _CHECKSUM else unpack_shards(data, db.where)


def write_events(db: StoreDatabase, key: bytes, step: int, changes: UserEvents | ShardedEvents) -> None:
    """The new counters, and what all of them add up to, inside the caller's transaction."""
    _, left_out, data = _stated(db, key)
    if isinstance(changes, ShardedEvents):
        stated = pack_shards(changes.shards)
    else:
        total = _write_rows(db, int.from_bytes(data, "little"), changes, derive(key, COUNTERS))
        stated = (total % _WORD).to_bytes(_CHECKSUM, "little")
    left_out += changes.dropped
    write_latest(db, key, USER_SUM, step, left_out.to_bytes(8, "little") + stated)


def _write_rows(db: StoreDatabase, total: int, changes: UserEvents, key: bytes) -> int:
    """The rows that changed; gives what all of them add up to."""
    changed = np.flatnonzero(changes.before != changes.after)
    old, new = changes.before[changed], changes.after[changed]
    ids = [changes.ids[i] for i in changed.tolist()]
    put_values(db, _USERS, ids, [count.to_bytes(_COUNTER, "little") for count in new.tolist()])
    known = np.flatnonzero(old)
    return total + checksum(ids, new, key) - checksum([ids[i] for i in known.tolist()], old[known], key)


def verify_events(db: StoreDatabase, key: bytes) -> str | None:
    """What is wrong with the counters; None if nothing is. Files are looked at by ``problem_of_files``.

    Cost: one pass, about a second for 10^6 users; memory for a page of them.
    """
    there, _, stated = _stated(db, key)
    total, many = 0, 0
    for ids, values in value_pages(db, _USERS):
        if not there:
            return "counters of users are there without their sum"
        if any(len(user) != ID_BYTES for user in ids) or any(len(value) != _COUNTER for value in values):
            return "a user's counter was changed"
        many += len(ids)
        total += checksum(ids, _counts(values), derive(key, COUNTERS))
    files = len(stated) > _CHECKSUM and not many
    if not files and stated != (total % _WORD).to_bytes(_CHECKSUM, "little"):
        return "a user's counter was changed or lost"
    return None


def dropped(db: StoreDatabase, key: bytes) -> int:
    """Events left out so far."""
    return _stated(db, key)[1]


def _stated(db: StoreDatabase, key: bytes) -> tuple[bool, int, bytes]:
    """Whether anything is said of counters; the events left out; the checksum of the rows, or what is said of files."""
    stored = read_latest(db, key, USER_SUM)
    if stored is None:
        return False, 0, bytes(_CHECKSUM)
    return True, int.from_bytes(stored[1][:8], "little"), stored[1][8:]


def _counts(values: list[bytes]) -> NDArray[np.int64]:
    return np.frombuffer(b"".join(values), "<u4").astype(np.int64)
