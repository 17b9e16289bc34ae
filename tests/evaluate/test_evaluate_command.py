"""``dpstream evaluate``: private, labelled files that other programs can read, for every family; what does
not apply, and what is wrong, is refused in a sentence before any work.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path

import pytest
from cli_stream import dpstream

from dpstream.cli.progress import counted_progress
from dpstream.core.errors import ConfigError
from dpstream.families import registry
from dpstream.tools.evaluate import LABEL, METRICS, evaluate_run, private_folder
from dpstream.tools.evaluate.contract import (
    FILES,
    EvaluationRequest,
    EvaluationResult,
    FamilyEvaluation,
    write_result_files,
)
from dpstream.tools.family_tools import tool_for, tool_of
from dpstream.tools.report import FamilyPage


@pytest.fixture
def config(copied):
    return copied.path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_are_private_labelled_and_readable(finished, config):
    import pandas as pd

    umask = os.umask(0)
    try:
        result = dpstream("evaluate", config, "--target", "paid", "--all")
    finally:
        os.umask(umask)
    folder = config.parent / "evaluation"
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, private_folder.PRIVATE_MARKER])
    assert mode(folder) == 0o700
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert result.stdout.startswith(f"{LABEL}\n")
    assert f"3 files in {folder}" in result.stdout
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        assert LABEL in text
        if path.suffix == ".csv":
            assert all(line.endswith(f',"{LABEL}"') for line in text.splitlines()[1:])
        if path.suffix == ".json":
            assert next(iter(json.loads(text).items())) == ("label", LABEL)

    found = evaluate_run(finished, target="paid")
    steps = pd.read_csv(folder / "steps.csv")
    assert steps["step"].tolist() == [entry.step for entry in found.steps]
    assert steps["true_records"].tolist() == [entry.records for entry in found.steps]
    for name in METRICS:
        assert steps[name].tolist() == pytest.approx([entry.errors.as_dict()[name] for entry in found.steps])
    assert steps["churn"].tolist() == pytest.approx([entry.churn for entry in found.steps])
    facts = json.loads((folder / "summary.json").read_text())
    measures = [one["released"] for one in facts["judgement"]["measures"]]
    assert found.judgement is not None
    assert measures == [None if math.isnan(one.value) else one.value for one in found.judgement.measures]
    assert [one["column"] for one in facts["judgement"]["learned"]] == ["paid"]
    assert "predicting paid" in result.stdout
    assert facts["worst_workloads"][0]["L1"] == found.last.errors.as_dict()["MaxL1"]
    assert found.judgement.words.split(":")[0] in result.stdout
    for number in (found.last.errors.as_dict()["AvgWE"], found.mean()["MaxL1"]):
        assert f"{number:.4g}" in result.stdout
    assert "evaluated 8 of 10 steps" in result.stderr


def test_json_repeats_the_summary_and_older_results_are_replaced(config):
    dpstream("evaluate", config)
    folder = config.parent / "evaluation"
    again = dpstream("evaluate", config, "--json", "--every", 6, "--workload", "all-3-way")
    facts = json.loads(again.stdout)
    assert again.stderr == ""
    assert facts["label"] == LABEL
    assert facts["evaluated_steps"] == [6, 12, 14]
    assert (facts["workload"], facts["marginals"], facts["released_steps"]) == ("all-3-way", 1, 14)
    assert facts.items() >= json.loads((folder / "summary.json").read_text()).items()
    assert set(facts["files"]) == {*FILES}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "3,x"], "expected steps, got 'x' (allowed: such as 1,10,90-104)"),
        (["--steps", "5-3"], "'5-3' holds no step"),
        (["--steps", "3", "--every", "2"], "both given"),
        (["--steps", "11-15"], "released data are missing at step 15 (allowed: steps 1 to 14)"),
        (["--workload", "all-4-way"], "all-4-way needs 4 columns and the domain has 3"),
        (["--workload", "pairs"], "unknown workload 'pairs'"),
        (["--target", "rent"], "unknown column 'rent' (allowed: zip, paid, size)"),
        (["--out", "releases/evaluation"], "lie inside each other"),
        (["--out", "."], "lie inside each other"),
        (["--out", "state"], "lie inside each other"),
        (["--out", "dpstream.toml"], "is a file"),
        (["--releases", "nowhere"], "releases are missing"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(config, monkeypatch, arguments, message):
    monkeypatch.chdir(config.parent)
    before = {path: mode(path) for path in sorted(Path().rglob("*"))}
    result = dpstream("evaluate", "dpstream.toml", *arguments, code=2)
    assert message in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("error")]) == 1
    assert {path: mode(path) for path in sorted(Path().rglob("*"))} == before


def test_a_folder_of_results_is_never_somebody_elses(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o755)
    private_folder.open_private_folder(mine, {})
    assert mode(mine) == 0o700
    private_folder.open_private_folder(mine, {})
    link = tmp_path / "link"
    (tmp_path / "releases").mkdir()
    link.symlink_to(tmp_path / "releases")
    with pytest.raises(ConfigError, match="lie inside each other"):
        private_folder.open_private_folder(link / "deep", {"releases": tmp_path / "releases"})
    # Releases that nobody named: another stream's, or the configured ones while a copy is evaluated.
    (tmp_path / "releases" / "catalogue.json").touch()
    for place in (tmp_path / "releases", link / "deep", tmp_path / "releases" / "deep" / "er"):
        with pytest.raises(ConfigError, match="is a folder of releases"):
            private_folder.open_private_folder(place, {"releases": tmp_path / "copy"})
    assert [path.name for path in (tmp_path / "releases").iterdir()] == ["catalogue.json"]
    (tmp_path / "other").mkdir(mode=0o755)
    (tmp_path / "other" / "note.txt").touch()
    with pytest.raises(ConfigError, match="holds other files"):
        private_folder.open_private_folder(tmp_path / "other", {})
    assert mode(tmp_path / "other") == 0o755


def test_progress_is_told_in_quarters(capsys):
    with counted_progress("evaluated", "steps", quiet=False) as told:
        assert told is not None
        for done in range(1, 1001):
            told(done, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"evaluated {done} of 1000 steps" for done in (250, 500, 750)]


GIVEN = {"workload": "all-1-way", "steps": [1], "every": 1, "target": "paid", "ceiling": False}


@pytest.mark.parametrize("mechanism", [*registry.mechanisms(), None])
def test_every_family_has_both_and_refuses_what_does_not_apply(mechanism: str | None) -> None:
    family = None if mechanism is None else registry.family_of(mechanism)
    evaluation = tool_of("evaluation", FamilyEvaluation, family)
    assert {one.name for one in dataclasses.fields(EvaluationRequest)} == {*GIVEN, "releases", "progress"}
    assert set(evaluation.options) <= set(GIVEN)
    for name, value in GIVEN.items():
        asked = dataclasses.replace(EvaluationRequest(Path("releases")), **{name: value})
        if name in evaluation.options:
            evaluation.check(asked)
            continue
        with pytest.raises(ConfigError) as caught:
            evaluation.check(asked)
        word = {"ceiling": "--no-ceiling"}.get(name, f"--{name}")
        assert word not in str(caught.value.allowed)
        assert "--releases" in str(caught.value.allowed)
    page = tool_of("page", FamilyPage, family)
    assert tool_for("page", FamilyPage, mechanism or "not-installed") is page


def test_every_file_of_a_finding_is_labelled_private_and_replaces_earlier_ones(tmp_path: Path) -> None:
    found = EvaluationResult(
        "s", {"label": LABEL, "n": float("nan")}, ("A sentence.",), [{"step": 1, "n": None}]
    )
    (tmp_path / "notes.txt").touch()
    written = write_result_files(found, tmp_path, "<p>")
    assert [path.name for path in written] == [*FILES]
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, "notes.txt"}
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert (tmp_path / "summary.json").read_text() == f'{{\n "label": "{LABEL}",\n "n": null\n}}\n'
    assert (tmp_path / "steps.csv").read_text() == f'step,n,label\n1,,"{LABEL}"\n'
    assert "1" not in repr(found)
    written = write_result_files(dataclasses.replace(found, steps=()), tmp_path)
    assert [path.name for path in written] == ["summary.json"], "what is not there any more is removed"
    assert {path.name for path in tmp_path.iterdir()} == {"summary.json", "notes.txt"}
