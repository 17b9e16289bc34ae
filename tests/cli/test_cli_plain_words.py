"""What newcomers stumbled over: warnings that came late, lists that were told twice, signs meant for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_stream import dpstream, make
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.cli.shared import ShownStream
from dpstream.tools.simulate import simulate

EXPECT = "\n[expect]\nrecords_per_step = {}\n"


def words(text: str) -> str:
    return " ".join(text.split())


def expecting(
    folder: Path, records: int, *, epsilon: str = "1", horizon: int | None = 4, **source: object
) -> Path:
    config = make(folder, 1, epsilon=epsilon, **source)
    text = config.read_text() + EXPECT.format(records)
    if horizon is not None:
        text = text.replace("[output]", f"horizon = {horizon}\n[output]")
    config.write_text(text)
    return config


def test_a_hopeless_budget_is_told_before_everything_else(tmp_path: Path) -> None:
    config = expecting(tmp_path, 50, epsilon="0.01")
    told = dpstream("plan", config)
    assert told.stdout.startswith("HOPELESS: for about 200 records (by [expect]) this budget is too small.")
    assert "standard error of 141 records (70.7 %)" in words(told.stdout)
    (facts,) = [json.loads(dpstream("plan", config, "--json").stdout)["expected_errors"]]
    assert facts["hopeless"].startswith("HOPELESS")
    usual = expecting(tmp_path, 5000)
    assert "HOPELESS" not in dpstream("plan", usual).stdout
    # Each event of a user has a part of the budget.
    text = usual.read_text().replace('name = "test"', 'name = "test"\nunit = "user"\nmax_events = 100000')
    usual.write_text(text.replace("[source]", '[source]\nuser_column = "who"'))
    assert dpstream("plan", usual).stdout.startswith("HOPELESS")


def test_before_there_are_releases_nobody_is_sent_to_simulate_their_errors(tmp_path: Path) -> None:
    shown = dpstream("plan", expecting(tmp_path, 500)).stdout
    fit = words(shown.partition("will be fit for:")[2].partition("What the plan rests on")[0])
    assert "Pairs: not known: there are no releases yet" in fit
    assert "dpstream plan --compare" in fit
    assert "run dpstream errors" not in fit


@pytest.mark.parametrize(
    ("source", "horizon", "more", "told"),
    [
        ({}, 4, [], "step 4 (the horizon)"),
        ({"end": 30}, None, [], "step 30 (end = 30)"),
        ({"end": 30}, None, ["--at", 7], "step 7 (--at)"),
        (
            {"every": '"month"', "start": '"2026-01-01"', "end": '"today"'},
            None,
            [],
            "step 12 (a year; --at chooses another step)",
        ),
        ({"every": '"files"', "time_column": None, "end": None}, None, [], "step 100 (nothing says when"),
    ],
)
def test_the_step_of_the_verdicts_is_one_that_comes(
    tmp_path: Path, source: dict[str, object], horizon: int | None, more: list[object], told: str
) -> None:
    config = expecting(tmp_path, 500, horizon=horizon, **source)
    shown = words(dpstream("plan", config, *more).stdout)
    assert f"What the release of {told}" in shown
    at = json.loads(dpstream("plan", config, *more, "--json").stdout)["expected_errors"]
    assert at["steps"][-1]["step"] == at["verdict_step"]["step"] == int(re.findall(r"\d+", told)[0])


def test_the_answer_of_a_comparison_comes_first_and_its_time_before(tmp_path: Path) -> None:
    config = expecting(tmp_path, 40)
    told = CliRunner().invoke(main, ["plan", str(config), "--compare", "--steps", "2", "--runs", "1"])
    assert told.exit_code == 0
    first, *_, last = told.stderr.splitlines()
    assert first == "inventing streams and running the mechanisms on them: up to 60 s of CPU"
    assert re.fullmatch(r"compared (\d+) of \1 runs", last)
    assert told.stdout.index("Which mechanism fits") < told.stdout.index("Stream test, mechanism pooled")


def test_many_columns_are_told_by_their_number(tmp_path: Path) -> None:
    names = [f"v{n}" for n in range(30)]
    columns = "".join(f'[schema.columns.{name}]\ntype = "boolean"\n' for name in names)
    config = make(tmp_path, 1, columns=columns)
    shown = words(dpstream("plan", config).stdout)
    assert shown.count("in all 30 columns") == 2
    assert "'v17'" not in shown
    assert "'v17'" in dpstream("plan", config, "--json").stdout, "programs get them all"


def test_a_statement_on_a_terminal_has_no_signs_of_markdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = expecting(tmp_path, 500)
    piped = dpstream("statement", config).stdout
    assert "records\\_per\\_step" in piped
    assert piped.startswith("# ")
    monkeypatch.setattr(ShownStream, "isatty", lambda self: True, raising=False)
    shown = dpstream("statement", config).stdout
    assert "records_per_step" in shown
    assert "\\" not in shown
    assert not shown.startswith("#")
    assert dpstream("statement", config, "--out", "-").stdout == piped


def test_the_newest_step_is_named_beside_older_counts(tmp_path: Path) -> None:
    config = simulate("stock", 6, tmp_path)
    dpstream("run", config, "--test-seed", 1)
    shown = words(dpstream("measured", tmp_path / "releases").stdout)
    assert "number of records 1 " in shown, "a census is as of its step"
    assert "The newest released step is 6: counts as of an earlier step" in shown
    counted = json.loads((tmp_path / "releases/step-000006/manifest.json").read_text())["accuracy"]["counted"]
    assert f"from counts alone: {counted['records']:,.1f}" in shown
    assert "newest released step" not in dpstream("measured", tmp_path / "releases", "--as-of", 1).stdout
