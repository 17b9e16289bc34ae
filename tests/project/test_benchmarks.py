"""The benchmarks: what made a result, the grid of errors, claims and their numbers, a traced step."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LIST = RESULTS / "README.md"
#: The most that each number of the structure may be: decision 0058. Who lowers one lowers its bar.
BARS = {
    "modules": 430,
    "lines_of_code": 67_000,
    "tests_lines_of_code": 50_000,
    "benchmarks_lines_of_code": 6_000,
}
made_by = pytest.importorskip("made_by", reason="the benchmarks are not here (an installed package)")


def test_no_size_is_above_its_bar() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "structure.py", "--json"]
    sizes = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert {name: sizes[name] for name, most in BARS.items() if sizes[name] > most} == {}


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


# The grid of table errors: it keeps its runs, and makes again those whose options have changed only


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


# Claims name what shows them, and typed numbers are those of the results


def missing(page: str) -> Iterator[str]:
    """What a page of claims names and the repository does not have."""
    file = None
    for named in re.findall(r"`([^`\s]*(?:/|::)[^`\s]*)`", page):
        path, _, test = named.partition("::")
        file = ROOT / path if path else file
        there = file is not None and file.exists()
        if not there or (test and f"def {test}(" not in file.read_text(encoding="utf-8")):
            yield named


def test_what_is_named_exists() -> None:
    page = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    assert not list(missing(page))
    rows = [line for line in page.splitlines() if line.startswith("| ") and line != "| claim | shown by |"]
    assert [row for row in rows if "`" not in row.split("|")[2]] == []


def test_what_is_missing_is_found() -> None:
    page = (
        "`tests/project/test_benchmarks.py::test_nothing` `::missing` `benchmarks/none.py` `dpstream audit`"
    )
    assert list(missing(page)) == ["tests/project/test_benchmarks.py::test_nothing", "benchmarks/none.py"]


def test_the_readmes_numbers_are_those_of_the_results() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    results = ROOT / "benchmarks/results"
    lines = (results / "pooled_targets.txt").read_text(encoding="utf-8").splitlines()
    # As the script of then and as ``benchmarks/targets.py`` write a line: stream, epsilon 1, five runs, AvgWE.
    line = re.compile(r"(?:\| )?(\S+) +(?:\| \w+ +\| )?1 +(?:\| )?5 +\| +(?:default +\| )?([\d.]+)")
    ends = [found.groups() for found in map(line.match, lines) if found]
    assert len(ends) == 6
    ours = dict(ends)
    order = (
        "Adult-randomized-bs-50",
        "Adult-randomized-bs-200",
        "Adult-ordered-bs-50",
        "Adult-ordered-bs-200",
    )
    typed = re.search(r"its AvgWE at the end is ([0-9., and]+) on these six streams", readme)
    assert typed
    shown = [float(text) for text in re.findall(r"0[.][0-9]+", typed[1])]
    names = (*order, "Eviction-weekly", "Eviction-bi-weekly")
    assert all(abs(a - float(ours[name])) < 0.000051 for a, name in zip(shown, names, strict=True))
    fewer = re.findall(r"([0-9.]+) times less", (results / "churn.txt").read_text(encoding="utf-8"))
    assert f"{int(float(fewer[0]))} to {round(float(fewer[1]))} times fewer than tables drawn anew" in readme


# A step runs in few modules, and they can be read one after the other: no two call each other


trace_step = pytest.importorskip("trace_step", reason="the benchmarks are not here (an installed package)")


@pytest.mark.parametrize("mechanism", list(trace_step.RECIPES))
def test_a_step_runs_in_few_modules_that_do_not_call_each_other(mechanism: str) -> None:
    trace = trace_step.step_of(mechanism)
    assert len(trace.modules) <= 40
    assert trace.pairs == []
    assert ("core.privacy.randomness", "Randomness.measure") in trace.functions


def test_modules_that_call_each_other_are_seen() -> None:
    arrows = frozenset({("a", "b"), ("b", "a"), ("a", "c")})
    assert trace_step.Trace(3, frozenset(), arrows).pairs == [("a", "b")]
