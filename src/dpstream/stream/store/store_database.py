"""What a store needs of a database: its tables and their format, and the interface of a backend.

Two backends stand behind it: SQLite (``sqlite.py``) and PostgreSQL (``postgres.py``). The tables, their rows
and their seals are the same in both, so that a store can be moved from one to the other.

Trusted base: store (holds private state).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError, StoreFormatError

# The seam between a store and its encryption: what happens to a private value on its way to the database.

#: What names a row: a step, a file's name, a user's mark.
RowKey = int | str | bytes


class Sealing:
    """Values as they are; ``encryption.Cipher`` encrypts them.

    Attributes:
        name: of the key; None where there is none.
    """

    name: str | None = None

    def seal(self, data: bytes, kind: str, *place: RowKey) -> bytes:
        """A value as it is stored, for this kind of value in this row."""
        return data

    def open(self, data: bytes, kind: str, *place: RowKey) -> bytes:
        """The inverse of ``seal``, for the same kind and row.

        Errors:
            StoreDamagedError: it was not sealed for that place.
        """
        return data


#: The sealing of stores that are not encrypted.
UNSEALED = Sealing()


#: What mends a store that cannot be read, for messages.
NEWEST_STATE = "the newest state"
#: And what a state that was rolled back behind its releases.
NEWEST_OR_NEW = f"{NEWEST_STATE}, or a new stream in new folders"
#: A store of another format is refused. ``tests/streams/data`` holds a store of this one.
STORE_FORMAT = 1

# Small columns first: a look at many rows must not walk through the pages of large ones. Only types that both
# databases have in the same meaning; BLOB, STRICT and WITHOUT ROWID are SQLite's words (see ``statements``).
#
# ``latest``: what there is once in a store, by its name (``sealed_history.py``).
# ``steps``: every committed step, sealed over the step before it. ``committed`` is for people only.
# ``log``: what people decided, what failed, and moves; only added to, each row sealed over the row before it.
# ``files``: a file of a step that waits to be published may have no bytes here (``staging.py``).
# ``users``: only with the unit ``user``: the events admitted of each (``summed_rows.py``).
# ``present``, ``departed``: only with the unit ``record``: the records that are present, and the keys that left where
# none may come back (``summed_rows.py``).
# ``undiscovered``: only where values are discovered: those of the open epoch, with their counts (``summed_rows.py``).
# ``state_parts``: large public arrays of the state, by a keyed hash of their content (``step_rows.py``).
CHAIN_DEFINITIONS = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE log (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL, written TEXT NOT NULL,
  seal BLOB NOT NULL
) STRICT;
"""
DEFINITIONS = f"""{CHAIN_DEFINITIONS}CREATE TABLE latest (
  name TEXT PRIMARY KEY, step INTEGER NOT NULL, seal BLOB NOT NULL, value BLOB NOT NULL
) STRICT;
CREATE TABLE steps (
  step INTEGER PRIMARY KEY, batch_id TEXT NOT NULL UNIQUE, content BLOB NOT NULL, test_seed INTEGER NOT NULL,
  publication TEXT NOT NULL, manifest_sha256 TEXT NOT NULL, definition TEXT NOT NULL, spent TEXT NOT NULL,
  committed TEXT NOT NULL, seal BLOB NOT NULL, parts TEXT NOT NULL, manifest BLOB NOT NULL, synthesis BLOB
) STRICT;
CREATE INDEX steps_by_publication ON steps (publication, step);
CREATE TABLE files (
  step INTEGER NOT NULL REFERENCES steps (step), name TEXT NOT NULL, sha256 TEXT NOT NULL, bytes BLOB,
  PRIMARY KEY (step, name)
) STRICT;
CREATE TABLE users (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE present (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE departed (key BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE undiscovered (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE state_parts (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT;
"""
#: Its tables, in an order that references allow.
STORE_TABLES = tuple(re.findall(r"CREATE TABLE (\w+)", DEFINITIONS))
#: Those of single sealed values, by a key.
VALUE_TABLES = ("users", "present", "undiscovered", "state_parts")


class StoredRows(Protocol):
    """What a statement gives."""

    @property
    def description(self) -> Any: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class StoreDatabase(Protocol):
    """An open connection. Statements are in the dialect that both databases share, values are marked ``?``.

    Attributes:
        where: names the database in messages; holds no password.
        sealing: what its private values are sealed with; the readers and writers of rows use it.
    """

    where: str
    sealing: Sealing

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> StoredRows: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None: ...

    def insert(self, table: str, columns: Mapping[str, list[Any]], conflict: str) -> None:
        """Many rows, given as columns of equal length, twice as fast as ``executemany``; ``conflict`` is the
        statement's end, ``ON CONFLICT ...``."""

    def run(self, definitions: str) -> None:
        """Several statements as ``DEFINITIONS`` has them, in the caller's transaction."""

    def begin(self, *, read_only: bool = False, lasting: bool = True) -> None:
        """Start a transaction, for one consistent view or for writing. ``durable.commit`` ends it.

        Not ``lasting``: the commit need not be on the disk when it returns, only before the next lasting one is.
        A loss of power may take it back, whole.
        """

    def rollback(self) -> None:
        """Give up the open transaction, if there is one; never fails."""

    def errors(self) -> AbstractContextManager[None]:
        """The database's errors as ours: the surroundings fail (StoreError) or the store does (damaged)."""

    def verify_structure(self) -> None:
        """Check that this is a sound store of this version's format.

        Errors:
            StoreDamagedError: something else, or broken. StoreFormatError: written by another version.
        """

    def verify_all(self) -> str | None:
        """Look at every page, however long it takes; what is wrong, or None."""

    def set_format(self, version: int) -> None: ...

    def compact(self) -> None:
        """Give back what deleted rows took, and leave no trace of them in this database's files."""

    def close(self) -> None: ...


def statements(definitions: str, *, postgres: bool = False) -> Iterator[str]:
    """The single statements of a text of definitions, in the words of one database."""
    for statement in definitions.split(";"):
        if not statement.strip():
            continue
        if postgres:
            body = statement.removesuffix(" STRICT, WITHOUT ROWID").rstrip().removesuffix("STRICT")
            yield body.replace(" BLOB", " BYTEA").replace(" INTEGER", " BIGINT")
        else:
            yield statement


def create_tables(db: StoreDatabase) -> None:
    """All tables, inside the caller's transaction."""
    db.run(DEFINITIONS)
    db.set_format(STORE_FORMAT)


def require_format(version: int, where: str, known: int | None = None) -> None:
    """Refuse what another version wrote.

    Errors:
        StoreFormatError: it is not in the format ``known`` (by default, that of stores).
    """
    known = STORE_FORMAT if known is None else known
    if version != known:
        age = "a newer" if version > known else "an older"
        raise StoreFormatError(
            f"was written in format {version} by {age} version",
            where=where,
            allowed=f"format {known}: that version, or a new stream",
        )


def damaged_store(what: str, where: str) -> StoreDamagedError:
    """The refusal of a store that contradicts itself or cannot be read, with what to do about it."""
    return StoreDamagedError(what, where=where, allowed=NEWEST_STATE)


@contextmanager
def transaction(db: StoreDatabase) -> Iterator[None]:
    """One transaction for writing; whatever stops it before its commit takes it back."""
    db.begin()
    try:
        yield
        durable.commit(db)
    except BaseException:
        db.rollback()
        raise


def require_folder(folder: Path) -> None:
    """ConfigError where the folder is missing."""
    if not folder.is_dir():
        raise ConfigError("the folder does not exist", where=str(folder), allowed="a folder that exists")


@contextmanager
def file_errors(what: str, path: Path) -> Iterator[None]:
    """The operating system's errors (a full disk, a missing right) as one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or error}", where=str(path)) from error
