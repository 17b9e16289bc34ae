"""The page on classifiers: its examples run as they stand."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from dpstream.families.growing import ClassifierPlan
from dpstream.project import Config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "growing-classifiers.md"


def test_the_examples_say_what_the_page_says() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.attempted > 10
    assert found.failed == 0


def test_the_file_of_the_page_is_a_configuration(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "dpstream.toml").write_text(text, encoding="utf-8")
    plan = Config.load(tmp_path / "dpstream.toml").plan()
    assert isinstance(plan, ClassifierPlan)
    assert next(plan.runs()).t == 2000
