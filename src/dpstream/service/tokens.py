"""Tokens: one kind for readers of the feed, for programs that watch the pages, and for people who sign in.

A token is 32 random bytes. Files and databases hold its SHA-256 alone, which is enough for a secret that nobody can
guess; the token itself is shown once.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from dpstream.core import durable
from dpstream.core.errors import ConfigError
from dpstream.core.paths import read_text, sha256_hex
from dpstream.stream.arguments import NAMES

_LINE = re.compile(r"([0-9a-f]{64})(?:\s.*)?")


def new_token() -> str:
    """A token that nobody had before."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return sha256_hex(token.encode("utf-8", "surrogatepass"))


def add_token(file: Path, note: str) -> str:
    """A new token, whose hash becomes the last line of the file, with the note; the file is made where there is none.

    Errors:
        ConfigError: the file cannot be written or is not a file of tokens, or the note is not one line.
    """
    if not note.strip() or not note.isprintable() or len(note) > 200:
        raise ConfigError("cannot be a note", where="note", allowed=NAMES)
    before = ""
    if file.exists():
        TokenFile(file)
        before = read_text(file).rstrip("\n") + "\n"
    token = new_token()
    try:
        durable.replace_file(file, f"{before}{token_hash(token)} {note.strip()}\n".encode(), mode=0o644)
    except OSError as error:
        raise ConfigError(
            f"the tokens cannot be written: {error.strerror}", where=str(file), allowed="a file in a folder"
        ) from None
    return token


class TokenFile:
    """A file with the SHA-256 of each token, a line each (a note may follow); read again when it has changed.

    Errors:
        ConfigError: the file cannot be read, or a line is not a hash.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._hashes: frozenset[str] = frozenset()
        self._read()

    def allow(self, authorization: str) -> bool:
        """Whether the header holds a token of the file. Tokens are random, and compared by hash."""
        kind, _, token = authorization.partition(" ")
        try:
            self._read()
        except ConfigError:
            return False  # a file that is gone or damaged lets nobody in
        return kind.lower() == "bearer" and token_hash(token.strip()) in self._hashes

    def _read(self) -> None:
        try:
            status = self._path.stat()
            version = status.st_ino, status.st_size, status.st_mtime_ns
            if version == self._version:
                return
            lines = [line.strip() for line in read_text(self._path).splitlines()]
        except (OSError, UnicodeDecodeError):
            raise ConfigError(
                "the tokens cannot be read", where=str(self._path), allowed="a text file"
            ) from None
        hashes = [_LINE.fullmatch(line) for line in lines if line and not line.startswith("#")]
        if not all(hashes):
            raise ConfigError(
                f"entry {hashes.index(None) + 1} must be a token's hash",
                where=str(self._path),
                allowed="a hexadecimal SHA-256 a line",
            )
        self._hashes = frozenset(line[1] for line in hashes if line)
        self._version = version
