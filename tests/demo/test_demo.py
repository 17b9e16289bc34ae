"""The demo leaves releases, a page, and other people's files alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.cli.demo import DEMO_MARKER, fresh_folder
from dpstream.io.sinks import read_catalogue, read_manifest
from dpstream.tools.evaluate import LABEL


def demo(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """The demo as ``make demo`` calls it."""
    command = [sys.executable, "-m", "dpstream", "demo", "--out", folder.name, *more]
    return subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A demo of a few steps, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    result = demo(folder, "--steps", "4")
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def refused(folder: str, steps: int) -> str:
    done = CliRunner().invoke(main, ["demo", "--out", folder, "--steps", str(steps)])
    assert done.exit_code == 2
    return done.stderr


def test_demo_leaves_releases_and_a_page(made: tuple[Path, str]) -> None:
    folder, said = made
    assert [entry["step"] for entry in read_catalogue(folder / "releases")["steps"]] == [1, 2, 3, 4]
    assert read_manifest(folder / "releases", 4)["made_with_test_seed"] is False
    page = (folder / "evaluation" / "evaluation.html").read_text(encoding="utf-8")
    assert page.count("data-chart=") > 4
    assert LABEL in page
    for word in ("evaluation.html", "releases", "Secret", "status", "sample"):
        assert word in said


def test_demo_prints_commands_that_work(made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, said = made
    commands = [
        line.removeprefix("Next").split()
        for line in said.splitlines()
        if line.startswith(("  ", "Next")) and "dpstream.toml" in line
    ]
    assert [words[words.index("demo/dpstream.toml") - 1] for words in commands] == [
        "status",
        "plan",
        "sample",
    ]
    *others, sample = commands
    result = subprocess.run(sample, cwd=folder.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert (folder / "sample.csv").is_file()
    program = sample[: sample.index("sample")]
    monkeypatch.chdir(folder.parent)
    for words in others:
        assert words[: len(program)] == program
        assert CliRunner().invoke(main, words[len(program) :]).exit_code == 0


def test_demo_is_made_anew_and_keeps_other_files(made: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    shutil.copytree(made[0], folder)
    before = read_catalogue(folder / "releases")["stream_id"]
    (folder / "mine.txt").write_text("mine")
    again = demo(folder, "--steps", "2", "--seed", "1")
    assert again.returncode == 0, again.stderr
    catalogue = read_catalogue(folder / "releases")
    assert catalogue["stream_id"] != before
    assert len(catalogue["steps"]) == 2
    assert (folder / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".dpstream-demo-*"))


def test_folders_of_others_and_numbers_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "holds other files" in refused(str(tmp_path), 2)
    assert refused(str(tmp_path / "thesis.tex"), 2)
    for steps in (1, 100000):
        assert refused(str(tmp_path / "demo"), steps)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_stop_before_the_folder_is_filled_leaves_nothing(tmp_path: Path) -> None:
    def broken(fresh: Path) -> None:
        fresh.mkdir()
        (fresh / "data").mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fresh_folder(tmp_path / "demo", broken)
    assert list(tmp_path.iterdir()) == []
    fresh_folder(tmp_path / "demo", Path.mkdir)
    assert [path.name for path in (tmp_path / "demo").iterdir()] == [DEMO_MARKER]
