"""A report about a panel says what its manifests say, and needs nothing private."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from cli_stream import dpstream
from report_pages import Page

from dpstream.core.errors import ConfigError
from dpstream.io.sinks import read_manifest
from dpstream.tools.evaluate import LABEL
from dpstream.tools.report import write_report

STEPS = 6


@pytest.fixture(scope="module", params=["panel-window", "panel-cumulative"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small panel; tests do not change it."""
    folder = tmp_path_factory.mktemp("panel") / "poverty"
    dpstream("simulate", "panel", "--steps", STEPS, "--rows-per-step", 900, "--out", folder)
    config = folder / "dpstream.toml"
    text = config.read_text(encoding="utf-8").replace('"panel-window"', f'"{request.param}"')
    window = [line for line in text.splitlines() if line.startswith("window")]
    if request.param == "panel-cumulative":
        text = text.replace(window[0], "")
    config.write_text(text, encoding="utf-8")
    dpstream("run", config)
    return folder


def test_page_repeats_the_manifests(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    from_config = write_report(copy / "dpstream.toml", copy / "c.html").read_bytes()
    shutil.rmtree(copy / "data")
    shutil.rmtree(copy / "state")
    page = Page(write_report(copy / "releases", copy / "f.html"))
    assert page.text.encode() == from_config
    assert LABEL not in page.text
    assert "one person's entire history" in page.words
    assert "What all steps take together" in page.words
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
    assert len(questions) == 1 + len(told[-1])
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


def test_what_a_panel_has_not_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no heat maps"):
        write_report(folder / "dpstream.toml", tmp_path / "r.html", pairs=[("poor", "person")])
    assert not (tmp_path / "r.html").exists()
