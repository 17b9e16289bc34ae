"""Classifiers of a growing table on the command line, from a file through the verbs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from cli_stream import dpstream, status

from dpstream.io.sinks import read_manifest
from dpstream.io.sinks import read_table as read

ROWS, STEPS = 400, 4


def config(folder: Path, mechanism: str = 'target = "late"', output: str = "") -> Path:
    path = folder / "dpstream.toml"
    path.write_text(
        '[stream]\nname = "loans"\ntotal = "public"\n'
        '[source]\npath = "data/*.csv"\nevery = "files"\n'
        '[schema.columns.late]\ntype = "boolean"\n'
        '[schema.columns.kind]\ntype = "categorical"\nvalues = ["x", "y", "z"]\n'
        '[schema.columns.age]\ntype = "integer"\nedges = [0, 30, 60, 90]\n'
        f'[mechanism]\nname = "scheduler"\nblack_box = "erm"\nfirst_run = 700\ngamma = "1/2"\n{mechanism}\n'
        f'[budget]\nepsilon = "20"\n[output]\n{output}\n',
        encoding="utf-8",
    )
    (folder / "data").mkdir(exist_ok=True)
    g = np.random.default_rng(1)
    for step in range(STEPS):
        kind = g.choice(["x", "y", "z"], ROWS)
        late = g.random(ROWS) < np.where(kind == "x", 0.9, 0.1)
        table = pa.table({"late": late, "kind": kind, "age": g.integers(0, 91, ROWS)})
        pyarrow.csv.write_csv(table, folder / "data" / f"{step}.csv")
    return path


def test_a_classifier_runs_from_a_file_through_the_verbs(tmp_path: Path) -> None:
    made = config(tmp_path, 'target = "late"\nnumbers = ["age"]')
    shown = " ".join(dpstream("plan", made).output.split())
    assert "logistic regression for 'late' on 4 features" in shown
    assert "bound on the excess risk" in shown
    values = {
        one["key"]: one["value"] for one in json.loads(dpstream("plan", made, "--json").stdout)["values"]
    }
    assert (values["positive"], values["predictors"]) == ("true", "all others")
    dpstream("run", made, "--test-seed", 1)
    table = read(tmp_path / "releases").to_pydict()
    assert table["feature"] == ["kind=x", "kind=y", "kind=z", "age"]
    assert table["coefficient"][0] > max(table["coefficient"][1:3])
    manifest = read_manifest(tmp_path / "releases", 3)
    assert (manifest["rows"], manifest["rows_in_table"]) == (ROWS * 3, 4)
    assert manifest["accuracy"]["run"]["t"] == 1200
    assert status(made)["spent"] == "epsilon = 20 (pure)"
    page = dpstream("statement", made).output
    assert "one record" in page
    assert "A classifier is published" in page
    assert "by which late can be guessed from kind, age" in page
    assert "A synthetic table" not in page
    for options in (("--rows", "2"), ("--seed", "1"), ("--draws", "2")):
        drawn = dpstream("sample", made, "--step", "4", *options, "--out", tmp_path / "drawn.csv", code=2)
        assert "no records can be drawn" in drawn.stderr
    dpstream("sample", made, "--step", "4", "--out", tmp_path / "drawn.csv")
    assert pyarrow.csv.read_csv(tmp_path / "drawn.csv").num_rows == 4
    book = json.loads((tmp_path / "releases" / "codebook.json").read_text())
    assert [one["name"] for one in book["resources"][0]["schema"]["fields"]] == list(table)
    assert "classifier" in dpstream("evaluate", made, code=2).stderr


@pytest.mark.parametrize(
    ("mechanism", "output", "words"),
    [
        ("", "", "target: the key is missing"),
        ('target = "late"\npositive = "maybe"', "", "has no label 'maybe'"),
        ('target = "late"\nworkload = "all-1-way"', "", "has no option 'workload'"),
        ('target = "late"\npredictors = ["late"]', "", "one of them is the target"),
        ('target = "late"', 'records = "persistent"', "no records that could persist"),
    ],
    ids=["none", "label", "workload", "itself", "persistent"],
)
def test_what_does_not_go_together_is_said(tmp_path: Path, mechanism: str, output: str, words: str) -> None:
    found = dpstream("plan", config(tmp_path, mechanism, output), code=2).stderr
    assert words in " ".join(found.split())
