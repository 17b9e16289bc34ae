"""Every committed result says what made it, and those whose code has changed since are listed as such."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LIST = RESULTS / "README.md"
made_by = pytest.importorskip("made_by", reason="the benchmarks are not here (an installed package)")


def results() -> list[Path]:
    """The files that say it: those beside the list, and the page of each folder, which speaks for all in it."""
    found = [path for path in RESULTS.iterdir() if path.is_file() and path != LIST]
    return sorted(found + [path / "README.md" for path in RESULTS.iterdir() if path.is_dir()])


def name_of(path: Path) -> str:
    """As the list has it."""
    return path.relative_to(RESULTS).as_posix()


def listed() -> set[str]:
    """The results that the list calls older than their code."""
    return set(re.findall(r"^\* `([^`]+)`", LIST.read_text(encoding="utf-8"), re.MULTILINE))


def of_history() -> set[str]:
    """The results whose scripts are in history only."""
    part = (
        LIST.read_text(encoding="utf-8").partition("## Whose script is in history")[2].partition("\n## ")[0]
    )
    return set(re.findall(r"`([^`]+\.(?:txt|md))`", part))


def test_every_result_names_its_command_and_commit() -> None:
    assert results()
    for path in results():
        made = made_by.read_line(path)
        assert made is not None, f"{name_of(path)}: no line 'Made by `COMMAND` at commit ..., DATE.'"
        assert made_by.measured(made.command), f"{name_of(path)}: what measures {made.command!r}?"
        script = ROOT / str(re.findall(r"benchmarks/\w+\.py", made.command + " benchmarks/run.py")[0])
        assert script.is_file() != (name_of(path) in of_history()), f"{name_of(path)}: in history?"
    assert listed() | of_history() <= {name_of(path) for path in results()}, "results that are gone"


def test_results_older_than_their_code_are_listed() -> None:
    try:
        top, cut = made_by.git("rev-parse", "--show-toplevel", "--is-shallow-repository").split()
    except (OSError, subprocess.CalledProcessError, ValueError):
        top, cut = "", ""
    if Path(top) != ROOT or cut == "true":
        pytest.skip("no git, or not the whole history")
    older = {name_of(path): made_by.changed_since(made_by.read_line(path)) for path in results()}
    missing = [f"* `{name}`: {', '.join(places)}" for name, places in older.items() if places]
    missing = [text for text in missing if text.split("`")[1] not in listed() | of_history()]
    assert not missing, "run these again, or add them to benchmarks/results/README.md:\n" + "\n".join(missing)


def test_what_changed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a repository of its own: a script, one that it imports, a part of the program, and what it does not use."""
    for place in (
        "benchmarks/one.py",
        "benchmarks/two.py",
        "src/dpstream/used/a.py",
        "src/dpstream/other/b.py",
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("")
    (tmp_path / "benchmarks" / "one.py").write_text("import two\nfrom dpstream.used import a\n")
    monkeypatch.setattr(made_by, "ROOT", tmp_path)
    monkeypatch.setattr(made_by, "HERE", tmp_path / "benchmarks")

    def commit(place: str, text: str) -> None:
        (tmp_path / place).write_text(text)
        made_by.git("add", "-A")
        made_by.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x")

    made_by.git("init", "-q")
    commit("notes.txt", "1")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "benchmarks" / "one.py"), "--out", "a b"])
    made_by.write_result(tmp_path / "result.txt", "3 ms\n")
    made = made_by.read_line(tmp_path / "result.txt")
    assert made.command == "python benchmarks/one.py --out 'a b'"
    assert (tmp_path / "result.txt").read_text().endswith(".\n\n3 ms\n")
    used = {"benchmarks/one.py", "benchmarks/two.py", "src/dpstream/used"}
    assert made_by.measured(made.command) == used
    for place in ("src/dpstream/other/b.py", "notes.txt"):
        commit(place, "changed")
        assert made_by.changed_since(made) == []
    commit("src/dpstream/used/a.py", "changed")
    assert made_by.changed_since(made) == ["src/dpstream/used"]
    commit("benchmarks/two.py", "changed")
    assert made_by.changed_since(made) == ["benchmarks/two.py", "src/dpstream/used"]
    assert made_by.changed_since(made_by.MadeBy(made.command, "0" * 40)) == sorted(used), "an unknown commit"
