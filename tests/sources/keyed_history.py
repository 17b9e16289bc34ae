"""One invented history of stays, written down in every way that a source can read, and what it must come to.

A record has a key, a group and a size; it comes at one step, is updated at some, and leaves at another or never. Some
keys come back, some stays are over within their step, some records change twice in a step.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpstream.core.schema import Categorical, Integer, Schema
from dpstream.core.tables import PresentTable
from dpstream.core.tables.access import ReadRequest
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.io.sources import SourceOptions, open_source
from dpstream.io.sources.source import ReadOptions

SCHEMA = Schema(
    [
        Categorical("group", ("a", "b", "c"), missing="missing"),
        Integer("size", min=0, max=9),
    ]
)
STEPS = 7
SECRET = b"k" * 32
Event = dict[str, Any]


@dataclass(frozen=True)
class Stay:
    """A record's stay; ``values`` are those it has from each of its steps on, and ``gone`` is None for ever."""

    key: int
    first: int
    gone: int | None
    values: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class History:
    """Stays, with what they come to."""

    stays: list[Stay] = field(default_factory=list)

    def events(self, step: int) -> list[Event]:
        """What happens in a step, in order: ends of earlier stays first."""
        ends, rest = [], []
        for stay in self.stays:
            for number, (when, group, size) in enumerate(stay.values):
                if when == step:
                    word = "update" if number else "insert"
                    rest.append({"op": word, "id": stay.key, "group": group, "size": size})
            if stay.gone == step:
                over = {"op": "delete", "id": stay.key, "group": None, "size": None}
                (rest if stay.first == step else ends).append(over)
        return ends + rest

    def table(self, step: int) -> dict[int, tuple[str, int]]:
        """The table at the end of a step."""
        found = {}
        for stay in self.stays:
            if stay.first <= step and (stay.gone is None or stay.gone > step):
                found[stay.key] = next(v[1:] for v in reversed(stay.values) if v[0] <= step)
        return found


def history(seed: int, keys: int = 40, *, updates: bool = True) -> History:
    """Stays of some keys over ``STEPS`` steps."""
    draw = random.Random(seed)
    stays = []
    for key in range(1, keys + 1):
        at = draw.randint(1, STEPS)
        while at <= STEPS and draw.random() < 0.9:
            gone = draw.choice([None, at, at + 1, at + draw.randint(1, 4)])
            last = min(STEPS, (gone or STEPS + 1) - 1)
            when = sorted(draw.randint(at, last) for _ in range(draw.randint(0, 2))) if last > at else []
            times = [at, *(when if updates else [])]
            values = tuple((t, draw.choice("abc"), draw.randint(0, 9)) for t in times)
            stays.append(Stay(key, at, gone, values))
            if gone is None:
                break
            at = max(gone, at + 1) + draw.choice([0, 0, 1])
    return History(stays)


def read(options: SourceOptions, base: Path, **more: Any) -> Iterable[Any]:
    """The steps of a source, as a stream asks for them."""
    return open_source(options, ReadOptions(base=base, columns=SCHEMA.names, **more)).steps()


def outcome(entries: Iterable[Any], returns: str = "new") -> list[tuple[Any, ...]]:
    """What each step changes: its keys, which are there, their values; as the stream computes it."""
    table, found = PresentTable.empty(SCHEMA.domain), []
    for entry in entries:
        wanted = ReadRequest("present", SCHEMA, "record", None, SECRET, f"step {entry.step}")
        granted = read_keyed(entry.keyed, wanted)
        assert granted.keyed is not None
        changes: Any = granted.keyed.changes(table)
        found.append((changes.keys.tolist(), changes.present.tolist(), np.asarray(changes.codes).tolist()))
        table, _ = table.after(changes, entry.step)
    return found


def _csv(rows: list[Event], names: list[str]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    return text.getvalue().encode()


def _ndjson(rows: list[Event]) -> bytes:
    return "".join(
        json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows
    ).encode()


FEED: dict[str, Any] = {"time_column": "when", "end": STEPS, "op_column": "op", "key_column": "id"}


def feed_rows(told: History) -> list[Event]:
    """All events with their steps."""
    return [{"when": step, **event} for step in range(1, STEPS + 1) for event in told.events(step)]


def write_feed(told: History, folder: Path, name: str) -> SourceOptions:
    """A change feed in one file, in the format of its name."""
    rows, names = feed_rows(told), ["when", "op", "id", "group", "size"]
    data = _csv(rows, names) if ".csv" in name else _ndjson(rows)
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return SourceOptions.parse({"path": name, **FEED})


def write_feed_parquet(told: History, folder: Path) -> SourceOptions:
    """The same, as a Parquet file with other words for what a row does, and rows with old values."""
    import pyarrow as pa
    import pyarrow.parquet

    rows = []
    for row in feed_rows(told):
        if row["op"] == "update":
            rows.append({**row, "op": "before", "group": "a", "size": 0})
        rows.append({**row, "op": {"insert": "c", "update": "u", "delete": "d"}[row["op"]]})
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "feed.parquet")
    words = {"insert": ["c", "r"], "update": "u", "delete": "d", "ignore": "before"}
    return SourceOptions.parse({"path": "feed.parquet", **FEED, "op_values": words})


def write_changed(told: History, folder: Path, name: str) -> SourceOptions:
    """A feed whose updates have the changed columns only."""
    before: dict[int, Event] = {}
    rows = []
    for row in feed_rows(told):
        said = dict(row)
        if row["op"] == "update":
            for column in ("group", "size"):
                said[column] = None if row[column] == before[row["id"]][column] else row[column]
        before[row["id"]] = row
        rows.append(said)
    names = ["when", "op", "id", "group", "size"]
    (folder / name).write_bytes(_csv(rows, names) if name.endswith(".csv") else _ndjson(rows))
    return SourceOptions.parse({"path": name, **FEED, "updates": "changed"})


def stdin_feed(told: History) -> tuple[SourceOptions, bytes]:
    """The same on standard input."""
    rows = feed_rows(told)
    marks = b"".join(json.dumps({"end_of_step": step}).encode() + b"\n" for step in (STEPS,))
    data = json.dumps({"end_of_step": 0}).encode() + b"\n" + _ndjson(rows) + marks
    return SourceOptions.parse({"path": "-", **FEED}), data


def write_duckdb(told: History, folder: Path) -> SourceOptions:
    """The same in a DuckDB table."""
    import duckdb

    with duckdb.connect(str(folder / "feed.duckdb")) as db:
        db.execute('CREATE TABLE feed (n INT, "when" INT, op TEXT, id INT, "group" TEXT, size INT)')
        rows = [
            (n, *(r[k] for k in ("when", "op", "id", "group", "size"))) for n, r in enumerate(feed_rows(told))
        ]
        db.executemany("INSERT INTO feed VALUES (?, ?, ?, ?, ?, ?)", rows)
    query = 'SELECT op, id, "group", size FROM feed WHERE "when" >= ? AND "when" < ? ORDER BY n'
    return SourceOptions.parse(
        {"kind": "duckdb", "database": "feed.duckdb", "query": query, "start": 1, "end": STEPS}
        | {"op_column": "op", "key_column": "id"}
    )


def write_snapshots(told: History, folder: Path, ending: str = "csv") -> SourceOptions:
    """The whole table, one file a step."""
    for step in range(1, STEPS + 1):
        rows = [{"id": k, "group": g, "size": s} for k, (g, s) in told.table(step).items()]
        random.Random(step).shuffle(rows)
        data = _csv(rows, ["id", "group", "size"]) if ending.startswith("csv") else _ndjson(rows)
        (folder / f"table-{step}.{ending}").write_bytes(
            gzip.compress(data) if ending.endswith("gz") else data
        )
    return SourceOptions.parse(
        {"path": f"table-*.{ending}", "every": "files", "key_column": "id", "shape": "snapshots"}
    )


def write_versions(told: History, folder: Path) -> SourceOptions:
    """Rows with the steps between which they hold, asked as of each step."""
    import duckdb

    rows = []
    for stay in told.stays:
        borders = [when for when, _, _ in stay.values[1:]] + [stay.gone]
        rows += [
            (stay.key, g, s, when, until) for (when, g, s), until in zip(stay.values, borders, strict=True)
        ]
    with duckdb.connect(str(folder / "versions.duckdb")) as db:
        db.execute('CREATE TABLE v (id INT, "group" TEXT, size INT, since INT, until INT)')
        db.executemany("INSERT INTO v VALUES (?, ?, ?, ?, ?)", rows)
    query = 'SELECT id, "group", size FROM v WHERE since < $1 AND (until IS NULL OR until >= $1)'
    return SourceOptions.parse(
        {"kind": "duckdb", "database": "versions.duckdb", "query": query, "start": 1, "end": STEPS}
        | {"key_column": "id", "shape": "snapshots"}
    )


def write_stays(told: History, folder: Path, name: str, **more: Any) -> SourceOptions:
    """Each stay as one row with its two times, in no order; without updates, which such a table does not tell."""
    rows = [
        {"id": stay.key, "since": stay.first, "until": stay.gone, "group": g, "size": s}
        for stay in told.stays
        for _, g, s in stay.values[:1]
    ]
    random.Random(1).shuffle(rows)
    names = ["id", "since", "until", "group", "size"]
    data = _csv(rows, names) if ".csv" in name else _ndjson(rows)
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    given = {"path": name, "time_column": "since", "delete_time_column": "until", "end": STEPS}
    return SourceOptions.parse({**given, "key_column": "id", "shape": "stays", **more})


def write_duckdb_stays(told: History, folder: Path, **more: Any) -> SourceOptions:
    """The same in a DuckDB table, asked for by name."""
    import duckdb

    with duckdb.connect(str(folder / "stays.duckdb")) as db:
        db.execute('CREATE TABLE s (since INT, until INT, id INT, size INT, "group" TEXT)')
        rows = [
            (stay.first, stay.gone, stay.key, size, group)
            for stay in told.stays
            for _, group, size in stay.values[:1]
        ]
        db.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?)", rows)
    given = {"kind": "duckdb", "database": "stays.duckdb", "query": "SELECT * FROM s", "end": STEPS}
    times = {"time_column": "since", "delete_time_column": "until"}
    return SourceOptions.parse({**given, **times, "key_column": "id", "shape": "stays", **more})
