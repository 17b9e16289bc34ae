"""Files into steps: every format against a plain oracle, resuming, late records, bounded memory; calendars against
plain date arithmetic; whole files as tables."""

from __future__ import annotations

import datetime
import gzip
import itertools
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from row_files import source_of, write_rows

from dpstream.core.errors import ConfigError, DataError, StepError
from dpstream.io.sources import (
    FileSource,
    SourceOptions,
    StepInput,
    UnreadableError,
    formats,
    read_table,
)
from dpstream.io.sources import files as files_module
from dpstream.io.sources.calendar import day_number, period_grid
from dpstream.io.sources.pieces import StepRows

START = datetime.date(1997, 1, 2)
TODAY = datetime.date(2020, 1, 1)


def write(path: Path, rows: Sequence[Any], names: Sequence[str] = ("when", "op", "zip")) -> None:
    """Rows of a day or number, an operation and a value."""
    write_rows(path, [dict(zip(names, row, strict=True)) for row in rows], names)


def values(table: Any) -> list[str]:
    return [] if table is None else table.column("zip").to_pylist()


def contents(steps: Iterator[StepInput]) -> dict[int, tuple[str, list[str], list[str]]]:
    return {s.step: (s.batch_id, values(s.inserts), values(s.deletes)) for s in steps}


def weekly(pattern: str = "*", **changes: Any) -> SourceOptions:
    table = {"time_column": "when", "every": "week", "start": str(START), "end": "data", "op_column": "op"}
    return SourceOptions.parse({"path": pattern, **table, **changes})


def numbered(**changes: Any) -> SourceOptions:
    return SourceOptions.parse(
        {"path": "*", "time_column": "when", "end": "data", "op_column": "op", **changes}
    )


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["insert", "delete"])), max_size=12),
        min_size=1,
        max_size=3,
    ).filter(any),
    st.integers(1, 11),
    st.sampled_from(["csv", "csv.gz", "parquet", "ndjson", "ndjson.gz"]),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_order_of_records_gives_the_same_steps(files: Any, start_step: int, ending: str) -> None:
    """Unsorted records over several files, tiny blocks, started anywhere: always what a plain loop gives."""
    serial = itertools.count()
    tables = [[(step, op, f"v{next(serial)}") for step, op in rows] for rows in files]
    if ending.startswith("ndjson"):
        tables = [rows or [(0, "insert", "v-1")] for rows in tables]
    everything = [row for rows in tables for row in rows]
    last = max(row[0] for row in everything)
    expected = {
        n + 1: (
            f"step-{n}",
            [v for step, op, v in everything if step == n and op == "insert"],
            [v for step, op, v in everything if step == n and op == "delete"],
        )
        for n in range(start_step - 1, last + 1)
    }
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_BLOCK_ROWS", 3)
        patch.setattr(formats, "_BLOCK_BYTES", 64)
        for i, rows in enumerate(tables):
            write(Path(folder) / f"part-{i}.{ending}", rows)
        source = source_of(numbered(start=0), base=folder)
        source.today = TODAY
        assert contents(source.steps(start_step)) == expected
        assert "v0" not in repr(next(source.steps()))
        assert contents(source.steps(start_step, seen=source.position)) == expected
        assert sum(source.position.values()) == len(everything)


def test_records_that_come_late(tmp_path: Path) -> None:
    rows = [(1, "insert", "a"), (2, "insert", "b"), (4, "insert", "early")]
    write(tmp_path / "a.csv", rows)
    first = source_of(numbered(end=2), base=tmp_path)
    assert contents(first.steps())[2] == ("step-2", ["b"], [])
    seen = json.loads(json.dumps(first.position))
    assert seen == {"a.csv": 3}
    following = source_of(numbered(end=2, late="next-step"), base=tmp_path)
    list(following.steps())
    followed = following.position
    # An appended and a new file, each with a record of a released step.
    write(tmp_path / "a.csv", [*rows, (3, "insert", "c"), (1, "delete", "late1")])
    write(tmp_path / "b.csv", [(2, "insert", "late2"), (3, "insert", "d")])

    def run(late: str, seen: Any, *, reveal: bool = False) -> Any:
        source = source_of(numbered(late=late), base=tmp_path, reveal=reveal)
        return contents(source.steps(3, seen=seen))

    with pytest.raises(DataError, match=r"a\.csv: found a record of a released step"):
        run("error", seen)
    with pytest.raises(DataError, match=r"a\.csv, record 5: found a record of a released step"):
        run("error", seen, reveal=True)
    early = ("step-4", ["early"], [])
    assert run("next-step", followed) == {3: ("step-3", ["c", "late2", "d"], ["late1"]), 4: early}
    assert run("drop-and-count-nothing", seen) == {3: ("step-3", ["c", "d"], []), 4: early}
    # Without a memory, records of earlier steps count as released.
    assert run("error", None) == {3: ("step-3", ["c", "d"], []), 4: early}
    with pytest.raises(StepError, match="lost records"):
        run("error", {"a.csv": 6})


def test_a_moved_record_does_not_pass_for_a_late_one(tmp_path: Path) -> None:
    """It would be counted twice, and one event would be in two steps."""
    rows = [(1, "insert", f"v{i}") for i in range(3)]
    path = tmp_path / "a.csv"
    write(path, rows)
    source = source_of(numbered(late="next-step"), base=tmp_path)
    assert len(list(source.steps())) == 1
    seen = source.position
    write(path, [*rows, (2, "insert", "w")])
    assert contents(source.steps(2, seen=seen)) == {2: ("step-2", ["w"], [])}
    write(path, [(1, "insert", "inserted in front"), *rows, (2, "insert", "w")])
    with pytest.raises(StepError, match=r"a\.csv: the file is gone, or its read part changed"):
        source.steps(2, seen=seen)
    write(tmp_path / "b.csv", rows)
    path.unlink()
    with pytest.raises(StepError, match="its read part changed"):
        source.steps(2, seen=seen)
    write(path, rows)
    with pytest.raises(StepError, match="its read part changed"):  # a memory from another setting of late
        source.steps(2, seen={"a.csv": 3})


def test_records_before_the_start(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", [(0, "insert", "zero"), (1, "insert", "one")])
    with pytest.raises(DataError, match=r"a\.csv: found a record before the start"):
        source_of(numbered(), base=tmp_path).steps()
    source = source_of(numbered(late="next-step"), base=tmp_path)
    assert contents(source.steps()) == {1: ("step-1", ["zero", "one"], [])}


def test_a_period_is_handed_out_once_it_is_over(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", [(START, "insert", "a"), (datetime.date(2050, 1, 1), "insert", "misprint")])

    def count(today: str, **changes: Any) -> int:
        source = source_of(weekly(**changes), base=tmp_path)
        source.today = datetime.date.fromisoformat(today)
        return len(list(source.steps()))

    assert count("1997-01-08") == 0  # the last day of the first week is not over
    assert count("1997-01-09") == 1
    assert count("1997-02-01", end="today") == 4
    assert count("1997-02-01", end="1997-01-10") == 2
    assert count("1996-01-01", end="today") == 0


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each file is a step: ``test_a_position_in_many_files_stays_small_and_notices_every_other_file``."""
    monkeypatch.setattr(formats, "_BLOCK_ROWS", 4)
    monkeypatch.setattr(formats, "_BLOCK_BYTES", 50)
    rows = [(i, "insert", f"v{i}") for i in range(17)]
    write(tmp_path / f"a.{ending}", rows[:7])
    write(tmp_path / f"b.{ending}", rows[7:])
    source = source_of({"path": "*", "rows": 5, "op_column": "op"}, base=tmp_path)
    assert contents(source.steps()) == {
        k: (f"block-{k}", [f"v{i}" for i in range(5 * k - 5, 5 * k)], []) for k in (1, 2, 3)
    }
    assert contents(source.steps(3)) == {3: ("block-3", [f"v{i}" for i in range(10, 15)], [])}
    seen = source.position
    assert seen == {f"a.{ending}": 7}
    with pytest.raises(StepError, match="the number of released records changed"):
        list(source.steps(3, seen={f"a.{ending}": 6}))
    write(tmp_path / f"_new.{ending}", rows[:1])
    with pytest.raises(StepError, match="the file or an earlier one is gone, or a new file sorts before it"):
        list(source.steps(2, seen=seen))


def test_a_position_in_many_files_stays_small_and_notices_every_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each file is a step, by what is kept with a step."""
    names = [f"{i:03d}.csv" for i in range(40)]
    for i, name in enumerate(names):
        write(tmp_path / name, [(i, "insert", f"v{i}")])

    def source() -> FileSource:
        return source_of({"path": "*", "every": "files"}, base=tmp_path)

    def positions() -> Iterator[dict[str, int]]:
        one = source()
        for _ in one.steps(key=b"secret"):
            yield json.loads(json.dumps(one.position))

    found = list(positions())
    assert {len(one) for one in found} == {2}
    assert len({len(json.dumps(one)) for one in found}) < 6, "but for the digits of numbers"
    opened: list[str] = []
    named = files_module.column_names
    monkeypatch.setattr(
        files_module, "column_names", lambda path, **more: (opened.append(path.name), named(path, **more))[1]
    )
    for done in (1, 17, 39):
        opened.clear()
        steps = list(source().steps(done + 1, seen=found[done - 1], key=b"secret"))
        assert [(one.step, one.batch_id, one.period, values(one.inserts), one.deletes) for one in steps] == [
            (number + 1, names[number], None, [f"v{number}"], None) for number in range(done, 40)
        ]
        assert opened == ["000.csv", *names[done:]], "the others were looked at when they were read"
    seen = found[16]

    def refused(words: str, seen: dict[str, int] = seen) -> None:
        with pytest.raises(StepError, match=words):
            list(source().steps(18, seen=seen, key=b"secret"))

    gone = "the file or an earlier one is gone, or a new file sorts before it"
    for old, new in (("005.csv", "005b.csv"), ("016.csv", "016b.csv"), ("003.csv", "050.csv")):
        (tmp_path / old).rename(tmp_path / new)
        refused(gone)
        (tmp_path / new).rename(tmp_path / old)
    write(tmp_path / "0000.csv", [(1, "insert", "x")])
    refused(r"0000.csv: .*sorts before")
    (tmp_path / "0000.csv").unlink()
    assert len(list(source().steps(18, seen=seen, key=b"secret"))) == 23
    refused(gone, {"000.csv": 1})


def test_sorted_files_are_read_with_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_BLOCK_ROWS", 500)
    for part in range(4):
        write(tmp_path / f"{part}.parquet", [(part * 50 + i // 100, "insert", "v") for i in range(5000)])
    waiting: list[int] = []

    class Watched(StepRows):
        def add(self, table: Any, deletes: Any, *, steps: Any, source: int = 0) -> None:
            super().add(table, deletes, steps=steps, source=source)
            waiting.append(sum(t.num_rows for tables in self._waiting.values() for _, t in tables))

    monkeypatch.setattr(files_module, "StepRows", Watched)
    sizes = [s.inserts.num_rows for s in source_of(numbered(start=0), base=tmp_path).steps()]
    assert sizes == [100] * 200
    assert len(waiting) >= 40
    assert max(waiting) <= 600


_FORMS: dict[str, Any] = {
    "days": pa.array([datetime.date(1997, 1, 1)]),
    "stamps": pa.array([datetime.datetime(1997, 1, 1, 23, 59)], pa.timestamp("ns")),
    "texts": ["1997-01-01 23:59"],
    "zoned": pa.array([datetime.datetime(1997, 1, 1, 23, 59)], pa.timestamp("ns", "UTC")),
    "offsets": ["1997-01-02T00:30:00+01:00"],
}


@pytest.mark.parametrize("first", _FORMS)
@pytest.mark.parametrize("second", _FORMS)
def test_times_have_an_offset_in_all_files_or_in_none(tmp_path: Path, first: str, second: str) -> None:
    """A moment lies on one day in UTC and on another as it stands, so that it could be counted on both."""
    for name, form in (("a", first), ("b", second)):
        table = pa.table({"when": _FORMS[form], "op": ["insert"], "zip": [name]})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    zoned = [form in ("zoned", "offsets") for form in (first, second)]
    for offsets in (False, True):
        source = source_of(
            weekly(every="day", start="1997-01-01", offsets=offsets, path="*.parquet"), base=tmp_path
        )
        source.today = TODAY
        if zoned == [offsets, offsets]:
            assert contents(source.steps())[1] == ("1997-01-01", ["a", "b"], [])
        else:
            said = "a time lacks an offset" if offsets else "a time has an offset"
            with pytest.raises(DataError, match=rf"'when': {said} .*offsets = true"):
                list(source.steps())


def test_far_away_step_numbers_are_refused(tmp_path: Path) -> None:
    for number in (10**9, 9 * 10**17):
        write(tmp_path / "a.csv", [(1, "insert", "a"), (number, "insert", "b")])
        with pytest.raises(DataError, match="more than 1000000 steps"):
            source_of(numbered(), base=tmp_path).steps()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    "cut",
    [
        {"time_column": "when", "end": "data", "op_column": "op"},
        {"rows": 2, "op_column": "op"},
        {"user_column": "w0", "period_columns": ["w1", "w2"]},
    ],
)
def test_files_that_exchange_places_during_a_reading_give_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, cut: dict[str, Any]
) -> None:
    """Neither their sizes nor the times of writing tell them apart. The negative control: a new file that comes during
    the reading stops nothing, and waits for the next one."""
    names = ("w0", "w1", "w2") if "period_columns" in cut else ("when", "op", "zip")
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    real = files_module.blocks

    def blocks(path: Path, **options: Any) -> Iterator[Any]:
        yield from real(path, **options)
        if path == paths[0] and not (tmp_path / "c").exists():
            during[-1]()

    def swap() -> None:
        paths[0].rename(tmp_path / "c")
        paths[1].rename(paths[0])
        (tmp_path / "c").rename(paths[1])
        (tmp_path / "c").touch()

    monkeypatch.setattr(files_module, "blocks", blocks)
    during = [swap]
    for stops in (False, True):
        during[1:] = [] if stops else [lambda: write(tmp_path / f"z.{ending}", [], names)]
        for number, path in enumerate(paths):
            write(path, [(i + 1, ("insert", "delete")[number], "12"[number]) for i in range(4)], names)
            os.utime(path, (0, 0))
        source = source_of({"path": "[ab].*", **cut}, base=tmp_path, columns=["zip"])
        if not stops:
            assert list(source.steps())
            continue
        with pytest.raises(UnreadableError, match="the file changed during reading"):
            list(source.steps())


FEED = [
    (1, "insert", "a"),
    (1, "insert", "b"),
    (2, "update-before", "a"),
    (2, "update-after", "c"),
    (3, "delete", "b"),
    (4, "update-before", "c"),
]
OF_WORDS: dict[str, Any] = {"path": "*.csv", "time_column": "when", "end": "data", "op_column": "op"}


def fed(folder: Path, **changes: Any) -> list[tuple[list[str], list[str]]]:
    source = source_of({**OF_WORDS, **changes}, base=folder)
    return [(s.inserts["zip"].to_pylist(), s.deletes["zip"].to_pylist()) for s in source.steps()]


def write_feed(folder: Path, words: dict[str, str]) -> None:
    write(folder / "feed.csv", [(when, words.get(op, op), value) for when, op, value in FEED])


def test_an_update_is_a_delete_and_an_insert(tmp_path: Path) -> None:
    """Each half counts by itself: the last update's second half is missing, and no other record notices."""
    expected = [(["a", "b"], []), (["c"], ["a"]), ([], ["b"]), ([], ["c"])]
    write_feed(tmp_path, {})
    assert fed(tmp_path) == expected
    own = {"insert": "r", "update-before": "ub", "update-after": "ua", "delete": "d"}
    write_feed(tmp_path, own)
    assert fed(tmp_path, op_values={"insert": ["r", "ua"], "delete": ["d", "ub"]}) == expected
    with pytest.raises(DataError, match=r"feed\.csv, column 'op': unknown operation \(allowed: insert, upd"):
        fed(tmp_path)
    with pytest.raises(DataError, match=r"unknown operation \(allowed: r, d, ub\)"):
        fed(tmp_path, op_values={"insert": "r", "delete": ["d", "ub"]})


def test_a_word_that_does_not_say_what_the_old_row_was(tmp_path: Path) -> None:
    write_feed(tmp_path, {"update-after": "update"})
    with pytest.raises(DataError, match=r"an update lacks the old row.*update-before"):
        fed(tmp_path)
    for table, message in (
        ({"insert": ["c", "update"], "delete": "d"}, "an 'update' row lacks the old row"),
        ({"insert": ["c", "x"], "delete": ["x"]}, "the word 'x' stands in two lists"),
        ({"insert": ["c"], "delete": []}, "expected a text or texts"),
        ("c", "expected lists of words: insert, delete"),
    ):
        with pytest.raises(ConfigError, match=message):
            fed(tmp_path, op_values=table)


def test_the_words_are_pinned_where_they_differ_from_the_usual_ones() -> None:
    """A stream that was started before there were words has no such key, and still opens."""
    plain = SourceOptions.parse(OF_WORDS).pinned()
    assert "op_values" not in plain
    usual = {"delete": ["update-before", "delete"], "insert": ["update-after", "insert"]}
    assert SourceOptions.parse({**OF_WORDS, "op_values": usual}).pinned() == plain
    words = {"insert": ["ua", "r"], "delete": "d"}
    own = json.loads(json.dumps(SourceOptions.parse({**OF_WORDS, "op_values": words}).pinned()))
    assert own == {**plain, "op_values": {"insert": ["r", "ua"], "delete": ["d"]}}


# Calendars, and whole files as tables


DAYS = st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))
EVERY = st.sampled_from(["day", "week", "14 days", "2 weeks", "month", "3 months", "12 months"])


@given(DAYS, st.lists(DAYS, min_size=1), EVERY)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
def test_every_day_lies_in_its_period(start: datetime.date, days: list[datetime.date], every: str) -> None:
    grid = period_grid(every, start.replace(day=min(start.day, 28)), "[source]")
    steps = grid.steps(np.array([day_number(day) for day in days]))
    for day, step in zip(days, steps.tolist(), strict=True):
        first, after = grid.period(step)  # type: ignore[misc]
        assert first <= day < after
        assert grid.step(day_number(day)) == step
        assert grid.period(step + 1)[0] == after  # type: ignore[index]
        assert grid.closed(after) == step
        assert grid.closed(after - datetime.timedelta(days=1)) == step - 1
    assert grid.period(1)[0] == start.replace(day=min(start.day, 28))  # type: ignore[index]
    names = [grid.batch_id(step) for step in range(1, 200)]
    assert len(set(names)) == len(names)


def test_names_of_periods() -> None:
    monday = datetime.date(2020, 1, 6)
    names = {"day": "2020-01-06", "week": "2020-W02", "14 days": "2020-01-06_P14D", "month": "2020-01-06_P1M"}
    assert {every: period_grid(every, monday, "").batch_id(1) for every in names} == names
    assert period_grid("month", datetime.date(2020, 1, 1), "").batch_id(13) == "2021-01"


@pytest.mark.parametrize("every", ["month", "week", "day", "3 months"])
def test_a_calendar_ends_with_the_year_9999(every: str) -> None:
    grid = period_grid(every, datetime.date(2026, 1, 5), "[source]")
    last = grid.step(day_number(datetime.date.max))
    assert grid.period(last - 1)[1] <= datetime.date.max
    with pytest.raises(ConfigError, match="lies beyond the year 9999"):
        grid.period(last)
    given = {"path": "d.csv", "time_column": "day", "every": every, "start": "2026-01-05"}
    with pytest.raises(ConfigError, match="lies beyond the year 9999"):
        SourceOptions.parse({**given, "end": "9999-12-31"})
    assert SourceOptions.parse({**given, "end": "9999-06-30"}).final_step()


def test_cells_of_a_csv_are_text(tmp_path: Path) -> None:
    text = '\ufeffzip,rent,note\n07001,5,"a ""quoted"", text"\n,6,\n'
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    plain = read_table(path)
    assert plain.to_pydict() == {
        "zip": ["07001", ""],
        "rent": ["5", "6"],
        "note": ['a "quoted", text', ""],
    }
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()[:40]) + gzip.compress(text.encode()[40:]))
    assert read_table(tmp_path / "a.csv.gz").equals(plain)


def test_ndjson_fills_missing_keys_with_nulls(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"zip": "1", "rent": 5}\n\n{"rent": 6.5, "paid": true}\n')
    assert read_table(path).to_pydict() == {"zip": ["1", None], "rent": ["5", "6.5"], "paid": [None, "true"]}
