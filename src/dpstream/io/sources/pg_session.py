"""A read-only session with the PostgreSQL server that holds private records, and when reading is safe.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dpstream.core.errors import ConfigError, DataError, DpstreamError, StepError
from dpstream.io.libpq import PostgresSession, Refusals, quoted
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.file_opening import UnreadableError
from dpstream.io.sources.query import as_table, check_parameters, require_different, wanted_columns
from dpstream.io.sources.source import PeriodSource
from dpstream.io.sources.source_keys import PARAMETERS, SourceKeys, duration
from dpstream.io.sources.source_options import SourceOptions

_log = logging.getLogger("dpstream.io.sources")

#: Key of a position: the number of the server that was read (``Session.system``).
SYSTEM = "system"

_WHERE = "[source] url"
PRIMARY = "the primary server"
_MIN_VERSION = 130000
_PATIENCE = datetime.timedelta(minutes=10)
#: The texts of values must not depend on settings of the role, nor the meaning of a name on its search path.
_SETTINGS = (
    "SET default_transaction_read_only = on",
    "SET search_path = pg_catalog",
    "SET row_security = off",  # rows that a policy hides are an error, not a silent loss
    "SET timezone = 'UTC'",
    "SET datestyle = 'ISO, YMD'",
    "SET intervalstyle = 'iso_8601'",
    "SET extra_float_digits = 1",
    "SET bytea_output = 'hex'",
    "SET synchronous_commit = local",
    "SET statement_timeout = 0",
    "SET lock_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET client_min_messages = error",
)


@dataclass(frozen=True)
class Relation:
    """A table or a view, as the server's catalog describes it now.

    Attributes:
        name: schema and name, quoted.
        oid: its number in the catalog.
        kind: ``r`` (table), ``p`` (partitioned table), ``v`` (view), ``m`` (materialized view), ``f`` (foreign table).
        full: whether the log of an update or a delete has the whole old row (``REPLICA IDENTITY FULL``).
        types: column -> type number, in the order of the table.
        required: columns that cannot be null.
    """

    name: str
    oid: int
    kind: str
    full: bool
    types: dict[str, int]
    required: frozenset[str]


@dataclass(frozen=True)
class Snapshot:
    """Which transactions had ended: all with numbers below ``oldest``, none from ``next`` on (64-bit numbers)."""

    oldest: int
    next: int


def back_in_time(where: str) -> StepError:
    """The refusal of a server that was set back."""
    return StepError("the server went back in time", where=where, allowed="the server as before")


class Session(PostgresSession):
    """One connection, for reading only.

    Errors:
        ConfigError: the URL cannot be used, the server is too old or a standby, or the role lacks a right.
        UnreadableError: the server cannot be reached, or the connection was lost.
        DataError: the records cannot be read.
    """

    refusals: ClassVar[Refusals] = {
        "unreached": (UnreadableError, "{}", "a running server at [source] url"),
        "lost": (UnreadableError, "connection lost", "running again"),
        "denied": (
            ConfigError,
            "the role lacks a right ({})",
            'one that may read the table (kind = "postgres-changes": with REPLICATION)',
        ),
        "away": (UnreadableError, "the server cannot answer now ({})", "running again"),
        "unreadable": (DataError, "unreadable records ({})", "a readable table"),
    }

    def __init__(self, options: SourceKeys) -> None:
        self._patience = _PATIENCE if options.wait is None else duration(options.wait, "wait")
        where = "PostgreSQL, query" if options.table is None else f"PostgreSQL, table {options.table}"
        super().__init__(server_address(options), where, _WHERE, _SETTINGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small answer."""
        with self.errors():
            answer: list[tuple[Any, ...]] = self._connection.execute(
                statement.encode(), parameters or None
            ).fetchall()
            return answer

    def one(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """The first value of the first row."""
        return self.rows(statement, parameters)[0][0]

    def stream(
        self, statement: str, parameters: Sequence[Any] = (), *, binary: bool = False, size: int = 2**14
    ) -> Iterator[list[tuple[Any, ...]]]:
        """A large answer in blocks of at most ``size`` rows; only inside ``transaction``. Memory: one block."""
        with self.errors(), self._connection.cursor("dpstream", binary=binary) as cursor:
            cursor.execute(statement.encode(), parameters or None)
            while block := cursor.fetchmany(size):
                yield block

    @contextmanager
    def transaction(self) -> Iterator[Snapshot]:
        """A transaction: everything that is read in it comes from one snapshot of the server."""
        connection = self._connection
        with self.errors():
            connection.isolation_level = self._driver.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                (low, high) = connection.execute(
                    b"SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint "
                    b"FROM pg_current_snapshot() s"
                ).fetchone()
                yield Snapshot(low, high)

    def settle(self, grace: float | None = None) -> None:
        """Wait until every transaction that has a number now has ended, so that none can add records to a step that is
        due.

        A transaction gets its number at its first write. Transactions of all databases of the server count, prepared
        ones too. An interrupt ends the wait.

        Args:
            grace: seconds to wait at most; after that the reading goes on. None: wait as long as ``[source] wait``
                allows, with one warning through ``logging``, and then raise.

        Errors:
            UnreadableError: a transaction is still open at the end of ``[source] wait``.

        Cost: one transaction number, because a snapshot does not show which numbers have been given out.
        """
        border = int(self.one("SELECT pg_current_xact_id()::text::bigint"))
        limit = self._patience.total_seconds() if grace is None else grace
        end, warned = time.monotonic() + limit, grace is not None
        oldest = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        while int(self.one(oldest)) <= border:
            if time.monotonic() >= end:
                if grace is not None:
                    return
                raise UnreadableError(
                    "a transaction stays open",
                    where=self.where,
                    allowed="end it (pg_stat_activity, pg_prepared_xacts), or a longer [source] wait",
                )
            if not warned:
                _log.warning("waiting for open transactions, at most %s", self._patience)
                warned = True
            time.sleep(0.1)

    def flush(self) -> None:
        """Write every commit so far to the server's disk, so that the server cannot give out the numbers of these
        transactions again after a crash.

        This logs an empty message. Its commit flushes the log, and with it the commits of sessions that did not wait
        for the disk.
        """
        self.rows("SELECT pg_logical_emit_message(true, 'dpstream', '')")

    def system(self, *positions: Mapping[str, int] | None) -> int:
        """The number that identifies this server's data (``system_identifier``), which all given positions have.

        Errors:
            StepError: it is another server than the one that the released steps were read from.
        """
        number = int(self.one("SELECT system_identifier FROM pg_control_system()"))
        if any(position is not None and position.get(SYSTEM) != number for position in positions):
            raise StepError(
                "the released steps came from another server",
                where=self.where,
                allowed="the same server, its promoted standby, or a physical copy",
            )
        return number

    def relation(self, name: str) -> Relation:
        """Look up a table or a view in the server's catalog.

        Args:
            name: its name as the catalog has it, with its schema and a dot where that is not ``public``.

        Errors:
            ConfigError: the table is missing.
        """
        schema, _, bare = name.rpartition(".")
        schema = schema or "public"
        answer = self.rows(
            "SELECT c.oid::bigint, c.relkind::text, c.relreplident::text FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p', 'v', 'm', 'f')",
            (schema, bare),
        )
        if not answer:
            raise ConfigError(
                f"missing table {bare!r} in schema {schema!r}",
                where="[source] table",
                allowed="a name as the catalog has it",
            )
        oid, kind, identity = answer[0]
        columns = self.rows(
            "SELECT attname::text, atttypid::bigint, attnotnull FROM pg_attribute "
            "WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (oid,),
        )
        types = {column: int(number) for column, number, _ in columns}
        required = frozenset(column for column, _, never_null in columns if never_null)
        return Relation(f"{quoted(schema)}.{quoted(bare)}", int(oid), kind, identity == "f", types, required)

    def _set_up(self) -> None:
        if self._connection.info.server_version < _MIN_VERSION:
            raise ConfigError("server too old", where=_WHERE, allowed="PostgreSQL 13 or newer")
        if self.one("SELECT pg_is_in_recovery()"):
            raise ConfigError(
                "the server is a standby, which may lack records", where=_WHERE, allowed=PRIMARY
            )


def server_address(options: SourceKeys) -> str:
    """The server's URL, from ``url`` or from the environment variable ``url_env``. No message shows it."""
    if options.url_env is None:
        return str(options.url)
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", options.url_env):
        raise ConfigError(
            "expected an environment variable", where="[source] url_env", allowed="letters, digits and _"
        )
    url = os.environ.get(options.url_env, "")
    if not url:
        raise ConfigError(
            f"environment variable {options.url_env} unset",
            where="[source] url_env",
            allowed="a variable with the server's URL",
        )
    return url


def text_schema(names: Sequence[str]) -> Any:
    """The Arrow schema of these columns, all of texts."""
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in names])


def text_table(rows: Sequence[Sequence[str | None]], schema: Any) -> Any:
    """Rows of texts as a ``pyarrow.Table``; at least one row."""
    import pyarrow as pa

    return pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema)


class ServerSource(PeriodSource):
    """What all sources on a PostgreSQL server share: the position, with the number of the server that was read."""

    def __init__(self, options: SourceOptions, *, columns: Sequence[str] = ()) -> None:
        self.options = options
        self._columns = columns
        self._position: dict[str, int] = {}
        self._begun: tuple[int, dict[str, int]] | None = None

    @property
    def position(self) -> dict[str, int]:
        """How far the source has read, and the number of the server."""
        return dict(self._position)

    def resume(self, step: int, position: Mapping[str, int]) -> None:
        """See ``Source``: read ``step`` as far as the interrupted reading had read it, up to ``position``."""
        self._begun = (step, dict(position))


_QUERY = "[source] query"
_WRITES = "25006"
#: Classes of SQLSTATE in which the text of a query is wrong; no row was read yet.
_BAD_QUERY = ("42", "0A")
#: A role without the right to read.
_DENIED = "42501"
#: Types of columns whose largest value is called infinity, and what their cells are as text.
_TIMES = {
    1082: "NULLIF({0}, 'infinity')::text",  # date
    1114: "NULLIF({0}, 'infinity')::text",  # timestamp
    1184: "(NULLIF({0}, 'infinity') AT TIME ZONE 'UTC')::text",  # timestamp with time zone
}


class WholeTable(Session):
    """What ``[source]`` names on a PostgreSQL server: ``table`` (also a view), or the answer to the owner's ``query``;
    an ``Answer``, inside ``transaction``. All values are texts; in a column of times, ``infinity`` is a null: it has no
    end.

    Guarantee: every row that is committed when the transaction begins is read, and nothing is written.

    Errors: those of ``Session``. ConfigError: the query is more than a SELECT, has parameters that nobody
    has a value for, or names what is not there. DataError: a column is missing.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        """
        Args:
            columns: those of the schema; only these, the key and the times leave the server. Empty: all do.
        """
        self._options, self._columns = options, columns
        self._allowed = PARAMETERS[options.shape][1]
        super().__init__(options)

    def look(self, grid: Grid) -> None:
        """See ``Answer``."""
        self._asked()

    def tables(self, limits: tuple[Any, Any] | None) -> Iterator[Any]:
        """See ``Answer``. libpq's extended protocol takes a single statement, whatever its text says, and a cursor
        takes a SELECT only."""
        statement, names, parameters = self._asked()
        values = [str(limits[1]).encode()] if limits and parameters else []
        schema = text_schema(names)
        yield schema.empty_table()
        with self.errors():
            self._call("exec_params", f"DECLARE dpstream NO SCROLL CURSOR FOR {statement}".encode(), values)
            while block := self._connection.execute(b"FETCH FORWARD 16384 FROM dpstream").fetchall():
                yield text_table(block, schema)

    def _asked(self) -> tuple[str, list[str], int]:
        """The SELECT, the names of its columns, and how many parameters it has."""
        options = self._options
        if options.query is None:
            relation = self.relation(str(options.table))
            types, parameters, source = relation.types, 0, relation.name
        else:
            types, parameters = self._describe(options.query)
            source = as_table(options.query)
            check_parameters(options.shape, parameters)
        names = wanted_columns(types, options, self._columns, self.where)
        times = (options.time_column, options.delete_time_column)
        cells = (cell_as_text(quoted(name), types[name] if name in times else None) for name in names)
        return f"SELECT {', '.join(cells)} FROM {source}", names, parameters

    def _describe(self, query: str) -> tuple[dict[str, int], int]:
        """What a query would answer, without running it: name -> type number of each column, and how many
        parameters it has."""
        self.rows("SELECT set_config('search_path', 'pg_catalog, public', true)")
        with self.errors():
            self._call("prepare", b"", query.encode())
            try:
                self._call("prepare", b"", f"SELECT * FROM {as_table(query)}".encode())
            except self._driver.Error as error:
                if not (error.sqlstate or "").startswith(_BAD_QUERY):
                    raise
                raise ConfigError(
                    "expected a SELECT that only reads", where=_QUERY, allowed=self._allowed
                ) from None
            answer = self._call("describe_prepared", b"")
        names = [answer.fname(number).decode() for number in range(answer.nfields)]
        require_different(names, _QUERY)
        return {name: answer.ftype(number) for number, name in enumerate(names)}, answer.nparams

    def _call(self, name: str, *arguments: Any) -> Any:
        """A call of libpq that psycopg has no method for, with psycopg's errors."""
        answer = getattr(self._connection.pgconn, name)(*arguments)
        words = self._driver.pq
        if answer.status not in (words.ExecStatus.COMMAND_OK, words.ExecStatus.TUPLES_OK):
            state = (answer.error_field(words.DiagnosticField.SQLSTATE) or b"").decode()
            try:
                raise self._driver.errors.lookup(state)()
            except KeyError:  # no number: the connection was lost
                raise self._driver.OperationalError() from None
        return answer

    def _translated(self, error: Any) -> DpstreamError:
        state = error.sqlstate or ""
        if state == _WRITES:
            return ConfigError("the statement would write", where=_QUERY, allowed=self._allowed)
        if self._options.query is not None and state.startswith(_BAD_QUERY) and state != _DENIED:
            name = f"{type(error).__name__}, SQLSTATE {state}"
            return ConfigError(
                f"PostgreSQL refuses the query ({name}); run it there to see why",
                where=_QUERY,
                allowed=self._allowed,
            )
        return super()._translated(error)


@contextmanager
def whole_table(options: SourceOptions, columns: Sequence[str]) -> Iterator[WholeTable]:
    """One transaction of a session of its own."""
    with WholeTable(options, columns) as session, session.transaction():
        yield session


def cell_as_text(column: str, kind: int | None) -> str:
    """SQL for the cells of a column as texts; of a type of times, ``infinity`` is a null: without end.

    Args:
        column: its name, quoted.
        kind: the number of its type; None: whatever type, without times.
    """
    pattern = "{0}::text" if kind is None else _TIMES.get(kind, "{0}::text")
    return pattern.format(column)
