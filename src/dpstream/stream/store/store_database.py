"""What a store needs of a database: tables, formats and migrations, and the interface of a backend.

Two backends stand behind it: SQLite (``sqlite.py``) and PostgreSQL (``postgres.py``). The tables, their rows
and their seals are the same in both, so that a store can be moved from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from dpstream.core.errors import StoreDamagedError, StoreError, StoreFormatError
from dpstream.stream.store.sealing import Sealing

__all__ = [
    "DEFINITIONS",
    "MIGRATIONS",
    "STATE_IN_PARTS",
    "STORE_FORMAT",
    "STORE_TABLES",
    "StoreBackend",
    "StoreDatabase",
    "StoredRows",
    "create_tables",
    "damaged_store",
    "file_errors",
    "migrate",
    "newer_format",
    "statements",
    "upgrade",
]

#: 1: first format. 2: failed attempts, and how far the source was read. 3: stores that were moved away.
#: 4: when a step was committed. 5: the events admitted of each user. 6: encryption. 7: how far the source was read
#: for a step that is reserved. 8: who approved or withdrew a step. 9: contents of batches that say their rule.
#: 10: keyed records. 11: the state in parts. 12: released files that wait on the disk.
STORE_FORMAT = 12
#: The first format that keeps the state in parts; earlier ones are looked at when they are migrated.
STATE_IN_PARTS = 11

# Small columns first: a look at many rows must not walk through the pages of large ones. Only types that both
# databases have in the same meaning; BLOB, STRICT and WITHOUT ROWID are SQLite's words (see ``statements``).
_TABLES_1 = """
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
# A row says that the stream goes on elsewhere. A table of its own: the seals cover every row of ``meta``.
_TABLES_3 = """
CREATE TABLE moved (id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL) STRICT;
"""

# For people only, and sealed one by one: nothing else depends on a clock.
_TABLES_4 = """
CREATE TABLE times (step INTEGER PRIMARY KEY, committed TEXT NOT NULL, seal BLOB NOT NULL) STRICT;
"""
# ``users``: only with the unit ``user``. ``contribution``: what its rows add up to after ``step``.
_TABLES_5 = """
CREATE TABLE users (id BLOB PRIMARY KEY, events INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE contribution (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, checksum BLOB NOT NULL, dropped INTEGER NOT NULL
) STRICT;
"""
# ``encryption``: a row where the store is encrypted. ``sealed``: in an encrypted store what the columns of numbers
# would say (``users.events``, ``contribution.dropped``), which are 0 there.
_TABLES_6 = """
CREATE TABLE encryption (
  id INTEGER PRIMARY KEY CHECK (id = 1), cipher TEXT NOT NULL, key_name TEXT NOT NULL
) STRICT;
ALTER TABLE users ADD COLUMN sealed BLOB;
ALTER TABLE contribution ADD COLUMN sealed BLOB;
"""

# Beside ``reservation``, where the source told it.
_TABLES_7 = """
CREATE TABLE reserved_position (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, source TEXT NOT NULL
) STRICT;
"""

# Who decided what about a committed step, and when: for the owner, each row sealed by itself.
_TABLES_8 = """
CREATE TABLE decisions (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, kind TEXT NOT NULL, person TEXT NOT NULL, decided TEXT NOT NULL,
  seal BLOB NOT NULL
) STRICT;
"""

# No table: ``content`` of new rows begins with the rule it was made by (``batch_content.py``), which older versions do
# not know. Rows of older formats stay as they are, under their seals.
_TABLES_9 = ""

# Only with the unit ``record`` (``present_rows.py``): the records that are present, the keys that left where none may
# come back, and what the rows of both add up to after ``step``.
_TABLES_10 = """
CREATE TABLE present (key BLOB PRIMARY KEY, record BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE departed (key BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE present_sum (
  id INTEGER PRIMARY KEY CHECK (id = 1), step INTEGER NOT NULL, checksum BLOB NOT NULL
) STRICT;
"""

# Large public arrays of the state, by a keyed hash of their content (``state_parts.py``).
_TABLES_11 = """
CREATE TABLE state_parts (name BLOB PRIMARY KEY, packed BLOB NOT NULL) STRICT;
"""

# No table: a file of a step that waits to be published may have no bytes here (``staging.py``), which older versions
# take for a damage.
_TABLES_12 = ""

#: What each format adds.
DEFINITIONS: dict[int, str] = {
    1: _TABLES_1,
    2: _TABLES_2,
    3: _TABLES_3,
    4: _TABLES_4,
    5: _TABLES_5,
    6: _TABLES_6,
    7: _TABLES_7,
    8: _TABLES_8,
    9: _TABLES_9,
    10: _TABLES_10,
    11: _TABLES_11,
    12: _TABLES_12,
}
#: The tables that each format adds, in an order that references allow.
STORE_TABLES: dict[int, tuple[str, ...]] = {
    1: ("meta", "reservation", "ledger", "steps", "files", "state"),
    2: ("failures", "position"),
    3: ("moved",),
    4: ("times",),
    5: ("users", "contribution"),
    6: ("encryption",),
    7: ("reserved_position",),
    8: ("decisions",),
    9: (),
    10: ("present", "departed", "present_sum"),
    11: ("state_parts",),
    12: (),
}


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

    def verify_structure(self) -> int:
        """Check that this is a sound store, and give its format.

        Errors:
            StoreDamagedError: something else, or broken. StoreFormatError: written by a newer version.
        """
        ...

    def verify_all(self, version: int | None = None) -> str | None:
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


def create_tables(db: StoreDatabase, version: int | None = None) -> None:
    """All tables of a format (the current one), inside the caller's transaction."""
    wanted = STORE_FORMAT if version is None else version
    for number in range(1, wanted + 1):
        if number in DEFINITIONS:
            db.run(DEFINITIONS[number])
    db.set_format(wanted)


def _adds(number: int) -> Callable[[StoreDatabase], None]:
    return lambda db: db.run(DEFINITIONS[number])


#: ``MIGRATIONS[n]`` turns format n into n + 1.
MIGRATIONS: dict[int, Callable[[StoreDatabase], None]] = {
    number - 1: _adds(number) for number in range(2, STORE_FORMAT + 1)
}


def migrate(db: StoreDatabase, version: int, commit: Callable[[StoreDatabase], None]) -> None:
    """Bring an older format up to date in one transaction: stopped anywhere, the store is in the old format,
    unchanged, or in the newest.

    Errors:
        StoreFormatError: no migration is known from ``version``.
    """
    if version == STORE_FORMAT:
        return
    db.begin()
    try:
        upgrade(db, version)
        commit(db)
    except BaseException:
        db.rollback()
        raise


def upgrade(db: StoreDatabase, version: int) -> None:
    """Bring an older format up to date, inside the caller's transaction.

    Errors:
        StoreFormatError: no migration is known from ``version``.
    """
    if any(number not in MIGRATIONS for number in range(version, STORE_FORMAT)):
        raise StoreFormatError(f"format {version} is too old", allowed=f"{STORE_FORMAT}")
    for number in range(version, STORE_FORMAT):
        MIGRATIONS[number](db)
    db.set_format(STORE_FORMAT)


def newer_format(version: int, where: str) -> StoreFormatError:
    """The refusal of what a newer version wrote."""
    return StoreFormatError(
        f"was written in format {version} by a newer version", where=where, allowed=f"up to {STORE_FORMAT}"
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
