"""What every answer of the feed and of the pages passes: headers, a token where one is asked for, a limit."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpstream.service.tokens import TokenFile

#: Makes an answer of a status, a sentence and headers.
Refuse = Callable[[int, str, dict[str, str]], ASGIApp]


class Guard:
    """ASGI middleware. Headers that an answer has itself stay.

    Args:
        tokens: whoever has none of them is refused, but at ``/health``.
        busiest: requests that are answered at one time, at most. A connection that says nothing is not a request.
        refuse: makes the answer to those that are refused.
    """

    def __init__(
        self,
        app: ASGIApp,
        headers: Mapping[str, str],
        refuse: Refuse | None = None,
        tokens: TokenFile | None = None,
        busiest: int | None = None,
    ) -> None:
        self._app, self._headers, self._refuse = app, headers, refuse
        self._tokens, self._busiest = tokens, busiest
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seal(MutableHeaders(scope=message), self._headers)
            await send(message)

        self._busy += 1
        try:
            await self._answer(scope)(scope, receive, sealed)
        finally:
            self._busy -= 1

    def _answer(self, scope: Scope) -> ASGIApp:
        if self._refuse is not None:
            if self._busiest is not None and self._busy > self._busiest:
                return self._refuse(503, "too many requests", {"Retry-After": "5"})
            given = Headers(scope=scope).get("authorization", "")
            if self._tokens is not None and scope["path"] != "/health" and not self._tokens.allow(given):
                words = "the server requires a token"
                return self._refuse(401, words, {"WWW-Authenticate": "Bearer"})
        return self._app


def seal(headers: MutableHeaders, more: Mapping[str, str]) -> None:
    """Add what an answer does not say itself."""
    for name, value in more.items():
        headers.setdefault(name, value)


def allow_many_files() -> None:
    """Let this process open as many files as it may: each connection is one, whether it says anything or not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
