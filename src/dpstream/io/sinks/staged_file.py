"""A released file: its bytes, or where it waits on the disk because it is too large for memory."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StagedFile:
    """A file that was written block by block, and waits to be published.

    Attributes:
        size: in bytes.
        path: where it is.
    """

    sha256: str
    size: int
    path: Path


Content = bytes | StagedFile


def sha256_of(content: Content) -> str:
    """SHA-256 in hexadecimal."""
    return content.sha256 if isinstance(content, StagedFile) else hashlib.sha256(content).hexdigest()


def size_of(content: Content) -> int:
    """Number of bytes."""
    return content.size if isinstance(content, StagedFile) else len(content)


def file_sha256(path: Path) -> str | None:
    """The SHA-256 of a file, read in blocks; None where it is gone, or is no file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return None
