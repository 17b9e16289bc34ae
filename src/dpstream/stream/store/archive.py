"""A whole store as one portable file, for copies and for moves between databases.

Layout: ``DPSTORE`` and a line feed, then frames: a length (uint64, little endian) and a container of JSON and
arrays (``container.py``, checksummed). The first frame says formats and steps, the last one holds the SHA-256
of all bytes before it. Every frame between holds rows of one table. An archive is as secret as the store;
that of an encrypted store holds the same encrypted values, and is taken in with the same key.

A stream must not exist twice, so an archive is taken in only where it moved (its source refuses to go on), or
where the witness in the state directory says that it is the newest there is.

An archive that moved is taken in once. The import draws a number, notes it in the head file of the new place, appends
it to the archive as one more frame, and only then makes the store. Whoever finds another number in the archive than in
the head file refuses. A stop in between leaves the number in the head file, and the same import goes on with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dpstream.core import durable
from dpstream.core.contracts import Packed
from dpstream.core.errors import (
    ConfigError,
    StoreDamagedError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
)
from dpstream.stream.identity import require_same_plan
from dpstream.stream.store import container
from dpstream.stream.store.encryption import StateKey, unlock
from dpstream.stream.store.lock import StateDirectory
from dpstream.stream.store.place import backend_for, is_moved
from dpstream.stream.store.postgres import PostgresServer
from dpstream.stream.store.sealed_history import (
    LEFT,
    Head,
    SealedHistory,
    read_history,
    read_meta,
    stored_plan,
    write_log,
)
from dpstream.stream.store.sqlite import DATABASE
from dpstream.stream.store.store import Store, note_restored
from dpstream.stream.store.store_database import (
    STORE_FORMAT,
    STORE_TABLES,
    StoreBackend,
    StoreDatabase,
    create_tables,
    file_errors,
    require_format,
)
from dpstream.stream.store.users import read_shards

_FORMAT = 1
_MAGIC = b"DPSTORE\n"
_LENGTH = struct.Struct("<Q")
_ROWS = 500
_BYTES = 8 * 2**20
#: In the head file of a place that a stream left, instead of the number of an import.
_LEFT = "moved away"
#: The tables of an archive. ``moved`` stays behind: it says something about the place, not about the stream.
_TABLES = tuple(name for name in STORE_TABLES if name != "moved")
#: Where a row of its own belongs to each step, and may be large.
_BY_STEP = ("steps", "files")


@contextmanager
def locked_store(path: Path, server: PostgresServer | None) -> Iterator[tuple[StoreDatabase, str]]:
    """Lock an existing store, and give it with its place: not unlocked, moved or not.

    Errors:
        ConfigError: there is none. StoreLockedError: a stream has it open.
    """
    if not path.is_dir():
        raise ConfigError(
            "there is no stream", where=str(path), allowed="a state directory that dpstream run made"
        )
    directory = StateDirectory(path, database=DATABASE)
    backend: StoreBackend | None = None
    try:
        backend = backend_for(directory.path, server)
        if not backend.exists():
            raise ConfigError(
                "there is no stream", where=backend.where, allowed="a state directory that dpstream run made"
            )
        db = backend.connect()
        try:
            with db.errors():
                db.verify_structure()
                yield db, backend.where
        finally:
            db.close()
    finally:
        if backend is not None:
            backend.close()
        directory.close()


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
        raise ConfigError("there is a file already", where=str(out), allowed="another name")
    with locked_store(path, server) as (db, where):
        unlock(db, key)
        if read_shards(db) is not None:
            raise ConfigError(
                "the counters of users (or the present records) are files beside the store, which an archive does not "
                "hold",
                where=where,
                allowed="a copy of the whole state directory while no stream has it open, and of the folder that the "
                "link users in it leads to",
            )
        moved = is_moved(db)
        if moved and not move:
            raise StoreError("this stream was moved away", where=where, allowed="the place it was moved to")
        meta = read_meta(db)
        history = read_history(db, meta, where)
        witness = Head(path, outside)
        witness.check(history, where)
        temporary = out.with_name(f".{out.name}.tmp")
        last, entry = (history.last_step, history.seals[-1]), (len(history.log) - 1, history.log[-1])
        # The mark is durable before the archive gets its name: an archive that may be imported has no source that goes
        # on. Its entry in the log goes along, so that a database from before the move is seen here.
        db.begin()
        try:
            if move and not moved:
                entry = write_log(db, meta["key"], history.last_step, LEFT)
                db.execute("INSERT INTO moved VALUES (1, ?)", (history.last_step,))
            with file_errors("the archive could not be written", out):
                _write_archive(db, temporary, history.last_step, moving=move)
            durable.commit(db)
        except BaseException:
            db.rollback()
            raise
        if move:
            # Of a place that a stream left: without its store, too, it takes in no copy.
            witness.write(last, entry, importing=_LEFT)
        with file_errors("the archive could not be written", out):
            durable.rename(temporary, out)
            durable.sync_directory(out.absolute().parent)
    return history.last_step


def _write_archive(db: StoreDatabase, path: Path, last_step: int, *, moving: bool) -> None:
    """Write all rows of a store to ``path`` (0600); they are on the disk when this returns."""
    durable.unlink(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        total = hashlib.sha256()

        def put(data: bytes) -> None:
            total.update(data)
            durable.write(descriptor, data)

        put(_MAGIC)
        head = {"archive": _FORMAT, "format": STORE_FORMAT, "moving": moving, "last_step": last_step}
        put(_frame(Packed(head, {})))
        for table in _TABLES:
            for packed in _pack_table(db, table, last_step):
                put(_frame(packed))
        durable.write(descriptor, _frame(Packed({"sha256": total.hexdigest()}, {})))
        durable.sync_file(descriptor)
    finally:
        os.close(descriptor)


def archived_plan(archive: Path) -> dict[str, Any]:
    """The plan that an archive's stream is pinned to, as the archive says it; ``import_store`` checks the rest.

    Errors:
        ConfigError: no archive. StoreDamagedError: it was changed or cut short. StoreFormatError: by a newer version.
    """
    where = str(archive)
    with file_errors("the archive could not be read", archive), archive.open("rb") as file:
        _verified(file, where)
        for packed, _ in _frames(file, where):
            if packed.meta.get("table") == "meta":
                meta = {str(key): value for key, value in (_row(row, packed) for row in packed.meta["rows"])}
                return stored_plan(meta, {}, where)
    raise StoreDamagedError("the stream's plan is missing", where=where)


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
        StoreFormatError: written by a newer version. StoreLockedError: another import has the archive.
    """
    with file_errors("the archive could not be read", archive), _opened(archive) as file:
        verified = _verified(file, str(archive))
        if verified.moving and verified.taken is None and not file.writable():
            raise ConfigError(
                "the archive cannot be marked as taken in, and a second import would make two streams of one",
                where=str(archive),
                allowed="the archive on a disk where it can be written",
            )
        directory = StateDirectory(path, database=DATABASE)
        backend: StoreBackend | None = None
        try:
            backend = backend_for(directory.path, server)
            before = _history_there(backend, key)
            witness = Head(directory.path)

            def fill(db: StoreDatabase) -> None:
                create_tables(db)
                _insert_all(db, file, str(archive))
                unlock(db, key)
                meta = read_meta(db)
                history = read_history(db, meta, str(archive))
                require_same_plan(stored_plan(meta, facts, str(archive)), facts, str(archive))
                number = _allow_import(history, before, witness, verified, str(archive))
                # First the witness: a store without it could be rolled back unseen, and one that is missing
                # is made by the same import again.
                last, entry = history.last_step, len(history.log) - 1
                witness.write((last, history.seals[last]), (entry, history.log[entry]), importing=number)
                if number is None:
                    note_restored(db, meta["key"], last + 1)
                elif verified.taken is None:
                    _mark_taken(file, verified.end, number)

            backend.create(fill)
        finally:
            if backend is not None:
                backend.close()
            directory.close()
    with Store(path, facts, server=server, key=key) as store:
        return store.last_step


def _pack_table(db: StoreDatabase, table: str, last_step: int) -> Iterator[Packed]:
    if table in _BY_STEP:
        rows: Iterator[Any] = (
            row
            for step in range(1, last_step + 1)
            for row in db.execute(f"SELECT * FROM {table} WHERE step = ?", (step,)).fetchall()
        )
    else:
        rows = iter(db.execute(f"SELECT * FROM {table} ORDER BY 1"))
    columns = [item[0] for item in db.execute(f"SELECT * FROM {table} LIMIT 0").description]
    packed, size = Packed({"table": table, "columns": columns, "rows": []}, {}), 0
    for row in rows:
        values: list[Any] = []
        for value in row:
            if isinstance(value, bytes):
                name = str(len(packed.arrays))
                packed.arrays[name] = np.frombuffer(value, np.uint8)
                values.append({"bytes": name})
                size += len(value)
            else:
                values.append(value)
        packed.meta["rows"].append(values)
        if size > _BYTES or len(packed.meta["rows"]) >= _ROWS:
            yield packed
            packed, size = Packed({"table": table, "columns": columns, "rows": []}, {}), 0
    if packed.meta["rows"]:
        yield packed


class _CutShort(StoreDamagedError):
    """The file ends in the middle of a frame."""


def _frame(packed: Packed) -> bytes:
    data = container.dump(packed)
    return _LENGTH.pack(len(data)) + data


def _frames(file: BinaryIO, where: str) -> Iterator[tuple[Packed, str]]:
    """Every frame, with the SHA-256 (in hexadecimal) of all bytes before it."""
    file.seek(0)
    total = hashlib.sha256(file.read(len(_MAGIC)))
    while length := file.read(_LENGTH.size):
        size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else None
        data = b"" if size is None or size > os.fstat(file.fileno()).st_size else file.read(size)
        if len(data) != size:
            raise _CutShort("the archive was cut short", where=where)
        yield container.load(data, where=where), total.hexdigest()
        total.update(length + data)


@dataclass(frozen=True)
class _ArchiveFacts:
    """What an archive says of itself: its first frame, where its rows end, and the number of its import."""

    head: dict[str, Any]
    end: int
    taken: str | None

    @property
    def moving(self) -> bool:
        return bool(self.head["moving"])


@contextmanager
def _opened(archive: Path) -> Iterator[BinaryIO]:
    """Open the archive for one import at a time (the kernel gives the lock up when the process dies); for reading
    only, where it cannot be written."""
    try:
        file: BinaryIO = archive.open("r+b")
    except OSError:
        file = archive.open("rb")
    with file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLockedError("another import is reading this archive", where=str(archive)) from None
        yield file


def _mark_taken(file: BinaryIO, end: int, number: str) -> None:
    """Append the number of the import, durably, after removing what an interrupted import left there."""
    descriptor = file.fileno()
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    durable.write(descriptor, _frame(Packed({"taken": number}, {})))
    durable.sync_file(descriptor)


def _verified(file: BinaryIO, where: str) -> _ArchiveFacts:
    """Check the whole file, and give its first frame and the mark of an import."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ConfigError(
            "is not an archive of a store", where=where, allowed="a file of dpstream store export"
        )
    head: dict[str, Any] = {}
    end: int | None = None
    taken: str | None = None
    try:
        for packed, before in _frames(file, where):
            if end is not None and taken is None and set(packed.meta) == {"taken"}:
                taken = str(packed.meta["taken"])
                continue
            if end is not None or ("sha256" in packed.meta and packed.meta["sha256"] != before):
                raise StoreDamagedError("the archive was changed", where=where)
            head = head or dict(packed.meta)
            end = file.tell() if "sha256" in packed.meta else None
    except _CutShort:
        # Behind the end: an import that stopped while it marked the archive, before it made anything.
        if end is None or taken is not None:
            raise
    if end is None:
        raise StoreDamagedError("the archive was cut short", where=where)
    if head.get("archive") != _FORMAT or not isinstance(head.get("format"), int):
        raise StoreFormatError(
            "the archive was written by another version", where=where, allowed=f"format {_FORMAT}"
        )
    require_format(head["format"], where)
    return _ArchiveFacts(head, end, taken)


def _insert_all(db: StoreDatabase, file: BinaryIO, where: str) -> None:
    for packed, _ in _frames(file, where):
        if "sha256" in packed.meta:
            return  # an import that was stopped may have written behind the end
        if "table" not in packed.meta:
            continue
        table, columns = packed.meta["table"], packed.meta["columns"]
        if table not in _TABLES or not all(name.isidentifier() for name in columns):
            raise StoreDamagedError("the archive holds something that is no table of a store", where=where)
        marks = ", ".join("?" * len(columns))
        rows = [_row(values, packed) for values in packed.meta["rows"]]
        db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _row(values: Sequence[Any], packed: Packed) -> list[Any]:
    return [packed.arrays[v["bytes"]].tobytes() if isinstance(v, dict) else v for v in values]


def _history_there(backend: StoreBackend, key: StateKey | None) -> SealedHistory | None:
    """The history of the store that was moved away from here; None where there never was one."""
    if not backend.exists():
        return None
    db = backend.connect()
    with db.errors():
        db.verify_structure()
        if not is_moved(db):
            backend.release(db)
            raise ConfigError(
                "there is a stream already",
                where=backend.where,
                allowed="a place without one (nothing was changed)",
            )
        unlock(db, key)
        history = read_history(db, read_meta(db), backend.where)
    backend.release(db)
    return history


def _allow_import(
    history: SealedHistory, before: SealedHistory | None, witness: Head, archive: _ArchiveFacts, where: str
) -> str | None:
    """Refuse what would make two streams of one, or a stream that forgets steps.

    Gives the number of the import; None for a copy, which replaces a store that was lost.
    """
    if before is not None and history.seals[: before.last_step + 1] != before.seals:
        raise ConfigError(
            "the store that was moved away from here has another history, or a longer one",
            where=where,
            allowed="the newest archive of the same stream",
        )
    known = witness.read(where)
    noted = None if known is None else known.importing
    if known is not None and (archive.moving or noted != _LEFT):
        witness.check(history, where)
    if archive.moving and archive.taken in (None, noted):
        return secrets.token_hex(16) if noted in (None, _LEFT) else noted
    # A store was lost here at this very step: none that was moved away, and none that an import has yet to make.
    lost = known is not None and (known.seal, known.entry_seal) == (history.seals[-1], history.log[-1])
    if before is None and noted is None and lost:
        return None
    if archive.moving:
        raise ConfigError(
            "this archive was taken in already: a second import would make two streams of one, and spend the "
            "budget twice",
            where=where,
            allowed="the place where its stream is now; from there, a new archive of store export --move",
        )
    raise ConfigError(
        "this archive is a copy: its source may still go on, and two streams of one would spend the budget twice",
        where=where,
        allowed="an archive of store export --move; or, where the store was lost, a copy as new as the head.json "
        "of the state directory",
    )
