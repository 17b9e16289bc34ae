"""Snapshots, the whole table at the time of reading: the answer to a DuckDB query, or a PostgreSQL table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpstream.core.tables import Snapshot
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.keyed_options import key_rules
from dpstream.io.sources.pg_session import Relation, ServerSource, Session
from dpstream.io.sources.query import QuerySource
from dpstream.io.sources.source import check_start
from dpstream.io.sources.step import StepInput
from dpstream.io.sources.table import text_records, wanted_columns

__all__ = ["QuerySnapshots", "TableSnapshots"]

_ALLOWED = (
    "one SELECT with no parameter, or with one that stands for the end of the period, such as SELECT * FROM t WHERE "
    "valid_from < $1 AND (valid_to IS NULL OR valid_to >= $1)"
)


class QuerySnapshots(QuerySource):
    """Snapshots from a DuckDB file: one query per step.

    A query without a parameter gives the table as it is now. A query with one parameter gives the table as it was at
    the end of the step; the parameter is the day after the period, or the next step number.

    Guarantee, errors and memory as of ``QuerySource``.
    """

    _counts = (0, 1)
    _allowed = _ALLOWED

    def _bound(self, limits: tuple[Any, Any]) -> list[Any]:
        return [limits[1]][: self._parameters]


class TableSnapshots(ServerSource):
    """Snapshots of a PostgreSQL table or view. Each is read in one transaction, with all values as text.

    Guarantee: the steps that are read, and the time of reading, are public. A snapshot holds every row that is
    committed when its transaction begins.

    Errors: those of ``Session``. Memory: the table's columns.
    """

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        check_start(start_step)
        return self._read(*self.options.due(self._today), start_step)

    def _read(self, grid: Grid, last: int, first: int) -> Iterator[StepInput]:
        if last < first == 1:
            with Session(self.options) as session:
                self._names(session.relation(str(self.options.table)))
        key, rules = str(self.options.key_column), key_rules(self.options)
        for step in range(first, last + 1):
            with Session(self.options) as session:
                keyed = Snapshot(self._rows(session), key, rules)
            yield StepInput(step, grid.batch_id(step), grid.period(step), None, None, keyed=keyed)

    def _rows(self, session: Session) -> Any:
        relation = session.relation(str(self.options.table))
        names = self._names(relation)
        with session.transaction():
            return text_records(session, relation, names, self.options)[0]

    def _names(self, relation: Relation) -> list[str]:
        """The columns that leave the server; DataError where the table lacks one."""
        columns = [*self._columns, str(self.options.key_column)] if self._columns else ()
        return wanted_columns(relation, self.options, columns)
