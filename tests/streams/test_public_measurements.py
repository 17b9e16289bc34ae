"""What a reader gets from published measurements, without the store: the owner's numbers, in intervals that hold, from
files that stay when a table goes; sums of noisy counts and their law; people, departures and cells of points."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_stream import dpstream
from door_runs import drawn_and_published
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_stream import batch, run, start

import dpstream as dp
from dpstream.core.contracts import NoisyCounts, marginal_query
from dpstream.core.errors import ConfigError, LimitError, SchemaError, StoreDamagedError
from dpstream.core.privacy import ZCDP, CubeNoise, PureDP, Randomness, noise_for_bounded
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace, WeightedSum
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace, noise_for
from dpstream.core.schema import Boolean, Categorical, Schema, parse_predicate
from dpstream.core.tables import EncodedBatch, EncodedReports, Workload
from dpstream.families.panel import PanelCumulative, PanelWindow
from dpstream.families.tabular import Baseline, Pooled
from dpstream.io.sinks import Publisher, read_measurements
from dpstream.stream import Batch, Publishing, open_stream
from dpstream.stream.inspection import check_store
from dpstream.stream.public_release import OtherKinds, kinds_there
from dpstream.stream.release.answers import measured_answer
from dpstream.stream.release.estimates import Estimate, Missing, Published
from dpstream_lab.audits.points_audit import cube_plan


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
    folder = tmp_path / "releases"
    zips = dp.read(folder).measured(["zip"])
    assert zips is not None

    def said(*arguments: object, code: int = 0) -> str:
        told = dpstream("measured", folder, *arguments, code=code)
        return told.stdout if code == 0 else told.output

    cells = json.loads(said("--column", "zip", "--json"))
    assert [cell["measured"] for cell in cells["cells"]] == zips.values.tolist()
    assert (cells["as_of"], cells["standard_error"]) == (3, zips.standard_error)
    assert (
        said("--column", "zip", "--csv").splitlines()[0] == '"zip","measured","standard_error","low","high"'
    )
    assert "as of step 2" in said("--column", "zip", "--as-of", "2")
    assert "not measured  paid, rent; --json says why" in said()
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
        assert words in " ".join(said(*wrong, code=2).split())


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


# Sums of noisy counts, their law, and what least squares makes of them


SCHEMA = Schema([Categorical("zip", ["a", "b", "c"]), Boolean("paid"), Boolean("late")])
SIZES = dict(zip(SCHEMA.names, SCHEMA.domain.sizes, strict=True))
SMALL, LARGE = DiscreteLaplace(Fraction(2)), DiscreteLaplace(Fraction(5))


def marginal(
    columns: Sequence[str], values: Any, first: int = 1, last: int = 1, noise: Any = SMALL, **more: Any
) -> NoisyCounts:
    query = {**marginal_query(columns), **({"chosen": [list(columns)]} if more.pop("chosen", False) else {})}
    counted = more.pop("counted", "inserts")
    name = f"{counted} {first}-{last} {columns} {noise} {more} {np.ravel(values)}"
    return NoisyCounts(name, counted, first, last, query, np.ravel(values).astype(np.int64), noise, **more)


def signs(
    terms: Sequence[Sequence[str]], values: Sequence[int], first: int = 1, last: int = 1, noise: Any = None
) -> NoisyCounts:
    query = {"kind": "signs", "terms": [list(term) for term in terms]}
    law = noise or CubeNoise(Fraction(3), len(terms))
    return NoisyCounts(f"signs {first} {terms}", "inserts", first, last, query, np.array(values), law)


def estimate(counts: Sequence[NoisyCounts], columns: Sequence[str], **more: Any) -> Estimate:
    found = Published(counts, SCHEMA).estimate(columns, **more)
    assert isinstance(found, Estimate), found
    return found


def missing(counts: Sequence[NoisyCounts], columns: Sequence[str], **more: Any) -> Missing:
    found = Published(counts, SCHEMA).estimate(columns, **more)
    assert isinstance(found, Missing), found
    return found


def test_epochs_are_added_and_wider_marginals_projected() -> None:
    table = np.arange(6).reshape(2, 3)  # paid x zip
    counts = [marginal(["zip"], [5, -1, 4]), marginal(["paid", "zip"], table, 2, 4, LARGE)]
    found = estimate(counts, ["zip"])
    assert found.values.tolist() == [8, 4, 11]
    assert (found.as_of, found.epochs, found.labels) == (4, ((1, 1), (2, 4)), (("a", "b", "c"),))
    assert found.law() == WeightedSum(((SMALL, 1.0, 1), (LARGE, 1.0, 2)))
    low, high = found.interval(0.9)
    assert set(((high - low) / 2).tolist()) == {NoiseSum(((SMALL, 1), (LARGE, 2))).half_width(0.9)}
    assert found.exact
    assert "as of step 4" in found.note
    assert found.to_table().column_names == ["zip", "measured", "standard_error", "low", "high"]
    number = estimate(counts, [])
    assert number.values == 23
    assert number.standard_error**2 == pytest.approx(3 * SMALL.variance + 6 * LARGE.variance)
    assert estimate(counts, ["zip"], as_of=1).values.tolist() == [5, -1, 4]


def test_deletes_are_taken_away() -> None:
    counts = [marginal(["zip"], [5, 6, 7]), marginal(["zip"], [1, 2, 3], counted="deletes", noise=LARGE)]
    assert estimate(counts, ["zip"]).values.tolist() == [4, 4, 4]
    later = [*counts, marginal(["zip"], [1, 1, 1], 2, 2)]
    assert estimate(later, ["zip"]).as_of == 1, "what is added and taken away must be about the same steps"


def test_several_measurements_are_weighted_by_inverse_variance() -> None:
    exact, wide = marginal(["zip"], [6, 6, 6]), marginal(["zip", "paid"], np.ones((3, 2)), noise=LARGE)
    found = estimate([exact, wide], ["zip"])
    weight = (1 / SMALL.variance) / (1 / SMALL.variance + 1 / (2 * LARGE.variance))
    assert found.values == pytest.approx(np.full(3, 6 * weight + 2 * (1 - weight)))
    assert found.standard_error**2 == pytest.approx(1 / (1 / SMALL.variance + 1 / (2 * LARGE.variance)))
    chosen = marginal(["zip"], [0, 0, 0], chosen=True)
    assert estimate([exact, wide, chosen], ["zip"]).values.tolist() == found.values.tolist()
    assert not found.chosen
    # What is chosen every time has unusual noise: no interval.
    assert "chosen by earlier measurements" in missing([chosen], ["zip"]).reason
    squares = estimate([exact, chosen], ["zip"], combine="least squares")
    assert (squares.chosen, squares.interval(), squares.values.tolist()) == (True, None, [3, 3, 3])
    assert squares.to_table().column("low").null_count == 3
    assert "no interval holds" in squares.note
    terms = signs([["paid"], ["late"], ["paid", "late"], []], [10, 4, 6, 20])
    some = NoisyCounts(**{**vars(terms), "query": {**terms.query, "chosen": [["paid", "late"]]}})
    assert estimate([some], ["paid"]).values.tolist() == [5, 15]
    assert "chosen by earlier" in missing([some], ["late", "paid"]).reason
    assert estimate([some], ["late", "paid"], combine="least squares").chosen
    assert not estimate([some], ["paid"], combine="least squares").chosen


def test_sums_of_signs_are_decoded() -> None:
    # 20 records: 15 paid, 12 late, 10 of them both.
    counts = [signs([["paid"], ["late"], ["late", "paid"], []], [10, 4, 6, 20])]
    found = estimate(counts, ["late", "paid"])
    assert found.values.tolist() == [[3, 5], [2, 10]]
    assert found.standard_error == pytest.approx((4 * CubeNoise(Fraction(3), 4).variance) ** 0.5 / 4)
    assert estimate(counts, ["paid"]).values.tolist() == [5, 15]
    assert estimate(counts, []).values == 20
    assert missing(counts, ["zip"]).steps == ((1, 1),)
    known = Published([signs([["paid"]], [10])], SCHEMA, {1: 20}).estimate(["paid"])
    assert isinstance(known, Estimate)
    assert known.values.tolist() == [5, 15]
    assert known.standard_error == pytest.approx(CubeNoise(Fraction(3), 1).variance ** 0.5 / 2)


def test_what_is_missing_is_said() -> None:
    counts = [
        marginal(["zip"], [1, 1, 1]),
        marginal(["paid"], [1, 1], 2, 2),
        marginal(["zip"], [1, 1, 1], 3, 5),
        marginal(["paid"], [1, 1], 6, 8),
    ]
    gap = missing(counts, ["zip"])
    assert gap.steps == ((2, 2), (6, 8))
    assert gap.reason == "In steps 2, 6 to 8 the column zip was not measured."
    reason = missing(counts, ["zip", "paid"]).reason
    assert reason.endswith("the columns zip, paid were not measured together.")
    assert missing(counts, ["zip"], as_of=4).steps == ((2, 4),)
    assert estimate(counts, ["zip"], as_of=1).values.sum() == 3
    assert "No noisy counts" in missing([], ["zip"]).reason
    assert "counts of records" in missing([marginal(["zip"], [1, 1, 1], counted="people")], ["zip"]).reason


def test_of_running_sums_the_newest_one_counts() -> None:
    sums = [
        marginal(["zip"], [last] * 3, 1, last, NoiseSum(((SMALL, last),)), series="zip") for last in (1, 2, 3)
    ]
    found = estimate(sums, ["zip"])
    assert (found.values.tolist(), found.epochs) == ([3, 3, 3], ((1, 3),))
    assert found.law().variance == pytest.approx(3 * SMALL.variance)
    twice = [*sums, marginal(["zip", "paid"], np.full((3, 2), 9), 1, 3, series="zip")]
    # They share draws: one of them.
    assert estimate(twice, ["zip"]).law().variance == pytest.approx(2 * SMALL.variance)
    gains = [marginal(["zip"], [1, 1, 1], step, step, series="zip") for step in (1, 2, 3)]
    assert missing(gains, ["zip"]).steps == ((2, 3),), "what shares draws must not be added up"
    assert "Gains of steps" in missing(gains, ["zip"]).reason
    loose = [marginal(["zip"], [1, 1, 1], noise=WeightedLaplace(Fraction(50)))]
    assert estimate(loose, ["zip"]).law().half_width(0.9) == WeightedLaplace(Fraction(50)).half_width(0.9)
    mixed = estimate([*loose, marginal(["zip"], [1, 1, 1], 2, 2)], ["zip"])
    assert not mixed.exact
    assert "Chebyshev" in mixed.note
    assert mixed.law().half_width(0.99) == pytest.approx(10 * mixed.standard_error)


def test_of_present_records_only_one_census_counts() -> None:
    epochs = ((1, 1, 2, 2), (2, 3, 4, 4), (5, 1, 6, 6), (3, 1, 4, 8), (4, 5, 8, 8))
    census = [
        marginal(["zip"], [value] * 3, first, last, counted="present", as_of=as_of)
        for value, first, last, as_of in epochs
    ]
    assert estimate(census, ["zip"]).values.tolist() == [7, 7, 7]
    assert estimate(census, ["zip"], as_of=6).values.tolist() == [5, 5, 5]
    gap = missing(census, ["zip"], as_of=4)
    assert gap.steps == ((1, 2),)
    assert "lack it" in gap.reason
    later = marginal(["zip"], [9, 9, 9], 9, 9, counted="present", as_of=9)
    assert estimate([*census, later], ["zip"]).as_of == 8
    assert "No census" in missing(census, ["zip"], as_of=3).reason


def test_groups_of_steps_are_chosen_by_their_variance() -> None:
    nodes = [marginal(["zip"], [1, 1, 1], step, step) for step in range(1, 5)]
    nodes += [marginal(["zip"], [2, 2, 2], 1, 2), marginal(["zip"], [4, 4, 4], 1, 4, LARGE)]
    assert estimate(nodes, ["zip"]).epochs == ((1, 2), (3, 3), (4, 4))
    assert estimate(nodes[:-1], ["zip"], as_of=3).epochs == ((1, 2), (3, 3))


def test_bad_input() -> None:
    published = Published([marginal(["zip"], [1, 1, 1])], SCHEMA)
    with pytest.raises(SchemaError, match="rent"):
        published.estimate(["rent"])
    with pytest.raises(ConfigError, match="twice"):
        published.estimate(["zip", "zip"])
    with pytest.raises(ConfigError, match="least squares"):
        published.estimate(["zip"], combine="median")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="as_of = 0"):
        published.estimate(["zip"], as_of=0)
    with pytest.raises(StoreDamagedError, match="do not fit"):
        Published([marginal(["zip"], [1, 1])], SCHEMA).estimate(["zip"])
    many = Schema([Categorical(f"c{i}", [str(v) for v in range(20)]) for i in range(12)])
    with pytest.raises(LimitError):
        Published([marginal(["c0"], [1] * 20)], many).estimate(many.names)


# Least squares.

SUBSETS = [c for k in range(4) for c in itertools.combinations(SCHEMA.names, k)]
MEASURED = st.lists(
    st.tuples(st.sampled_from(SUBSETS), st.integers(1, 9), st.booleans()), min_size=1, max_size=5
)


def design(one: NoisyCounts) -> np.ndarray:
    """How each value depends on the cells of the whole table."""
    cells = np.indices(SCHEMA.domain.sizes).reshape(3, -1)
    where = {name: cells[i] for i, name in enumerate(SCHEMA.names)}
    if one.columns is None:
        sign = {name: 2.0 * where[name] - 1.0 for name in ("paid", "late")}
        whole = np.ones(cells.shape[1])
        return np.array([np.prod([whole, *(sign[n] for n in term)], axis=0) for term in one.query["terms"]])
    return projection(one.columns)


def projection(columns: Sequence[str]) -> np.ndarray:
    cells = np.indices(SCHEMA.domain.sizes).reshape(3, -1)
    where = [cells[SCHEMA.names.index(name)] for name in columns]
    shape = [SIZES[name] for name in columns]
    flat = np.ravel_multi_index(tuple(where), shape) if columns else np.zeros(cells.shape[1], int)
    return (np.arange(int(np.prod(shape)))[:, None] == flat).astype(float)


@settings(max_examples=60, deadline=None)
@given(MEASURED, st.sampled_from(SUBSETS), st.booleans(), st.randoms(use_true_random=False))
def test_least_squares_are_those_of_a_dense_solver(measured, asked, with_signs, random) -> None:  # type: ignore[no-untyped-def]
    counts = []
    for number, (columns, scale, turned) in enumerate(measured):
        columns = columns[::-1] if turned else columns
        values = [random.randint(-20, 20) for _ in range(int(np.prod([SIZES[c] for c in columns])))]
        one = marginal(columns, values, noise=DiscreteLaplace(Fraction(scale)))
        counts.append(NoisyCounts(**{**vars(one), "draw": str(number)}))
    if with_signs:
        counts.append(signs([["paid"], ["late"], []], [random.randint(-20, 20) for _ in range(3)]))
    found = Published(counts, SCHEMA).estimate(asked, combine="least squares")
    # Each row divided by its standard deviation; the answer must lie in what the rows span.
    rows = np.concatenate([design(one) / one.variance**0.5 for one in counts])
    seen = np.concatenate([one.values / one.variance**0.5 for one in counts])
    wanted = projection(asked)
    inverse = np.linalg.pinv(rows)
    known = np.allclose(wanted @ inverse @ rows, wanted, atol=1e-8)
    assert isinstance(found, Estimate) is known
    if isinstance(found, Estimate):
        np.testing.assert_allclose(found.values.ravel(), wanted @ inverse @ seen, atol=1e-6)
        covariance = wanted @ inverse @ inverse.T @ wanted.T
        assert found.standard_error**2 == pytest.approx(covariance[0, 0])
        mask = np.zeros(found.values.size, dtype=bool)
        mask[: 1 + found.values.size // 2] = True
        assert found.law(mask.reshape(found.values.shape)).variance == pytest.approx(mask @ covariance @ mask)
        plain = Published(counts, SCHEMA).estimate(asked)
        assert isinstance(plain, Missing) or plain.standard_error >= found.standard_error - 1e-9


# The law of a weighted sum.

LAWS = [
    WeightedSum(((SMALL, 0.7, 1), (LARGE, 0.3, 2))),
    WeightedSum(((DiscreteGaussian(Fraction(9)), 0.61, 3), (SMALL, 1.0, 1))),
    WeightedSum((), ((CubeNoise(Fraction(4), 6), (0.25, 0.25, 0.25, 0.25), 3),)),
    WeightedSum(((SMALL, 0.5, 2),), ((CubeNoise(Fraction(3), 3), (0.5, 1.0), 1),)),
    WeightedSum((), ((CubeNoise(Fraction(200), 40), (0.5, 0.5), 1),)),
    WeightedSum(((SMALL, 1.0, 3),)),
]


def drawn(law: WeightedSum, many: int, randomness: Randomness) -> np.ndarray:
    total = np.zeros(many)
    for noise, weight, count in law.parts:
        total += weight * randomness.draw(noise, many * count).reshape(count, many).sum(axis=0)
    for joint, weights, count in law.joint:
        for _ in range(count):
            vectors = np.array([randomness.draw(joint, joint.dimension)[: len(weights)] for _ in range(many)])
            total += vectors @ np.array(weights)
    return total


@pytest.mark.parametrize("law", LAWS, ids=range(len(LAWS)))
def test_widths_hold_their_probability_and_little_more(law: WeightedSum) -> None:
    """False alarms below 1e-6: five standard deviations of a share; the control is a width of half of the noise."""
    many = 4000
    sums = np.abs(drawn(law, many, Randomness.system()))
    for confidence in (0.5, 0.9, 0.99):
        width = law.half_width(confidence)
        inside = float((sums <= width + 1e-9).mean())
        margin = 5.0 * (confidence * (1.0 - confidence) / many) ** 0.5 + 1.0 / many
        assert inside >= confidence - margin
        halved = float((sums <= width / 2).mean())
        assert halved < confidence - margin
    # Not wider than it has to be: two lattice points, or 3 %, at most.
    assert float((sums <= law.half_width(0.9) * 0.97 - 2.0).mean()) < 0.9 + 5.0 * (0.09 / many) ** 0.5


# People, departures and cells of points


POOR = Schema((Boolean("poor"),))
SEEDED = Randomness.seeded(1)
CONFIDENCE = 0.9


def known(counts: Iterable[NoisyCounts]) -> OtherKinds:
    return OtherKinds(tuple((one.as_of or one.last, one) for one in counts), {"poor": ("false", "true")})


def holds(found: list[tuple[Estimate, Any]], narrower: float = 1.0) -> bool:
    """Whether intervals of 90 % have the truth inside as often as they promise, over all independent cells.

    False alarms: below 1e-7 each, by Chernoff's bound for a share of 90 %.
    """
    inside = many = 0
    for estimate, truth in found:
        interval = estimate.interval(CONFIDENCE)
        width = (interval[1] - interval[0]) / 2 * narrower
        hits = np.abs(estimate.values - np.asarray(truth)) <= width
        inside, many = inside + int(hits.sum()), many + hits.size
    share = inside / many
    if share >= CONFIDENCE:
        return True
    far = share * math.log(share / CONFIDENCE) + (1 - share) * math.log((1 - share) / (1 - CONFIDENCE))
    return many * far < math.log(1e7)


def panel(people: int, periods: int, seed: int = 3) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 2, (people, periods))


def panel_published(plan: Any, people: NDArray[np.int64], randomness: Randomness) -> list[Any]:
    marks = np.zeros((len(people), 16), np.uint8)
    marks[:, 0] = np.arange(len(people))
    reports = [EncodedReports(plan.domain, column[:, None].astype(np.int32), marks) for column in people.T]
    return drawn_and_published(plan, reports, randomness)[1]


def test_patterns_are_those_of_the_newest_window() -> None:
    """Their law is that of the counts: ``test_published_is_measured.py`` holds these against what was drawn."""
    counts = panel_published(PanelWindow(POOR, 8).calibrate(rho="1/10", horizon=15), panel(100, 15), SEEDED)
    for at, one in enumerate(counts):
        patterns = known(counts[: at + 1]).patterns()
        assert patterns.values.ravel().tolist() == one.values.tolist()
        assert patterns.law() == WeightedSum(((one.noise, 1.0, 1),))
    assert patterns.columns[0] == "poor, period 8"
    assert (patterns.as_of, patterns.epochs) == (15, ((8, 15),))
    mask = np.arange(256).reshape([2] * 8) % 3 == 0
    some = patterns.sum(mask)
    assert float(some.values) == one.values[mask.ravel()].sum()
    assert some.law().variance == pytest.approx(mask.sum() * one.noise.variance)
    whole = known(counts).people()
    assert float(whole.values) == patterns.values.sum()
    assert whole.standard_error == pytest.approx(16 * patterns.standard_error)


def test_intervals_of_people_who_reported_it_so_often_hold() -> None:
    plan, people = PanelCumulative(POOR, thresholds=3).calibrate(rho="1/20", horizon=4), panel(20, 4)
    found = list[tuple[Estimate, Any]]()
    often = people.sum(axis=1)
    for _ in range(150):
        own = known(panel_published(plan, people, Randomness.system()))
        for times in (1, 2, 3):
            estimate = own.people(times)
            found.append((estimate, (often >= times).sum()))
        everybody = own.people()
        found.append((everybody, 20))
    assert holds(found)
    assert not holds(found, 0.3)
    assert own.people(4) is None
    assert own.patterns() is None
    assert list(kinds_there(own)) == ["people", "at least 1", "at least 2", "at least 3"]
    assert "at least 2 times up to period 4" in found[1][0].note


def test_cells_are_sums_over_the_newest_blocks_that_follow_each_other() -> None:
    depth = 6
    made, generator = cube_plan(2, depth=depth, epsilon=4), np.random.default_rng(1)
    points = generator.integers(0, 1 << depth, 3000)
    points[generator.random(3000) < 0.5] = 3
    state = made.start()
    made.read(state, points, SEEDED)
    counts = made._measured(state)
    for at in range(1, depth + 1):
        blocks = sorted((one for one in counts if one.query["depth"] == at), key=lambda one: one.first)
        estimate = known(counts).cells(at)
        assert estimate.epochs == tuple((one.first, one.last) for one in blocks)
        assert len(blocks) > 1
        assert estimate.values.tolist() == sum(one.values for one in blocks).tolist()
        assert estimate.law().variance == pytest.approx(sum(one.noise.variance for one in blocks))
        assert estimate.note.endswith(f"points number {blocks[0].first} to {blocks[-1].last}")
        # A block that is missing ends the sum: what came before it is about other points.
        kept = known([one for one in counts if one is not blocks[-2]]).cells(at)
        assert kept.epochs == ((blocks[-1].first, blocks[-1].last),)
    assert known(counts).cells(depth + 1) is None


def test_departures_that_a_step_counted_which_was_never_published_end_the_sum() -> None:
    noise = DiscreteLaplace(2)

    def line(step: int, found: int) -> NoisyCounts:
        query = {"kind": "marginal", "columns": list[str]()}
        return NoisyCounts(f"step {step}", "left", 1, 5, query, np.array([found]), noise, step)

    def left(*steps: int, since: int = 0) -> Estimate | None:
        counted = {10: 100, 20: 70, 30: 50}
        read = [
            ({"step": step}, [line(step, counted[step])] if step in counted else [])
            for step in range(1, 32)
            if step in steps or step not in counted
        ]
        return OtherKinds.of("nowhere", read).departures(since)

    whole = left(10, 20, 30)
    assert (whole.as_of, float(whole.values)) == (30, 220)
    assert "the law of noise in 3 measurements, added up" in whole.note
    assert whole.law() == WeightedSum(((noise, 1.0, 3),))
    assert "never published" not in whole.note
    # Step 20 was held, and rejected.
    first = left(10, 30)
    assert (first.as_of, float(first.values)) == (10, 100)
    assert "up to step 10 (step 20 was never published" in first.note
    assert "in one measurement" in first.note
    later = left(10, 30, since=20)
    assert (later.as_of, float(later.values)) == (30, 50)
    assert left(20, 30) is None
    assert left(10, 30, since=10) is None


def test_counts_that_do_not_fit_the_codebook_are_damage() -> None:
    query = {"kind": "patterns", "columns": ["poor"], "periods": 2}
    wrong = known([NoisyCounts("a", "people", 1, 2, query, np.arange(5), DiscreteLaplace(2))])
    for read in (wrong, replace(wrong, labels={})):
        with pytest.raises(StoreDamagedError, match="do not fit the codebook"):
            read.patterns()
