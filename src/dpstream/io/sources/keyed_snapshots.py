"""Snapshots, the whole table at the time of reading: a PostgreSQL table, or the answer to a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpstream.core.tables import Snapshot
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.keyed_options import key_rules
from dpstream.io.sources.pg_session import ServerSource
from dpstream.io.sources.pg_whole import WholeTable
from dpstream.io.sources.query import QuerySource
from dpstream.io.sources.source import check_start
from dpstream.io.sources.step import StepInput

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
    """Snapshots of a PostgreSQL table, view or query, each in one transaction; all values as text.

    The query has no parameter, or one: the day after the period's last one.

    Guarantee: the steps that are read, and the time of reading, are public. A snapshot holds every row that is
    committed when its transaction begins.

    Errors: those of ``WholeTable``. Memory: the columns that are read.
    """

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        check_start(start_step)
        return self._read(*self.options.due(self._today), start_step)

    def _read(self, grid: Grid, last: int, first: int) -> Iterator[StepInput]:
        whole = WholeTable(self.options, self._columns, parameters=(0, 1), allowed=_ALLOWED)
        if last < first == 1:
            whole.look()
        key, rules = str(self.options.key_column), key_rules(self.options)
        for step in range(first, last + 1):
            period = grid.period(step)
            assert period is not None  # check_kind
            keyed = Snapshot(whole.rows(period[1].isoformat()), key, rules)
            yield StepInput(step, grid.batch_id(step), period, None, None, keyed=keyed)
