"""Every family has an evaluation and a page; which options apply is data, and what does not is refused before work."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dpstream.core.errors import ConfigError
from dpstream.families import registry
from dpstream.tools.evaluate.contract import (
    FILES,
    EvaluationRequest,
    EvaluationResult,
    FamilyEvaluation,
    write_result_files,
)
from dpstream.tools.evaluate.private_folder import LABEL
from dpstream.tools.family_tools import tool_for, tool_of
from dpstream.tools.report.assembly import FamilyPage

GIVEN = {
    "workload": "all-1-way",
    "steps": [1],
    "every": 1,
    "target": "paid",
    "ceiling": False,
}


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
    assert page.refusal[0] or page.pairs
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
