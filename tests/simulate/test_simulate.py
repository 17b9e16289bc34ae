"""The invented streams: repeatable, extendable, and as odd as they say."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpstream.core.errors import ConfigError
from dpstream.io.sources import FileSource, SourceOptions
from dpstream.io.sources.source import ReadOptions
from dpstream.project.schema_file import read_schema
from dpstream.tools.simulate import simulate

NAMES = ("census", "evictions", "points")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def read(folder: Path) -> pa.Table:
    strings = pyarrow.csv.ConvertOptions(
        column_types={"zip": pa.string(), "district": pa.string()}, strings_can_be_null=True
    )
    tables = [
        pyarrow.parquet.read_table(path)
        if path.suffix == ".parquet"
        else pyarrow.csv.read_csv(path, convert_options=strings)
        for path in sorted((folder / "data").iterdir())
    ]
    return pa.concat_tables(tables)


@pytest.mark.parametrize("name", NAMES)
def test_more_steps_continue_the_stream(name: str, tmp_path: Path) -> None:
    simulate(name, 15, tmp_path, rows_per_step=20)
    short = read(tmp_path)
    config = tmp_path / "dpstream.toml"
    config.write_text(
        config.read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "2"'), encoding="utf-8"
    )
    simulate(name, 60, tmp_path, rows_per_step=20)
    long = read(tmp_path)
    assert long.slice(0, len(short)) == short
    assert len(long) > 2 * len(short)
    text = config.read_text(encoding="utf-8")
    assert 'epsilon = "2"' in text
    fresh = simulate(name, 60, tmp_path / "fresh", rows_per_step=20)
    assert text == fresh.read_text(encoding="utf-8").replace('epsilon = "1"', 'epsilon = "2"')
    assert contents(fresh.parent / "data") == contents(tmp_path / "data"), "equal seeds give equal files"
    simulate(name, 5, tmp_path / "other", seed=1, rows_per_step=20)
    assert read(tmp_path / "other") != long.slice(0, len(read(tmp_path / "other")))


@pytest.mark.parametrize("name", NAMES)
def test_formats_hold_the_same_rows(name: str, tmp_path: Path) -> None:
    simulate(name, 14, tmp_path / "csv", rows_per_step=2)
    simulate(name, 14, tmp_path / "parquet", rows_per_step=2, file_format="parquet")
    assert read(tmp_path / "csv").to_pylist() == read(tmp_path / "parquet").to_pylist()


@pytest.mark.parametrize("name", NAMES)
def test_every_step_has_codes_and_every_declared_bin_is_met(name: str, tmp_path: Path) -> None:
    config = simulate(name, 80, tmp_path, file_format="parquet")
    schema = read_schema(config)
    schema.require_confirmed()
    options = SourceOptions.parse(tomllib.loads(config.read_text(encoding="utf-8"))["source"])
    steps = list(FileSource(options, ReadOptions(base=tmp_path)).steps())
    assert len(steps) == 80
    inserted = [schema.encode(step.inserts) for step in steps]
    assert all(len(codes) > 20 for codes in inserted)
    deletes = [len(schema.encode(step.deletes)) for step in steps if step.deletes is not None]
    assert (sum(deletes) > 0) == name.startswith("evictions")
    codes = np.concatenate(inserted)
    for i, column in enumerate(schema.columns):
        assert len(np.unique(codes[:, i])) == column.size, column.name


def test_withdrawals_repeat_rows_that_were_filed(tmp_path: Path) -> None:
    simulate("evictions", 60, tmp_path)
    rows = read(tmp_path).to_pylist()
    present: dict[tuple[object, ...], int] = {}
    deletes = 0
    for row in rows:
        key = tuple(value for column, value in row.items() if column not in ("op", "file_date"))
        present[key] = present.get(key, 0) + (1 if row["op"] == "insert" else -1)
        deletes += row["op"] == "delete"
        assert present[key] >= 0
    assert 0.02 < deletes / len(rows) < 0.3
    dates = [row["file_date"] for row in rows]
    assert dates == sorted(dates)


def test_policy_changes_and_composition_drifts(tmp_path: Path) -> None:
    simulate("evictions", 56, tmp_path / "evictions")
    table = read(tmp_path / "evictions")
    week = ((table["file_date"].to_numpy() - np.datetime64("2001-01-01")) / np.timedelta64(7, "D")).astype(
        int
    )
    unpaid = table["non_payment"].to_numpy()[table["op"].to_numpy() == "insert"]
    week = week[table["op"].to_numpy() == "insert"]
    assert unpaid[(week >= 40) & (week < 56)].mean() < 0.6 * unpaid[week < 40].mean()

    simulate("census", 240, tmp_path / "census")
    table = read(tmp_path / "census")
    step = table["step"].to_numpy()
    age = table["age"].to_numpy()
    assert np.nanmean(age[step >= 180]) > np.nanmean(age[step < 60]) + 5
    regions = table["region"].to_numpy()
    assert (regions[step == 1] == "north").mean() > 0.5 > 0.2 > (regions[step == 31] == "north").mean()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"name": "taxis"},
            "unknown example stream 'taxis' (allowed: evictions, census, points, panel, stock)",
        ),
        ({"steps": 0}, "steps: 0 is too small"),
        ({"rows_per_step": 0}, "rows_per_step: 0 is too small"),
        ({"name": "evictions", "steps": 1201}, "steps: 1201 is too large (allowed: at most 1200)"),
        ({"seed": -1}, "seed: -1 is too small"),
        ({"file_format": "xlsx"}, "unknown format 'xlsx' (allowed: csv, parquet)"),
    ],
)
def test_wrong_arguments(change: dict[str, object], message: str, tmp_path: Path) -> None:
    arguments: dict[str, object] = {"name": "census", "steps": 2, "out": tmp_path / "new", **change}
    with pytest.raises(ConfigError) as caught:
        simulate(**arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_other_content_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    simulate("census", 4, folder)
    before = contents(folder)
    with pytest.raises(ConfigError, match="holds another simulation"):
        simulate("census", 4, folder, seed=1)
    with pytest.raises(ConfigError, match="already holds 4 steps"):
        simulate("census", 3, folder)
    assert contents(folder) == before
    (folder / "simulation.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="holds no simulation"):
        simulate("census", 4, folder)
    with pytest.raises(ConfigError, match="is a file"):
        simulate("census", 4, folder / "simulation.json")
