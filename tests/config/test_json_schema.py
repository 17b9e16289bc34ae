"""The JSON Schema of ``dpstream.toml``: committed as it is made, and true of every example."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from cli_stream import dpstream
from schema_check import faults
from small_configs import RENT, load, of_mechanism, write_config

from dpstream.families.registry import mechanisms
from dpstream.project.json_schema import json_schema
from dpstream.tools.simulate import EXAMPLES, simulate

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "dpstream.schema.json"


def whole_files() -> dict[str, str]:
    """Every configuration in the documentation that is a whole file, and the golden draft of ``init``."""
    found = {"golden_draft": (ROOT / "tests" / "schema" / "golden_draft.toml").read_text(encoding="utf-8")}
    for page in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")]):
        blocks = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        wholes = [text for text in blocks if {"stream", "budget", "schema"} <= set(tomllib.loads(text))]
        found |= {f"{page.relative_to(ROOT)} {number}": text for number, text in enumerate(wholes)}
    return found


def test_the_committed_schema_is_the_one_that_is_made() -> None:
    assert json.loads(PAGE.read_text(encoding="utf-8")) == json_schema(), (
        "make it again: python -m dpstream.project.json_schema > docs/reference/dpstream.schema.json"
    )


def test_a_draft_names_the_schema_beside_it(tmp_path: Path) -> None:
    """Editors find it without a network, also after the folder has moved; nothing that is there is replaced."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.csv").write_text("day,zip\n2026-01-05,10101\n", encoding="utf-8")
    for name in ("first.toml", "second.toml"):
        out = tmp_path / name
        dpstream("init", tmp_path / "data", "--time-column", "day", "--out", out)
        line = out.read_text(encoding="utf-8").splitlines()[0]
        beside = tmp_path / line.removeprefix("#:schema ")
        if name == "first.toml":
            assert json.loads(beside.read_text(encoding="utf-8")) == json_schema()
            beside.write_text("{}", encoding="utf-8")
    assert beside.read_text(encoding="utf-8") == "{}"
    assert json.loads(dpstream("init", "--json-schema").output) == json_schema()


def test_every_example_of_the_repository_fits() -> None:
    files = whole_files()
    assert len(files) > 3
    found = {name: faults(tomllib.loads(text)) for name, text in files.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_simulated_stream_fits(example: str, tmp_path: Path) -> None:
    config = simulate(example, 6, tmp_path)
    assert faults(tomllib.loads(config.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("mechanism", mechanisms())
def test_a_file_of_every_mechanism_fits_and_those_of_others_do_not(mechanism: str, tmp_path: Path) -> None:
    schema = json_schema()
    parts = of_mechanism(mechanism)
    document = tomllib.loads(write_config(tmp_path, **parts).read_text(encoding="utf-8"))
    load(tmp_path, **parts)
    assert faults(document) == []
    section = schema["properties"]["mechanism"]
    rules = {rule["if"]["properties"]["name"]["const"]: rule["then"] for rule in section["allOf"]}
    own = set(rules[mechanism]["propertyNames"]["enum"])
    foreign = sorted(set(section["properties"]) - own)
    assert foreign
    for key in foreign:
        wrong = {**document, "mechanism": {**document["mechanism"], key: 1}}
        assert any(one.startswith(f'mechanism: "{key}" is not one of ') for one in faults(wrong))
    for key in rules[mechanism]["required"]:
        rest = {name: value for name, value in document["mechanism"].items() if name != key}
        assert f'mechanism: "{key}" is a required property' in faults({**document, "mechanism": rest})


@pytest.mark.parametrize(
    ("section", "line", "fault"),
    [
        ("stream", "zzz = 1", "stream: Additional properties are not allowed ('zzz'"),
        ("mechanism", 'workload = "all-pairs"', "mechanism.workload: "),
        ("mechanism", "staleness = true", "mechanism.staleness: true is not of types "),
        ("mechanism", "iterations = 0", "mechanism.iterations: 0 is less than the minimum of 1"),
        ("mechanism", 'name = "dpstab"', 'mechanism.name: "dpstab" is not one of '),
        ("rest", '[output]\nformat = "xlsx"', 'output.format: "xlsx" is not one of '),
        ("rest", "[base]\nstep = 1", 'base: "releases" is a required property'),
        ("rest", RENT.replace("edges", "edge"), 'schema.columns.rent: "edge" is not one of '),
    ],
)
def test_wrong_files_are_told(section: str, line: str, fault: str, tmp_path: Path) -> None:
    document = tomllib.loads(write_config(tmp_path, **{section: line}).read_text(encoding="utf-8"))
    assert any(one.startswith(fault) for one in faults(document)), faults(document)
