"""The consumers' feed under load: 1,000 readers in a bounded loop, the slowest answers and the memory of the server.

    python benchmarks/service_load.py [--readers 1000] [--rounds 20] [--out FILE]

The command ``dpstream serve releases`` runs in a process of its own, over the releases of an invented stream. Each
reader has one connection and asks again as soon as it has an answer: mostly what readers ask who come often (the list,
with the entity tag that they know), sometimes a table of 60,000 rows, a part of it, or a question's answer. As many
other readers listen to the events, and a step that is withdrawn at the end is told to each of them once. Beside it
stands the same loop against an empty application of the same server: what HTTP, Python and this machine cost alone.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from bench import documented_parser, show_result
from made_by import HERE

from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.tables import Workload
from dpstream.families.tabular import Baseline
from dpstream.io.sinks import Publisher
from dpstream.service.releases import listen as listen_at
from dpstream.stream import Batch, Publishing, Stream, open_stream

LONG = "about 3 minutes, and only on a machine that does nothing else"
STEPS, RECORDS = 3, 20_000
AT = "/v1/streams/invented"
SCHEMA = Schema(
    (Categorical("zip", [f"z{i}" for i in range(20)]), Categorical("rooms", list("12345")), Boolean("paid"))
)
#: How many in a hundred requests are of a kind.
KINDS = {
    "the list, known already (304)": (70, f"{AT}/steps?after={STEPS - 2}"),
    "a table (Parquet)": (15, f"{AT}/steps/{{step}}/table.parquet"),
    "a part of a table (Range)": (10, f"{AT}/steps/{{step}}/table.csv"),
    "a question": (5, f"{AT}/answer?q=paid and rooms = '3'"),
}


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An empty application."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def opened(folder: Path) -> Stream:
    """The invented stream."""
    plan = Baseline(Workload.all_k_way(SCHEMA.domain, 1)).calibrate(epsilon=4)
    return open_stream(
        plan,
        SCHEMA,
        folder / "state",
        name="invented",
        publish_to=Publisher(folder / "releases"),
        publishing=Publishing(records="persistent", publish="both"),
    )


def make(folder: Path) -> None:
    """Its releases."""
    drawn = np.random.default_rng(1)
    with opened(folder) as stream:
        for step in range(1, STEPS + 1):
            rows = {
                column.name: drawn.choice(column.labels(), RECORDS).tolist() for column in SCHEMA.columns[:2]
            }
            stream.step(Batch(rows | {"paid": drawn.random(RECORDS) < 0.5}), str(step))


def memory(pid: int) -> tuple[float, float]:
    """MB that the process has now, and had at most."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    now, most = (int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) / 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[index]
    return now, most


class Connection:
    """One connection that is kept, with as little work as possible: clients of packages cost more than the server."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        """Send a request; the status and the headers of the answer, whose body was not read."""
        if not hasattr(self, "_writer"):
            self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"GET {quote(path, safe='/?=&')} HTTP/1.1\r\nHost: here\r\n{told}\r\n".encode())
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = (line.partition(": ") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value for name, _, value in fields}

    async def get(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        """The same, with the body read and thrown away."""
        status, told = await self.ask(path, headers)
        if status != 304:
            await self.reader.readexactly(int(told["content-length"]))
        return status, told

    def close(self) -> None:
        """End it."""
        self._writer.close()


async def load(port: int, readers: int, rounds: int, idle: bool) -> dict[str, list[float]]:
    """Seconds of each request by kind."""
    took: dict[str, list[float]] = defaultdict(list)
    names = [name for name, (share, _) in KINDS.items() for _ in range(share)]

    async def reader(number: int) -> None:
        drawn, tag, connection = np.random.default_rng(number), "", Connection(port)
        for _ in range(rounds):
            kind = names[drawn.integers(100)]
            path = "/" if idle else KINDS[kind][1].format(step=int(drawn.integers(2, STEPS + 1)))
            headers = {"If-None-Match": tag} if tag and "304" in kind else {}
            headers |= {"Range": "bytes=-2000"} if "Range" in kind else {}
            start = time.perf_counter()
            status, told = await connection.get(path, headers)
            took["nothing" if idle else kind].append(time.perf_counter() - start)
            if status not in (200, 206, 304):
                raise SystemExit(f"{path}: {status}")
            if "304" in kind:
                tag = told.get("etag", "")
        connection.close()

    await asyncio.gather(*(reader(number) for number in range(readers)))
    return took


async def listen(port: int, ready: asyncio.Semaphore, told: Counter[str]) -> None:
    """Listen until the first event comes, and count it."""
    connection = Connection(port)
    await connection.ask(f"{AT}/events", {})
    while not (line := (await connection.reader.readline()).decode()).startswith("event: "):
        if line.startswith("retry"):
            ready.release()
    told[line.removeprefix("event: ").strip()] += 1
    connection.close()


async def measure(port: int, empty: int, folder: Path, pid: int, readers: int, rounds: int) -> list[str]:
    """The lines of the result."""
    lines = [
        f"{readers} readers, {rounds} requests each, without a pause; {readers} more listen to the events.",
        "",
    ]
    lines += ["| request | number | median, ms | p99, ms | slowest, ms |", "|---|---|---|---|---|"]
    await load(port, 10, 20, idle=False)
    before = memory(pid)[0]
    ready, told = asyncio.Semaphore(0), Counter[str]()
    listeners = [asyncio.create_task(listen(port, ready, told)) for _ in range(readers)]
    for _ in listeners:
        await ready.acquire()
    rates = []
    for idle in (True, False):
        start = time.perf_counter()
        took = await load(empty if idle else port, readers, rounds, idle)
        rates.append(readers * rounds / (time.perf_counter() - start))
        for kind, each in sorted(took.items()):
            ms = 1000 * np.array(each)
            median, slow = np.percentile(ms, [50, 99])
            lines.append(f"| {kind} | {len(ms)} | {median:,.0f} | {slow:,.0f} | {ms.max():,.0f} |")
    start = time.perf_counter()
    with opened(folder) as stream:
        stream.withdraw(1, "a test")
    await asyncio.gather(*listeners)
    return [
        *lines,
        "",
        f"{rates[1]:,.0f} answers a second; {rates[0]:,.0f} of an empty application: {rates[1] / rates[0]:.0%}.",
        f"A withdrawal was told to {told['withdrawn']} listeners {time.perf_counter() - start:.1f} s after it began.",
        f"Memory of the server: {before:,.0f} MB before the readers came, {memory(pid)[1]:,.0f} MB at most.",
    ]


def main() -> None:
    """Run it."""
    parser = documented_parser(__doc__)
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make(folder := Path(name))
        run = f"{sys.executable} -m"
        command = f"{run} dpstream serve releases {folder / 'releases'} --port 0 --readers {options.readers}".split()
        listening = listen_at("127.0.0.1", 0)
        fd, empty = str(listening.fileno()), listening.getsockname()[1]
        bare = f"{run} uvicorn service_load:nothing --http h11 --no-access-log --fd {fd}".split()
        with (
            subprocess.Popen(bare, cwd=HERE, pass_fds=[int(fd)], stderr=subprocess.DEVNULL) as alone,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        ):
            try:
                assert server.stdout is not None
                port = int(server.stdout.readline().rpartition(":")[2])
                lines = asyncio.run(measure(port, empty, folder, server.pid, options.readers, options.rounds))
            finally:
                server.terminate()
                alone.terminate()
    show_result("\n".join(lines) + "\n", options.out)


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    main()
