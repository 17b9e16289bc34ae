"""What every answer passes: headers that keep a page to itself, and a limit on what may be sent."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Bytes of a request: forms hold a few lines of text.
LARGEST = 64 * 1024
#: Nothing from elsewhere, no script but our files, no frame.
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


def seal(headers: MutableHeaders) -> None:
    """Add what an answer does not say itself."""
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)


class WithoutTexts(logging.Filter):
    """Says in the log which exception it was and where: its text may quote what somebody typed."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record stays."""
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            frames = traceback.extract_tb(error.__traceback__)[-4:]
            places = ", ".join(f"{Path(one.filename).name}:{one.lineno}" for one in frames)
            record.msg, record.args = (
                f"{type(error).__name__} at {places}; a bug, and nothing more was done",
                (),
            )
            record.exc_info = record.exc_text = None
        return True


class Guard:
    """ASGI middleware. Headers that an answer has itself stay."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seal(MutableHeaders(scope=message))
            await send(message)

        await self.app(scope, receive, sealed)
