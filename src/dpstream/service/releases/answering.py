"""Questions, answered from published files alone: they cost no budget. Answers are kept until the catalogue changes."""

from __future__ import annotations

import asyncio
import functools
import gzip
import re
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpstream.io.sinks.simulated_errors import FOLDER, error_files
from dpstream.service.releases.forms import check_whole
from dpstream.service.releases.places import ReleaseFolder
from dpstream.service.releases.problems import Problem
from dpstream.stream.public_release import PublicRelease
from dpstream.stream.release.flows import AskedFlow, answer_facts


def answer(
    place: ReleaseFolder, question: str, step: int | None, as_of: int | None, confidence: float
) -> dict[str, Any]:
    """How many records satisfy a question, as ``dpstream measured --question`` tells it."""
    step, digest = _standing(place, step)
    if place.codebook()["dpstream"].get("schema") not in (None, place.manifest(step)[1]["schema"]):
        raise Problem(400, "questions need a table of records")
    for name in error_files(step):
        place.plain(FOLDER, name)  # the library opens it by name
    release = _release(place.root, step, digest)
    found = release.answer(question, as_of=as_of)
    return {"step": release.step, **found.as_dict(question, confidence)}


def over_time(place: ReleaseFolder, asked: AskedFlow, confidence: float) -> dict[str, Any]:
    """A flow, a change or a series, as ``dpstream measured --json`` tells it."""
    step, digest = _standing(place, None)
    return answer_facts(asked.of(_release(place.root, step, digest)), confidence)


def _standing(place: ReleaseFolder, step: int | None) -> tuple[int, str]:
    """The step, by default the newest one, and the digest of the catalogue."""
    listing = place.listing()
    if step is None:
        if not listing.readable:
            raise Problem(404, "no step has a readable table")
        step = listing.readable[-1]
    place.standing(step)
    check_whole(place, step)
    return step, listing.digest


@functools.lru_cache(maxsize=4)
def _release(root: Path, step: int, _digest: str) -> PublicRelease:
    """The release, which remembers what was measured; another one when the catalogue has changed."""
    return PublicRelease(root, step)


#: Bytes of the largest answer that is kept, of all together, and of a part that is sent.
MAX_ONE, MAX_KEPT, BLOCK = 2**24, 2**27, 2**18
#: What follows from the files that ``ReleaseFolder.version`` looks at.
_FIXED = re.compile(r"/v1/streams/([^/]+)/(?:steps|steps/.+|step-.+|answer|changes)")
#: Headers of a request on which an answer depends.
_ASKED = (b"if-none-match", b"range", b"if-range")
_TEXTS = ("text/", "application/json", "application/x-ndjson")


@dataclass(frozen=True)
class _Answer:
    """Status, headers and body, of the folder's ``version``."""

    version: object
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": [*self.headers]})
        for start in range(0, max(len(self.body), 1), BLOCK):
            part, more = self.body[start : start + BLOCK], start + BLOCK < len(self.body)
            await send({"type": "http.response.body", "body": part, "more_body": more})

    def zipped(self) -> _Answer:
        """Compressed once, for all readers who take that."""
        headers = MutableHeaders(raw=[*self.headers])
        headers["vary"] = "Accept-Encoding"
        body = gzip.compress(self.body, 6, mtime=0)
        headers["content-encoding"], headers["content-length"] = "gzip", str(len(body))
        if "etag" in headers:  # of other bytes than the plain file
            headers["etag"] = f"W/{headers['etag']}"
        return _Answer(self.version, self.status, headers.raw, body)


class Kept:
    """ASGI middleware: answers are kept as they were sent, until a file of the catalogue changes. Readers who come
    at once for what is new wait for the first of them. Larger answers go through."""

    def __init__(self, app: ASGIApp, places: Mapping[str, ReleaseFolder]) -> None:
        self._app, self._places = app, places
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._making: dict[Hashable, asyncio.Event] = {}
        self._size = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        fixed = _FIXED.fullmatch(scope["path"]) if scope.get("method") == "GET" else None
        place = None if fixed is None else self._places.get(fixed[1])
        version = None if place is None else place.version()
        if version is None:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        zips = b"gzip" in headers.get(b"accept-encoding", b"")
        asked = (*map(headers.get, _ASKED), b"authorization" in headers, zips)
        key = (scope["path"], scope["query_string"], asked)
        if (making := self._making.get(key)) is not None:
            await making.wait()
        if (known := self._answers.get(key)) is not None and known.version == version:
            self._answers.move_to_end(key)
            await known.send(send)
            return
        making = self._making[key] = asyncio.Event()
        start: Message = {}
        parts: list[bytes] = []

        async def noted(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                unsaid = 0 if message["status"] == 304 else MAX_ONE + 1
                length = MutableHeaders(scope=message).get("content-length", unsaid)
                if message["status"] in (200, 206, 304) and int(length) <= MAX_ONE:
                    start = message
                    return
            if start:
                parts.append(message.get("body", b""))
            else:
                making.set()
                await send(message)

        try:
            await self._app(scope, receive, noted)
            if start:
                made = _Answer(version, start["status"], start["headers"], b"".join(parts))
                if zips and made.status == 200 and len(made.body) > 1000 and _is_text(made):
                    made = await anyio.to_thread.run_sync(made.zipped)
                self._keep(key, made)
        finally:
            making.set()
            if self._making.get(key) is making:
                del self._making[key]
        if start:
            await made.send(send)

    def _keep(self, key: Hashable, made: _Answer) -> None:
        before = self._answers.pop(key, None)
        self._size += len(made.body) + 1000 - (0 if before is None else len(before.body) + 1000)
        self._answers[key] = made
        while self._size > MAX_KEPT:
            self._size -= len(self._answers.popitem(last=False)[1].body) + 1000


def _is_text(made: _Answer) -> bool:
    return MutableHeaders(raw=made.headers).get("content-type", "").startswith(_TEXTS)
