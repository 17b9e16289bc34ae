"""Names of periods on the command line: where they come from, and who reads them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from cli_stream import dpstream, status

from dpstream.io.sinks import read_changes, read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.project import Config

TRUTH = np.random.default_rng(5).random((40, 4)) < 0.4
MONTHS = ["2005-03", "2005-04", "2005-05", "2005-06"]
CALENDAR = 'time_column = "day"\nevery = "month"\nstart = "2005-03-01"\nend = "2005-06-30"'


def config(folder: Path, source: str, names: str = "") -> Path:
    path = folder / "dpstream.toml"
    path.write_text(
        '[stream]\nname = "poverty"\n'
        f'[source]\npath = "data/*.csv"\nuser_column = "household"\n{source}\n'
        '[schema.columns.poor]\ntype = "boolean"\n'
        f'[mechanism]\nname = "panel-window"\nwindow = 2\n{names}\n'
        '[budget]\nrho = "200"\nhorizon = 4\n[output]\nformat = "csv"\npublish = "both"\n',
        encoding="utf-8",
    )
    return path


def save_long(folder: Path) -> None:
    (folder / "data").mkdir()
    rows = [(f"h{i}", f"{MONTHS[m]}-17", int(TRUTH[i, m])) for m in range(4) for i in range(40)]
    with (folder / "data" / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("household", "day", "poor"), *rows])


def names_of(path: Path) -> object:
    return Config.load(path).plan().options().get("period_names")


def test_months_keep_their_names_and_everybody_reads_them(tmp_path: Path) -> None:
    save_long(tmp_path)
    made = config(tmp_path, CALENDAR)
    dpstream("run", made)
    assert status(made)["steps"] == 4
    table = read(tmp_path / "releases")
    assert [name for name in table.column_names if name.startswith("poor")] == [f"poor_{m}" for m in MONTHS]
    assert table.column_names[-1] == "weight_2005-06"
    assert set(read_changes(tmp_path / "releases", 4).column("period").to_pylist()) == {"2005-06"}
    dpstream("evaluate", made, "--out", tmp_path / "evaluation")
    with (tmp_path / "evaluation" / "steps.csv").open() as file:
        last = [row for row in csv.DictReader(file) if row["step"] == "4"]
    told = read_manifest(tmp_path / "releases", 4)["accuracy"]["panel"]["answers"]
    assert [float(row["released"]) for row in last] == [one["count"] for one in told]
    dpstream("report", made, "--out", tmp_path / "report.html")
    assert "Jun 2005" in (tmp_path / "report.html").read_text()
    dpstream("sample", made, "--step", "4", "--rows", "3", "--out", tmp_path / "some.csv")
    assert "poor_2005-06" in (tmp_path / "some.csv").read_text().splitlines()[0]


def test_names_come_from_public_facts_of_the_source(tmp_path: Path) -> None:
    assert names_of(config(tmp_path, CALENDAR)) == MONTHS
    assert names_of(config(tmp_path, 'period_columns = "p{period:02}"')) == ["01", "02", "03", "04"]
    listed = config(tmp_path, 'period_columns = ["nov", "dec", "jan", "feb", "mar"]')
    assert names_of(listed) == ["nov", "dec", "jan", "feb"]
    assert names_of(config(tmp_path, 'time_column = "month"\nstart = 7\nend = 9')) == ["7", "8", "9", "10"]
    own = config(tmp_path, 'every = "files"', 'period_names = ["a", "b", "c", "d"]')
    assert names_of(own) == ["a", "b", "c", "d"]
    # Where not all periods have names, all have numbers.
    assert names_of(config(tmp_path, 'every = "files"')) is None
    assert names_of(config(tmp_path, 'period_columns = ["jan", "feb"]')) is None
    # Numbers from 1 are what periods are called by anyway.
    assert names_of(config(tmp_path, 'period_columns = "{column}_{period}"')) is None
    assert names_of(config(tmp_path, 'time_column = "month"\nend = 9')) is None
