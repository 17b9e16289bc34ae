"""A flaw that is found one day: which published steps it concerns."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_stream import invoke
from small_streams import small_stream

import dpstream as dp
from dpstream.cli.advisory import read_advisories

ROOT = Path(__file__).resolve().parents[2]
FLAW = {
    "id": "DPS-2027-001",
    "published": "2027-01-31",
    "title": "a flaw",
    "what": "it does this",
    "guarantee": "the loss is larger",
    "remedy": "update",
    "versions": f">=0.1,<={dp.__version__}",
}


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("notices")
    small_stream(folder, steps=3).close()
    return folder / "releases"


def asked(releases: Path, folder: Path, *flaws: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    path = folder / "advisories.json"
    path.write_text(json.dumps({"format": 1, "advisories": list(flaws)}))
    done = invoke("advisory", "check", releases, "--file", path, "--json")
    return done.exit_code, json.loads(done.output) if done.exit_code in (0, 6) else {"error": done.stderr}


@pytest.mark.parametrize(
    ("condition", "concerned"),
    [
        ({}, True),
        ({"mechanisms": ["census", "pooled"], "units": ["event"]}, True),
        ({"mechanisms": ["census"]}, False),
        ({"units": ["record"]}, False),
        ({"options": {"max_cells": [1, 10_000]}}, True),
        ({"options": {"max_cells": [1]}}, False),
        ({"options": {"no_such_option": [None]}}, True),
        ({"options": {"no_such_option": [1]}}, False),
        ({"versions": "<0.0.9"}, False),
        ({"versions": ">=0.0.10"}, True),
        ({"versions": f"=={dp.__version__}.0"}, True),
    ],
)
def test_all_conditions_must_hold(
    releases: Path, tmp_path: Path, condition: dict[str, Any], concerned: bool
) -> None:
    code, told = asked(releases, tmp_path, {**FLAW, **condition})
    assert code == (6 if concerned else 0)
    assert told["steps"] == 3
    assert [one["steps"] for one in told["concerns"]] == ([[1, 2, 3]] if concerned else [])


@pytest.mark.parametrize(
    "change",
    [
        {"a new condition": []},
        {"versions": "0.1"},
        {"versions": ">=one"},
        {"title": 3},
        {"options": {"a": 1}},
    ],
)
def test_what_cannot_be_understood_is_refused(releases: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    code, told = asked(releases, tmp_path, {**FLAW, **change})
    assert code == 2
    assert "expected a list of advisories" in told["error"]


def test_nothing_is_known_yet_and_the_example_can_be_read(releases: Path, tmp_path: Path) -> None:
    assert read_advisories() == ()
    done = invoke("advisory", "check", releases)
    assert (done.exit_code, done.output) == (0, "no advisory is known to this version; 3 steps looked at\n")
    page = (ROOT / "docs/guide/upgrading.md").read_text(encoding="utf-8")
    found = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert found
    (tmp_path / "page.json").write_text(found[1])
    assert [one.id for one in read_advisories(tmp_path / "page.json")] == ["DPS-2027-001"]
