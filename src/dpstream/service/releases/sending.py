"""Answers with an entity tag, parts of a file, and nothing in memory but a block."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dpstream.service.releases.places import OpenFile
from dpstream.service.releases.problems import Problem

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_TEXTS = ("text/csv", "application/x-ndjson")


class Sent(StreamingResponse):
    """An answer in parts. ``end`` is called once it is over, however it ends: also for a reader who left before the
    first byte, whose iterator never begins and would give back what it holds only when garbage is collected."""

    def __init__(self, content: Any, end: Callable[[], None], *args: Any, **more: Any) -> None:
        super().__init__(content, *args, **more)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


def send_json(request: Request, value: Any, tag: str | None = None) -> Response:
    """A small answer; 304 where the reader has it."""
    headers = _headers(request, tag)
    if tag is not None and _has(request, tag):
        return Response(status_code=304, headers=headers)
    return JSONResponse(value, headers=headers)


def send_file(request: Request, opened: Callable[[], OpenFile], media_type: str, tag: str) -> Response:
    """A file in blocks, or the part that ``Range`` asks for. It is not made where the reader has it.

    Errors:
        Problem: 416 for a part that is not there; and those of ``opened``.
    """
    headers = _headers(request, tag)
    if _has(request, tag):
        return Response(status_code=304, headers=headers)
    file = opened()
    try:
        part = _part(request, file.size, tag)
    except Problem:
        file.close()
        raise
    start, end = part or (0, file.size)
    headers |= {"Accept-Ranges": "bytes", "Content-Length": str(end - start)}
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    status = 200 if part is None else 206
    if request.method == "HEAD":
        file.close()
        return Response(status_code=status, headers=headers, media_type=media_type)
    return Sent(file.blocks(start, end), file.close, status, headers, media_type)


def _has(request: Request, tag: str) -> bool:
    """Whether the reader says that it has this."""
    given = request.headers.get("if-none-match", "")
    return any(one.strip().removeprefix("W/") in (f'"{tag}"', "*") for one in given.split(","))


def _headers(request: Request, tag: str | None) -> dict[str, str]:
    # What is there can be taken back: a cache asks whether it still holds, which costs a 304.
    private = "authorization" in request.headers
    headers = {"Cache-Control": f"{'private' if private else 'public'}, no-cache"}
    return headers if tag is None else {**headers, "ETag": f'"{tag}"'}


def _part(request: Request, size: int, tag: str) -> tuple[int, int] | None:
    """The first byte and the one after the last; None for all of it, for several parts, and for nonsense."""
    found = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if found is None or request.headers.get("if-range", f'"{tag}"') != f'"{tag}"' or found[0] == "bytes=-":
        return None
    first, last = found.groups()
    start, end = (max(size - int(last), 0), size) if not first else (int(first), int(last or size) + 1)
    if first and last and int(last) < int(first):
        return None
    if start >= size or (not first and last and int(last) == 0):
        raise Problem(416, f"the file has {size} bytes", {"Content-Range": f"bytes */{size}"})
    return start, min(end, size)
