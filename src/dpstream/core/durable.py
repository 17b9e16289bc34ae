"""The calls whose order makes a step durable, in one place.

Every commit, write, fsync, rename, link and unlink of the store and of the publisher goes through this module
(always as ``durable.name(...)``), so that a test can stop the process, or fill the disk, before any of them. All
other files that are written whole go through it as well: nothing that is not a regular file is ever replaced.

Trusted base: store (the order of the calls that make a step durable).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, Protocol

from dpstream.core import paths

#: Bytes that are copied at once.
_CHUNK = 2**20
#: Errors of file systems on which, or between which, a file can have no second name.
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class Transaction(Protocol):
    """Anything that runs SQL and has a transaction open (either database of ``dpstream.stream``)."""

    def execute(self, statement: str, /) -> Any: ...


def commit(connection: Transaction) -> None:
    """Commit the open transaction. An error means *unknown*: read the store again before doing anything."""
    connection.execute("COMMIT")


def write(descriptor: int, data: bytes) -> None:
    """Write all of ``data``."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_file(descriptor: int) -> None:
    """Force a file's content to the disk."""
    os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Force a directory's names to the disk: without it a rename may be lost with the power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Move atomically; a directory never replaces one that holds anything, and a file only a regular one.

    Errors:
        ConfigError: the target is a device, a named pipe, a link, ...
    """
    if not source.is_dir():
        paths.check_target(target)
    os.rename(source, target)


def link(source: Path, target: Path) -> None:
    """Give a file a second name, on the same file system."""
    os.link(source, target)


def unlink(path: Path) -> None:
    """Remove a file; a file that is already gone is fine (the call may be a repetition)."""
    path.unlink(missing_ok=True)


def write_file(path: Path, data: bytes, *, mode: int) -> None:
    """Create ``path`` with ``data`` on the disk; the name is safe once the directory is synced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write(descriptor, data)
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def put_file(path: Path, source: Path, *, mode: int) -> None:
    """Create ``path`` with the content of the file ``source``, as another name of it where the file system can do that,
    else as a copy; on the disk as with ``write_file``. The source stays, with the same mode: ``mode`` without what the
    process takes from new files (umask). In a folder that gives its group to new files a copy is made."""
    mode &= ~_umask()
    linked = not path.parent.stat().st_mode & stat.S_ISGID and _linked(source, path)
    flags = os.O_RDONLY if linked else os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(path, flags, mode)
    try:
        if not linked:
            with source.open("rb") as file:
                while data := file.read(_CHUNK):
                    write(descriptor, data)
        os.fchmod(descriptor, mode)
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    # It can be read only by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _linked(source: Path, path: Path) -> bool:
    try:
        link(source, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def replace_file(path: Path, data: bytes, *, mode: int, lasting: bool = True) -> None:
    """Replace a whole file: readers see the old bytes or the new ones, never a mixture.

    Not ``lasting``: after a loss of power the old file may be back.

    Errors:
        ConfigError: something else than a file has the name; it is left as it is.
    """
    paths.check_target(path)
    temporary = path.with_name(f".{path.name}.tmp")
    unlink(temporary)
    write_file(temporary, data, mode=mode)
    rename(temporary, path)
    if lasting:
        sync_directory(path.parent)
