"""One DuckDB query per step. The borders of the period are parameters of the query, never part of its text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.core.foreign import failures
from dpstream.core.schema.arrow import first_repeated
from dpstream.io.sources.calendar import Grid, StepNumbers
from dpstream.io.sources.file_opening import UnreadableError
from dpstream.io.sources.pieces import StepRows
from dpstream.io.sources.source import PeriodSource, StepInput, apart_from_users
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.times import delete_flags

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
        raise UnreadableError("the file may not be read", where=str(path)) from None


@contextmanager
def open_database(path: Path) -> Iterator[Any]:
    """A connection that only reads, in UTC: otherwise the zone of the process decides which day a moment is on.

    Errors:
        ConfigError: duckdb is not installed, or cannot be set to UTC.
        UnreadableError: the file is not there, is damaged, or another process writes to it.
    """
    try:
        import duckdb
    except ImportError:
        raise ConfigError(
            "the package duckdb is not installed", where=str(path), allowed="pip install 'dpstream[duckdb]'"
        ) from None

    if not path.is_file():
        raise UnreadableError("there is no such file", where=str(path))
    if not is_database(path):
        # DuckDB would try to guess what else it is.
        raise UnreadableError("the file is no DuckDB database", where=str(path), allowed="a DuckDB file")
    try:
        # Nothing is loaded from the network, whatever the query names.
        connection = duckdb.connect(
            str(path), read_only=True, config={"autoinstall_known_extensions": "false"}
        )
    except duckdb.Error:
        raise UnreadableError(
            "the database cannot be opened: it is damaged, or another process writes to it",
            where=str(path),
            allowed="a DuckDB file that nobody has open for writing",
        ) from None
    with closing(connection):
        try:
            _set_utc(connection)
        except duckdb.Error:
            raise ConfigError(
                "this DuckDB cannot read times in UTC",
                where=str(path),
                allowed="DuckDB with its extension icu, as pip installs it",
            ) from None
        yield connection


def _set_utc(connection: Any) -> None:
    connection.execute("SET TimeZone = 'UTC'; SET Calendar = 'gregorian'")


_ROWS = 2**16
_ALLOWED = "one SELECT with two parameters, such as SELECT * FROM t WHERE day >= ? AND day < ?"


class QuerySource(PeriodSource):
    """Private records from a DuckDB file, opened for reading only; one query per step.

    The query has two parameters: the first day of the period and the day after its last one (dates), or a step
    number and the next one.

    Guarantee: the periods that the query is run for are public. The query decides which records are in a step, and is
    trusted to decide about each protected record by that record alone; the plan says so
    (``options.declared_public``).

    Errors:
        ConfigError: duckdb is not installed, or the text is not one SELECT with two parameters.
        UnreadableError: the file is missing or damaged, or another process writes to it.
        DataError: the query fails on the data. The message quotes no value.

    Memory: the records of one step.
    """

    #: The allowed numbers of parameters, and the words for messages.
    _counts: tuple[int, ...] = (2,)
    _allowed = _ALLOWED

    def __init__(
        self, options: SourceOptions, *, base: str | Path = ".", today: datetime.date | None = None
    ) -> None:
        self.options = options
        self._path = Path(base) / str(options.database)
        self._today = today
        self._parameters = 0

    def _read(self, grid: Grid, last: int, first: int) -> Iterator[StepInput]:
        if first > last:
            return
        with self._connection() as connection:
            self._check(connection)
        for step in range(first, last + 1):
            # One connection per step: what follows a step may take long, and no writer should have to wait for it.
            with self._connection() as connection:
                inserts, deletes = self._answer(connection, bounds(grid, step))
            deleted = None if self.options.op_column is None else deletes
            parts = apart_from_users(inserts, deleted, self.options.user_column)
            yield StepInput(step, grid.batch_id(step), grid.period(step), *parts)

    def _answer(self, connection: Any, limits: tuple[Any, Any]) -> tuple[Any, Any]:
        answer = connection.sql(self.options.query, params=self._bound(limits) or None)
        # Older versions of DuckDB call it fetch_arrow_reader.
        read = getattr(answer, "to_arrow_reader", None) or answer.fetch_arrow_reader
        reader = read(_ROWS)
        return split_records(reader.schema.empty_table(), _tables(reader), self.options, str(self._path))

    def _check(self, connection: Any) -> None:
        import duckdb

        statements = connection.extract_statements(self.options.query)
        wrong = None
        if len(statements) != 1:
            wrong = f"the query has {counted(len(statements), 'statement')}"
        elif statements[0].type != duckdb.StatementType.SELECT:
            wrong = "the query is no SELECT, or it writes"
        elif len(statements[0].named_parameters) not in self._counts:
            wrong = f"the query has {counted(len(statements[0].named_parameters), 'parameter')}"
        if wrong is not None:
            raise ConfigError(wrong, where="[source] query", allowed=self._allowed)
        self._parameters = len(statements[0].named_parameters)

    def _bound(self, limits: tuple[Any, Any]) -> list[Any]:
        """The values of the query's parameters."""
        return list(limits)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        with open_database(self._path) as connection:
            import duckdb  # it is installed, or this is not reached

            try:
                yield connection
            except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
                # These errors are about the query's text and about names; no row was read yet. Their messages are left
                # out too, because they quote files that the query reads, and names of columns.
                raise ConfigError(
                    f"DuckDB refuses the query ({type(error).__name__}); run it in DuckDB to see why",
                    where="[source] query",
                    allowed=self._allowed,
                ) from None
            except (duckdb.Error, *failures()) as error:
                # Their messages quote values.
                raise DataError(
                    f"the query fails on the data ({type(error).__name__})",
                    where=str(self._path),
                    allowed="a query that reads every row of every period",
                ) from None


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
        DataError: the column of operations or of users is missing, or an operation is a null or an unknown word.
    """
    column = options.op_column
    if first_repeated(empty.column_names) is not None:
        raise ConfigError(
            "two columns have the same name", where=where, allowed="each name once (AS gives another)"
        )
    for needed in (column, options.user_column):
        if needed is not None and needed not in empty.column_names:
            there = f"a column of the answer, which has {counted(empty.num_columns, 'column')}"
            raise DataError(f"there is no column {needed!r}", where=where, allowed=there)
    names = [name for name in empty.column_names if name != column]
    pieces = StepRows(empty.select(names))
    for table in tables:
        flags = np.zeros(table.num_rows, np.bool_)
        if column is not None:
            cells = table.column(column)
            flags = delete_flags(cells, name=column, where=where, before=None, words=options.op_values)
        pieces.add(table.select(names), flags, steps=np.ones(table.num_rows, np.int64))
    return pieces.take(1)


def _tables(reader: Any) -> Iterator[Any]:
    import pyarrow as pa

    for batch in reader:
        yield pa.Table.from_batches([batch])
