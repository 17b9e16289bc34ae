"""``dpstream errors`` for every family, ``[accuracy] simulate`` in a run, and standard errors of statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_stream import COLUMNS, certain, dpstream, make

import dpstream as dp
from dpstream.io.sinks.simulated_errors import FOLDER
from dpstream.project import Config
from dpstream.tools.simulate import Stock, simulate


def facts(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dpstream("errors", *arguments, "--json").stdout)
    return found


def test_of_tables(tmp_path: Path) -> None:
    path = certain(tmp_path, mechanism='name = "pooled"')
    dpstream("run", path, "--test-seed", 1)
    text = dpstream("errors", path, "--runs", 2, "--question", "zip = 'a' or paid").output
    assert "by simulation" in text
    assert "zip = 'a' or paid" in text
    assert "cannot see" in " ".join(text.split())
    assert [one["step"] for one in facts(path, "--runs", 2)] == [1, 2, 4]
    assert [one["step"] for one in facts(path, "--runs", 2, "--until", 3)] == [1, 2, 3]
    assert "street" in dpstream("errors", path, "--question", "street = 'a'", code=2).stderr
    assert "tell no spread" in dpstream("errors", path, "--runs", 1, code=2).stderr


def test_of_columns_that_show_both_bins_as_null(tmp_path: Path) -> None:
    """As drafts declare them: a null of the released table is taken for a missing value."""
    bins = 'type = "boolean"\nother = "odd"\nmissing = "unknown"'
    path = make(tmp_path, 2, mechanism='name = "pooled"', columns=COLUMNS.replace('type = "boolean"', bins))
    dpstream("run", path, "--test-seed", 1)
    assert any(table.read_text().count(",,") for table in (tmp_path / "releases").glob("step-*/table.csv"))
    assert [one["step"] for one in facts(path, "--runs", 2)] == [1, 2]


def test_of_records_with_keys(tmp_path: Path) -> None:
    path = simulate("stock", 3, tmp_path / "stock", stock=Stock(records=60, columns=3))
    dpstream("run", path, "--test-seed", 1)
    found = facts(path, "--runs", 2)
    assert [one["step"] for one in found] == [1, 2, 3]
    assert found[-1]["total"]["standard_error"] > 0


def test_of_panels(tmp_path: Path) -> None:
    """Padding is no error: weights take it out on both sides."""
    path = simulate("panel", 4, tmp_path / "panel", rows_per_step=300)
    dpstream("run", path, "--test-seed", 1)
    found = facts(path, "--runs", 3)
    assert [one["step"] for one in found] == [4]
    plan = Config.load(path).plan()
    padding = plan.padding * plan.patterns  # type: ignore[attr-defined]
    assert found[0]["total"]["standard_error"] < padding
    refused = dpstream("errors", path, "--question", "poor", code=2).stderr
    assert "streams of tables" in refused


def test_of_panels_that_count(tmp_path: Path) -> None:
    path = simulate("panel", 3, tmp_path / "panel", rows_per_step=300)
    text = path.read_text().replace('"panel-window"', '"panel-cumulative"').replace("window = 3\n", "")
    path.write_text(text)
    dpstream("run", path, "--test-seed", 1)
    found = facts(path, "--runs", 2)
    assert [one["step"] for one in found] == [1, 2, 3]
    assert found[-1]["marginals"][0]["columns"] == ["times so far"]


def test_of_points(tmp_path: Path) -> None:
    path = simulate("points", 2, tmp_path / "points", rows_per_step=100)
    dpstream("run", path, "--test-seed", 1)
    found = facts(path, "--runs", 2)
    assert found[-1]["total"] == {
        "standard_error": 0.0,
        "bias": 0.0,
        "invented": found[-1]["total"]["invented"],
    }
    assert 0 < found[-1]["distances"]["W1"]["mean"] < 1


def accurate(folder: Path, lines: str) -> Path:
    path = make(folder, 3, mechanism='name = "pooled"')
    path.write_text(path.read_text() + f"[accuracy]\n{lines}\n", encoding="utf-8")
    return path


def test_a_run_simulates_where_steps_double(tmp_path: Path) -> None:
    path = accurate(tmp_path, "simulate = 2")
    dpstream("run", path, "--steps", 1)
    assert sorted(file.name for file in (tmp_path / "releases" / FOLDER).glob("*.json")) == [
        "step-000001.json"
    ]
    dpstream("run", path)
    there = sorted(file.name for file in (tmp_path / "releases" / FOLDER).glob("*.json"))
    assert there == ["step-000001.json", "step-000002.json"]


def test_a_program_simulates_as_the_command_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = accurate(tmp_path, "simulate = 2")
    assert [release.step for release in dp.run(path, steps=1)] == [1]
    assert (tmp_path / "releases" / FOLDER / "step-000001.json").is_file()
    assert not caplog.messages

    def fails(*_: object, **__: object) -> None:
        raise ValueError("a value that nobody may see")

    monkeypatch.setattr("dpstream.tools.errors.simulate_errors", fails)
    assert [release.step for release in dp.run(path)] == [2, 3]
    assert caplog.messages == ["errors were not simulated: ValueError"]


def test_runs_that_time_left_out_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpstream.tools.errors import simulation

    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(simulation.time, "process_time", lambda: next(clock))
    told = dpstream("run", accurate(tmp_path, "simulate = 5\nsimulate_seconds = 50"))
    assert "2 of 5 runs were done" in told.stderr


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("simulate = 1", "from 2 to 1000; 20 are usual"),
        ("simulate = 1001", "from 2 to 1000"),
        ("simulate_seconds = 5", "simulate"),
        ("simulated = 5", "did you mean 'simulate'"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, lines: str, sentence: str) -> None:
    assert sentence in dpstream("plan", accurate(tmp_path, lines), code=2).stderr


def test_a_table_that_was_taken_back_leaves_no_counts_behind(tmp_path: Path) -> None:
    path = certain(tmp_path, 3, mechanism='name = "pooled"')
    dpstream("run", path, "--test-seed", 1)
    facts(path, "--runs", 2)
    dpstream("withdraw", path, "--step", 3, "--reason", "a mistake")
    facts(path, "--runs", 2)
    there = sorted(file.name for file in (tmp_path / "releases" / FOLDER).iterdir())
    assert there == [f"step-00000{step}.{kind}" for step in (1, 2) for kind in ("json", "parquet")]
