"""The page on points: its examples run as they stand."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from dpstream.project import Config
from dpstream.tools.simulate import simulate

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "points.md"


def test_the_examples_say_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.attempted > 8
    assert found.failed == 0


def test_the_file_of_the_page_is_a_configuration(tmp_path: Path) -> None:
    text = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(text) == 1
    (tmp_path / "dpstream.toml").write_text(text[0], encoding="utf-8")
    assert Config.load(tmp_path / "dpstream.toml").plan().name == "points"
    plan = Config.load(simulate("points", 1, tmp_path / "city")).plan()
    starts = {one: plan.schedule.start(one) for one in (1, 8, 20)}  # type: ignore[attr-defined]
    assert starts[1] < 50
    assert 1000 < starts[8] < 10_000
    assert 3_000_000 < starts[20] < 30_000_000
