"""What the tests of the feed share: a stream, and a server in a thread of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.tables import Workload
from dpstream.families.tabular import DPStabs
from dpstream.io.sinks import Publisher
from dpstream.service.releases import find_places, listen, make_app, server_of
from dpstream.stream import Batch, Stream, open_stream
from dpstream.stream.release.publishing import Publishing

SCHEMA = Schema((Categorical("zip", ["a", "b", "c"]), Boolean("paid")))
#: Published; step 5 is held.
LAST = 4
BASE = "/v1/streams/invented"


def opened(folder: Path, publish: Any = "changes") -> Stream:
    """The stream of a folder."""
    plan = DPStabs(Workload.all_k_way(SCHEMA.domain, 2)).calibrate(epsilon=4)
    return open_stream(
        plan,
        SCHEMA,
        folder / "state",
        name="invented",
        publish_to=Publisher(folder / "releases"),
        publishing=Publishing(records="persistent", publish=publish, full_every=3, approve=True),
    )


def make_stream(folder: Path, approved: Iterable[int] = range(1, LAST + 1), publish: Any = "changes") -> None:
    """Steps 1 and 4 are full tables with ids, 2 and 3 changes, 5 is held."""
    with opened(folder, publish) as stream:
        for step in range(1, LAST + 2):
            drawn = np.random.default_rng(step)
            rows = {"zip": drawn.choice(["a", "b", "c"], 100).tolist(), "paid": drawn.random(100) < 0.4}
            stream.step(Batch(rows), str(step))
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
            with httpx.Client(base_url=address, timeout=60) as client:
                client.server = server  # type: ignore[attr-defined]
                yield client
        finally:
            server.should_exit = True
            thread.join()
