"""What the front's objects do and show: streams of every family, frames, released tables, notebooks, resumed runs."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpstream as dp
from dpstream.core.privacy import Randomness
from dpstream.tools.simulate import simulate

#: A column whose label and whose name would be markup, if they were not escaped.
BAD = "<script>alert('x')</script>"
SCHEMA = dp.Schema([dp.Categorical("a<b>", [BAD, "plain"], other="other"), dp.Boolean("paid")])
ROWS = {"a<b>": [BAD, "plain", "new"] * 40, "paid": [True, False, False] * 40}


def opened(folder: Path, seed: int = 1, **options: Any) -> Any:
    given = {"schema": SCHEMA, "epsilon": 2, "randomness": Randomness.seeded(seed), **options}
    return dp.open(folder, **given)


def test_every_kind_of_frame_is_the_same_batch(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    table = pa.table(ROWS)
    frames = [ROWS, table, pd.DataFrame(ROWS), pl.DataFrame(ROWS), duckdb.from_arrow(table), dp.Batch(ROWS)]
    with opened(tmp_path) as stream:
        first = stream.step(frames[0], name="one")
        for frame in frames[1:]:
            assert stream.step(frame, name="one").step == 1  # the stored release: nothing is drawn
        assert stream.step(None, name=datetime.date(2026, 1, 5)).batch_id == "2026-01-05"
        assert stream.step({"a<b>": [], "paid": []}, name=np.int64(7)).batch_id == "7"
        assert stream.last_step == 3
        with pytest.raises(dp.errors.StepError, match="other records"):
            stream.step(table.slice(1), name="one")
    assert first.table().equals(dp.read(tmp_path / "releases", step=1).table())
    assert isinstance(first.table(frame="pandas"), pd.DataFrame)
    assert pl.from_arrow(first.table()).equals(first.table(frame="polars"))
    with pytest.raises(dp.errors.ConfigError, match="unknown frame 'csv'"):
        first.table(frame="csv")
    read = dp.read(tmp_path / "releases", step=1)
    for release in (first, read):  # what other libraries take needs no conversion
        assert pa.table(release).equals(read.table())
        assert pl.DataFrame(release).equals(read.table(frame="polars"))
        assert duckdb.sql("SELECT COUNT(*) FROM release").fetchall() == [(read.table().num_rows,)]


def test_deletes_and_users_stand_beside_a_frame(tmp_path: Path) -> None:
    with opened(tmp_path / "deletes", deletions=True) as stream:
        stream.step(ROWS, name="1")
        assert stream.step(None, name="2", deletes=pa.table(ROWS).slice(0, 9)).step == 2
    ids = [f"u{i % 50}" for i in range(120)]
    with opened(tmp_path / "users", unit=dp.User(2)) as stream:
        release = stream.step(ROWS, name="1", users=ids)
    assert release.spent == dp.PureDP(2)


@pytest.mark.parametrize("approve", [False, True])
def test_a_table_of_persistent_records_is_the_published_one(tmp_path: Path, approve: bool) -> None:
    with opened(
        tmp_path, output={"records": "persistent", "publish": "changes", "approve": approve}
    ) as stream:
        for name in ("1", "2"):
            release = stream.step(ROWS, name=name)
        if approve:
            with pytest.raises(dp.errors.ConfigError):
                release.table()
            assert "<table>" not in release._repr_html_()
            stream.approve()
    assert release.table().equals(dp.read(tmp_path / "releases").table())


def test_what_a_person_reads_is_escaped_and_tells_no_number_of_records(tmp_path: Path) -> None:
    with opened(tmp_path, stream={"name": "<b>notices</b>"}) as stream:
        assert "0 steps, spent nothing" in repr(stream)
        release = stream.step(ROWS, name="owner's name")
        assert "1 steps, spent epsilon = 2 (pure)" in repr(stream)
        text, page = str(stream.plan), stream.plan._repr_html_()
    assert "closed" in repr(stream)
    assert "Plan of pooled" in text
    assert "measure: 1 x epsilon = 1.8 (pure)" in text
    pages = [page, release._repr_html_(), dp.read(tmp_path / "releases")._repr_html_()]
    for shown in pages:
        assert "<script>" not in shown
        assert "<b>" not in shown
        assert "owner" not in shown
    assert "a&lt;b&gt;" in page
    assert "&lt;b&gt;notices&lt;/b&gt;" in pages[1]
    assert "&lt;script&gt;" in pages[1]
    for shown in (repr(stream), text, page):
        assert "120" not in shown  # how many records came


def test_an_answer_from_the_folder_is_a_count_of_the_released_table(tmp_path: Path) -> None:
    schema = dp.Schema(
        [
            dp.Categorical("zip", ["a", "b"], other="other", missing="missing"),
            dp.Integer("age", min=0, max=9, other="odd", missing="unknown"),
            dp.Integer("rooms", min=1, max=3, other="more"),
        ]
    )
    rows = {"zip": ["a", "b", "c", None] * 50, "age": [1, 5, 99, None] * 50, "rooms": [1, 2, 3, 9] * 50}
    with dp.open(tmp_path, schema, epsilon=5, randomness=Randomness.seeded(4)) as stream:
        for name in ("1", "2"):
            stream.step(rows, name=name)
    release = dp.read(tmp_path / "releases")
    assert (release.step, release.steps) == (2, (1, 2))
    for step in (1, 2):
        table = release.table(step)
        rooms, zips = table.column("rooms").to_pylist(), table.column("zip").to_pylist()
        expected = sum(r == 1 and z == "a" for r, z in zip(rooms, zips, strict=True))
        assert release.answer("rooms = 1 and zip = 'a'", step).value == expected
    table = release.table()
    nulls = {name: table.column(name).null_count for name in ("age", "rooms")}
    assert min(nulls.values()) > 0
    assert release.answer("rooms = 'more'").value == nulls["rooms"]
    assert release.answer("age = 'odd' or age = 'unknown'").value == nulls["age"]
    with pytest.raises(dp.errors.ConfigError, match="both as null"):
        release.answer("age = 'odd'")
    path = tmp_path / "releases" / "step-000002" / "table.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(dp.errors.StoreDamagedError):
        release.answer("rooms = 1")


def test_a_run_of_a_file_goes_on_where_it_stopped(tmp_path: Path) -> None:
    config = dp.Config.load(simulate("evictions", 5, tmp_path / "x"))
    assert [release.step for release in dp.run(config, until=1, randomness=Randomness.seeded(1))] == [1]
    run = dp.run(config, randomness=Randomness.seeded(2))
    assert next(run).step == 2
    run.close()  # gives up the state: the next run can have it
    assert [release.step for release in dp.run(config, steps=2, randomness=Randomness.seeded(3))] == [3, 4]
    gone = tmp_path / "x" / "releases" / "step-000002"
    shutil.rmtree(gone)
    last = [(release.step, str(release.spent)) for release in dp.run(config, recheck=False)]
    assert last == [(5, "epsilon = 1 (pure)")]
    assert (gone / "manifest.json").is_file()  # published again from the store
    assert list(dp.run(config)) == []
    for wrong in ({"until": 0}, {"steps": "two"}, {"steps": True}):
        with pytest.raises(dp.errors.ConfigError, match="whole number"):
            dp.run(config, **wrong)
