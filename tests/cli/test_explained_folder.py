"""What a reader has who has a folder of releases and nothing else: README.txt and counts.csv."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import os
import re
import subprocess
from pathlib import Path

import duckdb
import numpy as np
import pandas
import pytest
from cli_stream import dpstream, make
from small_configs import DEFAULTS, GROWING, KEYED, PANELS, POINTS, rewrite, write_config

import dpstream as dp
from dpstream.project import Config
from dpstream.tools.folder import explain

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
    by_name = {one["@id"]: one for one in croissant["recordSet"]}
    assert list(by_name) == ["records", "counts", "values/zip", "values/kind"]
    assert by_name["values/zip"]["data"] == [{"values/zip/value": value} for value in "abc"]
    for name in ("records", "counts"):
        (source,) = {field["source"]["fileObject"]["@id"] for field in by_name[name]["field"]}
        (file,) = (one for one in croissant["distribution"] if one["@id"] == source)
        data = (folder / file["contentUrl"]).read_bytes()
        assert (file["sha256"], file["contentSize"]) == (hashlib.sha256(data).hexdigest(), f"{len(data)} B")
    places = [one["dcat:downloadURL"]["@id"] for one in catalog["dcat:distribution"]]
    assert "counts.csv" in places
    assert all((folder / place).is_file() for place in places)
    # The statement says the same, but for the day on which it is made.
    for form, there in (("croissant", croissant), ("dcat", catalog)):
        said = json.loads(dpstream("statement", config, "--format", form).stdout)
        assert (said.pop("datePublished", None) or said.pop("dct:issued")) is not None
        assert said == there


def test_a_number_and_its_error_are_the_same_wherever_they_stand(tmp_path: Path) -> None:
    """In the manifest, in the report, by ``dpstream measured`` and in counts.csv; of the number of records where
    periods and epochs overlap, too."""
    config = make(tmp_path, 5)
    config.write_text(config.read_text() + '[accuracy]\nheadline = ["zip"]\nperiods = "2 steps"\n')
    dpstream("run", config)
    folder, page = tmp_path / "releases", tmp_path / "report.html"
    dpstream("report", config, "--out", page)
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.read_text())).split())
    rows = pandas.read_csv(folder / "counts.csv", dtype={"value": str}).fillna({"value": ""})
    rows = rows[(rows["kind"] == "present") & (rows["to"] == 5)]
    rows["half"] = (rows["high95"] - rows["low95"]) / 2
    (number,) = rows[rows["column"] == "all"].to_dict("records")
    manifest = dp.read(folder).manifest()
    assert number["count"] == pytest.approx(manifest["rows"], abs=0.5)
    assert number["standard_error"] == pytest.approx(manifest["accuracy"]["total_standard_error"], abs=0.001)
    assert f"{number['count']:.0f}, give or take {2 * number['standard_error']:.0f}" in text
    assert f"with a standard error of {number['standard_error']:.3g}" in text
    assert set(rows["column"]) == {"all", "zip", "paid", "kind"}
    known = next(
        one for one in json.loads(dpstream("measured", folder, "--json").stdout) if not one["columns"]
    )
    assert known["standard_error"] == pytest.approx(number["standard_error"], abs=0.001)
    for column, own in rows[rows["column"] != "all"].groupby("column"):
        cells = json.loads(dpstream("measured", folder, "--column", column, "--json").stdout)["cells"]
        for row, cell in zip(own.to_dict("records"), cells, strict=True):
            found = [cell[name] for name in ("measured", "low", "high")]
            assert found == pytest.approx([row[name] for name in ("count", "low95", "high95")], abs=0.001)
            assert f" measured {row['count']:.0f} ± {row['half']:.0f} " in text, (column, row)


#: Every type of column, with missing values in most.
TYPES = {
    "zip": 'categorical"\nvalues = ["a", "b"]\nother = "elsewhere"\nmissing = "unknown',
    "paid": 'boolean"\nmissing = "missing',
    "rooms": 'integer"\nedges = [0, 2, 9]\nmissing = "missing',
    "rent": 'real"\nedges = [0, 500, 4000]\nmissing = "missing',
    "filed": 'date"\nedges = ["2024-01-01", "2024-02-01", "2024-03-01"]\nmissing = "missing',
    "seen": 'datetime"\nedges = ["2024-01-01T00:00", "2024-02-01T00:00", "2024-03-01T00:00"]\nmissing = "missing',
}
EVERY_TYPE = "".join(f'[schema.columns.{name}]\ntype = "{rest}"\n' for name, rest in TYPES.items())
OPEN = (
    '[schema.columns.zip]\ntype = "categorical"\nvalues = "discover"\npattern = ["[a-z]"]\nother = "rest"\n'
)
LEVELS = (
    '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a", "b", "c"]\n'
    '[schema.levels]\nplace = { columns = ["region", "zip"], file = "places.csv" }\n'
)
#: What a folder of releases may be of, beside the default.
KINDS: dict[str, dict[str, str]] = {
    "table": {"columns": EVERY_TYPE},
    "census": {**KEYED["census"], "columns": EVERY_TYPE},
    "discovered": {"columns": OPEN, "budget": 'epsilon = "100"'},
    "levels": {"columns": LEVELS, "rest": '[accuracy]\nheadline = ["place"]\n'},
    "panel": PANELS["panel-window"],
    "counting panel": PANELS["panel-cumulative"],
    "points": POINTS["points"],
    "pmwg": GROWING["pmwg"],
    "scheduler": GROWING["scheduler"],
}


def published(folder: Path, kind: str, form: str) -> Path:
    """The releases of three steps of a stream of this kind."""
    parts = {**DEFAULTS, **KINDS[kind]}
    parts["source"] = parts["source"].replace("end = 9", "end = 3")
    config = write_config(folder, **{**parts, "rest": parts["rest"] + f'[output]\nformat = "{form}"\n'})
    (folder / "places.csv").write_text("region,zip\nnorth,a\nnorth,b\nsouth,c\n")
    drawn, rows = np.random.default_rng(7), 150
    frame = pandas.DataFrame({"step": np.repeat([1, 2, 3], rows // 3)})
    frame["id"] = frame["person"] = [f"r{row}" for row in range(rows)]
    if "panel" in kind:
        frame["person"] = [f"p{row % 50}" for row in range(rows)]
    days = pandas.to_datetime("2024-01-01") + pandas.to_timedelta(drawn.integers(0, 59, rows), "D")
    values = {"zip": drawn.choice(["a", "b", "c"], rows), "paid": drawn.choice(["true", "false"], rows)}
    values |= {"rooms": drawn.integers(0, 9, rows).astype(str), "rent": drawn.uniform(0, 4000, rows).round(2)}
    values |= {"filed": days.strftime("%Y-%m-%d"), "seen": days.strftime("%Y-%m-%dT08:00")}
    for name, column in {**values, "kind": drawn.choice(["x", "y"], rows)}.items():
        holes = drawn.random(rows) < (0.2 if 'missing = "' in parts["columns"] else 0)
        frame[name] = np.where(holes, "", np.array(column, dtype=str))
    wanted = [
        name for name in frame if re.search(rf'columns\.{name}\]|_column = "{name}"', config.read_text())
    ]
    (folder / "data").mkdir()
    frame[wanted].to_csv(folder / "data/1.csv", index=False)
    dpstream("run", config)
    return folder / "releases"


@pytest.mark.parametrize("kind", ["panel", "counting panel"])
def test_people_of_a_panel_are_counted_as_its_manifests_say(tmp_path: Path, kind: str) -> None:
    folder = published(tmp_path, kind, "csv")
    release, readme = dp.read(folder), (folder / "README.txt").read_text()
    rows = pandas.read_csv(folder / "counts.csv", dtype={"value": str}).fillna({"value": ""})
    rows, people = rows[rows["kind"] == "present"], release.people()
    assert set(rows["status"]) == {"exact"}
    assert people is not None
    low, high = people.interval() or (0.0, 0.0)
    wanted = [float(people.values), people.standard_error, float(low), float(high)]
    numbers = ["count", "standard_error", "low95", "high95"]
    for row in rows[rows["column"] == "all"].to_dict("records"):
        assert [row[name] for name in numbers] == pytest.approx(wanted, abs=0.001)
    error = release.manifest()["accuracy"]["total_standard_error"]
    assert error == pytest.approx(wanted[1], abs=0.001)
    for step in release.steps[kind == "panel" :]:
        own = rows[(rows["to"] == step) & (rows["column"] != "all")]
        found = own.set_index(["column", "value"])[numbers].to_dict("index")
        if kind == "panel":
            patterns = release.patterns(step)
            assert patterns is not None
            places = list(zip(patterns.columns, itertools.count(), strict=False))[
                len(patterns.columns) // 2 :
            ]
            for name, axis in places:
                column = name.removesuffix(f", period {step}")
                for code, label in enumerate(patterns.labels[axis]):
                    mask = np.zeros(patterns.values.shape, bool)
                    mask.swapaxes(0, axis)[code] = True
                    one = patterns.sum(mask)
                    row = found.pop((column, label))
                    assert [row["count"], row["standard_error"]] == pytest.approx(
                        [float(one.values), one.standard_error], abs=0.001
                    )
        else:
            answers = release.manifest(step)["accuracy"]["panel"]["answers"]
            for times, answer in enumerate(answers, start=1):
                row = found.pop((f"paid, at least {times} times", "true"))
                said = answer["unbiased"], answer["unbiased_standard_error"]
                assert (row["count"], row["standard_error"]) == pytest.approx(said, abs=0.01)
        assert not found
    assert "model.json" not in readme
    assert "all people (column = all)" in readme
    assert f'B2:B9999,"{release.step}",C2:C9999,"present"' in readme


@pytest.mark.parametrize("kind", ["points", "pmwg", "scheduler"])
def test_a_public_number_of_records_is_said_of_every_step(tmp_path: Path, kind: str) -> None:
    folder = published(tmp_path, kind, "csv")
    rows = pandas.read_csv(folder / "counts.csv")
    rows = rows[(rows["column"] == "all") & (rows["kind"] == "present")]
    assert rows["count"].tolist() == [dp.read(folder).manifest(step)["rows"] for step in (1, 2, 3)]
    assert set(rows["standard_error"]) == {0.0}
    page = (folder / "index.html").read_text()
    assert "the long report" not in page
    (folder / "report.html").write_text("<p>long</p>")
    assert explain(Config.load(tmp_path / "dpstream.toml")) is None
    assert '<a href="report.html">report.html</a>: the long report' in (folder / "index.html").read_text()


#: Frictionless checks the package; ML Commons' reader loads the records.
CHECK = """
import json, sys, warnings
import frictionless, mlcroissant
for folder in sys.argv[1:]:
    report = frictionless.Package(f"{folder}/datapackage.json").validate()
    if not report.valid:
        sys.exit(f"{folder}: {report.flatten(['type', 'note'])[:3]}")
    read = mlcroissant.Dataset(f"{folder}/croissant.json")
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    sets = [one["@id"] for one in json.load(open(f"{folder}/croissant.json"))["recordSet"]]
    rows = {name: [list(map(text, row.values())) for row in read.records(name)] for name in sets}
    print(json.dumps(rows, default=str))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    "DPSTREAM_VALIDATORS" not in os.environ, reason="Frictionless, mlcroissant: make versions"
)
def test_validators_read_every_kind_of_folder(tmp_path: Path) -> None:
    """Frictionless finds no error, and mlcroissant loads the table and the counts as they are, null for null. The
    control: a kind of count that is not in the list."""
    cases = [("table", "csv"), *((kind, "parquet") for kind in KINDS)]
    folders = [published(tmp_path / f"{kind}.{form}", kind, form) for kind, form in cases]

    def checked(*folders: Path) -> subprocess.CompletedProcess[str]:
        command = [os.environ["DPSTREAM_VALIDATORS"], "-c", CHECK, *map(str, folders)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = checked(*folders)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for folder, (kind, form), line in zip(folders, cases, done.stdout.splitlines(), strict=True):
        croissant = json.loads((folder / "croissant.json").read_text())
        loaded, table = json.loads(line), dp.read(folder).table(ids=True)
        columns = list(zip(*loaded["records"], strict=True))
        assert len(columns) == table.num_columns
        assert len(loaded["records"]) == table.num_rows > 50
        missing = [sum(value in (None, "NaT") or value != value for value in column) for column in columns]
        assert missing == [column.null_count for column in table.columns], kind
        assert (sum(missing) > 0) == ("missing =" in KINDS[kind].get("columns", "")), kind
        counts = pandas.read_csv(folder / "counts.csv")
        assert len(loaded["counts"]) == len(counts)
        if kind in ("table", "discovered", "levels"):
            book = json.loads((folder / "codebook.json").read_text())
            field = next(one for one in book["resources"][0]["schema"]["fields"] if one["name"] == "zip")
            fields = {field["name"]: field for field in croissant["recordSet"][0]["field"]}
            assert ("references" in fields["zip"]) == (form != "csv")
            labels = {code["label"] for code in field["dpstream"]["codes"]} - {"unknown"}
            assert [label for (label,) in loaded["values/zip"]] == field["constraints"]["enum"]
            assert set(field["constraints"]["enum"]) == labels
            assert len(labels) == 3 + (kind == "discovered")
    rewrite(folders[0] / "counts.csv", '"came"', '"arrived"')
    assert "constraint-error" in checked(folders[0]).stderr
