"""The pages about a stream's life: what they show is what happens."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from cli_stream import dpstream, make, released, status

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"


def test_a_restored_backup_refuses_with_the_words_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    dpstream("run", "dpstream.toml", "--until", 1)
    shutil.copytree("state", "backup")
    dpstream("run", "dpstream.toml")
    before = released(tmp_path)
    shutil.rmtree("state")
    shutil.copytree("backup", "state")
    told = dpstream("run", "dpstream.toml", code=4).stderr
    (shown,) = re.findall(
        r"^error: .*?\)$", (GUIDE / "renewal.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert " ".join(told.split()) == " ".join(shown.split())
    assert released(tmp_path) == before


def test_a_renewal_takes_the_records_after_a_public_border(tmp_path: Path) -> None:
    old = make(tmp_path, 4, end=2)
    text = old.read_text(encoding="utf-8")
    new = tmp_path / "second.toml"
    new.write_text(
        text.replace('name = "test"', 'name = "second"')
        .replace("end = 2", "start = 3\nend = 4")
        .replace("data/*.csv", "data/00[34].csv")
        + 'dir = "second"\n[state]\ndir = "second-state"\n',
        encoding="utf-8",
    )
    dpstream("run", old)
    first = released(tmp_path)
    dpstream("run", new)
    assert (status(old)["steps"], status(new)["steps"]) == (2, 2)
    assert released(tmp_path) == first
    # With the old files it stops, unless it is told to leave earlier records alone.
    both = new.read_text(encoding="utf-8").replace("data/00[34].csv", "data/*.csv")
    both = both.replace("second", "third")
    new.write_text(both, encoding="utf-8")
    assert "a record before the start" in dpstream("run", new, code=2).stderr
    alone = both.replace("third", "fourth").replace("end = 4", 'end = 4\nlate = "drop-and-count-nothing"')
    new.write_text(alone, encoding="utf-8")
    dpstream("run", new)
    assert status(new)["steps"] == 2


def test_another_output_folder_hides_no_rollback(tmp_path: Path) -> None:
    config = make(tmp_path, 3)
    dpstream("run", config, "--until", 1)
    shutil.copytree(tmp_path / "state", tmp_path / "old")
    dpstream("run", config, "--until", 2)
    told = dpstream("run", config, "--state", tmp_path / "old", "--out", tmp_path / "o", code=4).stderr
    assert "step 2 is published, but the ledger ends at step 1" in told
    # Another stream of the same file, and the same stream in another folder, are fine.
    dpstream("run", config, "--state", tmp_path / "new", "--out", tmp_path / "o")
    dpstream("run", config, "--out", tmp_path / "p")
    assert status(config)["steps"] == 3
