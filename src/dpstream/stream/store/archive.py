"""A whole store as one portable file, for copies and for moves between databases.

An archive is a SQLite store with the same tables and the same rows, which refuses to be opened as a stream: where
others say that they were moved, it says what it is (``copy`` or ``moving``). It is as secret as the store; that of an
encrypted store holds the same encrypted values, and is taken in with the same key. Behind the last page stands the
SHA-256 of all pages, so that no changed byte is taken in, and behind that the number of the import that took it in.
Everything in an archive is checked when it is taken in, as ``dpstream store check`` does.

A stream must not exist twice, so an archive is taken in only where it moved (its source refuses to go on), or
where the witness in the state directory says that it is the newest there is.

An archive that moved is taken in once. The import draws a number, notes it in the head file of the new place, then
behind the archive, and only then makes the store. Whoever finds another number there than in the head file refuses. A
stop in between leaves the number in the head file, and the same import goes on with it.

Trusted base: owner (moves private state unseen).
"""

from __future__ import annotations

import fcntl
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError, StoreLockedError
from dpstream.stream.identity import require_same_plan
from dpstream.stream.store.encryption import StateKey, unlock
from dpstream.stream.store.place import MOVED_AWAY, StoreBackend, is_moved, locked_place, locked_store
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    LEFT,
    MOVED,
    Head,
    SealedHistory,
    SealedLog,
    forget_latest,
    read_history,
    read_meta,
    read_open,
    stored_plan,
    write_open,
)
from dpstream.stream.store.sqlite import SQLiteDatabase, create_file
from dpstream.stream.store.store import Store, note_restored
from dpstream.stream.store.store_database import (
    STORE_TABLES,
    StoreDatabase,
    create_tables,
    file_errors,
    transaction,
)
from dpstream.stream.store.summed_rows import read_shards, user_folder
from dpstream.stream.store.upkeep import stored_problems

#: In the head file of a place that a stream left, instead of the number of an import.
_LEFT = "moved away"
#: What an archive says of itself.
_COPY, _MOVING = b"copy", b"moving"
#: Tables with a row, or some, of their own for each step, which may be large.
_BY_STEP = ("steps", "files")
_MAGIC = b"SQLite format 3\0"
#: Bytes that are read at once; those of the number of an import, which are followed by as many of its SHA-256.
_BLOCK, _NUMBER = 2**20, 16


def export_store(
    path: Path,
    out: Path,
    *,
    server: PostgresServer | None = None,
    move: bool = False,
    key: StateKey | None = None,
    outside: tuple[Path, ...] = (),
) -> int:
    """Write the store of ``path`` to the new file ``out``, and give the number of steps in it.

    Args:
        move: mark the store as moved: from then on it refuses to go on, and the archive may be imported.
        outside: the witnesses outside of the state, which note the move too.

    Errors:
        ConfigError: no stream, ``out`` exists, or counters of users are files. StoreDamagedError: the store does not
        hold together. StoreError: it was moved before (only ``move`` may write its archive once more).
    """
    if out.exists():
        raise ConfigError("the file exists", where=str(out), allowed="another name")
    unwritten = "the archive could not be written"
    with locked_store(path, server) as (db, where):
        unlock(db, key)
        meta = read_meta(db)
        if read_shards(db, meta["key"]) is not None:
            raise ConfigError(
                "users or records are files beside the store",
                where=where,
                allowed="a copy of the closed state directory and of users",
            )
        moved = is_moved(db)
        if moved and not move:
            raise StoreError(MOVED_AWAY, where=where, allowed="the place it was moved to")
        history = read_history(db, meta, where)
        witness = Head(path, outside)
        witness.check(history, where)
        temporary = out.with_name(f".{out.name}.tmp")
        last, entry = history.last, history.last_entry
        # The mark is durable before the archive gets its name: an archive that may be imported has no source that goes
        # on. Its entry in the log goes along, so that a database from before the move is seen here.
        with transaction(db):
            if move and not moved:
                entry = SealedLog(db, meta["key"]).add(history.last_step, LEFT)
                write_open(db, MOVED, history.last_step, b"")

            def fill(archive: StoreDatabase) -> None:
                create_tables(archive)
                _copy(db, archive, history.last_step)
                write_open(archive, MOVED, history.last_step, _MOVING if move else _COPY)

            with file_errors(unwritten, out):
                create_file(temporary, fill)
                _close_whole(temporary)
        if move:
            # Of a place that a stream left: without its store, too, it takes in no copy.
            witness.write(last, entry, importing=_LEFT)
        with file_errors(unwritten, out):
            durable.rename(temporary, out)
            durable.sync_directory(out.absolute().parent)
    return history.last_step


def archived_plan(archive: Path) -> dict[str, Any]:
    """The plan that an archive's stream is pinned to, as the archive says it; ``import_store`` checks the rest.

    Errors:
        ConfigError: no archive. StoreDamagedError: it was changed or cut short. StoreFormatError: in another format.
    """
    with _opened(archive), _archived(archive) as read:
        return stored_plan(read_meta(read.db), read.db.where)


def import_store(
    archive: Path,
    path: Path,
    facts: dict[str, Any],
    *,
    server: PostgresServer | None = None,
    key: StateKey | None = None,
) -> int:
    """Make the store of ``path`` (on ``server``, if given) from an archive, and give the number of steps in it.

    An archive that moved is marked as taken, so its file has to be writable. After a copy that replaces a lost store
    the stream waits for a decision (``Stream.discard_reservation``): the copy cannot know which step was under way.

    Args:
        facts: the plan that the stream has to belong to.

    Errors:
        ConfigError: a stream is there already, another plan, an archive whose source may still go on, one that was
            taken in before, or that cannot be marked.
        StoreDamagedError: the archive was changed or cut short, or is older than the witness in ``path``.
        StoreFormatError: in another format. StoreLockedError: another import has the archive.
    """
    with _opened(archive) as file:
        with _archived(archive) as read:
            pass
        if read.moving and read.taken is None and not file.writable():
            raise ConfigError(
                "the archive cannot be marked as imported", where=str(archive), allowed="a writable disk"
            )
        with locked_place(path, server) as (state, backend):
            before = _history_there(backend, key)
            witness = Head(state)

            def fill(db: StoreDatabase) -> None:
                create_tables(db)
                with _archived(archive) as source:
                    (last,) = source.db.execute("SELECT coalesce(max(step), 0) FROM steps").fetchone()
                    _copy(source.db, db, last)
                forget_latest(db, MOVED)
                history = _checked(db, key, facts, state, str(archive))
                store_key = read_meta(db)["key"]
                if read.moving and SealedLog(db, store_key).kinds()[-1] != LEFT:
                    raise StoreDamagedError("the archive's log has no move", where=str(archive))
                number = _allow_import(history, before, witness, read, str(archive))
                # First the witness: a store without it could be rolled back unseen, and one that is missing
                # is made by the same import again.
                witness.write(history.last, history.last_entry, importing=number)
                if number is None:
                    note_restored(db, store_key, last + 1)
                elif read.taken is None:
                    _mark_taken(file, read.size, number)

            backend.create(fill)
    with Store(path, facts, server=server, key=key) as store:
        return store.last_step


def _copy(source: StoreDatabase, target: StoreDatabase, last_step: int) -> None:
    """All rows of a store, sealed as they are, inside the callers' transactions."""
    for table in STORE_TABLES:
        cursor = source.execute(f"SELECT * FROM {table} LIMIT 0")
        names = ", ".join(item[0] for item in cursor.description)
        marks = ", ".join("?" * len(cursor.description))
        steps = range(1, last_step + 1) if table in _BY_STEP else (None,)
        for step in steps:
            which = ("", ()) if step is None else (" WHERE step = ?", (step,))
            rows = source.execute(f"SELECT {names} FROM {table}{which[0]}", which[1]).fetchall()
            target.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)


def _checked(
    db: StoreDatabase, key: StateKey | None, facts: dict[str, Any], path: Path, where: str
) -> SealedHistory:
    """The history of a store that was just copied from an archive, once everything in it was checked."""
    unlock(db, key)
    meta = read_meta(db)
    history = read_history(db, meta, where)
    require_same_plan(stored_plan(meta, where), facts, where)
    for problem in stored_problems(db, meta["key"], history.last_step, user_folder(path, meta)):
        raise StoreDamagedError(f"the archive was changed: {problem}", where=where)
    return history


@contextmanager
def _opened(archive: Path) -> Iterator[BinaryIO]:
    """Keep an archive to one import at a time (the kernel gives the lock up when the process dies)."""
    with file_errors("the archive could not be read", archive):
        try:
            file: BinaryIO = archive.open("r+b", buffering=0)
        except OSError:
            file = archive.open("rb", buffering=0)
        # Open until no connection is: the first descriptor that is closed takes the locks of all others along.
        with file:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLockedError("another import reads the archive", where=str(archive)) from None
            if file.read(len(_MAGIC)) != _MAGIC:
                raise _no_archive(archive)
            yield file


@dataclass(frozen=True)
class _Archive:
    """An archive whose pages, format and tables are sound.

    Attributes:
        moving: whether its source refuses to go on; else it is a copy.
        taken: the number of the import that took it in.
        size: bytes of its pages and of their SHA-256.
    """

    db: SQLiteDatabase
    moving: bool
    taken: str | None
    size: int


@contextmanager
def _archived(archive: Path) -> Iterator[_Archive]:
    db = SQLiteDatabase(archive, read_only=True)
    try:
        with db.errors():
            db.verify_structure()
            kind = read_open(db, MOVED)
            if not kind:
                raise _no_archive(archive)
            size = db.size()
            digest, behind = _pages(archive, size)
            wrong = db.verify_all() if behind.startswith(digest) else "its SHA-256 differs"
            # A mark that was cut short is of an import that has made no store.
            mark = behind[len(digest) :]
            whole = len(mark) >= 2 * _NUMBER and any(mark)
            if wrong is None and (kind not in (_COPY, _MOVING) or (whole and mark != _mark(mark[:_NUMBER]))):
                wrong = "its mark is missing"
            if wrong is not None:
                raise StoreDamagedError(f"the archive was changed or cut short: {wrong}", where=db.where)
            taken = mark[:_NUMBER].hex() if whole else None
            yield _Archive(db, kind == _MOVING, taken, size + len(digest))
    finally:
        db.close()


def _no_archive(archive: Path) -> ConfigError:
    return ConfigError("expected an archive", where=str(archive), allowed="a file of dpstream store export")


def _mark(number: bytes) -> bytes:
    return number + hashlib.sha256(number).digest()[:_NUMBER]


def _mark_taken(file: BinaryIO, size: int, number: str) -> None:
    """Write the number of the import behind the archive, durably; what an import that was stopped left is replaced."""
    file.truncate(size)
    file.seek(size)
    durable.write(file.fileno(), _mark(bytes.fromhex(number)))
    durable.sync_file(file.fileno())


def _close_whole(archive: Path) -> None:
    """Make an archive one file, which can be read from where nothing can be written, with the SHA-256 of its pages."""
    db = SQLiteDatabase(archive)
    try:
        with db.errors():
            db.execute("PRAGMA journal_mode = DELETE")
            size = db.size()
    finally:
        db.close()
    with archive.open("r+b", buffering=0) as file:
        file.truncate(size)
        file.seek(size)
        durable.write(file.fileno(), _pages(archive, size)[0])
        durable.sync_file(file.fileno())


def _pages(archive: Path, size: int) -> tuple[bytes, bytes]:
    """The SHA-256 of an archive's pages, which are so many bytes; and what stands behind them."""
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        while block := file.read(min(_BLOCK, size - file.tell())):
            digest.update(block)
        return digest.digest(), file.read(digest.digest_size + 2 * _NUMBER + 1)


def _history_there(backend: StoreBackend, key: StateKey | None) -> SealedHistory | None:
    """The history of the store that was moved away from here; None where there never was one."""
    if not backend.exists():
        return None
    db = backend.connect()
    with db.errors():
        db.verify_structure()
        if not is_moved(db):
            backend.release(db)
            raise ConfigError("there is a stream already", where=backend.where, allowed="an empty place")
        unlock(db, key)
        history = read_history(db, read_meta(db), backend.where)
    backend.release(db)
    return history


def _allow_import(
    history: SealedHistory,
    before: SealedHistory | None,
    witness: Head,
    archive: _Archive,
    where: str,
) -> str | None:
    """Refuse what would make two streams of one, or a stream that forgets steps.

    Gives the number of the import; None for a copy, which replaces a store that was lost.
    """
    if before is not None and not before.seals.items() <= history.seals.items():
        raise ConfigError(
            "the moved store has another or a longer history",
            where=where,
            allowed="the stream's newest archive",
        )
    known, moving = witness.read(where), archive.moving
    noted = None if known is None else known.importing
    if known is not None and (moving or noted != _LEFT):
        witness.check(history, where)
    if moving and archive.taken in (None, noted):
        return secrets.token_hex(16) if noted in (None, _LEFT) else noted
    # A store was lost here at this very step: none that was moved away, and none that an import has yet to make.
    lost = known is not None and (known.seal, known.entry_seal) == (history.last[1], history.last_entry[1])
    if before is None and noted is None and lost:
        return None
    if moving:
        raise ConfigError(
            "the archive was imported already",
            where=where,
            allowed="the stream's present place, or a new store export --move there",
        )
    raise ConfigError(
        "the archive is a copy: the budget would be spent twice",
        where=where,
        allowed="store export --move; for a lost store, a copy as new as head.json",
    )
