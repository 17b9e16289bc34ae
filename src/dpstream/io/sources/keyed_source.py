"""Records with keys, step by step: change feeds and snapshots, read through a source that does not know keys.

The source beneath cuts rows into steps. It reads keys as it reads user ids (``SourceOptions.id_column``), because
both have the same form in all formats: texts or whole numbers. This module reads the operations.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.operations import DELETE, INSERT, UPDATE, plain_texts
from dpstream.io.sources.pieces import join
from dpstream.io.sources.source import PeriodSource, Source, StepInput, require_columns
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.times import NUMBERS, times_of


def free_name(wanted: str, names: Sequence[str]) -> str:
    """``wanted``, with underscores appended until it is none of ``names``."""
    while wanted in names:
        wanted += "_"
    return wanted


class KeyedSource(Source):
    """Changes by key, or snapshots, made from the steps of another source.

    Guarantee: that of the source beneath. The operation of a row depends on that row alone.

    Errors: those of the source beneath; DataError, at its step: the operation column is missing, or holds a null or an
    unknown word.
    """

    def __init__(self, options: SourceOptions, beneath: Source) -> None:
        self.options = options
        self.beneath = beneath
        self._empty_is_null = False

    @property
    def position(self) -> dict[str, int]:
        """The position of the source beneath."""
        return self.beneath.position

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``."""
        self._empty_is_null = self.options.updates == "changed" and _reads_csv(self.beneath)
        for entry in self.beneath.steps(start_step, seen=seen, key=key):
            yield StepInput(entry.step, entry.batch_id, entry.period, None, None, keyed=self._keyed(entry))

    def committed(self, position: Mapping[str, int]) -> None:
        """See ``Source``."""
        self.beneath.committed(position)

    def resume(self, step: int, position: Mapping[str, int]) -> None:
        """See ``Source``."""
        self.beneath.resume(step, position)

    def signature(self) -> Any:
        """See ``Source``."""
        return self.beneath.signature()

    def _keyed(self, entry: StepInput) -> KeyedBatch | Snapshot:
        assert entry.users is not None  # they are the keys
        key, rules = str(self.options.key_column), self.options.key_rules
        rows = entry.inserts.append_column(key, entry.users[0])
        if self.options.shape == "snapshots":
            return Snapshot(rows, key, rules)
        column = self.options.op_column
        if column is None:
            return KeyedBatch(rows, key, rules=rules)
        rows = self._read_operations(rows, column, f"step {entry.batch_id}")
        return KeyedBatch(
            rows, key, column, "null-keeps" if self.options.updates == "changed" else None, rules
        )

    def _read_operations(self, rows: Any, column: str, where: str) -> Any:
        """The rows that are not ignored, with their operations in the words of ``KeyedBatch``."""
        import pyarrow as pa

        require_columns((column,), rows.column_names, where)
        read = self.options.op_values.read(rows.column(column), name=column, where=where)
        kept = read != "ignore"
        rows, meaning = rows.drop_columns([column]).filter(pa.array(kept)), pa.array(read[kept], pa.string())
        if self._empty_is_null:
            rows = _nulls_for_empty(rows, meaning, str(self.options.key_column))
        return rows.append_column(column, meaning)


def _reads_csv(source: Source) -> bool:
    """Whether the source has a csv file, where a cell cannot be null."""
    from dpstream.io.sources.file_opening import file_format
    from dpstream.io.sources.files import FileSource

    return isinstance(source, FileSource) and any(file_format(path) == "csv" for path in source.files())


def _nulls_for_empty(rows: Any, meaning: Any, key_column: str) -> Any:
    """Replace empty texts in updates by nulls, which keep the old value: a csv file has no nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    updates = pc.equal(meaning, UPDATE)
    for number, name in enumerate(rows.column_names):
        column = rows.column(name)
        if name != key_column and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            empty = pc.and_(updates, pc.fill_null(pc.equal(column, ""), False))
            rows = rows.set_column(number, name, pc.if_else(empty, pa.scalar(None, column.type), column))
    return rows


_NEVER = 2**62
_WHERE = "[source]"

Steps = NDArray[np.int64]


class StaySource(PeriodSource):
    """Stays: a record enters at the step of its start and leaves at the step of its end. Without an end it stays.

    Guarantee: the steps of a stay depend on its own two times and on public facts. A stay that started before the
    public start enters at step 1, if it has not ended by then. A stay that starts and ends within one step changes no
    step.

    With ``late = "error"`` a step holds an insert for each start and a delete for each end. Its content stays the same
    when ends in later steps are filled in. A late end changes a released step; the comparison with the source finds it.
    With ``late = "next-step"`` a step holds all records that exist at its end, as the rows are now. What was changed or
    came late shows at the first step that is read afterwards.

    Errors: those of the source beneath; DataError: a null or unreadable start, an unreadable end, an end before its
    start (times: on an earlier day).

    Memory: all stays.
    """

    def __init__(self, options: SourceOptions, beneath: Source) -> None:
        self.options = options
        self.beneath = beneath

    def signature(self) -> Any:
        """See ``Source``."""
        return self.beneath.signature()

    def _read(self, grid: Grid, last: int, first: int, seen: Mapping[str, int] | None) -> Iterator[StepInput]:
        rows, come, gone = self._stays(grid)
        key, rules = str(self.options.key_column), self.options.key_rules
        for step in range(first, last + 1):
            keyed: KeyedBatch | Snapshot
            if self.options.late == "next-step":
                keyed = Snapshot(rows.filter((come <= step) & (gone > step)), key, rules)
            else:
                keyed = KeyedBatch(*_events(rows, come, gone, step, key), rules=rules)
            yield StepInput(step, grid.batch_id(step), grid.period(step), None, None, keyed=keyed)

    def _stays(self, grid: Grid) -> tuple[Any, Steps, Steps]:
        """All rows in their order and without their times, the step at which each enters, and that at which it
        leaves."""
        key, begin, end = (
            str(name)
            for name in (self.options.key_column, self.options.time_column, self.options.delete_time_column)
        )
        tables, firsts, lasts = [], [], []
        for entry in self.beneath.steps():
            assert entry.users is not None
            require_columns((begin, end), entry.inserts.column_names, entry.batch_id)
            starts = self._times(entry.inserts.column(begin), begin, entry.batch_id)
            ends, ended = self._ends(entry.inserts.column(end), end, entry.batch_id)
            if bool((ends[ended] < starts[ended]).any()):
                raise DataError(
                    "an end precedes its start",
                    where=f"{entry.batch_id}, columns {begin!r} and {end!r}",
                    allowed="null, or the start's day or later",
                )
            tables.append(entry.inserts.drop_columns([begin, end]).append_column(key, entry.users[0]))
            firsts.append(np.maximum(grid.steps(starts), 1))
            lasts.append(np.where(ended, grid.steps(np.where(ended, ends, 0)), _NEVER))
        rows, first, gone = join(tables, _WHERE), np.concatenate(firsts), np.concatenate(lasts)
        inside = gone >= 1  # the others ended before the public start
        return rows.filter(inside), first[inside], gone[inside]

    def _times(self, column: Any, name: str, where: str) -> Steps:
        values = plain_texts(column)
        if self.options.cut == "numbers":
            values = _whole(values, f"{where}, column {name!r}")
        return times_of(values, self.options, name=name, where=where)

    def _ends(self, column: Any, name: str, where: str) -> tuple[Steps, NDArray[np.bool_]]:
        """The ends (0 where there is none), and which rows have an end: not those with a null or an empty text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = plain_texts(column)
        there = values.is_valid()
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            filled = pc.fill_null(pc.utf8_trim_whitespace(values), "")
            there = pc.not_equal(filled, "")
        ended = there.to_numpy(zero_copy_only=False)
        ends = np.zeros(len(ended), np.int64)
        ends[ended] = self._times(values.filter(there), name, where)
        return ends, ended


def _whole(values: Any, where: str) -> Any:
    """Numbers with a fraction as whole ones: a writer makes doubles of them as soon as one is missing."""
    import pyarrow as pa

    if not pa.types.is_floating(values.type):
        return values
    try:
        return values.cast(pa.int64())
    except pa.ArrowException:
        raise DataError("expected step numbers", where=where, allowed=NUMBERS) from None


def _events(rows: Any, first: Steps, gone: Steps, step: int, key: str) -> tuple[Any, str, str]:
    """The inserts and deletes of a step, and the names of the key column and of the operation column.

    Deletes of earlier stays come first, so that a key's next stay can start in the same step. A stay within the step is
    an insert and a delete in a row: it leaves nothing, but the rules notice if it overlaps an open stay of its key.
    """
    import pyarrow as pa

    leaves, enters = gone == step, first == step
    parts: tuple[tuple[NDArray[np.bool_], tuple[str, ...]], ...] = (
        (leaves & ~enters, (DELETE,)),
        (leaves & enters, (INSERT, DELETE)),
        (enters & ~leaves, (INSERT,)),
    )
    chosen = [np.repeat(np.flatnonzero(mask), len(operations)) for mask, operations in parts]
    words = [word for mask, operations in parts for _ in range(int(mask.sum())) for word in operations]
    name = free_name("operation", rows.column_names)
    table = rows.take(pa.array(np.concatenate(chosen)))
    return table.append_column(name, pa.array(words, pa.string())), key, name
