"""A store in one SQLite file: asserted durability and typed errors.

Journal: WAL with ``synchronous=FULL``. In WAL a commit is one append that is fsynced before COMMIT
returns. A rollback journal under FULL is not enough: its commit is an *unlink* whose directory entry is
not fsynced (that takes EXTRA), so a power loss could bring the journal, and with it the old state, back.

``secure_delete`` overwrites what is deleted with zeros: dropped releases and old states held private counts.

Trusted base: store (holds private state).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import StoreError
from dpstream.stream.store.store_database import (
    DEFINITIONS,
    UNSEALED,
    StoreDatabase,
    damaged_store,
    require_format,
    statements,
)

DATABASE = "stream.sqlite"

_APPLICATION_ID = 0x64707374  # "dpst"
_FULL = 2
#: Rows of one INSERT; SQLite takes 32,766 parameters.
_ROWS = 1000
_SIDES = ("", "-wal", "-shm", "-journal")
#: A store up to this size is looked through whole at every opening; a larger one in its small tables, while
#: the rows that opening reads are under the seals and ``dpstream store check`` looks at every page.
_WHOLE = 64 * 2**20
_SMALL_TABLES = ("meta", "latest", "log", "state_parts")

#: What SQLite's codes say of the surroundings, in our words: its own texts may quote what they stumbled over.
_SURROUNDINGS: dict[str | tuple[str, ...], str] = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "the disk failed",
    "SQLITE_READONLY": "it may not be written",
    ("SQLITE_CANTOPEN", "SQLITE_PERM"): "it cannot be opened",
    ("SQLITE_BUSY", "SQLITE_LOCKED"): "another process uses it",
    "SQLITE_NOMEM": "there is not enough memory",
}


class SQLiteDatabase:
    """One connection to the file; see ``StoreDatabase``."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open an existing database, or a new empty one with mode 0600, and assert how it writes.

        Errors:
            StoreError: the file system does not support WAL, or FULL is not in force.
        """
        self.where = str(path)
        self.sealing = UNSEALED
        if not read_only:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with self.errors():
            uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=30)
            try:
                self._set_up(read_only)
            except BaseException:
                self._connection.close()
                raise

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        return self._connection.execute(statement, parameters)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows."""
        self._connection.executemany(statement, rows)

    def insert(self, table: str, columns: Mapping[str, list[Any]], conflict: str) -> None:
        """Rows as columns, many in each statement."""
        row = f"({', '.join('?' * len(columns))})"
        rows = list(zip(*columns.values(), strict=True))
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            marks = ", ".join([row] * len(part))
            statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {marks} {conflict}"
            self._connection.execute(statement, list(chain.from_iterable(part)))

    def run(self, definitions: str) -> None:
        """Several statements, in the caller's transaction (``executescript`` would commit it)."""
        for statement in statements(definitions):
            self._connection.execute(statement)

    def begin(self, *, read_only: bool = False, lasting: bool = True) -> None:
        """``BEGIN``; a writer locks at once. Without ``lasting`` the log is appended to and not fsynced, and the
        next commit's fsync of the same log covers both."""
        if not read_only:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
        self._connection.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")

    def rollback(self) -> None:
        """``ROLLBACK``, unless SQLite did it by itself (a full disk)."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except UnicodeDecodeError as error:
            # From Python's driver, which reads the schema's texts and a message that quotes them.
            raise damaged_store("the store cannot be read (changed text)", self.where) from error
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "") or ""
            if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
                # For example a stream that is used from another thread than the one that opened it.
                raise StoreError("the store was used wrongly", where=self.where) from error
            why = next((text for code, text in _SURROUNDINGS.items() if name.startswith(code)), None)
            if why is not None:
                raise StoreError(f"the store could not be used: {why}", where=self.where) from error
            what = f"the store cannot be read ({name or type(error).__name__})"
            raise damaged_store(what, self.where) from error

    def verify_structure(self) -> None:
        """Kind of file, format, and broken pages."""
        (application,) = self.execute("PRAGMA application_id").fetchone()
        (version,) = self.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID or version < 1:
            raise damaged_store("is cut short, or no stream's store", self.where)
        small = None if self.size() <= _WHOLE else _SMALL_TABLES
        wrong = self._verify(small)
        if wrong is not None:
            raise damaged_store(wrong, self.where)
        require_format(version, self.where)
        found = dict(self.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
        wanted = (statement.strip() for statement in statements(DEFINITIONS))
        if found != {text.split(maxsplit=3)[2]: text for text in wanted}:
            raise damaged_store("its tables differ from a stream's", self.where)

    def verify_all(self) -> str | None:
        """SQLite's own check of every page."""
        return self._verify(None)

    def set_format(self, version: int) -> None:
        """Part of the caller's transaction, as everything in SQLite's header is."""
        self.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self.execute(f"PRAGMA user_version = {version}")

    def compact(self) -> None:
        """Rewrite the file without its free pages, and empty the log."""
        self.execute("PRAGMA synchronous = FULL")
        self.execute("VACUUM")
        (busy, *_) = self.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreError(
                "another process reads the store: dropped values may remain",
                where=self.where,
                allowed="the same command once more",
            )

    def close(self) -> None:
        """Close the connection; the last one writes the log into the file."""
        self._connection.close()

    def _set_up(self, read_only: bool) -> None:
        self.execute("PRAGMA foreign_keys = ON")
        self.execute("PRAGMA trusted_schema = OFF")
        self.execute("PRAGMA synchronous = FULL")
        self.execute("PRAGMA secure_delete = ON").fetchall()
        if not read_only:
            (journal,) = self.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal != "wal":
                raise StoreError(
                    f"the file system gives journal mode {journal!r}",
                    where=self.where,
                    allowed="a local disk",
                )
        (synchronous,) = self.execute("PRAGMA synchronous").fetchone()
        if synchronous != _FULL:
            raise StoreError(
                f"SQLite writes with synchronous={synchronous}", where=self.where, allowed="FULL (2)"
            )

    def size(self) -> int:
        """Bytes of all pages."""
        (pages,) = self.execute("PRAGMA page_count").fetchone()
        (page,) = self.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(page)

    def _verify(self, tables: Sequence[str] | None) -> str | None:
        """SQLite's check of some tables, as far as they are there; None: of everything, up to the first finding."""
        parts: Sequence[str] = ("1",)
        if tables is not None:
            present = self.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
            parts = [table for table in tables if (table,) in present]
        for part in parts:
            findings = [row[0] for row in self.execute(f"PRAGMA integrity_check({part})")]
            if findings != ["ok"]:
                return "SQLite finds broken pages"
        return None


def create_file(path: Path, fill: Callable[[SQLiteDatabase], None]) -> None:
    """Make the database ``path``, which ``fill`` fills inside a transaction: whole and on the disk, or not at all."""
    new = path.with_name(f"{path.name}.new")
    for side in _SIDES:
        durable.unlink(new.with_name(new.name + side))
    made = SQLiteDatabase(new)
    try:
        with made.errors():
            made.begin()
            fill(made)
            durable.commit(made)
    finally:
        made.close()  # checkpoints: the file is whole without its log
    with new.open("rb") as file:
        durable.sync_file(file.fileno())
    for side in _SIDES[1:]:  # the log of a database that was there before must not meet the new file
        if path.with_name(path.name + side).exists():
            durable.unlink(path.with_name(path.name + side))
    durable.rename(new, path)
    durable.sync_directory(path.parent)


class SQLiteBackend:
    """The file ``stream.sqlite`` in the state directory, whose lock the caller holds."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / DATABASE
        self.where = str(self._path)

    def exists(self) -> bool:
        """Whether the file is there."""
        return self._path.exists()

    def witnesses(self) -> list[Path]:
        """The log outlives its database only where somebody removed that."""
        return [self._path.with_name(f"{DATABASE}-wal")]

    def create(self, fill: Callable[[StoreDatabase], None]) -> None:
        """Build under another name, then rename: a store that exists is complete, so that one cut down to
        nothing can never pass for a new one (which would spend the budget a second time)."""
        create_file(self._path, fill)
        durable.sync_directory(self._path.parent.parent)

    def connect(self) -> SQLiteDatabase:
        """Open it for writing."""
        return SQLiteDatabase(self._path)

    def release(self, db: StoreDatabase) -> None:
        """The file is closed; the directory's lock stays."""
        db.close()

    def look(self) -> SQLiteDatabase | None:
        """Open it for reading only."""
        return SQLiteDatabase(self._path, read_only=True) if self._path.is_file() else None

    def close(self) -> None:
        """Nothing is held: the lock is the directory's."""
