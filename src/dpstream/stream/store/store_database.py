"""What a store needs of a database: its tables and their format, and the interface of a backend.

Two backends stand behind it: SQLite (``sqlite.py``) and PostgreSQL (``postgres.py``). The tables, their rows
and their seals are the same in both, so that a store can be moved from one to the other.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from dpstream.core.errors import StoreDamagedError, StoreError, StoreFormatError

# The seam between a store and its encryption: what happens to a private value on its way to the database.

#: What names a row: a step, a file's name, a user's mark.
RowKey = int | str | bytes


class Sealing:
    """Values as they are; ``encryption.Cipher`` encrypts them.

    Attributes:
        name: of the key; None where there is none.
    """

    name: str | None = None

    def seal(self, data: bytes, kind: str, *place: RowKey, least: int = 0) -> bytes:
        """A value as it is stored, for this kind of value in this row; padded to at least ``least`` bytes."""
        return data

    def open(self, data: bytes, kind: str, *place: RowKey) -> bytes:
        """The inverse of ``seal``, for the same kind and row.

        Errors:
            StoreDamagedError: it was not sealed for that place.
        """
        return data

    # Columns that cannot hold bytes.

    def seal_text(self, text: str, kind: str, *place: RowKey, least: int = 0) -> str:
        """``seal`` for a column of texts."""
        if self.name is None:
            return text
        return base64.b64encode(self.seal(text.encode(), kind, *place, least=least)).decode()

    def open_text(self, text: str, kind: str, *place: RowKey) -> str:
        """The inverse of ``seal_text``."""
        if self.name is None:
            return text
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            data = b""
        return self.open(data, kind, *place).decode()

    def seal_count(self, count: int, kind: str, *place: RowKey) -> tuple[int, bytes | None]:
        """``seal`` for a column of numbers, and for the column of bytes beside it."""
        if self.name is None:
            return count, None
        return 0, self.seal(count.to_bytes(8, "little"), kind, *place)

    def open_count(self, count: int, sealed: bytes | None, kind: str, *place: RowKey) -> int:
        """The inverse of ``seal_count``."""
        if (self.name is None) != (sealed is None):
            raise StoreDamagedError(f"a value ({kind}) is encrypted and others are not")
        return count if sealed is None else int.from_bytes(self.open(bytes(sealed), kind, *place), "little")


#: The sealing of stores that are not encrypted.
UNSEALED = Sealing()


#: A store of another format is refused.
STORE_FORMAT = 13

# Small columns first: a look at many rows must not walk through the pages of large ones. Only types that both
# databases have in the same meaning; BLOB, STRICT and WITHOUT ROWID are SQLite's words (see ``statements``).
#
# ``log``: what people decided, what failed, and moves; only added to, each row sealed over the row before it
# (``sealed_history.py``).
# ``moved``: a row says that the stream goes on elsewhere. A table of its own: the seals cover every row of ``meta``.
# ``times``: for people only, and sealed one by one: nothing else depends on a clock.
# ``position``, ``reserved_position``: how far the source was read for the last step, and for the reserved one.
# ``users``: only with the unit ``user``. ``contribution``: what its rows add up to after ``step``.
# ``encryption``: a row where the store is encrypted. ``sealed``: in an encrypted store what the columns of numbers
# would say (``users.events``, ``contribution.dropped``), which are 0 there.
# ``present``, ``departed``, ``present_sum``: only with the unit ``record`` (``present_rows.py``): the records that are
# present, the keys that left where none may come back, and what the rows of both add up to after ``step``.
# ``state_parts``: large public arrays of the state, by a keyed hash of their content (``step_rows.py``).
# ``files``: a file of a step that waits to be published may have no bytes here (``staging.py``).
DEFINITIONS = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE reservation (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, batch_id TEXT NOT NULL, content BLOB NOT NULL,
  seal BLOB NOT NULL
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
CREATE TABLE log (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL, written TEXT NOT NULL,
  seal BLOB NOT NULL
) STRICT;
CREATE TABLE moved (id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL) STRICT;
CREATE TABLE times (step INTEGER PRIMARY KEY, committed TEXT NOT NULL, seal BLOB NOT NULL) STRICT;
CREATE TABLE position (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, source TEXT NOT NULL, seal BLOB NOT NULL
) STRICT;
CREATE TABLE reserved_position (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, source TEXT NOT NULL, seal BLOB NOT NULL
) STRICT;
CREATE TABLE users (
  id BLOB PRIMARY KEY, events INTEGER NOT NULL, sealed BLOB
) STRICT, WITHOUT ROWID;
CREATE TABLE contribution (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, checksum BLOB NOT NULL, dropped INTEGER NOT NULL,
  sealed BLOB, seal BLOB NOT NULL
) STRICT;
CREATE TABLE encryption (
  id INTEGER PRIMARY KEY CHECK (id = 1), cipher TEXT NOT NULL, key_name TEXT NOT NULL
) STRICT;
CREATE TABLE present (key BLOB PRIMARY KEY, record BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE departed (key BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE present_sum (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, checksum BLOB NOT NULL
) STRICT;
CREATE TABLE state_parts (name BLOB PRIMARY KEY, packed BLOB NOT NULL) STRICT;
"""
#: Its tables, in an order that references allow.
STORE_TABLES = tuple(re.findall(r"CREATE TABLE (\w+)", DEFINITIONS))


class StoredRows(Protocol):
    """What a statement gives."""

    @property
    def rowcount(self) -> int: ...

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
        ...

    def run(self, definitions: str) -> None:
        """Several statements as ``DEFINITIONS`` has them, in the caller's transaction."""
        ...

    def begin(self, *, read_only: bool = False, lasting: bool = True) -> None:
        """Start a transaction, for one consistent view or for writing. ``durable.commit`` ends it.

        Not ``lasting``: the commit need not be on the disk when it returns, only before the next lasting one is.
        A loss of power may take it back, whole.
        """
        ...

    def rollback(self) -> None:
        """Give up the open transaction, if there is one; never fails."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """The database's errors as ours: the surroundings fail (StoreError) or the store does (damaged)."""
        ...

    def verify_structure(self) -> None:
        """Check that this is a sound store of this version's format.

        Errors:
            StoreDamagedError: something else, or broken. StoreFormatError: written by another version.
        """
        ...

    def verify_all(self) -> str | None:
        """Look at every page, however long it takes; what is wrong, or None."""
        ...

    def set_format(self, version: int) -> None: ...

    def compact(self) -> None:
        """Give back what deleted rows took, and leave no trace of them in this database's files."""
        ...

    def close(self) -> None: ...


class StoreBackend(Protocol):
    """Where one stream's store is, and how to get at it.

    Attributes:
        where: names the place in messages.
    """

    where: str

    def exists(self) -> bool:
        """Whether a store is there; from now on no other process can make or open it."""
        ...

    def witnesses(self) -> list[Path]:
        """Files that only a store which was there before can have left."""
        ...

    def create(self, fill: Callable[[StoreDatabase], None]) -> None:
        """Make a store that ``fill`` fills and commits; it is there whole, or not at all. A store that is
        there already (one that was moved away) is replaced."""
        ...

    def connect(self) -> StoreDatabase:
        """Open the store for writing. Asserts that a commit is durable when it returns."""
        ...

    def release(self, db: StoreDatabase) -> None:
        """Give back what ``connect`` gave, and keep the lock."""
        ...

    def look(self) -> StoreDatabase | None:
        """Open it for reading, without the lock and without changing anything; None if there is none."""
        ...

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


def require_format(version: int, where: str) -> None:
    """Refuse what another version wrote.

    Errors:
        StoreFormatError: it is in another format.
    """
    if version != STORE_FORMAT:
        age = "a newer" if version > STORE_FORMAT else "an older"
        raise StoreFormatError(
            f"was written in format {version} by {age} version",
            where=where,
            allowed=f"format {STORE_FORMAT}: that version of the program, or a new stream",
        )


def damaged_store(what: str, where: str) -> StoreDamagedError:
    """The refusal of a store that contradicts itself or cannot be read, with what to do about it."""
    return StoreDamagedError(
        what, where=where, allowed="the newest state; an older copy of it would spend the budget again"
    )


@contextmanager
def file_errors(what: str, path: Path) -> Iterator[None]:
    """The operating system's errors (a full disk, a missing right) as one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror or error}", where=str(path)) from error
