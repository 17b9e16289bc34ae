"""Points on the command line: what runs, what is refused, and what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from cli_stream import dpstream, status
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.io.sinks import read_changes
from dpstream.io.sinks import read_table as read

GENERATOR = np.random.default_rng(5)
ROWS = {
    "day": np.repeat(np.arange(1, 5), 500),
    "kind": GENERATOR.choice(["cafe", "shop"], 2000, p=[0.8, 0.2]),
    "price": np.round(np.exp(GENERATOR.normal(3.0, 0.5, 2000)), 2),
    "hour": GENERATOR.normal(0.0, 2.0, 2000) % 24.0,
}
ODD = 98765.4321


def config(folder: Path, *, mechanism: str = "", stream: str = 'total = "public"', more: str = "") -> Path:
    path = folder / "dpstream.toml"
    path.write_text(
        f'[stream]\nname = "visits"\n{stream}\n'
        '[source]\npath = "data/*.csv"\ntime_column = "day"\nend = 4\n'
        '[schema.columns.kind]\ntype = "categorical"\nvalues = ["cafe", "shop", "none"]\n'
        f'[schema.columns.price]\ntype = "real"\nedges = [0.1, 10, 20, 40, 5000]\n{more}\n'
        '[schema.columns.hour]\ntype = "real"\nedges = [0, 12, 24]\n'
        f'[mechanism]\nname = "points"\nlog = ["price"]\nperiodic = ["hour"]\nmax_depth = 14\n{mechanism}\n'
        '[budget]\nepsilon = "20"\n[output]\nformat = "csv"\nrecords = "persistent"\npublish = "both"\n',
        encoding="utf-8",
    )
    (folder / "data").mkdir(exist_ok=True)
    return path


def save(folder: Path, rows: dict[str, Any]) -> None:
    pyarrow.csv.write_csv(pa.table(rows), folder / "data" / "a.csv")


def changed(column: str, value: object) -> dict[str, Any]:
    """One wrong value in the last step."""
    values = [*ROWS[column][:-1].tolist(), value]
    return {**ROWS, column: values}


def test_points_come_out_where_they_went_in(tmp_path: Path) -> None:
    """Oracle: shares of the private rows, far beyond the noise at this epsilon."""
    made = config(tmp_path)
    save(tmp_path, ROWS)
    shown = " ".join(dpstream(*verb).output for verb in (("check", made), ("run", made, "--test-seed", 1)))
    assert "4 new steps" in shown
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
    facts = json.loads((tmp_path / "releases" / "step-000004" / "manifest.json").read_text())
    rows = read_changes(tmp_path / "releases", 4)
    assert rows.num_rows == facts["records"]["deletes"] + facts["records"]["inserts"]
    assert facts["accuracy"]["points"]["depth"] > 5
    assert "0 new steps" in dpstream("run", made).output
    assert status(made)["steps"] == 4
    dpstream("sample", made, "--step", 4, "--rows", 7, "--seed", 1, "--out", tmp_path / "some.csv")
    assert (tmp_path / "some.csv").read_text().count("\n") == 8


def test_words_about_points(tmp_path: Path) -> None:
    made = config(tmp_path)
    save(tmp_path, ROWS)
    dpstream("run", made, "--until", 1)
    told = " ".join(dpstream("plan", made).output.split())
    assert "cells of depth j begin with point" in told
    assert "price, hour; 3 categories" in told
    facts = json.loads(dpstream("plan", made, "--json").output)
    assert 1 <= facts["points"]["first_cells"] < 10
    starts = [one["from_point"] for one in facts["points"]["depths"]]
    assert starts == sorted(starts)
    assert facts["sum"] == "20"
    compared = json.loads(dpstream("plan", made, "--compare-epsilon", "1,2", "--json").output)["compared"]
    assert abs(compared[0]["first_cells"] - 2 * compared[1]["first_cells"]) <= 2
    assert "first cells from point" in dpstream("plan", made, "--compare-epsilon", "1,2").output
    facts_in_words = " ".join(facts["declared_public"])
    for column in ("price", "hour"):
        assert f"a value beyond the bounds of '{column}' stops the stream" in facts_in_words
    # Nothing can be clipped on a circle.
    assert facts_in_words.count("would take it to the nearest border") == 1
    statement = dpstream("statement", made).output
    assert "Synthetic points are published" in statement
    for verb in (("evaluate", made), ("audit", made, "--only", "exact")):
        found = CliRunner().invoke(main, [str(word) for word in verb])
        assert "Traceback" not in found.output


def test_a_declared_border_takes_what_lies_beyond(tmp_path: Path) -> None:
    made = config(tmp_path, more='outside = "clip"')
    save(tmp_path, changed("price", ODD))
    dpstream("check", made)
    dpstream("run", made)
    assert "taken to the nearest border, by declaration" in " ".join(dpstream("plan", made).output.split())
    assert max(read(tmp_path / "releases").to_pydict()["price"]) <= 5000
