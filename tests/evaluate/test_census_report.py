"""The page of a table of keyed records: its releases are tables of the schema's columns, and shown like others."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from report_pages import Page

from dpstream.cli import main
from dpstream.io.sinks.simulated_errors import simulated_errors


def dpstream(*words: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("census") / "stock"
    dpstream("simulate", "stock", "--steps", 3, "--records", 200, "--columns", 3, "--out", folder)
    dpstream("run", folder / "dpstream.toml")
    return folder


def test_the_tables_of_a_census_are_read_and_drawn(stock: Path, tmp_path: Path) -> None:
    dpstream("report", stock / "releases", "--out", tmp_path / "r.html", "--pair", "region", "sector")
    page = Page(tmp_path / "r.html")
    assert "3 manifests and 3 tables were read" in page.words
    # No command was run yet, but what was measured of columns has exact intervals.
    assert re.search(r"measured numbers are right to within [\d, to]+ records as of step", page.words)
    assert "the publisher can find out with dpstream errors" in page.words
    assert len(page.data["heat"]["pairs"]) == 3
    assert set(page.bars) >= {"region", "sector"}
    for title in ("Two columns together", "What changed since last time", "Where it is weak"):
        assert title in page.words
    assert "What was measured, and when, is published beside the tables" in page.words


def test_errors_by_simulation_stand_on_the_page_beside_what_was_measured(stock: Path, tmp_path: Path) -> None:
    unknown = "How wrong its counts may be is not known"
    assert unknown in dpstream("statement", stock / "dpstream.toml")
    dpstream("errors", stock / "dpstream.toml", "--runs", 3)
    statement = dpstream("statement", stock / "dpstream.toml")
    assert unknown not in statement
    assert "How wrong its counts may be was found by simulation" in statement
    dpstream("report", stock / "dpstream.toml", "--out", tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert "Errors by simulation, 95 %. Measured: records as of step" in page.words
    assert "A bracket marks a 95 % interval by simulation." in page.words
    assert "Errors by simulation, everything included" in page.words
    assert "have no error bars" not in page.words
    assert "By simulation the standard error of a cell is" in page.data["heat"]["pairs"][0]["e"]
    assert "cannot be told from what is public" not in page.words
    # As far as the card says, 19 of 20 of the single counts are off by their own simulated errors.
    (reach,) = re.findall(r"19 of 20 single counts to within ([\d,]+) records", page.words)[:1]
    found = simulated_errors(stock / "releases", 3)
    assert found is not None
    errors = np.concatenate([found.of_cells([name]) for name in ("region", "sector", "legal_form")])  # type: ignore[misc]
    drawn = np.random.default_rng(1).standard_t(3, (20_000, len(errors))) * errors
    assert np.mean(np.abs(drawn) <= float(reach.replace(",", ""))) == pytest.approx(0.95, abs=0.01)
