"""The grid of table errors: it keeps its runs, and makes again those whose options have changed only."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

targets = pytest.importorskip("targets", reason="the benchmarks are not here (an installed package)")


def grid(monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> list[dict[str, object]]:
    """One call, and the runs that are there afterwards."""
    monkeypatch.setattr(
        sys, "argv", ["targets.py", "--out", str(out), "--repeats", "1", "--budgets", "1", *words]
    )
    targets.main()
    return [json.loads(line) for line in (out / "runs.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_grid_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("--preset", "changing", "--streams", "stock:30:3:6", "simulated:census:20:3", "--methods")
    first = grid(monkeypatch, tmp_path / "out", *call, "default", "independent")
    assert [(run["stream"], run["method"]) for run in first] == [
        ("stock:30:3:6", "default"),
        ("stock:30:3:6", "independent"),
        ("simulated:census:20:3", "default"),
        ("simulated:census:20:3", "independent"),
    ]
    assert grid(monkeypatch, tmp_path / "out", *call, "default", "independent", "empty", "last")[:4] == first
    runs = (tmp_path / "out" / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(runs) == 8
    runs[0] = runs[0].replace('"iterations": 50', '"iterations": 1')
    (tmp_path / "out" / "runs.jsonl").write_text("\n".join([*runs, ""]), encoding="utf-8")
    capsys.readouterr()
    assert len(grid(monkeypatch, tmp_path / "out", *call, "default", "--minutes", "0")) == 8
    printed = capsys.readouterr().out
    assert "1 runs are missing." in printed
    assert "| stock:30:3:6 " not in printed, "what has other options now says nothing"
    assert "| simulated:census:20:3 | from 10 % | 1 " in printed
    assert len(grid(monkeypatch, tmp_path / "out", *call, "default")) == 9
    assert "No runs are missing." in capsys.readouterr().out


def test_trivial_answers_have_the_errors_that_they_must_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    methods = ("empty", "uniform", "independent", "last")
    call = ("--preset", "changing", "--streams", "stock:30:3:6#0,1", "--methods", *methods)
    points = {run["method"]: run["points"] for run in grid(monkeypatch, tmp_path / "out", *call)}
    assert points["empty"]["6"]["total"] == points["empty"]["6"]["tv"] == 1.0
    assert points["uniform"]["6"]["total"] == points["independent"]["6"]["total"] == 0.0
    assert points["independent"]["6"]["we"] < points["uniform"]["6"]["we"]
    assert points["last"]["1"] == points["empty"]["1"], "nothing is before the first step"
    assert points["last"]["6"]["total"] < 1.0
