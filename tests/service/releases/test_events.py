"""News of releases: told once, not lost by those who come back, and to no more readers than was said."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from feed_server import BASE, LAST, opened, served

from dpstream.service.releases import events, find_places, make_app


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "EVERY", 0.01)
    monkeypatch.setattr(events, "HEARTBEAT", 0.05)


@contextlib.contextmanager
def listening(feed: httpx.Client, last_id: str | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of the stream as they come; a heartbeat is an event without a name."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    with feed.stream("GET", f"{BASE}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")

        def told() -> Iterator[dict[str, Any]]:
            event: dict[str, Any] = {}
            for line in answer.iter_lines():
                name, _, rest = line.partition(": ")
                if line:
                    event[name] = json.loads(rest) if name == "data" else rest
                else:
                    yield event
                    event = {}

        yield told()


def named(told: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return next(one for one in told if "event" in one)


def test_released_and_withdrawn(stream: Path) -> None:
    with served(stream / "releases") as feed:
        with listening(feed) as told:
            next(told)  # it listens
            assert "" in next(told)  # a heartbeat
            with opened(stream) as one:
                one.approve(LAST + 1)
                first = named(told)
                one.withdraw(2, "sent twice")
                second = named(told)
            shutil.copy(stream / "releases/step-000003/manifest.json", stream)  # no change of the catalogue
        digest = feed.get(f"{BASE}/steps/{LAST + 1}").headers["etag"].strip('"')
        assert first["event"] == "released"
        assert first["data"] == {"step": LAST + 1, "manifest_sha256": digest}
        assert second["event"] == "withdrawn"
        assert second["data"] == {"step": 2, "reason": "sent twice"}
        # Who has seen all is told nothing; who has not is told what is newer, and to read the list.
        with listening(feed, second["id"]) as told:
            assert next(told).keys() == {"retry"}
            assert "event" not in next(told)
        with listening(feed, f"{LAST}-{'0' * 16}") as told:
            assert [named(told)["event"], named(told)["event"]] == ["released", "changed"]
        # Nobody knows what those have seen who come with an id that was never given.
        for made_up in ("0", str(LAST), "no such id"):
            with listening(feed, made_up) as told:
                assert next(told).keys() == {"retry"}
                assert next(told).get("event") == "changed"


def test_an_id_outlives_the_server(stream: Path) -> None:
    with served(stream / "releases") as feed, listening(feed) as told:
        next(told)
        with opened(stream) as one:
            one.withdraw(3, "wrong")
        last = named(told)["id"]
    with opened(stream) as one:
        one.approve(LAST + 1)
    with served(stream / "releases") as feed, listening(feed, last) as told:
        assert named(told)["data"]["step"] == LAST + 1


def test_a_stream_that_begins_later(stream: Path) -> None:
    catalogue = stream / "releases/catalogue.json"
    data = catalogue.read_bytes()
    catalogue.unlink()
    with served(f"invented={stream / 'releases'}") as feed, listening(feed) as told:
        next(told)
        catalogue.write_bytes(data)
        assert [named(told)["data"]["step"] for _ in range(LAST)] == [1, 2, 3, 4]


def test_no_more_readers_than_was_said(stream: Path) -> None:
    with served(stream / "releases", readers=2) as feed:
        with listening(feed) as one, listening(feed) as two:
            next(one), next(two)
            refused = feed.get(f"{BASE}/events")
            assert refused.status_code == 503
            assert refused.json()["detail"] == "2 readers wait for news already"
            assert refused.headers["retry-after"] == "60"
        for _ in range(200):  # the places of those who left are free again
            with feed.stream("GET", f"{BASE}/events") as answer:
                if answer.status_code == 200:
                    return
        pytest.fail("the readers who left still count")


async def _connects(app: Any, path: str, receive: Any, send: Any) -> None:
    """One reader of the application, without a server between."""
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b""}
    await app({**scope, "headers": [], "http_version": "1.1", "scheme": "http"}, receive, send)


def test_readers_count_from_the_moment_that_they_are_let_in(made: Path) -> None:
    """Ten who come at once are not all let in because no answer has begun yet; and who leaves before the first byte
    keeps neither a place nor a file."""
    app = make_app(find_places([str(made / "releases")]), readers=2)
    statuses: list[int] = []

    async def readers() -> None:
        hung_up = asyncio.Event()

        async def receive() -> dict[str, str]:
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if message["status"] == 200:
                    await hung_up.wait()  # the header is on its way, and no byte of the body is

        come = [asyncio.create_task(_connects(app, f"{BASE}/events", receive, send)) for _ in range(10)]
        while len(statuses) < 10:
            await asyncio.sleep(0)
        hung_up.set()
        await asyncio.gather(*come)

    async def gone(_message: Any = None) -> Any:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def downloads() -> int:
        gc.disable()
        try:
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(20):
                await _connects(app, f"{BASE}/steps/1/table.csv", gone, gone)
            return len(os.listdir("/proc/self/fd")) - before
        finally:
            gc.enable()

    app.state.apart = anyio.CapacityLimiter(1)
    asyncio.run(readers())
    assert sorted(statuses) == [200] * 2 + [503] * 8
    assert asyncio.run(downloads()) <= 2


def test_the_end_of_the_server_is_the_end_of_the_news(made: Path) -> None:
    """Readers see an answer that ends, and not a connection that breaks."""
    with served(made / "releases") as feed, listening(feed) as told:
        next(told)
        feed.server.should_exit = True  # type: ignore[attr-defined]
        assert not any("event" in one for one in told)
