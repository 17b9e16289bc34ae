"""Growing databases on the command line: a scheduler and an improver from a file, through every verb."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from cli_stream import dpstream, status

from dpstream.io.sinks import read_manifest
from dpstream.io.sinks import read_table as read

ROWS = 60
STEPS = 6


def config(
    folder: Path, *, mechanism: str = "", budget: str = 'epsilon = "2"', total: str = "public"
) -> Path:
    path = folder / "dpstream.toml"
    path.write_text(
        f'[stream]\nname = "members"\ntotal = "{total}"\n'
        '[source]\npath = "data/*.csv"\nevery = "files"\n'
        '[schema.columns.paid]\ntype = "boolean"\n'
        '[schema.columns.kind]\ntype = "categorical"\nvalues = ["x", "y", "z"]\n'
        f'[mechanism]\nname = "scheduler"\nfirst_run = 100\ngamma = "1/2"\n{mechanism}\n'
        f'[budget]\n{budget}\n[output]\nformat = "csv"\n',
        encoding="utf-8",
    )
    (folder / "data").mkdir(exist_ok=True)
    generator = np.random.default_rng(1)
    for step in range(STEPS):
        paid = generator.random(ROWS) < 0.9
        kind = np.where(paid, "x", "z")
        table = pa.table({"paid": paid, "kind": kind})
        pyarrow.csv.write_csv(table, folder / "data" / f"{step}.csv")
    return path


def test_a_scheduler_runs_from_a_file_through_every_verb(tmp_path: Path) -> None:
    made = config(tmp_path)
    shown = " ".join(dpstream("plan", made).output.split())
    assert "a run at 100 records and then whenever the records have grown by a factor of 1.5" in shown
    assert "left for ever" in shown
    assert "is one run with their budgets together" in shown
    assert "0.22222222" in shown  # not 11111111/50000000
    assert "/50000000" not in shown
    assert "Theory promises nothing about the accuracy of this black box" in shown
    facts = json.loads(dpstream("plan", made, "--runs-until", 1000, "--json").stdout)
    runs = facts["growing"]["runs"]
    assert [run["records"] for run in runs] == [100, 150, 225, 338, 507, 760]
    spent = sum(Fraction(run["cost"]) for run in runs)
    assert float(spent) + runs[-1]["left"] == pytest.approx(2, rel=1e-5)
    assert facts["sum"] == "2"
    assert "6 steps read" in dpstream("check", made).output
    assert "6 new steps" in dpstream("run", made, "--test-seed", 1).output
    accuracies = [read_manifest(tmp_path / "releases", step)["accuracy"] for step in range(1, STEPS + 1)]
    assert [None if one["run"] is None else one["run"]["t"] for one in accuracies] == [
        None,
        120,
        180,
        240,
        240,
        360,
    ]
    assert "Nothing yet: the first run is made at 100 records" in accuracies[0]["words"]
    assert "is repeated at 300" in accuracies[4]["words"]
    table = read(tmp_path / "releases")
    assert table.num_rows == ROWS * STEPS
    assert np.mean(table.column("paid").to_numpy(zero_copy_only=False)) > 0.7
    assert status(made)["spent"] == "epsilon = 2 (pure)"
    sentences = dpstream("statement", made).output
    assert "every run reads all records so far" in sentences
    assert "charged in the one step" not in sentences
    judged = json.loads(dpstream("evaluate", made, "--json").stdout)
    assert judged
    dpstream("report", made, "--out", tmp_path / "page.html")
    page = " ".join((tmp_path / "page.html").read_text(encoding="utf-8").split())
    assert ", a public number" in page
    assert "they have no noise" in page
    assert "noisy number" not in page
    assert "What all steps take together" in page
    refused = dpstream("init", "--after", made, "--out", tmp_path / "next.toml", code=2).stderr
    assert "'scheduler' cannot begin with another stream's table" in refused
    dpstream("sample", made, "--step", 6, "--rows", 10, "--out", tmp_path / "more.csv")
    assert len((tmp_path / "more.csv").read_text().splitlines()) == 11


WRONG = {
    "private": (
        {"total": "private"},
        "[stream] total: a growing database cannot protect the unit 'event'",
        2,
    ),
    "box": ({"mechanism": "size = 3"}, "black_box = 'mwem-pgm' has no option 'size'", 2),
    "large": (
        {"mechanism": 'black_box = "smalldb"\nsize = 60'},
        "databases of 60 records over 6 cells, and SmallDB compares all of them",
        3,
    ),
}


@pytest.mark.parametrize(("parts", "words", "code"), WRONG.values(), ids=WRONG)
def test_wrong_files_are_refused_in_a_sentence(
    tmp_path: Path, parts: dict[str, str], words: str, code: int
) -> None:
    made = config(tmp_path, **parts)
    refused = dpstream("plan", made, code=code)
    assert words in " ".join(refused.stderr.split())


def test_runs_are_listed_of_growing_databases_only(tmp_path: Path) -> None:
    made = config(tmp_path)
    made.write_text(
        made.read_text().replace('name = "scheduler"\nfirst_run = 100\ngamma = "1/2"', 'name = "baseline"')
    )
    assert "has no runs to be listed" in dpstream("plan", made, "--runs-until", 5, code=2).stderr
