"""``dpstream lab datasets sipp`` on a small file with the Census file's columns, against the rules read plainly."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dpstream.cli import main
from dpstream.core.errors import ConfigError, DataError
from dpstream_lab.experiments import sipp
from dpstream_lab.experiments.panel_data import load_panel

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
        done = CliRunner().invoke(main, ["lab", "datasets", "sipp", str(source), "--out", str(out), "--json"])
        assert done.exit_code == 0, done.output
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
    done = CliRunner().invoke(main, ["lab", "datasets", "sipp", str(packed), "--out", str(taken)])
    assert done.exit_code == 2
    assert "a file already" in done.output
    assert taken.read_text() == "mine"
    assert CliRunner().invoke(main, ["lab", "datasets", "sip", str(packed)]).exit_code == 2
