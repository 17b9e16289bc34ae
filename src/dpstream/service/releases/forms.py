"""Tables in the forms that readers ask for. What the folder does not have in a form is written to a nameless file.

Such files are made in blocks, two at a time, and kept until they are too many or too large together. So every form
has a length and parts (``Range``), a slow reader holds an open file and nothing else, and memory does not grow with
the table.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import ipc

from dpstream.core.errors import ConfigError
from dpstream.io.sinks import StandardOutput, read_table
from dpstream.io.sinks.change_tables import ID, OP
from dpstream.io.sinks.table_files import FORMATS, BlockWriter, StagedFile, blocks_of, from_bytes
from dpstream.io.sinks.target import MANIFEST, StepFiles
from dpstream.service.releases.places import Listing, OpenFile, ReleaseFolder
from dpstream.service.releases.problems import Problem

#: Endings and media types.
FORMS = {
    "parquet": "application/vnd.apache.parquet",
    "arrows": "application/vnd.apache.arrow.stream",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
}
#: Records of a block.
ROWS = 2**14
#: Most records of a table that has to be put together in memory.
MAX_ROWS = 5_000_000
#: Files that are kept open for the next reader who wants the same form.
MAX_FILES = 64
#: Bytes of all of them together.
MAX_MADE_BYTES = 2**30
#: Bytes of an answer of the feed after which it ends with the step.
MAX_FEED = 2**28


#: What a cursor looks like, see ``Cursor``.
PATTERN = r"^[0-9]{1,18}(~[0-9]{1,18}(-[0-9]{1,18})?(\.[0-9]{1,18}(-[0-9]{1,18})?)*)?$"
#: Most ranges of a cursor, so that it fits into an address. The oldest are left out.
MAX_RANGES = 200


class Made:
    """Files that were made for readers, the newest ones up to some number and some bytes together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}
        self._files: OrderedDict[Hashable, OpenFile] = OrderedDict()
        self._two = threading.BoundedSemaphore(2)

    def get(self, key: Hashable, write: Callable[[BinaryIO], None]) -> OpenFile:
        """The file of that key, made by ``write`` where there is none. It has no name: a crash leaves nothing."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            if (found := self._found(key)) is not None:
                return found
            try:
                with self.one_of_two(), tempfile.TemporaryFile(prefix="dpstream-") as out:
                    write(out)
                    out.flush()
                    made = OpenFile(os.dup(out.fileno()))
            finally:
                with self._lock:
                    self._making.pop(key, None)
            with self._lock:
                self._files[key] = made
                while len(self._files) > 1 and (
                    len(self._files) > MAX_FILES
                    or sum(one.facts.st_size for one in self._files.values()) > MAX_MADE_BYTES
                ):
                    self._files.popitem(last=False)[1].close()
                return made.again()

    @contextlib.contextmanager
    def one_of_two(self) -> Iterator[None]:
        """Around what takes memory: two at a time.

        Errors:
            Problem: it is not its turn for a long time.
        """
        if not self._two.acquire(timeout=20):
            raise Problem(503, "too many requests", {"Retry-After": "5"})
        try:
            yield
        finally:
            self._two.release()

    def _found(self, key: Hashable) -> OpenFile | None:
        with self._lock:
            if key not in self._files:
                return None
            self._files.move_to_end(key)
            return self._files[key].again()


@dataclass(frozen=True)
class Cursor:
    """Where a reader of the changes is: told up to ``step``, but for the ranges in ``without`` (first and last step).

    ``12~3.7-9`` means: told up to step 12, but 3, 7, 8 and 9 were not published or could not be used. Nothing has to be
    remembered for that reader, who is told of these steps when they come. A number alone is a cursor as well.

    >>> str(Cursor.parse("12~7-9.3.4"))
    '12~3-4.7-9'
    """

    step: int
    without: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that a text of ``PATTERN`` writes."""
        step, *pairs = re.findall(r"(\d+)(?:-(\d+))?", text)
        return cls(int(step[0]), _joined((int(first), int(last or first)) for first, last in pairs))

    def lacks(self, step: int) -> bool:
        """Whether it is one of the steps that were not there."""
        return any(first <= step <= last for first, last in self.without)

    def lacking(self, more: Iterable[tuple[int, int]]) -> Cursor:
        """The same, and more steps were not there."""
        return Cursor(self.step, _joined([*self.without, *more])[-MAX_RANGES:])

    def __str__(self) -> str:
        gaps = (str(first) if first == last else f"{first}-{last}" for first, last in self.without)
        return f"{self.step}~{'.'.join(gaps)}" if self.without else str(self.step)


def _waiting(listing: Listing, last: int) -> list[tuple[int, int]]:
    """The steps up to ``last`` that may still come: not published, or a change that follows such a step."""
    found: list[tuple[int, int]] = []
    before, follows = 0, False
    for step, entry in listing.entries.items():
        if step > last:
            break
        if step > before + 1:
            found.append((before + 1, step - 1))
            follows = True
        if entry["state"] != "change" or not entry["kept"]:
            follows = False
        elif follows:
            found.append((step, step))
        before = step
    return [*found, (before + 1, last)] if last > before else found


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """In order, and those that touch as one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(one for one in ranges if one[0] <= one[1]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return tuple(joined)


def table(
    made: Made,
    place: ReleaseFolder,
    step: int,
    kind: str,
    form: str,
    columns: tuple[str, ...],
    limit: int | None,
) -> OpenFile:
    """The ``table`` or the ``changes`` of a step, all of it or some columns and the first records.

    Errors:
        Problem: a step or a form that is not to be had. ConfigError: unknown columns.
    """
    entry = place.standing(step)
    files = place.manifest(step)[1]["files"]
    own = f"{kind}.{form}"
    if own in files and not columns and limit is None:
        return place.step_file(step, own)
    stored = next((one for one in FORMATS if f"{kind}.{one}" in files), None)
    if stored is None and kind == "changes":
        raise Problem(404, f"step {step} has a table instead of changes")
    if stored is None:
        check_whole(place, step)

    def write(out: BinaryIO) -> None:
        if stored is None:
            whole = read_table(place.root, step, ids=True)
            _write(whole.schema, columns, _first(whole.to_batches(ROWS), limit), form, out)
            return
        with place.step_file(step, f"{kind}.{stored}") as file:
            fields = [*_fields(place), {"name": ID, "type": "integer"}, {"name": OP, "type": "string"}]
            blocks = blocks_of(file.path, stored, fields)
            first = next(blocks, None)
            if first is None:
                _write(from_bytes(file.path, stored, fields).schema, columns, blocks, form, out)
            else:
                _write(first.schema, columns, _first(itertools.chain([first], blocks), limit), form, out)

    return made.get((place.name, step, entry["manifest_sha256"], kind, form, columns, limit), write)


def feed(made: Made, place: ReleaseFolder, listing: Listing, after: Cursor, limit: int) -> OpenFile:
    """What a reader who was told up to ``after`` has to apply, as ``sink = "stdout"`` writes it: changes where they
    follow what the reader has, a table where they do not, a line where a step was withdrawn. The last line gives the
    cursor to ask with next.

    First come a line for each withdrawn step up to ``after``, whether the reader knows or not, and the steps that were
    published since though their numbers are lower: as whole tables, as the reader may not have the ones before."""
    after = Cursor(min(after.step, listing.last), after.without)

    def write(out: BinaryIO) -> None:
        lines, written, last, late = StandardOutput(out), 0, after.step, -1

        def full() -> bool:
            return written >= limit or out.tell() > MAX_FEED

        entries = listing.entries
        left: list[tuple[int, int]] = []
        for step in entries:
            if step <= after.step and entries[step]["state"] == "withdrawn":
                lines.take_back(step)
        for step in listing.readable:
            if step > after.step or not after.lacks(step):
                continue
            if full():
                left.append((step, step))
            elif _publish(lines, place, step, late == step - 1, alone=True):
                late = step
                written += 1
        start = entries.get(last)
        has = last if start is not None and start["state"] != "withdrawn" and not after.lacks(last) else None
        begin = last + 1
        if last == 0 and listing.readable:
            begin = max(step for step in listing.readable if entries[step]["state"] == "full")
        for step, entry in entries.items():
            if step < begin:
                continue
            if full():
                break
            if entry["state"] == "withdrawn":
                lines.take_back(step)
                has = None
            elif entry["kept"] and _publish(lines, place, step, has == step - 1):
                has = step
            else:
                continue
            last = step
            written += 1
        after_it = str(Cursor(last).lacking([*_waiting(listing, last), *left]))
        out.write(f"{json.dumps({'step': last, 'event': 'next', 'after': after_it})}\n".encode())

    return made.get((place.name, "feed", listing.digest, after, limit), write)


def _publish(
    out: StandardOutput, place: ReleaseFolder, step: int, follows: bool, alone: bool = False
) -> bool:
    """Write the smallest part of a step that the reader can use; False where there is none. ``alone``: a table is put
    together where there is none, if it is not too large; otherwise the changes have to do."""
    manifest, facts = place.manifest(step)
    files = facts["files"]
    kinds = ("changes", "table") if follows else ("table",)
    names = [f"{kind}.{form}" for kind in kinds for form in FORMATS if f"{kind}.{form}" in files]
    if not names and alone and "table.json" not in files:
        try:
            check_whole(place, step)
        except Problem as problem:
            if problem.status != 413:
                raise
            return _publish(out, place, step, True)
        with tempfile.TemporaryFile(prefix="dpstream-") as whole:
            table = read_table(place.root, step, ids=True)
            _write(table.schema, (), table.to_batches(ROWS), "parquet", whole)
            whole.flush()
            staged = StagedFile("", whole.tell(), Path(f"/dev/fd/{whole.fileno()}"))
            out.put(StepFiles.of(step, {MANIFEST: manifest, "table.parquet": staged}, _fields(place)))
        return True
    if not names:
        return False
    with place.step_file(step, names[0]) as file:
        staged = StagedFile(files[names[0]]["sha256"], file.facts.st_size, file.path)
        out.put(StepFiles.of(step, {MANIFEST: manifest, names[0]: staged}, _fields(place)))
    return True


def _fields(place: ReleaseFolder) -> list[dict[str, Any]]:
    """The fields of the codebook, which give the types of CSV files."""
    book = place.codebook()
    return [*book["resources"][0]["schema"]["fields"], *book["dpstream"].get("panel", {}).get("fields", [])]


def check_whole(place: ReleaseFolder, step: int) -> None:
    """Check that the table of a step can be put together in memory, from files that are as they were published.

    Errors:
        Problem: it cannot be, or not any more.
    """
    manifest = place.manifest(step)[1]
    if "table.json" in manifest["files"]:
        raise Problem(404, f"the table of step {step} was drawn elsewhere")
    listing = place.listing()
    if step not in listing.readable:
        raise Problem(410, f"step {step} changes a missing table")
    if int(manifest.get("rows_in_table") or manifest["rows"]) > MAX_ROWS:
        raise Problem(413, f"the table of step {step} is too large: take the files")
    for number in range(step, 0, -1):
        kind = "table." if listing.entries[number]["state"] == "full" else "changes."
        for name in place.manifest(number)[1]["files"]:
            if name.startswith(kind):
                place.step_file(number, name).close()
        if kind == "table.":
            break
    place.codebook()


def _first(blocks: Iterator[Any] | list[Any], limit: int | None) -> Iterator[Any]:
    for block in blocks:
        if limit is None:
            yield block
            continue
        yield block.slice(0, limit)
        limit -= block.num_rows
        if limit <= 0:
            return


def _write(
    schema: pa.Schema, columns: tuple[str, ...], blocks: Iterator[Any], form: str, out: BinaryIO
) -> None:
    """Write blocks in a form, one after the other.

    Errors:
        ConfigError: unknown columns.
    """
    for name in columns:
        if name not in schema.names:
            shown = name if len(name) <= 40 else f"{name[:37]}..."
            raise ConfigError(f"unknown column {shown!r}", where="columns", allowed=", ".join(schema.names))
    names = list(dict.fromkeys(columns)) or list(schema.names)
    schema = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
    if form == "ndjson":
        for block in blocks:
            for row in block.select(names).to_pylist():
                out.write(f"{json.dumps(row, ensure_ascii=False, default=_plain)}\n".encode())
        return
    if form == "arrows":
        with ipc.new_stream(pa.PythonFile(out, mode="w"), schema) as stream:
            for block in blocks:
                stream.write_batch(block.select(names).replace_schema_metadata(schema.metadata))
        return

    def put(data: bytes) -> None:
        out.write(data)

    writer = BlockWriter(schema, "csv" if form == "csv" else "parquet", put)
    for block in blocks:
        writer.write(writer.prepare(pa.Table.from_batches([block]).select(names)))
    writer.close()


def _plain(value: Any) -> str:
    return str(value.isoformat())
