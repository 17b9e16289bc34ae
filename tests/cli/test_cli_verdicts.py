"""What a release is fit for: streams that deserve each word, in terminal, manifest, report and statement."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_stream import COLUMNS, ROWS, dpstream, make, status, write_step
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.cli.shared import UNFIT

#: Rows of one step, at epsilon = 1: noise of 3.5 records in the number, and of 5.4 in both cells of a column together.
DESERVED = {
    2000: ("good", "good"),
    88: ("good", "usable"),
    50: ("usable", "poor"),
    15: ("poor", "unfit"),
    0: ("unfit", "unfit"),
}


def run(folder: Path, rows: int) -> Path:
    config = make(folder, 1)
    write_step(folder, 1, (ROWS * (rows // len(ROWS) + 1))[:rows])
    dpstream("run", config)
    return config


def words(text: str) -> str:
    return " ".join(text.replace("\\", "").split())


def test_averages_of_binned_numbers_are_told_with_their_ends(tmp_path: Path) -> None:
    binned = '[schema.columns.delay]\ntype = "real"\nedges = [0, 15, 120, 1440]\n'
    config = make(tmp_path, 1, columns=COLUMNS + binned)
    rows = [f"1,a,true,x,{value}" for value in [*[5] * 160, *[40] * 30, *[130] * 10]]
    (tmp_path / "data" / "001.csv").write_text("step,zip,paid,kind,delay\n" + "\n".join(rows) + "\n")
    dpstream("run", config)
    accuracy = json.loads((tmp_path / "releases/step-000001/manifest.json").read_text())["accuracy"]
    told = accuracy["verdicts"][-1]
    assert (told["use"], told["word"]) == ("averages", "not known")
    low, high = map(float, re.findall(r"of delay anywhere from ([\d.,]+) to ([\d.,]+)", told["words"])[0])
    # Exactly 8.25 and 102: the noise at this epsilon moves about ten records.
    assert low < 14.5 < high
    assert high > 5 * low
    assert told["words"] in " ".join(dpstream("status", config).stdout.split())
    dpstream("report", config, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Averages of binned numbers" in page
    assert page.count("Average: anywhere from ") == 1, "of the binned column only"
    book = json.loads((tmp_path / "releases/codebook.json").read_text())
    assert "an average of binned numbers may lie anywhere between" in book["description"]


@pytest.mark.parametrize("rows", DESERVED)
def test_every_word_everywhere(tmp_path: Path, rows: int) -> None:
    config, (totals, columns) = run(tmp_path, rows), DESERVED[rows]
    manifest = json.loads((tmp_path / "releases/step-000001/manifest.json").read_text())
    told = {one["use"]: one for one in manifest["accuracy"]["verdicts"]}
    assert list(told) == ["totals", "columns", "pairs", "small groups"]
    found = {one["use"]: one for one in status(config)["verdicts"]}
    assert (found["totals"]["word"], found["columns"]["word"]) == (totals, columns)
    if rows:
        assert (told["totals"]["how"], told["columns"]["how"]) == ("exact", "predicted")
        assert found["pairs"]["words"] == "Pairs: not known: run dpstream errors."
    # The same sentences wherever a steward or a reader looks.
    dpstream("report", config, "--out", tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    terminal = words(dpstream("status", config).stdout)
    statement = words(dpstream("statement", config).stdout)
    for one in found.values():
        assert words(one["words"]) in terminal
        assert words(one["words"]) in statement
        assert words(one["words"].split(": ")[-1].rstrip(".")) in words(report)
        assert f'class="word {one["word"].replace(" ", "-")}">{one["word"]}</span>' in report
    bad = "unfit" in (totals, columns)
    assert ("unfit: the table of step 1" in terminal, "DO NOT USE THE NEWEST TABLE" in statement) == (
        bad,
        bad,
    )
    assert ("<strong>unfit:</strong>" in report) == bad
    done = CliRunner().invoke(main, ["status", str(config), "--health"])
    assert done.exit_code == (UNFIT if bad else 0)
    assert ("test: unfit:" in done.stdout) == bad
