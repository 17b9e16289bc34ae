"""Looks at a path before it is opened, so that a wrong one ends in a sentence, and JSON that is damaged in any way.

A fifo without a writer would stop the program for good when it is opened, a device may do anything; a file that is
replaced by name would take the place of whatever has that name, of a device too. So every file that a person names
goes through here (or through ``durable``, which asks here) before it is opened or replaced.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, StoreError

#: What the system says of a path that can never be used, whoever asks and whenever.
WRONG_PATH = {
    errno.ENAMETOOLONG: "name too long",
    errno.ELOOP: "circular links",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EINVAL: "unusable name",
    errno.EILSEQ: "unusable name",
}
_LONGEST = 160
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of some bytes, as every file and message of the program writes it."""
    return hashlib.sha256(data).hexdigest()


def check_local(text: object) -> None:
    """Check that a text is a path of this machine: ``Path`` makes a folder named ``s3:`` of a URL.

    Errors:
        ConfigError: it has a scheme.
    """
    if isinstance(text, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        # Its scheme only: a URL may hold a password.
        raise ConfigError(
            "expected a local path, got a URL",
            where=f"{text.partition('://')[0]}://...",
            allowed='[output] sink = "bucket" with database = "s3://bucket/releases" writes to an object store',
        )


def check_path(path: str | Path) -> None:
    """Check that a path can be used, whatever is there.

    Errors:
        ConfigError: it can never be used: too long, a circle of links, a part of it is a file, a NUL in it.
        PermissionError: a folder on the way may not be searched.
    """
    _look(path)


def check_file(path: str | Path) -> None:
    """Check that what is there may be read as a file; nothing there is fine, too (the reader says so in its own words).

    Errors:
        ConfigError: a folder, a named pipe, a device or a socket; or a path that can never be used.
        PermissionError: a folder on the way may not be searched.
    """
    status = _look(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise _wrong(path, f"this is {_kind(status)}", "a file")


def check_folder(path: str | Path) -> None:
    """Check that a folder is there, or nothing.

    Errors: as ``check_file``.
    """
    status = _look(path)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        what = "a file" if stat.S_ISREG(status.st_mode) else _kind(status)
        raise _wrong(path, f"this is {what}", "a folder")


def check_target(path: str | Path) -> None:
    """Check that a file may be written there: a file is there, or nothing; no link, whose place the file would take.

    Errors: as ``check_file``.
    """
    status = _look(path, follow=False)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise _wrong(path, f"a {_kind(status)} is never replaced", "a file's name")


def check_writable(path: Path) -> None:
    """Check that files can be made in a folder, or in the one on its way that is there; leaves nothing behind.

    Errors:
        StoreError: they cannot. ConfigError: a part of the path is a file.
    """
    there = path
    try:
        while _look(there) is None and there != there.parent:
            there = there.parent
        check_folder(there)
        with tempfile.TemporaryFile(dir=there):
            return
    except OSError as error:
        raise StoreError(
            f"the folder accepts no file ({os.strerror(error.errno or 0)})",
            where=shown_path(path),
            allowed="a folder that dpstream may write to",
        ) from None


def read_bytes(path: Path) -> bytes:
    """Read a whole file, after ``check_file``.

    Errors:
        ConfigError: no file. OSError: it cannot be read, or is not there.
    """
    check_file(path)
    return path.read_bytes()


def read_key(path: Path, allowed: str, instead: str) -> bytes:
    """Read a file with a secret key.

    Args:
        allowed: what it should be. instead: what to do if others may have read it.

    Errors:
        ConfigError: it cannot be read, or others than its owner may read it.
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(4096)
    except OSError as error:
        raise ConfigError(f"the key cannot be read: {error.strerror}", where=where, allowed=allowed) from None
    if stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"others may read the key (mode {stat.S_IMODE(status.st_mode):04o})",
            where=where,
            allowed=f"mode 0600 or 0400, your file; if others may have read it, {instead}",
        )
    return data


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, after ``check_file``.

    Errors:
        ConfigError: no file.
        OSError, UnicodeDecodeError: it cannot be read.
    """
    check_file(path)
    return path.read_text(encoding="utf-8")


def parse_json(data: str | bytes) -> Any:
    """Parse JSON with finite numbers only, and not nested too deep.

    Errors:
        ValueError: anything else, whatever the parser makes of it.
    """
    try:
        return json.loads(data, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None


def shown_path(path: str | Path) -> str:
    """A path for a message, cut where it is long."""
    text = str(path)
    return text if len(text) <= _LONGEST else f"{text[:60]}...{text[-60:]} ({len(text)} characters)"


def _look(path: str | Path, *, follow: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in WRONG_PATH:
            raise
        raise _wrong(path, WRONG_PATH[error.errno], "a usable path") from None
    except ValueError:
        # Only a NUL, or what no file system can spell (a lone surrogate), gets here.
        raise _wrong(path, "the name holds an invalid character", "another name") from None


def _wrong(path: str | Path, what: str, allowed: str) -> ConfigError:
    return ConfigError(what, where=shown_path(path), allowed=allowed)


def _kind(status: os.stat_result) -> str:
    return next((name for test, name in _KINDS if test(status.st_mode)), "no file")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is infinite or undefined")
    return value


def _refused(_name: str) -> None:
    raise ValueError("no number")  # NaN and Infinity are not JSON
