"""The keyed records that are present, in the store: a row each, of which a step writes those that it changes.

A row is a hashed key (16 bytes) and one value: the first step (4 bytes) and the codes in the smallest integers that
hold the domain. In an encrypted store the value is sealed for its key. ``departed`` holds the hashed keys of records
that left, only where no key may come back; elsewhere nothing of a deleted record stays in a table.

``present_sum`` tells whether rows were changed or lost: sums over both tables of a keyed hash of each row
(``MultisetHash``), against damage, not against forgers (the key lies beside it), and the step that they stand at. All
writing happens inside the step's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import StoreDamagedError
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import KeyedChanges, MultisetHash, PresentTable
from dpstream.stream.store.store_database import Sealing, StoreDatabase

#: What the key of the sums is derived for.
PRESENT = b"present records"
_KEY_BYTES = 16
_FIRST_BYTES = 4
#: Keys of one query; SQLite takes 32,766 parameters, PostgreSQL 65,535.
_CHUNK = 10_000
#: Rows that are in memory at a time, where all are gone through.
_PAGE = 50_000
_SUM_BYTES = 16
_DAMAGED = "a present record was changed or lost"

Keys = NDArray[np.uint64]
Values = NDArray[np.uint8]


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


def write_present(db: StoreDatabase, step: int, change: PresentChange, key: bytes) -> None:
    """The rows that changed, and what all of them add up to, inside the caller's transaction.

    Cost: linear in the changes; SQLite writes at most a page (4 kB) for each.
    """
    keys, stays = change.changes.keys, change.changes.present
    place, there = change.before.find(keys)
    rows, left = _sums(db)
    rows = _less(rows, _hash(keys[there], _values(change.before, place[there]), key))
    at, _ = change.after.find(keys[stays])
    values = _values(change.after, at)
    rows = rows.merge(_hash(keys[stays], values, key))
    _put(db, keys[stays], values)
    gone = keys[there & ~stays]
    names = _as_bytes(gone)
    for start in range(0, len(names), _CHUNK):
        part = names[start : start + _CHUNK]
        db.execute(f"DELETE FROM present WHERE key IN ({', '.join('?' * len(part))})", part)
    if change.keep_keys and names:
        for start in range(0, len(names), _PAGE):
            db.insert("departed", {"key": names[start : start + _PAGE]}, "ON CONFLICT (key) DO NOTHING")
        left = left.merge(_hash(gone, np.zeros((len(gone), 0), np.uint8), key))
    summed = b"".join(
        one.total.to_bytes(_SUM_BYTES, "little") + one.rows.to_bytes(8, "little") for one in (rows, left)
    )
    db.execute("DELETE FROM present_sum")
    sealed = db.sealing.seal(summed, "present sum", step)
    db.execute("INSERT INTO present_sum (id, step, checksum) VALUES (1, ?, ?)", (step, sealed))


def read_present(db: StoreDatabase, domain: Domain, last_step: int, key: bytes) -> PresentTable:
    """All present records after ``last_step``.

    Errors:
        StoreDamagedError: a row was changed, lost or added.

    Cost: about a second and 60 MB for 10^6 records of 10 columns; 3 s where the store is encrypted.
    """
    empty = PresentTable.empty(domain)
    if last_step == 0:
        return empty
    kind = empty.codes.dtype.newbyteorder("<")
    width = _FIRST_BYTES + len(domain.sizes) * kind.itemsize
    total, keys, first, codes = MultisetHash(), [empty.keys], [empty.first], [empty.codes]
    for page, values in _pages(db):
        if values.shape[1] != width:
            raise StoreDamagedError(_DAMAGED, where=db.where)
        total = total.merge(_hash(page, values, key))
        keys.append(page)
        first.append(np.ascontiguousarray(values[:, :_FIRST_BYTES]).view("<i4")[:, 0].astype(np.int32))
        codes.append(
            np.ascontiguousarray(values[:, _FIRST_BYTES:]).view(kind).astype(empty.codes.dtype, order="F")
        )
    _compare(db, last_step, total)
    found = PresentTable(domain, np.concatenate(keys), np.concatenate(first), _stacked(codes))
    if len(found) and not 1 <= found.first.min() <= found.first.max() <= last_step:
        raise StoreDamagedError(_DAMAGED, where=db.where)
    return found


def any_departed(db: StoreDatabase, keys: Keys) -> bool:
    """Whether any of these keys left before. Cost: a look at each, none where no key ever left."""
    if db.execute("SELECT 1 FROM departed LIMIT 1").fetchone() is None:
        return False
    names = _as_bytes(keys)
    for start in range(0, len(names), _CHUNK):
        part = names[start : start + _CHUNK]
        marks = ", ".join("?" * len(part))
        if db.execute(f"SELECT 1 FROM departed WHERE key IN ({marks}) LIMIT 1", part).fetchone() is not None:
            return True
    return False


def verify_present(db: StoreDatabase, last_step: int, key: bytes) -> str | None:
    """What is wrong with the present records and the keys that left; None if nothing is.

    Cost: as ``read_present``; memory for ``_PAGE`` of them.
    """
    if db.execute("SELECT 1 FROM present_sum").fetchone() is None:
        tables = ("present", "departed")
        there = any(db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None for name in tables)
        return "present records are there without their sum" if there else None
    total, left = MultisetHash(), MultisetHash()
    try:
        for page, values in _pages(db):
            total = total.merge(_hash(page, values, key))
        for page in _departed_pages(db):
            left = left.merge(_hash(page, np.zeros((len(page), 0), np.uint8), key))
        _compare(db, last_step, total, left)
    except StoreDamagedError as error:
        return error.what
    return None


def reseal_present(db: StoreDatabase, new: Sealing) -> None:
    """Every row sealed anew, inside the caller's transaction."""
    old, last, after = db.sealing, b"", ">="
    query = "SELECT key, record FROM present WHERE key {} ? ORDER BY key LIMIT ?"
    while rows := db.execute(query.format(after), (last, _PAGE)).fetchall():
        opened = [(bytes(name), old.open(bytes(data), "present", bytes(name))) for name, data in rows]
        sealed = [(new.seal(data, "present", name), name) for name, data in opened]
        db.executemany("UPDATE present SET record = ? WHERE key = ?", sealed)
        last, after = opened[-1][0], ">"


def _put(db: StoreDatabase, keys: Keys, values: Values) -> None:
    for start in range(0, len(keys), _PAGE):
        names, records = _as_bytes(keys[start : start + _PAGE]), _rows_of(values[start : start + _PAGE])
        if db.sealing.name is not None:
            records = [
                db.sealing.seal(data, "present", name) for name, data in zip(names, records, strict=True)
            ]
        rows = {"key": names, "record": records}
        db.insert("present", rows, "ON CONFLICT (key) DO UPDATE SET record = excluded.record")


def _pages(db: StoreDatabase) -> Iterator[tuple[Keys, Values]]:
    """All present records in the order of their keys: keys, and values as rows of bytes."""
    last, after = b"", ">="
    query = "SELECT key, record FROM present WHERE key {} ? ORDER BY key LIMIT ?"
    while rows := db.execute(query.format(after), (last, _PAGE)).fetchall():
        names, data = [name for name, _ in rows], [record for _, record in rows]
        if db.sealing.name is not None:
            data = [db.sealing.open(bytes(one), "present", bytes(name)) for name, one in rows]
        yield _as_keys(db, names), _as_values(db, data)
        last, after = bytes(names[-1]), ">"


def _departed_pages(db: StoreDatabase) -> Iterator[Keys]:
    last, after = b"", ">="
    query = "SELECT key FROM departed WHERE key {} ? ORDER BY key LIMIT ?"
    while rows := db.execute(query.format(after), (last, _PAGE)).fetchall():
        yield _as_keys(db, [name for (name,) in rows])
        last, after = bytes(rows[-1][0]), ">"


def _sums(db: StoreDatabase) -> tuple[MultisetHash, MultisetHash]:
    """Of the present records and of the keys that left, as they were committed last."""
    row = db.execute("SELECT step, checksum FROM present_sum").fetchone()
    if row is None:
        return MultisetHash(), MultisetHash()
    data = db.sealing.open(bytes(row[1]), "present sum", row[0])
    half = _SUM_BYTES + 8
    if len(data) != 2 * half:
        raise StoreDamagedError(_DAMAGED, where=db.where)
    parts = (data[:half], data[half:])
    first, second = (
        MultisetHash(int.from_bytes(part[:_SUM_BYTES], "little"), int.from_bytes(part[_SUM_BYTES:], "little"))
        for part in parts
    )
    return first, second


def _compare(db: StoreDatabase, last_step: int, rows: MultisetHash, left: MultisetHash | None = None) -> None:
    stands = db.execute("SELECT step FROM present_sum").fetchone()
    stored, departed = _sums(db)
    if stands is None or stands[0] != last_step or stored != rows or left not in (None, departed):
        raise StoreDamagedError(_DAMAGED, where=db.where)


def _less(total: MultisetHash, part: MultisetHash) -> MultisetHash:
    return total.merge(MultisetHash(-part.total % 2 ** (8 * _SUM_BYTES), -part.rows))


def _hash(keys: Keys, values: Values, key: bytes) -> MultisetHash:
    """Of rows: the two words of the key, and those of its value, filled up with zeros."""
    words = -(-values.shape[1] // 8)
    padded = np.zeros((len(keys), 8 * words), np.uint8)
    padded[:, : values.shape[1]] = values
    row = np.empty((len(keys), 2 + words), np.int64)
    row[:, :2], row[:, 2:] = keys.view(np.int64), padded.view("<i8")
    return MultisetHash.of(np.zeros((len(keys), 0), np.int32), row, key)


def _values(table: PresentTable, place: NDArray[np.int64]) -> Values:
    """The stored values of some records, a row of bytes each."""
    codes = np.ascontiguousarray(table.codes[place]).astype(table.codes.dtype.newbyteorder("<"), copy=False)
    first = table.first[place].astype("<i4")[:, None]
    return np.concatenate([first.view(np.uint8), codes.view(np.uint8)], axis=1)


def _rows_of(values: Values) -> list[bytes]:
    if not len(values):
        return []
    return list(np.ascontiguousarray(values).view(f"V{values.shape[1]}")[:, 0].tolist())


def _as_bytes(keys: Keys) -> list[bytes]:
    """As they stand in the store: in the order of their bytes they ascend, too."""
    return list(np.frombuffer(keys.astype(">u8").tobytes(), f"V{_KEY_BYTES}").tolist())


def _as_keys(db: StoreDatabase, names: list[Any]) -> Keys:
    data = b"".join(names)
    if len(data) != _KEY_BYTES * len(names) or any(len(name) != _KEY_BYTES for name in names):
        raise StoreDamagedError(_DAMAGED, where=db.where)
    return np.frombuffer(data, ">u8").reshape(-1, 2).astype(np.uint64)


def _as_values(db: StoreDatabase, records: list[Any]) -> Values:
    width = len(records[0])
    if any(len(one) != width for one in records):
        raise StoreDamagedError(_DAMAGED, where=db.where)
    return np.frombuffer(b"".join(records), np.uint8).reshape(-1, width)


def _stacked(parts: list[NDArray[np.integer]]) -> NDArray[np.integer]:
    """One column-major array."""
    out = np.empty((sum(map(len, parts)), parts[0].shape[1]), parts[0].dtype, order="F")
    start = 0
    for part in parts:
        out[start : start + len(part)] = part
        start += len(part)
    return out
