"""The page on growing databases: its examples run as they stand, and its file is a configuration."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from dpstream.project import Config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "growing.md"


def test_the_examples_say_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.attempted > 10
    assert found.failed == 0


def test_the_files_of_the_page_are_configurations(tmp_path: Path) -> None:
    texts = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert texts
    for number, text in enumerate(texts):
        file = tmp_path / str(number) / "dpstream.toml"
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        Config.load(file).plan()
