"""Which database a state directory stands for; stores that are looked at, locked, or were moved away.

Trusted base: store (where a private state is).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dpstream.core.errors import ConfigError, StoreError
from dpstream.stream.store.lock import StateDirectory
from dpstream.stream.store.postgres import PostgresBackend, PostgresServer
from dpstream.stream.store.sealed_history import MOVED, read_open
from dpstream.stream.store.sqlite import DATABASE, SQLiteBackend
from dpstream.stream.store.store_database import StoreDatabase

#: Where the store of a stream is, and how to get at it.
StoreBackend = SQLiteBackend | PostgresBackend
MOVED_AWAY = "the stream was moved away"


def backend_for(path: Path, server: PostgresServer | None) -> StoreBackend:
    """The backend of a state directory; with a server, the directory holds the witness only.

    Errors:
        ConfigError: the directory holds a store of its own that was not moved to the server.
    """
    local = SQLiteBackend(path)
    if server is None:
        return local
    old = local.look()
    if old is not None:
        try:
            with old.errors():
                old.verify_structure()
                moved = is_moved(old)
        finally:
            old.close()
        if not moved:
            raise ConfigError(
                "holds a store; the configuration names a server",
                where=str(path),
                allowed="dpstream store export --move, then store import with url; or another state directory",
            )
    return PostgresBackend(server)


def no_stream(where: str) -> ConfigError:
    """The error for a missing store."""
    return ConfigError("the stream is missing", where=where, allowed="a state directory of dpstream run")


@contextmanager
def viewed(path: Path, server: PostgresServer | None) -> Iterator[StoreDatabase | None]:
    """One consistent look at a store, whatever a running stream commits meanwhile, without its lock and without its
    key; None without a store. Changes nothing.

    Errors:
        StoreDamagedError, StoreFormatError: it cannot be read. StoreError: the server cannot be reached.
    """
    db = backend_for(path, server).look()
    if db is None:
        yield None
        return
    try:
        with db.errors():
            db.begin(read_only=True)
            db.verify_structure()
            yield db
    finally:
        db.close()


@contextmanager
def locked_store(path: Path, server: PostgresServer | None) -> Iterator[tuple[StoreDatabase, str]]:
    """Lock an existing store, and give it with its place: not unlocked, moved or not.

    Errors:
        ConfigError: there is none. StoreLockedError: a stream has it open.
    """
    if not path.is_dir():
        raise no_stream(str(path))
    with locked_place(path, server) as (_, backend):
        if not backend.exists():
            raise no_stream(backend.where)
        db = backend.connect()
        try:
            with db.errors():
                db.verify_structure()
                yield db, backend.where
        finally:
            db.close()


@contextmanager
def locked_place(path: Path, server: PostgresServer | None) -> Iterator[tuple[Path, StoreBackend]]:
    """Lock a state directory, and give it with its backend, whether a store is there or not."""
    directory = StateDirectory(path, database=DATABASE)
    try:
        backend = backend_for(directory.path, server)
        try:
            yield directory.path, backend
        finally:
            backend.close()
    finally:
        directory.close()


def questions_path(state: Path) -> Path:
    """Where the questions of the stream in ``state`` are kept; as secret as the state."""
    return state.with_name(f"{state.name}-questions")


def questions_server(server: PostgresServer | None) -> PostgresServer | None:
    """Where the questions are kept on a server: in a schema beside the stream's."""
    return None if server is None else replace(server, schema=f"{server.schema[:53]}_questions")


def is_moved(db: StoreDatabase) -> bool:
    """Whether the stream of this store goes on elsewhere."""
    return read_open(db, MOVED) is not None


def refuse_moved(db: StoreDatabase, where: str) -> None:
    """Refuse to go on with a store that was moved: its stream would exist twice.

    Errors:
        StoreError: it was moved.
    """
    if is_moved(db):
        raise StoreError(
            f"{MOVED_AWAY} (dpstream store export --move)",
            where=where,
            allowed="the new place, or dpstream store import",
        )


def has_store(path: Path, *, server: PostgresServer | None = None) -> bool:
    """Whether a stream was started there.

    Errors:
        StoreError: the server cannot be reached.
    """
    db = backend_for(path, server).look()
    if db is None:
        return False
    db.close()
    return True
