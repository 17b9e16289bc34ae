"""Whatever comes in the last step, the released number of records is right, or its error is said to be not known.

Steps 1 to 24 have 40 records each, but for the last one. Where steps are measured together, step 24 is within a
group unless ``end`` says that it is the last one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_stream import dpstream, status
from small_configs import PAID, PUBLIC, ZIP, rewrite, write_config, write_rows

from dpstream.project import Config
from dpstream.stream.public_release import read
from dpstream.stream.release.verdicts import NOT_KNOWN
from dpstream.tools.report import write_report

STEPS, EACH, END, LATER = 24, 40, 24, 1000
PRICE = '[schema.columns.price]\ntype = "real"\nedges = [0, 10, 20, 40]\n'
#: Sections of a file, and columns of its source.
FAMILIES = {
    "pooled": ('name = "pooled"\niterations = 5', ""),
    "deletes": ('name = "pooled"\niterations = 5', 'op_column = "op"'),
    "dpstabs": ('name = "dpstabs"\niterations = 5', ""),
    "baseline": ('name = "baseline"\niterations = 5', ""),
    "census": ('name = "census"', 'op_column = "op"\nkey_column = "id"'),
    "scheduler": ('name = "scheduler"\nfirst_run = 100\ngamma = "1/2"', ""),
    "points": ('name = "points"\nmax_depth = 8', ""),
}
#: Whose steps are not measured one by one, so that something may come of which nothing is known.
IN_GROUPS = ("pooled", "deletes", "census")


def made(folder: Path, family: str, times: int, end: int) -> tuple[Path, int]:
    """A configuration with its rows; and how many there are."""
    mechanism, source = FAMILIES[family]
    generator, number = np.random.default_rng(7), EACH * (STEPS - 1 + times)
    steps = np.repeat(np.arange(1, STEPS + 1), [EACH] * (STEPS - 1) + [EACH * times])
    rows = {"step": steps, "zip": generator.choice(list("aabc"), number)}
    if family == "points":
        rows["price"] = np.round(generator.random(number) * 40, 2)
    else:
        rows["paid"] = generator.random(number) < 0.5
    rows |= {"op": ["insert"] * number} if "op_column" in source else {}
    rows |= {"id": np.arange(number)} if "key_column" in source else {}
    write_rows(
        folder, "rows.csv", ",".join(rows), (",".join(map(str, r)) for r in zip(*rows.values(), strict=True))
    )
    config = write_config(
        folder,
        stream=PUBLIC if family in ("scheduler", "points") else "",
        source=f'path = "data/rows.csv"\ntime_column = "step"\nend = {end}\n{source}',
        columns=ZIP + (PRICE if family == "points" else PAID),
        mechanism=mechanism,
        budget='epsilon = "4"',
    )
    return config, number


@pytest.mark.parametrize("times", [0, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_number_of_records_of_the_last_step_is_measured(tmp_path: Path, family: str, times: int) -> None:
    """A standard error that is told is right: six of them hold the truth (false alarms below 1e-3 for any symmetric law
    with exponential tails; the control is the other test, whose numbers are off by more)."""
    config, truth = made(tmp_path, family, times, END)
    dpstream("run", config, "--test-seed", 1)
    number = read(tmp_path / "releases").number_of_records()
    assert (number.step, number.measured_up_to) == (STEPS, STEPS)
    assert number.error is not None
    assert abs(number.value - truth) <= 6.0 * number.error
    assert number.error < EACH / 2, "the truth would be inside whatever came"
    totals = status(config)["verdicts"][0]
    assert (totals["use"], totals["as_of"]) == ("totals", None)
    assert totals["share"] == pytest.approx(number.error / truth, rel=0.1)


@pytest.mark.parametrize("times", [0, 3])
@pytest.mark.parametrize("family", IN_GROUPS)
def test_of_what_nobody_measured_no_error_is_told(tmp_path: Path, family: str, times: int) -> None:
    config, truth = made(tmp_path, family, times, LATER)
    dpstream("run", config, "--test-seed", 1, "--until", STEPS)
    release = read(tmp_path / "releases")
    number, totals = release.number_of_records(), status(config)["verdicts"][0]
    before = release.number_of_records(number.measured_up_to)
    assert number.error is None
    assert number.measured_up_to < STEPS
    assert before.error is not None
    if (family, times) != ("census", 0):  # a census expects hardly any newcomers here
        assert abs(number.value - truth) > 2.0 * before.error, "and this is why"
    assert (totals["word"], totals["share"], totals["as_of"]) == (NOT_KNOWN, None, number.measured_up_to)
    assert f"after step {number.measured_up_to} " in totals["words"]
    assert f"By then there were {before.value:,}" in totals["words"]
    for one in release.manifest()["accuracy"]["verdicts"]:
        assert one["share"] is None or one["as_of"] == number.measured_up_to, one
    # The same in every text that tells errors.
    assert "Totals are" not in dpstream("statement", config).output
    page = write_report(config, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "expected, not measured" in page
    assert "give or take" not in page.split("A group of 1 %")[0]
    # Errors by simulation are of the last measured step: an invented stream goes on as before.
    dpstream("errors", config, "--runs", 2)
    steps = sorted(int(path.stem[-6:]) for path in (tmp_path / "releases" / "errors").glob("*.json"))
    assert steps[-1] == number.measured_up_to
    assert status(config)["verdicts"][0]["share"] is None


def test_the_owner_may_move_the_last_step(tmp_path: Path) -> None:
    """The step that was the last one when it was taken is measured, and every record in one epoch, whatever follows."""
    config, _ = made(tmp_path, "pooled", 1, 12)
    before = Config.load(config).facts()
    dpstream("run", config, "--test-seed", 1)
    rewrite(config, "end = 12", f"end = {STEPS}")
    assert Config.load(config).facts() == before, "neither the plan's hash nor its budget follow from it"
    dpstream("run", config, "--test-seed", 1)
    release = read(tmp_path / "releases")
    ends = [step for step in release.steps if release.number_of_records(step).error is not None]
    # 12 is no border of the rule, which goes on from there: 12, 14, 16, 18, 21, 24.
    assert ends == [*range(1, 10), 11, 12, 14, 16, 18, 21, 24]
    spans = sorted({(one.first, one.last) for one in release.measurements() if one.counted == "net"})
    assert [step for first, last in spans for step in range(first, last + 1)] == list(range(1, STEPS + 1))
    number, counted = release.number_of_records(), release.measured([])
    assert abs(number.value - STEPS * EACH) <= 6.0 * (number.error or 0.0)
    # One number of records has one error, wherever it is read.
    assert counted is not None
    assert counted.standard_error == pytest.approx(number.error)
    assert float(counted.values) == pytest.approx(number.value, abs=0.5)
