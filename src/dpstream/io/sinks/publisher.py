"""Releases as files in a directory. A step appears whole, is never changed, and survives a power loss."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.paths import check_file, check_local, read_bytes
from dpstream.io.sinks.catalogue import listed_hashes
from dpstream.io.sinks.change_tables import LABEL
from dpstream.io.sinks.drawing import Drawing
from dpstream.io.sinks.table_files import (
    FORMATS,
    BlockWriter,
    Content,
    Format,
    StagedFile,
    csv_label,
    file_sha256,
    sha256_of,
    to_bytes,
)

CODEBOOK = "codebook.json"
MANIFEST = "manifest.json"
#: Says why a step was withdrawn.
NOTICE = "withdrawn.json"
#: What a step measured, as noisy counts; it stays when the table goes.
MEASUREMENTS = "measurements.ndjson"
#: What stays of a step whose table expired or was withdrawn.
STAYING = frozenset({MANIFEST, NOTICE, MEASUREMENTS})
#: Where a step is put together: it is there only while somebody publishes, or after an attempt that was interrupted.
_ATTEMPTS = ".publishing.tmp"
_STEP = re.compile(r"step-(\d{6,})")
#: (step, file or table) -> how it differs from what was published; "withdrawn": it exists, but the step was withdrawn.
Differences = dict[tuple[int, str], Literal["missing", "changed", "withdrawn"]]
#: Every comparison with the store reads the files of so many of the last published steps.
LAST_COMPARED = 3
#: What to do about a file that differs, for messages.
_AWAY = "moving the step's folder away and running again, which publishes it from the store"


def step_name(step: int) -> str:
    """The name of a step's directory.

    >>> step_name(17)
    'step-000017'
    """
    return f"step-{step:06d}"


def published_steps(directory: Path) -> set[int]:
    """Steps that have a folder."""
    names = (path.name for path in directory.glob("step-*"))
    return {int(match[1]) for match in map(_STEP.fullmatch, names) if match is not None}


def compare_files(
    committed: Mapping[int, Mapping[str, str]],
    there: Callable[[int], Collection[str]],
    digest: Callable[[int, str], str | None],
    *,
    deep: bool,
    withdrawn: Collection[int],
) -> Differences:
    """How the files that are somewhere differ from the published ones.

    Args:
        committed: step -> file -> SHA-256.
        there: the names of a step's files. digest: the SHA-256 of one, None where it is gone.
        deep: read the files of all steps; otherwise only those of the last few, and of the others find missing
            files only.
        withdrawn: steps of which only the manifest, the notice and the measurements may be there.
    """
    differences: Differences = {}
    read = set(committed if deep else sorted(committed)[-LAST_COMPARED:])
    for step, files in committed.items():
        names = there(step)
        for name, wanted in files.items():
            if name not in names:
                differences[step, name] = "missing"
            elif step in read and digest(step, name) != wanted:
                differences[step, name] = "changed"
    for step in withdrawn:
        for name in set(there(step)) - STAYING:
            differences[step, name] = "withdrawn"
    return differences


def noticed(directory: Path) -> set[int]:
    """Steps whose readers were told that their tables are withdrawn."""
    return {step for step in published_steps(directory) if (directory / step_name(step) / NOTICE).exists()}


class Publisher:
    """Writes a stream's releases below ``directory``; one stream, one directory.

    ::

        catalogue.json                 the last steps, with the hashes of their manifests
        catalogue/000001-000100.json   earlier steps, a hundred in a file
        codebook.json                  columns, labels, bins
        step-000017/table.parquet      (or table.csv)
        step-000017/measurements.ndjson
        step-000017/manifest.json

    A step's directory is built in a temporary folder, fsynced, and renamed into place. Calls may be repeated after a
    crash; a file that exists already must be equal, byte for byte.

    Errors:
        ConfigError: an unknown format. StoreDamagedError: files that differ from what was committed.
        OSError: the disk is full or fails (the stream turns it into a StoreError).
    """

    def __init__(self, directory: str | Path, *, format: Format = "parquet") -> None:
        if format not in FORMATS:
            raise ConfigError(f"unknown format {format!r}", where="output", allowed=", ".join(FORMATS))
        if not isinstance(directory, str | Path):
            raise ConfigError(f"{directory!r} is not a path", where="output", allowed="a path")
        check_local(directory)
        self._directory = Path(directory)
        self._format: Format = format

    @property
    def directory(self) -> Path:
        """The path of the folder."""
        return self._directory

    @property
    def folder(self) -> Publisher:
        """Itself."""
        return self

    @property
    def table_name(self) -> str:
        """The name of the table's file in each step's directory."""
        return f"table.{self._format}"

    @property
    def reads_whole(self) -> bool:
        """False: files that wait on the disk are linked or copied."""
        return False

    @property
    def draws_tables(self) -> bool:
        """False: it gets files."""
        return False

    def draw_from(self, drawing: Callable[[int], Drawing]) -> None:
        """Does nothing: it draws no tables."""

    def render(self, table: Any) -> dict[str, bytes]:
        """The files of a table by name: the table itself, and beside a CSV file its label, which CSV cannot hold."""
        return self._files(self.table_name, table)

    def render_changes(self, changes: Any) -> dict[str, bytes]:
        """The files of a table of changes by name."""
        return self._files(f"changes.{self._format}", changes)

    def block_writer(self, schema: Any, put: Callable[[bytes], None]) -> BlockWriter:
        """Converts a table of this schema to the bytes of the table's file, block by block."""
        return BlockWriter(schema, self._format, put)

    def published(self, stream_id: str) -> dict[int, str]:
        """The SHA-256 of the manifest of every step that the catalogue lists or that has a directory.

        Errors:
            StoreDamagedError: the catalogue cannot be read or belongs to another stream, or a manifest is missing or is
                not the one that the catalogue lists.
        """
        if not self._directory.is_dir():
            return {}
        hashes = listed_hashes(self._directory, stream_id)
        for entry in self._directory.iterdir():
            match = _STEP.fullmatch(entry.name)
            if match is None:
                continue
            try:
                digest = hashlib.sha256(read_bytes(entry / MANIFEST)).hexdigest()
            except FileNotFoundError:
                raise StoreDamagedError("the manifest is missing", where=str(entry), allowed=_AWAY) from None
            if hashes.setdefault(int(match[1]), digest) != digest:
                raise StoreDamagedError(
                    "the manifest is not the one that the catalogue lists",
                    where=str(entry),
                    allowed=f"{_AWAY}; or, where the catalogue was changed, moving that away",
                )
        return hashes

    def publish(self, step: int, files: Mapping[str, Content]) -> None:
        """Put all files of a step in place at once, and read them back. Files that wait on the disk stay there.

        Errors:
            StoreDamagedError: the step is there already with other files.
        """
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        final = self._directory / step_name(step)
        self._sweep()
        if not final.exists():
            temporary = self._attempt()
            temporary.mkdir(mode=0o755, parents=True)
            for name, content in files.items():
                _put(temporary / name, content)
            durable.sync_directory(temporary)
            try:
                durable.rename(temporary, final)
            except OSError:
                if not final.exists():
                    raise
                # Another process was first, with a copy of the state: whether it published the same is compared.
                shutil.rmtree(temporary)
            self._sweep()
        self._require_equal(final, files)
        durable.sync_directory(self._directory)

    def compare(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences:
        """Find missing and changed files of published steps, and files of withdrawn steps that should be gone: see
        ``compare_files``."""

        def digest(step: int, name: str) -> str | None:
            return file_sha256(self._directory / step_name(step) / name)

        return compare_files(committed, self._names, digest, deep=deep, withdrawn=withdrawn)

    def restore(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], Content],
        withdrawn: Mapping[int, str] | None = None,
    ) -> None:
        """Write the missing files of a step (``make`` gives them); files that exist are left alone."""
        folder = self._directory / step_name(step)
        if not folder.exists():
            self.publish(step, {name: make(name) for name in names})
            return
        for name in names:
            if not (folder / name).exists():
                temporary = folder / f".{name}.tmp"
                durable.unlink(temporary)
                _put(temporary, make(name))
                durable.rename(temporary, folder / name)
                durable.sync_directory(folder)

    def expire(self, step: int, names: Sequence[str]) -> None:
        """Remove a step's table and keep its manifest and what it measured."""
        folder = self._directory / step_name(step)
        for name in names:
            durable.unlink(folder / name)
        if folder.exists():
            durable.sync_directory(folder)

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Remove a step's table, keep its manifest and what it measured, and put the notice beside them."""
        folder = self._directory / step_name(step)
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.expire(step, names)
        self._sweep()  # the table in what an interrupted attempt left
        for name, data in files.items():
            path = folder / name
            if not path.exists() or read_bytes(path) != data:
                durable.replace_file(path, data, mode=0o644)
        durable.sync_directory(self._directory)

    def write_public(self, name: str, data: bytes) -> None:
        """Write the codebook, the catalogue or a part of it, unless the file has these bytes already."""
        path = self._directory / name
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not path.exists() or read_bytes(path) != data:
            durable.replace_file(path, data, mode=0o644)
            if path.parent != self._directory:
                durable.sync_directory(self._directory)  # makes the new folder's name durable

    def _attempt(self) -> Path:
        """A name of this attempt's own: two processes that share one publish a mixture."""
        return self._directory / _ATTEMPTS / secrets.token_hex(8)

    def _sweep(self) -> None:
        """Remove what interrupted attempts left, at whatever step, without a listing of all releases."""
        attempts = self._directory / _ATTEMPTS
        try:
            attempts.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            for left in attempts.iterdir():
                gone = self._attempt()
                # Moved first: where another process is at work on it after all, that one publishes all or nothing.
                with contextlib.suppress(FileNotFoundError):
                    os.rename(left, gone)
                    shutil.rmtree(gone)
            with contextlib.suppress(OSError):
                attempts.rmdir()  # unless another process is at work there

    def _files(self, name: str, table: Any) -> dict[str, bytes]:
        label = (table.schema.metadata or {}).get(LABEL)
        files = {name: to_bytes(table, self._format)}
        if self._format == "csv" and label is not None:
            files[f"{name}-metadata.json"] = csv_label(name, json.loads(label))
        return files

    def _names(self, step: int) -> set[str]:
        """The names of the files in a step's folder."""
        folder = self._directory / step_name(step)
        return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()

    def _require_equal(self, final: Path, files: Mapping[str, Content]) -> None:
        present = {}
        for entry in final.iterdir():
            check_file(entry)
            present[entry.name] = file_sha256(entry)
        wanted = {name: sha256_of(content) for name, content in files.items()}
        if present != wanted:
            names = sorted(n for n in present.keys() | wanted.keys() if present.get(n) != wanted.get(n))
            raise StoreDamagedError(
                f"{', '.join(names)} differ from what was committed",
                where=str(final),
                allowed=f"the same bytes, or {_AWAY}",
            )


def _put(path: Path, content: Content) -> None:
    """Make a file that is not there yet; it is on the disk when this returns."""
    if isinstance(content, StagedFile):
        durable.put_file(path, content.path, mode=0o644)
    else:
        durable.write_file(path, content, mode=0o644)


class Place(Protocol):
    """What stands beside the folder and gets every release after it: as ``Publisher`` has these methods."""

    def published(self, stream_id: str) -> Mapping[int, str]: ...

    def publish(self, step: int, files: Mapping[str, Content]) -> None: ...

    def compare(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences: ...

    def restore(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], Content],
        withdrawn: Mapping[int, str] | None = None,
    ) -> None: ...

    def expire(self, step: int, names: Sequence[str]) -> None: ...

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None: ...


class BesideFolder:
    """A ``Sink``: what the folder does, and then the other place.

    Args:
        folder: gets every release first.
        place: gets it afterwards.
    """

    #: What the other place is, for messages.
    _other: ClassVar[str]

    def __init__(self, folder: Publisher, place: Place) -> None:
        self.folder = folder
        self._place = place

    @property
    def directory(self) -> Path:
        """The path of the folder."""
        return self.folder.directory

    @property
    def table_name(self) -> str:
        """The name of the table's file in each step's directory."""
        return self.folder.table_name

    @property
    def reads_whole(self) -> bool:
        """Whether the other place reads back and compares whole tables."""
        return False

    @property
    def draws_tables(self) -> bool:
        """Whether the other place draws the tables."""
        return False

    def draw_from(self, drawing: Callable[[int], Drawing]) -> None:
        """What gives the ``Drawing`` of a step, for a place that draws the tables."""

    def published(self, stream_id: str) -> dict[int, str]:
        """The hashes of the steps that the folder or the other place has.

        Errors:
            StoreDamagedError: they have different releases of a step.
        """
        hashes = dict(self.folder.published(stream_id))
        for step, digest in self._place.published(stream_id).items():
            if hashes.setdefault(step, digest) != digest:
                raise StoreDamagedError(
                    f"the folder and the {self._other} hold different releases of step {step}",
                    where=str(self.directory),
                    allowed=f"a folder and a {self._other} of the same stream",
                )
        return hashes

    def publish(self, step: int, files: Mapping[str, Content]) -> None:
        """Publish to the folder, then to the other place."""
        self.folder.publish(step, files)
        self._place.publish(step, files)

    def compare(
        self, committed: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences:
        """The differences of the folder; if it has none, those of the other place."""
        differences = self.folder.compare(committed, deep=deep, withdrawn=withdrawn)
        return differences or self._place.compare(committed, deep=deep, withdrawn=withdrawn)

    def restore(
        self,
        step: int,
        names: Collection[str],
        make: Callable[[str], Content],
        withdrawn: Mapping[int, str] | None = None,
    ) -> None:
        """Restore in the folder, then in the other place. Both get what the store makes, not the folder's files, which
        others may have changed."""
        self.folder.restore(step, names, make)
        self._place.restore(step, names, make, withdrawn)

    def expire(self, step: int, names: Sequence[str]) -> None:
        """Remove files of a step from both."""
        self.folder.expire(step, names)
        self._place.expire(step, names)

    def withdraw(self, step: int, names: Sequence[str], files: Mapping[str, bytes]) -> None:
        """Withdraw a step from both; either may fail without the other."""
        try:
            self.folder.withdraw(step, names, files)
        finally:
            self._place.withdraw(step, names, files)

    def write_public(self, name: str, data: bytes) -> None:
        """Write a public file into the folder."""
        self.folder.write_public(name, data)
