"""A DuckDB query per step: the period's borders are bound as parameters, never written into the text."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.core.foreign import failures
from dpstream.core.schema.arrow import first_repeated
from dpstream.io.sources.calendar import Grid, StepNumbers
from dpstream.io.sources.duckdb_file import open_database
from dpstream.io.sources.pieces import Pieces
from dpstream.io.sources.source import Source, check_start
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput, apart_from_users
from dpstream.io.sources.times import delete_flags

__all__ = ["QuerySource"]

_ROWS = 2**16
_ALLOWED = "one SELECT with two parameters, such as SELECT * FROM t WHERE day >= ? AND day < ?"


class QuerySource(Source):
    """Private records from a DuckDB file, opened for reading only; one query per step.

    The query has two parameters: the first day of the period and the day after its last one (dates), or a step
    number and the next one.

    Guarantee: which periods are asked for is public. Which records are in the answer is the query's
    decision, and it is trusted to decide about each protected record by that record alone; the plan says
    so (``options.declared_public``).

    Errors:
        ConfigError: duckdb is not installed; the text is no single SELECT with two parameters.
        UnreadableError: the file is not there, is damaged, or another process writes to it.
        DataError: the query fails on the data (no value is told).

    Memory: the records of one step.
    """

    #: How many parameters the query may have, and the sentence that says so.
    _counts: tuple[int, ...] = (2,)
    _allowed = _ALLOWED

    def __init__(
        self, options: SourceOptions, *, base: str | Path = ".", today: datetime.date | None = None
    ) -> None:
        self.options = options
        self._path = Path(base) / str(options.database)
        self._today = today or options.clock()
        self._parameters = 0

    @property
    def position(self) -> dict[str, int]:
        """Nothing: a step can be asked for again."""
        return {}

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``. Every period is asked for in a transaction of its own."""
        check_start(start_step)
        grid, last = self.options.grid, self.options.last_step(self._today)
        if grid is None or last is None:
            raise ConfigError("nothing says where a step ends", where="[source]", allowed="every, start, end")
        return self._asked(grid, start_step, last)

    def _asked(self, grid: Grid, first: int, last: int) -> Iterator[StepInput]:
        if first > last:
            return
        with self._connection() as connection:
            self._check(connection)
        for step in range(first, last + 1):
            # Closed in between: a step may take long, and a writer should not have to wait for it.
            with self._connection() as connection:
                inserts, deletes = self._answer(connection, bounds(grid, step))
            deleted = None if self.options.op_column is None else deletes
            parts = apart_from_users(inserts, deleted, self.options.user_column)
            yield StepInput(step, grid.batch_id(step), grid.period(step), *parts)

    def _answer(self, connection: Any, limits: tuple[Any, Any]) -> tuple[Any, Any]:
        answer = connection.sql(self.options.query, params=self._bound(limits) or None)
        # Older versions of DuckDB have the other name.
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
        """What stands for the query's parameters."""
        return list(limits)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        with open_database(self._path) as connection:
            import duckdb  # it is installed, or this is not reached

            try:
                yield connection
            except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
                # These are about the text of the query and the names of columns; no row was read yet.
                # Their texts are not passed on all the same: they quote files that the query reads, and name columns.
                raise ConfigError(
                    f"the query cannot be used ({type(error).__name__}); DuckDB itself says why",
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
    """The records of one step, inserts and deletes apart, without the column of operations.

    Errors:
        ConfigError: two columns have one name.
        DataError: that column or the one of the users is missing, or operations are something else than their
        words.
    """
    column = options.op_column
    if first_repeated(empty.column_names) is not None:
        raise ConfigError(
            "two columns have one name", where=where, allowed="each name once (AS gives another)"
        )
    for needed in (column, options.user_column):
        if needed is not None and needed not in empty.column_names:
            there = f"a column of the answer, which has {counted(empty.num_columns, 'column')}"
            raise DataError(f"there is no column {needed!r}", where=where, allowed=there)
    names = [name for name in empty.column_names if name != column]
    pieces = Pieces(empty.select(names))
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
