"""Successor streams long after their start: on another machine, and beside a predecessor that goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import test_cli_evolution
from cli_stream import dpstream, status
from test_cli_evolution import Ran

ran = test_cli_evolution.ran  # the fixture


def test_a_successor_moves_to_a_machine_without_its_predecessor(ran: Ran, tmp_path: Path) -> None:
    _, new = ran(tmp_path)
    dpstream("run", new, "--until", 1)
    dpstream("store", "export", new, "--out", tmp_path / "moved", "--move")
    there = tmp_path / "there"
    there.mkdir()
    for name in ("new.toml", "moved"):
        shutil.copy(tmp_path / name, there / name)
    shutil.copytree(tmp_path / "new", there / "new")
    text = (there / "new.toml").read_text()
    (there / "new.toml").write_text(text.replace("[budget]\nepsilon = ", '[budget]\nepsilon = "9" #'))
    refused = dpstream("store", "import", there / "new.toml", "--from", there / "moved", code=2)
    assert "another plan" in refused.stderr
    (there / "new.toml").write_text(text)
    dpstream("store", "import", there / "new.toml", "--from", there / "moved")
    dpstream("run", there / "new.toml")
    assert status(there / "new.toml")["steps"] == 2


def test_a_predecessor_that_goes_on_stops_its_successor(ran: Ran, tmp_path: Path) -> None:
    """Its end is not pinned, and a forgotten schedule may go on: one event would cost both budgets."""
    old, new = ran(tmp_path)
    dpstream("run", new, "--until", 1)
    catalogue = (tmp_path / "releases" / "catalogue.json").read_bytes()
    dpstream("withdraw", old, "--step", 2, "--reason", "a mistake")
    dpstream("run", new, "--dry-run")  # what it began with was published
    (tmp_path / "data" / "3.csv").write_text(
        "step,op,zip,paid,kind\n3,insert,02140,true,x\n", encoding="utf-8"
    )
    old.write_text(old.read_text(encoding="utf-8").replace("end = 2", "end = 3"), encoding="utf-8")
    dpstream("run", old)
    for more in ((), ("--dry-run",), ("--no-recheck",)):
        assert "step 3, after the border" in dpstream("run", new, *more, code=2).stderr
    dpstream("withdraw", new, "--step", 1, "--reason", "its records are in both")
    (tmp_path / "releases" / "catalogue.json").write_bytes(catalogue[:-20])
    dpstream("run", new)
    assert status(new)["steps"] == 2, "a damaged folder shows nothing"
