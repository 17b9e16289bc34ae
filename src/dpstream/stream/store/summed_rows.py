"""The tables of which a step writes the rows that it changes: events of users, present records, keys that left, and
values that are not discovered yet.

A row is a hashed key (16 bytes) and a value, which is sealed for its key. The sum over a table of a keyed hash of each
row (``MultisetHash``) stands in ``latest`` with its step. It tells whether rows were changed or lost: against damage,
not against forgers (the key lies beside it). All writing happens inside the step's transaction.

Events of users: a counter each. Where the counters are files, which Spark's executors read and write, the table is
empty, and in the place of the sum there are their names. Present records: the first step (4 bytes) and the codes in the
smallest integers that hold the domain. ``departed`` holds the hashed keys of records that left, only where no key may
come back; elsewhere nothing of a deleted record stays in a table.

Trusted base: store (holds counters of users, and the records that are present).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed
from dpstream.core.errors import StoreDamagedError
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import KeyedChanges, MultisetHash, PresentTable
from dpstream.core.tables.access import CounterFile, CounterShards, ShardedEvents, UserEvents
from dpstream.core.tables.contribution import ID_BYTES, EventCounts, as_ids, as_words
from dpstream.core.tables.counter_files import damaged_files, file_bytes, missing_files
from dpstream.core.tables.undiscovered import Counts, PresentTexts, hash_values
from dpstream.stream.cut_users import NONE_CUT, PACKED, CutUsers
from dpstream.stream.store import container
from dpstream.stream.store.lock import USERS
from dpstream.stream.store.sealed_history import (
    COUNTERS,
    PRESENT_SUM,
    USER_SUM,
    VALUE_SUM,
    derive,
    read_latest,
    step_of,
    write_latest,
)
from dpstream.stream.store.store_database import Sealing, StoreDatabase

#: What the key of the sums of present records is derived for.
PRESENT = b"present records"
#: Keys of one query (SQLite takes 32,766 parameters, PostgreSQL 65,535), and rows that are in memory at a time.
_CHUNK, _PAGE = 10_000, 50_000
#: Bytes of a sum: the total, and the number of rows.
_TOTAL, _SUM = 16, 24
_FIRST_BYTES = 4
_DAMAGED = "a present record was changed or lost"

Keys = NDArray[np.uint64]
Values = NDArray[np.uint8]


# Values by a key.


def put_values(db: StoreDatabase, table: str, keys: list[bytes], values: list[bytes]) -> None:
    """Write each value, new or changed, sealed for its key."""
    for start in range(0, len(keys), _PAGE):
        some, data = keys[start : start + _PAGE], values[start : start + _PAGE]
        if db.sealing.name is not None:
            data = [db.sealing.seal(value, table, key) for key, value in zip(some, data, strict=True)]
        changed = "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        db.insert(table, {"key": some, "value": data}, changed)


def opened_values(db: StoreDatabase, table: str, rows: list[Any]) -> list[bytes]:
    """The values of rows of key and sealed value."""
    if db.sealing.name is None:
        return [value for _, value in rows]
    return [db.sealing.open(bytes(value), table, bytes(key)) for key, value in rows]


def value_pages(db: StoreDatabase, table: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """All keys and values in the order of the keys, ``_PAGE`` at a time."""
    for rows in _pages(db, table, "key, value"):
        yield [key for key, _ in rows], opened_values(db, table, rows)


def reseal_values(db: StoreDatabase, table: str, new: Sealing) -> None:
    """Every value sealed anew, inside the caller's transaction."""
    for keys, values in value_pages(db, table):
        pairs = [(bytes(key), value) for key, value in zip(keys, values, strict=True)]
        sealed = [(new.seal(value, table, key), key) for key, value in pairs]
        db.executemany(f"UPDATE {table} SET value = ? WHERE key = ?", sealed)


def key_chunks(keys: list[bytes]) -> Iterator[tuple[list[bytes], str]]:
    """Some keys at a time, each with the marks of as many parameters."""
    for start in range(0, len(keys), _CHUNK):
        part = keys[start : start + _CHUNK]
        yield part, ", ".join("?" * len(part))


def _pages(db: StoreDatabase, table: str, columns: str) -> Iterator[list[Any]]:
    last, after = b"", ">="
    query = f"SELECT {columns} FROM {table} WHERE key {{}} ? ORDER BY key LIMIT {_PAGE}"
    while rows := db.execute(query.format(after), (last,)).fetchall():
        yield rows
        last, after = bytes(rows[-1][0]), ">"


# Sums of rows.


def sum_of(keys: Keys, values: Values, key: bytes) -> MultisetHash:
    """Of rows: the two words of the key, and those of its value, filled up with zeros."""
    words = -(-values.shape[1] // 8)
    padded = np.zeros((len(keys), 8 * words), np.uint8)
    padded[:, : values.shape[1]] = values
    row = np.empty((len(keys), 2 + words), np.int64)
    row[:, :2], row[:, 2:] = keys.view(np.int64), padded.view("<i8")
    return MultisetHash.of(np.zeros((len(keys), 0), np.int32), row, key)


def _less(total: MultisetHash, part: MultisetHash) -> MultisetHash:
    return total.merge(MultisetHash(-part.total % 2 ** (8 * _TOTAL), -part.rows))


def _sum_bytes(total: MultisetHash) -> bytes:
    return total.total.to_bytes(_TOTAL, "little") + total.rows.to_bytes(_SUM - _TOTAL, "little")


def _sum_from(data: bytes) -> MultisetHash:
    return MultisetHash(int.from_bytes(data[:_TOTAL], "little"), int.from_bytes(data[_TOTAL:_SUM], "little"))


def _as_keys(names: list[Any], problem: str, where: str) -> Keys:
    if any(len(name) != ID_BYTES for name in names):
        raise StoreDamagedError(problem, where=where)
    return as_words(names)


def _as_values(records: list[Any], problem: str, where: str) -> Values:
    width = len(records[0]) if records else 0
    if any(len(record) != width for record in records):
        raise StoreDamagedError(problem, where=where)
    return np.frombuffer(b"".join(records), np.uint8).reshape(-1, width)


# The counters of users, in rows.

_USERS, _COUNTER = "users", 4
_CHANGED = "a user's counter was changed"


def read_events(db: StoreDatabase, ids: list[bytes]) -> EventCounts:
    """The counters of some users; 0 for those that never came. Any order; a sorted one is faster.

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
        counts = np.frombuffer(b"".join(opened_values(db, _USERS, rows)), "<u4").tolist()
        known = dict(zip((bytes(user) for user, _ in rows), counts, strict=True))
        events[start : start + len(part)] = [known.get(user, 0) for user in part]
        start += len(part)
    return events


def read_shards(db: StoreDatabase, key: bytes) -> CounterShards | None:
    """The files of the counters; None where they are rows, or there are none yet.

    Args:
        key: of the store, here and below.
    """
    _, _, _, data = _stated(db, key)
    return None if len(data) <= _SUM else unpack_shards(data, db.where)


def write_events(
    db: StoreDatabase, key: bytes, step: int, changes: UserEvents | ShardedEvents, cut: CutUsers
) -> None:
    """The new counters, what all of them add up to, and what is counted of users whom the bound cuts, inside the
    caller's transaction."""
    _, left_out, _, data = _stated(db, key)
    if isinstance(changes, ShardedEvents):
        stated = pack_shards(changes.shards)
    else:
        stated = _sum_bytes(_write_counters(db, _sum_from(data), changes, derive(key, COUNTERS)))
    left_out += changes.dropped
    write_latest(db, key, USER_SUM, step, left_out.to_bytes(8, "little") + cut.pack() + stated)


def forget_events(db: StoreDatabase, key: bytes, step: int) -> None:
    """Delete all counters, inside the caller's transaction: those of a public period that ends with this step."""
    _, left_out, cut, data = _stated(db, key)
    shards = None if len(data) <= _SUM else unpack_shards(data, db.where)
    stated = bytes(_SUM) if shards is None else pack_shards(CounterShards(shards.number))
    db.execute(f"DELETE FROM {_USERS}")
    write_latest(db, key, USER_SUM, step, left_out.to_bytes(8, "little") + cut.pack() + stated)


def _write_counters(db: StoreDatabase, total: MultisetHash, changes: UserEvents, key: bytes) -> MultisetHash:
    """The rows that changed; gives what all of them add up to."""
    changed = np.flatnonzero(changes.before != changes.after)
    ids, old = [changes.ids[i] for i in changed.tolist()], changes.before[changed]
    words, new = as_words(ids), _counters(changes.after[changed])
    put_values(db, _USERS, ids, _rows_of(new))
    return _less(total, sum_of(words[old > 0], _counters(old[old > 0]), key)).merge(sum_of(words, new, key))


def verify_events(db: StoreDatabase, key: bytes) -> str | None:
    """What is wrong with the counters; None if nothing is. Files are looked at by ``problem_of_files``.

    Cost: one pass, about a second for 10^6 users; memory for a page of them.
    """
    there, _, _, stated = _stated(db, key)
    total = MultisetHash()
    try:
        for ids, data in value_pages(db, _USERS):
            if not there:
                return "the sum of the users' counters is missing"
            values = _as_values(data, _CHANGED, db.where)
            if values.shape[1] != _COUNTER:
                return _CHANGED
            total = total.merge(sum_of(_as_keys(ids, _CHANGED, db.where), values, derive(key, COUNTERS)))
    except StoreDamagedError as error:
        return error.what
    files = len(stated) > _SUM and not total.rows
    return None if files or stated == _sum_bytes(total) else f"{_CHANGED} or lost"


def dropped(db: StoreDatabase, key: bytes) -> int:
    """Events left out so far."""
    return _stated(db, key)[1]


def read_cut(db: StoreDatabase, key: bytes) -> CutUsers:
    """What is counted of users whom the bound cuts."""
    return _stated(db, key)[2]


def _stated(db: StoreDatabase, key: bytes) -> tuple[bool, int, CutUsers, bytes]:
    """Whether anything is said of counters; the events left out; the users whom the bound cuts; the sum of the rows, or
    what is said of files."""
    stored = read_latest(db, key, USER_SUM)
    if stored is None:
        return False, 0, NONE_CUT, bytes(_SUM)
    data, end = stored[1], 8 + PACKED
    return True, int.from_bytes(data[:8], "little"), CutUsers.unpack(data[8:end]), data[end:]


def _counters(counts: NDArray[np.int64]) -> Values:
    return np.ascontiguousarray(counts, "<u4").view(np.uint8).reshape(-1, _COUNTER)


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
        return "a file of users is missing or cut short"
    chosen, size = files if everything else [], 0
    while not everything and len(chosen) < len(files) and size < _SAMPLE:
        chosen.append(files[(step + len(chosen)) % len(files)])
        size += file_bytes(chosen[-1])
    return "a file of users was changed" if damaged_files(folder, chosen) else None


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


# The records that are present.


@dataclass(frozen=True, repr=False)
class PresentChange:
    """What a step changes of the present records. Private.

    Attributes:
        before, after: the present records at the end of the step before, and of this one.
        changes: between the two.
        keep_keys: whether hashes of keys that left are kept, because no key may come back.
    """

    before: PresentTable
    after: PresentTable
    changes: KeyedChanges
    keep_keys: bool


def write_present(db: StoreDatabase, key: bytes, step: int, change: PresentChange) -> None:
    """The rows that changed, and what all of them add up to, inside the caller's transaction.

    Args:
        key: of the store, here and below.

    Cost: linear in the changes; SQLite writes at most a page (4 kB) for each.
    """
    secret = derive(key, PRESENT)
    keys, stays = change.changes.keys, change.changes.present
    place, there = change.before.find(keys)
    rows, left = _sums(db, key) or (MultisetHash(), MultisetHash())
    rows = _less(rows, sum_of(keys[there], _values(change.before, place[there]), secret))
    at, _ = change.after.find(keys[stays])
    values = _values(change.after, at)
    rows = rows.merge(sum_of(keys[stays], values, secret))
    put_values(db, "present", as_ids(keys[stays]), _rows_of(values))
    gone = keys[there & ~stays]
    names = as_ids(gone)
    for part, marks in key_chunks(names):
        db.execute(f"DELETE FROM present WHERE key IN ({marks})", part)
        if change.keep_keys:
            db.insert("departed", {"key": part}, "ON CONFLICT (key) DO NOTHING")
    if change.keep_keys:
        left = left.merge(_sum_of_keys(gone, secret))
    write_latest(db, key, PRESENT_SUM, step, _sum_bytes(rows) + _sum_bytes(left))


def read_present(
    db: StoreDatabase, key: bytes, domain: Domain, last_step: int, texts: PresentTexts | None = None
) -> PresentTable:
    """All present records after ``last_step``; ``texts`` as in the table.

    Errors:
        StoreDamagedError: a row was changed, lost or added.

    Cost: about a second and 60 MB for 10^6 records of 10 columns; 3 s where the store is encrypted.
    """
    empty = PresentTable.empty(domain, texts)
    if last_step == 0:
        return empty
    kind = empty.codes.dtype.newbyteorder("<")
    width = _FIRST_BYTES + len(domain.sizes) * kind.itemsize
    total, keys, first, codes = MultisetHash(), [empty.keys], [empty.first], [empty.codes]
    for page, values in _records(db):
        if values.shape[1] != width:
            raise StoreDamagedError(_DAMAGED, where=db.where)
        total = total.merge(sum_of(page, values, derive(key, PRESENT)))
        keys.append(page)
        first.append(np.ascontiguousarray(values[:, :_FIRST_BYTES]).view("<i4")[:, 0].astype(np.int32))
        codes.append(
            np.ascontiguousarray(values[:, _FIRST_BYTES:]).view(kind).astype(empty.codes.dtype, order="F")
        )
    sums = _sums(db, key)
    found = PresentTable(domain, np.concatenate(keys), np.concatenate(first), _stacked(codes), texts)
    if sums is None or sums[0] != total:
        raise StoreDamagedError(_DAMAGED, where=db.where)
    if len(found) and not 1 <= found.first.min() <= found.first.max() <= last_step:
        raise StoreDamagedError(_DAMAGED, where=db.where)
    return found


def any_departed(db: StoreDatabase, keys: Keys) -> bool:
    """Whether any of these keys left before. Cost: a look at each, none where no key ever left."""
    if db.execute("SELECT 1 FROM departed LIMIT 1").fetchone() is None:
        return False
    queries = (
        (f"SELECT 1 FROM departed WHERE key IN ({marks}) LIMIT 1", part)
        for part, marks in key_chunks(as_ids(keys))
    )
    return any(db.execute(query, part).fetchone() is not None for query, part in queries)


def verify_present(db: StoreDatabase, key: bytes) -> str | None:
    """What is wrong with the present records and the keys that left; None if nothing is.

    Cost: as ``read_present``; memory for a page of them.
    """
    total, left, secret = MultisetHash(), MultisetHash(), derive(key, PRESENT)
    try:
        for page, values in _records(db):
            total = total.merge(sum_of(page, values, secret))
        for rows in _pages(db, "departed", "key"):
            left = left.merge(_sum_of_keys(_as_keys([name for (name,) in rows], _DAMAGED, db.where), secret))
        sums = _sums(db, key)
    except StoreDamagedError as error:
        return error.what
    if sums is None:
        return "the sum of the present records is missing" if total.rows or left.rows else None
    return None if sums == (total, left) else _DAMAGED


def _records(db: StoreDatabase) -> Iterator[tuple[Keys, Values]]:
    """All present records in the order of their keys: keys, and values as rows of bytes."""
    for names, data in value_pages(db, "present"):
        yield _as_keys(names, _DAMAGED, db.where), _as_values(data, _DAMAGED, db.where)


def _sums(db: StoreDatabase, key: bytes) -> tuple[MultisetHash, MultisetHash] | None:
    """Of the present records and of the keys that left, as they were committed last; None before the first step."""
    stored = read_latest(db, key, PRESENT_SUM)
    if stored is None:
        return None
    if len(stored[1]) != 2 * _SUM:
        raise StoreDamagedError(_DAMAGED, where=db.where)
    return _sum_from(stored[1][:_SUM]), _sum_from(stored[1][_SUM:])


def _sum_of_keys(keys: Keys, key: bytes) -> MultisetHash:
    return sum_of(keys, np.zeros((len(keys), 0), np.uint8), key)


def _values(table: PresentTable, place: NDArray[np.int64]) -> Values:
    """The stored values of some records, a row of bytes each."""
    codes = np.ascontiguousarray(table.codes[place]).astype(table.codes.dtype.newbyteorder("<"), copy=False)
    first = table.first[place].astype("<i4")[:, None]
    return np.concatenate([first.view(np.uint8), codes.view(np.uint8)], axis=1)


def _rows_of(values: Values) -> list[bytes]:
    if not len(values):
        return []
    return list(np.ascontiguousarray(values).view(f"V{values.shape[1]}")[:, 0].tolist())


def _stacked(parts: list[NDArray[np.integer]]) -> NDArray[np.integer]:
    """One column-major array."""
    out = np.empty((sum(map(len, parts)), parts[0].shape[1]), parts[0].dtype, order="F")
    start = 0
    for part in parts:
        out[start : start + len(part)] = part
        start += len(part)
    return out


# Values that are not discovered yet. A row's key is the number of its column (2 bytes) and a keyed hash of the value
# (14 bytes); its value is how often it came in the open discovery epoch, and the text. No row is there before the epoch
# begins, and none after it ended. Where records have keys, it is the text's number plus 1, and the row stays while a
# present record has the text.

_VALUES, _COUNT_BYTES = "undiscovered", 8
#: What the key of the hashes and sums is derived for.
_VALUE_KEY = b"counts of undiscovered values"
#: The bits of a key's first word that are of the hash.
_LOW = np.uint64(2**48 - 1)
_CHANGED_VALUE = "the count of a value was changed or lost"


@dataclass(frozen=True, repr=False)
class ValueCounts:
    """What a step adds to the open discovery epoch. Private.

    Attributes:
        added: of each open column. ended: whether the epoch ends with the step, and all of it goes.
    """

    added: Counts
    ended: bool


def write_values(db: StoreDatabase, key: bytes, step: int, change: ValueCounts) -> None:
    """The counts that changed, and what all of them add up to, inside the caller's transaction.

    Cost: linear in the step's different values, of which ``_PAGE`` are objects at a time.
    """
    total = MultisetHash()
    if change.ended:
        db.execute(f"DELETE FROM {_VALUES}")
    else:
        secret = derive(key, _VALUE_KEY)
        stated = read_latest(db, key, VALUE_SUM)
        total = total if stated is None else _sum_from(stated[1])
        for words, texts, counts in _added(change.added, secret):
            ids, before = as_ids(words), np.zeros(len(counts), np.int64)
            for start, (part, marks) in enumerate(key_chunks(ids)):
                rows = db.execute(f"SELECT key, value FROM {_VALUES} WHERE key IN ({marks})", part).fetchall()
                there = {
                    bytes(k): _count(v)
                    for (k, _), v in zip(rows, opened_values(db, _VALUES, rows), strict=True)
                }
                before[start * _CHUNK :][: len(part)] = [there.get(name, 0) for name in part]
            after = before + counts
            values = [
                count.to_bytes(_COUNT_BYTES, "little") + text.encode()
                for count, text in zip(after.tolist(), texts.to_pylist(), strict=True)
            ]
            put_values(db, _VALUES, ids, values)
            gone = [name for name, count in zip(ids, after.tolist(), strict=True) if not count]
            for part, marks in key_chunks(gone):
                db.execute(f"DELETE FROM {_VALUES} WHERE key IN ({marks})", part)
            old, kept = before > 0, after > 0
            total = _less(total, sum_of(words[old], _as_counts(before[old]), secret))
            total = total.merge(sum_of(words[kept], _as_counts(after[kept]), secret))
    write_latest(db, key, VALUE_SUM, step, _sum_bytes(total))


def forget_records(db: StoreDatabase, key: bytes) -> None:
    """Delete the counters of users, the present records and the keys that left, which no later step reads, inside the
    caller's transaction."""
    if (step := step_of(db, USER_SUM)) is not None:
        forget_events(db, key, step)
    if (step := step_of(db, PRESENT_SUM)) is not None:
        for table in ("present", "departed"):
            db.execute(f"DELETE FROM {table}")
        write_latest(db, key, PRESENT_SUM, step, bytes(2 * _SUM))


def forget_counts(db: StoreDatabase, key: bytes) -> None:
    """The same of a stream that has no further step, and delete its counts of values."""
    forget_records(db, key)
    if (step := step_of(db, VALUE_SUM)) is not None:
        write_values(db, key, step, ValueCounts((), ended=True))


def read_values(db: StoreDatabase, key: bytes, column: int, added: Counts) -> Iterator[tuple[str, int]]:
    """All values of a column in the open discovery epoch, in the order of their hashes, with their counts.

    Args:
        column: its number. added: by the step that comes.

    Cost: one pass; memory for ``_PAGE`` rows, and for the step's different values.
    """
    secret, prefix = derive(key, _VALUE_KEY), column.to_bytes(2, "big")

    def stored() -> Iterator[tuple[bytes, str, int]]:
        last, after = prefix, ">="
        query = f"SELECT key, value FROM {_VALUES} WHERE key {{}} ? AND key < ? ORDER BY key LIMIT {_PAGE}"
        end = (column + 1).to_bytes(2, "big")
        while rows := db.execute(query.format(after), (last, end)).fetchall():
            for (name, _), value in zip(rows, opened_values(db, _VALUES, rows), strict=True):
                yield bytes(name), bytes(value[_COUNT_BYTES:]).decode(), _count(value)
            last, after = bytes(rows[-1][0]), ">"

    def fresh() -> Iterator[tuple[bytes, str, int]]:
        for words, texts, counts in _added(added[column : column + 1], secret, column):
            yield from zip(as_ids(words), texts.to_pylist(), counts.tolist(), strict=True)

    for _, rows in groupby(heapq.merge(stored(), fresh(), key=itemgetter(0)), key=itemgetter(0)):
        (_, text, count), *others = rows
        yield text, count + sum(more for _, _, more in others)


def verify_values(db: StoreDatabase, key: bytes) -> str | None:
    """What is wrong with the counts of values; None if nothing is. Cost: one pass; memory for a page."""
    import pyarrow as pa

    total, secret = MultisetHash(), derive(key, _VALUE_KEY)
    try:
        for names, values in value_pages(db, _VALUES):
            words = _as_keys([bytes(name) for name in names], _CHANGED_VALUE, db.where)
            texts = pa.array([bytes(value[_COUNT_BYTES:]) for value in values], pa.large_binary())
            hashes = hash_values(texts, secret)
            same = (hashes[:, 1] == words[:, 1]) & (hashes[:, 0] & _LOW == words[:, 0] & _LOW)
            if not same.all():
                return _CHANGED_VALUE
            total = total.merge(sum_of(words, _as_counts(np.array([_count(v) for v in values])), secret))
        stated = read_latest(db, key, VALUE_SUM)
    except StoreDamagedError as error:
        return error.what
    return None if total == (MultisetHash() if stated is None else _sum_from(stated[1])) else _CHANGED_VALUE


def _added(counts: Counts, secret: bytes, first: int = 0) -> Iterator[tuple[Keys, Any, NDArray[np.int64]]]:
    """Keys, texts and counts of a step, in the order of the keys, ``_PAGE`` at a time."""
    for column, (texts, own) in enumerate(counts, first):
        words = hash_values(texts, secret)
        words[:, 0] = (words[:, 0] & _LOW) | np.uint64(column << 48)
        order = np.lexsort((words[:, 1], words[:, 0]))
        for start in range(0, len(order), _PAGE):
            rows = order[start : start + _PAGE]
            yield words[rows], texts.take(rows), own[rows]


def _count(value: bytes) -> int:
    return int.from_bytes(value[:_COUNT_BYTES], "little")


def _as_counts(counts: NDArray[np.int64]) -> Values:
    return np.ascontiguousarray(counts, "<i8").view(np.uint8).reshape(-1, _COUNT_BYTES)
