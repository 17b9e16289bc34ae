"""Declared whole numbers from 2^53 on: no new stream takes them, and one that has begun has a way on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_stream import dpstream, make, status

from dpstream.core.schema import Schema

LONG = 2**53 + 1
COLUMNS = f"""\
[schema.columns.zip]
type = "categorical"
values = [7, {LONG}]
other = "other"
[schema.columns.paid]
type = "boolean"
[schema.columns.kind]
type = "categorical"
values = ["x", "y"]
"""


def test_a_new_stream_is_refused_before_data_are_read(tmp_path: Path) -> None:
    config = make(tmp_path, 2, columns=COLUMNS)
    shutil.rmtree(tmp_path / "data")
    for verb in (["plan"], ["check"], ["run"], ["run", "--dry-run"]):
        told = dpstream(*verb, config, code=2).stderr
        assert "'zip'" in told
        assert str(LONG) in told
        assert "as texts" in told
    assert not list(tmp_path.rglob("*.sqlite"))


def test_a_stream_that_has_begun_goes_on_in_a_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, 3, columns=COLUMNS)
    with monkeypatch.context() as patch:
        patch.setattr(Schema, "require_exact", lambda *_: None)
        dpstream("run", config, "--until", 2)
    assert "init --after" in dpstream("run", config, code=2).stderr
    assert status(config)["steps"] == 2
    dpstream("statement", config)
    dpstream("sample", config, "--step", 1, "--rows", 5, "--out", tmp_path / "sample.csv")
    dpstream("withdraw", config, "--step", 1, "--reason", "a test")
    following = tmp_path / "next.toml"
    dpstream("init", "--after", config, "--out", following)
    text = following.read_text(encoding="utf-8")
    assert f"values = [7, {LONG}]" in text
    text = text.replace(f"values = [7, {LONG}]", f'values = ["7", "{LONG}"]')
    following.write_text(text, encoding="utf-8")
    for old in sorted((tmp_path / "data").iterdir())[:2]:
        old.unlink()
    dpstream("run", following, "--until", 1)
    assert status(following)["steps"] == 1
