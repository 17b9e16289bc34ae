"""``dpstream lab reproduce bun``: panels are read right, errors are taken right, finished runs are kept; and
``dpstream lab datasets sipp`` on a small file with the Census file's columns, against the rules read plainly.
"""

from __future__ import annotations

import csv
import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli_stream import dpstream

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import Individual, Randomness
from dpstream.tools.evaluate import LABEL
from dpstream.tools.simulate import poverty_panel
from dpstream_lab.audits.panel_audit import window_plan
from dpstream_lab.experiments import CumulativeRun, WindowRun, lines_of, load_panel, reproduce_bun, sipp
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
    assert LABEL in dpstream(*args).stdout
    with (out / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 + 2 * 5
    assert {row["label"] for row in rows} == {LABEL}
    assert all(
        (out / name).read_text(encoding="utf-8").startswith(f"**{LABEL}**")
        for name in ("table.md", "settings.md")
    )
    kept = {path.name: path.read_bytes() for path in (out / "runs").iterdir()}
    again = dpstream(*args, "--json")
    assert {path.name: path.read_bytes() for path in (out / "runs").iterdir()} == kept
    runs = json.loads(again.stdout)["runs"]
    assert sum(len(run["answers"]) for run in runs) == len(rows)
    other = dpstream(*args[:5], "--repeats", 5, "--quick", "--out", out, code=2)
    assert "repetitions: 4 then, 5 now" in other.stderr


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
        dpstream("lab", "reproduce", *args, code=2)


HEAD = "SHHADID|SSUID|PNUM|MONTHCODE|WPFINWGT|THINCPOVT2|TPTOTINC"


def rows_of(seed: int, households: int) -> list[tuple[str, int, int, str]]:
    """(household, person, month, ratio), shuffled; some months are empty, some have no row."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(households):
        for person in generator.choice([101, 102, 103, 1, 201], size=generator.integers(1, 4), replace=False):
            for month in range(1, 13):
                draw = generator.random()
                if draw > 0.01:
                    ratio = "" if draw < 0.02 else f"{generator.choice([0, 0.99, 1, 1.01, 3.5])}"
                    rows.append((f"{number:014d}", int(person), month, ratio))
    return [rows[i] for i in generator.permutation(len(rows))]


def text_of(rows: list[tuple[str, int, int, str]]) -> str:
    return "\n".join([HEAD, *(f"1|{h}|{p}|{m}|12.5|{r}|" for h, p, m, r in rows)]) + "\n"


def by_hand(rows: list[tuple[str, int, int, str]]) -> dict[str, list[int]]:
    """The rule, row by row."""
    result = {}
    for household in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == household]
        first = min(row[1] for row in own)
        ratios = {month: ratio for _, person, month, ratio in own if person == first and ratio}
        if len(ratios) == 12:
            result[household] = [int(float(ratios[month]) < 1) for month in range(1, 13)]
    return result


def test_the_panel_is_what_the_rule_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(1, 300)
    expected = by_hand(rows)
    assert 100 < len(expected) < 300
    # Many small blocks, cut in the middle of rows.
    monkeypatch.setattr(sipp, "_BLOCK_BYTES", 1000)
    plain = tmp_path / "pu2021.csv"
    plain.write_text(text_of(rows))
    packed = tmp_path / "pu2021_csv.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain, "pu2021.csv")
    for source in (plain, packed):
        out = tmp_path / f"{source.stem}-panel.csv"
        done = dpstream("lab", "datasets", "sipp", source, "--out", out, "--json")
        with out.open(newline="") as file:
            lines = list(csv.reader(file))
        assert {row[0]: [int(value) for value in row[1:]] for row in lines[1:]} == expected
        assert [row[0] for row in lines[1:]] == sorted(expected)
        facts = json.loads(done.stdout)
        assert (facts["kept"], facts["person_months"]) == (len(expected), len(rows))
        assert facts["households"] == 300 == facts["kept"] + facts["left_out_missing_month"]
    panel = load_panel(str(out), out)
    assert panel.real
    assert panel.reports.tolist() == [expected[name] for name in sorted(expected)]


def test_members_that_differ_are_counted(tmp_path: Path) -> None:
    alike = [("07", person, month, "0.5") for person in (101, 102) for month in range(1, 13)]
    other = [("08", person, month, "0.5" if person == 101 else "2") for _, person, month, _ in alike]
    file = tmp_path / "made.csv"
    file.write_text(text_of(alike + other))
    found = sipp.read_sipp(file)
    assert (found.seen, found.differing, found.incomplete) == (2, 1, 0)
    assert found.households.tolist() == ["07", "08"]
    assert found.poor.all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD.replace("THINCPOVT2", "THINCPOV") + "\n", "no column THINCPOVT2"),
        (HEAD.replace("|", ",") + "\n", "no column SSUID, PNUM, MONTHCODE, THINCPOVT2"),
        (HEAD + "\n", "there are no rows"),
        ("", "no column"),
        (text_of([("1", 101, 13, "0.5")]), "MONTHCODE"),
        (text_of([("1", 101, 1, "0.5")] * 2), "two rows for one month"),
        (text_of([("1", 101, 1, "0.5")]), "no household has all twelve"),
        (text_of([("1", 101, 1, "poor")]), "does not fit its columns"),
        (text_of([("", 101, 1, "0.5")]), "no household, person or month"),
        (HEAD + "\n1|2|3\n", "does not fit its columns"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "made.csv"
    file.write_text(content)
    with pytest.raises(DataError, match=message):
        sipp.read_sipp(file)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        sipp.read_sipp(tmp_path / "none.csv")
    packed = tmp_path / "two.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "x")
    with pytest.raises(DataError, match="holds 2 CSV files"):
        sipp.read_sipp(packed)
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", text_of(rows_of(2, 40)))
    damaged = bytearray(whole.read_bytes())
    damaged[200:260] = bytes(60)
    whole.write_bytes(bytes(damaged))
    with pytest.raises((DataError, ConfigError), match="damaged"):
        sipp.read_sipp(whole)
    taken = tmp_path / "panel.csv"
    taken.write_text("mine")
    done = dpstream("lab", "datasets", "sipp", packed, "--out", taken, code=2)
    assert "a file already" in done.stderr
    assert taken.read_text() == "mine"
    dpstream("lab", "datasets", "sip", packed, code=2)
