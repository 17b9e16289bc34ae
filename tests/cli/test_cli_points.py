"""Points on the command line: what runs, what is refused, and what is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_stream import dpstream, status
from small_configs import PUBLIC, write_config, write_rows

from dpstream.io.sinks import read_changes, read_manifest
from dpstream.io.sinks import read_table as read

GENERATOR = np.random.default_rng(5)
ROWS = {
    "day": np.repeat(np.arange(1, 5), 500),
    "kind": GENERATOR.choice(["cafe", "shop"], 2000, p=[0.8, 0.2]),
    "price": np.round(np.exp(GENERATOR.normal(3.0, 0.5, 2000)), 2),
    "hour": GENERATOR.normal(0.0, 2.0, 2000) % 24.0,
}


def config(folder: Path, *, last_price: float = 20.0, more: str = "") -> Path:
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
    made = config(tmp_path)
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


def test_a_plan_of_points(tmp_path: Path) -> None:
    made = config(tmp_path)
    dpstream("plan", made)
    facts = json.loads(dpstream("plan", made, "--json").output)
    assert 1 <= facts["points"]["first_cells"] < 10
    starts = [one["from_point"] for one in facts["points"]["depths"]]
    assert starts == sorted(starts)
    assert facts["sum"] == "20"
    compared = json.loads(dpstream("plan", made, "--compare-epsilon", "1,2", "--json").output)["compared"]
    assert abs(compared[0]["first_cells"] - 2 * compared[1]["first_cells"]) <= 2
    declared = " ".join(facts["declared_public"])
    for column in ("price", "hour"):
        assert f"a value beyond the bounds of '{column}' stops the stream" in declared
    # Nothing can be clipped on a circle.
    assert declared.count("would take it to the nearest border") == 1
    for verb in (("evaluate", made), ("audit", made, "--only", "exact")):
        dpstream(*verb, code=2)


def test_a_declared_border_takes_what_lies_beyond(tmp_path: Path) -> None:
    made = config(tmp_path, last_price=98765.4321, more='outside = "clip"')
    dpstream("check", made)
    dpstream("run", made)
    facts = json.loads(dpstream("plan", made, "--json").output)
    assert any("taken to the nearest border, by declaration" in fact for fact in facts["declared_public"])
    assert max(read(tmp_path / "releases").to_pydict()["price"]) <= 5000
