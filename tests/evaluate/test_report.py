"""A report says what is in the releases, keeps private truth where it belongs, and stops with one sentence."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_stream import ROWS, dpstream, make
from report_pages import Page
from small_configs import rewrite
from small_streams import small_stream

import dpstream as dp
from dpstream.core.errors import ConfigError, DpstreamError, SchemaError, StoreDamagedError
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks import read_table as read
from dpstream.io.sinks.simulated_errors import of_marginal, simulated_errors, t_factor
from dpstream.project import Config
from dpstream.tools.report import write_report

STEPS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests do not change it."""
    folder = tmp_path_factory.mktemp("stream")
    dpstream("run", make(folder, STEPS))
    return folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture(scope="module")
def public(folder: Path) -> Page:
    return Page(write_report(folder / "releases", folder / "public.html"))


def share(text: str) -> float:
    return float(text.split(" ")[0]) / 100


def test_bars_are_the_shares_of_the_released_table(folder: Path, public: Page) -> None:
    table = read(folder / "releases", STEPS)
    assert set(public.bars) >= {"zip", "paid", "kind"}
    for column in ("zip", "paid", "kind"):
        values = Counter(str(value).lower() for value in table.column(column).to_pylist())
        for label, shown in public.bars[column].items():
            assert share(shown) == pytest.approx(values[label] / table.num_rows, abs=0.00051)


def test_the_number_of_records_has_its_interval_wherever_it_was_measured(folder: Path, public: Page) -> None:
    """The line and its band are the answers as of each end of a period, the newest among them."""
    release, spec = dp.read(folder / "releases"), public.spec("Number of records")
    assert spec["x"][-1] == release.measured([]).as_of
    assert len(spec["x"]) > 2
    for step, value, width in zip(
        spec["x"], spec["lines"][0]["values"], spec["lines"][0]["width"], strict=True
    ):
        own = release.measured([], as_of=step)
        assert value == pytest.approx(float(own.values), rel=1e-3)
        assert width == pytest.approx(float(own.interval()[1] - own.values), rel=1e-3)


def test_heat_maps_are_the_released_pairs(folder: Path, public: Page) -> None:
    rows = read(folder / "releases", STEPS).select(["zip", "kind"]).to_pylist()
    counts = Counter((row["zip"], row["kind"]) for row in rows)
    heat = public.data["heat"]
    assert len(heat["pairs"]) == 3
    (pair,) = [pair for pair in heat["pairs"] if pair["c"] == [0, 2]]
    zips, kinds = (heat["columns"][str(c)]["groups"] for c in pair["c"])
    for i, first in enumerate(zips):
        for j, second in enumerate(kinds):
            assert pair["v"][i][j] == pytest.approx(1e4 * counts[first, second] / len(rows), abs=0.51)


def test_page_is_sealed(public: Page) -> None:
    policy = next(
        str(attributes["content"])
        for tag, attributes in public.attributes
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in public.scripts[1:]]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    names = {name for _, attributes in public.attributes for name in attributes}
    assert not names & {"src", "srcset", "action", "onclick", "onload", "data", "poster"}
    links = [str(a["href"]) for _, a in public.attributes if "href" in a]
    assert links
    assert all(link.startswith("#") for link in links)
    ids = {a["id"] for _, a in public.attributes if "id" in a}
    assert {link[1:] for link in links} <= ids
    assert not {tag for tag, _ in public.attributes} & {"link", "img", "iframe", "object", "base", "form"}
    assert "@import" not in public.text
    assert "url(" not in public.text
    assert len(public.text) < 200_000


def damaged(name: str, old: str, new: str) -> Callable[[Path], Path]:
    """A file of the releases in which something else stands; an empty ``old``: the file is gone."""

    def damage(folder: Path) -> Path:
        path = folder / "releases" / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        if not old:
            path.unlink()
        return folder / "releases"

    return damage


def empty(folder: Path) -> Path:
    path = folder / "releases" / "catalogue.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "steps": []}))
    return folder / "releases"


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (lambda folder: folder / "nowhere", ConfigError, "the run is missing"),
        (lambda folder: make(folder / "fresh", 1), ConfigError, "releases are missing"),
        (empty, ConfigError, "no step is released yet"),
        (lambda f: rewrite(f / "dpstream.toml", "epsilon", "rho"), ConfigError, "another plan"),
        (damaged("step-000006/table.csv", '"a"', '"b"'), StoreDamagedError, "published hash"),
        (damaged("step-000002/manifest.json", '"step": 2', '"step": 3'), StoreDamagedError, "hash"),
        (damaged("codebook.json", '"label": "a"', '"label": "q"'), StoreDamagedError, "codebook"),
        (damaged("catalogue.json", '"kept"', '"keep"'), StoreDamagedError, "catalogue"),
        (damaged("codebook.json", "", ""), StoreDamagedError, "missing"),
        (damaged("step-000003/manifest.json", "", ""), StoreDamagedError, "missing"),
    ],
)
def test_what_is_no_run_stops_with_a_sentence(
    copy: Path, damage: Callable[[Path], Path], kind: type[DpstreamError], words: str
) -> None:
    result = dpstream("report", damage(copy), "--out", copy / "x.html", code=kind.exit_code)
    assert words in result.stderr
    assert not (copy / "x.html").exists()


def test_places_that_cannot_be_taken(folder: Path, tmp_path: Path) -> None:
    releases, mine = folder / "releases", tmp_path / "notes.html"
    mine.write_text("my notes")
    with pytest.raises(ConfigError, match="the file exists"):
        write_report(releases, mine)
    assert mine.read_text() == "my notes"
    for name in ("dpstream.toml", "report"):
        with pytest.raises(ConfigError, match="unknown ending"):
            write_report(releases, tmp_path / name)
    with pytest.raises(ConfigError, match="step's folder is closed"):
        write_report(releases, releases / "step-000001" / "x.html")
    write_report(releases, mine, force=True)
    write_report(releases, mine)  # its own page is replaced without asking
    with pytest.raises(SchemaError, match="unknown column 'zap'"):
        write_report(releases, mine, pairs=[("zip", "zap")])
    with pytest.raises(ConfigError, match="repeats or lacks"):
        write_report(releases, mine, pairs=[("zip", "zip")])


def test_thinned_and_dropped_steps_are_told(tmp_path: Path) -> None:
    config = make(tmp_path / "s", 8)
    config.write_text(config.read_text().replace("[output]\n", "[output]\nkeep = 5\n"))
    dpstream("run", config)
    page = Page(write_report(config, tmp_path / "r.html", most_steps=3))
    assert "3 manifests, 1 table:" in page.words
    assert "1 to 3" in page.words
    assert "table dropped" in page.words


def test_one_step_one_column_and_constants(tmp_path: Path) -> None:
    one = '[schema.columns.zip]\ntype = "categorical"\nvalues = ["a"]\n'
    config = make(tmp_path / "s", 1, columns=one, ignore=None)
    (tmp_path / "s" / "data" / "001.csv").write_text("step,zip\n" + "1,a\n" * 40)
    dpstream("run", config)
    page = Page(write_report(config, tmp_path / "r.html"))
    assert page.bars["zip"] == {"a": "100.0 %"}
    assert page.data["heat"] == {"columns": {}, "pairs": []}
    assert Page(write_report(tmp_path / "s" / "releases", tmp_path / "f.html")).bars["zip"]


def test_nulls_of_other_and_missing(tmp_path: Path) -> None:
    """Outside text columns both bins are released as null: told apart where possible, told together where not."""
    columns = (
        '[schema.columns.a]\ntype = "integer"\nmin = 0\nmax = 1\nother = "odd"\n'
        '[schema.columns.b]\ntype = "integer"\nmin = 0\nmax = 1\nother = "odd"\nmissing = "none"\n'
        '[schema.columns.c]\ntype = "date"\nevery = "month"\nstart = 2024-01-01\nend = 2024-03-31\nmissing = "none"\n'
    )
    config = make(tmp_path / "s", 2, columns=columns)
    rewrite(config, 'format = "csv"', 'format = "parquet"', 'epsilon = "1"', 'epsilon = "100"')
    for step in (1, 2):
        body = "".join(
            f"{step},{a},{b},{c}\n"
            for a, b, c in [(0, 0, "2024-01-03"), (9, 9, "2024-02-03"), (1, "", "2024-03-03"), (9, 1, "")]
            * 50
        )
        (tmp_path / "s" / "data" / f"{step:03d}.csv").write_text(f"step,a,b,c\n{body}")
    dpstream("run", config)
    page = Page(write_report(config, tmp_path / "r.html"))
    assert share(page.bars["a"]["odd"]) == pytest.approx(0.5, abs=0.05)
    assert share(page.bars["b"]["none or odd"]) == pytest.approx(0.5, abs=0.05)
    assert share(page.bars["c"]["none"]) == pytest.approx(0.25, abs=0.05)
    (pair,) = [pair for pair in page.data["heat"]["pairs"] if pair["c"] == [0, 1]]
    assert np.array(pair["v"]) == pytest.approx(
        np.array([[2500, 0, 0], [0, 0, 2500], [0, 2500, 2500]]), abs=500
    )
    assert "odd" not in page.bars["b"], "nothing is released as it"
    folder = Page(write_report(tmp_path / "s" / "releases", tmp_path / "f.html"))
    assert folder.bars.keys() == page.bars.keys()
    assert folder.chart("Number of records")["x"] == [1, 2]


def test_a_page_says_which_records_and_which_day_it_is_about(tmp_path: Path) -> None:
    """Dates are those of the records that are held, also without scripts and of steps that are withdrawn."""
    config = make(tmp_path, 0, time_column='"day"', every='"month"', start="2013-01-01", end="2013-03-31")
    for month in (1, 2, 3):
        rows = "".join(f"2013-{month:02d}-15,{row}\n" for row in ROWS * 300)
        (tmp_path / "data" / f"{month}.csv").write_text(f"day,zip,paid,kind\n{rows}")
    dpstream("run", config)
    dpstream("withdraw", config, "--step", 1, "--reason", "wrong")
    page = Page(write_report(tmp_path / "releases", tmp_path / "r.html"))
    assert "invented records with 3 columns, made from all records up to 31 March 2013." in page.words
    assert "rows of step 3, made from all records up to 31 March 2013" in page.words
    assert "since Jan 2013" in page.words, "the withdrawn step has its date"
    assert "dpstream measured shows the others" in page.words
    assert "noise is the same" not in page.words
    assert not re.search(r"[+\N{MINUS SIGN}]0\.0 points", page.words)
    assert '<time datetime="2013-03-31" class="age">2013-03-31</time>' in page.text
    manifest = read_manifest(tmp_path / "releases", 3)
    assert manifest["period"] == "2013-03-01/2013-03-31"
    assert manifest["holds"] == "all records up to 31 March 2013"
    assert "made from all records up to 31 March 2013" in dpstream("statement", config).stdout
    assert "newest        all records up to 31 March 2013" in dpstream("status", config).stdout


def test_error_bars_where_everything_is_measured(tmp_path: Path) -> None:
    """All pairs measured at every step: the bracket is two standard errors of the noise and of drawing rows."""
    config = make(tmp_path / "s", 2, mechanism='name = "dpstabs"\nk = 3')
    dpstream("run", config)
    page = Page(write_report(tmp_path / "s" / "releases", tmp_path / "r.html"))
    manifest = read_manifest(tmp_path / "s" / "releases", 2)
    cell = manifest["accuracy"]["measured_every_step"]["standard_error"]
    rows = manifest["rows_in_table"]
    p = sum(v == "x" for v in read(tmp_path / "s" / "releases", 2).column("kind").to_pylist()) / rows
    # `kind` is read from `paid x kind`: two cells for each of its values.
    expected = 2 * (2 * cell**2 + rows * p * (1 - p)) ** 0.5 / rows
    shown = re.findall(r"± ([0-9.]+) %", page.text.split("<caption><bdi>kind</bdi>")[1])[0]
    assert float(shown) / 100 == pytest.approx(expected, abs=0.00051)
    assert "Every step measured all marginals." in page.words
    assert "Its errors are not known." not in page.words


def test_columns_that_were_not_measured_have_errors_by_simulation(tmp_path: Path) -> None:
    """The baseline turns through its marginals: none of a column by itself, and none at every step."""
    config = make(tmp_path / "s", 2, mechanism='name = "baseline"\nk = 1')
    dpstream("run", config)
    page = Page(write_report(tmp_path / "s" / "releases", tmp_path / "r.html"))
    assert "Its errors are not known." in page.words
    assert "dpstream errors simulates them" in page.words
    dpstream("errors", config, "--runs", 3)
    page = Page(write_report(tmp_path / "s" / "releases", tmp_path / "s.html"))
    assert "Its errors are not known." not in page.words
    assert "errors simulates them" not in page.words
    found = simulated_errors(tmp_path / "s" / "releases", 2)
    rows = read_manifest(tmp_path / "s" / "releases", 2)["rows_in_table"]
    assert "Errors by simulation, 95 %" in page.words
    card = next(one for one in page.text.split("<figure") if 'class="card"' in one)
    column = re.findall("<bdi>([a-z]+)</bdi>", card)[0]
    assert found is not None
    domain = Config.load(config).schema().domain
    first = np.arange(domain.sizes[domain.index(column)]) == 0
    error = found.of_question([column], first)
    assert error is not None
    width = error.half_width() / rows
    assert width == pytest.approx(error.standard_error * t_factor(3) / rows)
    shown = re.findall(r"± ([0-9.]+) %", card)[0]
    assert float(shown) / 100 == pytest.approx(width, abs=0.00051)
    # The first card's range is as wide as the published intervals, and the page says how often these hold.
    pairs = [marginal for marginal in found.facts["marginals"] if len(marginal["columns"]) == 2]
    widths = [of_marginal(found.facts, pair).half_width() * pair["cells"] for pair in pairs]
    off = 100 * np.median(widths) / found.facts["total"]["invented"]
    shown = re.findall(r"average count ± ([0-9.,]+) %", page.words)[-1]
    assert float(shown.replace(",", "")) == pytest.approx(off, rel=0.01)
    assert "in tests it contained the truth in 90 to 100 % of the cells" in page.words
    pair = next(pair for pair in page.data["heat"]["pairs"])
    assert "By simulation the mean standard error of a cell is" in pair["e"]


def test_the_default_has_errors_of_the_number_of_records_where_an_epoch_ends(tmp_path: Path) -> None:
    config = make(tmp_path / "s", 12, end=1000)
    dpstream("run", config, "--until", 12)
    for run in (config, tmp_path / "s" / "releases"):
        page = Page(write_report(run, tmp_path / "r.html"))
        shown = page.chart("Noise of the number of records")
        assert shown["x"] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]
        assert all(error > 0 for error in shown["the number of records"])
        assert "the rest is what the model expects" in page.words
        assert "Changes after step 11 show once they are measured." in page.words
        assert "dpstream errors" in page.words
        assert "times an epoch" in page.words


def test_a_plan_without_errors_of_counts_draws_those_of_the_number_of_records(tmp_path: Path) -> None:
    config = make(tmp_path / "s", 3)
    config.write_text(config.read_text().replace("[mechanism]", '[mechanism]\nname = "baseline"'))
    dpstream("run", config)
    page = Page(write_report(config, tmp_path / "new.html"))
    assert list(page.chart("Noise of the number of records")) == ["x", "the number of records"]


def test_test_seeds_are_told(tmp_path: Path) -> None:
    small_stream(tmp_path, steps=1, seed=3).close()
    page = Page(write_report(tmp_path / "releases", tmp_path / "r.html"))
    assert "No guarantee." in page.words
    assert "No guarantee (test seed)" in page.words


def test_withdrawn_releases_are_shown_as_such(copy: Path) -> None:
    text = (copy / "releases" / "catalogue.json").read_text()
    line = '{"step": 6, "state": "full"'
    assert line in text
    (copy / "releases" / "catalogue.json").write_text(text.replace(line, line.replace("full", "withdrawn")))
    page = Page(write_report(copy / "releases", copy / "x.html"))
    assert "withdrawn by the owner" in page.words
    assert page.chart("Number of records")["x"] == [1, 2, 3, 4, 5]
    (copy / "releases" / "catalogue.json").write_text(text.replace('"full"', '"withdrawn"'))
    with pytest.raises(ConfigError, match="all releases are withdrawn"):
        write_report(copy / "releases", copy / "x.html")


def test_command_says_what_it_wrote(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    wrote = dpstream("report", folder / "dpstream.toml", "--out", out, "--pair", "zip", "kind").stdout
    assert wrote.startswith(f"wrote {out} (")
    assert Page(out).data["heat"]["pairs"][0]["c"] == [0, 2]
