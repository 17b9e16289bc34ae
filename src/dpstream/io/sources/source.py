"""The contract of all sources.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import DataError, StepError
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.io.sources.calendar import Grid, Period
from dpstream.io.sources.source_options import SourceOptions

if TYPE_CHECKING:
    from dpstream.core.schema import Schema
    from dpstream.core.tables.access import EngineBatch


@dataclass(frozen=True, repr=False)
class StepInput:
    """The private records of one step, before they are encoded.

    Attributes:
        step: 1, 2, 3, ... without gaps; a step without records is a step like any other.
        batch_id: public name of the step, the same at every reading: ``1997-W01``, ``1997-01-02``,
            ``1997-01``, ``1997-01-02_P14D``, ``step-17``, ``block-17``, or a file's path.
        period: first day and the day after the last one; None where steps are not calendar periods.
        inserts: ``pyarrow.Table`` of arriving records (maybe without rows); None with ``keyed``.
        deletes: the same for leaving records; None where the source has no operations, and with ``keyed``.
        users: the user ids of ``inserts`` and of ``deletes`` (``pyarrow.ChunkedArray``, or None where ``deletes`` is
            None); None where the source has no user column.
        keyed: the changes or the snapshot of records with keys; None where records have no keys.
        engine: the records, where they stay in an engine that counts them; the fields before are None then.
    """

    step: int
    batch_id: str
    period: Period | None
    inserts: Any
    deletes: Any
    users: tuple[Any, Any] | None = None
    keyed: KeyedBatch | Snapshot | None = None
    engine: EngineBatch | None = None

    def __repr__(self) -> str:
        return f"StepInput(step={self.step}, batch_id={self.batch_id!r}, records hidden)"


def apart_from_users(
    inserts: Any, deletes: Any, column: str | None
) -> tuple[Any, Any, tuple[Any, Any] | None]:
    """Separate the user column from the records.

    Returns:
        ``inserts`` and ``deletes`` (which may be None) without the column, and the column of both; the arguments and
        None where ``column`` is None.
    """
    if column is None:
        return inserts, deletes, None
    users = (inserts.column(column), None if deletes is None else deletes.column(column))
    others = None if deletes is None else deletes.drop_columns([column])
    return inserts.drop_columns([column]), others, users


def step_input(options: SourceOptions, cut: Grid | str, step: int, inserts: Any, deletes: Any) -> StepInput:
    """A step of records without keys. ``deletes`` mean something where the source has operations only.

    Args:
        cut: the step borders, or the name of a step without them.
    """
    parts = apart_from_users(inserts, deletes if options.deletions else None, options.id_column)
    if isinstance(cut, str):
        return StepInput(step, cut, None, *parts)
    return StepInput(step, cut.batch_id(step), cut.period(step), *parts)


@dataclass(frozen=True)
class ReadOptions:
    """How records are read, besides what ``[source]`` says.

    Attributes:
        base: folder that paths are relative to.
        columns: the names of the attributes. On standard input a missing key is a null. NDJSON files have these
            columns, whatever their records hold; without them those of their first records, which are private facts.
            Of a database only these columns leave the server. With ``period_columns`` they are the variables.
        ignored: names that records may have besides, and that are not read (files and standard input).
        reveal: name the record or the line in errors. Its number is a lower bound of a private number of records: for
            the owner's eyes only.
        watched: more records will come (``run --watch``).
        schema: files of records without keys are encoded with it while they are read.
    """

    base: str | Path = "."
    columns: Sequence[str] = ()
    ignored: Sequence[str] = ()
    reveal: bool = False
    watched: bool = False
    schema: Schema | None = None


def require_columns(names: Iterable[str | None], there: Collection[str], where: str) -> None:
    """Check that the columns that are named are there (DataError)."""
    for name in names:
        if name is not None and name not in there:
            raise DataError(f"unknown column {name!r}", where=where, allowed="a column of the data")


def check_start(start_step: int) -> None:
    """Check that the first step is at least 1 (StepError)."""
    if start_step < 1:
        raise StepError(f"unknown step {start_step}", where="source", allowed="from 1 on")


class Source(ABC):
    """Private records, step by step.

    Guarantee: the step of a record depends on that record and on public facts.

    Attributes:
        options: the ``[source]`` table.
        ignored: names of columns that records may have and that are not read.
        today: the day that decides which periods are over; None: that of the options' clock.
    """

    options: SourceOptions
    ignored: frozenset[str] = frozenset()
    today: datetime.date | None = None

    @property
    def position(self) -> dict[str, int]:
        """How far the source had read when it handed out the last step, as JSON values. Private: kept with the step.

        Empty where the source does not read on from a position.
        """
        return {}

    @abstractmethod
    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """The steps from ``start_step`` on that are due.

        Args:
            start_step: first step that is not released yet.
            seen: ``position`` as saved with the last released step.
            key: secret key for fingerprints in ``position``, the same at every reading.

        Errors:
            StepError: ``start_step`` is below 1, or ``seen`` does not fit the source.
            DataError: the records cannot be read. UnreadableError: not now; perhaps later.
        """

    def committed(self, position: Mapping[str, int]) -> None:  # noqa: B027 - most sources keep nothing back
        """Called when the step that was saved with ``position`` is durable; the source may forget what it needed."""

    def resume(self, step: int, position: Mapping[str, int]) -> None:  # noqa: B027 - most sources read as before
        """Called before ``steps`` after an interrupted reading, which had handed out ``step`` at ``position``. The
        source gives this step as it was then, without what came in between."""

    def _day(self) -> datetime.date:
        return self.today or self.options.clock()

    def signature(self) -> Any:
        """A value, cheap to compute, that changes when there may be new records; None where only reading can tell."""
        return None


class PeriodSource(Source):
    """A source that can be asked for the records of any period again, as databases can."""

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        check_start(start_step)
        return self._read(*self.options.due(self._day()), start_step, seen)

    @abstractmethod
    def _read(self, grid: Grid, last: int, first: int, seen: Mapping[str, int] | None) -> Iterator[StepInput]:
        """The steps from ``first`` to ``last``."""
