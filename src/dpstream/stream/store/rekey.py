"""Another key for a store, or its first one, or none: every sealed value is written anew, in one transaction.

Guarantee: killed or failing anywhere, the store is as it was, with the old key, or whole with the new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpstream.core import durable
from dpstream.stream.store.archive import locked_store
from dpstream.stream.store.encryption import StateKey, key_name, mark, sealing_for, unlock
from dpstream.stream.store.place import refuse_moved
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.present_rows import reseal_present
from dpstream.stream.store.sealed_history import (
    CLEANED,
    RESEALED,
    is_half_rekeyed,
    read_history,
    read_meta,
    write_log,
)
from dpstream.stream.store.sealing import Sealing
from dpstream.stream.store.staging import Staging
from dpstream.stream.store.store import POSITION, staged_files
from dpstream.stream.store.store_database import StoreDatabase, file_errors

#: Table, column of bytes, kind, and the columns that name the row.
_VALUES = (
    ("reservation", "content", "reservation", ("step",)),
    ("steps", "content", "content", ("step",)),
    ("steps", "synthesis", "synthesis", ("step",)),
    ("files", "bytes", "file", ("step", "name")),
    ("state", "packed", "state", ("step",)),
    ("contribution", "checksum", "checksum", ("step",)),
    ("present_sum", "checksum", "present sum", ("step",)),
    ("state_parts", "packed", "state part", ("name",)),
)
#: Table, kind, column of numbers (``sealed`` beside it), and the column that names the row.
_COUNTS = (("contribution", "dropped", "dropped", "step"), ("users", "events", "events", "id"))
#: Table and kind.
_POSITIONS = (("position", "position"), ("reserved_position", "reserved position"))
_ROWS = 5000


def stored_key(path: Path, *, server: PostgresServer | None = None) -> str | None:
    """The name of the key that the store of ``path`` is encrypted with; None where it is not.

    Errors:
        ConfigError: there is no stream. StoreLockedError: a stream has it open.
    """
    with locked_store(path, server) as (db, _):
        return key_name(db)


def rekey_store(
    path: Path,
    *,
    old: StateKey | None,
    new: StateKey | None,
    server: PostgresServer | None = None,
) -> None:
    """Encrypt a store with ``new``, or with None decrypt it; then leave no trace of the old values in its files.

    A repetition is fine: where the store has the new key already, only the traces are removed.

    Errors:
        ConfigError: no stream. StoreError: ``old`` is not its key, or it was moved away.

    Cost: reads and writes the whole store; SQLite needs room for it three times.
    """
    with locked_store(path, server) as (db, where):
        refuse_moved(db, where)
        done = key_name(db) == (None if new is None else new.name)
        unlock(db, new if done else old)
        meta = read_meta(db)
        last_step = read_history(db, meta, where).last_step
        fresh, waiting = sealing_for(new, meta["stream_id"], where), staged_files(db)
        if not done:
            with file_errors("files that wait to be published could not be sealed anew", path):
                Staging(path).reseal(waiting, db.sealing, fresh)
            db.begin()
            try:
                _reseal(db, fresh)
                mark(db, fresh)
                # Until the old values are gone from the database's files, every check says that they are not.
                write_log(db, meta["key"], last_step, RESEALED)
                durable.commit(db)
            except BaseException:
                db.rollback()
                raise
        db.compact()
        with file_errors("files that wait to be published could not be removed", path):
            Staging(path).sweep(waiting, fresh)
        if is_half_rekeyed(db):
            db.begin()
            try:
                write_log(db, meta["key"], last_step, CLEANED)
                durable.commit(db)
            except BaseException:
                db.rollback()
                raise


def _reseal(db: StoreDatabase, new: Sealing) -> None:
    old = db.sealing
    (key,) = db.execute("SELECT value FROM meta WHERE key = 'key'").fetchone()
    db.execute("UPDATE meta SET value = ? WHERE key = 'key'", (new.seal(old.open(key, "key"), "key"),))
    for table, column, kind, names in _VALUES:
        row_is = " AND ".join(f"{name} = ?" for name in names)
        places = db.execute(
            f"SELECT {', '.join(names)} FROM {table} WHERE {column} IS NOT NULL ORDER BY 1"
        ).fetchall()
        for place in places:
            (data,) = db.execute(f"SELECT {column} FROM {table} WHERE {row_is}", place).fetchone()
            sealed = new.seal(old.open(data, kind, *place), kind, *place)
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {row_is}", (sealed, *place))
    reseal_present(db, new)
    for table, kind in _POSITIONS:
        for step, source in db.execute(f"SELECT step, source FROM {table}").fetchall():
            text = new.seal_text(old.open_text(source, kind, step), kind, step, least=POSITION)
            db.execute(f"UPDATE {table} SET source = ? WHERE step = ?", (text, step))
    for table, column, kind, name in _COUNTS:
        for rows in _chunks(db, f"SELECT {name}, {column}, sealed FROM {table}"):
            counts = [(place, old.open_count(count, sealed, kind, place)) for place, count, sealed in rows]
            db.executemany(
                f"UPDATE {table} SET {column} = ?, sealed = ? WHERE {name} = ?",
                [(*new.seal_count(count, kind, place), place) for place, count in counts],
            )


def _chunks(db: StoreDatabase, query: str) -> Iterator[list[tuple[int | bytes, int, bytes | None]]]:
    rows = db.execute(query).fetchall()
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]
