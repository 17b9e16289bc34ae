"""A store in a PostgreSQL database: one schema a stream, the same tables and seals as in SQLite.

Guarantee: COMMIT returns after the server's log is on its disk (``fsync`` and ``synchronous_commit`` are
asserted). One session advisory lock a stream is held by the connection that writes: a session that lost its
connection has lost the lock and cannot commit either. Transactions are serializable, the step number is the
ledger's primary key. Nothing reconnects: a lost connection ends this object, and opening the stream
again reads what is true.

The witness against a database that is rolled back (``head.json``) stays in the local state directory.
Nothing of libpq's or the server's messages is repeated in errors: they can hold a password or a stored value.

Trusted base: server (holds private state).
"""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpstream.core.errors import ConfigError, StoreDamagedError, StoreError, StoreLockedError
from dpstream.io.libpq import PostgresSession, Refusals
from dpstream.stream.store.lock import StatePermissionWarning
from dpstream.stream.store.store_database import (
    NEWEST_STATE,
    STORE_TABLES,
    UNSEALED,
    StoreDatabase,
    damaged_store,
    require_format,
    statements,
    transaction,
)

if TYPE_CHECKING:
    import psycopg

#: How long a lock is waited for: the server notices within moments that a killed client is gone.
_PATIENCE = 2.0
_MIN_VERSION = 120000
_SETTINGS = (
    "SET synchronous_commit = on",
    "SET default_transaction_read_only = off",
    "SET statement_timeout = 0",
    "SET lock_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET client_min_messages = error",
    "SET standard_conforming_strings = on",
    # The server's side of a dead network, as ``connection_settings`` has it: the lock goes with the session.
    "SET tcp_keepalives_idle = 30",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = '60s'",
)
#: How long the tables are waited for when they are written anew: a dump that reads them holds them.
_TABLES_PATIENCE = "10s"
#: Settings that write statements with their values into the server's log, and where they do not.
_LOGGING = {
    "log_statement": ("none", "ddl"),
    "log_min_duration_statement": ("-1",),
    "log_transaction_sample_rate": ("", "0"),
    "log_min_duration_sample": ("", "-1"),
    "log_statement_sample_rate": ("", "0"),
}
_URL = "[state] url"


def schema_name(stream: str) -> str:
    """The schema of a stream: readable, safe, and different for different names.

    >>> schema_name("Evictions 2026")
    'dpstream_evictions_2026_4a5dde2f21'
    """
    readable = re.sub("[^a-z0-9]+", "_", stream.lower()).strip("_")[:30]
    digest = hashlib.sha256(stream.encode()).hexdigest()[:10]
    return "_".join(part for part in ("dpstream", readable, digest) if part)


@dataclass(frozen=True)
class PostgresServer:
    """A database server and the schema of one stream there.

    Attributes:
        url: a connection URL of libpq (``postgresql://user@host/database?...``), or ``key=value`` pairs; what
            it leaves open comes from PGHOST, PGUSER, PGPASSWORD, PGPASSFILE, PGSERVICE and so on.
        schema: see ``schema_name``.
    """

    url: str = field(repr=False)
    schema: str


class PostgresDatabase(PostgresSession):
    """One session; see ``StoreDatabase``."""

    refusals: ClassVar[Refusals] = {
        "unreached": (StoreError, "{}", "a running server, as in [state]"),
        "lost": (StoreError, "the connection to the server was lost", "opening the stream again"),
        "denied": (
            StoreError,
            "the role may not do this",
            "the schema's owner, or a role that may create it",
        ),
        "away": (StoreError, "the store could not be used ({})", None),
        "unreadable": (StoreDamagedError, "the store cannot be read ({})", NEWEST_STATE),
    }

    def __init__(self, server: PostgresServer, where: str, *, read_only: bool = False) -> None:
        self.sealing = UNSEALED
        self._schema, self._read_only = server.schema, read_only
        self._lock: int | None = None
        super().__init__(server.url, where, _URL, (*_SETTINGS, f"SET search_path = {server.schema}"))

    # The interface

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        """Run one statement."""
        query = statement.replace("?", "%s").encode()
        cursor: psycopg.Cursor[Any] = self._connection.execute(query, parameters or None, binary=True)
        if statement == "COMMIT" and cursor.statusmessage != "COMMIT":
            # The server answers the COMMIT of a transaction that failed with ROLLBACK, and with no error.
            raise StoreError("the transaction was rolled back", where=self.where)
        return cursor

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for many rows."""
        with self._connection.cursor(binary=True) as cursor:
            cursor.executemany(statement.replace("?", "%s").encode(), rows)

    def insert(self, table: str, columns: Mapping[str, list[Any]], conflict: str) -> None:
        """Rows as columns: each column is one array."""
        arrays = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({arrays}) {conflict}"
        self.execute(statement, list(columns.values()))

    def run(self, definitions: str) -> None:
        """Several statements, in the caller's transaction."""
        for statement in statements(definitions, postgres=True):
            self._connection.execute(statement.encode())

    def begin(self, *, read_only: bool = False, lasting: bool = True) -> None:
        """Start a transaction; a writer makes sure that the lock is still its own.

        Errors:
            StoreError: the session is not the one that took the lock (a pooler between here and the server).
        """
        if read_only:
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return
        self.execute("BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE")
        if not self._holds_lock():
            self.rollback()
            raise StoreError(
                "the session has lost the stream's lock",
                where=self.where,
                allowed="a connection without transaction pooler",
            )
        if not lasting:
            self.execute("SET LOCAL synchronous_commit TO off")

    def rollback(self) -> None:
        """``ROLLBACK``; where that fails too, the connection is given up, and the server rolls back."""
        idle = self._driver.pq.TransactionStatus.IDLE
        if self._connection.closed or self._connection.info.transaction_status == idle:
            return
        try:
            self._connection.execute("ROLLBACK")
        except self._driver.Error:
            self._connection.close()

    def verify_structure(self) -> None:
        """Format, and whether all tables are there."""
        try:
            row = self.execute("SELECT application, format FROM store_format").fetchone()
        except self._driver.errors.UndefinedTable:
            row = None
        if row is None or row[0] != "dpstream" or row[1] < 1:
            raise damaged_store("lacks a stream's store", self.where)
        require_format(int(row[1]), self.where)
        found = {
            name
            for (name,) in self.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = ?", (self._schema,)
            )
        }
        missing = set(STORE_TABLES) - found
        if missing:
            raise damaged_store(f"its table {min(missing)} is missing", self.where)

    def verify_all(self) -> str | None:
        """Read every stored value once: the server checks its pages (where they have checksums) and values."""
        for name in STORE_TABLES:
            self.execute(f"SELECT count(*), sum(length(t::text)) FROM {name} t").fetchone()
        return None

    def set_format(self, version: int) -> None:
        """In a table of its own: PostgreSQL has no header for it."""
        self.execute(
            "CREATE TABLE IF NOT EXISTS store_format (application TEXT NOT NULL, format BIGINT NOT NULL)"
        )
        self.execute("DELETE FROM store_format")
        self.execute("INSERT INTO store_format VALUES ('dpstream', ?)", (version,))

    def compact(self) -> None:
        """Write every table anew without its dead rows, whoever still holds an older snapshot.

        VACUUM keeps what an older snapshot may see. A change of a column's type does not: the table gets a new file,
        which such a snapshot sees as empty.

        Errors:
            StoreError: another session reads the tables; nothing was changed.
        """
        try:
            with transaction(self):
                self.execute(f"SET LOCAL lock_timeout = '{_TABLES_PATIENCE}'")
                for name in STORE_TABLES:
                    column, kind = self.execute(
                        "SELECT attname::text, atttypid::regtype::text FROM pg_attribute "
                        "WHERE attrelid = ?::text::regclass AND attnum > 0 ORDER BY attnum DESC LIMIT 1",
                        (f"{self._schema}.{name}",),
                    ).fetchone() or ("", "")
                    same = f"{column} + 0" if kind == "bigint" else f"{column} || ''"
                    self.execute(f"ALTER TABLE {name} ALTER COLUMN {column} TYPE {kind} USING {same}")
        except self._driver.errors.LockNotAvailable:
            raise StoreError(
                "another session reads the tables (a dump?): dropped values remain",
                where=self.where,
                allowed="the same command after that session",
            ) from None
        for name in STORE_TABLES:
            self.execute(f"ANALYZE {name}")

    # For the backend

    def has_store(self) -> bool:
        """Whether the schema holds a store."""
        return bool(self._one("SELECT to_regclass(?) IS NOT NULL", (f"{self._schema}.meta",)))

    def has_schema(self) -> bool:
        """Whether there is a schema of that name."""
        return self._one("SELECT 1 FROM pg_namespace WHERE nspname = ?", (self._schema,)) is not None

    def take_lock(self) -> None:
        """One process for each stream, whichever machine it runs on.

        Errors:
            StoreLockedError: another session holds it.
        """
        digest = hashlib.sha256(b"dpstream lock " + self._schema.encode()).digest()
        self._lock = int.from_bytes(digest[:8], "big", signed=True)
        end = time.monotonic() + _PATIENCE
        while not self._one("SELECT pg_try_advisory_lock(?::bigint)", (self._lock,)):
            if time.monotonic() > end:
                raise StoreLockedError(
                    "another session has this stream open; wait or stop it",
                    where=self.where,
                )
            time.sleep(0.05)

    def repair_permissions(self) -> None:
        """The schema is its owner's only: private counts are in it. Roles that a GRANT or default privileges let in are
        named; only their owner knows why they were."""
        query = "SELECT 1 FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = ? AND a.grantee = 0"
        if self._one(query, (self._schema,)) is not None:
            self.execute(f"REVOKE ALL ON SCHEMA {self._schema} FROM PUBLIC")
            warnings.warn(
                f"{self.where}: everybody had rights on the schema",
                StatePermissionWarning,
                stacklevel=6,
            )
        readers = self.execute(
            "SELECT rolname::text FROM pg_roles r WHERE NOT rolsuper AND rolname <> current_user AND rolname !~ '^pg_' "
            "AND has_schema_privilege(r.oid, ?, 'USAGE') AND EXISTS (SELECT 1 FROM pg_class c WHERE relkind = 'r' "
            "AND relnamespace = ?::text::regnamespace AND has_table_privilege(r.oid, c.oid, 'SELECT')) ORDER BY 1",
            (self._schema, self._schema),
        ).fetchall()
        if readers:
            names = ", ".join(name for (name,) in readers)
            warnings.warn(
                f"{self.where}: other roles may read private counts: {names}; REVOKE rights and default privileges, "
                "or encrypt the store",
                StatePermissionWarning,
                stacklevel=6,
            )

    # Inside

    def _one(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """The only value of the only row."""
        row = self.execute(statement, parameters).fetchone()
        return None if row is None else row[0]

    def _set_up(self) -> None:
        self._connection.prepare_threshold = None
        if self._connection.info.server_version < _MIN_VERSION:
            raise StoreError("the server is too old", where=self.where, allowed="PostgreSQL 12 or newer")
        if self._show("server_encoding") != "UTF8":
            raise StoreError(
                "the database cannot hold every text",
                where=self.where,
                allowed="a database with encoding UTF8",
            )
        if self._read_only:
            return
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            if self._show(name) != "on":
                raise StoreError(
                    f"the server runs with {name} = {self._show(name)}: power loss may lose a commit",
                    where=self.where,
                    allowed=f"{name} = on",
                )
        if self._one("SELECT pg_is_in_recovery()"):
            raise StoreError("the server is a standby", where=self.where, allowed="the primary server")
        self._look_at_log()

    def _look_at_log(self) -> None:
        """Values of statements are true counts."""
        on = {name for name, off in _LOGGING.items() if self._show(name) not in off}
        if not {"log_min_duration_sample", "log_statement_sample_rate"} <= on:
            on -= {"log_min_duration_sample", "log_statement_sample_rate"}
        if self._show("log_parameter_max_length") == "0":
            on.clear()
        if self._show("log_parameter_max_length_on_error") not in ("", "0"):
            on.add("log_parameter_max_length_on_error")
        if on:
            warnings.warn(
                f"{self.where}: the server may write private counts into its log ({', '.join(sorted(on))}); set "
                "log_parameter_max_length = 0 and log_parameter_max_length_on_error = 0",
                StatePermissionWarning,
                stacklevel=7,
            )

    def _show(self, name: str) -> str:
        """A setting of the server; "" where its version does not know it."""
        return str(self._one("SELECT current_setting(?, true)", (name,)) or "")

    def _holds_lock(self) -> bool:
        if self._lock is None:
            return False
        high, low = divmod(self._lock % 2**64, 2**32)
        query = (
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted "
            "AND objsubid = 1 AND classid::bigint = ?::bigint AND objid::bigint = ?::bigint"
        )
        return self._one(query, (high, low)) is not None


class PostgresBackend:
    """The schema of one stream; one session, which holds the lock from the first look on."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.where = f"PostgreSQL, schema {server.schema}"
        self._session: PostgresDatabase | None = None

    def exists(self) -> bool:
        """Whether the schema holds a store."""
        session = self._own()
        with session.errors():
            return session.has_store()

    def witnesses(self) -> list[Path]:
        """None but the head file, which every store has."""
        return []

    def create(self, fill: Callable[[StoreDatabase], None]) -> None:
        """Schema, tables and rows in one transaction."""
        session, schema = self._own(), self._server.schema
        with session.errors(), transaction(session):
            if session.has_store():
                session.execute(f"DROP SCHEMA {schema} CASCADE")
            elif session.has_schema():
                raise ConfigError(
                    "the schema exists without a stream", where=self.where, allowed="another database"
                )
            session.execute(f"CREATE SCHEMA {schema}")
            fill(session)

    def connect(self) -> PostgresDatabase:
        """The session that holds the lock."""
        session = self._own()
        with session.errors():
            session.repair_permissions()
        return session

    def release(self, db: StoreDatabase) -> None:
        """Nothing: the session holds the lock."""

    def look(self) -> PostgresDatabase | None:
        """A session of its own, without the lock."""
        session = PostgresDatabase(self._server, self.where, read_only=True)
        with session.errors():
            if session.has_store():
                return session
        session.close()
        return None

    def close(self) -> None:
        """End the session, and with it the lock."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _own(self) -> PostgresDatabase:
        if self._session is None:
            session = PostgresDatabase(self._server, self.where)
            try:
                with session.errors():
                    session.take_lock()
            except BaseException:
                session.close()
                raise
            self._session = session
        return self._session
