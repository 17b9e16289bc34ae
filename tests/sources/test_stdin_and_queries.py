"""Records on standard input and from a DuckDB query: what closes a step, what resumes, what is refused."""

from __future__ import annotations

import datetime
import io
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.io.sources import ReadOptions, SourceOptions, UnreadableError
from dpstream.io.sources import stdin as stdin_module
from dpstream.io.sources.query import QuerySource, duckdb_answer
from dpstream.io.sources.stdin import StdinSource

duckdb = pytest.importorskip("duckdb")
SECRET = "Q7731"
FEED: dict[str, Any] = {"path": "-", "time_column": "when", "end": "data"}
Lines = list[dict[str, Any]]


def zips(step: Any) -> tuple[list[str], list[str] | None]:
    return step.inserts["zip"].to_pylist(), None if step.deletes is None else step.deletes["zip"].to_pylist()


def piped(
    lines: Lines | bytes, start_step: int = 1, *, today: str = "2026-03-01", **changes: Any
) -> list[Any]:
    data = lines if isinstance(lines, bytes) else "".join(json.dumps(line) + "\n" for line in lines).encode()
    source = StdinSource(
        SourceOptions.parse({**FEED, **changes}), ReadOptions(columns=["zip"]), stream=io.BytesIO(data)
    )
    source.today = datetime.date.fromisoformat(today)
    return [(step.step, *zips(step)) for step in source.steps(start_step, seen=None)]


def rows(*pairs: tuple[Any, str]) -> Lines:
    return [{"when": when, "zip": value} for when, value in pairs]


@given(st.lists(st.integers(1, 7), max_size=30), st.integers(1, 400), st.sampled_from(["hold", "close"]))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_steps_close_as_a_plain_loop_closes_them(jumps: list[int], block: int, eof: str) -> None:
    """Whatever the pieces in which the pipe hands out its bytes; late records go to the open step."""
    expected: dict[int, list[str]] = {}
    current = 0
    for i, when in enumerate(jumps):
        current = max(current or 1, when)
        expected.setdefault(current, []).append(f"v{i}")
    last = current if eof == "close" else current - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stdin_module, "_READ", block)
        lines = rows(*((when, f"v{i}") for i, when in enumerate(jumps)))
        lines = [{"end_of_step": 0}, *lines] if jumps else []
        found = piped(lines, late="next-step", eof=eof)
    assert found == [(n, expected.get(n, []), None) for n in range(1, last + 1)]


def test_marks_operations_calendars_and_missing_keys() -> None:
    day = {"every": "day", "start": "2026-01-05", "end": "today", "op_column": "op"}
    lines: Lines = [
        {"when": "2026-01-05", "op": "insert", "zip": "a"},
        {"op": "update-before", "when": "2026-01-05T12:00:00"},
        {"end_of_step": "2026-01-06"},
        {"when": "2026-01-07", "op": "insert", "zip": "c"},
        {"end_of_step": "2026-01-05"},
    ]
    assert piped(lines, **day) == [(1, ["a"], [None]), (2, [], [])]
    assert piped(lines, eof="close", **day)[2] == (3, ["c"], [])
    assert piped(lines, eof="close", today="2026-01-07", **day)[2:] == [], "the period is not over"
    with pytest.raises(DataError, match="a step that has not begun"):
        piped(lines, today="2026-01-06", **day)
    assert [s[0] for s in piped(rows((1, "a"), (2, "b"), (9, "c")), end=2)] == [1, 2], "a public end"
    assert piped([], eof="close") == piped(b"\n\n", eof="close", end=5) == []


def test_resuming_a_pipe() -> None:
    replay = rows((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    whole = [(n, [v], None) for n, v in enumerate("abc", 1)]
    assert piped(replay, 3) == whole, "released steps are handed out to be compared"
    assert piped(replay, 3, late="drop-and-count-nothing") == whole[2:]
    assert piped(replay[2:], 3) == whole[2:]
    with pytest.raises(StepError, match="the input repeats a released step"):
        piped(replay, 3, late="next-step")
    with pytest.raises(StepError, match="the input begins after step 2"):
        piped(replay[2:], 2)
    assert piped([{"end_of_step": 2}, *replay[2:]], 2) == [(2, [], None), whole[2]]


def test_bad_lines_are_told_without_a_value() -> None:
    late = rows((2, SECRET), (1, SECRET))
    for lines, message in (
        (late, "a record of a closed step, or before the start"),
        (rows((1, SECRET), (10**9, SECRET)), "has not begun"),
        (rows((SECRET, "a")), "expected step numbers"),
        ([{"zip": SECRET}], "a time is missing"),
        (
            f'{{"when": 1, "zip": "{SECRET}"}}\n{{"when": 2, "zip": "{SECRET}'.encode(),
            "expected JSON objects",
        ),
        (b'{"when": 1, "zip": "\xff' + SECRET.encode() + b'"}\n', "not UTF-8"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            piped([{"end_of_step": 0}, *lines] if isinstance(lines, list) else lines)  # type: ignore[arg-type, list-item]
        assert SECRET not in str(caught.value)
        assert "standard input" in str(caught.value)
    assert "is what closes a step" in " ".join(SourceOptions.parse(FEED).declared_public())


def make_database(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (day DATE, op TEXT, zip TEXT, rent DECIMAL(9, 2))")
        connection.execute(
            "INSERT INTO t VALUES ('2026-01-05', 'insert', 'a', 1.5), ('2026-01-06', 'delete', 'a', 1.5), "
            f"('2026-01-06', 'insert', '{SECRET}', NULL), ('2026-01-08', 'insert', 'late', 2)"
        )


QUERY: dict[str, Any] = {
    "kind": "duckdb",
    "database": "t.duckdb",
    "query": "SELECT op, zip, rent FROM t WHERE day >= ? AND day < ?",
    "every": "day",
    "start": "2026-01-05",
    "end": "today",
    "op_column": "op",
}


def asked(folder: Path, first: int = 1, *, today: str = "2026-01-08", **changes: Any) -> list[Any]:
    options = SourceOptions.parse({**QUERY, **changes})
    source = QuerySource(options, partial(duckdb_answer, options, folder))
    source.today = datetime.date.fromisoformat(today)
    return [(step.batch_id, *zips(step)) for step in source.steps(first)]


def test_a_query_is_asked_once_for_each_period_that_is_over(tmp_path: Path) -> None:
    make_database(tmp_path / "t.duckdb")
    everything = [("2026-01-05", ["a"], []), ("2026-01-06", [SECRET], ["a"]), ("2026-01-07", [], [])]
    assert asked(tmp_path) == everything
    assert asked(tmp_path, 2) == everything[1:]
    assert asked(tmp_path, today="2026-01-06") == everything[:1]
    assert asked(tmp_path, today="2026-01-05") == []
    number = {"query": "SELECT zip FROM t WHERE day(day) >= $1 AND day(day) < $2", "every": None}
    assert asked(tmp_path, **number | {"start": 5, "end": 6, "op_column": None}) == [  # type: ignore[arg-type]
        ("step-5", ["a"], None),
        ("step-6", ["a", SECRET], None),
    ]


def test_the_zone_of_the_process_moves_no_record_to_another_step(tmp_path: Path) -> None:
    """Another machine, or cron in the place of a shell: moments stay on the days that they have in UTC."""
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE t (moment TIMESTAMPTZ, zip TEXT)")
        connection.execute("INSERT INTO t VALUES ('2026-01-05 01:00+00', 'a'), ('2026-01-05 15:30+00', 'b')")
        connection.execute("INSERT INTO t VALUES ('2026-01-06 23:30+00', 'c')")
    query = "SELECT zip, strftime(moment, '%H') AS hour FROM t WHERE moment >= ? AND moment < ?"
    options = {**QUERY, "query": query, "op_column": None, "start": "2026-01-04", "end": "2026-01-07"}
    ask = f"""
from dpstream.io.sources import SourceOptions, open_source
for step in open_source(SourceOptions.parse({options!r})).steps():
    print(step.batch_id, step.inserts.to_pylist())
"""
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = run([sys.executable, "-c", ask], env=os.environ | {"TZ": "Asia/Tokyo"}).stdout
    assert "2026-01-05 [{'zip': 'a', 'hour': '01'}, {'zip': 'b', 'hour': '15'}]" in said
    assert "2026-01-06 [{'zip': 'c', 'hour': '23'}]" in said


def test_queries_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with pytest.raises(UnreadableError, match="file missing"):
        asked(tmp_path)
    make_database(path)
    for query, kind, message in (
        ("SELECT * FROM t WHERE day >= ?", ConfigError, "the query has 1 parameter"),
        ("SELECT ?, ?; SELECT 1", ConfigError, "the query has 2 statements"),
        ("SELECT zip FROM missing WHERE a >= ? AND a < ?", ConfigError, "CatalogException"),
        (
            "SELECT zip::INT AS zip FROM t WHERE day >= ? AND day < ?",
            DataError,
            "fails on the data .Conversion",
        ),
        ("SELECT zip FROM t WHERE day >= ? AND day < ?", DataError, "unknown column 'op'"),
        ("SELECT zip, zip AS op FROM t WHERE day >= ? AND day < ?", DataError, "unknown operation"),
    ):
        with pytest.raises(kind, match=message) as caught:
            asked(tmp_path, query=query)
        assert SECRET not in str(caught.value)
        assert "'a'" not in str(caught.value)
    path.write_bytes(b"no database")
    with pytest.raises(UnreadableError, match="unknown database format"):
        asked(tmp_path)
    other = SourceOptions.parse({**QUERY, "query": "SELECT 1 WHERE ? < ?"}).pinned()
    assert other != SourceOptions.parse(QUERY).pinned()
    assert "FROM t" not in json.dumps(SourceOptions.parse(QUERY).pinned())
