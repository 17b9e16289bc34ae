"""One invented history of stays, written down in every way that a source can read, and what it must come to.

A record has a key, a group and a size; it comes at one step, is updated at some, and leaves at another or never. Some
keys come back, some stays are over within their step, some records change twice in a step.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from row_files import source_of, write_rows

from dpstream.core.schema import Categorical, Integer, Schema
from dpstream.core.tables import PresentTable, ReadRequest
from dpstream.core.tables.keyed_reading import read_keyed
from dpstream.io.sources import SourceOptions

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
    return source_of(options, base=base, columns=SCHEMA.names, **more).steps()


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


FEED: dict[str, Any] = {"time_column": "when", "end": STEPS, "op_column": "op", "key_column": "id"}


def feed_rows(told: History) -> list[Event]:
    """All events with their steps."""
    return [{"when": step, **event} for step in range(1, STEPS + 1) for event in told.events(step)]


NAMES = ["when", "op", "id", "group", "size"]


def from_table(database: str, query: str, **more: Any) -> SourceOptions:
    """A query of a DuckDB file."""
    given = {"kind": "duckdb", "database": database, "query": query, "end": STEPS, "key_column": "id"}
    return SourceOptions.parse({**given, **more})


def write_feed(told: History, folder: Path, name: str) -> SourceOptions:
    """A change feed in one file, in the format of its name."""
    write_rows(folder / name, [without_nulls(row) for row in feed_rows(told)], NAMES)
    if not name.endswith(".duckdb"):
        return SourceOptions.parse({"path": name, **FEED})
    query = 'SELECT op, id, "group", size FROM t WHERE "when" >= ? AND "when" < ? ORDER BY rowid'
    return from_table(name, query, start=1, op_column="op")


def without_nulls(row: Event) -> Event:
    return {name: value for name, value in row.items() if value is not None}


def write_feed_parquet(told: History, folder: Path) -> SourceOptions:
    """The same, as a Parquet file with other words for what a row does, and rows with old values."""
    rows = []
    for row in feed_rows(told):
        if row["op"] == "update":
            rows.append({**row, "op": "before", "group": "a", "size": 0})
        rows.append({**row, "op": {"insert": "c", "update": "u", "delete": "d"}[row["op"]]})
    write_rows(folder / "feed.parquet", rows, NAMES)
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
        rows.append(without_nulls(said))
    write_rows(folder / name, rows, NAMES)
    return SourceOptions.parse({"path": name, **FEED, "updates": "changed"})


def stdin_feed(told: History, folder: Path) -> tuple[SourceOptions, bytes]:
    """The same on standard input."""
    write_feed(told, folder, "feed.ndjson")
    first, last = (json.dumps({"end_of_step": step}).encode() + b"\n" for step in (0, STEPS))
    return SourceOptions.parse({"path": "-", **FEED}), first + (folder / "feed.ndjson").read_bytes() + last


def write_snapshots(told: History, folder: Path, ending: str = "csv") -> SourceOptions:
    """The whole table, one file a step."""
    for step in range(1, STEPS + 1):
        rows = [{"id": k, "group": g, "size": s} for k, (g, s) in told.table(step).items()]
        random.Random(step).shuffle(rows)
        write_rows(folder / f"table-{step}.{ending}", rows, NAMES[2:])
    return SourceOptions.parse(
        {"path": f"table-*.{ending}", "every": "files", "key_column": "id", "shape": "snapshots"}
    )


def write_versions(told: History, folder: Path) -> SourceOptions:
    """Rows with the steps between which they hold, asked as of each step."""
    rows = []
    for stay in told.stays:
        borders = [when for when, _, _ in stay.values[1:]] + [stay.gone]
        for (when, group, size), until in zip(stay.values, borders, strict=True):
            rows.append({"id": stay.key, "group": group, "size": size, "since": when, "until": until})
    write_rows(folder / "versions.duckdb", rows, [*NAMES[2:], "since", "until"])
    query = 'SELECT id, "group", size FROM t WHERE since < $1 AND (until IS NULL OR until >= $1)'
    return from_table("versions.duckdb", query, start=1, shape="snapshots")


def write_stays(told: History, folder: Path, name: str, **more: Any) -> SourceOptions:
    """Each stay as one row with its two times, in no order; without updates, which such a table does not tell."""
    rows = []
    for stay in told.stays:
        for _, group, size in stay.values[:1]:
            row = {"id": stay.key, "since": stay.first, "until": stay.gone, "group": group, "size": size}
            rows.append(without_nulls(row))
    random.Random(1).shuffle(rows)
    write_rows(folder / name, rows, ["id", "since", "until", "group", "size"])
    shape = {"time_column": "since", "delete_time_column": "until", "shape": "stays", **more}
    if name.endswith(".duckdb"):
        return from_table(name, "SELECT * FROM t", **shape)
    return SourceOptions.parse({"path": name, "end": STEPS, "key_column": "id", **shape})
