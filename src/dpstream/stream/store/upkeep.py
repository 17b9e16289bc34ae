"""Looking after a store: is it sound, and another key for its values.

Trusted base: owner (checks private state).
"""

from __future__ import annotations

from pathlib import Path

from dpstream.core.errors import StoreDamagedError, StoreError
from dpstream.core.paths import parse_json, sha256_hex
from dpstream.io.sinks.target import NOTICE
from dpstream.stream.store import container
from dpstream.stream.store.encryption import StateKey, key_name, mark, sealing_for, unlock
from dpstream.stream.store.place import locked_store, refuse_moved
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    CLEANED,
    RESEALED,
    SealedLog,
    is_half_rekeyed,
    read_history,
    read_meta,
    read_open,
    sealed_names,
)
from dpstream.stream.store.staging import Staging
from dpstream.stream.store.step_rows import verify_state
from dpstream.stream.store.store import staged_files
from dpstream.stream.store.store_database import (
    VALUE_TABLES,
    Sealing,
    StoreDatabase,
    file_errors,
    transaction,
)
from dpstream.stream.store.summed_rows import (
    problem_of_files,
    read_shards,
    reseal_values,
    verify_events,
    verify_present,
    verify_values,
)

#: Publication states of a step (``ReleasePublisher``).
_PUBLICATIONS = {"pending", "published", "held", "expiring", "expired", "unpublished", "dropped"}
#: Those with a notice.
_TAKEN_BACK = {"withdrawing", "withdrawn", "rejected"}


def stored_problems(db: StoreDatabase, key: bytes, last_step: int, users: Path) -> list[str]:
    """Check everything that no seal of a step covers, against checksums: the packed state, the models, the released
    bytes that wait, the log of a rekeying, users' counters (rows or files) and present records.

    Args:
        users: the folder of the files.
    """
    problems: list[str] = []
    if is_half_rekeyed(db):
        problems.append(
            "dpstream store rekey was interrupted: values under the old key may remain; run it again"
        )
    try:
        shards = read_shards(db, key)
        files = None if shards is None else problem_of_files(users, shards, last_step, everything=True)
        found = (verify_events(db, key), files, verify_present(db, key), verify_values(db, key))
        problems += [problem for problem in found if problem is not None]
    except StoreDamagedError as error:
        problems.append(error.what)
    wrong = verify_state(db, key)
    problems += [] if wrong is None else [f"the stored state: {wrong}"]
    before = ""
    for step in range(1, last_step + 1):
        manifest, digest, packed, publication = db.execute(
            "SELECT manifest, manifest_sha256, synthesis, publication FROM steps WHERE step = ?", (step,)
        ).fetchone()
        if publication not in _PUBLICATIONS | _TAKEN_BACK:
            problems.append(f"the publication state of step {step} was changed")
        # Nothing else vouches for the hash of a file whose bytes are gone.
        listed = {name: facts["sha256"] for name, facts in parse_json(manifest).get("files", {}).items()}
        stored = db.execute("SELECT name, sha256, bytes FROM files WHERE step = ?", (step,)).fetchall()
        rows = {name: known for name, known, _ in stored}
        noticed = rows.pop(NOTICE, None) is not None
        if before in _TAKEN_BACK and rows != listed:
            # The step's changes went with the table that they changed, and its own table took their place.
            listed = {name: known for name, known in listed.items() if not name.startswith("changes.")}
            rows = {
                name: known for name, known in rows.items() if name in listed or name.startswith("changes.")
            }
        before = publication
        if rows != listed or noticed != (publication in _TAKEN_BACK):
            problems.append(f"the record of the files of step {step} was changed")
        if sha256_hex(manifest) != digest:
            problems.append(f"the stored manifest of step {step} was changed")
        if packed is not None:
            try:
                container.load(db.sealing.open(packed, "synthesis", step), where="store")
            except StoreError as error:
                problems.append(f"the stored model of step {step}: {error.what}")
        for name, wanted, data in stored:
            try:
                opened = None if data is None else db.sealing.open(data, "file", step, name)
            except StoreDamagedError:
                opened = b""
            if opened is not None and sha256_hex(opened) != wanted:
                problems.append(f"the stored {name} of step {step} was changed")
    return problems


# Another key for a store, or its first one, or none: every sealed value is written anew, in one transaction.
#
# Guarantee: killed or failing anywhere, the store is as it was, with the old key, or whole with the new one.

#: Table, column of bytes, kind, and the columns that name the row.
_VALUES = (
    ("steps", "content", "content", ("step",)),
    ("steps", "synthesis", "synthesis", ("step",)),
    ("files", "bytes", "file", ("step", "name")),
)


def stored_key(path: Path, *, server: PostgresServer | None = None) -> str | None:
    """The name of the key that the store of ``path`` is encrypted with; None where it is not.

    Errors:
        ConfigError: the stream is missing. StoreLockedError: a stream has it open.
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
            with file_errors("waiting files could not be sealed anew", path):
                Staging(path).reseal(waiting, db.sealing, fresh)
            with transaction(db):
                _reseal(db, fresh)
                mark(db, fresh)
                # Until the old values are gone from the database's files, every check says that they are not.
                SealedLog(db, meta["key"]).add(last_step, RESEALED)
        db.compact()
        with file_errors("files could not be removed", path):
            Staging(path).sweep(waiting, fresh)
        if is_half_rekeyed(db):
            with transaction(db):
                SealedLog(db, meta["key"]).add(last_step, CLEANED)


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
    for table in VALUE_TABLES:
        reseal_values(db, table, new)
    for name, step in sealed_names(db):
        sealed = new.seal(old.open(read_open(db, name) or b"", name, step), name, step)
        db.execute("UPDATE latest SET value = ? WHERE name = ?", (sealed, name))
