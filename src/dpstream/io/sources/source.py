"""The contract of all sources."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstream.core.errors import ConfigError, StepError
from dpstream.core.schema import Schema
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.io.sources.calendar import Grid, Period
from dpstream.io.sources.source_keys import KINDS, SOURCES, other_kind
from dpstream.io.sources.source_options import SourceOptions

if TYPE_CHECKING:
    from dpstream.core.contracts import EngineBatch


@dataclass(frozen=True, repr=False)
class StepInput:
    """The private records of one step, before they are encoded.

    Attributes:
        step: 1, 2, 3, ... without gaps; a step without records is a step like any other.
        batch_id: public name of the step, the same at every reading: ``1997-W01``, ``1997-01-02``,
            ``1997-01``, ``1997-01-02_P14D``, ``step-17``, ``block-17``, or a file's path.
        period: first day and the day after the last one; None where steps are no calendar periods.
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


def check_start(start_step: int) -> None:
    """Check that the first step is at least 1 (StepError)."""
    if start_step < 1:
        raise StepError(f"there is no step {start_step}", where="source", allowed="a step from 1 on")


class Source(ABC):
    """Private records, step by step.

    Guarantee: the step of a record depends on that record and on public facts.

    Attributes:
        options: the ``[source]`` table.
        ignored: names of columns that records may have and that are not read.
    """

    options: SourceOptions
    ignored: frozenset[str] = frozenset()

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

    def signature(self) -> Any:
        """A value, cheap to compute, that changes when there may be new records; None where only reading can tell."""
        return None


class PeriodSource(Source):
    """A source that can be asked for the records of any period again, as databases can."""

    #: The day that decides which periods are over; None: that of the options' clock.
    _today: datetime.date | None = None

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        check_start(start_step)
        return self._read(*self.options.due(self._today or self.options.clock()), start_step)

    @abstractmethod
    def _read(self, grid: Grid, last: int, first: int) -> Iterator[StepInput]:
        """The steps from ``first`` to ``last``."""


def open_source(
    options: SourceOptions,
    *,
    base: str | Path = ".",
    columns: Sequence[str] = (),
    ignored: Sequence[str] = (),
    reveal: bool = False,
    watched: bool = False,
    schema: Schema | None = None,
) -> Source:
    """Open the source that ``options`` describes. Nothing is read yet.

    Args:
        base: folder that paths are relative to.
        columns: the names of the attributes. On standard input a missing key is a null. Of a PostgreSQL table only
            these columns leave the server. With ``period_columns`` they are the variables.
        ignored: names that records may have besides, and that are not read (files and standard input).
        reveal: name the record in errors; for the owner's eyes only.
        watched: more records will come (``run --watch``).
        schema: files of records without keys are encoded with it while they are read.

    Errors:
        ConfigError: the package of a source of another package is broken.
    """
    kind = other_kind(options.kind)
    if options.key_column is not None and not (kind is not None and kind.keyed):
        return _open_keyed(options, base, columns, ignored, reveal, watched)
    # Imported on use, because each kind needs another library.
    if options.kind == "duckdb":
        from dpstream.io.sources.query import QuerySource

        return QuerySource(options, base=base)
    if options.kind == "postgres":
        from dpstream.io.sources.table import TableSource

        return TableSource(options, columns=columns)
    if options.kind == "postgres-changes":
        from dpstream.io.sources.replication import ChangeSource

        return ChangeSource(options, columns=columns)
    if options.kind not in KINDS:
        return _open_other(options, base, columns, ignored)
    if options.stdin:
        from dpstream.io.sources.stdin import StdinSource

        return StdinSource(options, columns=columns, ignored=ignored, reveal=reveal)
    if options.period_columns is not None:
        from dpstream.io.sources.files import WideSource

        return WideSource(options, base=base, columns=columns, ignored=ignored, reveal=reveal)
    from dpstream.io.sources.files import FileSource

    return FileSource(
        options, base=base, reveal=reveal, watched=watched, columns=columns, ignored=ignored, schema=schema
    )


def _open_other(
    options: SourceOptions, base: str | Path, columns: Sequence[str], ignored: Sequence[str]
) -> Source:
    """Open a source of another package; of one that takes ``shape``, also its snapshots and stays."""
    source = SOURCES.get(options.kind).open(options, Path(base), tuple(columns))
    if not isinstance(source, Source):
        raise ConfigError(
            f"the package of the source {options.kind!r} does not give a dpstream.io.sources.Source",
            where="[source] kind",
            allowed="a package that does",
        )
    source.ignored = frozenset(ignored)
    return source


def _open_keyed(
    options: SourceOptions,
    base: str | Path,
    columns: Sequence[str],
    ignored: Sequence[str],
    reveal: bool,
    watched: bool,
) -> Source:
    """Open a source of records with keys."""
    from dpstream.io.sources.keyed_source import KeyedSource, plain_options

    if options.kind == "postgres-changes":
        from dpstream.io.sources.replication import KeyedChangeSource

        return KeyedChangeSource(options, columns=columns)
    if options.shape != "changes" and options.kind not in KINDS:
        return _open_other(options, base, columns, ignored)
    if options.shape == "snapshots" and options.kind != "files":
        from dpstream.io.sources.keyed_source import QuerySnapshots, TableSnapshots

        if options.kind == "postgres":
            return TableSnapshots(options, columns=columns)
        return KeyedSource(options, QuerySnapshots(plain_options(options), base=base))
    if options.shape == "stays" and options.kind != "files":
        from dpstream.io.sources.keyed_source import QueryStays, StaySource, TableStays

        if options.kind == "postgres":
            return StaySource(options, TableStays(options, columns=columns))
        return StaySource(
            options, QueryStays(plain_options(options, time_column=None, late="error"), base=base)
        )
    whole_files = {
        "time_column": None,
        "every": "files",
        "start": None,
        "end": None,
        "lag": None,
        "late": "error",
    }
    beneath = plain_options(options, **(whole_files if options.shape == "stays" else {}))
    marks = {
        "changes": [options.op_column],
        "snapshots": [],
        "stays": [options.time_column, options.delete_time_column],
    }[options.shape]
    named = [*columns, *(name for name in marks if name is not None)] if columns else ()
    plain = open_source(beneath, base=base, columns=named, ignored=ignored, reveal=reveal, watched=watched)
    if options.shape == "stays":
        from dpstream.io.sources.keyed_source import StaySource

        return StaySource(options, plain)
    return KeyedSource(options, plain)
