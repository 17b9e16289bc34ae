"""Records on standard input: one JSON object per line. Later records, or marks, close a step.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError, StepError
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.files import MAX_STEPS
from dpstream.io.sources.formats import MAX_BYTES, JsonKeys, json_records, json_table
from dpstream.io.sources.pieces import StepRows
from dpstream.io.sources.source import ReadOptions, Source, StepInput, check_start, step_input
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.times import deletes_of, times_of

#: The key of a mark. The line ``{"end_of_step": TIME}`` closes the step of TIME and all steps before it.
MARK = "end_of_step"
_READ = 2**18
_NAME = "standard input"

Records = list[dict[str, Any]]
Steps = NDArray[np.int64]


class StdinSource(Source):
    """Private records from a pipe, in the order in which they come.

    A step is closed, and handed out, when a record of a later step comes, when a line ``{"end_of_step": TIME}``
    ends it, or, with ``eof = "close"``, at the end of the input. With ``eof = "hold"`` the step that is open at the end
    is not handed out, and its records have to be sent again.

    Guarantee: the step of a record depends on its own time and on the steps that were closed before it came (``late``).
    What closes steps is declared public.

    Resuming: a pipe cannot be read twice, so the sender starts again at the first step that is not released, or
        earlier.
    Its first line must not be later than that step, because a gap could be a lost step (a mark closes a step without
    records). Released steps that are sent again have to be whole. With ``late = "error"`` they are compared with the
    release. With ``"drop-and-count-nothing"`` they are left out. With ``"next-step"`` they are refused, because they
    could be counted twice.

    Args:
        reading: with columns, every record has them (a missing key is a null); without them it may have any key.
        stream: the bytes to read; standard input by default.

    Errors:
        DataError: a line lacks a JSON object, a time or an operation is bad, or a record is late.
        StepError: the input begins after a gap, or repeats a released step with ``late = "next-step"``.

    Memory: the records of the open steps, and 256 KiB that are read ahead.
    """

    def __init__(
        self,
        options: SourceOptions,
        reading: ReadOptions = ReadOptions(),  # noqa: B008 (frozen)
        stream: IO[bytes] | None = None,
    ) -> None:
        self.options = options
        columns = reading.columns
        user = () if options.id_column is None else (options.id_column,)
        self._columns = (*columns, *user)
        marks = [*user, str(options.time_column), MARK]
        operations = [] if options.delete_column is None else [options.delete_column]
        #: Keys that a record may have; None: any.
        self._known = [*self._columns, *marks, *operations] if columns else None
        self._keys = JsonKeys(
            ignored=frozenset(reading.ignored), marks=frozenset(marks), operations=frozenset(operations)
        )
        self._reveal = reading.reveal
        self._stream = stream
        #: The number of records so far, for messages to the owner.
        self._taken = 0

    def steps(
        self, start_step: int = 1, *, seen: Mapping[str, int] | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``. With ``late = "error"`` released steps that are sent again are handed out too, for
        comparison."""
        check_start(start_step)
        grid = self.options.grid
        assert grid is not None  # standard input is always cut by time
        return self._cut(grid, start_step)

    def _cut(self, grid: Grid, start_step: int) -> Iterator[StepInput]:
        pieces, current = StepRows(self._table([], self._columns)), 0  # 0: no record and no mark yet
        for records in self._blocks():
            for part, mark in _parts(records):
                newest = current
                for rows, column, is_mark in ((part, self.options.time_column, False), (mark, MARK, True)):
                    if not rows:
                        continue
                    places = self._places(rows, str(column), grid)
                    if not current:
                        current = self._begin(int(places[0]), start_step)
                    if not is_mark:
                        places = self._on_time(places, max(current, newest))
                        self._add(pieces, rows, places)
                    newest = max(current, newest, int(places.max()) + is_mark)
                yield from self._handed_out(pieces, grid, (current, newest), start_step)
                current = newest
        closed = grid.closed(self._day())
        if self.options.eof == "close" and current and (closed is None or current <= closed):
            yield from self._handed_out(pieces, grid, (current, current + 1), start_step)

    def _handed_out(
        self, pieces: StepRows, grid: Grid, steps: tuple[int, int], start_step: int
    ) -> Iterator[StepInput]:
        """The closed steps, but none after the public end."""
        closed, final = grid.closed(self._day()), self.options.final_step()
        if steps[1] - steps[0] > MAX_STEPS or (closed is not None and steps[1] - 1 > closed):
            raise DataError(
                "a record of a step that has not begun",
                where=_NAME,
                allowed="records of begun steps, in step order",
            )
        for step in range(*steps):
            inserts, deletes = pieces.take(step)
            if final is not None and step > final:
                continue
            if step >= start_step or self.options.late == "error":
                yield step_input(self.options, grid, step, inserts, deletes)

    def _begin(self, first: int, start_step: int) -> int:
        """The step with which this input begins (StepError where it may not begin there)."""
        if first > start_step:
            raise StepError(
                f"the input begins after step {start_step}: records may be lost",
                where=_NAME,
                allowed=f'input from step {start_step} on; {{"{MARK}": TIME}} ends a step without records',
            )
        if first < start_step and start_step > 1 and self.options.late == "next-step":
            raise StepError(
                "the input repeats a released step",
                where=_NAME,
                allowed=f"input from step {start_step} on, or another late",
            )
        return max(first, 1)

    def _on_time(self, places: Steps, current: int) -> Steps:
        """The step that each record goes to; 0: it is left out (DataError: it is late, with ``late = "error"``)."""
        reached = np.maximum.accumulate(np.maximum(places, current))
        if self.options.continues:  # before the start: in the stream before this one, and in no step here
            reached, places = np.where(places < 1, 0, reached), np.maximum(places, 0)
        late = places < reached
        if not late.any() or self.options.late == "next-step":
            return reached
        if self.options.late == "drop-and-count-nothing":
            return np.where(late, 0, places)
        place = f", record {self._taken + int(np.flatnonzero(late)[0]) + 1}" if self._reveal else ""
        raise DataError(
            "a record of a closed step, or before the start",
            where=f"{_NAME}{place}",
            allowed=self.options.accepts_late,
        )

    def _add(self, pieces: StepRows, rows: Records, places: Steps) -> None:
        column = self.options.delete_column
        operations = self._table(rows, [str(column or self.options.time_column)])
        flags = deletes_of(operations, self.options, _NAME, self._taken if self._reveal else None)
        marks = (self.options.time_column, column)
        keys = self._columns
        if self._known is None:
            keys = tuple(dict.fromkeys([*keys, *(key for row in rows for key in row)]))
        table = self._table(rows, [key for key in keys if key not in marks])
        keep = places >= 1
        pieces.add(table.filter(keep), flags[keep], steps=places[keep])
        self._taken += len(rows)

    def _places(self, rows: Records, column: str, grid: Grid) -> Steps:
        shown = self._taken if self._reveal else None
        cells = self._table(rows, [column]).column(column)
        return grid.steps(times_of(cells, self.options, name=column, where=_NAME, before=shown))

    def _table(self, rows: Records, names: Sequence[str]) -> Any:
        return json_table(rows, names, self._keys)

    def _blocks(self) -> Iterator[Records]:
        """The records of whole lines, as they come."""
        stream: Any = self._stream or sys.stdin.buffer
        rest, lines = b"", 0
        while data := stream.read1(_READ):
            *whole, rest = (rest + data).split(b"\n")
            # A line that is too long is cut off, but stays long enough to be refused.
            rest = rest[: MAX_BYTES + 1]
            if whole:
                yield self._parsed(whole, lines)
                lines += len(whole)
        yield self._parsed([rest], lines)

    def _parsed(self, lines: list[bytes], before: int) -> Records:
        if not before:
            # A byte order mark is allowed at the very beginning only, wherever the first block ends.
            lines = [lines[0].removeprefix(b"\xef\xbb\xbf"), *lines[1:]]
        shown = before if self._reveal else None
        records = json_records(_NAME, lines, shown, self._keys, self._known)
        if self._known is not None and any(MARK in record and len(record) > 1 for record in records):
            raise DataError(
                f"a line has other keys beside {MARK!r}",
                where=_NAME,
                allowed=f"a record, or {MARK!r} alone in a line",
            )
        return records


def _parts(records: Records) -> Iterator[tuple[Records, Records]]:
    """Runs of records, each with the mark that ends it (the last run may have none)."""
    part: Records = []
    for record in records:
        if set(record) == {MARK}:
            yield part, [record]
            part = []
        else:
            part.append(record)
    yield part, []
