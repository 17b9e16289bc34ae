"""Rows that are stays: each record with its start and its end."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.io.sources.calendar import Grid, StepNumbers
from dpstream.io.sources.joining import join
from dpstream.io.sources.keyed_operations import DELETE, INSERT, plain_texts
from dpstream.io.sources.keyed_options import key_rules
from dpstream.io.sources.keyed_source import free_name, with_key
from dpstream.io.sources.source import Source, check_start
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput
from dpstream.io.sources.times import times_of

__all__ = ["StaySource"]

_NEVER = 2**62
_WHERE = "[source]"

Steps = NDArray[np.int64]


class StaySource(Source):
    """Stays: a record comes at the step of its start and leaves at the step of its end (no end: it is still there).

    Guarantee: the steps of a stay depend on its own two times and on public facts. A stay from before the public start
    is there at step 1, if it has not ended by then. One that starts and ends within a step leaves no trace.

    With ``late = "error"`` a step has an insert for each start and a delete for each end, and its content stays
    the same as ends of coming steps are filled in; a late end shows only where released steps are compared.
    With ``late = "next-step"`` it has all records that are there at its
    end, as the rows are now: whatever was changed or came late shows at the first step that is read after it.

    Errors: those of the source beneath; DataError: a null or unreadable start, an unreadable end, an end before its
    start (a whole day before it, where they are times).

    Memory: all stays.
    """

    def __init__(
        self, options: SourceOptions, beneath: Source, *, today: datetime.date | None = None
    ) -> None:
        self.options = options
        self.beneath = beneath
        self._today = today or options.clock()

    @property
    def position(self) -> dict[str, int]:
        """Nothing: all stays are read at every reading."""
        return {}

    def signature(self) -> Any:
        """See ``Source``."""
        return self.beneath.signature()

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        check_start(start_step)
        grid, last = self.options.grid, self.options.last_step(self._today)
        assert grid is not None  # check_keyed
        assert last is not None
        return self._all(grid, start_step, last)

    def _all(self, grid: Grid, start_step: int, last: int) -> Iterator[StepInput]:
        rows, first, gone = self._stays(grid)
        key, rules = str(self.options.key_column), key_rules(self.options)
        for step in range(start_step, last + 1):
            keyed: KeyedBatch | Snapshot
            if self.options.late == "next-step":
                keyed = Snapshot(rows.filter((first <= step) & (gone > step)), key, rules)
            else:
                keyed = KeyedBatch(*_events(rows, first, gone, step, key), rules=rules)
            yield StepInput(step, grid.batch_id(step), grid.period(step), None, None, keyed=keyed)

    def _stays(self, grid: Grid) -> tuple[Any, Steps, Steps]:
        """All rows in their order, without their times; the steps at which they come and at which they are gone."""
        key, begin, end = (
            str(name)
            for name in (self.options.key_column, self.options.time_column, self.options.delete_time_column)
        )
        tables, firsts, lasts = [], [], []
        for entry in self.beneath.steps():
            assert entry.users is not None
            for name in (begin, end):
                if name not in entry.inserts.column_names:
                    raise DataError(
                        f"there is no column {name!r}", where=entry.batch_id, allowed="a column of the data"
                    )
            starts = self._times(entry.inserts.column(begin), begin, entry.batch_id, grid)
            ends, ended = self._ends(entry.inserts.column(end), end, entry.batch_id, grid)
            if bool((ends[ended] < starts[ended]).any()):
                raise DataError(
                    "an end is before its start",
                    where=f"{entry.batch_id}, columns {begin!r} and {end!r}",
                    allowed="an end on the day of the start or later, or none",
                )
            tables.append(with_key(entry.inserts.drop_columns([begin, end]), entry.users[0], key))
            firsts.append(np.maximum(grid.steps(starts), 1))
            lasts.append(np.where(ended, grid.steps(np.where(ended, ends, 0)), _NEVER))
        self.broken = self.beneath.broken
        rows, first, gone = join(tables, _WHERE), np.concatenate(firsts), np.concatenate(lasts)
        inside = gone >= 1  # others were over before the public start
        return rows.filter(inside), first[inside], gone[inside]

    def _times(self, column: Any, name: str, where: str, grid: Grid) -> Steps:
        numbers = isinstance(grid, StepNumbers)
        values = plain_texts(column, numbers=True)
        if numbers:
            values = _whole(values, f"{where}, column {name!r}")
        return times_of(values, numbers=numbers, name=name, where=where, before=None)

    def _ends(self, column: Any, name: str, where: str, grid: Grid) -> tuple[Steps, NDArray[np.bool_]]:
        """The ends, and which rows have one: a null or an empty text is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = plain_texts(column, numbers=True)
        there = values.is_valid()
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            filled = pc.fill_null(pc.utf8_trim_whitespace(values), "")
            there = pc.not_equal(filled, "")
        ended = there.to_numpy(zero_copy_only=False)
        ends = np.zeros(len(ended), np.int64)
        ends[ended] = self._times(values.filter(there), name, where, grid)
        return ends, ended


def _whole(values: Any, where: str) -> Any:
    """Numbers with a fraction as whole ones: a writer makes doubles of them as soon as one is missing."""
    import pyarrow as pa

    if not pa.types.is_floating(values.type):
        return values
    try:
        return values.cast(pa.int64())
    except pa.ArrowException:
        raise DataError("not a step number", where=where, allowed="whole step numbers") from None


def _events(rows: Any, first: Steps, gone: Steps, step: int, key: str) -> tuple[Any, str, str]:
    """What comes and leaves at a step: a key's earlier stay ends before its next one starts. The table of events, and
    the names of its columns of keys and of operations.

    Stays within the step come and leave one after another: nothing of them is left, and one that overlaps a stay that
    is open is found.
    """
    import pyarrow as pa

    leaves, comes = gone == step, first == step
    parts: tuple[tuple[NDArray[np.bool_], tuple[str, ...]], ...] = (
        (leaves & ~comes, (DELETE,)),
        (leaves & comes, (INSERT, DELETE)),
        (comes & ~leaves, (INSERT,)),
    )
    chosen = [np.repeat(np.flatnonzero(mask), len(does)) for mask, does in parts]
    words = [word for mask, does in parts for _ in range(int(mask.sum())) for word in does]
    name = free_name("operation", rows.column_names)
    table = rows.take(pa.array(np.concatenate(chosen)))
    return table.append_column(name, pa.array(words, pa.string())), key, name
