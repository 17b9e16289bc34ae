"""Large released files between their making and their publication: on the disk, beside the store.

A table that is drawn in blocks is written to the folder ``staged`` of the secret state directory (0700, its files
0600) and hashed on the way; the step's transaction commits name and hash, and no bytes. Publishing links the file into
the releases. A staged file is never the only copy: what was committed and is gone is made again from model and seed.

An encrypted store keeps no such file: whoever has the disk could read a release that is held, or that was drawn and
never committed. There the bytes are hashed only, and made again when they are published.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from dpstream.core import durable
from dpstream.core.errors import StoreError
from dpstream.io.sinks.staged_file import StagedFile, file_sha256
from dpstream.stream.store.lock import STAGED

__all__ = ["FileToStage", "NotStagedError", "Staging", "staging_errors"]

_NAME = re.compile(r"step-(\d{6,})-(.+)")
#: Bytes that are written at once.
_CHUNK = 2**20


class NotStagedError(StoreError):
    """The disk was full or failed before a step's commit: like a kill, it does not depend on what was drawn."""


@contextmanager
def staging_errors(where: Path) -> Iterator[None]:
    """The operating system's errors as ``NotStagedError``."""
    try:
        yield
    except OSError as error:
        raise NotStagedError(
            f"the released table could not be written: {error.strerror or error}", where=str(where)
        ) from error


class FileToStage:
    """A file that is being written and hashed; without a path it is hashed only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._size = 0
        self._waiting = bytearray()
        self._descriptor = -1
        if path is not None:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def put(self, data: bytes) -> None:
        """Append."""
        self._hash.update(data)
        self._size += len(data)
        if self._path is not None:
            self._waiting += data
            if len(self._waiting) >= _CHUNK:
                self._flush()

    def finish(self) -> StagedFile:
        """What was written, on the disk when this returns."""
        if self._path is not None:
            self._flush()
            durable.sync_file(self._descriptor)
            durable.sync_directory(self._path.parent)
        return StagedFile(self._hash.hexdigest(), self._size, self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _flush(self) -> None:
        if self._waiting:
            durable.write(self._descriptor, bytes(self._waiting))
            self._waiting.clear()


class Staging:
    """The folder of staged files; the caller holds the state directory's lock."""

    def __init__(self, state: Path) -> None:
        self._folder = state / STAGED

    @contextmanager
    def file(self, step: int, name: str, *, keep: bool = True) -> Iterator[FileToStage]:
        """Begin a file of a step; one that is there is replaced. Not ``keep``: it is hashed only."""
        path = self._path(step, name) if keep else None
        if path is not None:
            if not self._folder.exists():
                self._folder.mkdir(mode=0o700)
                durable.sync_directory(self._folder.parent)
            durable.unlink(path)
        with FileToStage(path) as file:
            yield file

    def find(self, step: int, name: str, digest: str) -> StagedFile | None:
        """The staged file with this hash; None where it is gone, or was changed."""
        path = self._path(step, name)
        if file_sha256(path) != digest:
            return None
        return StagedFile(digest, path.stat().st_size, path)

    def sweep(self, waiting: Collection[tuple[int, str]]) -> None:
        """Remove all files but those of ``waiting`` (step and name)."""
        kept = {self._path(step, name).name for step, name in waiting}
        if not self._folder.is_dir():
            return
        for entry in sorted(self._folder.iterdir()):
            if _NAME.fullmatch(entry.name) and entry.name not in kept:
                durable.unlink(entry)

    def _path(self, step: int, name: str) -> Path:
        return self._folder / f"step-{step:06d}-{name}"
