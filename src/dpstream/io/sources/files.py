"""Files cut into steps: a first pass reads the times, a second pass hands out the records step by step.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, StepError, counted
from dpstream.io.objects import AnyPath, ObjectPath, is_object_url, object_path
from dpstream.io.sources.calendar import Grid
from dpstream.io.sources.counted_file import (
    Ahead,
    CountedFile,
    ReadBlock,
    ReadFile,
    chosen,
    is_large,
    read_block,
)
from dpstream.io.sources.file_opening import (
    UnreadableError,
    changed_file,
    file_format,
    other_separator,
    readable,
)
from dpstream.io.sources.formats import JsonKeys, blocks, column_names, fingerprint
from dpstream.io.sources.pieces import StepRows
from dpstream.io.sources.source import (
    ReadOptions,
    Source,
    StepInput,
    apart_from_users,
    check_start,
    step_input,
)
from dpstream.io.sources.source_keys import SourceKeys
from dpstream.io.sources.source_options import PERIOD, SourceOptions
from dpstream.io.sources.times import deletes_of, times_of


def find_files(options: SourceKeys, base: Path) -> list[AnyPath]:
    """The files, in the order of their names. With ``complete = "done"`` only those that are marked as finished.

    Errors:
        UnreadableError: no file matches, or the object store does not answer.
        ConfigError: two files have one name.
    """
    by_name: dict[str, AnyPath] = {}
    for pattern in options.path:
        for path in _matching(pattern, base):
            if options.complete == "rename" or _is_marked(path):
                name = file_name(path, base)
                if by_name.setdefault(name, path) != path:
                    raise ConfigError(
                        f"two files named {name!r}",
                        where="[source] path",
                        allowed="each path once, in one bucket or folder",
                    )
    if not by_name:
        raise UnreadableError("no file matches", where=", ".join(options.path), allowed="another pattern")
    return [by_name[name] for name in sorted(by_name)]


def file_name(path: AnyPath, base: Path) -> str:
    """What a file is called in a stream: its path from the configuration's folder, or in its bucket. So files may move
    to a bucket and keep their names."""
    if isinstance(path, ObjectPath):
        return path.key
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()


def changes_of(paths: Iterable[AnyPath]) -> Any:
    """A value that changes when a file comes, goes or changes.

    Errors:
        FileNotFoundError: one has gone meanwhile.
    """
    return tuple((str(path), *_facts(path)) for path in paths)


class FilesAsFound:
    """The files of a reading as they were found. A record that another writer moves from one file to another during
    the reading would be read twice or never, so whatever is read is held against names, sizes and times.

    Errors:
        UnreadableError: one has changed or gone since it was found. Nothing of the reading may be used.
    """

    def __init__(self, paths: Iterable[AnyPath], base: Path) -> None:
        self._base = base
        self._found: dict[AnyPath, tuple[int, ...]] = {}
        self._read: dict[AnyPath, None] = {}
        for path in paths:
            try:
                self._found[path] = _facts(path)
            except FileNotFoundError:
                raise changed_file(file_name(path, base)) from None

    def reading(self, path: AnyPath) -> None:
        """Remember that a file is read, for the next ``check``."""
        self._read[path] = None

    def check(self) -> None:
        """Hold the files that were read since the last check against what they were."""
        for path in self._read:
            if not self._same(path):
                raise changed_file(file_name(path, self._base))
        self._read.clear()

    def _same(self, path: AnyPath) -> bool:
        if isinstance(path, ObjectPath):
            with readable(path):
                return path.same()
        try:
            return _facts(path) == self._found.get(path)
        except FileNotFoundError:
            return False


def _facts(path: AnyPath) -> tuple[int, ...]:
    if isinstance(path, ObjectPath):
        facts = path.found or path.facts()
        if facts is None:
            raise FileNotFoundError
        return facts.size, facts.changed
    status = path.stat()
    # Of two files that exchange their names, size and time of writing may be the same.
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _matching(pattern: str, base: Path) -> Iterator[AnyPath]:
    if is_object_url(pattern):
        place = object_path(pattern)
        with readable(place):
            yield from list(place.matching())
        return
    for text in glob.glob(str(base / pattern), recursive=True):
        path = Path(text)
        if path.is_file():
            yield path


def _is_marked(path: AnyPath) -> bool:
    if path.suffix == ".done":
        return False
    mark = path.with_name(f"{path.name}.done")
    if isinstance(mark, ObjectPath):
        with readable(mark):
            return mark.exists()
    return mark.exists()


# Keys of a position, besides "a.csv" for the number of records: "bytes:a.csv" and "blake2b:a.csv". Where each file is a
# step: "files:z.csv" for the number of files up to z.csv, and "blake2b:z.csv" for a digest of their names (a list of
# them would grow with every step).
BYTES, DIGEST, FILES = "bytes", "blake2b", "files"

#: Among more files than these it is not looked which one is new: that takes the square of their number.
_MAX_TRIED = 1000

Times = NDArray[np.int64]
#: File (relative path) -> how many of its records were read, and the keys above. Private: keep it with the state.
Position = Mapping[str, int]


class FileNames:
    """Makes the positions in a sequence of files: the last file's name, the number of files, a digest of all names."""

    def __init__(self, key: bytes) -> None:
        self._digest, self._count = hashlib.blake2b(digest_size=16, key=key), 0

    def then(self, name: str) -> dict[str, int]:
        """Add one file; returns the position after it."""
        self._digest.update(hashlib.sha256(name.encode()).digest())
        self._count += 1
        digest = int.from_bytes(self._digest.digest())
        return {f"{FILES}:{name}": self._count, f"{DIGEST}:{name}": digest}


def other_files(name: str) -> StepError:
    """The error for a file that is gone, or that is new among files that were read already."""
    return StepError(
        "the file or an earlier one is gone, or a new file sorts before it",
        where=name,
        allowed="new files that sort after the old ones",
    )


def check_first_files(here: Sequence[str], seen: Position, key: bytes) -> None:
    """Where each file is a step: check that the files that were read, by a position, are still the first ones.

    Args:
        here: the names of all files, in order. key: of ``FileNames``.

    Errors:
        StepError: another file is among them, or one of them is gone.
    """
    known = [(name, count) for name, count in seen.items() if name.startswith(f"{FILES}:") and count]
    if not known and seen:
        raise other_files(min(seen))
    if not known:
        return
    name, count = known[0]
    last = name.removeprefix(f"{FILES}:")
    if here[count - 1 : count] == [last] and _after(here[:count], key) == seen:
        return
    # Names are kept as a digest only: which one is new shows where the others give the digest that is kept.
    if here[count : count + 1] == [last] and count <= _MAX_TRIED:
        for place, new in enumerate(here[:count]):
            if _after([*here[:place], *here[place + 1 : count + 1]], key) == seen:
                raise StepError(
                    "the file sorts before released files",
                    where=new,
                    allowed="a name that sorts last",
                )
    raise other_files(last)


def _after(names: Sequence[str], key: bytes) -> dict[str, int]:
    """The position after some files."""
    digest = FileNames(key)
    return [digest.then(name) for name in names][-1]


class StepFinder:
    """Finds the step of each record, by its own time and by whether it was read before.

    Args:
        start_step: the first step that is not released yet.
        seen: the position at the last released step; None at the first reading.
        reveal: name the record in errors; for the owner's eyes only.

    Attributes:
        newest: the largest step of a record that is not late.
    """

    def __init__(
        self, grid: Grid, start_step: int, seen: Position | None, options: SourceOptions, reveal: bool
    ) -> None:
        self.grid = grid
        self.start_step = start_step
        self.seen = seen
        self.late = options.late
        self.options = options
        self.continues = options.continues
        self.reveal = reveal
        self.newest = start_step - 1

    def steps(self, times: Times, name: str, before: int) -> Times:
        """The step of each record of a block; a record with a step below ``start_step`` is left out.

        Args:
            times: the records' times.
            name: their file.
            before: how many records of the file come before this block.

        Errors:
            DataError: a record is late, and ``late = "error"``.
        """
        steps = self.grid.steps(times)
        if steps.size:
            self.newest = max(self.newest, int(steps.max()))
        passed = steps < self.start_step
        if self.start_step > 1:
            # Records that were read before are in released steps; only new ones can be late.
            known = np.inf if self.seen is None else self.seen.get(name, 0)
            passed &= before + np.arange(steps.size) >= known
        if self.continues:
            # A record before the start is in the stream before this one, and in no step here, whenever it comes.
            passed &= steps >= 1
        if not passed.any() or self.late == "drop-and-count-nothing":
            return steps
        if self.late == "next-step":
            return np.where(passed, self.start_step, steps)
        reason = "before the start" if self.start_step == 1 else "of a released step"
        shown = f", record {before + int(np.flatnonzero(passed)[0]) + 1}" if self.reveal else ""
        raise DataError(
            f"found a record {reason}",
            where=f"{name}{shown}",
            allowed=self.options.accepts_late,
        )


#: A step number that is farther away is a misprint, and would make the stream release every step up to it.
MAX_STEPS = 10**6
#: Bytes of codes that the first pass over text files may keep, which saves a second one.
_AHEAD = 2**28


class FileSource(Source):
    """The records of some files, step by step. They are private data, and handed out exactly as the files have them.

    Guarantee: the step of a record depends on the record itself and on public facts (options, clock, file names, which
    records were read before), never on other records. ``options.declared_public()`` lists the exceptions. Steps without
    records are handed out too.

    Args:
        options: the ``[source]`` table.
        reading: with ``watched``, a numbered step is handed out when a record of a later step has come; with
            ``schema``, the steps hold ``EncodedTable``. Messages name the declared columns, and only count others.

    Reading: pass 1 reads and checks the time and operation columns of every file before anything is handed out. Pass 2
    reads forward only as far as the next step needs. With ``schema``, from step 1 on, pass 1 over text files keeps the
    codes of all records (up to 256 MiB), and these files are read once. Blocks are read and encoded in a few threads.
    Memory: the blocks of about 4 MB that hold the step's records, and records that were read ahead; with ``schema``
    their codes, 1, 2 or 4 bytes a cell. That is little for files sorted by time, and up to all records for other files.
    A Parquet file that is a step is handed out as ``CountedFile`` where its codes take more than 128 MiB.

    Errors:
        DataError: a file is missing, a file is damaged or inconsistent, a time or an operation is bad, or a record is
            late.
        StepError: files that were read before are gone, changed, or have fewer records.
    """

    def __init__(self, options: SourceOptions, reading: ReadOptions = ReadOptions()) -> None:  # noqa: B008 (frozen)
        self.options = options
        users = [] if options.id_column is None else [options.id_column]
        self._encoder = None if reading.schema is None else reading.schema.encoder(users)
        self._base = Path(reading.base)
        self._reveal, self._watched = reading.reveal, reading.watched
        self._declared = frozenset(reading.columns)
        self._position: dict[str, int] = {}
        self._key = b""
        self._json_keys = self._keys_of_records(reading.columns, reading.ignored)

    def _keys_of_records(self, columns: Sequence[str], ignored: Sequence[str]) -> JsonKeys:
        options = self.options
        marks = [name for name in (options.step_column, options.id_column) if name is not None]
        operations = [name for name in (options.delete_column,) if name is not None]
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
            return self._day(), changes_of(self.files())
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
        grid = None if self.options.records == "stays" else self.options.grid
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
        place = StepFinder(grid, start_step, seen, self.options, self._reveal)
        paths = self._checked_files()
        prints = self._fingerprints(paths, seen) if self.options.late == "next-step" else {}
        ahead = Ahead(_AHEAD if self._encoder is not None and start_step == 1 else 0)
        pieces = self._pieces()
        files = [
            self._scan(path, place, ahead, partial(pieces.add, source=i)) for i, path in enumerate(paths)
        ]
        self._position = {file.name: file.records for file in files} | prints
        today = self._day()
        last = self.options.last_step(today)
        if last is None:
            closed = grid.closed(today)
            if closed is None:
                last = place.newest - 1 if self._watched else place.newest
            else:
                last = min(place.newest, closed)
        if last - start_step > MAX_STEPS:
            raise DataError(
                f"more than {MAX_STEPS} steps",
                where="[source]",
                allowed="times without misprints, or an end",
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
                    "the file is gone, or its read part changed",
                    where=name,
                    allowed='with late = "next-step": files that only grow at their end',
                )
        prints = {name: fingerprint(path, key=self._key) for name, path in here.items()}
        lengths = {f"{BYTES}:{name}": length for name, (length, _) in prints.items()}
        return lengths | {f"{DIGEST}:{name}": digest for name, (_, digest) in prints.items()}

    def _scan(self, path: AnyPath, place: StepFinder, ahead: Ahead, add: Callable[..., None]) -> ReadFile:
        """Pass 1: read and check the times and operations of one file. ``add`` gets the records, if it keeps them."""
        name, ends, records = self._name(path), [], 0
        whole = ahead.left > 0 and file_format(path) != "parquet"
        waiting: list[tuple[Any, NDArray[np.bool_], Times]] = []
        blocks = self._read(path) if whole else self._blocks(path, self._marks())
        for block in blocks:
            deletes = self._deletes(block, name, records)
            steps = place.steps(self._times(block, name, records), name, records)
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
                "the file lost records",
                where=name,
                allowed="files that only grow, or new files",
            )
        for table, gone, steps in waiting:
            add(table, gone, steps=steps)
        return ReadFile(path, name, records, () if whole else tuple(ends))

    def _assemble(
        self, grid: Grid, files: list[ReadFile], place: StepFinder, pieces: StepRows, last: int
    ) -> Iterator[StepInput]:
        """Pass 2: for each step, read every file forward until it has no more records of the step."""
        readers = [_Reader(self, i, file, place) for i, file in enumerate(files)]
        for step in range(place.start_step, last + 1):
            for reader in readers:
                reader.read_for(step, pieces)
            inserts, deletes = pieces.take(step)
            yield step_input(self.options, grid, step, inserts, deletes)

    # Steps by files and by rows.

    def _file_steps(self, start_step: int, seen: Position | None) -> Iterator[StepInput]:
        files = self._checked_files(start_step)
        check_first_files([self._name(path) for path in files], seen or {}, self._key)
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
        return step_input(self.options, self._name(path), step, *self._file_records(path))

    def _file_records(self, path: AnyPath) -> tuple[Any, Any]:
        name, pieces, records = self._name(path), self._pieces(), 0
        for block in self._read(path):
            deletes = self._deletes(block, name, records)
            pieces.add(block.records, deletes, steps=np.ones(block.num_rows, np.int64))
            records += block.num_rows
        self._as_found.check()
        return pieces.take(1)

    def _counted(self, path: AnyPath) -> CountedFile | None:
        """A large file whose records have no operations and no users; None for others."""
        plain = (self.options.delete_column, self.options.id_column) == (None, None)
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
                deletes = self._deletes(block, name, records)
                pieces.add(chosen(block.records, keep), deletes[keep], steps=steps[keep])
                read += block.num_rows
                records += block.num_rows
                self._as_found.reading(path)
                while read >= step * rows:
                    yield step_input(self.options, f"block-{step}", step, *pieces.take(step))
                    step += 1
            if seen is not None and records != seen.get(name, records):
                raise StepError(
                    "the number of released records changed",
                    where=name,
                    allowed="unchanged files; only the last may grow",
                )
            # The last file may still grow, so its number of records is not kept.
            if path != files[-1]:
                self._position[name] = records

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
        ids = self.options.id_column
        for column in self._marks() + ([] if ids is None else [ids]):
            if column not in first:
                there = ", ".join(first) if self._reveal else "a column of the file"
                if not self._reveal and self._public_columns(files[0]):
                    there += f", which has {counted(len(first), 'column')}"
                what = f"unknown column {column!r}"
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
        return name not in (self.options.delete_column, self.options.step_column)

    def _marks(self) -> list[str]:
        return [name for name in (self.options.step_column, self.options.delete_column) if name is not None]

    def _pieces(self) -> StepRows:
        """A place for records that wait for their step; their columns and types are those of the first file."""
        empty = next(iter(self._blocks(self._first, self._columns)))
        return StepRows(empty, self._encoder)

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

    def _times(self, block: Any, name: str, before: int) -> Times:
        column = str(self.options.time_column)
        shown = before if self._reveal else None
        return times_of(block.column(column), self.options, name=column, where=name, before=shown)

    def _deletes(self, block: Any, name: str, before: int) -> NDArray[np.bool_]:
        return deletes_of(block, self.options, name, before if self._reveal else None)


class _Reader:
    """Reads one file forward in pass 2."""

    def __init__(self, source: FileSource, number: int, file: ReadFile, place: StepFinder) -> None:
        self._source, self._number, self._file, self._place = source, number, file, place
        self._blocks: Iterator[Any] | None = None
        self._read = 0
        self._waiting = list(file.blocks)

    def read_for(self, step: int, pieces: StepRows) -> None:
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

    def _add(self, block: Any, step: int, pieces: StepRows) -> None:
        name, before = self._file.name, self._read
        self._read += block.num_rows
        steps = self._place.steps(self._source._times(block, name, before), name, before)
        keep = steps >= self._place.start_step
        if self._read > self._file.records or (keep.any() and int(steps[keep].min()) < step):
            self._changed()
        deletes = self._source._deletes(block, name, before)
        pieces.add(chosen(block.records, keep), deletes[keep], steps=steps[keep], source=self._number)

    def _changed(self) -> None:
        raise changed_file(self._file.name)


class WideSource(FileSource):
    """Reports of people, period by period, from files with one row per person.

    Guarantee: the name of its column, a public fact, decides the step of a report. No person is in two files. Which
    period columns the files have is declared public, and alone decides the number of steps.

    Args:
        options: with ``period_columns``: the columns' names in order, or one text with ``{period}`` (1, 2, ...;
            ``{period:02}`` with leading zeros) and, for several variables, ``{column}``.

    Errors:
        DataError: the files lack a period before the last one, or differ in their columns.
        ConfigError: ``period_columns`` does not name a column for each variable.

    Cost: a step reads the people's ids and its own columns of a Parquet file; csv files whole; ndjson files twice.
    """

    def __init__(self, options: SourceOptions, reading: ReadOptions = ReadOptions()) -> None:  # noqa: B008 (frozen)
        super().__init__(options, replace(reading, columns=(), schema=None))
        self._variables = tuple(reading.columns)
        # The keys of all records decide which periods an NDJSON file has; the order of records must not.
        self._json_keys = replace(self._json_keys, all_keys=True)

    def steps(
        self, start_step: int = 1, *, seen: Position | None = None, key: bytes = b""
    ) -> Iterator[StepInput]:
        """See ``Source``: the periods from ``start_step`` on. The columns of earlier periods are not read."""
        check_start(start_step)
        return self._checked(self._period_steps(start_step))

    def _period_steps(self, start_step: int) -> Iterator[StepInput]:
        files = self._checked_files()
        periods = self._periods(self._columns_of(files[0]), self._name(files[0]))
        for step in range(start_step, len(periods) + 1):
            yield self._step(step, files, periods[step - 1])

    def _step(self, step: int, files: list[AnyPath], columns: list[str]) -> StepInput:
        user = str(self.options.user_column)
        wanted = [user, *columns]
        names = [user, *self._variables]
        pieces = None
        for path in files:
            for block in self._blocks(path, wanted):
                table = block.select(wanted).rename_columns(names)
                pieces = pieces or StepRows(table.slice(0, 0))
                rows = table.num_rows
                pieces.add(table, np.zeros(rows, np.bool_), steps=np.full(rows, step))
        assert pieces is not None  # a file gives one block at least
        inserts, _ = pieces.take(step)
        return StepInput(step, f"period-{step}", None, *apart_from_users(inserts, None, user))

    def _periods(self, names: list[str], where: str) -> list[list[str]]:
        """The columns of each period that the files have."""
        wanted = self.options.period_columns
        if isinstance(wanted, str):
            periods = self._numbered(wanted, names)
        else:
            if len(self._variables) != 1:
                raise _several_variables()
            periods = [[name] for name in wanted or ()]
        complete = [all(name in names for name in period) for period in periods]
        last = max((number for number, whole in enumerate(complete, start=1) if whole), default=0)
        if last == 0 or not all(complete[:last]):
            gap = next(name for period in periods for name in period if name not in names) if periods else ""
            raise DataError(
                f"missing column {gap!r}",
                where=where,
                allowed="every period from 1 on",
            )
        return periods[:last]

    def _numbered(self, template: str, names: list[str]) -> list[list[str]]:
        """The columns of each period, up to the largest number in the name of a column."""
        numbered = PERIOD.search(template)
        assert numbered is not None  # checked with the options
        width = int(numbered[1] or 1)
        if "{column}" not in template and len(self._variables) != 1:
            raise _several_variables()
        texts = [template.replace("{column}", name) for name in self._variables]
        largest = 1
        for text in texts:
            before, _, after = PERIOD.sub("\0", text).partition("\0")
            pattern = re.compile(re.escape(before) + r"([0-9]{1,5})" + re.escape(after))
            numbers = (match[1] for name in names if (match := pattern.fullmatch(name)))
            largest = max([largest, *(int(n) for n in numbers if n == f"{int(n):0{width}}")])
        return [
            [PERIOD.sub(f"{period:0{width}}", text) for text in texts] for period in range(1, largest + 1)
        ]


def _several_variables() -> ConfigError:
    return ConfigError(
        "several variables need columns of their own",
        where="[source] period_columns",
        allowed='such as "{column}_{period}"',
    )
