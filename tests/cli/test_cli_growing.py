"""Growing databases and points on the command line: from a file, through every verb."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cli_stream import dpstream, status
from small_configs import PAID, PUBLIC, ZIP, write_config, write_rows

from dpstream.io.sinks import read_changes, read_manifest
from dpstream.io.sinks import read_table as read

FILES = 'path = "data/*.csv"\nevery = "files"'
SCHEDULER = 'name = "scheduler"\nfirst_run = 100\ngamma = "1/2"'
AGE = '[schema.columns.age]\ntype = "integer"\nedges = [0, 30, 60, 90]\n'


def config(folder: Path, mechanism: str = SCHEDULER, total: str = "public") -> Path:
    generator = np.random.default_rng(1)
    for step in range(6):
        paid = generator.random(60) < 0.9
        write_rows(folder, f"{step}.csv", "paid,zip", (f"{p},{'a' if p else 'c'}" for p in paid))
    stream = f'total = "{total}"'
    return write_config(
        folder, stream=stream, source=FILES, columns=PAID + ZIP, mechanism=mechanism, budget='epsilon = "2"'
    )


def test_a_scheduler_runs_from_a_file_through_every_verb(tmp_path: Path) -> None:
    made = config(tmp_path)
    facts = json.loads(dpstream("plan", made, "--runs-until", 1000, "--json").stdout)
    runs = facts["growing"]["runs"]
    assert [run["records"] for run in runs] == [100, 150, 225, 338, 507, 760]
    spent = sum(Fraction(run["cost"]) for run in runs)
    assert float(spent) + runs[-1]["left"] == pytest.approx(2, rel=1e-5)
    assert facts["sum"] == "2"
    dpstream("plan", made)
    dpstream("check", made)
    assert "6 new steps" in dpstream("run", made, "--test-seed", 1).output
    accuracies = [read_manifest(tmp_path / "releases", step)["accuracy"] for step in range(1, 7)]
    made_at = [None if one["run"] is None else one["run"]["t"] for one in accuracies]
    assert made_at == [None, 120, 180, 240, 240, 360]
    assert "The first run is at 100 records" in accuracies[0]["words"]
    table = read(tmp_path / "releases")
    assert table.num_rows == 360
    assert np.mean(table.column("paid").to_numpy(zero_copy_only=False)) > 0.7
    assert status(made)["spent"] == "epsilon = 2 (pure)"
    assert "every run reads all records so far" in dpstream("statement", made).output
    assert json.loads(dpstream("evaluate", made, "--json").stdout)
    dpstream("report", made, "--out", tmp_path / "page.html")
    assert "noisy number" not in (tmp_path / "page.html").read_text(encoding="utf-8")
    refused = dpstream("init", "--after", made, "--out", tmp_path / "next.toml", code=2).stderr
    assert "'scheduler' cannot begin with another stream's table" in refused
    dpstream("sample", made, "--step", 6, "--rows", 10, "--out", tmp_path / "more.csv")
    assert len((tmp_path / "more.csv").read_text().splitlines()) == 11


def classifier(folder: Path, mechanism: str, output: str = "") -> Path:
    g = np.random.default_rng(1)
    for step in range(4):
        zips, ages = g.choice(["a", "b", "c"], 400), g.integers(0, 91, 400)
        paid = g.random(400) < np.where(zips == "a", 0.9, 0.1)
        rows = (f"{p},{z},{a}" for p, z, a in zip(paid, zips, ages, strict=True))
        write_rows(folder, f"{step}.csv", "paid,zip,age", rows)
    box = 'name = "scheduler"\nblack_box = "erm"\nfirst_run = 700\ngamma = "1/2"\n'
    return write_config(
        folder,
        stream=PUBLIC,
        source=FILES,
        columns=PAID + ZIP + AGE,
        mechanism=box + mechanism,
        budget='epsilon = "20"',
        rest=f"[output]\n{output}",
    )


def test_a_classifier_runs_from_a_file_through_the_verbs(tmp_path: Path) -> None:
    made = classifier(tmp_path, 'target = "paid"\nnumbers = ["age"]')
    dpstream("plan", made)
    values = {
        one["key"]: one["value"] for one in json.loads(dpstream("plan", made, "--json").stdout)["values"]
    }
    assert (values["positive"], values["predictors"]) == ("true", "all others")
    dpstream("run", made, "--test-seed", 1)
    table = read(tmp_path / "releases").to_pydict()
    assert table["feature"] == ["zip=a", "zip=b", "zip=c", "age"]
    assert table["coefficient"][0] > max(table["coefficient"][1:3])
    manifest = read_manifest(tmp_path / "releases", 3)
    assert (manifest["rows"], manifest["rows_in_table"]) == (1200, 4)
    assert manifest["accuracy"]["run"]["t"] == 1200
    assert status(made)["spent"] == "epsilon = 20 (pure)"
    page = dpstream("statement", made).output
    assert "by which paid can be guessed from zip, age" in page
    assert "A synthetic table" not in page
    for options in (("--rows", "2"), ("--seed", "1")):
        drawn = dpstream("sample", made, "--step", "4", *options, "--out", tmp_path / "drawn.csv", code=2)
        assert "neither records nor counts" in drawn.stderr
    dpstream("sample", made, "--step", "4", "--out", tmp_path / "drawn.csv")
    assert len((tmp_path / "drawn.csv").read_text().splitlines()) == 5
    book = json.loads((tmp_path / "releases" / "codebook.json").read_text())
    assert [one["name"] for one in book["resources"][0]["schema"]["fields"]] == list(table)
    assert "classifier" in dpstream("evaluate", made, code=2).stderr


TARGET = 'target = "paid"'
WRONG = [
    (config, (SCHEDULER, "private"), "[stream] total: a growing database cannot protect the unit 'event'", 2),
    (config, (f'{SCHEDULER}\nblack_box = "smalldb"\nsize = 60',), "databases of 60 records over 6 cells", 3),
    (classifier, ("",), "target: the key is missing", 2),
    (classifier, (f'{TARGET}\npositive = "maybe"',), "lacks the label 'maybe'", 2),
    (classifier, (f'{TARGET}\npredictors = ["paid"]',), "include the target", 2),
    (classifier, (TARGET, 'records = "persistent"'), "a classifier has no persistent records", 2),
]


@pytest.mark.parametrize(("made", "parts", "words", "code"), WRONG)
def test_what_does_not_go_together_is_said(
    tmp_path: Path, made: Callable[..., Path], parts: tuple[str, ...], words: str, code: int
) -> None:
    assert words in " ".join(dpstream("plan", made(tmp_path, *parts), code=code).stderr.split())


# Points


GENERATOR = np.random.default_rng(5)
ROWS = {
    "day": np.repeat(np.arange(1, 5), 500),
    "kind": GENERATOR.choice(["cafe", "shop"], 2000, p=[0.8, 0.2]),
    "price": np.round(np.exp(GENERATOR.normal(3.0, 0.5, 2000)), 2),
    "hour": GENERATOR.normal(0.0, 2.0, 2000) % 24.0,
}


def points_config(folder: Path, *, last_price: float = 20.0, more: str = "") -> Path:
    prices = [*ROWS["price"][:-1], last_price]
    lines = (",".join(map(str, row)) for row in zip(*{**ROWS, "price": prices}.values(), strict=True))
    write_rows(folder, "a.csv", ",".join(ROWS), lines)
    return write_config(
        folder,
        stream=PUBLIC,
        source='path = "data/*.csv"\ntime_column = "day"\nend = 4',
        columns='[schema.columns.kind]\ntype = "categorical"\nvalues = ["cafe", "shop", "none"]\n'
        f'[schema.columns.price]\ntype = "real"\nedges = [0.1, 10, 20, 40, 5000]\n{more}\n'
        '[schema.columns.hour]\ntype = "real"\nedges = [0, 12, 24]\n',
        mechanism='name = "points"\nlog = ["price"]\nperiodic = ["hour"]\nmax_depth = 14',
        budget='epsilon = "20"',
        rest='[output]\nformat = "csv"\nrecords = "persistent"\npublish = "both"',
    )


def test_points_come_out_where_they_went_in(tmp_path: Path) -> None:
    """Oracle: shares of the private rows, far beyond the noise at this epsilon."""
    made = points_config(tmp_path)
    dpstream("check", made)
    assert "4 new steps" in dpstream("run", made, "--test-seed", 1).output
    table = read(tmp_path / "releases").to_pydict()
    assert len(table["price"]) == 2000
    for name, test in {
        "kind": lambda kind: kind == "cafe",
        "price": lambda price: price < 20,
        "hour": lambda hour: hour < 12,
    }.items():
        true = np.mean([test(value) for value in ROWS[name]])
        assert np.mean([test(value) for value in table[name]]) == pytest.approx(true, abs=0.06), name
    # Midnight is the middle of the circle's crowd, and noon is empty.
    assert np.mean([6 < hour < 18 for hour in table["hour"]]) < 0.05
    assert min(table["price"]) >= 0.1
    facts = read_manifest(tmp_path / "releases", 4)
    rows = read_changes(tmp_path / "releases", 4)
    assert rows.num_rows == facts["records"]["deletes"] + facts["records"]["inserts"]
    assert facts["accuracy"]["points"]["depth"] > 5
    assert "0 new steps" in dpstream("run", made).output
    assert status(made)["steps"] == 4
    dpstream("sample", made, "--step", 4, "--rows", 7, "--seed", 1, "--out", tmp_path / "some.csv")
    assert (tmp_path / "some.csv").read_text().count("\n") == 8
    assert "Synthetic points are published" in dpstream("statement", made).output


def test_a_declared_border_takes_what_lies_beyond(tmp_path: Path) -> None:
    made = points_config(tmp_path, last_price=98765.4321, more='outside = "clip"')
    dpstream("check", made)
    dpstream("run", made)
    facts = json.loads(dpstream("plan", made, "--json").output)
    assert any("taken to the nearest border, by declaration" in fact for fact in facts["declared_public"])
    assert max(read(tmp_path / "releases").to_pydict()["price"]) <= 5000
