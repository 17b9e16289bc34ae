"""Large released files between their making and their publication: on the disk, beside the store.

A table that is drawn in blocks is written to the folder ``staged`` of the secret state directory (0700, its files
0600) and hashed on the way; the step's transaction commits name and hash, and no bytes. Publishing links the file into
the releases. What was committed and is gone is made again from model and seed, by the same pyarrow with the same bytes.

In an encrypted store the file is sealed, a chunk at a time: whoever has the disk reads nothing of a release that is
held, or that was drawn and never committed. It is opened when it is published. Its name says which key it needs, so it
can be sealed anew beside the old one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpstream.core import durable
from dpstream.core.errors import StoreDamagedError
from dpstream.io.sinks.table_files import CHUNK, FileToStage, StagedFile, file_sha256
from dpstream.stream.store.lock import STAGED
from dpstream.stream.store.store_database import UNSEALED, Sealing

_NAME = re.compile(r"step-(\d{6,})-(.+)")
#: Bytes of the length before a sealed chunk; and what kind of value it is.
_LENGTH, _KIND = 8, "staged file"


class Staging:
    """The folder of staged files; the caller holds the state directory's lock."""

    def __init__(self, state: Path) -> None:
        self._folder = state / STAGED

    @contextmanager
    def file(self, step: int, name: str, sealing: Sealing = UNSEALED) -> Iterator[FileToStage]:
        """Begin a file of a step; one that is there is replaced, and one that is not finished removed."""
        path = self._path(step, name, sealing)
        if not self._folder.exists():
            self._folder.mkdir(mode=0o700)
            durable.sync_directory(self._folder.parent)
        durable.unlink(path)

        def seal(data: bytes, chunk: int) -> bytes:
            if sealing.name is None:
                return data
            sealed = sealing.seal(data, _KIND, step, name, chunk)
            return len(sealed).to_bytes(_LENGTH, "little") + sealed

        with FileToStage(path, seal=seal) as file:
            yield file

    def find(self, step: int, name: str, digest: str, sealing: Sealing = UNSEALED) -> StagedFile | None:
        """The staged file with this hash, as it is published; None where it is gone, or was changed."""
        # What was made again is not sealed: it is published at once.
        if sealing.name is not None and file_sha256(self._path(step, name)) != digest:
            with suppress(FileNotFoundError, StoreDamagedError):
                self._copy(step, name, sealing, UNSEALED)
        path = self._path(step, name)
        # A link, or anything else that this folder never holds, is not followed, and not published.
        if path.is_symlink() or not path.is_file() or file_sha256(path) != digest:
            return None
        return StagedFile(digest, path.stat().st_size, path)

    def reseal(self, waiting: Collection[tuple[int, str]], old: Sealing, new: Sealing) -> None:
        """Seal the files of ``waiting`` (step and name) anew, beside the old ones; one that is gone or was changed is
        left out."""
        for step, name in waiting:
            with suppress(FileNotFoundError, StoreDamagedError):
                self._copy(step, name, old, new)

    def _copy(self, step: int, name: str, old: Sealing, new: Sealing) -> None:
        """
        Errors:
            FileNotFoundError: the file that ``old`` sealed is missing. StoreDamagedError: it was changed.
        """
        path = self._path(step, name, old)
        if not path.exists():
            raise FileNotFoundError(path)
        with self.file(step, name, new) as file:
            if old.name is None:
                with path.open("rb") as plain:
                    while data := plain.read(CHUNK):
                        file.put(data)
            else:
                for chunk, sealed in enumerate(_frames(path)):
                    file.put(old.open(sealed, _KIND, step, name, chunk))
            file.finish()

    def sweep(self, waiting: Collection[tuple[int, str]], sealing: Sealing = UNSEALED) -> None:
        """Remove all files but those of ``waiting`` (step and name)."""
        kept = {self._path(step, name, sealing).name for step, name in waiting}
        for name in self.names():
            if name not in kept:
                durable.unlink(self._folder / name)

    def names(self) -> list[str]:
        """The names of the files that are there."""
        there = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted(entry.name for entry in there if _NAME.fullmatch(entry.name))

    def _path(self, step: int, name: str, sealing: Sealing = UNSEALED) -> Path:
        end = "" if sealing.name is None else f".{sealing.name}.sealed"
        return self._folder / f"step-{step:06d}-{name}{end}"


def _frames(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while length := file.read(_LENGTH):
            yield file.read(min(int.from_bytes(length, "little"), path.stat().st_size))
