"""Calendars against plain date arithmetic; whole files as tables."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError
from dpstream.io.sources import SourceOptions, read_table
from dpstream.io.sources.calendar import day_number, period_grid

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
    first = {
        every: period_grid(every, monday, "").batch_id(1) for every in ("day", "week", "14 days", "month")
    }
    assert first == {
        "day": "2020-01-06",
        "week": "2020-W02",
        "14 days": "2020-01-06_P14D",
        "month": "2020-01-06_P1M",
    }
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


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_table_without_records(tmp_path: Path, name: str) -> None:
    import pyarrow.parquet

    if name.endswith("csv"):
        (tmp_path / name).write_text("zip,rent\n")
    else:
        pyarrow.parquet.write_table(pa.table({"zip": pa.array([], pa.string())}), tmp_path / name)
    table = read_table(tmp_path / name)
    assert table.num_rows == 0
    assert table.schema.field("zip").type == pa.string()
