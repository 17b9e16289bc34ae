"""The service's database: people, decisions, tasks, and what the worker tells; SQLite or PostgreSQL.

It stands on the two databases of ``stream.store`` (a commit is durable when it returns), with two differences: several
processes write to it, one transaction after the other, and nothing that is lost with it can be spent twice.

Every use opens a connection and closes it, so that any thread of a server may use it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError, StoreFormatError
from dpstream.service.desk.settings import DATABASE, FILE, Settings
from dpstream.stream.store.postgres import PostgresDatabase
from dpstream.stream.store.sqlite import SQLiteDatabase, create_file
from dpstream.stream.store.store_database import StoreDatabase, file_errors

FORMAT = 1

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE people (
  name TEXT PRIMARY KEY, roles TEXT NOT NULL, added TEXT NOT NULL, removed INTEGER NOT NULL
) STRICT;
CREATE TABLE sessions (
  hash TEXT PRIMARY KEY, person TEXT NOT NULL, made INTEGER NOT NULL, used INTEGER NOT NULL
) STRICT;
CREATE TABLE tokens (hash TEXT PRIMARY KEY, person TEXT NOT NULL UNIQUE, expires INTEGER NOT NULL) STRICT;
CREATE TABLE decisions (number INTEGER PRIMARY KEY, line TEXT NOT NULL, hash TEXT NOT NULL) STRICT;
CREATE TABLE tasks (
  number INTEGER PRIMARY KEY, stream TEXT NOT NULL, kind TEXT NOT NULL, what TEXT NOT NULL, person TEXT NOT NULL,
  made TEXT NOT NULL, decision INTEGER NOT NULL, state TEXT NOT NULL, result TEXT, why TEXT, ended TEXT
) STRICT;
CREATE INDEX tasks_by_stream ON tasks (stream, state, number);
CREATE TABLE board (stream TEXT PRIMARY KEY, told TEXT NOT NULL, facts TEXT NOT NULL) STRICT;
CREATE TABLE held (
  stream TEXT NOT NULL, step INTEGER NOT NULL, sha256 TEXT NOT NULL, manifest TEXT NOT NULL, rows BLOB,
  whole INTEGER NOT NULL, errors TEXT NOT NULL, PRIMARY KEY (stream, step)
) STRICT;
"""


def _fill(db: StoreDatabase) -> None:
    db.run(_TABLES)
    db.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
    # Names the tasks of this service among all: a question that a task asks has the task's name for ever.
    db.execute("INSERT INTO meta VALUES ('service_id', ?)", (secrets.token_hex(8),))


class _File(SQLiteDatabase):
    @contextmanager
    def errors(self) -> Iterator[None]:
        with _ours(self.where), super().errors():
            yield


class _Server(PostgresDatabase):
    @contextmanager
    def errors(self) -> Iterator[None]:
        with _ours(self.where), super().errors():
            yield

    def begin(self, *, read_only: bool = False, lasting: bool = True) -> None:
        """One writer after the other, each seeing what the one before has written."""
        if read_only:
            super().begin(read_only=True)
            return
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        self.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 1))", (f"service {self._schema}",))

    def _look_at_log(self) -> None:
        """No true count is written here."""


@contextmanager
def _ours(where: str) -> Iterator[None]:
    """What the stream's store says of its damage does not hold here: nothing can be spent twice."""
    try:
        yield
    except StoreDamagedError as error:
        raise StoreDamagedError(
            error.what,
            where=where,
            allowed="a copy of it; streams are untouched",
        ) from None


class ServiceDatabase:
    """Where the service keeps what it knows; made by ``of``.

    Errors (of all methods): StoreError: the disk or the server failed. StoreDamagedError: it cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._path, self._settings_file = settings.folder / DATABASE, settings.folder / FILE
        self._server = settings.database
        self.where = str(self._path) if self._server is None else f"PostgreSQL, schema {self._server.schema}"

    def create(self) -> bool:
        """Make it, whole; False where it is there already."""
        if self._server is None:
            # The worker and the pages may begin at the same time.
            descriptor = os.open(self._settings_file, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if self._path.is_file():
                    return False
                with file_errors("the service's database fails", self._path):
                    create_file(self._path, _fill)
                return True
            finally:
                os.close(descriptor)
        session = _Server(self._server, self.where)
        try:
            with session.errors():
                session.begin()
                if session.has_store():
                    session.rollback()
                    return False
                if session.has_schema():
                    raise ConfigError("the schema exists without a service", where=self.where)
                session.execute(f"CREATE SCHEMA {self._server.schema}")
                _fill(session)
                durable.commit(session)
        finally:
            session.close()
        return True

    @contextmanager
    def writing(self) -> Iterator[StoreDatabase]:
        """A transaction, durable when it is left; an exception in it leaves everything as it was."""
        with closing(self._open()) as db, db.errors():
            db.begin()
            try:
                yield db
                durable.commit(db)
            except BaseException:
                db.rollback()
                raise

    @contextmanager
    def reading(self) -> Iterator[StoreDatabase]:
        """One consistent view."""
        with closing(self._open()) as db, db.errors():
            db.begin(read_only=True)
            try:
                yield db
            finally:
                db.rollback()

    def service_id(self) -> str:
        """Names this service; the same for ever."""
        with self.reading() as db:
            return str(db.execute("SELECT value FROM meta WHERE key = 'service_id'").fetchone()[0])

    def _open(self) -> StoreDatabase:
        db: StoreDatabase
        if self._server is None:
            if not self._path.is_file():
                raise ConfigError(
                    "the service's database is missing",
                    where=self.where,
                    allowed="dpstream up first",
                )
            db = _File(self._path)
        else:
            db = _Server(self._server, self.where)
        try:
            with db.errors():
                row = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        except BaseException:
            db.close()
            raise
        if row is None or str(row[0]) != str(FORMAT):
            db.close()
            raise StoreFormatError(
                "unknown format of a service", where=self.where, allowed=f"the format {FORMAT}"
            )
        return db
