"""``[source] kind = "mysql"``: a table or a query of MySQL or MariaDB, asked again for each public period.

A server of this kind tells no reader which transactions are still open, so a row may come after its period was read.
Released periods are therefore compared with the table at every run (``late = "error"``), and ``lag`` has to be longer
than the longest transaction. What is kept of the log (binlog) is read by nobody here.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.core.foreign import from_extra
from dpstream.io.libpq import How, refusal
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.pg_session import PRIMARY, Session, server_address, text_schema, text_table
from dpstream.io.sources.query import (
    as_table,
    bounds,
    check_parameters,
    check_time_column,
    open_query,
    placeholders,
    wanted_columns,
)
from dpstream.io.sources.source import Source
from dpstream.io.sources.source_keys import SourceKeys, SourceKind, shared_keys
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.times import NUMBERS

URL = "mysql://user@host:3306/database (password: MYSQL_PWD or ~/.my.cnf)"
_WHERE = "[source] url"
_OPTIONS = ("ssl_ca", "unix_socket")
#: No password can hide in what this lets through.
_PUBLIC = re.compile(
    r"mysql://(?:[^\s:@/?#]+@)?(?:[A-Za-z0-9_.-]*|\[[0-9a-fA-F:.]+\])(?::[0-9]+)?/[^\s:@/?#]+(?:\?[^\s@#]*)?"
)
_ROWS = 2**14
#: Numbers of the server's errors: the text of a query or a name is wrong, and no row was read yet.
_BAD_TEXT = (1046, 1051, 1052, 1054, 1060, 1064, 1096, 1146, 1149, 1210, 1243, 1247, 1248, 1295, 1305, 1792)
_DENIED = (1044, 1045, 1142, 1143, 1227, 1370)
#: A later attempt may succeed.
_NOT_NOW = (1040, 1053, 1080, 1129, 1152, 1203, 1205, 1213, 1927, 2002, 2003, 2006, 2013, 2055, 3024)
#: What texts and numbers of the answer depend on.
_SETTINGS = (
    "SET NAMES utf8mb4",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)


def named(name: str) -> str:
    """A name as SQL; of a table also with its database."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))


class MySQLSession:
    """One transaction that only reads: all answers are of the moment at which it began (InnoDB).

    Errors, here and in all methods: ConfigError: PyMySQL is not installed; a wrong URL, query or name; no right to
    read; a server that is read-only, as replicas are. UnreadableError: the server does not answer now. DataError: the
    answer cannot be read. No message has the server's own words, which quote values.
    """

    def __init__(self, options: SourceKeys, what: str) -> None:
        """
        Args:
            what: is read, for messages.
        """
        with from_extra("mysql", _WHERE):
            import pymysql
            import pymysql.converters
        self._driver: Any = pymysql
        self.where = f"MySQL, {what}"
        settings = _connection(server_address(options))
        # Without converters for what comes back, every value stays the text that the server sends.
        settings |= {"conv": pymysql.converters.encoders, "connect_timeout": 30, "local_infile": False}
        with self.errors():
            self._connection: Any = self._driver.connect(**settings)
        try:
            self._set_up()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Nothing was written, and an answer that was not read to its end would be read now.
        self._connection._force_close() if kind is not None else self._connection.close()

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The whole answer to a statement of ours; ``%s`` stands for a value."""
        with self.errors(), self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(values) or None)
            return list(cursor.fetchall())

    def columns(self, query: str, parameters: Sequence[str] = ()) -> dict[str, int]:
        """The names of what a query answers, with the numbers of their types; no row is read.

        Errors:
            ConfigError: more than one statement, or anything but a SELECT.
        """
        with self._asked(f"SELECT * FROM {as_table(query)} LIMIT 0", parameters) as cursor:
            return {column[0]: int(column[1]) for column in cursor.description}

    def blocks(self, query: str, names: Sequence[str], parameters: Sequence[str] = ()) -> Iterator[Any]:
        """Some columns of a query's answer in blocks, as Arrow tables of texts. The first block has no rows."""
        schema = text_schema(names)
        yield schema.empty_table()
        wanted = ", ".join(map(named_column, names))
        with self._asked(f"SELECT {wanted} FROM {as_table(query)}", parameters) as cursor:
            while block := cursor.fetchmany(_ROWS):
                firsts = (
                    next((cell for cell in column if cell is not None), "")
                    for column in zip(*block, strict=True)
                )
                if any(isinstance(cell, bytes) for cell in firsts):
                    raise DataError(
                        "a column holds bytes",
                        where=self.where,
                        allowed="CAST(... AS CHAR) in a view or query",
                    )
                yield text_table(block, schema)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the server's errors into dpstream's, without their texts."""
        try:
            yield
        except self._driver.err.Error as error:
            raise self._translated(error) from None
        except OSError:
            raise refusal(Session.refusals, "away", "unreached", self.where) from None
        except (UnicodeError, ValueError):
            raise DataError("unreadable records", where=self.where, allowed="texts in UTF-8") from None

    @contextlib.contextmanager
    def _asked(self, statement: str, parameters: Sequence[str]) -> Iterator[Any]:
        """A statement with ``?`` for each parameter, which the server puts in. A prepared statement is a single one."""
        with self.errors(), self._connection.cursor(self._driver.cursors.SSCursor) as cursor:
            names = [f"@dpstream_{number}" for number in range(len(parameters))]
            for name, value in zip(names, parameters, strict=True):
                cursor.execute(f"SET {name} = %s", (value,))
            cursor.execute("PREPARE dpstream FROM %s", (statement,))
            using = f" USING {', '.join(names)}" if names else ""
            cursor.execute(f"EXECUTE dpstream{using}")
            yield cursor

    def _set_up(self) -> None:
        with self.errors(), self._connection.cursor() as cursor:
            for setting in _SETTINGS:
                cursor.execute(setting)
            cursor.execute("SELECT @@global.read_only")
            if str(cursor.fetchone()[0]) not in ("0", "OFF"):
                raise ConfigError(
                    "the server is a read-only replica, which may lack records", where=_WHERE, allowed=PRIMARY
                )
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def _translated(self, error: Any) -> DpstreamError:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        name = f"error {number}" if number else type(error).__name__
        if number in _BAD_TEXT:
            return ConfigError(
                f"the server refuses the statement ({name}): run it there to see why",
                where=self.where,
                allowed="one reading SELECT on an existing table",
            )
        away = number in _NOT_NOW or isinstance(error, self._driver.err.InterfaceError)
        how: How = "denied" if number in _DENIED else "away" if away else "unreadable"
        return refusal(Session.refusals, how, name, self.where)


def named_column(name: str) -> str:
    """The name of a column as SQL; a dot is a part of it."""
    return f"`{name.replace('`', '``')}`"


def _connection(url: str) -> dict[str, Any]:
    """What PyMySQL takes, of a URL that may hold a password (from ``url_env``)."""
    wrong = ConfigError("unreadable URL (not shown)", where=_WHERE, allowed=URL)
    try:
        parts = urlsplit(url)
        more = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        port = parts.port
    except ValueError:
        raise wrong from None
    database = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "mysql" or not database or "/" in database or not set(more) <= set(_OPTIONS):
        raise wrong
    found: dict[str, Any] = {"database": database, "host": parts.hostname or "localhost", **more}
    own = Path.home() / ".my.cnf"
    if own.is_file():
        found["read_default_file"] = str(own)
    password = unquote(parts.password) if parts.password is not None else os.environ.get("MYSQL_PWD")
    found |= {} if password is None else {"password": password}
    found |= {} if parts.username is None else {"user": unquote(parts.username)}
    found |= {} if port is None else {"port": port}
    if "ssl_ca" in more:
        found |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
    return found


_DAYS, _NUMBERS = (7, 10, 12, 14), (1, 2, 3, 8, 9, 13)


class MySQLAnswer(MySQLSession):
    """What ``[source]`` names on the server; an ``Answer``. All values are texts.

    Errors: those of ``MySQLSession``; DataError: a column is missing, or a null time. ConfigError: a table whose engine
    keeps no snapshots.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options, self._columns = options, columns
        self._parameters = 0 if options.query is None else _parameters(options.query)
        self._query = options.query or f"SELECT * FROM {named(str(options.table))}"
        super().__init__(options, "query" if options.table is None else f"table {options.table}")

    def look(self, grid: Grid) -> None:
        """That all columns are there, and every row of a table is in a step or comes later: another one would be lost
        silently. A stream that continues another one leaves what is before its start to that one."""
        options, (_, types) = self._options, self._names()
        name = options.time_column
        if name is None:
            return
        days = options.every is not None
        allowed = "a date, datetime or timestamp" if days else NUMBERS
        check_time_column(name, types, _DAYS if days else _NUMBERS, allowed)
        some = f"SELECT 1 FROM {named(str(options.table))} WHERE {named_column(name)} "
        where = f"{self.where}, column {name!r}"
        if self.rows(f"{some} IS NULL LIMIT 1"):
            raise DataError("a time is missing", where=where, allowed="a NOT NULL column")
        if options.continues or options.late == "drop-and-count-nothing":
            return
        if self.rows(f"{some} < %s LIMIT 1", (bounds(grid, 1)[0],)):
            raise DataError(
                "a record precedes the start",
                where=where,
                allowed='an earlier [source] start, or late = "drop-and-count-nothing" (leaves such records out)',
            )

    def tables(self, limits: tuple[Any, Any] | None) -> Iterator[Any]:
        """See ``Answer``."""
        names, _ = self._names()
        query, values = self._query, [str(value) for value in limits or ()]
        if self._options.table is not None and self._options.shape == "changes":
            column = named_column(str(self._options.time_column))
            query += f" WHERE {column} >= ? AND {column} < ?"
        else:
            values = values[len(values) - self._parameters :]
        return self.blocks(query, names, values)

    def _names(self) -> tuple[list[str], dict[str, int]]:
        """The columns to read, and the types of all that are there."""
        options = self._options
        types = self.columns(self._query, ["2000-01-01"] * self._parameters)
        if options.table is not None:
            self._require_snapshots(options.table)
        names = wanted_columns(types, options, self._columns, self.where)
        return names, types

    def _require_snapshots(self, table: str) -> None:
        database, _, bare = table.rpartition(".")
        found = self.rows(
            "SELECT ENGINE FROM information_schema.TABLES "
            "WHERE TABLE_NAME = %s AND TABLE_SCHEMA = COALESCE(%s, DATABASE())",
            (bare, database or None),
        )
        engines = [row[0] for row in found if row[0] is not None]  # a view has none
        if engines and engines[0] != "InnoDB":
            raise ConfigError(
                "the table's engine lacks consistent snapshots",
                where=self.where,
                allowed="InnoDB",
            )


def _open(options: SourceOptions, base: Path, columns: Sequence[str]) -> Source:
    return open_query(options, partial(MySQLAnswer, options, columns))


def _parameters(query: str) -> int:
    return placeholders(query, r"--[ \t][^\n]*|#[^\n]*")


def _check(options: SourceKeys) -> None:
    """See ``SourceKind.check``."""
    url = options.url
    # One that may hold a password is not shown.
    if url is not None and (
        not isinstance(url, str) or not _PUBLIC.fullmatch(url) or "password" in url.lower()
    ):
        raise ConfigError(
            "expected a MySQL URL without password (not shown; special signs as %XX)",
            where=_WHERE,
            allowed=f"{URL}; or url_env",
        )
    if options.query is not None:
        check_parameters(options.shape, _parameters(options.query))


SOURCE = SourceKind(_open, keys=shared_keys("mysql"), keyed=True, repeatable=True, check=_check)
