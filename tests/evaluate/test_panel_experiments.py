"""``dpstream lab reproduce bun``: panels are read right, errors are taken right, finished runs are kept."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import Individual, Randomness
from dpstream.tools.evaluate import LABEL
from dpstream.tools.simulate import poverty_panel
from dpstream_lab.audits.panel_audit import window_plan
from dpstream_lab.experiments import CumulativeRun, WindowRun, lines_of, load_panel, reproduce_bun
from dpstream_lab.experiments.panel_data import panel_path
from dpstream_lab.experiments.panel_runs import _View


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A panel of 700 people and 7 periods."""
    path = tmp_path / "small.csv.gz"
    rows = poverty_panel(700, 7, seed=5)
    lines = ["person,a,b,c,d,e,f,g", *(f"p{i},{','.join(map(str, row))}" for i, row in enumerate(rows))]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_truth_by_hand(small: Path) -> None:
    panel = load_panel(str(small), small)
    assert (panel.name, panel.people, panel.periods, panel.real) == ("small", 700, 7, True)
    rows = panel.reports.tolist()
    for width in (2, 3, 6):
        found = panel.histogram(7, width)
        for code in range(2**width):
            pattern = [int(digit) for digit in f"{code:0{width}b}"]
            assert found[code] == sum(row[7 - width :] == pattern for row in rows)
    assert panel.at_least(3, 5) == sum(sum(row[:5]) >= 3 for row in rows)


def test_errors_are_those_of_the_synthetic_people(small: Path) -> None:
    """The largest error of each width and period, from the released people one by one."""
    panel = load_panel(str(small), small)
    plan = window_plan(7, 3, rho="0.05", unit=Individual("replace"))
    state, randomness = plan.start(panel.people), Randomness.seeded(4)
    truths = {w: [panel.histogram(t, w) for t in range(w, 8)] for w in (3, 2, 6)}
    view, columns = _View(plan, truths, panel.people), []
    for period in range(7):
        release = plan.advance(state, panel.reports[:, period], randomness)
        if release.new:
            view.add(release)
            columns.append(release.columns)
    people = np.concatenate(columns, axis=1)
    assert people.shape[1] == 7
    for width, place in ((3, 5), (2, 5), (6, 7)):
        errors, raw = [], []
        for code in range(2**width):
            pattern = [int(digit) for digit in f"{code:0{width}b}"]
            true = sum(row[place - width : place] == pattern for row in panel.reports.tolist()) / 700
            count = (people[:, place - width : place] == pattern).all(axis=1).sum()
            errors.append(abs((count - plan.padding * 2 ** (3 - width)) / 700 - true))
            raw.append(abs(count / len(people) - true))
        at = place - max(width, 3)
        assert view.worst[width]["debiased"][at] == pytest.approx(max(errors))
        assert view.worst[width]["raw"][at] == pytest.approx(max(raw))


def test_answers_are_unbiased_and_their_errors_as_predicted(small: Path) -> None:
    """64 repetitions: a mean is off by six of its standard errors, and a mean square by half, once in 1e7 or less."""
    for run in (
        WindowRun(str(small), small, "0.05", "replace", 64),
        CumulativeRun(str(small), small, "0.05", "replace", 64),
    ):
        values = run.run()
        lines = lines_of(values)
        assert len(lines) == (8 if values["settings"]["kind"] == "window" else 5)
        for line in lines:
            assert abs(line.bias) < 6 * line.predicted / 8
            # Rounding is bounded from above: the prediction may be a little large.
            assert 0.5 < line.deviation / line.predicted < 1.6
        raw_bias = [line.mean_raw - line.truth for line in lines]
        if values["settings"]["kind"] == "window":
            # The padding shows: without debiasing the same test fails.
            assert max(raw_bias) > 6 * lines[0].predicted / 8


def test_the_command(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = [
        "lab", "reproduce", "bun", "--panel", str(small), "--repeats", "4", "--jobs", "1", "--quick", "--out", str(out)
    ]  # fmt: skip
    first = CliRunner().invoke(main, args)
    assert first.exit_code == 0, first.output
    assert LABEL in first.stdout
    with (out / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 + 2 * 5
    assert {row["label"] for row in rows} == {LABEL}
    assert all(
        (out / name).read_text(encoding="utf-8").startswith(f"**{LABEL}**")
        for name in ("table.md", "settings.md")
    )
    kept = {path.name: path.read_bytes() for path in (out / "runs").iterdir()}
    again = CliRunner().invoke(main, [*args, "--json"])
    assert again.exit_code == 0, again.output
    assert {path.name: path.read_bytes() for path in (out / "runs").iterdir()} == kept
    runs = json.loads(again.stdout)["runs"]
    assert sum(len(run["answers"]) for run in runs) == len(rows)
    other = CliRunner().invoke(main, [*args[:5], "--repeats", "5", "--quick", "--out", str(out)])
    assert other.exit_code == 2
    assert "repetitions: 4 then, 5 now" in other.output


def test_what_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSTREAM_DATA", raising=False)
    with pytest.raises(ConfigError, match="unknown panel 'sipp'"):
        panel_path("sipp", None)
    with pytest.raises(ConfigError, match="DPSTREAM_DATA"):
        reproduce_bun(None, tmp_path / "out", panels=["activity"])
    with pytest.raises(ConfigError, match="repeats"):
        reproduce_bun(None, tmp_path / "out", repeats=1)
    bad = tmp_path / "bad.csv"
    for text in ("id,a,b,c,d\n1,0,1,0,2\n", "id,a,b,c,d\n1,0,1,0\n", "id,a,b\n1,0,1\n", "id,a,b,c,d\n", ""):
        bad.write_text(text)
        load_panel.cache_clear()
        with pytest.raises(DataError, match="this is no panel"):
            reproduce_bun(None, tmp_path / "out", panels=[str(bad)], repeats=2)
    assert not (tmp_path / "out").exists()
    for args in (["kumar", "--panel", "activity"], ["bun", "--epsilons", "1"], ["bum"]):
        done = CliRunner().invoke(main, ["lab", "reproduce", *args])
        assert done.exit_code == 2
        assert "Traceback" not in done.output
