"""A folder of releases, and something besides that is fed from it: a database, or standard output.

The folder is always there: it holds manifests and catalogue, which readers check and which tell a state that was
rolled back. What is beside it gets every release after the folder has it.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.tables.change_tables import ID, OP
from dpstream.io.sinks.publisher import MANIFEST, Differences, Publisher, step_name
from dpstream.io.sinks.release_reader import has_periods, read_table
from dpstream.io.sinks.table_files import from_bytes

__all__ = ["Feed", "Piece", "StandardOutput", "Tee"]

_OWN = ({"name": ID, "type": "integer"}, {"name": OP, "type": "string"})


class Piece:
    """One step's release as its feed sees it: the manifest, and the table or the changes, typed."""

    def __init__(self, step: int, files: Mapping[str, bytes], fields: Sequence[Mapping[str, Any]]) -> None:
        self.step = step
        self.manifest_bytes = files[MANIFEST]
        self.manifest: dict[str, Any] = json.loads(files[MANIFEST])
        self._files = files
        self._fields = [*fields, *_OWN]

    @property
    def has_periods(self) -> bool:
        """Whether its changes are new periods of people who stay, and no records."""
        return has_periods(self.manifest)

    def part(self, kind: str) -> Any:
        """The ``table`` or the ``changes`` as a pyarrow Table; None where the release has none."""
        for name, data in self._files.items():
            stem, _, form = name.partition(".")
            if stem == kind and form in ("parquet", "csv"):
                return from_bytes(data, "csv" if form == "csv" else "parquet", self._fields)
        return None


class Feed(Protocol):
    """What stands beside the folder. Calls may be repeated after a crash, and come in the order of the steps."""

    def published(self, stream_id: str) -> Mapping[int, str]:
        """SHA-256 of the manifest of every step it remembers.

        Errors:
            StoreDamagedError: it belongs to another stream.
        """
        ...

    def publish(self, piece: Piece) -> None:
        """Take over a release, and read it back where that can be done; the same one again changes nothing.

        Errors:
            StoreError: what was written is not there.
        """
        ...

    def compare(
        self, committed: Mapping[int, Piece], expected: Callable[[int], Any], *, deep: bool
    ) -> Differences:
        """What is missing or changed; writes nothing.

        Args:
            committed: the published steps that the folder holds, without their tables.
            expected: a step's whole table.
            deep: compare the tables, and not only their numbers of rows.
        """
        ...

    def restore(self, step: int, piece: Callable[[bool], Piece], withdrawn: Mapping[int, str]) -> None:
        """Catch up to a published step.

        Args:
            step: which one.
            piece: its release, from the store; with True its whole table, though it was published as changes.
            withdrawn: steps that were withdrawn, with the SHA-256 of their manifests.
        """
        ...

    def withdraw(self, step: int) -> None:
        """Lose a step's table, if it is there."""
        ...


class Tee:
    """A ``Sink``: the folder first, then the feed.

    Args:
        folder: where every release goes.
        feed: what gets it afterwards.
        fields: of the codebook, which type CSV files.
    """

    def __init__(self, folder: Publisher, feed: Feed, fields: Sequence[Mapping[str, Any]]) -> None:
        self._folder = folder
        self._feed = feed
        self._fields = tuple(fields)

    @property
    def directory(self) -> Path:
        """The folder."""
        return self._folder.directory

    @property
    def table_name(self) -> str:
        """Name of the table's file in each step's directory."""
        return self._folder.table_name

    def render(self, table: Any) -> dict[str, bytes]:
        """A table as named files."""
        return self._folder.render(table)

    def render_changes(self, changes: Any) -> dict[str, bytes]:
        """A table of changes as named files."""
        return self._folder.render_changes(changes)

    def published(self, stream_id: str) -> dict[int, str]:
        """What either of them has; they have to agree."""
        hashes = dict(self._folder.published(stream_id))
        for step, digest in self._feed.published(stream_id).items():
            if hashes.setdefault(step, digest) != digest:
                raise StoreDamagedError(
                    f"the folder and the database hold different releases of step {step}",
                    where=str(self.directory),
                )
        return hashes

    def publish(self, step: int, files: Mapping[str, bytes]) -> None:
        """Folder, then feed."""
        self._folder.publish(step, files)
        self._feed.publish(Piece(step, files, self._fields))

    def compare(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences:
        """Of the folder; where that is as it should be, of the feed."""
        differences = self._folder.compare(committed, deep=deep, withdrawn=withdrawn)
        if differences:
            return differences
        pieces = {step: piece for step in committed if (piece := self._manifest_of(step)) is not None}

        def expected(step: int) -> Any:
            try:
                return read_table(self.directory, step, ids=True)
            except ConfigError:
                # A step that it is a change of was withdrawn or dropped: readers cannot follow it.
                return pieces[step].manifest.get("rows_in_table")

        return self._feed.compare(pieces, expected, deep=deep)

    def restore(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], bytes],
        withdrawn: Mapping[int, str] | None = None,
    ) -> None:
        """Folder, then feed. The feed gets what the store makes: others may have put files into the folder."""
        self._folder.restore(step, names, make)

        def piece(whole: bool) -> Piece:
            wanted = set(names)
            if whole:
                wanted = {name for name in names if name.startswith("table.")} or {self.table_name}
                wanted.add(MANIFEST)
            return Piece(step, {name: make(name) for name in sorted(wanted)}, self._fields)

        self._feed.restore(step, piece, withdrawn or {})

    def expire(self, step: int, names: Sequence[str]) -> None:
        """Of the folder; a feed holds no old tables."""
        self._folder.expire(step, names)

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None:
        """From both."""
        self._folder.withdraw(step, names, files)
        self._feed.withdraw(step)

    def write_public(self, name: str, data: bytes) -> None:
        """Into the folder."""
        self._folder.write_public(name, data)

    def _manifest_of(self, step: int) -> Piece | None:
        path = self.directory / step_name(step) / MANIFEST
        return Piece(step, {MANIFEST: path.read_bytes()}, self._fields) if path.is_file() else None


class StandardOutput:
    """Releases as NDJSON: a line that begins a step, one line a record, a line that ends it.

    Only committed steps are written, in their order. A step that was written when the process stopped, and not
    yet noted as published, is written again, whole and with equal lines: readers take a step only when they see
    its end, and drop one that they have. Changes are written where the step before was written by the same
    process; else the table, if there is one.
    """

    def __init__(self, out: BinaryIO | None = None) -> None:
        self._out = out
        self._last: int | None = None

    def published(self, stream_id: str) -> dict[int, str]:
        """Nothing: a pipe remembers nothing."""
        return {}

    def publish(self, piece: Piece) -> None:
        """Write one step and flush."""
        changes = piece.part("changes") if self._last == piece.step - 1 else None
        rows, kind = (changes, "changes") if changes is not None else (piece.part("table"), "table")
        if rows is None:
            rows, kind = piece.part("changes"), "changes"
        head = {"step": piece.step, "stream": piece.manifest.get("stream"), "kind": kind}
        lines = [{**head, "event": "begin", "period": piece.manifest.get("period")}]
        lines += [{"step": piece.step, **row} for row in ([] if rows is None else rows.to_pylist())]
        lines.append({**head, "event": "end", "rows": 0 if rows is None else rows.num_rows})
        self._write(lines)
        self._last = piece.step

    def compare(
        self, committed: Mapping[int, Piece], expected: Callable[[int], Any], *, deep: bool
    ) -> Differences:
        """Nothing: what was written to a pipe cannot be read."""
        return {}

    def restore(self, step: int, piece: Callable[[bool], Piece], withdrawn: Mapping[int, str]) -> None:
        """Nothing: readers had it."""

    def withdraw(self, step: int) -> None:
        """Say that a step was withdrawn: what was written cannot be taken back."""
        self._write([{"step": step, "event": "withdrawn"}])

    def _write(self, lines: list[dict[str, Any]]) -> None:
        out = sys.stdout.buffer if self._out is None else self._out
        text = "".join(json.dumps(line, ensure_ascii=False, default=_plain) + "\n" for line in lines)
        out.write(text.encode())
        out.flush()


def _plain(value: datetime.date) -> str:
    return value.isoformat()
