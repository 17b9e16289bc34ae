"""Files cut into steps: a first pass reads the times, a second pass hands out the records step by step."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError, StepError, counted
from dpstream.core.objects import AnyPath
from dpstream.core.schema import Schema
from dpstream.io.sources.calendar import Grid, StepNumbers
from dpstream.io.sources.counted_file import CountedFile, is_large
from dpstream.io.sources.file_finding import FilesAsFound, changes_of, file_name, find_files
from dpstream.io.sources.file_opening import UnreadableError, changed_file, file_format
from dpstream.io.sources.formats import JsonKeys, blocks, column_names, fingerprint
from dpstream.io.sources.pieces import Pieces
from dpstream.io.sources.positions import (
    BYTES,
    DIGEST,
    FileNames,
    Place,
    Position,
    Times,
    other_files,
    still_first,
)
from dpstream.io.sources.read_block import Ahead, ReadBlock, ReadFile, chosen, read_block
from dpstream.io.sources.sample import other_separator
from dpstream.io.sources.source import Source, check_start
from dpstream.io.sources.source_options import SourceOptions
from dpstream.io.sources.step import StepInput, apart_from_users
from dpstream.io.sources.times import delete_flags, times_of

#: A step number that is farther away is a misprint, and would make the stream release every step up to it.
MAX_STEPS = 10**6
#: Bytes of codes that the first pass over text files may keep, so that there is no second one.
_AHEAD = 2**28


class FileSource(Source):
    """The records of some files, step by step. They are private data, and handed out exactly as the files have them.

    Guarantee: the step of a record depends on the record itself and on public facts (options, clock, file names, which
    records were read before), never on other records. ``options.declared_public()`` lists the exceptions. Steps without
    records are handed out too.

    Args:
        options: the ``[source]`` table.
        base: folder that ``options.path`` is relative to.
        reveal: name the record or the line in errors. Its number is a lower bound of a private number of records: for
            the owner's eyes only.
        today: the public clock, by default the current day in UTC less the grace period; a calendar period is handed
            out when it is over.
        watched: more files will come; a numbered step is handed out when a record of a later step has come.
        columns: the attributes. NDJSON files then have these columns, whatever their records hold. Without them an
            NDJSON file has the keys of its first records as columns, and these are private facts. Messages name these
            columns, and only count others.
        ignored: names of columns that may occur and are not read.
        schema: encode the records with it while they are read; the steps then hold ``EncodedTable``.

    Reading: pass 1 reads and checks the time and operation columns of every file before anything is handed out. Pass 2
    reads forward only as far as the next step needs. With ``schema``, from step 1 on, pass 1 over text files keeps the
    codes of all records (up to 256 MiB), and these files are read once. Blocks are read and encoded in a few threads.
    Memory: the blocks of about 4 MB that hold the step's records, and records that were read ahead; with ``schema``
    their codes, 1, 2 or 4 bytes a cell. That is little for files sorted by time, and up to all records for other files.
    A Parquet file that is a step is handed out as ``CountedFile`` where its codes take more than 128 MiB.

    Errors:
        DataError: there is no file, a file is damaged or inconsistent, a time or an operation is bad, or a record is
            late.
        StepError: files that were read before are gone, changed, or have fewer records.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        base: str | Path = ".",
        reveal: bool = False,
        today: datetime.date | None = None,
        watched: bool = False,
        columns: Sequence[str] = (),
        ignored: Sequence[str] = (),
        schema: Schema | None = None,
    ) -> None:
        self.options = options
        users = [] if options.user_column is None else [options.user_column]
        self._encoder = None if schema is None else schema.encoder(users)
        self._base = Path(base)
        self._reveal = reveal
        self._today = today or options.clock()
        self._watched = watched
        self._declared = frozenset(columns)
        self._position: dict[str, int] = {}
        self._key = b""
        self._json_keys = self._keys_of_records(columns, ignored)

    def _keys_of_records(self, columns: Sequence[str], ignored: Sequence[str]) -> JsonKeys:
        options = self.options
        marks = [name for name in (options.time_column, options.user_column) if name is not None]
        operations = [name for name in (options.op_column,) if name is not None]
        names = tuple(dict.fromkeys([*marks, *operations, *columns])) if columns else None
        return JsonKeys(
            names,
            frozenset(ignored) - frozenset([*marks, *operations]),
            frozenset(marks),
            frozenset(operations),
        )

    @property
    def position(self) -> dict[str, int]:
        """How far ``steps`` had read each file when it handed out the last step, as JSON values.

        Private: it holds numbers of records. The stream saves it in one transaction with each step and gives it back as
        ``seen``; then the source can tell late records from old ones, and notices files that changed.
        """
        return dict(self._position)

    def files(self) -> list[AnyPath]:
        """See ``find_files``."""
        return find_files(self.options, self._base)

    def signature(self) -> Any:
        """See ``Source``: names, sizes and times of change of the files, and the public day."""
        try:
            return self._today, changes_of(self.files())
        except (UnreadableError, FileNotFoundError):
            return None

    def _name(self, path: AnyPath) -> str:
        return file_name(path, self._base)

    def steps(
        self, start_step: int = 1, *, seen: Position | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """The steps from ``start_step`` on. A step has the same content at every reading.

        Args:
            start_step: first step that is not released yet.
            seen: ``position`` as saved with the last released step. Records beyond it that belong to earlier steps are
                late, and ``options.late`` says what happens. Without ``seen``, all records of earlier steps count as
                released.
            key: secret key (up to 64 bytes, ``Stream.source_key``) for the fingerprints of files in ``position``; the
                same at every reading. Without a key, anybody could compare a fingerprint with that of a guessed file.
        """
        check_start(start_step)
        grid = self.options.grid
        self._position, self._key = {}, key
        if grid is not None:
            return self._checked(self._timed_steps(grid, start_step, seen))
        if self.options.rows is not None:
            return self._checked(self._row_steps(self.options.rows, start_step, seen))
        return self._checked(self._file_steps(start_step, seen))

    def _checked(self, steps: Iterator[StepInput]) -> Iterator[StepInput]:
        """The steps, each after a look at the files that were read for it."""
        for entry in steps:
            self._as_found.check()
            yield entry
            del entry  # or its records would be there while the next file is read

    # Steps by time.

    def _timed_steps(self, grid: Grid, start_step: int, seen: Position | None) -> Iterator[StepInput]:
        place = Place(grid, start_step, seen, self.options, self._reveal)
        paths = self._checked_files()
        prints = self._fingerprints(paths, seen) if self.options.late == "next-step" else {}
        ahead = Ahead(_AHEAD if self._encoder is not None and start_step == 1 else 0)
        pieces = self._pieces()
        files = [
            self._scan(path, place, ahead, partial(pieces.add, source=i)) for i, path in enumerate(paths)
        ]
        self._position = {file.name: file.records for file in files} | prints
        last = self.options.last_step(self._today)
        if last is None:
            closed = grid.closed(self._today)
            if closed is None:
                last = place.newest - 1 if self._watched else place.newest
            else:
                last = min(place.newest, closed)
        if last - start_step > MAX_STEPS:
            raise DataError(
                f"there are more than {MAX_STEPS} steps",
                where="[source]",
                allowed="a time column without far-away values, or an end",
            )
        return self._assemble(grid, files, place, pieces, last)

    def _fingerprints(self, paths: list[AnyPath], seen: Position | None) -> dict[str, int]:
        """Length and digest of each file, for ``position``, after a check that the files read before only grew at their
        end.

        Otherwise a record that moved to another place or file would seem late, and would be counted twice.
        """
        here = {self._name(path): path for path in paths}
        for name in seen or ():
            if ":" in name and name.split(":")[0] in (BYTES, DIGEST):
                continue
            expected = [(seen or {}).get(f"{key}:{name}") for key in (BYTES, DIGEST)]
            if (
                name not in here
                or None in expected
                or expected != list(fingerprint(here[name], expected[0], key=self._key))
            ):
                raise StepError(
                    "the file is gone, or the part of it that was read before has changed, and its records could be "
                    "counted twice",
                    where=name,
                    allowed='with late = "next-step": files that stay, and only grow at their end',
                )
        prints = {name: fingerprint(path, key=self._key) for name, path in here.items()}
        lengths = {f"{BYTES}:{name}": length for name, (length, _) in prints.items()}
        return lengths | {f"{DIGEST}:{name}": digest for name, (_, digest) in prints.items()}

    def _scan(self, path: AnyPath, place: Place, ahead: Ahead, add: Callable[..., None]) -> ReadFile:
        """Pass 1: read and check the times and operations of one file. ``add`` gets the records, if it keeps them."""
        name, ends, records = self._name(path), [], 0
        op_column, whole = self.options.op_column, ahead.left > 0 and file_format(path) != "parquet"
        waiting: list[tuple[Any, NDArray[np.bool_], Times]] = []
        blocks = self._read(path) if whole else self._blocks(path, self._marks())
        for block in blocks:
            deletes = np.zeros(block.num_rows, np.bool_)
            if op_column is not None:
                deletes = self._deletes(block, op_column, name, records)
            steps = place.steps(self._times(block, place.grid, name, records), name, records)
            records += block.num_rows
            keep = steps >= place.start_step
            if keep.any():
                ends.append((records, int(steps[keep].min())))
            if whole and ahead.take(block.nbytes):
                waiting.append((chosen(block.records, keep), deletes[keep], steps[keep]))
            else:
                whole = False
                waiting.clear()
        if place.seen is not None and records < place.seen.get(name, 0):
            raise StepError(
                "the file has fewer records than when it was read before",
                where=name,
                allowed="files that only grow, or new files",
            )
        for table, gone, steps in waiting:
            add(table, gone, steps=steps)
        return ReadFile(path, name, records, () if whole else tuple(ends))

    def _assemble(
        self, grid: Grid, files: list[ReadFile], place: Place, pieces: Pieces, last: int
    ) -> Iterator[StepInput]:
        """Pass 2: for each step, read every file forward until it has no more records of the step."""
        readers = [_Reader(self, i, file, place) for i, file in enumerate(files)]
        for step in range(place.start_step, last + 1):
            for reader in readers:
                reader.read_for(step, pieces)
            inserts, deletes = pieces.take(step)
            yield self._input(step, grid.batch_id(step), grid, inserts, deletes)

    def _input(self, step: int, batch_id: str, grid: Grid | None, inserts: Any, deletes: Any) -> StepInput:
        period = None if grid is None else grid.period(step)
        declared = None if self.options.op_column is None else deletes
        return StepInput(
            step, batch_id, period, *apart_from_users(inserts, declared, self.options.user_column)
        )

    # Steps by files and by rows.

    def _file_steps(self, start_step: int, seen: Position | None) -> Iterator[StepInput]:
        files = self._checked_files(start_step)
        self._check_before(files, seen)
        names = FileNames(self._key)
        for step, path in enumerate(files, start=1):
            name = self._name(path)
            entry = self._file_step(step, path) if step >= start_step else None
            self._position = names.then(name)
            if entry is not None:
                yield entry
            del entry  # or its records would be there while the next file is read

    def _file_step(self, step: int, path: AnyPath) -> StepInput:
        engine = self._counted(path)
        if engine is not None:
            return StepInput(step, self._name(path), None, None, None, engine=engine)
        return self._input(step, self._name(path), None, *self._file_records(path))

    def _file_records(self, path: AnyPath) -> tuple[Any, Any]:
        name, pieces, records = self._name(path), self._pieces(), 0
        for block in self._read(path):
            pieces.add(*self._split(block, name, records), steps=np.ones(block.num_rows, np.int64))
            records += block.num_rows
        self._as_found.check()
        return pieces.take(1)

    def _counted(self, path: AnyPath) -> CountedFile | None:
        """A large file whose records have no operations and no users; None for others."""
        plain = (self.options.op_column, self.options.user_column) == (None, None)
        if self._encoder is None or not plain or not is_large(path, self._encoder):
            return None

        def read(then: Callable[[ReadBlock], Any]) -> Iterator[Any]:
            yield from self._read(path, then=then)
            self._as_found.check()

        return CountedFile(self._encoder, read, lambda: self._file_records(path)[0])

    def _row_steps(self, rows: int, start_step: int, seen: Position | None) -> Iterator[StepInput]:
        """The full steps. Records that do not fill a step wait for more records."""
        files = self._checked_files()
        self._check_order(files, seen)
        pieces, read, step = self._pieces(), 0, start_step
        for path in files:
            name, records = self._name(path), 0
            for block in self._read(path):
                steps = (read + np.arange(block.num_rows)) // rows + 1
                keep = steps >= start_step
                table, deletes = self._split(block, name, records)
                pieces.add(chosen(table, keep), deletes[keep], steps=steps[keep])
                read += block.num_rows
                records += block.num_rows
                self._as_found.reading(path)
                while read >= step * rows:
                    yield self._input(step, f"block-{step}", None, *pieces.take(step))
                    step += 1
            if seen is not None and records != seen.get(name, records):
                raise StepError(
                    "the file has another number of records than when it was cut into steps",
                    where=name,
                    allowed="files that stay as they are; only the last one may grow",
                )
            # The last file may still grow, so its number of records is not kept.
            if path != files[-1]:
                self._position[name] = records

    def _check_before(self, files: list[AnyPath], seen: Position | None) -> None:
        """Where each file is a step: check that the files read before are still the first ones (StepError)."""
        if not still_first([self._name(path) for path in files], seen or {}, self._key):
            # Nothing was read yet, or an early version wrote a list of all names.
            self._check_order(files, seen)

    def _check_order(self, files: list[AnyPath], seen: Position | None) -> None:
        """Check that the files read before are still the first ones (StepError), because their order decides the
        steps."""
        expected = sorted(seen or ())
        for path, name in itertools.zip_longest(files[: len(expected)], expected):
            if path is None or self._name(path) != name:
                raise other_files(name)

    # Shared.

    def _checked_files(self, start: int = 1) -> list[AnyPath]:
        """All files, after a check that those from number ``start`` on have the columns of the first one.

        Errors:
            DataError: another file has other columns, or the first one lacks a column of ``[source]``.
        """
        files = self.files()
        self._as_found = FilesAsFound(files, self._base)
        first = self._columns_of(files[0])
        user = self.options.user_column
        for column in self._marks() + ([] if user is None else [user]):
            if column not in first:
                there = ", ".join(first) if self._reveal else "a column of the file"
                if not self._reveal and self._public_columns(files[0]):
                    there += f", which has {counted(len(first), 'column')}"
                what = f"there is no column {column!r}"
                if separated := other_separator(first, self._name(files[0])):
                    what, there = f"{what}: {separated[0]}", separated[1]
                raise DataError(what, where=self._name(files[0]), allowed=there)
        for path in files[max(start - 1, 1) :]:
            names = self._columns_of(path)
            extra = [name for name in names if name not in first]
            odd = extra + [name for name in first if name not in names]
            if odd:
                absent = next((name for name in odd if name in self._declared and name not in names), None)
                what = "has other columns"
                if self._public_columns(files[0]) and self._public_columns(path):
                    what = f"lacks {counted(len(odd) - len(extra), 'column')} and has {len(extra)} others"
                if self._reveal or absent is not None:
                    named = odd[0] if absent is None else absent
                    what = f"{'lacks the' if named in first else 'has the extra'} column {named!r}"
                raise DataError(
                    f"the file {what}",
                    where=self._name(path),
                    allowed=f"the columns of {self._name(files[0])}",
                )
        self._names, self._first = first, files[0]
        self._columns = [name for name in first if self._keeps(name)]
        return files

    def _columns_of(self, path: AnyPath) -> list[str]:
        """A file's columns without those that are not read."""
        names = column_names(path, reveal=self._reveal, keys=self._json_keys)
        return [name for name in names if name not in self._json_keys.ignored]

    def _public_columns(self, path: AnyPath) -> bool:
        """Whether the columns of a file are public: not where they are the keys of its records."""
        return self._json_keys.names is not None or file_format(path) != "ndjson"

    def _keeps(self, name: str) -> bool:
        return name not in (self.options.op_column, self.options.time_column)

    def _marks(self) -> list[str]:
        return [name for name in (self.options.time_column, self.options.op_column) if name is not None]

    def _pieces(self) -> Pieces:
        """A place for records that wait for their step; their columns and types are those of the first file."""
        empty = next(iter(self._blocks(self._first, self._columns)))
        return Pieces(empty, self._encoder)

    def _blocks(self, path: AnyPath, columns: list[str]) -> Iterator[Any]:
        """The blocks of a file."""
        self._as_found.reading(path)
        return blocks(path, columns=columns, reveal=self._reveal, keys=self._json_keys)

    def _read(self, path: AnyPath, then: Callable[[ReadBlock], Any] | None = None) -> Iterator[Any]:
        """The blocks of a file with all columns, encoded where the source has a schema, or what ``then`` makes of them
        in several threads."""
        self._as_found.reading(path)
        each = partial(read_block, marks=self._marks(), columns=self._columns, encoder=self._encoder)
        if self._encoder is None:
            return map(each, blocks(path, columns=self._names, reveal=self._reveal, keys=self._json_keys))
        coded = self._encoder.names - {*self._marks(), *self._encoder.kept}
        last = each if then is None else lambda table: then(each(table))
        return blocks(
            path, columns=self._names, reveal=self._reveal, keys=self._json_keys, each=last, coded=coded
        )

    def _times(self, block: Any, grid: Grid, name: str, before: int) -> Times:
        column = str(self.options.time_column)
        numbers = isinstance(grid, StepNumbers)
        shown = before if self._reveal else None
        return times_of(
            block.column(column),
            numbers=numbers,
            name=column,
            where=name,
            before=shown,
            offsets=self.options.offsets,
        )

    def _deletes(self, block: Any, column: str, name: str, before: int) -> NDArray[np.bool_]:
        shown = before if self._reveal else None
        return delete_flags(
            block.column(column), name=column, where=name, before=shown, words=self.options.op_values
        )

    def _split(self, block: ReadBlock, name: str, before: int) -> tuple[Any, NDArray[np.bool_]]:
        """A block's records, and which of them are deletes."""
        op_column = self.options.op_column
        if op_column is None:
            deletes = np.zeros(block.num_rows, np.bool_)
        else:
            deletes = self._deletes(block, op_column, name, before)
        return block.records, deletes


class _Reader:
    """Reads one file forward in pass 2."""

    def __init__(self, source: FileSource, number: int, file: ReadFile, place: Place) -> None:
        self._source, self._number, self._file, self._place = source, number, file, place
        self._blocks: Iterator[Any] | None = None
        self._read = 0
        self._waiting = list(file.blocks)

    def read_for(self, step: int, pieces: Pieces) -> None:
        """Read on until all records of ``step`` are in ``pieces``."""
        needed = max((end for end, least in self._waiting if least <= step), default=0)
        if needed <= self._read:
            return
        self._waiting = [entry for entry in self._waiting if entry[0] > needed]
        if self._blocks is None:
            self._blocks = self._source._read(self._file.path)
        self._source._as_found.reading(self._file.path)
        while self._read < needed:
            block = next(self._blocks, None)
            if block is None:
                self._changed()
            self._add(block, step, pieces)

    def _add(self, block: Any, step: int, pieces: Pieces) -> None:
        name, before = self._file.name, self._read
        self._read += block.num_rows
        steps = self._place.steps(self._source._times(block, self._place.grid, name, before), name, before)
        keep = steps >= self._place.start_step
        if self._read > self._file.records or (keep.any() and int(steps[keep].min()) < step):
            self._changed()
        table, deletes = self._source._split(block, name, before)
        pieces.add(chosen(table, keep), deletes[keep], steps=steps[keep], source=self._number)

    def _changed(self) -> None:
        raise changed_file(self._file.name)
