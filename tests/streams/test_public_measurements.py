"""What a reader gets from published measurements, without the store: the owner's numbers, in intervals that hold, from
files that stay when a table goes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from toy_stream import batch, run, start

import dpstream as dp
from dpstream.cli import main
from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.errors import ConfigError, LimitError, StoreDamagedError
from dpstream.core.privacy import PureDP, Randomness
from dpstream.core.privacy.budget import ZCDP
from dpstream.core.privacy.cube import noise_for_bounded
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace
from dpstream.core.privacy.noise import noise_for
from dpstream.core.schema import Boolean, Categorical, Schema
from dpstream.core.schema.predicate import parse_predicate
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.tabular import Baseline, Pooled
from dpstream.io.sinks import Publisher, read_measurements
from dpstream.stream import Batch, Publishing, open_stream
from dpstream.stream.inspection import check_store
from dpstream.stream.release.answers import measured_answer
from dpstream.stream.release.estimates import Estimate, Missing, Published


def test_owner_and_reader_get_the_same_numbers(tmp_path: Path) -> None:
    run(tmp_path, 5)
    release = dp.read(tmp_path / "releases")
    assert len(release.measurements(3)) == 3
    zips = release.measured(["zip"])
    with start(tmp_path) as stream:
        own = stream.release(5)
        np.testing.assert_array_equal(own.marginal(["zip"]).measured, zips.values)
        assert own.marginal(["zip"]).as_of == zips.as_of == 5
        np.testing.assert_array_equal(own.marginal(["zip"]).interval(), zips.interval())
        for question in ("zip = '94103'", "zip in ('94102', 'other')", "zip = 'other' or not zip = 'other'"):
            mine, theirs = own.answer(question), release.answer(question)
            assert mine.measured_value == theirs.measured_value == mine.value
            assert (mine.measured_error, mine.as_of) == (theirs.measured_error, 5)
            assert mine.interval(0.9) == theirs.interval(0.9) is not None
            assert mine.note == theirs.note
            assert mine.note.startswith("exact, by the law of noise in measurements of 5 groups of steps")
    earlier = release.answer("zip = '94103'", as_of=2)
    assert (earlier.as_of, earlier.value) == (2, release.answer("zip = '94103'").value)
    assert earlier.measured_value == release.measured(["zip"], step=2).values[1]
    missing = release.missing(["paid"])
    assert missing.steps == ((1, 5),)
    assert release.measured(["paid"]) is None
    assert release.missing(["zip"]) is None
    assert "In steps 1 to 5 the column paid was not measured. Part of" in release.answer("paid").note
    for step in (0, 6):
        with pytest.raises(ConfigError, match=f"step {step}"):
            release.measured(["zip"], step=step)
    with pytest.raises(ConfigError, match="expected a step"):
        release.measurements("last")


def test_a_rejected_step_leaves_a_gap_and_a_withdrawn_one_does_not(tmp_path: Path) -> None:
    held = Publishing(approve=True)
    run(tmp_path, 4, publishing=held)
    with start(tmp_path, publishing=held) as stream:
        stream.withdraw(3, "not this one")
        stream.approve([1, 2, 4])
        stream.withdraw(2, "a wrong file")
    release = dp.read(tmp_path / "releases")
    assert release.missing(["zip"]).steps == ((3, 3),)
    assert release.measured(["zip"], as_of=2).epochs == ((1, 1), (2, 2))


def test_an_owner_who_publishes_none_says_so(tmp_path: Path) -> None:
    run(tmp_path, 2, publishing=Publishing(measurements=False))
    answer = dp.read(tmp_path / "releases").answer("zip = '94103'")
    assert answer.interval() is None
    assert "No noisy counts of records are published" in answer.note
    with start(tmp_path, publishing=Publishing(measurements=False)) as stream:
        assert stream.release(2).answer("zip = '94103'").interval() is not None, (
            "the owner's model knows them"
        )


def test_on_the_command_line(tmp_path: Path) -> None:
    run(tmp_path, 3)
    folder = str(tmp_path / "releases")
    zips = dp.read(folder).measured(["zip"])
    assert zips is not None

    def said(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["measured", folder, *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    cells = json.loads(said("--column", "zip", "--json"))
    assert [cell["measured"] for cell in cells["cells"]] == zips.values.tolist()
    assert (cells["as_of"], cells["standard_error"]) == (3, zips.standard_error)
    assert (
        said("--column", "zip", "--csv").splitlines()[0] == '"zip","measured","standard_error","low","high"'
    )
    assert "as of step 2" in said("--column", "zip", "--as-of", "2")
    assert "In steps 1 to 3 the column paid was not measured." in " ".join(said().split())
    listed = {tuple(one["columns"]): one["as_of"] for one in json.loads(said("--json"))}
    assert listed == {(): 3, ("zip",): 3, ("paid",): None, ("rent",): None}
    answer = json.loads(said("--question", "zip = '94103'", "--json"))
    assert answer["measured"] == zips.values[1]
    assert "between" in said("--question", "zip = '94103'", "--confidence", "0.9")
    for wrong, words in (
        (["--column", "paid"], "In steps 1 to 3 the column paid was not measured"),
        (["--column", "rant"], "unknown column"),
        (["--column", "zip", "--confidence", "2"], "confidence = 2"),
        (["--csv"], "CSV holds counts of columns"),
        (["--question", "paid", "--column", "zip"], "names its columns itself"),
    ):
        result = CliRunner().invoke(main, ["measured", folder, *wrong])
        assert (result.exit_code, words in " ".join(result.output.split())) == (2, True), result.output


# The files.

NAME = "measurements.ndjson"


def files(home: Path, step: int) -> set[str]:
    return {path.name for path in (home / "releases" / f"step-{step:06d}").iterdir()}


def test_they_stay_when_a_table_expires_or_is_withdrawn(tmp_path: Path) -> None:
    run(tmp_path, 4, keep=2)
    before = read_measurements(tmp_path / "releases")
    with start(tmp_path, keep=2) as stream:
        stream.withdraw(4, "a wrong file")
        stream.step(batch(5), "b5")
    assert files(tmp_path, 1) == {"manifest.json", NAME}
    assert files(tmp_path, 4) == {"manifest.json", "withdrawn.json", NAME}
    assert read_measurements(tmp_path / "releases", through=4) == before
    assert len(read_measurements(tmp_path / "releases")) == 5
    assert not check_store(tmp_path / "state", tmp_path / "releases").problems
    (tmp_path / "releases" / "step-000001" / NAME).unlink()
    assert "is missing" in check_store(tmp_path / "state", tmp_path / "releases").problems[0]


def test_a_lost_file_comes_back_from_the_store_and_a_changed_one_stops_the_reader(tmp_path: Path) -> None:
    run(tmp_path, 3)
    lost = tmp_path / "releases" / "step-000003" / NAME
    data = lost.read_bytes()
    lost.unlink()
    with pytest.raises(StoreDamagedError, match=NAME):
        read_measurements(tmp_path / "releases")
    with start(tmp_path) as stream:
        assert stream.publish_again() == [3]
    assert lost.read_bytes() == data
    lost.write_bytes(data.replace(b"[", b"[1, ", 1))
    with pytest.raises(StoreDamagedError, match=NAME):
        read_measurements(tmp_path / "releases")


NOISES = [
    noise_for(PureDP.of("0.3"), 1, 1),
    noise_for(ZCDP.of("0.02"), 1, 1),
    noise_for_bounded(PureDP.of(1), 4, 1),
    NoiseSum(((noise_for(PureDP.of(1), 1, 1), 3), (noise_for(PureDP.of("1/7"), 1, 1), 1))),
    WeightedLaplace(Fraction(100, 7)),
]


@given(st.sampled_from(NOISES), st.lists(st.integers(-(2**62), 2**62), min_size=4, max_size=4), st.booleans())
def test_a_line_holds_everything(noise, values, later) -> None:
    marginal = marginal_query(["stra\u00dfe", "b"])
    one = NoisyCounts(
        "d", "present", 2, 7, marginal, np.array(values), noise, 9 if later else None, None if later else "s"
    )
    back = NoisyCounts.from_line(one.line())
    assert back == one
    assert back.values.dtype == np.int64
    assert back.variance == one.variance
    assert back.law == one.law
    assert back.columns == ("stra\u00dfe", "b")


@pytest.mark.parametrize("line", ["", "{}", "[1]", '{"draw": 1, "counted": "scores"}', "null"])
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="unreadable noisy counts"):
        NoisyCounts.from_line(line)


# Coverage.

MANY = Schema([Categorical("zip", [str(i) for i in range(500)]), Boolean("paid"), Boolean("late")])


def streams(runs: int) -> list[tuple[Published, np.ndarray]]:
    """Pooled streams of the default kind, and the true records up to their last border."""
    plan = Pooled(Workload.all_k_way(MANY.domain, 2), iterations=1, max_cells=2000).calibrate(
        PureDP.of(1), horizon=4
    )
    generator, made = np.random.default_rng(1), []
    for _ in range(runs):
        state, counts, batches = plan.start(), [], []
        for _ in range(4):
            codes = np.column_stack([generator.integers(0, size, 300) for size in MANY.domain.sizes])
            batches.append(codes.astype(np.int32))
            step = plan.step(state, EncodedBatch(MANY.domain, batches[-1], None), Randomness.system())
            counts += step.noisy_counts
        made.append((Published(counts, MANY), np.concatenate(batches)))
    return made


def shares_inside(made: list[tuple[Published, np.ndarray]], narrower: float) -> dict[str, tuple[float, int]]:
    """How many cells of ``zip``, and how many answers, are inside their intervals of 90 %."""
    inside: dict[str, list[bool]] = {"cells": [], "answers": []}
    for published, records in made:
        for combine in ("mean", "least squares"):
            found = published.estimate(["zip"], combine=combine)
            assert isinstance(found, Estimate)
            true = np.bincount(records[:, 0], minlength=500)
            inside["cells"] += (
                np.abs(found.values - true) <= found.law().half_width(0.9) * narrower
            ).tolist()
        for first in range(0, 500, 5):
            question = f"zip in ({', '.join(repr(str(i)) for i in range(first, first + 5))})"
            answer = measured_answer(0.0, published, parse_predicate(question, MANY))
            assert answer.measured_value is not None
            low, high = answer.interval(0.9)
            truth = int(((records[:, 0] >= first) & (records[:, 0] < first + 5)).sum())
            inside["answers"].append(abs(answer.measured_value - truth) <= narrower * (high - low) / 2)
    return {name: (float(np.mean(found)), len(found)) for name, found in inside.items()}


def test_intervals_of_a_stream_hold_what_they_promise() -> None:
    """False alarms below 1e-6: five standard deviations of independent cells; the control states half of the noise.

    The two estimates of a cell may be equal: as if there were half as many.
    """
    made = streams(3)
    for name, (share, many) in shares_inside(made, 1.0).items():
        assert share >= 0.9 - 5.0 * (0.09 / (many / 2)) ** 0.5, name
    for name, (share, many) in shares_inside(made, 0.5).items():
        assert share < 0.9 - 5.0 * (0.09 / (many / 2)) ** 0.5, name


def test_what_was_chosen_is_marked() -> None:
    """A pooled stream measures its columns whatever it knows, and its pairs by choice."""
    published, _ = streams(1)[0]
    pairs = [one for one in published.counts if one.columns is not None and len(one.columns) > 1]
    assert pairs
    assert all(one.query["chosen"] is True for one in pairs)
    fixed = [one for one in published.counts if one.columns == ("zip",)]
    assert len(fixed) == 4
    assert not any("chosen" in one.query for one in fixed)


def test_the_number_of_records_adds_up_chosen_marginals_too() -> None:
    """Every marginal sums to it, whichever was chosen: an interval at every border, without a headline, and the number
    and the error of the release itself.

    50 streams of nine epochs: intervals of 80 % hold 80 % of the last ones
    but for five standard deviations (false alarms below 1e-6); the control states a third of the noise.
    """
    schema = Schema([Categorical(f"c{size}", [str(i) for i in range(size - 2)]) for size in (3, 4, 5, 13)])
    plan = Pooled(Workload.all_k_way(schema.domain, 2), iterations=1).calibrate(epsilon=1)
    generator, inside, errors = np.random.default_rng(2), {1.0: [], 0.33: []}, set()
    sizes = schema.domain.sizes
    batches = [generator.integers(0, sizes, (600, 4)) * (generator.random((600, 4)) < 0.6) for _ in range(9)]
    chose = False
    for stream in range(50):
        state, counts = plan.start(), []
        for codes in batches:
            batch = EncodedBatch(schema.domain, codes.astype(np.int32), None)
            release = plan.step(state, batch, Randomness.system())
            counts += release.noisy_counts
            if stream < 5:
                found = Published(counts, schema).estimate([])
                assert isinstance(found, Estimate)
                assert float(found.values) == pytest.approx(release.total)
                assert found.standard_error == pytest.approx(release.total_error)
        found = Published(counts, schema).estimate([])
        assert isinstance(found, Estimate)
        errors.add(round(found.standard_error, 3))
        chose |= isinstance(Published(counts, schema).estimate(["c13"]), Missing)
        for narrower, held in inside.items():
            held.append(abs(float(found.values) - 5400) <= narrower * found.law().half_width(0.8))
    assert chose, "columns are known no longer"
    assert len(errors) > 10, "the choices are not always the same"
    least = 0.8 - 5.0 * (0.16 / 50) ** 0.5
    assert np.mean(inside[1.0]) >= least
    assert np.mean(inside[0.33]) < least


def test_a_number_of_records_that_is_public_has_no_error(tmp_path: Path) -> None:
    rows = {"zip": ["1", "2"] * 40, "paid": [True, False] * 40, "late": [True] * 60 + [False] * 20}
    unit = dp.Event("replace")
    with dp.open(tmp_path, MANY, epsilon=900, unit=unit, randomness=Randomness.seeded(4)) as stream:
        for step in range(3):
            stream.step({name: values[: 40 + 20 * step] for name, values in rows.items()}, name=str(step))
    release = dp.read(tmp_path / "releases")
    paid, number = release.measured(["paid"]), release.measured([])
    assert paid.values.sum() == number.values == 40 + 60 + 80
    assert np.abs(paid.values - 90).max() <= 2  # nearly without noise
    assert number.standard_error == 0.0 < paid.standard_error
    assert number.note.startswith("exact: the number of records was declared public")


def test_a_question_about_too_many_cells_is_refused(tmp_path: Path) -> None:
    """Readers are refused as owners are, before anything of the size of all combinations is made."""
    schema = Schema(tuple(Categorical(name, list("0123456789")) for name in "abcdefghijkl"))
    plan = Baseline(Workload.all_k_way(schema.domain, 1)).calibrate(epsilon=1)
    folder = Publisher(tmp_path / "releases")
    with open_stream(plan, schema, tmp_path / "state", publish_to=folder) as stream:
        stream.step(Batch({name: ["1", "2"] for name in schema.names}), "1")
    question = " or ".join(f"{name} = '1'" for name in schema.names)
    with pytest.raises(LimitError, match="has 1000000000000 cells"):
        dp.read(tmp_path / "releases").answer(question)
