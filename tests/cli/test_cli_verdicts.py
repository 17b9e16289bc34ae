"""What a release is fit for: streams that deserve each word, in manifest, status and health, and on every page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_stream import COLUMNS, ROWS, dpstream, invoke, make, status, write_step
from small_configs import write_rows

from dpstream.cli.shared import UNFIT
from dpstream.io.sinks import read_manifest

#: Rows of one step, at epsilon = 1: noise of 3.5 records in the number, and of 5.4 in both cells of a column together.
DESERVED = {
    2000: ("good", "good"),
    88: ("good", "usable"),
    50: ("usable", "poor"),
    15: ("poor", "unfit"),
    0: ("unfit", "unfit"),
}


def test_averages_of_binned_numbers_are_told_with_their_ends(tmp_path: Path) -> None:
    binned = '[schema.columns.delay]\ntype = "real"\nedges = [0, 15, 120, 1440]\n'
    config = make(tmp_path, 1, columns=COLUMNS + binned)
    rows = [f"1,a,true,x,{value}" for value in [*[5] * 160, *[40] * 30, *[130] * 10]]
    write_rows(tmp_path, "001.csv", "step,zip,paid,kind,delay", rows)
    dpstream("run", config)
    told = read_manifest(tmp_path / "releases", 1)["accuracy"]["verdicts"][-1]
    assert (told["use"], told["word"]) == ("averages", "not known")
    low, high = map(float, re.findall(r"of delay anywhere from ([\d.,]+) to ([\d.,]+)", told["words"])[0])
    # Exactly 8.25 and 102: the noise at this epsilon moves about ten records.
    assert low < 14.5 < high
    assert high > 5 * low
    book = json.loads((tmp_path / "releases/codebook.json").read_text())
    assert "an average of binned numbers may lie anywhere between" in book["description"]


@pytest.mark.parametrize("rows", DESERVED)
def test_every_word_everywhere(tmp_path: Path, rows: int) -> None:
    config, (totals, columns) = make(tmp_path, 1), DESERVED[rows]
    write_step(tmp_path, 1, (ROWS * (rows // len(ROWS) + 1))[:rows])
    dpstream("run", config)
    told = {one["use"]: one for one in read_manifest(tmp_path / "releases", 1)["accuracy"]["verdicts"]}
    assert list(told) == ["totals", "columns", "pairs", "small groups"]
    found = {one["use"]: one for one in status(config)["verdicts"]}
    assert (found["totals"]["word"], found["columns"]["word"]) == (totals, columns)
    if rows:
        assert (told["totals"]["how"], told["columns"]["how"]) == ("exact", "predicted")
    # The same sentences wherever a steward or a reader looks.
    dpstream("report", config, "--out", tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    shown = [" ".join(dpstream(v, config).stdout.replace("\\", "").split()) for v in ("status", "statement")]
    for one in found.values():
        assert one["why"] in shown[0]
        assert one["words"] in shown[1]
        assert f'class="word {one["word"].replace(" ", "-")}">{one["word"]}</span>' in report
    bad = "unfit" in (totals, columns)
    assert ("DO NOT USE THE NEWEST TABLE" in shown[1], "<strong>unfit:</strong>" in report) == (bad, bad)
    done = invoke("status", config, "--health")
    assert done.exit_code == (UNFIT if bad else 0)
    assert ("test: unfit:" in done.stdout) == bad
