"""A folder of releases, and a feed beside it: a database, or standard output.

There is always a folder. It holds the manifests and the catalogue, which readers check, and which show when a state was
rolled back. The feed gets every release after the folder has it.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

from dpstream.core.contracts.plugins import Plugins
from dpstream.core.errors import ConfigError
from dpstream.io.sinks.change_tables import ID, OP
from dpstream.io.sinks.drawing import DRAWN_TABLE, Drawing
from dpstream.io.sinks.publisher import MANIFEST, BesideFolder, Differences, Publisher, step_name
from dpstream.io.sinks.release_reader import has_periods, read_table
from dpstream.io.sinks.table_files import FORMATS, Content, Format, StagedFile, blocks_of, from_bytes

_OWN = ({"name": ID, "type": "integer"}, {"name": OP, "type": "string"})


class FeedRelease:
    """The release of one step for a feed: its manifest, and its table or its changes with their types.

    Args:
        files: the files of the step by name, in memory or on the disk.
        fields: the fields of the codebook, which give the types of CSV files.
        drawing: for a feed that draws its tables: what the table is drawn from.
    """

    def __init__(
        self,
        step: int,
        files: Mapping[str, Content],
        fields: Sequence[Mapping[str, Any]],
        drawing: Callable[[], Drawing] | None = None,
    ) -> None:
        manifest = files[MANIFEST]
        assert isinstance(manifest, bytes)
        self.step = step
        self.manifest_bytes = manifest
        self.manifest: dict[str, Any] = json.loads(manifest)
        self._files = files
        self._fields = [*fields, *_OWN]
        self._drawing = drawing

    @property
    def drawing(self) -> Drawing:
        """What the table is drawn from, for a feed that draws its tables."""
        assert self._drawing is not None
        return self._drawing()

    @property
    def has_periods(self) -> bool:
        """Whether its changes are new periods of a panel's people instead of records."""
        return has_periods(self.manifest)

    def part(self, kind: str) -> Any:
        """The ``table`` or the ``changes`` as a pyarrow Table; None where the release has none."""
        found = self._find(kind)
        return None if found is None else from_bytes(*found, self._fields)

    def blocks(self, kind: str) -> Iterator[Any] | None:
        """As ``part``, block by block, as ``pyarrow.RecordBatch``."""
        found = self._find(kind)
        return None if found is None else blocks_of(*found, self._fields)

    def _find(self, kind: str) -> tuple[bytes | Path, Format] | None:
        for name, content in self._files.items():
            stem, _, form = name.partition(".")
            if stem == kind and form in FORMATS:
                return content.path if isinstance(content, StagedFile) else content, form
        return None


class Feed(Protocol):
    """The contract of a feed. Calls come in the order of the steps, and may be repeated after a crash."""

    def published(self, stream_id: str) -> Mapping[int, str]:
        """The SHA-256 of the manifest of every step that the feed remembers.

        Errors:
            StoreDamagedError: the feed belongs to another stream.
        """
        ...

    def publish(self, piece: FeedRelease) -> None:
        """Write a release, and read it back if possible. Publishing the same release again changes nothing.

        Errors:
            StoreError: the release cannot be written or read back.
        """
        ...

    def compare(
        self, committed: Mapping[int, FeedRelease], expected: Callable[[int], Any], *, deep: bool
    ) -> Differences:
        """Find what is missing or changed. Writes nothing.

        Args:
            committed: the published steps that the folder holds, without their tables.
            expected: gives a step's whole table, or its number of rows where readers cannot read the table.
            deep: compare tables; otherwise only their numbers of rows.
        """
        ...

    def restore(self, step: int, piece: Callable[[bool], FeedRelease], withdrawn: Mapping[int, str]) -> None:
        """Publish a step again that the feed may have lost.

        Args:
            step: the step.
            piece: gives its release from the store; with True its whole table, also where changes were published.
            withdrawn: the withdrawn steps, with the SHA-256 of their manifests.
        """
        ...

    def withdraw(self, step: int) -> None:
        """Remove a step's table, if the feed has it."""
        ...


@runtime_checkable
class DrawingFeed(Feed, Protocol):
    """A feed that draws the tables itself (``FeedRelease.drawing``), after their steps were committed.

    The folder holds no tables then: the feed keeps those of all steps, and hears when one goes."""

    def expire(self, step: int) -> None:
        """Remove a step's table, if the feed has it: the owner keeps the last ones only."""
        ...


class FeedPlace:
    """A feed as a ``Place``: it gets releases instead of files.

    Args:
        folder: has every release already.
        fields: the fields of the codebook, which give the types of CSV files.
    """

    def __init__(self, folder: Publisher, feed: Feed, fields: Sequence[Mapping[str, Any]]) -> None:
        self.feed = feed
        #: What gives the ``Drawing`` of a step, for a feed that draws its tables.
        self.drawing: Callable[[int], Drawing] | None = None
        self._directory = folder.directory
        self._table = DRAWN_TABLE if isinstance(feed, DrawingFeed) else folder.table_name
        self._fields = tuple(fields)

    def published(self, stream_id: str) -> Mapping[int, str]:
        """See ``Feed``."""
        return self.feed.published(stream_id)

    def publish(self, step: int, files: Mapping[str, Content]) -> None:
        """See ``Feed``."""
        self.feed.publish(self._release(step, files))

    def compare(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences:
        """Find what is missing or changed of the steps that the folder holds."""
        there = {step: self._directory / step_name(step) / MANIFEST for step in committed}
        releases = {
            step: FeedRelease(step, {MANIFEST: path.read_bytes()}, self._fields)
            for step, path in there.items()
            if path.is_file()
        }

        def expected(step: int) -> Any:
            try:
                return read_table(self._directory, step, ids=True)
            except ConfigError:
                # The step is a change, and a step before it was withdrawn or dropped, so its table cannot be read.
                return releases[step].manifest.get("rows_in_table")

        return self.feed.compare(releases, expected, deep=deep)

    def restore(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], Content],
        withdrawn: Mapping[int, str] | None = None,
    ) -> None:
        """Publish a step again that the feed may have lost, with its whole table where it needs that."""

        def release(whole: bool) -> FeedRelease:
            wanted = set(names)
            if whole:
                wanted = {name for name in names if name.startswith("table.")} or {self._table}
                wanted.add(MANIFEST)
            return self._release(step, {name: make(name) for name in sorted(wanted)})

        self.feed.restore(step, release, withdrawn or {})

    def expire(self, step: int, names: Sequence[str]) -> None:
        """Remove a step's table; of the feeds only one that draws tables holds old ones."""
        if isinstance(self.feed, DrawingFeed):
            self.feed.expire(step)

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None:
        """See ``Feed``."""
        self.feed.withdraw(step)

    def _release(self, step: int, files: Mapping[str, Content]) -> FeedRelease:
        drawing = None if self.drawing is None else partial(self.drawing, step)
        return FeedRelease(step, files, self._fields, drawing)


class FolderAndFeed(BesideFolder):
    """The folder, and then the feed.

    Args:
        folder: gets every release.
        feed: gets it afterwards.
        fields: the fields of the codebook, which give the types of CSV files.
    """

    _other = "database"
    _place: FeedPlace

    def __init__(self, folder: Publisher, feed: Feed, fields: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(folder, FeedPlace(folder, feed, fields))
        self._feed = feed

    @property
    def table_name(self) -> str:
        """The name of the table's file in each step's directory."""
        return DRAWN_TABLE if self.draws_tables else self.folder.table_name

    @property
    def reads_whole(self) -> bool:
        """Whether the feed reads back and compares whole tables, as databases do and standard output does not."""
        return not isinstance(self._feed, StandardOutput | DrawingFeed)

    @property
    def draws_tables(self) -> bool:
        """Whether the feed draws the tables."""
        return isinstance(self._feed, DrawingFeed)

    def draw_from(self, drawing: Callable[[int], Drawing]) -> None:
        """What gives the ``Drawing`` of a step, for such a feed."""
        self._place.drawing = drawing


class StandardOutput:
    """Writes releases as NDJSON: a line that begins a step, one line per record, and a line that ends the step.

    Only committed steps are written, in their order. If the process stops before a written step is recorded as
    published, the next process writes it again, whole and with equal lines. So readers take a step only when they see
    its end, and drop a step that they have already. Changes are written if the same process wrote the step before;
    otherwise the table is, if there is one.
    """

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._given = out
        self._last: int | None = None

    def published(self, stream_id: str) -> dict[int, str]:
        """Empty: a pipe remembers nothing."""
        return {}

    def publish(self, piece: FeedRelease) -> None:
        """Write one step, and flush."""
        changes = piece.blocks("changes") if self._last == piece.step - 1 else None
        blocks, kind = (changes, "changes") if changes is not None else (piece.blocks("table"), "table")
        if blocks is None:
            blocks, kind = piece.blocks("changes"), "changes"
        head = {"step": piece.step, "stream": piece.manifest.get("stream"), "kind": kind}
        self._write([{**head, "event": "begin", "period": piece.manifest.get("period")}])
        rows = 0
        for block in blocks or ():
            self._write([{"step": piece.step, **row} for row in block.to_pylist()])
            rows += block.num_rows
        self._write([{**head, "event": "end", "rows": rows}])
        self._out.flush()
        self._last = piece.step

    def compare(
        self, committed: Mapping[int, FeedRelease], expected: Callable[[int], Any], *, deep: bool
    ) -> Differences:
        """Empty: what was written to a pipe cannot be read back."""
        return {}

    def restore(self, step: int, piece: Callable[[bool], FeedRelease], withdrawn: Mapping[int, str]) -> None:
        """Does nothing: readers got the step already."""

    def withdraw(self, step: int) -> None:
        """Write a line which says that the step was withdrawn; what was written before cannot be taken back."""
        self._write([{"step": step, "event": "withdrawn"}])
        self._out.flush()

    @property
    def _out(self) -> BinaryIO:
        return sys.stdout.buffer if self._given is None else self._given

    def _write(self, lines: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False, default=_plain) + "\n" for line in lines)
        self._out.write(text.encode())


def _plain(value: datetime.date) -> str:
    return value.isoformat()


OWN_SINKS = ("folder", "duckdb", "postgresql", "bucket", "stdout")


@dataclass(frozen=True)
class SinkKind:
    """A sink of another room or package: the object of an entry point of the group ``dpstream.sinks``.

    Attributes:
        open: makes the ``Feed`` from ``[output] database`` (None where the file does not have it) and ``table``.
        folder: where ``database`` is a folder: its name, where the file does not have one. Empty: it is no folder.
        reserved: names that no released column may have, in lower case.
        draws_tables: whether its feed is a ``DrawingFeed``, for tables in which no record persists.
    """

    open: Callable[[str | None, str], Feed]
    folder: str = ""
    reserved: tuple[str, ...] = ()
    draws_tables: bool = False


#: Kinds whose room lies above this one: found as those of other packages are.
_ENGINES = {"spark": "dpstream.spark.release_tables:SINK"}
SINKS = Plugins("dpstream.sinks", "the sink", SinkKind, {**dict.fromkeys(OWN_SINKS, ""), **_ENGINES})
