"""What a reader has who has a folder of releases and nothing else: README.txt and counts.csv."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import duckdb
import numpy as np
import pandas
import pytest
from cli_stream import dpstream, make
from small_configs import rewrite

import dpstream as dp

TOLD = """[statement]
title = "Small records"
license = "CC-BY-4.0"
contact = "data@example.org"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = make(tmp_path, 6)
    made.write_text(made.read_text() + TOLD)
    dpstream("run", made)
    return made


def recipe(readme: str, tool: str) -> str:
    """The lines of a tool, as a reader copies them."""
    lines = readme.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith(tool))
    taken = [lines[first].removeprefix(tool)]
    for line in lines[first + 1 :]:
        if not line.startswith(" "):
            break
        taken.append(line)
    return "\n".join(line.strip() for line in taken)


def test_every_recipe_of_the_readme_runs_as_it_stands(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = config.parent / "releases"
    readme = (folder / "README.txt").read_text()
    assert len(readme.splitlines()) <= 40
    assert max(map(len, readme.splitlines())) <= 118
    assert readme.startswith("Small records: synthetic records")
    assert "Licence: CC-BY-4.0. Contact: data@example.org." in readme
    assert "never stack tables" in readme
    assert "Counts are measured up to step 6." in readme
    monkeypatch.chdir(folder)
    series = dp.read(folder).series((), events="came")
    counts = [float(flow.values) for flow in series.flows]
    summed = [sum(counts), np.sqrt(sum(flow.standard_error**2 for flow in series.flows))]
    listing, adding = recipe(readme, "DuckDB").split("SELECT")[1:]
    assert [row[1] for row in duckdb.sql(f"SELECT{listing}").fetchall()] == pytest.approx(counts, abs=0.001)
    (added,) = duckdb.sql(f"SELECT{adding}").fetchall()
    assert added == pytest.approx(summed, abs=0.01)
    exec(recipe(readme, "pandas"), {"pandas": pandas})
    assert list(map(float, capsys.readouterr().out.split())) == pytest.approx(summed, abs=0.01)
    # A spreadsheet has letters for columns.
    header = (folder / "counts.csv").read_text().splitlines()[0].replace('"', "").split(",")
    letters = dict(zip("ABCDEFGHIJ", header, strict=True))
    named = set(re.findall(r"\b([A-J])2:", recipe(readme, "Spreadsheet")))
    assert [letters[one] for one in sorted(named)] == ["kind", "column", "count", "standard_error"]


def test_the_files_follow_the_releases_and_may_be_lost(config: Path) -> None:
    folder = config.parent / "releases"
    names = ("README.txt", "counts.csv", "index.html", "datapackage.json", "croissant.json", "catalog.json")
    before = {name: (folder / name).read_bytes() for name in names}
    dpstream("measured", folder, "--out", config.parent / "measured.csv")
    assert (config.parent / "measured.csv").read_bytes() == before["counts.csv"]
    for name in names:
        (folder / name).unlink()
        dpstream("run", config)
        assert {name: (folder / name).read_bytes() for name in names} == before
    # A withdrawn step is in neither: what it measured last is not counted any more.
    dpstream("withdraw", config, "--step", 6, "--reason", "wrong")
    after = {name: (folder / name).read_text() for name in names}
    assert "Newest step: 5, step-000005/table.csv" in after["README.txt"]
    assert '"6"' not in after["counts.csv"]
    rewrite(config, "data@example.org", "other@example.org")
    dpstream("run", config)
    assert "other@example.org" in (folder / "README.txt").read_text()
    assert "healthy" in dpstream("status", config, "--health").stdout


def test_a_withdrawn_step_is_not_the_newest_where_no_table_is_left(tmp_path: Path) -> None:
    made = make(tmp_path, 3)
    made.write_text(made.read_text() + "\nkeep = 1\n")
    dpstream("run", made)
    folder = made.parent / "releases"
    for last in (3, 2, 1):
        assert f"Newest step: {last}" in (folder / "README.txt").read_text()
        assert f'"{last}"' in (folder / "counts.csv").read_text()
        dpstream("withdraw", made, "--step", last, "--reason", "wrong")
        assert f'"{last}"' not in (folder / "counts.csv").read_text()
    assert len((folder / "counts.csv").read_text().splitlines()) == 1
    assert "Nothing is measured beside the tables" in (folder / "README.txt").read_text()


def test_the_page_is_whole_and_shows_what_counts_csv_holds(config: Path) -> None:
    """No address, no other script, and every count of the file among its data."""
    folder = config.parent / "releases"
    page = (folder / "index.html").read_text()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<link|src=|@import|url\(", page)
    script = re.search(r"</script><script>(.*)</script>", page, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert policy in html.unescape(page)
    data = re.search(r'id="data">(.*?)</script>', page)
    assert data is not None
    shown = {
        (group["column"], group["kind"], value, span): group["cells"][at * len(group["values"]) + place]
        for group in json.loads(data[1])
        for at, span in enumerate(group["spans"])
        for place, value in enumerate(group["values"])
    }
    rows = pandas.read_csv(folder / "counts.csv", dtype={"value": str}).fillna({"value": ""})
    assert len(shown) == len(rows) > 50
    for row in rows.to_dict("records"):
        span = f"step {row['to']}" if row["kind"] == "present" or row["from"] == row["to"] else None
        span = span or f"steps {row['from']:.0f} to {row['to']}"
        half = (row["high95"] - row["low95"]) / 2
        assert shown[row["column"], row["kind"], row["value"], span] == pytest.approx(
            [row["count"], half], abs=0.11
        )
    newest = rows[(rows["kind"] == "present") & (rows["column"] == "all")].iloc[-1]
    assert f"<b>{round(newest['count']):,}</b>" in page


def test_descriptors_name_files_that_are_there_with_their_columns(config: Path) -> None:
    """The rules of Data Package v1 and Table Schema, and files as Croissant and DCAT name them."""
    folder = config.parent / "releases"
    dpstream("withdraw", config, "--step", 6, "--reason", "wrong")
    package, croissant, catalog = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("datapackage", "croissant", "catalog")
    )
    assert re.fullmatch(r"[a-z0-9._-]+", package["name"])
    assert package["licenses"] == [{"name": "CC-BY-4.0"}]
    assert [one["path"] for one in package["resources"]] == ["step-000005/table.csv", "counts.csv"]
    for resource in package["resources"]:
        table = pandas.read_csv(folder / resource["path"], keep_default_na=False, na_values=[""])
        fields = {field["name"]: field for field in resource["schema"]["fields"]}
        assert list(fields) == list(table.columns)
        for name, field in fields.items():
            told = field.get("constraints", {})
            assert set(table[name].dropna()) <= set(told.get("enum", table[name]))
            assert not told.get("required") or not table[name].isna().any()
            if field["type"] in ("number", "integer"):
                assert pandas.api.types.is_numeric_dtype(table[name])
    for name, sets in zip(("records", "counts"), croissant["recordSet"], strict=True):
        assert sets["@id"] == name
        (source,) = {field["source"]["fileObject"]["@id"] for field in sets["field"]}
        (file,) = (one for one in croissant["distribution"] if one["@id"] == source)
        data = (folder / file["contentUrl"]).read_bytes()
        assert (file["sha256"], file["contentSize"]) == (hashlib.sha256(data).hexdigest(), f"{len(data)} B")
    places = [one["dcat:downloadURL"]["@id"] for one in catalog["dcat:distribution"]]
    assert "counts.csv" in places
    assert all((folder / place).is_file() for place in places)
