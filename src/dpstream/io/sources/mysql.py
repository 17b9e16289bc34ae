"""``[source] kind = "mysql"``: a table or a query of MySQL or MariaDB, asked again for each public period.

A server of this kind tells no reader which transactions are still open, so a row may come after its period was read.
Released periods are therefore compared with the table at every run (``late = "error"``), and ``lag`` has to be longer
than the longest transaction. What is kept of the log (binlog) is read by nobody here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.core.tables import Snapshot
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.keyed_options import key_rules
from dpstream.io.sources.keyed_stays import StaySource
from dpstream.io.sources.mysql_session import MySQLSession, check_mysql_url, named, named_column
from dpstream.io.sources.query import bounds, split_records
from dpstream.io.sources.source import PeriodSource, Source
from dpstream.io.sources.source_keys import SourceKeys, SourceKind, wrong_source
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput, apart_from_users

#: Texts, quoted names and comments: a question mark in them is no parameter.
_QUOTED = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|--[ \t][^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL
)
_DAYS, _NUMBERS = (7, 10, 12, 14), (1, 2, 3, 8, 9, 13)
#: shape -> the numbers of parameters that a query may have, and the words for messages.
_PARAMETERS: Mapping[str, tuple[tuple[int, ...], str]] = {
    "changes": ((2,), "one SELECT with two parameters, such as SELECT * FROM t WHERE day >= ? AND day < ?"),
    "snapshots": ((0, 1), "one SELECT with no parameter, or with one that stands for the end of the period"),
    "stays": ((0,), "one SELECT without parameters that gives all stays"),
}
_TRUSTED = (
    "the {what} decides which records are in a step, and is trusted to decide about each protected record by that "
    "record alone (no LIMIT, no ranking, no join or subquery that lets one record move another)"
)


class _Asked:
    """What ``[source]`` names on the server, and its columns."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self.what = "query" if options.table is None else f"table {options.table}"
        marks = (
            options.op_column,
            options.user_column,
            options.key_column,
            *((options.time_column, options.delete_time_column) if options.shape == "stays" else ()),
        )
        self._marks = [name for name in marks if name is not None]
        self._columns = columns
        self._parameters = 0 if options.query is None else _parameters(options.query)

    def session(self) -> MySQLSession:
        """A new one: what follows a step may take long, and an open snapshot makes the server keep old rows."""
        return MySQLSession(self._options, self.what)

    def names(self, session: MySQLSession) -> tuple[list[str], dict[str, int]]:
        """The columns to read, and the types of all that are there.

        Errors:
            DataError: one of them is missing. ConfigError: a table whose engine keeps no snapshots.
        """
        types = session.columns(self._query, ["2000-01-01"] * self._parameters)
        if self._options.table is not None:
            self._require_snapshots(session, self._options.table)
        chosen = self._columns or [name for name in types if name != self._options.time_column]
        names = list(dict.fromkeys([*chosen, *self._marks]))
        for name in names:
            if name not in types:
                raise DataError(
                    f"there is no column {name!r}",
                    where=session.where,
                    allowed=f"one of the {counted(len(types), 'column')}",
                )
        return names, types

    def records(
        self, session: MySQLSession, limits: Sequence[Any] = (), condition: str = ""
    ) -> tuple[Any, Any]:
        """The inserts and deletes, every value as text.

        Args:
            limits: values for the parameters of the query, or of ``condition``.
            condition: on the rows of a table.
        """
        names, _ = self.names(session)
        texts = [str(value) for value in limits]
        texts = texts if condition else texts[len(texts) - self._parameters :]
        tables = session.tables(f"{self._query}{condition}", names, texts)
        return split_records(next(tables), tables, self._options, session.where)

    @property
    def _query(self) -> str:
        options = self._options
        return f"SELECT * FROM {named(str(options.table))}" if options.query is None else options.query

    def _require_snapshots(self, session: MySQLSession, table: str) -> None:
        database, _, bare = table.rpartition(".")
        found = session.rows(
            "SELECT ENGINE FROM information_schema.TABLES "
            "WHERE TABLE_NAME = %s AND TABLE_SCHEMA = COALESCE(%s, DATABASE())",
            (bare, database or None),
        )
        engines = [row[0] for row in found if row[0] is not None]  # a view has none
        if engines and engines[0] != "InnoDB":
            raise ConfigError(
                "the table's engine does not give all rows of one moment",
                where=session.where,
                allowed="InnoDB",
            )


class MySQLSource(PeriodSource):
    """Private records of a MySQL or MariaDB table, view or query, step by step; or with keys, as snapshots.

    Guarantee: the periods that are asked for are public. In a table the time of a row decides its step; a query is
    trusted to decide about each protected record by that record alone (``options.declared_public``). Each step is read
    in one transaction that only reads.

    Errors: those of ``MySQLSession``; DataError: a null time. Memory: the records of one step.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self._asked = _Asked(options, columns)

    def _read(self, grid: Grid, last: int, first: int) -> Iterator[StepInput]:
        options = self.options
        if first <= last or first == 1:
            with self._asked.session() as session:  # a wrong table is told before a first step is due
                self._look(session, grid)
        for step in range(first, last + 1):
            limits, period, name = bounds(grid, step), grid.period(step), grid.batch_id(step)
            if options.shape == "snapshots":
                with self._asked.session() as session:
                    rows = self._asked.records(session, limits[1:])[0]
                keyed = Snapshot(rows, str(options.key_column), key_rules(options))
                yield StepInput(step, name, period, None, None, keyed=keyed)
                continue
            condition = ""
            if options.query is None:
                column = named_column(str(options.time_column))
                condition = f" WHERE {column} >= ? AND {column} < ?"
            with self._asked.session() as session:
                inserts, deletes = self._asked.records(session, limits, condition)
            deleted = None if options.op_column is None else deletes
            yield StepInput(step, name, period, *apart_from_users(inserts, deleted, options.user_column))

    def _look(self, session: MySQLSession, grid: Grid) -> None:
        """That all columns are there, and every row of a table is in a step or comes later: another one would be lost
        silently. A stream that continues another one leaves what is before its start to that one."""
        types = self._asked.names(session)[1]
        name = self.options.time_column
        if name is None:
            return
        if types.get(name) not in (_DAYS if self.options.every is not None else _NUMBERS):
            raise ConfigError(
                f"the column {name!r} {'has another type' if name in types else 'is not there'}",
                where="[source] time_column",
                allowed="a date, datetime or timestamp"
                if self.options.every is not None
                else "whole step numbers",
            )
        table = named(str(self.options.table))
        column = named_column(name)
        if session.rows(f"SELECT 1 FROM {table} WHERE {column} IS NULL LIMIT 1"):
            raise DataError(
                "there is no time",
                where=f"{session.where}, column {name!r}",
                allowed="a column without nulls (NOT NULL)",
            )
        if self.options.continues or self.options.late == "drop-and-count-nothing":
            return
        early = f"SELECT 1 FROM {table} WHERE {column} < %s LIMIT 1"
        if session.rows(early, (bounds(grid, 1)[0],)):
            raise DataError(
                "there is a record before the start",
                where=f"{session.where}, column {name!r}",
                allowed="a time from the start on in every record, an earlier [source] start, or "
                'late = "drop-and-count-nothing", which leaves such records out',
            )


class MySQLStays(Source):
    """All stays, read in one transaction, as one step; for ``StaySource``.

    Errors: those of ``MySQLSession``. Memory: the columns that are read.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self._asked = _Asked(options, columns)

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        with self._asked.session() as session:
            rows = self._asked.records(session)[0]
        yield StepInput(1, self._asked.what, None, *apart_from_users(rows, None, self.options.key_column))


def _open(options: SourceOptions, base: Path, columns: Sequence[str]) -> Source:
    if options.shape == "stays":
        return StaySource(options, MySQLStays(options, columns))
    return MySQLSource(options, columns)


def _parameters(query: str) -> int:
    return _QUOTED.sub(" ", query).count("?")


def _check(options: SourceKeys) -> None:
    """See ``SourceKind.check``."""
    if (options.url is None) == (options.url_env is None):
        raise wrong_source(
            "url and url_env are both missing, or both given",
            "one of the two: the server's URL, or the name of the environment variable that holds it",
        )
    if options.url is not None:
        check_mysql_url(options.url)
    if (options.table is None) == (options.query is None):
        raise wrong_source("nothing says what is read, or two keys do", "one of table and query")
    for key in ("url_env", "table", "query"):
        value = getattr(options, key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise wrong_source(f"{key} is not a text, or is empty", "a text")
    if options.query is not None:
        numbers, allowed = _PARAMETERS[options.shape]
        if _parameters(options.query) not in numbers:
            raise wrong_source(f"query has {counted(_parameters(options.query), 'parameter')}", allowed)
    if options.shape != "changes":
        return
    if options.key_column is not None and not options.insert_only:
        raise wrong_source(
            "the rows of a table have no order, so it cannot be a feed of changes by key",
            'shape = "snapshots" or "stays", or insert_only = true',
        )
    if options.late == "next-step":
        raise wrong_source(
            "a server of MySQL cannot tell late rows from old ones",
            'late = "error" (released steps are compared) or "drop-and-count-nothing" (they are not)',
        )
    if (options.query is None) != (options.time_column is not None):
        what = (
            "is missing"
            if options.query is None
            else "has no meaning for a query, which says what is in a step"
        )
        raise wrong_source(f"time_column {what}", "a column with a table, none with a query")


def _public(options: SourceOptions) -> tuple[str, ...]:
    """See ``SourceKind.public``."""
    if options.query is not None:
        return (_TRUSTED.format(what="query"),)
    return (
        "the table (or view) is trusted to hold each protected record in rows of its own, which no other record moves",
    )


SOURCE = SourceKind(
    _open,
    keys=(
        "url",
        "url_env",
        "table",
        "query",
        "time_column",
        "every",
        "start",
        "end",
        "lag",
        "op_column",
        "op_values",
        "late",
        "user_column",
        "key_column",
        "shape",
        "delete_time_column",
        "known",
        "repeated",
        "shrinks",
        "insert_only",
    ),
    public=_public,
    repeatable=True,
    check=_check,
)
