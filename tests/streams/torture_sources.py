"""What happens to the source of a tortured stream: the zone of its process moves between steps, or two files exchange
places while they are read. A record is in one step, once, or the step is refused."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torture_life as lives
from fault_harness import in_child
from toy_stream import SCHEMA, ToyPlan

from dpstream.io.sources import SourceOptions, open_source
from dpstream.io.sources import files as reading
from dpstream.stream import Batch, open_stream
from dpstream.stream.admission import Admission

START, STEPS = datetime.date(2026, 1, 5), 3
ZIPS = ("94102", "94103", "94110")
ZONES = ("UTC", "Asia/Tokyo", "America/Los_Angeles", "Pacific/Kiritimati", "Pacific/Pago_Pago")
KEYS = {"every": "day", "start": str(START), "end": str(START + datetime.timedelta(STEPS - 1))}
Rows = list[tuple[datetime.datetime, str]]


def take(home: Path, options: dict[str, Any], last: int) -> None:
    """The steps that are due, up to the last one; what each of them counts goes into a file."""
    real = Admission.admit

    def admit(*arguments: Any) -> Any:
        found = real(*arguments)
        with (home / "counted").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(found.view.count([(0,)])[0].tolist())}\n")
        return found

    source = open_source(SourceOptions.parse(options), base=home, columns=SCHEMA.names)
    with (
        mock.patch.object(Admission, "admit", admit),
        open_stream(ToyPlan(), SCHEMA, home / "state", name="read") as stream,
    ):
        for entry in source.steps(stream.last_step + 1, key=stream.source_key):
            stream.step(Batch(entry.inserts), entry.batch_id)
            if entry.step == last:
                return


def drawn(rng: random.Random, count: int) -> Rows:
    """Moments of all steps, many of them near midnight."""
    return [
        (datetime.datetime.combine(START, datetime.time()) + datetime.timedelta(hours=at), rng.choice(ZIPS))
        for at in (24 * rng.randrange(STEPS) + rng.choice([0, 1, 2, 12, 21, 22, 23]) for _ in range(count))
    ]


def misread(home: Path, rows: Rows) -> list[str]:
    """What was counted otherwise than once and in its step."""
    there = Counter(((at.date() - START).days, zip_code) for at, zip_code in rows)
    truth = [[there[step, zip_code] for zip_code in (*ZIPS, "other")] for step in range(STEPS)]
    counted = [json.loads(line) for line in (home / "counted").read_text(encoding="utf-8").splitlines()]
    return [] if counted == truth else [f"counted {counted}, and there are {truth}"]


def zone(home: Path, rng: random.Random) -> tuple[bool, list[str]]:
    """Each step of a DuckDB query is taken by a process in another zone."""
    if importlib.util.find_spec("duckdb") is None:
        return False, []
    rows, zones = drawn(rng, 20), [rng.choice(ZONES) for _ in range(STEPS)]
    query = "SELECT zip, TRUE AS paid, 1 AS rent FROM t WHERE moment >= ? AND moment < ?"
    options = {"kind": "duckdb", "database": "t.duckdb", "query": query, **KEYS}

    def make() -> None:
        import duckdb

        with duckdb.connect(str(home / "t.duckdb")) as database:
            database.execute("CREATE TABLE t (moment TIMESTAMPTZ, zip TEXT)")
            cells = ", ".join(f"('{at.isoformat()}+00', '{zip_code}')" for at, zip_code in rows)
            database.execute(f"INSERT INTO t VALUES {cells}")

    def step(number: int) -> None:
        os.environ["TZ"] = zones[number]
        time.tzset()
        take(home, options, number + 1)

    # DuckDB learns the zone when it is loaded: in none but the children, then.
    codes = [in_child(lambda: lives.guarded(make))]
    codes += [in_child(lambda number=number: lives.guarded(lambda: step(number))) for number in range(STEPS)]  # type: ignore[misc]
    if any(codes):
        return True, [f"zone: exits {codes}"]
    return len(set(zones)) > 1, [f"zone: {zones}: {text}" for text in misread(home, rows)]


def exchange(home: Path, rng: random.Random) -> tuple[bool, list[str]]:
    """Two files with the same times exchange places when one of some files is opened; then the stream goes on."""
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    (home / "data").mkdir()
    kind, times = rng.choice(["csv", "parquet"]), [at for at, _ in drawn(rng, 8)]
    paths = [home / "data" / f"{name}.{kind}" for name in "abc"[: rng.randrange(2, 4)]]
    rows: Rows = []
    for path, zip_code in zip(paths, ZIPS, strict=False):
        count = len(times)
        columns = {"at": times, "zip": [zip_code] * count, "paid": [True] * count, "rent": [1] * count}
        (csv.write_csv if kind == "csv" else pq.write_table)(pa.table(columns), path)
        os.utime(path, (0, 0))
        rows += [(at, zip_code) for at in times]
    options = {"path": f"data/*.{kind}", "time_column": "at", **KEYS}
    one, two = rng.sample(paths, 2)
    moment, real = rng.randrange(1, 3 * len(paths) + 1), reading.blocks
    opened = 0

    def blocks(path: Path, **more: Any) -> Iterator[Any]:
        nonlocal opened
        opened += 1
        if opened == moment:
            one.rename(home / "aside")
            two.rename(one)
            (home / "aside").rename(two)
        return real(path, **more)

    def disturbed() -> None:
        with mock.patch.object(reading, "blocks", blocks):
            take(home, options, STEPS)

    code = in_child(lambda: lives.guarded(disturbed))
    found = [] if code in (0, lives.REFUSED) else [f"exchange: exit {code}"]
    code = in_child(lambda: lives.guarded(lambda: take(home, options, STEPS)))
    if code:
        return True, [*found, f"exchange: the stream cannot be finished: exit {code}"]
    return True, found + [f"exchange: {kind}, opening {moment}: {text}" for text in misread(home, rows)]


SOURCES: dict[str, Callable[[Path, random.Random], tuple[bool, list[str]]]] = {
    "zone": zone,
    "exchange": exchange,
}
