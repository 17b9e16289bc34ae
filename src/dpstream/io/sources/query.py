"""A table, view or query of a database: asked again for each public period, or read whole.

What differs between servers is a dialect: it opens one connection that only reads, and gives the rows of a period, or
all of them. The borders of the period are parameters of a query, never part of its text. Here are the sources, and the
dialect of DuckDB; those of PostgreSQL and MySQL are in ``pg_session.py`` and ``mysql.py``.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.core.foreign import failures, from_extra
from dpstream.core.schema.arrow import first_repeated
from dpstream.core.tables import Snapshot
from dpstream.io.sources.calendar import Grid, StepNumbers
from dpstream.io.sources.file_opening import UnreadableError
from dpstream.io.sources.keyed_source import KeyedSource, StaySource
from dpstream.io.sources.pieces import StepRows
from dpstream.io.sources.source import (
    PeriodSource,
    Source,
    StepInput,
    apart_from_users,
    require_columns,
    step_input,
)
from dpstream.io.sources.source_keys import PARAMETERS
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.times import deletes_of


class Answer(Protocol):
    """One connection, for one reading. All of it is of one moment, and nothing is written.

    Attributes:
        where: what is read, for messages.
    """

    where: str

    def look(self, grid: Grid) -> None:
        """Check, before a first step is due, what can be checked without reading rows."""

    def tables(self, limits: tuple[Any, Any] | None) -> Iterator[Any]:
        """The rows in blocks, as Arrow tables; the first one has no rows.

        Args:
            limits: the first time of the period and the first one after it (``bounds``); None: all rows.
        """


class QuerySource(PeriodSource):
    """Private records of a table, view or query, step by step; or with keys, as snapshots.

    A query has two parameters: the first day of the period and the day after its last one (dates), or a step number and
    the next one. One for snapshots has none, and gives the table as it is now; or one, the second of these.

    Guarantee: the periods that are asked for are public. A query decides which records are in a step, and is trusted to
    decide about each protected record by that record alone; the plan says so (``options.declared_public``). A step is
    read on one connection, which is closed then: what follows may take long, and nobody should have to wait for it.

    Errors: those of the dialect. Memory: the records of one step.
    """

    def __init__(self, options: SourceOptions, ask: Callable[[], AbstractContextManager[Answer]]) -> None:
        """``ask`` opens a connection of a dialect."""
        self.options, self._ask = options, ask

    def _read(self, grid: Grid, last: int, first: int, seen: Mapping[str, int] | None) -> Iterator[StepInput]:
        if first <= last or first == 1:
            with self._ask() as answer:
                answer.look(grid)
        for step in range(first, last + 1):
            with self._ask() as answer:
                inserts, deletes = self._split(answer, bounds(grid, step))
            if self.options.shape == "snapshots":
                keyed = Snapshot(inserts, str(self.options.key_column), self.options.key_rules)
                yield StepInput(step, grid.batch_id(step), grid.period(step), None, None, keyed=keyed)
            else:
                yield step_input(self.options, grid, step, inserts, deletes)

    def _split(self, answer: Answer, limits: tuple[Any, Any] | None) -> tuple[Any, Any]:
        tables = answer.tables(limits)
        return split_records(next(tables), tables, self.options, answer.where)


class QueryStays(QuerySource):
    """All rows, read on one connection, as one step; for ``StaySource``."""

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        with self._ask() as answer:
            rows, _ = self._split(answer, None)
        yield StepInput(1, answer.where, None, *apart_from_users(rows, None, self.options.key_column))


def open_query(options: SourceOptions, ask: Callable[[], AbstractContextManager[Answer]]) -> Source:
    """The source of what a dialect gives, whatever its rows are."""
    if options.records == "stays":
        return StaySource(options, QueryStays(options, ask))
    source = QuerySource(options, ask)
    return KeyedSource(options, source) if options.records in ("changes", "states") else source


def bounds(grid: Grid, step: int) -> tuple[Any, Any]:
    """The first time of a step and the first one after it: days, or step numbers."""
    period = grid.period(step)
    if period is not None:
        return period
    number = step - 1 + (grid.start if isinstance(grid, StepNumbers) else 1)
    return number, number + 1


def split_records(empty: Any, tables: Any, options: SourceOptions, where: str) -> tuple[Any, Any]:
    """Separate the records of one step into inserts and deletes, and drop the operation column.

    Args:
        empty: an Arrow table without rows, with the columns of the answer.
        tables: the answer in blocks: Arrow tables.
        where: the place for messages.

    Errors:
        ConfigError: two columns have the same name.
        DataError: the column of operations, users or keys is missing, or an operation is a null or an unknown word.
    """
    require_different(empty.column_names, where)
    wanted_columns(empty.column_names, options, (), where)
    column = options.delete_column
    names = [name for name in empty.column_names if name != column]
    pieces = StepRows(empty.select(names))
    for table in tables:
        flags = deletes_of(table, options, where)
        pieces.add(table.select(names), flags, steps=np.ones(table.num_rows, np.int64))
    return pieces.take(1)


def require_different(names: Sequence[str], where: str) -> None:
    """Check that no two columns of an answer have one name (ConfigError)."""
    if first_repeated(names) is not None:
        raise ConfigError("two columns share a name", where=where, allowed="each name once (use AS)")


def wanted_columns(
    there: Collection[str], options: SourceOptions, columns: Sequence[str], where: str
) -> list[str]:
    """The columns to read: those of the schema (without one: all but time and transaction number), and those of
    operations, of users or keys, and of the times of stays.

    Args:
        there: the columns of the table or of the answer.
        columns: the columns of the schema; empty without one.

    Errors:
        DataError: one of them is not there.
    """
    times = (options.time_column, options.delete_time_column) if options.records == "stays" else ()
    chosen = columns or [name for name in there if name not in (options.step_column, options.xid_column)]
    names = dict.fromkeys([*chosen, options.op_column, options.id_column, *times])
    wanted = [name for name in names if name is not None]
    require_columns(wanted, there, where)
    return wanted


def check_time_column(name: str, types: Mapping[str, int], wanted: Collection[int], allowed: str) -> None:
    """Check that the column of times is there and has one of some types, by their numbers (ConfigError)."""
    if types.get(name) not in wanted:
        what = f"column {name!r}: {'another type' if name in types else 'missing'}"
        raise ConfigError(what, where="[source] time_column", allowed=allowed)


def check_parameters(shape: str, number: int) -> None:
    """Check that a query has as many parameters as there are values for (ConfigError)."""
    numbers, allowed = PARAMETERS[shape]
    if number not in numbers:
        what = f"the query has {counted(number, 'parameter')}"
        raise ConfigError(what, where="[source] query", allowed=allowed)


def placeholders(query: str, comments: str) -> int:
    """How many question marks of a query are parameters: those outside texts, quoted names and comments.

    Args:
        comments: the pattern of a comment that ends with its line.
    """
    quoted = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|/\*.*?\*/"
    return re.sub(f"{quoted}|{comments}", " ", query, flags=re.DOTALL).count("?")


def as_table(query: str) -> str:
    """A query as a table that another one reads: nothing but a SELECT can be one."""
    return f"(\n{query.strip().rstrip(';')}\n) AS answer"


_MAGIC = b"DUCK"


def is_database(path: Path) -> bool:
    """Whether a path is a DuckDB file, by its first bytes.

    Errors:
        UnreadableError: a file that may not be read.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == _MAGIC
    except OSError:
        raise UnreadableError("file access denied", where=str(path)) from None


@contextmanager
def open_database(path: Path) -> Iterator[Any]:
    """A connection that only reads, in UTC: otherwise the zone of the process decides which day a moment is on.

    Errors:
        ConfigError: duckdb is not installed, or cannot be set to UTC.
        UnreadableError: the file is not there, is damaged, or another process writes to it.
    """
    with from_extra("duckdb", str(path)):
        import duckdb
    if not path.is_file():
        raise UnreadableError("file missing", where=str(path))
    if not is_database(path):
        # DuckDB would try to guess what else it is.
        raise UnreadableError("unknown database format", where=str(path), allowed="a DuckDB file")
    try:
        # Nothing is loaded from the network, whatever the query names.
        connection = duckdb.connect(
            str(path), read_only=True, config={"autoinstall_known_extensions": "false"}
        )
    except duckdb.Error:
        raise UnreadableError(
            "database damaged, or another process writes",
            where=str(path),
            allowed="a DuckDB file without other writers",
        ) from None
    with closing(connection):
        try:
            connection.execute("SET TimeZone = 'UTC'; SET Calendar = 'gregorian'")
        except duckdb.Error:
            raise ConfigError(
                "DuckDB lacks its extension icu", where=str(path), allowed="DuckDB as from pip"
            ) from None
        yield connection


class DuckDBAnswer:
    """The answer of a DuckDB file, opened for reading only; an ``Answer``. Values keep their types."""

    def __init__(self, options: SourceOptions, connection: Any, where: str) -> None:
        self.where = where
        self._query, self._connection = options.query, connection
        self._shape = options.shape

    def look(self, grid: Grid) -> None:
        """See ``Answer``."""
        self._parameters()

    def tables(self, limits: tuple[Any, Any] | None) -> Iterator[Any]:
        """See ``Answer``."""
        import pyarrow as pa

        values = list(limits or ())
        bound = values[len(values) - self._parameters() :]
        answer = self._connection.sql(self._query, params=bound or None)
        # Older versions of DuckDB call it fetch_arrow_reader.
        read = getattr(answer, "to_arrow_reader", None) or answer.fetch_arrow_reader
        reader = read(2**16)
        yield reader.schema.empty_table()
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def _parameters(self) -> int:
        """How many the query has.

        Errors:
            ConfigError: the text is not one SELECT, or has another number than it may have.
        """
        import duckdb

        statements, wrong = self._connection.extract_statements(self._query), None
        if len(statements) != 1:
            wrong = f"the query has {counted(len(statements), 'statement')}"
        elif statements[0].type != duckdb.StatementType.SELECT:
            wrong = "expected a SELECT that only reads"
        if wrong is not None:
            raise ConfigError(wrong, where="[source] query", allowed=PARAMETERS[self._shape][1])
        number = len(statements[0].named_parameters)
        check_parameters(self._shape, number)
        return number


@contextmanager
def duckdb_answer(options: SourceOptions, base: Path) -> Iterator[DuckDBAnswer]:
    """A connection to the DuckDB file of ``[source]``.

    Errors:
        ConfigError: duckdb is not installed, or the query is not one SELECT, or has other parameters.
        UnreadableError: the file is missing or damaged, or another process writes to it.
        DataError: the query fails on the data. The message quotes no value.
    """
    path = base / str(options.database)
    with open_database(path) as connection:
        import duckdb  # it is installed, or this is not reached

        answer = DuckDBAnswer(options, connection, str(path))
        try:
            yield answer
        except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
            # These errors are about the query's text and about names; no row was read yet. Their messages are left
            # out too, because they quote files that the query reads, and names of columns.
            raise ConfigError(
                f"DuckDB refuses the query ({type(error).__name__}); run it in DuckDB to see why",
                where="[source] query",
                allowed=PARAMETERS[options.shape][1],
            ) from None
        except (duckdb.Error, *failures()) as error:
            # Their messages quote values.
            raise DataError(
                f"the query fails on the data ({type(error).__name__})",
                where=str(path),
                allowed="a query that reads every row",
            ) from None
