"""Every column type: codes survive the way to values and labels and back, and policies are kept."""

from __future__ import annotations

import bisect
import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import DataError, SchemaError
from dpstream.core.schema import Boolean, Categorical, Column, Date, DateTime, Integer, Real
from dpstream.core.schema.dates import borders, parse_every

PERIODS = ["day", "week", "month", "quarter", "year", "14 days", "1 day"]
whole = st.integers(-(2**62), 2**62)
days = st.dates(dt.date(1800, 1, 1), dt.date(2300, 1, 1))
times = st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2300, 1, 1))
# The zone shifts borders by up to two hours twice a year; edges days apart stay in order.
far_times = days.map(lambda day: dt.datetime.combine(day, dt.time(12, 30)))


@st.composite
def policies(draw, other=True):
    return {
        "other": draw(st.sampled_from([None, "(other)"])) if other else None,
        "missing": draw(st.sampled_from([None, "(missing)"])),
    }


def increasing(values, least=2):
    return st.lists(values, min_size=least, max_size=8, unique=True).map(sorted)


@st.composite
def ordered_policies(draw):
    found = draw(policies())
    if found["other"] is None:
        found["outside"] = draw(st.sampled_from([None, "clip"]))
    return found


@st.composite
def integers(draw):
    if draw(st.booleans()):
        low = draw(whole.filter(lambda x: x < 2**62 - 300))
        return Integer("x", min=low, max=low + draw(st.integers(0, 200)), **draw(ordered_policies()))
    return Integer("x", edges=draw(increasing(whole)), **draw(ordered_policies()))


@st.composite
def reals(draw):
    edges = draw(increasing(st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)))
    return Real("x", edges, **draw(ordered_policies()))


@st.composite
def dates(draw):
    if draw(st.booleans()):
        return Date("x", edges=draw(increasing(days)), **draw(ordered_policies()))
    start = draw(days)
    end = start + dt.timedelta(days=draw(st.integers(0, 900)))
    return Date("x", start=start, end=end, every=draw(st.sampled_from(PERIODS)), **draw(ordered_policies()))


@st.composite
def datetimes(draw):
    zone = draw(st.sampled_from([None, "UTC", "Europe/Zurich"]))
    if draw(st.booleans()):
        edges = draw(increasing(times if zone is None else far_times))
        return DateTime("x", edges=edges, timezone=zone, **draw(ordered_policies()))
    start = draw(far_times)
    end = start + dt.timedelta(days=draw(st.integers(0, 900)), seconds=draw(st.integers(1, 86_399)))
    end = draw(st.sampled_from([end, end.date()])) if end.date() > start.date() else end
    every = draw(st.sampled_from(PERIODS))
    return DateTime("x", start=start, end=end, every=every, timezone=zone, **draw(ordered_policies()))


@st.composite
def categoricals(draw):
    kinds = st.lists(st.text(max_size=5), min_size=1, max_size=9, unique=True)
    numbers = st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1, max_size=9, unique=True)
    return Categorical("x", draw(st.one_of(kinds, numbers)), **draw(policies()))


@st.composite
def booleans(draw):
    return Boolean("x", **draw(policies()))


columns = st.one_of(booleans(), categoricals(), integers(), reals(), dates(), datetimes())


@settings(max_examples=200, deadline=None)
@given(columns, st.integers(0, 2**32))
def test_codes_survive_labels_and_values(column: Column, seed: int) -> None:
    generator = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(column.size), generator.integers(0, column.size, 20)]).astype(np.int32)
    assert len(column.labels()) == column.size == len(set(column.labels()))
    labels = column.decode(codes, generator, "label")
    assert labels.to_pylist() == [column.labels()[c] for c in codes]
    np.testing.assert_array_equal(column.encode(labels), codes)
    # As values, `other` keeps its label only in text; elsewhere it is null and cannot come back.
    if not isinstance(column, Categorical) and column.other_code is not None:
        codes = codes[codes != column.other_code]
    values = column.decode(codes, generator)
    assert values.type == column.arrow_type()
    assert values.null_count == (codes == (-1 if column.missing_code is None else column.missing_code)).sum()
    np.testing.assert_array_equal(column.encode(values), codes)
    # Encodings that carry no meaning change nothing.
    np.testing.assert_array_equal(column.encode(values.dictionary_encode()), codes)
    pieces = pa.chunked_array([values.slice(0, 3), values.slice(3, 0), values.slice(3)])
    np.testing.assert_array_equal(column.encode(pieces), codes)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bins_agree_with_a_search_by_hand(data) -> None:
    kind, values = data.draw(
        st.sampled_from([(Integer, whole), (Real, st.floats(-1e6, 1e6)), (Date, days), (DateTime, times)])
    )
    edges = data.draw(increasing(values))
    column = kind("x", edges=edges, other="(other)", missing="(missing)")
    clipped = kind("x", edges=edges, outside="clip", missing="(missing)")
    rows = [*edges, *data.draw(st.lists(values, max_size=20)), None]
    bins = len(edges) - 1
    wanted, inside = [], []
    for row in rows:
        if row is None:
            wanted.append(bins + 1)
            inside.append(bins)
            continue
        place = bisect.bisect_right(edges, row) - 1 if row != edges[-1] else bins - 1
        wanted.append(place if edges[0] <= row <= edges[-1] else bins)
        inside.append(min(max(place, 0), bins - 1))
    assert column.encode(rows).tolist() == wanted
    assert clipped.encode(rows).tolist() == inside
    assert column.encode([None if row is None else str(row) for row in rows]).tolist() == wanted


@settings(max_examples=100, deadline=None)
@given(days, st.integers(0, 2000), st.sampled_from(PERIODS))
def test_calendar_bins_cover_every_day_once(start: dt.date, length: int, every: str) -> None:
    end = start + dt.timedelta(days=length)
    column = Date("x", start=start, end=end, every=every)
    codes = column.encode([start + dt.timedelta(days=i) for i in range(length + 1)])
    assert codes[0] == 0
    assert codes[-1] == column.size - 1
    steps = np.diff(codes)
    assert set(steps.tolist()) <= {0, 1}
    opened = [start + dt.timedelta(days=int(i) + 1) for i in np.flatnonzero(steps)]
    months = {"month": range(1, 13), "quarter": (1, 4, 7, 10), "year": (1,)}
    if every in months:
        assert all(day.day == 1 and day.month in months[every] for day in opened)
    else:
        period = {"day": 1, "week": 7, "14 days": 14, "1 day": 1}[every]
        assert opened == [start + dt.timedelta(days=i) for i in range(period, length + 1, period)]


def test_borders_end_with_the_calendar() -> None:
    assert [d.year for d in borders(dt.date(9998, 5, 1), (12, 0))] == [9998, 9999]
    assert list(borders(dt.date(9999, 12, 20), (0, 14))) == [dt.date(9999, 12, 20)]
    assert parse_every("fortnight") is None


def test_drawn_values_fill_their_bins() -> None:
    generator = np.random.default_rng(5)
    codes = np.zeros(20_000, dtype=np.int32)
    # Each of the 4 whole numbers (days) has probability 1/4: 6 standard deviations are 0.0184.
    for column, first in [
        (Integer("x", edges=[3, 7, 20]), 3),
        (Date("x", edges=[dt.date(1970, 1, 4), dt.date(1970, 1, 8), dt.date(1970, 2, 1)]), 3),
    ]:
        drawn = column.decode(codes, generator).cast(pa.int32() if first else None).to_numpy() - first
        assert np.abs(np.bincount(drawn, minlength=4) / len(codes) - 0.25).max() < 0.0184
        assert set(drawn.tolist()) == {0, 1, 2, 3}
    real = Real("x", [-1.0, 1.0, 3.0]).decode(codes, generator).to_numpy()
    assert real.min() >= -1.0
    assert real.max() < 1.0
    assert abs(real.mean()) < 6 * (2 / 12**0.5) / len(codes) ** 0.5
    huge = Real("x", [-1.7e308, 1.7e308]).decode(codes, generator).to_numpy()
    assert np.isfinite(huge).all()
    seen = DateTime("x", start="2024-01-01T00:00", end="2024-02-01T00:00", every="week")
    assert not (seen.decode(codes, generator).cast(pa.int64()).to_numpy() % 1_000_000).any()


def test_summer_time_moves_the_borders_with_the_clock() -> None:
    column = DateTime("x", start="2024-03-30", end="2024-04-01", every="day", timezone="Europe/Zurich")
    assert column.lower.tolist() == [
        int(dt.datetime.fromisoformat(text).timestamp() * 1e6)
        for text in ("2024-03-30T00:00+01:00", "2024-03-31T00:00+01:00", "2024-04-01T00:00+02:00")
    ]
    # The same instants, written in another zone.
    instants = pa.array(
        [dt.datetime(2024, 3, 30, 22, 59), dt.datetime(2024, 3, 31, 22, 0)], pa.timestamp("ns", "UTC")
    )
    assert column.encode(instants).tolist() == [0, 2]
    assert column.encode(["2024-03-30T22:59Z", "2024-04-01T23:59:59.999999+02:00"]).tolist() == [0, 2]
    with pytest.raises(DataError, match=r"holds timestamp\[us\] data"):
        column.encode(pa.array([dt.datetime(2024, 3, 30)]))


BEYOND_DOUBLES = Integer("x", edges=[0, 2**60 + 1, 2**62], other="o")


@pytest.mark.parametrize(
    ("column", "values", "codes"),
    [
        (Boolean("x", missing="?"), [1, 0, None], [1, 0, 2]),
        (Boolean("x", missing="?"), [1.0, 0.0, float("nan")], [1, 0, 2]),
        (Boolean("x", missing="?"), ["Yes", " FALSE", "t", "0", "1.0", "", "?"], [1, 0, 1, 0, 1, 2, 2]),
        (Boolean("x", other="o"), ["perhaps", "o", "no"], [2, 2, 0]),
        (Boolean("x", other="o"), [2, -1, 1], [2, 2, 1]),
        (Categorical("x", [1, 2], other="o"), ["1", "02", "2", "o", "2 "], [0, 2, 1, 2, 2]),
        (Categorical("x", [1, 2], other="o"), [1.5, float("inf"), 2.0], [2, 2, 1]),
        (Categorical("x", ["true", "false"]), [True, False], [0, 1]),
        (Categorical("x", ["", "a"], missing="m"), ["", None, "a"], [0, 2, 1]),
        (Integer("x", min=0, max=3, other="o"), [2.5, 4.0, float("inf"), 2.0], [4, 4, 4, 2]),
        (Integer("x", min=0, max=3, missing="m"), ["3", " 2 ", "1.0", "1e0", "nan", ""], [3, 2, 1, 1, 4, 4]),
        (
            Integer("x", min=0, max=3, other="o"),
            ["+3", "1_0", "0x1", "1,5", "12345678901234567890"],
            [3, 4, 4, 4, 4],
        ),
        (Integer("x", edges=[0, 10, 20], outside="clip"), [-(2**63), 2**63 - 1, 20, 10], [0, 1, 1, 1]),
        (Integer("x", edges=[0, 10], outside="clip"), np.array([0, 2**64 - 1], dtype=np.uint64), [0, 0]),
        (Integer("x", edges=[0, 10], other="o"), np.array([0, 2**64 - 1], dtype=np.uint64), [0, 1]),
        (
            Integer("x", edges=[0, 10], other="o", missing="m"),
            [Decimal("1.0"), Decimal("1.5"), None],
            [0, 1, 2],
        ),
        (BEYOND_DOUBLES, [str(2**60), f"+{2**60 + 1}", f"-{2**62}", str(2**62), "1" * 30], [0, 1, 2, 1, 2]),
        (BEYOND_DOUBLES, ["-" + "9" * 9000, "0" * 30 + "1"], [2, 0]),
        (BEYOND_DOUBLES, [Decimal(2**60), Decimal(2**80)], [0, 2]),
        (
            Categorical("x", [2**52], other="o"),
            [Decimal(2**52), Decimal("1.5"), Decimal(2**52 + 1)],
            [0, 1, 1],
        ),
        (Real("x", [0, 1], outside="clip"), [float("-inf"), float("inf")], [0, 0]),
        (Real("x", [0, 1], other="o"), ["inf", ".5", "1.", "abc", "1e-400"], [1, 0, 0, 1, 0]),
        (Real("x", [0, 1, 2]), np.array([0.5, 1.5], dtype=np.float32), [0, 1]),
        (
            Date("x", edges=["2024-01-01", "2024-01-03"], other="o"),
            ["2024-01-03", "2024-02-30", "20240102"],
            [0, 1, 1],
        ),
        (Date("x", edges=["2024-01-01", "2024-01-02", "2024-01-03"]), [dt.datetime(2024, 1, 1, 23, 59)], [0]),
        (DateTime("x", edges=["2024-01-01", "2024-01-03"]), [dt.date(2024, 1, 3)], [0]),
        (
            DateTime("x", start="2024-01-01", end="2024-01-02", every="day"),
            [dt.datetime(2024, 1, 2, 23)],
            [1],
        ),
    ],
)
def test_practical_spellings(column: Column, values, codes: list[int]) -> None:
    assert column.encode(values).tolist() == codes


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (Boolean("x"), [dt.date(2024, 1, 1)], "holds date32"),
        (Categorical("x", ["a"]), [dt.date(2024, 1, 1)], "holds date32"),
        (Integer("x", min=0, max=1), [True], "holds bool data"),
        (Real("x", [0, 1]), [b"abc"], "holds binary data"),
        (Real("x", [0, 1]), [[1.0]], "holds list"),
        (Date("x", edges=["2024-01-01", "2024-01-03"]), [5], "holds int64 data"),
        (DateTime("x", edges=["2024-01-01", "2024-01-03"]), [True], "holds bool data"),
        (Integer("x", min=0, max=1), [None], "nulls and declares no missing bin"),
        (Real("x", [0, 1]), [float("nan")], "nulls and declares no missing bin"),
        (Real("x", [0, 1]), [777.5], "outside its domain"),
        (Integer("x", edges=[0, 1], outside="clip"), [0.5], "not whole numbers"),
        (Date("x", edges=["2024-01-01", "2024-01-03"], outside="clip"), ["soon"], "not dates"),
    ],
)
def test_what_does_not_fit_is_an_error(column: Column, values, message: str) -> None:
    with pytest.raises(DataError, match=message):
        column.encode(values)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Boolean(""), "needs a name"),
        (lambda: Boolean("x", missing="Yes"), "reads as true or false"),
        (lambda: Boolean("x", other="o", missing="o"), "names two bins"),
        (lambda: Boolean("x", other=""), "other: expected a label"),
        (lambda: Categorical("x", []), "values are missing"),
        (lambda: Categorical("x", "abc"), "expected a list"),
        (lambda: Categorical("x", ["a", "a"]), "'a' names two bins"),
        (lambda: Categorical("x", ["a", "missing"], missing="missing"), "'missing' names two bins"),
        (lambda: Categorical("x", ["1", 1]), "values must be all texts or all whole numbers"),
        (lambda: Categorical("x", [True, False]), "values must be all texts or all whole numbers"),
        (lambda: Categorical("x", [2**62]), "too large"),
        (lambda: Categorical("x", range(65535), other="o"), "65536 codes"),
        (lambda: Integer("x"), "min: expected a whole number"),
        (lambda: Integer("x", min=0, max=1.5), "max: expected a whole number"),
        (lambda: Integer("x", min=2, max=1), "exceeds max ="),
        (lambda: Integer("x", min=0, max=2**61), "codes"),
        (lambda: Integer("x", min=0, max=1, edges=[0, 1]), "not both"),
        (lambda: Integer("x", edges=[0, 0.5]), "unusable edge 0.5"),
        (lambda: Integer("x", edges=[0, 1], missing="7"), "reads as a value"),
        (lambda: Integer("x", edges=[0, 1], missing="nan"), "reads as a value"),
        (lambda: Integer("x", edges=[0, 1], outside="clip", other="o"), "contradict"),
        (lambda: Integer("x", edges=[0, 1], outside="drop"), "unknown outside"),
        (lambda: Real("x", [0]), "there are 1 edges"),
        (lambda: Real("x", [0, float("nan")]), "unusable edge"),
        (lambda: Real("x", [0, 10**400]), "unusable edge"),
        (lambda: Real("x", [0, True]), "unusable edge"),
        (lambda: Real("x", [1, 0]), "the edge 0 follows 1"),
        (lambda: Real("x", [2**53, 2**53 + 1]), "follows"),
        (lambda: Date("x"), "start is not given"),
        (lambda: Date("x", start="2024-01-01", end="2023-01-01", every="day"), "later than end"),
        (lambda: Date("x", start="2024-01-01", end="2024-02-01", every="fortnight"), "unknown every"),
        (lambda: Date("x", start="0001-01-01", end="9999-12-31", every="day"), "more than 65535"),
        (lambda: Date("x", start="2024-01-01", edges=["2024-01-01", "2024-01-02"]), "not both"),
        (lambda: Date("x", edges=[dt.datetime(2024, 1, 1), "2024-01-02"]), ": expected dates"),
        (lambda: Date("x", edges=["2024-01-02", "2024-01-01"]), "follows"),
        (lambda: DateTime("x", edges=["2024-01-01T00:00Z", "2024-01-02"]), ": expected local times"),
        (lambda: DateTime("x", edges=["2024-01-01", "2024-01-02"], timezone="Mars/Base"), "unknown timezone"),
        (
            lambda: DateTime("x", edges=["2024-03-31T02:30", "2024-03-31T03:30"], timezone="Europe/Zurich"),
            "follows",
        ),
    ],
)
def test_contradictory_declarations(build, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        build()


def test_decode_refuses_unknown_codes_and_styles() -> None:
    column = Boolean("x")
    with pytest.raises(DataError, match="unknown codes"):
        column.decode(np.array([2]), np.random.default_rng(0))
    with pytest.raises(DataError, match="unknown style"):
        column.decode(np.array([1]), np.random.default_rng(0), "words")  # type: ignore[arg-type]
