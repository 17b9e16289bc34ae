"""Who may read: everybody, or whoever has one of the tokens whose hashes are in a file."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpstream.core.errors import ConfigError
from dpstream.core.paths import read_text
from dpstream.service.releases.problems import problem

_LINE = re.compile(r"([0-9a-f]{64})(?:\s.*)?")
#: What every answer says: nothing of it is a page that may load or run anything.
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Tokens:
    """The SHA-256 of each token, a line each (a note may follow). The file is read again when it has changed.

    Errors:
        ConfigError: the file cannot be read, or a line is no hash.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._hashes: frozenset[str] = frozenset()
        self._read()

    def allow(self, authorization: str) -> bool:
        """Whether the header holds a token of the file. Tokens are random, and compared by hash."""
        kind, _, token = authorization.partition(" ")
        try:
            self._read()
        except (ConfigError, OSError):
            return False  # a file that is gone or damaged lets nobody in
        return kind.lower() == "bearer" and hashlib.sha256(token.strip().encode()).hexdigest() in self._hashes

    def _read(self) -> None:
        try:
            found = self._path.stat()
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen == self._seen:
                return
            lines = [line.strip() for line in read_text(self._path).splitlines()]
        except (OSError, UnicodeDecodeError):
            raise ConfigError(
                "the tokens cannot be read", where=str(self._path), allowed="a text file"
            ) from None
        hashes = [_LINE.fullmatch(line) for line in lines if line and not line.startswith("#")]
        if not all(hashes):
            number = hashes.index(None) + 1
            raise ConfigError(
                f"entry {number} is no hash of a token",
                where=str(self._path),
                allowed="a SHA-256 in hexadecimal a line, and never the token itself",
            )
        self._hashes = frozenset(one[1] for one in hashes if one)
        self._seen = seen


class Guard:
    """Asks for a token before anything else is done, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, tokens: Tokens | None) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SAFE.items():
                    headers[name] = value
            await send(message)

        given = Headers(scope=scope).get("authorization", "")
        if self._tokens is not None and scope["path"] != "/health" and not self._tokens.allow(given):
            refused = problem(
                401, "this server gives releases to those who have a token", {"WWW-Authenticate": "Bearer"}
            )
            await refused(scope, receive, told)
            return
        await self._app(scope, receive, told)
