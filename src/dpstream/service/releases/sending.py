"""Answers with an entity tag; files in blocks or parts, with nothing in memory but a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dpstream.service.releases.places import OpenFile


class _Ending(Response):
    """An answer whose ``end`` is called once it is over, however it ends: also for a reader who left before the first
    byte."""

    end: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.end()


class SentFile(_Ending, FileResponse):
    """An open file, which is closed then."""

    def __init__(self, file: OpenFile, headers: dict[str, str], media_type: str) -> None:
        super().__init__(file.path, headers=headers, media_type=media_type, stat_result=file.facts)
        self.end = file.close


class SentNews(_Ending, StreamingResponse):
    """Server-sent events."""

    def __init__(self, events: AsyncIterator[str], end: Callable[[], None], headers: dict[str, str]) -> None:
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self.end = end


def send_json(request: Request, value: Any, tag: str | None = None) -> Response:
    """A small answer; 304 where the reader has it."""
    headers = _headers(request, tag)
    if tag is not None and _has(request, tag):
        return Response(status_code=304, headers=headers)
    return JSONResponse(value, headers=headers)


def send_file(request: Request, opened: Callable[[], OpenFile], media_type: str, tag: str) -> Response:
    """A file, or the parts that ``Range`` asks for. It is not opened where the reader has it.

    Errors: those of ``opened``.
    """
    headers = _headers(request, tag)
    if _has(request, tag):
        return Response(status_code=304, headers=headers)
    return SentFile(opened(), headers, media_type)


def _has(request: Request, tag: str) -> bool:
    """Whether the reader says that it has this."""
    given = request.headers.get("if-none-match", "")
    return any(text.strip().removeprefix("W/") in (f'"{tag}"', "*") for text in given.split(","))


def _headers(request: Request, tag: str | None) -> dict[str, str]:
    # What is there can be taken back: a cache asks whether it still holds, which costs a 304.
    private = "authorization" in request.headers
    headers = {"Cache-Control": f"{'private' if private else 'public'}, no-cache"}
    return headers if tag is None else {**headers, "ETag": f'"{tag}"'}
