"""Pages of every family say what its releases say and need nothing private; points are evaluated, too."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_stream import dpstream, make
from report_pages import Page, classifier, simulated
from small_configs import PUBLIC, write_config, write_rows

from dpstream.core.errors import ConfigError, StepError
from dpstream.io.sinks import read_manifest, readable_steps
from dpstream.io.sinks import read_table as read
from dpstream.project import Config
from dpstream.tools.evaluate import LABEL
from dpstream.tools.evaluate.contract import EvaluationRequest
from dpstream.tools.families.points.point_evaluation import evaluate_points
from dpstream.tools.families.points.points_page import LEVELS, levels, map_paths
from dpstream.tools.families.points.transport import line, w1
from dpstream.tools.report import write_report

#: Steps of the panels; points have one fewer.
STEPS = 6
PANELS = ("panel-window", "panel-cumulative")


def panel(folder: Path, mechanism: str) -> Path:
    config = simulated(folder, "panel", "--steps", STEPS, "--rows-per-step", 900)
    text = config.read_text(encoding="utf-8").replace('"panel-window"', f'"{mechanism}"')
    if mechanism == "panel-cumulative":
        text = re.sub("\nwindow.*", "", text)
    config.write_text(text, encoding="utf-8")
    return config


#: What pages are about; rides in a city: a category, three coordinates, the last one a circle.
RUNS: dict[str, Callable[[Path], Path]] = {
    "table": lambda folder: make(folder, STEPS),
    "turnover": lambda folder: simulated(folder, "stock", *("--steps", 3, "--records", 200, "--columns", 3)),
    "classifier": classifier,
    "panel-window": lambda folder: panel(folder, "panel-window"),
    "panel-cumulative": lambda folder: panel(folder, "panel-cumulative"),
    "rides": lambda folder: simulated(folder, "points", *("--steps", STEPS - 1, "--rows-per-step", 150)),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a finished run; tests do not change it."""
    made: dict[str, Path] = {}

    def run(kind: str) -> Path:
        if kind not in made:
            config = RUNS[kind](tmp_path_factory.mktemp(kind))
            dpstream("run", config)
            made[kind] = config.parent
        return made[kind]

    return run


@pytest.mark.parametrize("kind", RUNS)
def test_public_page_needs_nothing_private(
    finished: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    copy = Path(shutil.copytree(finished(kind), tmp_path / "copy"))
    from_config = write_report(copy / "dpstream.toml", copy / "c.html").read_bytes()
    from_folder = write_report(copy / "releases", copy / "f.html").read_bytes()
    if kind != "table":  # whose plan predicts errors that no manifest has
        assert from_folder == from_config
    shutil.rmtree(copy / "data", ignore_errors=True)
    shutil.rmtree(copy / "state")
    assert write_report(copy / "dpstream.toml", copy / "c.html").read_bytes() == from_config
    (copy / "dpstream.toml").unlink()
    assert write_report(copy / "releases", copy / "f.html").read_bytes() == from_folder
    assert LABEL.encode() not in from_config + from_folder


@pytest.mark.parametrize("kind", [*PANELS, "classifier"])
def test_pages_without_pairs_refuse_them(finished: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match="heat maps"):
        write_report(finished(kind) / "dpstream.toml", tmp_path / "r.html", pairs=[("poor", "person")])
    assert not (tmp_path / "r.html").exists()


def test_the_tables_of_a_census_are_read_and_drawn(finished: Callable[[str], Path], tmp_path: Path) -> None:
    stock = finished("turnover")
    dpstream("report", stock / "releases", "--out", tmp_path / "r.html", "--pair", "region", "sector")
    page = Page(tmp_path / "r.html")
    assert "3 manifests, 1 table:" in page.words
    # No command was run yet, but what was measured of columns has exact intervals.
    assert re.search(r"measured numbers are right to within [\d, to]+ records as of step", page.words)
    assert "error not known: run dpstream errors" in page.words
    assert len(page.data["heat"]["pairs"]) == 3
    assert set(page.bars) >= {"region", "sector"}
    for title in ("Two columns together", "Where it is weak"):
        assert title in page.words
    assert "dpstream measured shows the others" in page.words


def test_errors_by_simulation_stand_on_the_page_beside_what_was_measured(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    stock = Path(shutil.copytree(finished("turnover"), tmp_path / "stock"))
    unknown = "Errors of its counts are not known"
    assert unknown in dpstream("statement", stock / "dpstream.toml").output
    dpstream("errors", stock / "dpstream.toml", "--runs", 3)
    statement = dpstream("statement", stock / "dpstream.toml").output
    assert unknown not in statement
    assert "Errors of its counts come from simulation" in statement
    dpstream("report", stock / "dpstream.toml", "--out", tmp_path / "r.html")
    page = Page(tmp_path / "r.html")
    assert "Errors by simulation, 95 %. Measured: records as of step" in page.words
    assert "A bracket marks a 95 % interval by simulation." in page.words
    assert "Standard error of a cell by its size, by simulation" in page.words
    assert "have no error bars" not in page.words
    assert "By simulation the mean standard error of a cell is" in page.data["heat"]["pairs"][0]["e"]


def test_page_of_a_classifier(finished: Callable[[str], Path], tmp_path: Path) -> None:
    releases = finished("classifier") / "releases"
    page = Page(write_report(releases, tmp_path / "r.html"))
    assert "A classifier (logistic regression) of late by 1 column, trained on 600 records" in page.words
    chart = page.spec("The largest coefficients")
    tables = [read(releases, step).to_pydict() for step in (1, 2, 3)]
    for curve in chart["lines"]:
        place = tables[-1]["feature"].index(curve["label"])
        assert curve["values"] == pytest.approx([table["coefficient"][place] for table in tables], rel=1e-3)
        # What was measured is shrunk where noise is large, and its error with it.
        shrunk = [table["coefficient"][place] / table["measured"][place] for table in tables]
        errors = [
            2 * table["standard_error"][place] * factor for table, factor in zip(tables, shrunk, strict=True)
        ]
        assert max(shrunk) < 1
        assert curve["width"] == pytest.approx(errors, rel=1e-3)
    coefficients = [tables[-1][key] for key in ("coefficient", "standard_error", "measured")]
    beyond = sum(
        abs(value) > 2 * error * value / measured
        for value, error, measured in zip(*coefficients, strict=True)
    )
    assert f"{beyond} of {len(coefficients[0])} are beyond the noise" in page.words
    assert "not counted" in page.words
    assert "A sum above 0 speaks for late." in page.words
    assert "Standard errors and p-values computed from the rows" not in page.words


@pytest.mark.parametrize("mechanism", PANELS)
def test_page_of_a_panel_repeats_the_manifests(
    finished: Callable[[str], Path], tmp_path: Path, mechanism: str
) -> None:
    folder = finished(mechanism)
    page = Page(write_report(folder / "releases", tmp_path / "r.html"))
    assert "one person's entire history" in page.words
    assert "rho in all" in page.words or "epsilon in all" in page.words
    # Of one column there are no pairs, and no command makes them known.
    assert "Counts of one column" in page.words
    assert "Two columns together" not in page.words
    assert "in half of the columns" not in page.words
    manifests = [read_manifest(folder / "releases", step) for step in range(1, STEPS + 1)]
    told = [manifest["accuracy"]["panel"]["answers"] for manifest in manifests]
    assert told[-1]
    questions = {
        data["data-title"] for tag, data in page.attributes if tag == "figure" and "data-title" in data
    }
    changed = {title for title in questions if title.startswith("Changed to: ")}
    assert len(changed) == (2 if mechanism == "panel-window" else 0)
    assert len(questions - changed) == 1 + len(told[-1])
    for place, one in enumerate(told[-1]):
        share = "share" in one
        key = "share" if share else "unbiased"
        # The words of the table: the column, not 1.
        title = re.sub("^(1 in )?at least", "poor in at least", one["question"])
        title = title.replace(f"of the first {STEPS} periods", "periods so far")
        chart = page.chart(title)
        value, error = one[key], one[f"{key}_standard_error"]
        assert chart["released"][-1] == pytest.approx(one["share" if share else "count"], rel=1e-3)
        # The band is about what was measured, which may fall.
        assert chart.get("measured", chart["released"])[-1] == pytest.approx(value, rel=1e-3)
        width = page.spec(title)["lines"][0]["width"][-1]
        assert width == pytest.approx(2 * error, rel=2e-3, abs=1e-3)
        # A period without an answer is a gap.
        answered = [len(answers) > place for answers in told]
        assert [shown is not None for shown in chart["released"]] == answered
    people = page.chart("People")
    estimated = next(values for label, values in people.items() if label.startswith("people ("))
    assert estimated == [m["rows"] if m["rows_in_table"] else None for m in manifests]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two coordinates, one of them whole numbers, three steps."""
    folder = tmp_path_factory.mktemp("plane")
    return stream(
        folder, {"x": 'type = "real"\nedges = [0, 4]', "hour": 'type = "integer"\nmin = 0\nmax = 23'}
    )


def stream(folder: Path, columns: dict[str, str], more: str = "", output: str = "") -> Path:
    """A run over points of a cluster, 300 a step; every column is its own."""
    values = np.clip(np.random.default_rng(3).normal(1.0, 0.3, (3, 300)), 0.02, 3.99)
    for step, own in enumerate(values.tolist(), start=1):
        rows = ([value if "real" in kind else int(5 * value) for kind in columns.values()] for value in own)
        lines = (",".join(map(str, [step, *row])) for row in rows)
        write_rows(folder, f"{step}.csv", ",".join(["step", *columns]), lines)
    schema = "".join(f"[schema.columns.{json.dumps(name)}]\n{kind}\n" for name, kind in columns.items())
    source = 'path = "data/*.csv"\ntime_column = "step"\nend = 3'
    mechanism = f'name = "points"\n{more}'
    made = write_config(
        folder, stream=PUBLIC, source=source, columns=schema, mechanism=mechanism, rest=output
    )
    dpstream("run", made)
    return folder


def evaluated(folder: Path, tmp_path: Path) -> Any:
    return json.loads(
        dpstream("evaluate", folder / "dpstream.toml", "--out", tmp_path / "e", "--json").stdout
    )


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


def test_page_of_points_repeats_the_manifests(finished: Callable[[str], Path], tmp_path: Path) -> None:
    folder, steps = finished("rides"), STEPS - 1
    read_page = Page(write_report(folder / "releases", tmp_path / "r.html"))
    points = [read_manifest(folder / "releases", step)["rows"] for step in range(1, steps + 1)]
    depth = read_manifest(folder / "releases", steps)["accuracy"]["points"]["depth"]
    assert read_page.chart("Rows per release")["released"] == points
    assert f"in {2**depth:,} cells of depth {depth}" in read_page.words
    vehicles = Counter(read(folder / "releases", steps).column("vehicle").to_pylist())
    for vehicle, count in vehicles.items():
        assert f"{vehicle} {count:,} {100 * count / points[-1]:.1f} %" in " ".join(read_page.words.split())
    # Two coordinates over five steps, and two other pairs.
    assert sum(tag == "svg" and "map" in str(a.get("class")) for tag, a in read_page.attributes) == steps + 2
    assert "Whatever it holds, any outcome" in read_page.words
    assert "upwards latitude from 46.9" in read_page.words
    assert len(read_page.scripts) == 2


def test_whole_numbers_have_a_row_each(plane: Path, tmp_path: Path) -> None:
    """So that no row stays empty by its size."""
    page = Page(write_report(plane / "releases", tmp_path / "r.html"))
    boxes = {a["viewbox"] for tag, a in page.attributes if tag == "svg" and a.get("class") == "map"}
    assert boxes == {"0 0 64 24"}


def test_one_coordinate(tmp_path: Path) -> None:
    folder = stream(tmp_path, {"price": 'type = "real"\nedges = [0.01, 4]'}, 'log = ["price"]\n')
    page = Page(write_report(folder / "dpstream.toml", tmp_path / "r.html"))
    assert "to the right price (logarithmic) from 0.01 to 4" in " ".join(page.words.split())
    boxes = {a["viewbox"] for tag, a in page.attributes if tag == "svg" and a.get("class") == "map"}
    assert boxes == {"0 0 128 1"}, "a strip"
    facts = evaluated(folder, tmp_path)
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
    facts = evaluated(folder, tmp_path)
    assert [one["step"] for one in facts["steps"]] == [1, 3]


def test_evaluation_agrees_with_the_files(plane: Path, tmp_path: Path) -> None:
    facts = evaluated(plane, tmp_path)
    rows = rows_of(plane)
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


def test_evaluation_of_categories_and_chosen_steps(finished: Callable[[str], Path], tmp_path: Path) -> None:
    folder, out = finished("rides"), tmp_path / "evaluation"
    told = dpstream("evaluate", folder / "dpstream.toml", "--out", out, "--steps", "2,4").stdout
    assert [row["step"] for row in table_of(out / "steps.csv")] == ["2", "4"]
    released = Counter(read(folder / "releases", 4).column("vehicle").to_pylist())
    facts = json.loads((out / "summary.json").read_text())
    assert facts["categories"]
    for row in facts["categories"]:
        assert row["released_points"] == released[row["category"]]
    assert told.count(LABEL) >= 1
    assert (out / "evaluation.html").read_text().count(LABEL) >= 3


def test_what_does_not_fit_is_refused(plane: Path, tmp_path: Path) -> None:
    config = plane / "dpstream.toml"
    for option in (["--workload", "all-1-way"], ["--target", "x"], ["--steps", "9"]):
        dpstream("evaluate", config, "--out", tmp_path / "e", *option, code=2)
    assert not (tmp_path / "e").exists()
    copy = Path(shutil.copytree(plane, tmp_path / "copy"))
    (copy / "data" / "3.csv").unlink()
    with pytest.raises(StepError, match="the source differs up to step"):
        evaluate_points(Config.load(copy / "dpstream.toml"), EvaluationRequest(copy / "releases"))
    other = copy / "other.toml"
    other.write_text((copy / "dpstream.toml").read_text().replace('epsilon = "1"', 'epsilon = "2"'))
    assert "another plan" in dpstream("evaluate", other, code=2).stderr
    comparison = tmp_path / "compare.toml"
    comparison.write_text(
        f'format = 1\n[streams.cluster]\nconfig = "{config}"\n[methods.a]\nname = "dpstabs"\n'
    )
    assert "one of points" in dpstream("lab", "compare", comparison, "--out", tmp_path / "c", code=2).stderr
