"""The same history of stays, written as a change feed, as snapshots and as stays, comes to the same changes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keyed_history as told
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from keyed_history import FEED, SCHEMA, STEPS, History, outcome, read
from row_files import source_of

from dpstream.core.errors import DataError, DpstreamError
from dpstream.core.schema.arrow import to_table
from dpstream.core.tables import KeyedBatch, Snapshot
from dpstream.core.tables.keyed_reading import hash_keys
from dpstream.io.sources import SourceOptions
from dpstream.io.sources import stdin as stdin_module

Writer = Callable[[History, Path], SourceOptions]
FEEDS: dict[str, Writer] = {
    "csv": lambda h, d: told.write_feed(h, d, "feed.csv"),
    "csv.gz": lambda h, d: told.write_feed(h, d, "feed.csv.gz"),
    "ndjson": lambda h, d: told.write_feed(h, d, "feed.ndjson"),
    "ndjson.gz": lambda h, d: told.write_feed(h, d, "feed.ndjson.gz"),
    "other words": told.write_feed_parquet,
    "changed columns": lambda h, d: told.write_changed(h, d, "changed.csv"),
    "changed keys": lambda h, d: told.write_changed(h, d, "changed.ndjson"),
    "duckdb": lambda h, d: told.write_feed(h, d, "feed.duckdb"),
}
SNAPSHOTS: dict[str, Writer] = {
    "snapshots": told.write_snapshots,
    "ndjson snapshots": lambda h, d: told.write_snapshots(h, d, "ndjson.gz"),
    "as of": told.write_versions,
}
STAYS: dict[str, Writer] = {
    "stays": lambda h, d: told.write_stays(h, d, "stays.csv"),
    "ndjson stays": lambda h, d: told.write_stays(h, d, "stays.ndjson.gz"),
    "stays as they are": lambda h, d: told.write_stays(h, d, "stays.csv", late="next-step"),
    "duckdb stays": lambda h, d: told.write_stays(h, d, "stays.duckdb"),
    "duckdb stays as they are": lambda h, d: told.write_stays(h, d, "stays.duckdb", late="next-step"),
}


def expected(history: History) -> list[tuple[set[Any], ...]]:
    """What changes at each step: keys that are new or have other values, and keys that left; by plain dictionaries."""
    found, before = [], {}
    for step in range(1, STEPS + 1):
        now = history.table(step)
        found.append(
            ({(k, *v) for k, v in now.items() if before.get(k) != v}, {k for k in before if k not in now})
        )
        before = now
    return found


def unhashed(history: History, changes: list[tuple[Any, ...]]) -> list[tuple[set[Any], ...]]:
    """The same of what the stream computes, its hashed keys taken back by a dictionary of all keys."""
    names = sorted({stay.key for stay in history.stays})
    hashes = hash_keys(pa.chunked_array([pa.array(names)]), told.SECRET, "test").tolist()
    known = {tuple(words): name for words, name in zip(hashes, names, strict=True)}
    found = []
    for keys, present, codes in changes:
        values = iter(codes)
        here: set[Any] = set()
        gone: set[Any] = set()
        for key, there in zip(keys, present, strict=True):
            name = known[tuple(key)]
            if there:
                group, size = next(values)
                here.add((name, "abc"[group], size))
            else:
                gone.add(name)
        found.append((here, gone))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_every_shape_gives_the_changes_of_plain_dictionaries(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    history = told.history(seed)
    wanted = expected(history)
    # The history has what is hard: stays over within their step, keys that come back at once and later, updates.
    assert any(stay.gone == stay.first for stay in history.stays)
    assert len({stay.key for stay in history.stays}) < len(history.stays)
    for name, write in {**FEEDS, **SNAPSHOTS}.items():
        assert unhashed(history, outcome(read(write(history, tmp_path), tmp_path))) == wanted, name
    without = told.history(seed, updates=False)
    for name, write in {**FEEDS, **SNAPSHOTS, **STAYS}.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        assert unhashed(without, outcome(read(write(without, folder), folder))) == expected(without), name


def test_standard_input_gives_them_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    history = told.history(4)
    options, data = told.stdin_feed(history, tmp_path)
    for block in (17, 2**18):
        monkeypatch.setattr(stdin_module, "_READ", block)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert unhashed(history, outcome(read(options, tmp_path))) == expected(history)


@pytest.mark.parametrize("name", [*FEEDS, *SNAPSHOTS, *STAYS])
def test_a_step_is_the_same_whatever_step_reading_begins_at(name: str, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    history = told.history(5, keys=20, updates=name not in STAYS)
    options = {**FEEDS, **SNAPSHOTS, **STAYS}[name](history, tmp_path)
    source = source_of(options, base=tmp_path, columns=SCHEMA.names)
    whole, seen = [], {}
    for entry in source.steps():
        whole.append(entry)
        seen[entry.step] = source.position
    assert list(seen) == list(range(1, STEPS + 1))
    for start in range(2, STEPS + 1):
        source = source_of(options, base=tmp_path, columns=SCHEMA.names)
        again = list(source.steps(start, seen=seen[start - 1]))
        assert [rows_of(entry) for entry in again] == [rows_of(entry) for entry in whole[start - 1 :]]


def rows_of(entry: Any) -> tuple[Any, ...]:
    keyed = entry.keyed
    rows = keyed.rows if isinstance(keyed, Snapshot) else keyed.events
    return entry.step, entry.batch_id, type(keyed), to_table(rows, "test").to_pylist()


@pytest.mark.parametrize("name", [*FEEDS, *SNAPSHOTS, *STAYS])
def test_one_stay_more_changes_the_rows_of_its_key_alone(name: str, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    history = told.history(6, keys=20, updates=name not in STAYS)
    write = {**FEEDS, **SNAPSHOTS, **STAYS}[name]
    extra = told.Stay(10_000, 2, 5, ((2, "b", 7), *(() if name in STAYS else ((4, "c", 7),))))
    found = []
    for stays in (history.stays, [*history.stays[:3], extra, *history.stays[3:]]):
        folder = tmp_path / str(len(found))
        folder.mkdir()
        found.append([rows_of(e) for e in read(write(History(stays), folder), folder)])
    for one, other in zip(*found, strict=True):
        assert one[:3] == other[:3]
        others = [row for row in other[3] if str(row["id"]) != "10000"]
        assert sorted(map(str, others)) == sorted(map(str, one[3]))
    steps = [other[0] for one, other in zip(*found, strict=True) if len(one[3]) != len(other[3])]
    assert set(steps) <= {2, 3, 4, 5}
    assert steps


def feed(tmp_path: Path, *lines: str, head: str = "when,op,id,group,size", **more: Any) -> SourceOptions:
    (tmp_path / "feed.csv").write_text("\n".join([head, *lines]) + "\n")
    return SourceOptions.parse({"path": "feed.csv", **FEED, **more})


@pytest.mark.parametrize(
    ("lines", "rules", "what"),
    [
        (("1,insert,7,a,1", "2,insert,7,b,2"), {"known": "error"}, "a present key"),
        (("1,insert,,a,1",), {}, "lacks a key"),
        (("1,,7,a,1",), {}, "unknown operation"),
        (("1,upsert,7,a,1",), {}, "unknown operation"),
        (("0,insert,7,a,1",), {}, "before the start"),
        (("1,insert,7,x,1",), {}, "group"),
    ],
)
def test_bad_input_of_a_feed_stops_by_the_declared_rule(
    lines: tuple[str, ...], rules: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with pytest.raises(DpstreamError, match=what) as caught:
        outcome(read(feed(tmp_path, *lines, **rules), tmp_path))
    assert "7" not in str(caught.value).replace("1 to 7", "").replace("step-7", "")


@pytest.mark.parametrize(
    ("more", "accepted"),
    [
        ({}, 'late = "next-step"'),
        ({"op_column": None, "insert_only": True}, 'late = "next-step" or "drop-and-count-nothing"'),
    ],
)
def test_an_early_record_is_told_what_accepts_it(more: dict[str, Any], accepted: str, tmp_path: Path) -> None:
    """Not the rule that a feed with deletes refuses: a late delete that is left out would leave its record."""
    with pytest.raises(DataError) as caught:
        outcome(read(feed(tmp_path, "0,insert,7,a,1", **more), tmp_path))
    assert caught.value.what == "found a record before the start"
    assert caught.value.allowed == f"[source] {accepted}"


def test_bad_input_of_a_feed_that_a_rule_takes(tmp_path: Path) -> None:
    lines = ("1,delete,7,,", "1,insert,8,a,1", "2,insert,8,b,2", "2,update,8,c,3", "3,update,9,a,1")
    found = outcome(read(feed(tmp_path, *lines, unknown="drop"), tmp_path))
    assert [len(keys) for keys, _, _ in found] == [1, 1, 0, 0, 0, 0, 0]
    assert found[1][2] == [[2, 3]]


def test_late_rows_of_a_feed(tmp_path: Path) -> None:
    """A row that comes after its step was read is an error, or counts at the next step."""
    first, late = ("1,insert,7,a,1", "2,insert,8,a,1"), "1,update,7,b,1"
    for rule in ("error", "next-step"):
        source = source_of(feed(tmp_path, *first, late=rule), base=tmp_path, columns=SCHEMA.names)
        _, seen, *_ = [source.position for _ in source.steps()]
        again = source_of(feed(tmp_path, *first, late, late=rule), base=tmp_path, columns=SCHEMA.names)
        if rule == "error":
            with pytest.raises(DataError, match="released step"):
                list(again.steps(3, seen=seen))
        else:
            assert next(again.steps(3, seen=seen)).keyed.events.column("id").to_pylist() == ["7"]


def test_rows_without_an_operation_are_what_their_record_is_now(tmp_path: Path) -> None:
    options = feed(tmp_path, "1,7,a,1", "2,7,b,2", "2,8,c,3", head="when,id,group,size", op_column=None)
    found = outcome(read(options, tmp_path))
    assert [len(keys) for keys, _, _ in found] == [1, 2, 0, 0, 0, 0, 0]


def snapshots(tmp_path: Path, *tables: str, **more: Any) -> SourceOptions:
    for number, rows in enumerate(tables, start=1):
        (tmp_path / f"t{number}.csv").write_text("id,group,size\n" + rows)
    given = {"path": "t*.csv", "every": "files", "key_column": "id", "shape": "snapshots"}
    return SourceOptions.parse({**given, **more})


def test_a_snapshot_whose_last_row_holds(tmp_path: Path) -> None:
    found = outcome(read(snapshots(tmp_path, "7,a,1\n7,b,2\n", repeated="last"), tmp_path))
    assert found[0][2] == [[1, 2]]


def stays(tmp_path: Path, *lines: str, **more: Any) -> SourceOptions:
    (tmp_path / "stays.csv").write_text("\n".join(["id,since,until,group,size", *lines]) + "\n")
    given = {"path": "stays.csv", "time_column": "since", "delete_time_column": "until", "shape": "stays"}
    days = {"every": "day", "start": "2026-01-05", "end": "2026-01-11", "key_column": "id"}
    return SourceOptions.parse({**given, **days, **more})


@pytest.mark.parametrize(
    ("lines", "more", "what"),
    [
        (("7,2026-01-06,2026-01-05,a,1",), {}, "an end precedes its start"),
        (("7,,2026-01-05,a,1",), {}, "expected a date or a time"),
        (("7,2026-01-06,soon,a,1",), {}, "expected a date or a time"),
        (("7,2026-01-05,2026-01-08,a,1", "7,2026-01-06,,b,1"), {}, "a present key"),
        (("7,2026-01-05,2026-01-08,a,1", "7,2026-01-06,,b,1"), {"late": "next-step"}, "several rows"),
        (("7,2026-01-05,2026-01-08,a,1", "7,2026-01-06,2026-01-06,b,1"), {}, "a present key"),
    ],
)
def test_bad_stays_stop(lines: tuple[str, ...], more: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=what):
        outcome(read(stays(tmp_path, *lines, **more), tmp_path))


def test_the_ends_of_stays(tmp_path: Path) -> None:
    """From before the start and still there: step 1. Over before the start: never. In the far future: still there."""
    lines = (
        "1,2020-01-01,,a,1",
        "2,2020-01-01,2025-12-31,a,1",
        "3,2026-01-05T08:00:00,9999-12-31,a,1",
        "4,2026-01-06,2026-01-06T20:00:00,a,1",
        "5,2026-01-06,2026-01-09,a,1",
        "5,2026-01-09,,b,2",
    )
    for late in ("error", "next-step"):
        found = outcome(read(stays(tmp_path, *lines, late=late), tmp_path))
        assert [present for _, present, _ in found] == [[True, True], [True], [], [], [True], [], []]
        assert found[4][2] == [[1, 2]]


def test_stays_of_one_key_that_are_over_within_a_step_leave_no_trace(tmp_path: Path) -> None:
    """Several of them, after a stay that ends there and before one that begins there."""
    over = ["7,2026-01-06,2026-01-06,b,1", "7,2026-01-06,2026-01-06,c,1"]
    for late in ("error", "next-step"):
        alone = outcome(read(stays(tmp_path, *over, late=late), tmp_path))
        assert [len(keys) for keys, _, _ in alone] == [0] * 7
        there = "9,2026-01-05,,a,1"  # a table that gets empty would stop
        lines = (there, "7,2026-01-05,2026-01-06,a,1", *over, "7,2026-01-06,2026-01-08,a,2")
        found = outcome(read(stays(tmp_path, *lines, late=late), tmp_path))
        assert [present for _, present, _ in found] == [[True, True], [True], [], [False], [], [], []]


def test_an_empty_text_keeps_the_value_in_csv_files_only(tmp_path: Path) -> None:
    """Other formats have nulls, and an empty text may be a declared value there."""
    options = feed(tmp_path, "1,insert,7,a,1", "2,update,7,,2", updates="changed")
    _, csv, *_ = read(options, tmp_path)
    assert csv.keyed.events["group"].to_pylist() == [None]
    table = {
        "when": [1, 2, 2],
        "op": ["insert", "update", "update"],
        "id": ["7", "7", "8"],
        "size": [1, 2, 3],
    }
    pq.write_table(pa.table({**table, "group": ["a", "", None]}), tmp_path / "feed.parquet")
    _, other, *_ = read(SourceOptions.parse({"path": "feed.parquet", **FEED, "updates": "changed"}), tmp_path)
    assert other.keyed.events["group"].to_pylist() == ["", None]


def test_a_late_end_stops_the_stream_or_counts_at_the_next_step(tmp_path: Path) -> None:
    there, open_ended, closed = "8,2026-01-05,,b,2", "7,2026-01-05,,a,1", "7,2026-01-05,2026-01-06,a,1"
    before = [rows_of(e) for e in read(stays(tmp_path, there, open_ended), tmp_path)]
    after = [rows_of(e) for e in read(stays(tmp_path, there, closed), tmp_path)]
    # The released step 2 has another content: the stream compares it, and stops.
    assert before[0] == after[0]
    assert before[1] != after[1]
    early = list(read(stays(tmp_path, there, open_ended, late="next-step"), tmp_path))[:3]
    late = list(read(stays(tmp_path, there, closed, late="next-step"), tmp_path))[3:]
    found = outcome([*early, *late])
    assert [present for _, present, _ in found[:5]] == [[True, True], [], [], [False], []]


def test_no_row_says_more_than_its_shape(tmp_path: Path) -> None:
    """Nothing of the rows is printed."""
    entry = next(iter(read(feed(tmp_path, "1,insert,7731,a,1"), tmp_path)))
    assert isinstance(entry.keyed, KeyedBatch)
    assert "7731" not in repr(entry)
    assert "7731" not in repr(entry.keyed)
