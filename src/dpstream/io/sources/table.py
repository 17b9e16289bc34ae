"""A PostgreSQL table (or view) that only grows, read period by period; each row is read once.

The step of a row follows from its own time. Whether the row was there when that step was read follows from the number
of the transaction that wrote it. The largest id or time seen so far cannot show that, because a transaction that began
earlier and commits later brings smaller ones. The border ("watermark") of a reading is the oldest transaction that is
still open then: all transactions below it have ended, and rows of the others are left to the next reading.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpstream.core.errors import ConfigError, DataError
from dpstream.io.libpq import quoted
from dpstream.io.sources.calendar import Grid, Period
from dpstream.io.sources.pg_session import (
    SYSTEM,
    Relation,
    ServerSource,
    Session,
    back_in_time,
    text_schema,
    text_table,
)
from dpstream.io.sources.query import check_time_column, split_records, wanted_columns
from dpstream.io.sources.source import StepInput, step_input
from dpstream.io.sources.source_keys import XID_COLUMN
from dpstream.io.sources.source_options import SourceOptions

_TIMES = {1082: "date", 1114: "timestamp", 1184: "timestamp with time zone"}
_XID, _XID8 = 28, 5069
_WATERMARK = "watermark"


class TableSource(ServerSource):
    """Private records of a table to which rows are only added.

    Guarantee: a row belongs to the step of its own time. If that step was read before the row's transaction was below
    the border, the row is late, and ``late`` says what happens. No row moves another one. A step is read when its
    period (and ``lag``) is over by the clock and all transactions that began to write before the reading have ended.

    Errors: those of ``Session``; StepError: another server, or one that was set back; DataError: a late row with
    ``late = "error"``, a null time or transaction number.

    Memory: the records of one step. Cost: one query per step (an index on the time column helps, and one on
    ``xid_column``), and two transaction numbers per reading.
    """

    def _read(self, grid: Grid, last: int, first: int, seen: Mapping[str, int] | None) -> Iterator[StepInput]:
        if first > last:
            if first == 1:
                self._check_all(grid)
            return
        watermark = None if seen is None else seen.get(_WATERMARK)
        begun, held = (0, None) if self._begun is None else self._begun
        with Session(self.options) as session:
            system = session.system(seen, held)
            session.settle()
        for step in range(first, last + 1):
            # One session per step: what follows a step may take long, and an open snapshot makes the server keep dead
            # rows.
            with Session(self.options) as session:
                relation = session.relation(str(self.options.table))
                with session.transaction() as snapshot:
                    border = held[_WATERMARK] if held is not None and step == begun else snapshot.oldest
                    if snapshot.oldest < max(border, watermark or 0):
                        raise back_in_time(session.where)
                    safe = _Safe(watermark, border, snapshot.next)
                    reading = _Reading(session, relation, self.options, grid, safe)
                    inserts, deletes = reading.records(step, self._columns)
                session.flush()
            watermark = border
            self._position = {SYSTEM: system, _WATERMARK: watermark}
            yield step_input(self.options, grid, step, inserts, deletes)

    def _check_all(self, grid: Grid) -> None:
        """Check that the table and its columns exist, before a first step is due."""
        with Session(self.options) as session:
            relation = session.relation(str(self.options.table))
            wanted_columns(relation.types, self.options, self._columns, session.where)
            _Reading(session, relation, self.options, grid, _Safe(None, 0, 0))


@dataclass(frozen=True)
class _Safe:
    """Numbers of transactions.

    Attributes:
        before: rows of transactions below it were read with released steps; None at the first reading.
        border: rows of transactions below it are read now.
        next: the first number that no transaction has.
    """

    before: int | None
    border: int
    next: int


class _Reading:
    """The reading of one step in one snapshot."""

    def __init__(
        self,
        session: Session,
        relation: Relation,
        options: SourceOptions,
        grid: Grid,
        safe: _Safe,
    ) -> None:
        self._session, self._relation, self._options, self._grid = session, relation, options, grid
        self._safe = safe
        self._time = self._time_column()
        # Without late rows the snapshot alone decides, and numbers of transactions are not needed. But if the table has
        # a column of them, an interrupted reading can be repeated exactly.
        unnumbered = options.late == "drop-and-count-nothing" and options.xid_column is None
        self._number = None if unnumbered else self._transaction_number()

    def records(self, step: int, columns: Sequence[str]) -> tuple[Any, Any]:
        """The inserts and deletes of a step, with all values as text."""
        names = wanted_columns(self._relation.types, self._options, columns, self._session.where)
        self._refuse_nulls()
        condition, borders = self._condition(step)
        cells, schema = ", ".join(f"{quoted(name)}::text" for name in names), text_schema(names)
        query = f"SELECT {cells} FROM {self._relation.name} WHERE {condition}"
        tables = (text_table(block, schema) for block in self._session.stream(query, borders))
        return split_records(schema.empty_table(), tables, self._options, self._session.where)

    def _condition(self, step: int) -> tuple[str, list[Any]]:
        first, after = self._period(step)
        own = f"{self._time} >= %s::date AND {self._time} < %s::date"
        if self._number is None:
            return own, [first, after]
        own += f" AND {self._below(self._safe.border)}"
        if self._safe.before is None or step == 1 or self._options.late == "drop-and-count-nothing":
            return own, [first, after]
        # Rows before the public start are in no step, whenever they come.
        late = (
            f"{self._time} >= %s::date AND {self._time} < %s::date "
            f"AND NOT ({self._below(self._safe.before)}) AND {self._below(self._safe.border)}"
        )
        since = [self._period(1)[0], first]
        if self._options.late == "next-step":
            return f"({own}) OR ({late})", [first, after, *since]
        if self._session.one(f"SELECT EXISTS (SELECT FROM {self._relation.name} WHERE {late})", since):
            raise DataError(
                "a record of a released step came late or changed",
                where=self._session.where,
                allowed=self._options.accepts_late,
            )
        return own, [first, after]

    def _period(self, step: int) -> Period:
        period = self._grid.period(step)
        assert period is not None  # a calendar
        return period

    def _below(self, border: int) -> str:
        """The SQL condition that a row's transaction has a number below ``border``."""
        column, kind = self._number or ("", 0)
        if kind == _XID8:
            return f"{column} < '{border}'::xid8"
        # A 32-bit number wraps around: its distance from the next number gives the 64-bit one. Numbers below 3 are
        # frozen rows, older than every transaction.
        span, raw, following = 2**32, f"{column}::text::bigint", self._safe.next
        back = f"mod(mod({following} - {raw}, {span}) + {span}, {span})"
        return f"(CASE WHEN {raw} < 3 THEN 0 ELSE {following} - {back} END < {border})"

    def _time_column(self) -> str:
        name = str(self._options.time_column)
        check_time_column(
            name, self._relation.types, _TIMES, "a column of the type " + ", ".join(_TIMES.values())
        )
        return quoted(name)

    def _transaction_number(self) -> tuple[str, int]:
        name = self._options.xid_column
        if name is None:
            if self._relation.kind not in ("r", "p"):
                raise ConfigError(
                    "a view lacks transaction numbers",
                    where="[source] xid_column",
                    allowed="an xid8 column (or the table's xmin), or a table",
                )
            return "xmin", _XID
        kind = self._relation.types.get(name)
        if kind != _XID8 and (kind != _XID or self._options.late == "next-step"):
            raise ConfigError(
                f"column {name!r} lacks transaction numbers", where="[source] xid_column", allowed=XID_COLUMN
            )
        return quoted(name), kind

    def _refuse_nulls(self) -> None:
        """Refuse a null time, which has no step, and a null transaction number, which no reading would take
        (DataError)."""
        for name in (self._options.time_column, self._options.xid_column):
            if name is None or name in self._relation.required:
                continue
            query = f"SELECT EXISTS (SELECT FROM {self._relation.name} WHERE {quoted(name)} IS NULL)"
            if self._session.one(query):
                what = "time" if name == self._options.time_column else "transaction number"
                raise DataError(
                    f"missing {what}",
                    where=f"{self._session.where}, column {name!r}",
                    allowed="a NOT NULL column",
                )
