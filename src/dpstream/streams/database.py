"""SQLite the way the store needs it: asserted durability, typed errors, formats and migrations.

Journal: WAL with ``synchronous=FULL``. In WAL a commit is one append that is fsynced before COMMIT
returns. A rollback journal under FULL is not enough: its commit is an *unlink* whose directory entry is
not fsynced (that takes EXTRA), so a power loss could bring the journal, and with it the old state, back.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dpstream.errors import StoreDamagedError, StoreError, StoreFormatError

__all__ = [
    "FORMAT",
    "MIGRATIONS",
    "connect",
    "create_tables",
    "file_errors",
    "migrate",
    "sqlite_errors",
    "verify_structure",
]

#: 1: first format. 2: failed attempts, and how far the source was read.
FORMAT = 2

_APPLICATION_ID = 0x64707374  # "dpst"
_FULL = 2

# Small columns first: a look at many rows must not walk through the pages of large ones.
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE reservation (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, batch_id TEXT NOT NULL, content BLOB NOT NULL
) STRICT;
CREATE TABLE ledger (
  step INTEGER PRIMARY KEY, definition TEXT NOT NULL, spent TEXT NOT NULL, parts TEXT NOT NULL
) STRICT;
CREATE TABLE steps (
  step INTEGER PRIMARY KEY REFERENCES ledger (step),
  batch_id TEXT NOT NULL UNIQUE, content BLOB NOT NULL, test_seed INTEGER NOT NULL, publication TEXT NOT NULL,
  manifest_sha256 TEXT NOT NULL, seal BLOB NOT NULL, manifest BLOB NOT NULL, synthesis BLOB
) STRICT;
CREATE INDEX steps_by_publication ON steps (publication, step);
CREATE TABLE files (
  step INTEGER NOT NULL REFERENCES steps (step), name TEXT NOT NULL, sha256 TEXT NOT NULL, bytes BLOB,
  PRIMARY KEY (step, name)
) STRICT;
CREATE TABLE state (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, packed BLOB NOT NULL
) STRICT;
"""
# ``decided``: the owner has said that the step may be tried again.
_TABLES_2 = """
CREATE TABLE failures (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, batch_id TEXT NOT NULL, kind TEXT NOT NULL,
  decided INTEGER NOT NULL
) STRICT;
CREATE TABLE position (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, source TEXT NOT NULL
) STRICT;
"""


def _run(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        if statement.strip():
            connection.execute(statement)


#: ``MIGRATIONS[n]`` turns format n into n + 1, inside one transaction.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: lambda db: _run(db, _TABLES_2)}


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """SQLite's errors as ours: the surroundings fail (StoreError) or the file does (StoreDamagedError)."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        surroundings = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_BUSY")
        if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
            # For example a stream that is used from another thread than the one that opened it.
            raise StoreError(f"the store was used wrongly: {error}", where=str(path)) from error
        if name.startswith((*surroundings, "SQLITE_LOCKED", "SQLITE_PERM", "SQLITE_NOMEM")):
            raise StoreError(f"the store could not be used: {error} ({name})", where=str(path)) from error
        raise StoreDamagedError(f"the store cannot be read: {error}", where=str(path)) from error


@contextmanager
def file_errors(what: str, path: Path) -> Iterator[None]:
    """The operating system's errors (a full disk, a missing right) as one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or error}", where=str(path)) from error


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open an existing database, or a new empty one with mode 0600, and assert how it writes.

    Errors:
        StoreError: the file system does not support WAL, or FULL is not in force.
    """
    if not read_only:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    with sqlite_errors(path):
        mode = "ro" if read_only else "rw"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
        try:
            _set_up(connection, path, read_only)
        except BaseException:
            connection.close()
            raise
        return connection


def _set_up(connection: sqlite3.Connection, path: Path, read_only: bool) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA synchronous = FULL")
    if not read_only:
        (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            raise StoreError(
                f"the file system gives journal mode {journal!r}", where=str(path), allowed="a local disk"
            )
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    if synchronous != _FULL:
        raise StoreError(f"SQLite writes with synchronous={synchronous}", where=str(path), allowed="FULL (2)")


def create_tables(connection: sqlite3.Connection) -> None:
    """All tables of the current format, inside the caller's transaction."""
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    _run(connection, _TABLES + _TABLES_2)


def verify_structure(connection: sqlite3.Connection, path: Path) -> int:
    """Check that the file is a sound store and return its format.

    Errors:
        StoreDamagedError: another kind of file, or SQLite finds broken pages.
        StoreFormatError: written by a newer version.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION_ID or version < 1:
        raise StoreDamagedError("is not a stream's store, or was cut short", where=str(path))
    findings = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
    if findings != ["ok"]:
        raise StoreDamagedError("SQLite finds broken pages", where=str(path))
    if version > FORMAT:
        raise StoreFormatError(
            f"was written in format {version} by a newer version", where=str(path), allowed=f"up to {FORMAT}"
        )
    return int(version)


def migrate(
    connection: sqlite3.Connection, version: int, commit: Callable[[sqlite3.Connection], None]
) -> None:
    """Bring an older format up to date, one committed step at a time.

    Errors:
        StoreFormatError: no migration is known from ``version``.
    """
    while version < FORMAT:
        if version not in MIGRATIONS:
            raise StoreFormatError(f"format {version} is too old", allowed=f"{FORMAT}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            MIGRATIONS[version](connection)
            connection.execute(f"PRAGMA user_version = {version + 1}")
            commit(connection)
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        version += 1
