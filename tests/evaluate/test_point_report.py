"""A report and an evaluation of points say what is in the releases, and how far that is from the private points."""

from __future__ import annotations

import csv
import json
import re
import shutil
import stat
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from cli_stream import dpstream
from report_pages import Page

from dpstream.core.errors import StepError
from dpstream.io.sinks import read_manifest, readable_steps
from dpstream.io.sinks import read_table as read
from dpstream.project import Config
from dpstream.tools.evaluate import LABEL
from dpstream.tools.evaluate.contract import EvaluationRequest
from dpstream.tools.families.points.point_evaluation import evaluate_points
from dpstream.tools.families.points.points_page import LEVELS, levels, map_paths
from dpstream.tools.families.points.transport import line, w1
from dpstream.tools.report import write_report

STEPS = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rides in a city: a category, three coordinates, the last one a circle. Tests do not change it."""
    folder = tmp_path_factory.mktemp("points") / "rides"
    dpstream("simulate", "points", "--steps", STEPS, "--rows-per-step", 150, "--out", folder)
    dpstream("run", folder / "dpstream.toml")
    return folder


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two coordinates, one of them whole numbers, three steps."""
    folder = tmp_path_factory.mktemp("plane")
    return stream(
        folder, {"x": 'type = "real"\nedges = [0, 4]', "hour": 'type = "integer"\nmin = 0\nmax = 23'}
    )


def stream(folder: Path, columns: dict[str, str], more: str = "", output: str = "") -> Path:
    """A run over points of a cluster, 300 a step; every column is its own."""
    generator = np.random.default_rng(3)
    (folder / "data").mkdir()
    for step in (1, 2, 3):
        rows = ["step," + ",".join(columns)]
        for _ in range(300):
            value = float(np.clip(generator.normal(1.0, 0.3), 0.02, 3.99))
            rows.append(
                f"{step},"
                + ",".join(str(value if "real" in kind else int(5 * value)) for kind in columns.values())
            )
        (folder / "data" / f"{step}.csv").write_text("\n".join(rows) + "\n")
    schema = "".join(f"[schema.columns.{json.dumps(name)}]\n{kind}\n" for name, kind in columns.items())
    (folder / "dpstream.toml").write_text(
        'format = 1\n[stream]\nname = "cluster"\ntotal = "public"\n[source]\npath = "data/*.csv"\n'
        f'time_column = "step"\nend = 3\n{schema}[mechanism]\nname = "points"\n{more}[budget]\nepsilon = "1"\n{output}'
    )
    dpstream("run", folder / "dpstream.toml")
    return folder


def rows_of(folder: Path) -> list[dict[str, str]]:
    """The private records, read without the program."""
    return [row for path in sorted((folder / "data").glob("*.csv")) for row in table_of(path)]


def table_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_map_is_drawn_as_it_is() -> None:
    shares = np.random.default_rng(1).random((7, 5)) * (np.random.default_rng(2).random((7, 5)) > 0.4)
    steps = np.zeros((7, 5), int)
    for level, path in map_paths(shares, 1.0):
        for x, y, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path):
            steps[int(y), int(x) : int(x) + int(width)] += level
    assert (steps == levels(shares, 1.0)).all()
    assert steps.max() <= LEVELS


# The page.


def test_public_page_is_made_of_public_files(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    from_config = write_report(copy / "dpstream.toml", copy / "c.html").read_bytes()
    shutil.rmtree(copy / "data")
    shutil.rmtree(copy / "state")
    (copy / "dpstream.toml").unlink()
    page = write_report(copy / "releases", copy / "f.html")
    assert page.read_bytes() == from_config
    assert LABEL.encode() not in from_config
    read_page = Page(page)
    points = [read_manifest(folder / "releases", step)["rows"] for step in range(1, STEPS + 1)]
    depth = read_manifest(folder / "releases", STEPS)["accuracy"]["points"]["depth"]
    assert read_page.chart("Points per release")["synthetic points"] == points
    assert f"in {2**depth:,} cells of depth {depth}" in read_page.words
    vehicles = Counter(read(folder / "releases", STEPS).column("vehicle").to_pylist())
    for vehicle, count in vehicles.items():
        assert f"{vehicle} {count:,} {100 * count / points[-1]:.1f} %" in " ".join(read_page.words.split())
    # Two coordinates over five steps, and two other pairs.
    assert sum(tag == "svg" and "map" in str(a.get("class")) for tag, a in read_page.attributes) == STEPS + 2
    assert "Whatever it holds, any outcome" in read_page.words
    assert "upwards latitude from 46.9" in read_page.words
    assert len(read_page.scripts) == 2


def test_whole_numbers_have_a_row_each(plane: Path, tmp_path: Path) -> None:
    """So that no row stays empty by its size."""
    page = Page(write_report(plane / "releases", tmp_path / "r.html"))
    (box,) = {
        a["viewbox"]
        for tag, a in page.attributes
        if tag == "svg" and str(a.get("viewbox")).startswith("0 0 64")
    }
    assert box == "0 0 64 24"


def test_one_coordinate(tmp_path: Path) -> None:
    folder = stream(tmp_path, {"price": 'type = "real"\nedges = [0.01, 4]'}, 'log = ["price"]\n')
    page = Page(write_report(folder / "dpstream.toml", tmp_path / "r.html"))
    assert "to the right price (logarithmic) from 0.01 to 4" in " ".join(page.words.split())
    boxes = {a["viewbox"] for tag, a in page.attributes if tag == "svg" and a.get("class") == "map"}
    assert boxes == {"0 0 128 1"}, "a strip"
    facts = json.loads(
        dpstream("evaluate", folder / "dpstream.toml", "--out", tmp_path / "e", "--json").stdout
    )
    true = np.log(np.array([float(row["price"]) for row in rows_of(folder)]) / 0.01) / np.log(400)
    made = np.log(np.array(read(folder / "releases", 3).column("price").to_pylist()) / 0.01) / np.log(400)
    assert facts["steps"][-1]["w1"] == pytest.approx(line(true, made), rel=1e-3)


def test_changes_are_put_together(tmp_path: Path) -> None:
    """Where changes only are published, every step can be read still, also after one in between that is withdrawn."""
    more = '[output]\nrecords = "persistent"\npublish = "changes"\n'
    folder = stream(tmp_path, {"x": 'type = "real"\nedges = [0, 4]'}, "", more)
    assert readable_steps(folder / "releases") == (1, 2, 3)
    page = Page(write_report(folder / "releases", tmp_path / "r.html"))
    assert sum(tag == "svg" and "map" in str(a.get("class")) for tag, a in page.attributes) == 3
    dpstream("withdraw", folder / "dpstream.toml", "--step", 2, "--reason", "a test")
    assert readable_steps(folder / "releases") == (1, 3)
    facts = json.loads(
        dpstream("evaluate", folder / "dpstream.toml", "--out", tmp_path / "e", "--json").stdout
    )
    assert [one["step"] for one in facts["steps"]] == [1, 3]


# The evaluation.


def test_evaluation_agrees_with_the_files(plane: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluation"
    facts = json.loads(dpstream("evaluate", plane / "dpstream.toml", "--out", out, "--json").stdout)
    rows = rows_of(plane)
    assert {path.name for path in out.iterdir()} == {
        *("steps.csv", "evaluation.html", "summary.json"),
        "NOT-RELEASABLE.txt",
    }
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in out.iterdir())
    assert all(row["label"] == LABEL for row in table_of(out / "steps.csv"))
    assert facts["label"] == LABEL
    for one in facts["steps"]:
        step = one["step"]
        own = [row for row in rows if int(row["step"]) <= step]
        table = read(plane / "releases", step)
        places = [
            np.array([[float(row["x"]) / 4, (int(row["hour"]) + 0.5) / 24] for row in own]),
            np.column_stack([np.array(table.column("x")) / 4, (np.array(table.column("hour")) + 0.5) / 24]),
        ]
        assert one["true_points"] == one["released_points"] == 300 * step
        assert one["w1"] == pytest.approx(w1(*places).value, abs=1e-6)
        assert one["w1_lower"] <= one["w1"] <= one["w1_upper"]
    # The first cut halves the first column.
    first = facts["steps"][2]["cells"][0]
    assert (facts["steps"][2]["step"], first["depth"]) == (3, 1)
    left = [
        np.mean([float(row["x"]) < 2 for row in rows]),
        np.mean(np.array(read(plane / "releases", 3).column("x")) < 2),
    ]
    assert first["variation"] == pytest.approx(abs(left[0] - left[1]), abs=1e-12)


def test_evaluation_of_categories_and_chosen_steps(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluation"
    told = dpstream("evaluate", folder / "dpstream.toml", "--out", out, "--steps", "2,4").stdout
    assert [row["step"] for row in table_of(out / "steps.csv")] == ["2", "4"]
    released = Counter(read(folder / "releases", 4).column("vehicle").to_pylist())
    facts = json.loads((out / "summary.json").read_text())
    assert facts["categories"]
    for row in facts["categories"]:
        assert row["released_points"] == released[row["category"]]
    assert told.count(LABEL) == 2
    assert (out / "evaluation.html").read_text().count(LABEL) >= 3


def test_what_does_not_fit_is_refused(plane: Path, tmp_path: Path) -> None:
    config = plane / "dpstream.toml"
    for option in (["--workload", "all-1-way"], ["--target", "x"], ["--steps", "9"]):
        dpstream("evaluate", config, "--out", tmp_path / "e", *option, code=2)
    assert not (tmp_path / "e").exists()
    copy = Path(shutil.copytree(plane, tmp_path / "copy"))
    (copy / "data" / "3.csv").unlink()
    with pytest.raises(StepError, match="does not have the number of records"):
        evaluate_points(Config.load(copy / "dpstream.toml"), EvaluationRequest(copy / "releases"))
    other = copy / "other.toml"
    other.write_text((copy / "dpstream.toml").read_text().replace('epsilon = "1"', 'epsilon = "2"'))
    assert "another plan" in dpstream("evaluate", other, code=2).stderr
    comparison = tmp_path / "compare.toml"
    comparison.write_text(
        f'format = 1\n[streams.cluster]\nconfig = "{config}"\n[methods.a]\nname = "dpstabs"\n'
    )
    assert (
        "is one of points" in dpstream("lab", "compare", comparison, "--out", tmp_path / "c", code=2).stderr
    )
