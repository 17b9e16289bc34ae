"""Panels on the command line: wide and long files, names of periods, what is refused, and what is told."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_stream import dpstream, status
from small_configs import PAID, write_config, write_rows

from dpstream.io.sinks import read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.project import Config

TRUTH = np.random.default_rng(5).random((40, 6)) < 0.4
MARK = "marked-household"
NAMES = [f"{MARK}-{i}" for i in range(40)]
WIDE = 'period_columns = "{column}_{period:02}"'
LONG = 'time_column = "month"\nend = 6'
MONTHS = ["2005-03", "2005-04", "2005-05", "2005-06", "2005-07", "2005-08"]
CALENDAR = 'time_column = "month"\nevery = "month"\nstart = "2005-03-01"\nend = "2005-08-31"'


def config(folder: Path, source: str, *, form: str = "csv", stream: str = "", names: str = "") -> Path:
    (folder / "data").mkdir(exist_ok=True)
    return write_config(
        folder,
        stream=stream,
        source=f'path = "data/*.{form}"\nuser_column = "household"\n{source}',
        columns=PAID.replace("paid", "poor"),
        mechanism=f'name = "panel-window"\nwindow = 2\n{names}',
        budget='rho = "200"\nhorizon = 6',
        rest='[output]\nformat = "csv"\npublish = "both"',
    )


def save(folder: Path, name: str, columns: dict[str, Any], form: str = "csv") -> None:
    write = pyarrow.parquet.write_table if form == "parquet" else pyarrow.csv.write_csv
    write(pa.table(columns), folder / "data" / f"{name}.{form}")


def wide(folder: Path, months: int, form: str, people: slice = slice(None), name: str = "a") -> None:
    columns = {f"poor_{m:02}": TRUTH[people, m - 1].astype(int) for m in range(1, months + 1)}
    save(folder, name, {"household": NAMES[people], "ignored": ["x"] * len(NAMES[people]), **columns}, form)


def long(folder: Path, form: str, months: list[Any]) -> None:
    """One file of all months, in no order."""
    order = np.random.default_rng(1).permutation(240)
    month, who = order // 40, order % 40
    columns = {"household": [NAMES[i] for i in who], "month": [months[m] for m in month]}
    save(folder, "a", {**columns, "poor": TRUTH[who, month].astype(int)}, form)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("shape", ["wide", "long"])
def test_both_shapes_of_files_give_the_people_of_the_panel(tmp_path: Path, shape: str, form: str) -> None:
    """Oracle: with next to no noise and padding taken out, as many pairs of months as in the data."""
    source, unit = WIDE if shape == "wide" else LONG, 'unit = "individual-replace"'
    made = config(tmp_path, source, form=form, stream=unit)
    wide(tmp_path, 6, form) if shape == "wide" else long(tmp_path, form, list(range(1, 7)))
    shown = [dpstream(*words).output for words in (("check", made), ("run", made), ("status", made))]
    assert "6 new steps" in shown[1]
    table = read(tmp_path / "releases")
    fifth, last = (f"poor_0{t}" if shape == "wide" else f"poor_{t}" for t in (5, 6))
    codes = 2 * np.array(table.column(fifth).to_pylist()) + np.array(table.column(last).to_pylist())
    facts = read_manifest(tmp_path / "releases", 6)
    padding = facts["accuracy"]["panel"]["padding_of_a_pattern"]
    expected = np.bincount(2 * TRUTH[:, 4] + TRUTH[:, 5], minlength=4)
    assert np.abs(np.bincount(codes, minlength=4) - padding - expected).max() <= 3
    assert read_changes(tmp_path / "releases", 6).num_rows == table.num_rows == facts["rows_in_table"]
    public = b"".join(path.read_bytes() for path in (tmp_path / "releases").rglob("*") if path.is_file())
    assert all(MARK not in text for text in shown)
    assert MARK.encode() not in public
    # Asked again: compared, and nothing is drawn.
    assert "0 new steps" in dpstream("run", made).output


def test_a_panel_grows_by_columns_and_its_people_may_be_in_several_files(tmp_path: Path) -> None:
    made = config(tmp_path, WIDE)
    for months in (2, 3, 6):
        for name, people in (("a", slice(0, 25)), ("b", slice(25, None))):
            wide(tmp_path, months, "csv", people, name)
        dpstream("run", made)
        assert status(made)["steps"] == months
    assert status(made)["steps_left"] == 0
    assert json.loads(dpstream("plan", made, "--json").output)["panel"]["first_release"] == 2
    statement = dpstream("statement", made).output
    assert "never changes what was published" in " ".join(statement.split())


STOPS: dict[str, tuple[str, list[str], str]] = {
    "a gap": ("household,poor_01,poor_03", ["a,1,0"], "'poor_02'"),
    "no id column": ("who,poor_01", ["a,1"], "'household'"),
    "twice": ("household,poor_01", [f"{MARK},1", f"{MARK},0"], "report"),
    "nobody": ("household,poor_01", ['"",1'], "user id"),
    "somebody new": ("household,month,poor", [f"{MARK},1,1", f"{MARK},2,1", "b,2,1"], "first period"),
    "somebody gone": ("household,month,poor", [f"{MARK},1,1", "b,1,1", "b,2,1"], "person"),
}


@pytest.mark.parametrize("name", STOPS)
def test_data_that_do_not_fit_stop_check_and_run(tmp_path: Path, name: str) -> None:
    head, rows, words = STOPS[name]
    made = config(tmp_path, LONG.replace("6", "2") if "month" in head else WIDE)
    write_rows(tmp_path, "a.csv", head, rows)
    for verb in ("check", "run"):
        output = dpstream(verb, made, code=2, error=verb == "run").output
        assert words in output
        assert MARK not in output


def test_months_keep_their_names_and_everybody_reads_them(tmp_path: Path) -> None:
    made = config(tmp_path, CALENDAR)
    long(tmp_path, "csv", [f"{month}-17" for month in MONTHS])
    dpstream("run", made)
    table = read(tmp_path / "releases")
    assert [name for name in table.column_names if name.startswith("poor")] == [f"poor_{m}" for m in MONTHS]
    assert table.column_names[-1] == "weight_2005-08"
    assert set(read_changes(tmp_path / "releases", 6).column("period").to_pylist()) == {"2005-08"}
    dpstream("evaluate", made, "--out", tmp_path / "evaluation")
    with (tmp_path / "evaluation" / "steps.csv").open() as file:
        last = [row for row in csv.DictReader(file) if row["step"] == "6"]
    told = read_manifest(tmp_path / "releases", 6)["accuracy"]["panel"]["answers"]
    assert [float(row["released"]) for row in last] == [one["count"] for one in told]
    dpstream("report", made, "--out", tmp_path / "report.html")
    assert "Aug 2005" in (tmp_path / "report.html").read_text()
    dpstream("sample", made, "--step", 6, "--rows", 5, "--seed", 1, "--out", tmp_path / "some.csv")
    lines = (tmp_path / "some.csv").read_text().splitlines()
    assert len(lines) == 6
    assert "poor_2005-08" in lines[0]


def test_names_come_from_public_facts_of_the_source(tmp_path: Path) -> None:
    numbers = 'time_column = "month"\nstart = 7\nend = 9'
    listed = '["nov", "dec", "jan", "feb", "mar", "apr", "may"]'
    for source, names, wanted in (
        (CALENDAR, "", MONTHS),
        ('period_columns = "p{period:02}"', "", ["01", "02", "03", "04", "05", "06"]),
        (f"period_columns = {listed}", "", json.loads(listed)[:6]),
        (numbers, "", ["7", "8", "9", "10", "11", "12"]),
        ('every = "files"', 'period_names = ["a", "b", "c", "d", "e", "f"]', list("abcdef")),
        # Where not all periods have names, all have numbers.
        ('every = "files"', "", None),
        ('period_columns = ["jan", "feb"]', "", None),
        # Numbers from 1 are what periods are called by anyway.
        ('period_columns = "{column}_{period}"', "", None),
        ('time_column = "month"\nend = 9', "", None),
    ):
        plan = Config.load(config(tmp_path, source, names=names)).plan()
        assert plan.options().get("period_names") == wanted, source
