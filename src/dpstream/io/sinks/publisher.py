"""Releases as files in a directory. A step appears whole, is never changed, and survives a power loss."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from dpstream.core import durable
from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.core.paths import check_file, check_local, read_bytes, sha256_hex
from dpstream.io.sinks.catalogue import CATALOGUE, PARTS, listed_hashes
from dpstream.io.sinks.change_tables import LABEL
from dpstream.io.sinks.drawing import DRAWN_TABLE
from dpstream.io.sinks.release_reader import read_table
from dpstream.io.sinks.signing import NEWEST, SIGNATURE, Hashes, Signer, sha256
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
from dpstream.io.sinks.target import (
    MANIFEST,
    NOTICE,
    Comparison,
    Differences,
    StepFiles,
    TakesTables,
    Target,
    step_name,
)

#: Where a step is put together: it is there only while somebody publishes, or after an attempt that was interrupted.
_ATTEMPTS = ".publishing.tmp"
_STEP = re.compile(r"step-(\d{6,})")
#: What to do about a file that differs, for messages.
_AWAY = "move the step's folder away and run again"


def published_steps(directory: Path) -> set[int]:
    """Steps that have a folder."""
    names = (path.name for path in directory.glob("step-*"))
    return {int(match[1]) for match in map(_STEP.fullmatch, names) if match is not None}


def noticed(directory: Path) -> set[int]:
    """Steps whose readers were told that their tables are withdrawn."""
    return {step for step in published_steps(directory) if (directory / step_name(step) / NOTICE).exists()}


class Publisher:
    """Writes a stream's releases below ``directory``; one stream, one directory. Layout: docs/reference/files.md.

    A step's directory is built in a temporary folder, fsynced, and renamed into place. Calls may be repeated after a
    crash; a file that exists already must be equal, byte for byte.

    Args:
        beside: another place, which gets each release after the folder.
        sign: the file of the private key that signs the releases; read before the first step.

    Attributes:
        directory: the path of the folder.

    Errors:
        ConfigError: an unknown format. StoreDamagedError: files that differ from what was committed.
        OSError: the disk is full or fails (the stream turns it into a StoreError).
    """

    takes: TakesTables = "files"

    def __init__(
        self,
        directory: str | Path,
        *,
        format: Format = "parquet",
        beside: Target | None = None,
        sign: Path | None = None,
    ) -> None:
        if format not in FORMATS:
            raise ConfigError(f"unknown format {format!r}", where="output", allowed=", ".join(FORMATS))
        if not isinstance(directory, str | Path):
            raise ConfigError(f"{directory!r}: expected a path", where="output", allowed="a path")
        check_local(directory)
        self.directory = Path(directory)
        self._format: Format = format
        self._sign = sign
        #: This folder, and the place beside it.
        self.targets: tuple[Target, ...] = (self,) if beside is None else (self, beside)

    @cached_property
    def signer(self) -> Signer | None:
        """What signs the releases; None where nothing does.

        Errors:
            ConfigError: as of ``Signer``; or the releases are signed already, and readers would refuse the next ones.
        """
        if self._sign is not None:
            return Signer(self._sign)
        if (self.directory / SIGNATURE).exists():
            raise ConfigError(
                "the key is missing",
                where=str(self.directory),
                allowed=f"[output] sign, or remove {SIGNATURE}",
            )
        return None

    def signs(self, files: Mapping[str, bytes]) -> bool:
        """Whether nobody has changed these files: they are as they were signed, or nothing is signed."""
        if self.signer is None:
            return True
        signed = self.signer.signed(self.indexed(SIGNATURE))
        return all(signed.get(name) == [sha256(data)] for name, data in files.items())

    @property
    def table_name(self) -> str:
        """The name of the table's file in each step's directory."""
        return DRAWN_TABLE if self.draws_tables else f"table.{self._format}"

    @property
    def draws_tables(self) -> bool:
        """Whether the place beside the folder draws the tables, and the folder has none."""
        return self.targets[-1].takes == "drawn"

    def published(self, stream_id: str) -> dict[int, str]:
        """The hashes of the manifests of the steps that the folder or the other place has.

        Errors:
            StoreDamagedError: they have different releases of a step, or those of another stream.
        """
        hashes: dict[int, str] = {}
        for target in self.targets:
            for step, digest in target.have(stream_id).items():
                if hashes.setdefault(step, digest) != digest:
                    raise StoreDamagedError(
                        f"folder and sink differ in step {step}",
                        where=str(self.directory),
                        allowed="two places of one stream",
                    )
        return hashes

    def compared(
        self, digests: Mapping[int, Mapping[str, str]], *, deep: bool, withdrawn: Collection[int] = ()
    ) -> Differences:
        """What is missing or changed in the folder; if nothing is, in the other place. See ``Target.compare``."""
        asked = Comparison(digests, withdrawn, deep, {step: self._step(step) for step in digests})
        for target in self.targets:
            differences = target.compare(asked)
            if differences:
                break
        return differences

    def render(self, table: Any) -> dict[str, bytes]:
        """The files of a table by name: the table itself, and beside a CSV file its label, which CSV cannot hold."""
        return self._files(f"table.{self._format}", table)

    def render_changes(self, changes: Any) -> dict[str, bytes]:
        """The files of a table of changes by name."""
        return self._files(f"changes.{self._format}", changes)

    def block_writer(self, schema: Any, put: Callable[[bytes], None]) -> BlockWriter:
        """Converts a table of this schema to the bytes of the table's file, block by block."""
        return BlockWriter(schema, self._format, put)

    def have(self, stream_id: str) -> dict[int, str]:
        """The SHA-256 of the manifest of every step that the catalogue lists or that has a directory.

        Errors:
            StoreDamagedError: the catalogue cannot be read or belongs to another stream, or a manifest is missing or is
                not the one that the catalogue lists.
        """
        if not self.directory.is_dir():
            return {}
        hashes = listed_hashes(self.directory, stream_id)
        for entry in self.directory.iterdir():
            match = _STEP.fullmatch(entry.name)
            if match is None:
                continue
            try:
                digest = sha256_hex(read_bytes(entry / MANIFEST))
            except FileNotFoundError:
                raise StoreDamagedError("manifest missing", where=str(entry), allowed=_AWAY) from None
            if hashes.setdefault(int(match[1]), digest) != digest:
                raise StoreDamagedError(
                    "manifest and catalogue differ",
                    where=str(entry),
                    allowed=f"{_AWAY}; or move a changed catalogue away",
                )
        return hashes

    def put(self, files: StepFiles, *, mend: bool = False) -> None:
        """Put all files of a step in place at once, and read them back. Files that wait on the disk stay there.

        Errors:
            StoreDamagedError: the step is there already with other files.
        """
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        final = self.directory / step_name(files.step)
        if mend and final.exists():
            self._mend(final, files)
            return
        self._sweep()
        if not final.exists():
            temporary = self._attempt()
            temporary.mkdir(mode=0o755, parents=True)
            for name, content in files.all().items():
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
        self._require_equal(final, files.all())
        durable.sync_directory(self.directory)

    def compare(self, asked: Comparison) -> Differences:
        """See ``Comparison.of_files``."""
        return asked.of_files(
            self._names, lambda step, name: file_sha256(self.directory / step_name(step) / name)
        )

    def withdraw(self, step: int, gone: Collection[str], staying: Mapping[str, bytes]) -> None:
        """Remove a step's table, and keep its manifest and what it measured; the notice comes beside them."""
        folder = self.directory / step_name(step)
        if staying:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in sorted(gone):
            durable.unlink(folder / name)
        if folder.exists():
            durable.sync_directory(folder)
        if not staying:
            return
        self._sweep()  # the table in what an interrupted attempt left
        for name, data in staying.items():
            path = folder / name
            if not path.exists() or read_bytes(path) != data:
                durable.replace_file(path, data, mode=0o644)
        durable.sync_directory(self.directory)

    def index(
        self, name: str, data: bytes, staying: Callable[[int], Mapping[str, bytes]] | None = None
    ) -> None:
        """Write the codebook, the catalogue or a part of it, unless the file has these bytes already."""
        path = self.directory / name
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if self.indexed(name) != data:
            durable.replace_file(path, data, mode=0o644)
            if path.parent != self.directory:
                durable.sync_directory(self.directory)  # makes the new folder's name durable

    def indexed(self, name: str) -> bytes | None:
        """See ``Target``."""
        path = self.directory / name
        return read_bytes(path) if path.exists() else None

    def write_index(
        self,
        stream_id: str,
        documents: Mapping[str, bytes],
        staying: Callable[[int], Mapping[str, bytes]] = lambda step: {},
        targets: Sequence[Target] = (),
        beside: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Replace files of the folder and of the other place in this order, and sign them.

        Args:
            staying: as of ``index``. targets: where to; everywhere by default.
            beside: what else is signed, and written by others; None: it goes.
        """
        new = {name: data for name, data in {**documents, **(beside or {})}.items() if data is not None}
        hashes = {name: [sha256(data)] for name, data in new.items()}
        for target in targets or self.targets:
            with self._signed(target, stream_id, hashes, set(beside or ()) - new.keys()):
                for name, data in documents.items():
                    target.index(name, data, staying)

    @contextlib.contextmanager
    def _signed(self, target: Target, stream_id: str, new: Hashes, gone: set[str]) -> Iterator[None]:
        """Sign what is written meanwhile. No other process signs then: each adds to what the one before has signed."""
        signer = self.signer
        if signer is None:
            yield
            return

        def sign(files: Hashes) -> None:
            target.index(SIGNATURE, signer.sign(stream_id, files), lambda step: {})

        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            before = signer.signed(target.indexed(SIGNATURE))
            there = target.indexed(CATALOGUE) or b""
            if before and sha256_hex(there) not in before.get(CATALOGUE, ()):
                what = f"{SIGNATURE} is not of this {CATALOGUE}"
                raise StoreDamagedError(what, where=str(self.directory), allowed=NEWEST)
            # Readers of any moment find old and new files signed, and a new part before it is counted.
            listed = [name for name in new if name in before or (before and name.startswith(PARTS))]
            if listed:
                sign(before | {name: sorted({*new[name], *before.get(name, ())}) for name in listed})
            yield
            sign({name: hashes for name, hashes in before.items() if name not in gone} | new)
        finally:
            os.close(descriptor)

    def _step(self, step: int) -> StepFiles:
        """The manifest of a step as it lies here, and its table as readers get it, whose types the codebook gives."""

        def whole() -> Any:
            try:
                return read_table(self.directory, step, ids=True)
            except ConfigError:  # the step is a change, and a step before it was withdrawn or dropped
                return None

        folder = self.directory / step_name(step)
        return StepFiles(step, [MANIFEST], lambda name: read_bytes(folder / name), whole=whole)

    def _mend(self, folder: Path, files: StepFiles) -> None:
        """Write the missing files of a step; files that exist are left alone."""
        for name in files.names:
            if not (folder / name).exists():
                temporary = folder / f".{name}.tmp"
                durable.unlink(temporary)
                _put(temporary, files.file(name))
                durable.rename(temporary, folder / name)
                durable.sync_directory(folder)

    def _attempt(self) -> Path:
        """A name of this attempt's own: two processes that share one publish a mixture."""
        return self.directory / _ATTEMPTS / secrets.token_hex(8)

    def _sweep(self) -> None:
        """Remove what interrupted attempts left, at whatever step, without a listing of all releases."""
        attempts = self.directory / _ATTEMPTS
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
        folder = self.directory / step_name(step)
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
                f"{', '.join(names)} differ from the committed bytes",
                where=str(final),
                allowed=f"the same bytes, or {_AWAY}",
            )


def _put(path: Path, content: Content) -> None:
    """Make a file that is not there yet; it is on the disk when this returns."""
    if isinstance(content, StagedFile):
        durable.put_file(path, content.path, mode=0o644)
    else:
        durable.write_file(path, content, mode=0o644)
