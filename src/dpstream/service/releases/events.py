"""News of releases as server-sent events. One task looks at the catalogues once a second, for all readers.

The id of an event is ``LAST-DIGEST``: the last step, and the catalogue's hash. Who comes back with one gets what is new
by comparison with it, whether the server was started anew or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from dpstream.core.errors import DpstreamError
from dpstream.service.releases.places import Listing, ReleaseFolder
from dpstream.service.releases.problems import Problem

#: Seconds between two looks at the catalogues, and between two lines that keep a silent connection open.
EVERY, HEARTBEAT = 1.0, 15.0
_ID = re.compile(r"(\d{1,18})-([0-9a-f]{16})")


class News:
    """Tells readers what is new; ``most`` of them at one time. A reader holds no more than the catalogue it was told
    of, so a slow one is told of several changes at once.

    Attributes:
        ends: whether the server ends; all readers are let go then, and come back with the last id that they know.
    """

    def __init__(self, places: Sequence[ReleaseFolder], most: int) -> None:
        self._places = places
        self.most = most
        self._readers = 0
        self._known: dict[str, Listing | None] = {}
        self._changed = asyncio.Event()
        self.ends: Callable[[], bool] = bool

    async def watch(self) -> None:
        """Look at the catalogues until it is cancelled."""
        while True:
            for place in self._places:
                await self._look(place)
            if self.ends():
                self._changed.set()
            await asyncio.sleep(EVERY)

    async def _look(self, place: ReleaseFolder) -> None:
        now = self._known.get(place.name)
        with contextlib.suppress(Problem, DpstreamError, OSError):
            now = await asyncio.to_thread(place.listing)
        if now is not self._known.setdefault(place.name, now):
            self._known[place.name] = now
            self._changed.set()
            self._changed = asyncio.Event()

    async def told(self, place: ReleaseFolder, last_id: str | None) -> AsyncIterator[str]:
        """The events of one stream for one reader, who gets those that were missed first. The reader counts from
        here on, until ``left`` is called.

        Errors:
            Problem: there are too many readers.
        """
        if (
            place.name not in self._known
        ):  # who comes back after a restart is told what is new, and not all there is
            await self._look(place)
        if self._readers >= self.most:
            raise Problem(503, f"{self.most} readers wait for news already", {"Retry-After": "60"})
        self._readers += 1
        return self._events(place.name, last_id)

    def left(self) -> None:
        """A reader has left."""
        self._readers -= 1

    async def _events(self, name: str, last_id: str | None) -> AsyncIterator[str]:
        known = self._known[name]
        yield "retry: 5000\n\n" + _missed(last_id, known)
        while not self.ends():
            changed, now = self._changed, self._known[name]
            if now is not None and now is not known:
                yield _changes(known, now)
                known = now
                continue
            try:
                await asyncio.wait_for(changed.wait(), HEARTBEAT)
            except TimeoutError:
                yield ": still here\n\n"


@functools.lru_cache(maxsize=64)
def _changes(before: Listing | None, now: Listing) -> str:
    """What is new: a step was released, withdrawn, or its table dropped. Made once for all readers."""
    known = {} if before is None else before.entries
    events = []
    for step, entry in now.entries.items():
        if known.get(step) == entry:
            continue
        if entry["state"] == "withdrawn":
            events.append(_event("withdrawn", now, step=step, reason=entry.get("reason")))
        elif not entry["kept"]:
            events.append(_event("dropped", now, step=step))
        else:
            events.append(_event("released", now, step=step, manifest_sha256=entry["manifest_sha256"]))
    return "".join(events)


def _missed(last_id: str | None, now: Listing | None) -> str:
    """The steps since an id; and ``changed``: older ones may not be as they were, so the list has to be read again.
    Of an id that was never given nobody knows what it has seen, so it gets ``changed`` alone."""
    if now is None or not last_id:
        return ""
    found = _ID.fullmatch(last_id)
    if found is not None and found[2] == now.digest[:16]:
        return ""
    missed = ""
    if found is not None:
        seen = {step: entry for step, entry in now.entries.items() if step <= int(found[1])}
        missed = _changes(Listing({}, seen, (), ""), now)
    return missed + _event("changed", now, last_step=now.last)


def _event(kind: str, now: Listing, **facts: Any) -> str:
    data = json.dumps(facts, ensure_ascii=False)
    return f"id: {now.last}-{now.digest[:16]}\nevent: {kind}\ndata: {data}\n\n"
