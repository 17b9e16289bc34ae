"""Flows, changes and series from published measurements: whose sums they are, what their intervals cover, and what is
refused."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv
from pysdmx.io import get_datasets
from small_streams import small_frame, small_schema

import dpstream as dp
from dpstream.cli import main
from dpstream.core.contracts import NoisyCounts, StepPeriods, ends, marginal_query
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, Noisy, Randomness
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.io.sources.calendar import CalendarPeriods, DayPeriods
from dpstream.stream.measured_counts import CountsOf, time_period, to_sdmx
from dpstream.stream.release.estimates import Missing, Published
from dpstream.stream.release.flows import Span, Timeline, change, series, simultaneous
from dpstream.tabular import Pooled

SCHEMA = small_schema()
FIRST = datetime.date(2026, 1, 5)
NOISE = DiscreteLaplace(5)


def week(step: int) -> str:
    monday = FIRST + datetime.timedelta(weeks=step - 1)
    return f"{monday}/{monday + datetime.timedelta(days=6)}"


def headlines_of_four_steps(iterations: int) -> Pooled:
    """Records that come and leave, each side by itself; their number is measured every two steps."""
    return Pooled(
        Workload.all_k_way(SCHEMA.domain, 2),
        deletions=True,
        cancels=False,
        headline=(("zip",),),
        periods=StepPeriods(4),
        number=StepPeriods(2),
        iterations=iterations,
    )


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve weeks with deletes, headlines every two steps: epochs end at steps 1 to 9, 11 and 12."""
    place = tmp_path_factory.mktemp("flows")
    recipe = headlines_of_four_steps(iterations=5)
    with dp.open(
        place, SCHEMA, epsilon=2, mechanism=recipe, deletions=False, randomness=Randomness.seeded(3)
    ) as stream:
        for step in range(1, 13):
            frame = small_frame(SCHEMA.names, step, 40 + 5 * step)
            gone = {name: values[:10] for name, values in frame.items()}
            stream.step(dp.Batch(frame, gone), str(step), week(step))
    return place / "releases"


def of_periods(counted: str, values: list[list[int]], length: int = 2) -> list[NoisyCounts]:
    """Measurements of zip in periods of so many steps."""
    return [
        NoisyCounts(
            f"{counted} {number}",
            counted,
            length * number + 1,
            length * (number + 1),
            {**marginal_query(["zip"]), "period": f"{length} steps"},
            Noisy(np.array(own, dtype=np.int64)),
            NOISE,
        )
        for number, own in enumerate(values)
    ]


def timeline(counts: list[NoisyCounts], steps: int) -> Timeline:
    manifests = [{"step": step, "period": week(step)} for step in range(1, steps + 1)]
    return Timeline.of(Published(counts, SCHEMA), manifests)


def test_flows_are_sums_of_what_lies_in_the_span(releases: Path) -> None:
    release = dp.read(releases)
    came, left, net = (release.flow(["zip"], 5, 12, events=events) for events in ("came", "left", "net"))
    own = [
        one
        for one in release.measurements()
        if "period" in one.query and one.columns == ("zip",) and one.first > 4
    ]
    assert len(own) == 4
    # Epochs 5, ..., 9, 11, 12 measured zip, too: a flow is made of periods alone.
    assert came.standard_error == pytest.approx(
        sum(one.variance for one in own if one.counted == "inserts") ** 0.5
    )
    np.testing.assert_allclose(net.values, came.values - left.values)
    assert net.standard_error == pytest.approx(np.hypot(came.standard_error, left.standard_error))
    assert str(came.span) == "2026-02-02 to 2026-03-29 (steps 5 to 12)"
    assert (
        release.flow(["zip"], "2026-02-02", "2026-03-29", events="came").values.tolist()
        == came.values.tolist()
    )


PERIODS = st.lists(st.lists(st.integers(-40, 900), min_size=3, max_size=3), min_size=3, max_size=9)


@given(values=PERIODS, epochs=PERIODS, data=st.data())
@settings(max_examples=40)
def test_answers_over_time_agree(
    values: list[list[int]], epochs: list[list[int]], data: st.DataObject
) -> None:
    """Flows of a union are sums, months add up to quarters, a flow is the difference of two stocks, and later releases
    change none of them, whatever epochs measured beside. The control is the next test."""
    many = len(values)
    first, border, last = (2 * place for place in sorted(
        data.draw(st.lists(st.integers(0, many), min_size=3, max_size=3, unique=True))
    ))  # fmt: skip
    periods = of_periods("net", values)
    beside = [
        replace(one, query=marginal_query(["zip"]), draw=f"epoch {one.draw}", noise=DiscreteLaplace(1))
        for one in of_periods("net", epochs, 4)
        if one.last <= 2 * many
    ]
    spans = [(first + 1, border), (border + 1, last), (first + 1, last)]

    def flows(counts: list[NoisyCounts], steps: int) -> list[np.ndarray]:
        known = timeline(counts, steps)
        return [known.flow(["zip"], Span(*own), "net", "mean").values for own in spans]

    one, other, both = flows([*periods, *beside], 2 * many)
    np.testing.assert_array_equal(one + other, both)
    early = [count for count in [*periods, *beside] if count.last <= last]
    np.testing.assert_array_equal(flows(early, last), [one, other, both])
    stock = timeline(periods, 2 * many).published
    stocks = [stock.estimate(["zip"], step).values if step else 0 for step in (first, last)]
    np.testing.assert_array_equal(stocks[1] - stocks[0], both)
    known = timeline([*periods, *beside], 2 * many)
    months, quarters = (series(known, ["zip"], every, "net", "mean") for every in (2, 6))
    for span, quarter in zip(quarters.spans, quarters.flows, strict=True):
        inside = [flow.values for flow, own in zip(months.flows, months.spans, strict=True)
                  if span.first <= own.first and own.last <= span.last]  # fmt: skip
        np.testing.assert_array_equal(quarter.values, np.sum(inside, axis=0))
    np.testing.assert_array_equal(both, np.sum(values[first // 2 : last // 2], axis=0))


def test_without_periods_of_their_own_flows_need_not_agree() -> None:
    """The control: the same measurements, not marked as periods, beside an epoch with less noise and other values."""
    plain, (epoch,) = marginal_query(["zip"]), of_periods("net", [[9, 9, 9]], 4)
    epoch = replace(epoch, query=plain, draw="epoch", noise=DiscreteLaplace(1))
    for query, whole in ((None, [3, 3, 3]), (plain, [9, 9, 9])):
        own = of_periods("net", [[1, 1, 1], [2, 2, 2]])
        own = own if query is None else [replace(one, query=query) for one in own]
        known = timeline([*own, epoch], 4)
        assert known.flow(["zip"], Span(1, 4), "net", "mean").values.tolist() == whole
        assert known.flow(["zip"], Span(1, 2), "net", "mean").values.tolist() == [1, 1, 1]


@given(values=PERIODS, gone=st.integers(0, 8))
@settings(max_examples=25)
def test_a_withdrawn_step_disappears_from_every_answer(values: list[list[int]], gone: int) -> None:
    """The step that published a period is withdrawn. The control: with it every answer is there."""
    gone, many = gone % len(values), len(values)
    counts = of_periods("net", values)
    for left in (counts, [*counts[:gone], *counts[gone + 1 :]]):
        there = len(left) == many
        steps = [step for step in range(1, 2 * many + 1) if there or step != 2 * gone + 2]
        manifests = [{"step": step, "period": week(step)} for step in steps]
        known = Timeline.of(Published(left, SCHEMA), manifests)
        for begin, end in combinations(range(0, 2 * many + 1, 2), 2):
            holds = begin <= 2 * gone < end
            try:
                known.flow(["zip"], Span(begin + 1, end), "net", "mean")
            except ConfigError:
                assert holds > there
            else:
                assert there or not holds
        found = series(known, ["zip"], 2, "net", "mean")
        assert [place for place, why in enumerate(found.why) if why] == ([] if there else [gone])
        assert isinstance(known.published.estimate(["zip"], 2 * many), Missing) is not there


def test_periods_in_both_spans_cancel_with_their_noise() -> None:
    known = timeline(of_periods("net", [[5, 1, 2], [7, 0, 1], [9, 4, 4], [2, 2, 2]]), 8)
    found = change(known, ["zip"], Span(1, 6), Span(3, 8), "net", "mean")
    np.testing.assert_array_equal(found.difference.values, np.array([2, 2, 2]) - np.array([5, 1, 2]))
    assert found.difference.standard_error == pytest.approx((2 * NOISE.variance) ** 0.5)
    assert found.direction().tolist() == [0, 0, 0]
    # Two weeks of 5 are as many a day as six weeks of 15, whatever the spans share.
    steady = timeline(of_periods("net", [[500, 0, 0]] * 3), 6)
    assert change(steady, ["zip"], Span(1, 2), Span(1, 6), "net", "mean").direction().tolist() == [0, 0, 0]
    same = change(steady, ["zip"], Span(1, 2), Span(1, 2), "net", "mean")
    assert (same.difference.values.tolist(), same.direction().tolist()) == ([0, 0, 0], [0, 0, 0])
    inner = change(known, ["zip"], Span(1, 8), Span(3, 4), "net", "mean")
    np.testing.assert_array_equal(inner.difference.values, -np.array([16, 7, 8]))
    assert inner.difference.standard_error == pytest.approx((3 * NOISE.variance) ** 0.5)


def test_what_is_higher_compares_records_a_day() -> None:
    """Eight weeks with twice the records of four are as many a day."""
    known = timeline(of_periods("net", [[1000, 0, 500], [1000, 900, 500], [1000, 900, 500]]), 6)
    spans = known.asked(1, 2), known.asked(3, 6)
    found = change(known, ["zip"], *spans, "net", "mean")
    assert found.direction().tolist() == [0, 1, 0]
    assert found.difference.values.tolist() == [1000, 1800, 500]
    table = found.to_table().to_pylist()
    assert [row["seen"] for row in table] == [
        "no difference can be seen",
        "rose",
        "no difference can be seen",
    ]
    assert simultaneous(0.95, 3) == pytest.approx(1 - 0.05 / 3)
    with pytest.raises(ConfigError, match="60000 comparisons"):
        simultaneous(0.95, 60_000)


def test_series_say_what_is_measured_under_way_and_missing() -> None:
    counts = of_periods("net", [[5, 1, 2], [7, 0, 1]])
    known = timeline(counts, 5)
    found = series(known, ["zip"], 2, "net", "mean")
    assert [str(span) for span in found.spans][-1] == "2026-02-02 to 2026-02-08 (step 5)"
    assert found.why == ("", "", "under way")
    table = found.to_table().to_pylist()
    assert [row["status"] for row in table] == ["measured"] * 6 + ["under way"]
    assert table[0]["from"] == "2026-01-05"
    assert [own.standard_error for own in found.flows if own] == [pytest.approx(NOISE.variance**0.5)] * 2
    # Without the second measurement its months are a gap.
    gap = series(timeline([counts[0], *of_periods("net", [[0, 0, 0]] * 3)[2:]], 6), ["zip"], 2, "net", "mean")
    assert gap.why == ("", "not known", "")
    # A step belongs to the month of its last day: of these weeks three are of January.
    by_weeks = timeline(of_periods("net", [[1, 0, 0]] * 5, 1), 5)
    months = series(by_weeks, ["zip"], "month", "net", "mean")
    assert [(span.first, span.last) for span in months.spans] == [(1, 3), (4, 5)]
    with pytest.raises(ConfigError, match="none of these periods"):
        series(known, ["zip"], "month", "net", "mean")


@given(
    begins=st.integers(1, 12), seen=st.integers(1, 60), more=st.integers(0, 40), planned=st.integers(80, 120)
)
@settings(max_examples=25)
def test_readers_take_periods_from_manifests_whenever_they_ask(
    begins: int, seen: int, more: int, planned: int
) -> None:
    """Fiscal quarters are the ones that were measured; a period that is over stays as it is, whatever comes after it.
    The control: quarters of January differ wherever years begin in another month of the quarter."""
    grid = DayPeriods(FIRST, 7)
    clock = CalendarPeriods("month", grid, begins)
    plan = Pooled(
        Workload.all_k_way(SCHEMA.domain, 2), headline=(("zip",),), periods=clock, number=clock
    ).calibrate(epsilon=1, horizon=planned)
    counts = of_periods("net", [[5, 1, 2]] * (seen + more), 1)

    def quarters(last: int) -> list[tuple[int, int, str]]:
        manifests = [
            {"step": step, "period": week(step), "periods": plan.periods_of(step)}
            for step in range(1, last + 1)
        ]
        known = Timeline.of(Published(counts[:last], SCHEMA), manifests)
        try:
            found = series(known, ["zip"], "quarter", "net", "mean")
        except ConfigError:
            return []  # the first quarter is under way
        return [(span.first, span.last, why) for span, why in zip(found.spans, found.why, strict=True)]

    early, late = quarters(seen), quarters(seen + more)
    whole = [row for row in early if row[2] == ""]
    assert whole == late[: len(whole)]
    assert all(row[2] == "under way" for row in early[len(whole) :])
    assert len(early) - len(whole) <= 1
    fiscal = CalendarPeriods("quarter", grid, begins)
    assert all(ends(fiscal, last) or last == planned for _, last, _ in whole)
    plain = CalendarPeriods("quarter", grid)
    assert (begins % 3 == 1) == all(ends(plain, last) for _, last, _ in whole) or not whole


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (5, 6, r"has gaps.*allowed: 2026-02-02 to 2026-03-01 \(steps 5 to 8\)"),
        ("2026-01-05", "2026-01-18", "has gaps"),
        ("2026-13-01", "2026-01-18", "names no day"),
        ("2027-01-01", "2027-02-01", "no published step"),
        (9, 40, "no published step"),
        (0, 4, "unusable as a step"),
        (True, 4, "unusable as a step"),
    ],
)
def test_spans_that_are_not_whole_are_refused_with_the_nearest(
    start, end, words: str, releases: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        timeline(of_periods("net", [[1, 1, 1]] * 3, 4), 12).flow(
            ["zip"], timeline(of_periods("net", [[1, 1, 1]] * 3, 4), 12).asked(start, end), "net", "mean"
        )


def test_cover_widens_to_the_nearest_whole_span() -> None:
    known = timeline(of_periods("net", [[1, 0, 0], [2, 0, 0], [4, 0, 0]], 4), 12)
    found = known.flow(["zip"], known.asked(6, 9), "net", "mean", cover=True)
    assert (found.span.first, found.span.last, found.values[0]) == (5, 12, 6)


def test_the_command_says_the_same(releases: Path) -> None:
    def said(*options: str) -> str:
        result = CliRunner().invoke(main, ["measured", str(releases), *options], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    release = dp.read(releases)
    days = ("--from", "2026-02-02", "--to", "2026-03-29", "--events", "came")
    flow = json.loads(said("--column", "zip", *days, "--json"))
    own = release.flow(["zip"], 5, 12, events="came")
    assert [cell["measured"] for cell in flow["cells"]] == own.values.tolist()
    named = ("first_step", "last_step", "first_day", "last_day")
    assert flow["span"] == dict(zip(named, (5, 12, "2026-02-02", "2026-03-29"), strict=True))
    change = json.loads(said("--column", "zip", *days, "--change", "1/4", "--json"))
    assert (change["earlier"]["last_step"], change["later"]) == (4, flow["span"])
    assert json.loads(said("--column", "zip", "--json"))["span"] is None
    text = said("--column", "zip", "--from", "9", "--to", "12", "--change", "1/4", "--events", "came")
    assert "standard error" in text
    rows = (
        said("--column", "zip", "--every", "4 steps", "--events", "came", "--csv")
        .replace('"', "")
        .splitlines()
    )
    assert rows[0] == "from,to,zip,count,standard_error,low,high,status"
    assert len(rows) == 1 + 3 * len(SCHEMA.columns[0].labels())
    assert all(row.endswith(",measured") for row in rows[1:])
    wrong = CliRunner().invoke(main, ["measured", str(releases), "--every", "month", "--from", "1"])
    assert wrong.exit_code == 2


def command(releases: Path, *options: object) -> tuple[int, str]:
    """What ``dpstream measured`` says."""
    result = CliRunner().invoke(main, ["measured", str(releases), *map(str, options)])
    return result.exit_code, result.output


def test_a_file_holds_every_answer(releases: Path, tmp_path: Path) -> None:
    """The number of records and every column: what came and left in each period, and the number at its end."""
    place = tmp_path / "counts.csv"
    assert command(releases, "--out", place) == (0, f"wrote {place}\n")
    types = {"from": pa.date32(), "value": pa.string()}
    table = csv.read_csv(
        place, convert_options=csv.ConvertOptions(strings_can_be_null=True, column_types=types)
    )
    names = [
        "from",
        "to",
        "kind",
        "column",
        "value",
        "count",
        "standard_error",
        "low95",
        "high95",
        "status",
    ]
    assert table.column_names == names
    rows = table.to_pylist()
    release, labels = dp.read(releases), {column.name: column.labels() for column in SCHEMA.columns}
    headlines = {
        (kind, column): 6 if column == "all" else 3 * len(labels[column])
        for kind in ("came", "left", "present")
        for column in ("all", "zip")
    }
    many = Counter((row["kind"], row["column"]) for row in rows)
    assert {name: many[name] for name in headlines} == headlines
    assert {column for _, column in many} == {"all", *labels}
    for row in rows:
        if row["column"] not in ("all", "zip"):
            continue
        columns = [] if row["column"] == "all" else [row["column"]]
        cell = labels["zip"].index(row["value"]) if columns else ()
        if row["kind"] == "present":
            step = (row["to"] - FIRST).days // 7 + 1
            own = release.measured(columns, as_of=step)
        else:
            own = release.flow(columns, row["from"], row["to"], events=row["kind"])
        told = [row["count"], row["standard_error"], row["low95"], row["high95"]]
        low, high = own.interval()
        expected = [own.values[cell], own.standard_error, low[cell], high[cell]]
        assert told == pytest.approx(expected, abs=0.001)
        assert row["status"] == "exact"
    # Options choose; a gap is a row that says so.
    assert command(releases, "--column", "zip", "--every", "3 steps", "--out", place, "--force")[0] == 0
    few = csv.read_csv(place).to_pylist()
    assert {row["kind"] for row in few} == {"net"}
    assert {row["status"] for row in few} == {"exact", "not known"}
    assert all((row["status"] == "exact") == (row["count"] is not None) for row in few)


def test_manifest_and_measurements_say_one_number(releases: Path) -> None:
    """Of epochs and periods that overlap, in whatever way a reader asks; their sum by one cover has another error."""
    release = dp.read(releases)
    known = 0
    for step in release.steps:
        number, estimate = release.number_of_records(step), release.measured((), as_of=step)
        if number.noise_error is None or estimate is None:
            continue
        known += 1
        assert round(float(estimate.values)) == number.value
        assert estimate.standard_error == pytest.approx(number.noise_error)
    assert known >= 3
    cover = release.measured((), combine="mean")
    assert cover is not None
    assert cover.standard_error > 1.01 * estimate.standard_error


def test_sdmx_csv_is_read_by_others(releases: Path, tmp_path: Path) -> None:
    place = tmp_path / "counts.sdmx.csv"
    options = ("--column", "zip", "--every", "3 steps", "--confidence", "0.9", "--format", "sdmx-csv")
    assert command(releases, *options, "--out", place)[0] == 0
    (read,) = get_datasets(place)
    assert (read.short_urn, read.action.name) == ("Dataflow=DPSTREAM:STREAM(1.0.0)", "Information")
    assert list(read.data.columns) == (
        [
            "COUNTED",
            "ZIP",
            "TIME_PERIOD",
            "OBS_VALUE",
            "UNIT_MEASURE",
            "STD_ERROR",
            "LOWER",
            "UPPER",
            "CONFIDENCE",
            "OBS_STATUS",
        ]
    )
    series = dp.read(releases).series(["zip"], 3)
    rows = read.data.to_dict("records")
    assert {row["OBS_STATUS"] for row in rows} == {"A", "L"}
    assert [row["TIME_PERIOD"] for row in rows if row["OBS_STATUS"] == "L"] == [
        *("2026-01-26/P21D", "2026-02-16/P21D", "2026-03-09/P21D")
    ]
    measured = [row for row in rows if row["OBS_STATUS"] == "A"]
    values = np.concatenate([own.values for own in series.flows if own])
    np.testing.assert_allclose([float(row["OBS_VALUE"]) for row in measured], values)
    high = np.concatenate([own.interval(0.9)[1] for own in series.flows if own])
    np.testing.assert_allclose([float(row["UPPER"]) for row in measured], high)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "there.csv"), "there is a file already"),
        (("--out", "no/counts.csv"), "the folder does not exist"),
        (("--out", "new.csv", "--json"), "without --csv, --json"),
        (("--out", "new.csv", "--question", "zip = '94103'"), "without --csv, --json"),
        (("--format", "sdmx-csv"), "no file is named"),
    ],
)
def test_files_that_are_refused(
    options: tuple[str, ...], words: str, releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there.csv").write_text("mine", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, said = command(releases, *options)
    assert code == 2
    assert words in " ".join(said.split())
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("there.csv", "mine")]


def test_periods_as_sdmx_writes_them() -> None:
    day = datetime.date.fromisoformat
    spans = {
        ("2024-01-01", "2024-12-31"): "2024",
        ("2024-10-01", "2024-12-31"): "2024-Q4",
        ("2024-02-01", "2024-02-29"): "2024-02",
        ("2024-12-30", "2025-01-05"): "2025-W01",
        ("2024-02-01", "2024-02-28"): "2024-02-01/P28D",
        ("2024-04-01", "2025-03-31"): "2024-04-01/P365D",
        ("2024-05-06", "2024-05-06"): "2024-05-06",
    }
    assert {ends: time_period(Span(1, 1, *map(day, ends))) for ends in spans} == spans
    with pytest.raises(ConfigError, match="have no days"):
        time_period(Span(1, 2))


def test_names_become_identifiers_that_differ() -> None:
    """Two columns whose names differ in signs only, one that is called as the file's own are."""
    counts = [CountsOf("net", ("a b", "a-b", "lower"), Span(1, 1, FIRST, FIRST), None, "withdrawn")]
    table = to_sdmx(counts, "2 of us")
    assert table.column_names[4:8] == ["A_B", "A_B_2", "LOWER_2", "TIME_PERIOD"]
    row = table.to_pylist()[0]
    assert (row["STRUCTURE_ID"], row["OBS_STATUS"]) == ("DPSTREAM:X_2_OF_US(1.0.0)", "Q")


def test_each_kind_of_answer_covers_and_half_of_the_noise_does_not() -> None:
    """30 seeded streams with deletes. Of n intervals at 95 % at most 4.9 deviations fewer than 95 % hold the truth:
    a false alarm for one kind in a million at most. The control: intervals of half the width."""
    recipe = headlines_of_four_steps(iterations=2)
    plan, inside = recipe.calibrate(epsilon=1, horizon=12), dict[str, list[list[bool]]]()
    generator, place = np.random.default_rng(4), SCHEMA.domain.index("zip")
    for seed in range(30):
        state, counts, true = plan.start(), list[NoisyCounts](), {"inserts": [], "deletes": []}
        for step in range(1, 13):
            rows = generator.integers(0, SCHEMA.domain.sizes, (60, len(SCHEMA.names))).astype(np.int32)
            batch = EncodedBatch(SCHEMA.domain, rows, rows[: generator.integers(5, 30)])
            for part, known in true.items():
                known.append(batch.count([(place,)], part)[0])
            counts += plan.step(state, batch, Randomness.seeded(f"{seed} {step}")).noisy_counts
        known = timeline(counts, 12)
        came, left = (np.cumsum(np.vstack([np.zeros((1, 3)), *own]), axis=0) for own in true.values())
        kinds = {"came": came, "left": left, "net": came - left}
        found = {}
        for kind, sums in kinds.items():
            found[kind] = known.flow(["zip"], Span(5, 12), kind, "mean"), sums[12] - sums[4]
            found[f"number, {kind}"] = known.flow([], Span(1, 6), kind, "mean"), sums[6].sum()
            change_of = change(known, ["zip"], Span(1, 8), Span(5, 12), kind, "mean").difference
            found[f"change, {kind}"] = change_of, sums[12] - sums[8] - sums[4]
            row = series(known, ["zip"], 4, kind, "mean").flows[1]
            found[f"series, {kind}"] = row, sums[8] - sums[4]
        found["stock"] = known.published.estimate(["zip"], 12), kinds["net"][12]
        for kind, (answer, truth) in found.items():
            half = (answer.interval()[1] - answer.values).ravel()
            apart = np.abs(answer.values - truth).ravel()
            own = inside.setdefault(kind, [[], []])
            for place_of, width in enumerate((half, half / 2)):
                own[place_of] += (apart <= width).tolist()
    lacking = {"whole": [], "half": []}
    for kind, both in inside.items():
        for name, own in zip(lacking, both, strict=True):
            least = 0.95 * len(own) - 4.9 * (len(own) * 0.95 * 0.05) ** 0.5
            lacking[name] += [kind] if sum(own) < least else []
    assert lacking["whole"] == []
    # Of the number of records there is one interval a stream: too few for the control.
    assert {kind for kind in inside if not kind.startswith("number")} <= set(lacking["half"]), lacking
