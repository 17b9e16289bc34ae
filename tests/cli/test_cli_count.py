"""``dpstream count``: exact counting before the noise, what is printed, and clear refusals."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dpstream.cli import main
from dpstream.core.counters import SimpleCounter
from dpstream.core.privacy import Event, PureDP
from dpstream.families.tabular.accuracy import cell_law

VISITS = """day,clinic,note
2026-01-12,north,x
2026-01-05,south,"a, b"
2026-01-06T09:30,north,
2026-02-01,west,y
"""
#: So much budget that the noise is 0 but with a probability below e^-100.
EXACT = ("--epsilon", "1000")


def count(*args: str, given: str = "") -> Result:
    return CliRunner().invoke(main, ["count", *args], input=given)


def rows(done: Result) -> list[dict[str, str]]:
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_numbers_line_by_line() -> None:
    found = rows(count("-", *EXACT, "--counter", "simple", given="3\n 0\n-2\n+10\n"))
    assert [row["count"] for row in found] == ["3", "3", "1", "11"]
    assert [row["tick"] for row in found] == ["1", "2", "3", "4"]
    assert found[0].keys() == {"tick", "period", "count", "standard_error", "low", "high"}


def test_rows_by_week_and_category_empty_weeks_too(tmp_path: Path) -> None:
    path = tmp_path / "visits.csv"
    path.write_text(VISITS)
    weeks = ("--time-column", "day", "--every", "week", "--start", "2026-01-05", "--end", "2026-02-01")
    plain = rows(count(str(path), *weeks, *EXACT))
    assert [row["count"] for row in plain] == ["2", "3", "3", "4"]
    assert [row["period"] for row in plain] == ["2026-W02", "2026-W03", "2026-W04", "2026-W05"]
    apart = rows(
        count(str(path), *weeks, *EXACT, "--column", "clinic", "--values", "north,south", "--other", "rest")
    )
    last = {row["value"]: row["count"] for row in apart[-3:]}
    assert last == {"north": "2", "south": "1", "rest": "1"}
    assert len(apart) == 12


def test_a_category_a_line_is_a_replacement() -> None:
    done = count("-", *EXACT, "--values", "yes,no", "--format", "ndjson", given="yes\nno\nyes\n")
    assert done.exit_code == 0
    last = [json.loads(line) for line in done.stdout.splitlines()][-2:]
    assert [(row["value"], row["count"]) for row in last] == [("yes", 2), ("no", 1)]
    assert "event-replace" in done.stderr


def test_noise_errors_and_intervals() -> None:
    """Errors and intervals are those of the counter's law; so is the noise (false alarms below 1e-6)."""
    found = rows(count("-", "--epsilon", "1/2", "--counter", "simple", given="5\n" * 1500))
    counter = SimpleCounter().calibrate(PureDP.of("1/2"), Event())
    for t in (1, 7, 1500):
        row, law = found[t - 1], cell_law(counter, t, 1)
        assert law is not None
        assert float(row["standard_error"]) == pytest.approx(counter.variance(t) ** 0.5, abs=1e-3)
        half = int(law.half_width(0.95))
        assert (int(row["low"]), int(row["high"])) == (int(row["count"]) - half, int(row["count"]) + half)
    squares = (np.diff([int(row["count"]) for row in found], prepend=0) - 5) ** 2
    # A Laplace noise's square has five times the squared variance as its own.
    tolerance = 7 * counter.variance(1) * (5 / 1500) ** 0.5
    assert abs(squares.mean() - counter.variance(1)) < tolerance
    assert abs(squares.mean() * 4 / 9 - counter.variance(1)) > tolerance, "the control must fail"


def test_what_is_said_beside() -> None:
    done = count("-", "--epsilon", "1", "--horizon", "50", given="1\n")
    assert re.search(r"chosen by predicted error: \S+: over 50 expected ticks", done.stderr)
    assert "epsilon = 1 (pure)" in done.stderr
    assert "Another run spends it anew." in done.stderr
    named = count("-", "--rho", "1/2", "--counter", "tree", "--horizon", "50", given="1\n")
    assert "chosen" not in named.stderr
    assert "rho = 0.5" in named.stderr


def test_a_file_is_written_once(tmp_path: Path) -> None:
    out = tmp_path / "counts.csv"
    assert count("-", *EXACT, "--out", str(out), given="4\n").exit_code == 0
    text = out.read_text()
    again = count("-", *EXACT, "--out", str(out), given="5\n")
    assert again.exit_code == 2
    assert "has spent its budget" in again.stderr
    assert out.read_text() == text


DAYS = ("--time-column", "day", "--every", "week", "--start", "2026-01-05", "--end", "2026-02-01")


@pytest.mark.parametrize(
    ("args", "given", "message"),
    [
        (EXACT, "3\nsecret\n", r"line 2: it is not a whole number"),
        (EXACT, "3.5\n", r"line 1: it is not a whole number"),
        (EXACT, "nan\n", r"line 1: it is not a whole number"),
        (EXACT, "1\n\n", r"line 2: it is not a whole number"),
        (EXACT, "9999999999\n", r"beyond the declared bound"),
        ((*EXACT, "--values", "a,b"), "a\nsecret\n", r"line 2: a value is none of the categories"),
        ((*EXACT, "--values", "a,a"), "a\n", r"--values: a category is empty or there twice"),
        ((*EXACT, "--other", "x"), "a\n", r"--other: there are no categories"),
        ((*EXACT, "--column", "nope"), VISITS, r"header: the column 'nope' is not there"),
        ((*EXACT, "--column", "day"), "day,x\n1\n", r"line 2: the row has another number of fields"),
        ((*EXACT, "--horizon", "2", "--counter", "tree"), "1\n2\n3\n", r"tick 3 lies beyond the horizon"),
        ((*EXACT, "--counter", "tree"), "1\n", r"needs a horizon"),
        ((*EXACT, "--counter", "magic"), "1\n", r"unknown counter 'magic'"),
        ((*EXACT, "--rho", "1"), "1\n", r"exactly one of epsilon and rho"),
        ((), "1\n", r"exactly one of epsilon and rho"),
        (("--epsilon", "-1"), "1\n", r"not positive"),
        (("--epsilon", "1e-12"), "1\n", r"noise would not fit|does not fit"),
        ((*EXACT, *DAYS[:6]), VISITS, r"together with --every, --start and --end"),
        ((*EXACT, *DAYS[:-1], "soon"), VISITS, r"--end: 'soon' is not a day"),
        ((*EXACT, *DAYS[:-1], "2025-01-01"), VISITS, r"--end: the last day is before the first"),
        ((*EXACT, *DAYS[:-1], "2026-01-25"), VISITS, r"line 5: its time is outside of the periods"),
        ((*EXACT, *DAYS), "day\nsecret\n", r"line 2: its time is not a day"),
        ((*EXACT, *DAYS, "--horizon", "3"), VISITS, r"--horizon is only for lines"),
        ((*EXACT, *DAYS, "--column", "clinic"), VISITS, r"--column and --values belong together"),
        ((*EXACT, "--every", "week"), "1\n", r"--every is only for --time-column"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_clear_line(args: tuple[str, ...], given: str, message: str) -> None:
    done = count("-", *args, given=given)
    assert done.exit_code in (2, 3), done.output
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.output
    assert "secret" not in done.output


def test_a_source_that_is_none(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        done = count(str(path), *EXACT)
        assert done.exit_code == 2
        assert ("there is no such file" if path.suffix else "this is a folder") in done.stderr
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in count(str(binary), *EXACT).stderr
