"""All stays of a database at once, for ``StaySource``: a PostgreSQL table, or the answer to a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpstream.io.sources.pg_session import ServerSource
from dpstream.io.sources.pg_whole import WholeTable
from dpstream.io.sources.query import QuerySource
from dpstream.io.sources.step import StepInput, apart_from_users

_ALLOWED = "one SELECT without parameters that gives all stays, such as SELECT * FROM bookings"


class QueryStays(QuerySource):
    """The answer to a DuckDB query without parameters, as one step.

    Errors and memory as of ``QuerySource``.
    """

    _counts = (0,)
    _allowed = _ALLOWED

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        with self._connection() as connection:
            self._check(connection)
            rows, _ = self._answer(connection, ("", ""))
        yield StepInput(1, str(self._path), None, *apart_from_users(rows, None, self.options.user_column))

    def _bound(self, limits: object) -> list[object]:
        return []


class TableStays(ServerSource):
    """All rows of a PostgreSQL table, view or query, read in one transaction, as one step; all values as text.

    Errors: those of ``WholeTable``. Memory: the columns that are read.
    """

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        whole = WholeTable(self.options, self._columns, parameters=(0,), allowed=_ALLOWED)
        yield StepInput(1, whole.where, None, *apart_from_users(whole.rows(), None, self.options.key_column))
