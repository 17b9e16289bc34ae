"""What the tests of the feed share: a stream, and a server in a thread of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
from small_streams import small_schema, small_step, small_stream

from dpstream.service.releases import find_places, listen, make_app, server_of
from dpstream.stream import Stream

#: Published; step 5 is held.
LAST = 4
BASE = "/v1/streams/invented"


def opened(folder: Path, publish: str = "changes") -> Stream:
    """The stream of a folder."""
    schema = small_schema("zip", "paid")
    output = {"records": "persistent", "publish": publish, "approve": True}
    output |= {"full_every": 3} if publish == "changes" else {}
    return small_stream(
        folder, mechanism="dpstabs", schema=schema, stream={"name": "invented"}, output=output
    )


def make_stream(folder: Path, approved: Iterable[int] = range(1, LAST + 1), publish: str = "changes") -> None:
    """Steps 1 and 4 are full tables with ids, 2 and 3 changes, 5 is held."""
    with opened(folder, publish) as stream:
        for step in range(1, LAST + 2):
            small_step(stream, "growing", step)
        stream.approve(approved)


@contextlib.contextmanager
def served(*places: str | Path, **options: Any) -> Iterator[httpx.Client]:
    """A client of the feed of these places."""
    app = make_app(find_places([str(place) for place in places]), **options)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen("127.0.0.1", 0))
        server = server_of(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            plain = {"Accept-Encoding": "identity"}
            with httpx.Client(base_url=address, timeout=60, headers=plain) as client:
                client.server = server  # type: ignore[attr-defined]
                yield client
        finally:
            server.should_exit = True
            thread.join()
