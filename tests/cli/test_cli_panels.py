"""Panels on the command line: wide and long files, what is refused, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_stream import dpstream, status
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.io.sinks import read_changes
from dpstream.io.sinks import read_table as read

TRUTH = np.random.default_rng(5).random((40, 6)) < 0.4
NAMES = [f"marked-household-{i}" for i in range(40)]
WIDE = 'user_column = "household"\nperiod_columns = "{column}_{period:02}"'
LONG = 'user_column = "household"\ntime_column = "month"\nend = 6'
MARK = "marked-household"


def config(
    folder: Path, source: str, *, form: str = "csv", mechanism: str = "", stream: str = "", more: str = ""
) -> Path:
    path = folder / "dpstream.toml"
    chosen = mechanism or 'name = "panel-window"\nwindow = 2'
    path.write_text(
        f'[stream]\nname = "poverty"\n{stream}\n[source]\npath = "data/*.{form}"\n{source}\n'
        f'[schema.columns.poor]\ntype = "boolean"\n{more}\n'
        f"[mechanism]\n{chosen}\n"
        '[budget]\nrho = "200"\nhorizon = 6\n[output]\nformat = "csv"\npublish = "both"\n',
        encoding="utf-8",
    )
    (folder / "data").mkdir(exist_ok=True)
    return path


def save(folder: Path, name: str, columns: dict[str, Any], form: str = "csv") -> None:
    table = pa.table(columns)
    path = folder / "data" / f"{name}.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)


def wide(
    folder: Path, months: int = 6, form: str = "csv", people: slice = slice(None), name: str = "a"
) -> None:
    columns = {f"poor_{m:02}": TRUTH[people, m - 1].astype(int) for m in range(1, months + 1)}
    save(folder, name, {"household": NAMES[people], "ignored": ["x"] * len(NAMES[people]), **columns}, form)


def long(folder: Path, months: int = 6, form: str = "csv") -> None:
    """One file of all months, in no order."""
    order = np.random.default_rng(1).permutation(40 * months)
    month, who = order // 40, order % 40
    save(
        folder,
        "a",
        {"household": [NAMES[i] for i in who], "month": month + 1, "poor": TRUTH[who, month].astype(int)},
        form,
    )


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("shape", ["wide", "long"])
def test_both_shapes_of_files_give_the_people_of_the_panel(tmp_path: Path, shape: str, form: str) -> None:
    """Oracle: with next to no noise and padding taken out, as many pairs of months as in the data."""
    made = config(
        tmp_path, WIDE if shape == "wide" else LONG, form=form, stream='unit = "individual-replace"'
    )
    wide(tmp_path, form=form) if shape == "wide" else long(tmp_path, form=form)
    shown = [dpstream(*words).output for words in (("check", made), ("run", made), ("status", made))]
    assert "6 new steps" in shown[1]
    table = read(tmp_path / "releases")
    fifth, last = (f"poor_0{t}" if shape == "wide" else f"poor_{t}" for t in (5, 6))
    codes = 2 * np.array(table.column(fifth).to_pylist()) + np.array(table.column(last).to_pylist())
    facts = json.loads((tmp_path / "releases" / "step-000006" / "manifest.json").read_text())
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
    halves = (("a", slice(0, 25)), ("b", slice(25, None)))
    for months in (2, 3, 6):
        for name, people in halves:
            wide(tmp_path, months, people=people, name=name)
        dpstream("run", made)
        assert status(made)["steps"] == months
    assert status(made)["steps_left"] == 0


STOPS: dict[str, tuple[str, Any, str]] = {
    "a gap": (
        "wide",
        lambda f: save(f, "a", {"household": ["a"], "poor_01": [1], "poor_03": [0]}),
        "'poor_02'",
    ),
    "no id column": ("wide", lambda f: save(f, "a", {"who": ["a"], "poor_01": [1]}), "'household'"),
    "twice": ("wide", lambda f: save(f, "a", {"household": [MARK, MARK], "poor_01": [1, 0]}), "two reports"),
    "nobody": ("wide", lambda f: save(f, "a", {"household": [""], "poor_01": [1]}), "user id"),
    "somebody new": (
        "long",
        lambda f: save(f, "a", {"household": [MARK, MARK, "b"], "month": [1, 2, 2], "poor": [1, 1, 1]}),
        "first period",
    ),
    "somebody gone": (
        "long",
        lambda f: save(f, "a", {"household": [MARK, "b", "b"], "month": [1, 1, 2], "poor": [1, 1, 1]}),
        "somebody",
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_data_that_do_not_fit_stop_check_and_run(tmp_path: Path, name: str) -> None:
    shape, write, words = STOPS[name]
    made = config(tmp_path, WIDE if shape == "wide" else LONG.replace("end = 6", "end = 2"))
    write(tmp_path)
    for verb in ("check", "run"):
        found = CliRunner().invoke(main, [verb, str(made)])
        assert found.exit_code == 2
        assert words in found.output
        assert MARK not in found.output
        assert "Traceback" not in found.output


def test_words_about_people(tmp_path: Path) -> None:
    made = config(tmp_path, WIDE)
    wide(tmp_path)
    dpstream("run", made)
    plan = " ".join(dpstream("plan", made).output.split())
    assert "one person's entire history, added or removed" in plan
    assert "in at least 2 of the last 2 periods" in plan
    facts = json.loads(dpstream("plan", made, "--json").output)
    assert facts["panel"]["first_release"] == 2
    statement = dpstream("statement", made).output
    assert "never changed" in statement
    assert "Every record is charged" not in statement
    dpstream("sample", made, "--step", 6, "--rows", 5, "--seed", 1, "--out", tmp_path / "some.csv")
    assert (tmp_path / "some.csv").read_text().count("\n") == 6
    refused = CliRunner().invoke(main, ["audit", str(made), "--only", "exact"])
    assert (
        "no audit 'exact' of this file's mechanism (allowed: attack, transcripts, samplers)" in refused.output
    )
    assert refused.exit_code == 2, refused.output
    assert "Traceback" not in refused.output
