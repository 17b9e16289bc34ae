"""Every column type: codes survive the way to values and labels and back, and policies are kept."""

from __future__ import annotations

import bisect
import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from row_files import source_of

from dpstream.core.errors import DataError, SchemaError
from dpstream.core.schema import Boolean, Categorical, Column, Date, DateTime, Integer, Real, Schema
from dpstream.core.schema.dates import borders, parse_every
from dpstream.core.schema.fine import fine
from dpstream.io.sources.pieces import join

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


JANUARY = ["2024-01-01", "2024-01-03"]
TO_THREE = Integer("x", min=0, max=3, other="o")
BEYOND_DOUBLES = Integer("x", edges=[0, 2**60 + 1, 2**62], other="o")


@pytest.mark.parametrize(
    ("column", "values", "codes"),
    [
        (Boolean("x", missing="?"), [1, 0, None], [1, 0, 2]),
        (Boolean("x", missing="?"), [1.0, 0.0, float("nan")], [1, 0, 2]),
        (Boolean("x", missing="?"), ["Yes", " FALSE", "t", "0", "1.0", "", "?"], [1, 0, 1, 0, 1, 2, 2]),
        (Boolean("x", other="o"), ["perhaps", "o", "no"], [2, 2, 0]),
        (Categorical("x", [1, 2], other="o"), ["1", "02", "2", "o", "2 "], [0, 2, 1, 2, 2]),
        (Categorical("x", [1, 2], other="o"), [1.5, float("inf"), 2.0], [2, 2, 1]),
        (Categorical("x", ["true", "false"]), [True, False], [0, 1]),
        (Categorical("x", ["", "a"], missing="m"), ["", None, "a"], [0, 2, 1]),
        (TO_THREE, [2.5, 4.0, float("inf"), 2.0], [4, 4, 4, 2]),
        (Integer("x", min=0, max=3, missing="m"), ["3", " 2 ", "1.0", "1e0", "nan", ""], [3, 2, 1, 1, 4, 4]),
        (TO_THREE, ["+3", "1_0", "0x1", "1,5", "12345678901234567890"], [3, 4, 4, 4, 4]),
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
        (Date("x", edges=JANUARY, other="o"), ["2024-01-03", "2024-02-30", "20240102"], [0, 1, 1]),
        (Date("x", edges=["2024-01-01", "2024-01-02", "2024-01-03"]), [dt.datetime(2024, 1, 1, 23, 59)], [0]),
        (DateTime("x", edges=JANUARY), [dt.date(2024, 1, 3)], [0]),
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
        (Integer("x", min=0, max=1), [True], "holds bool data"),
        (Real("x", [0, 1]), [b"abc"], "holds binary data"),
        (Date("x", edges=JANUARY), [5], "holds int64 data"),
        (Integer("x", min=0, max=1), [None], "nulls and declares no missing bin"),
        (Real("x", [0, 1]), [777.5], "outside its domain"),
        (Integer("x", edges=[0, 1], outside="clip"), [0.5], "not whole numbers"),
        (Date("x", edges=JANUARY, outside="clip"), ["soon"], "not dates"),
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
        (lambda: Categorical("x", ["1", 1]), "values must be all texts or all whole numbers"),
        (lambda: Categorical("x", [2**62]), "too large"),
        (lambda: Categorical("x", range(65535), other="o"), "65536 codes"),
        (lambda: Integer("x"), "min: expected a whole number"),
        (lambda: Integer("x", min=0, max=1.5), "max: expected a whole number"),
        (lambda: Integer("x", min=2, max=1), "exceeds max ="),
        (lambda: Integer("x", min=0, max=2**61), "codes"),
        (lambda: Integer("x", min=0, max=1, edges=[0, 1]), "not both"),
        (lambda: Integer("x", edges=[0, 0.5]), "unusable edge 0.5"),
        (lambda: Integer("x", edges=[0, 1], missing="7"), "reads as a value"),
        (lambda: Integer("x", edges=[0, 1], outside="clip", other="o"), "contradict"),
        (lambda: Integer("x", edges=[0, 1], outside="drop"), "unknown outside"),
        (lambda: Real("x", [0]), "there are 1 edges"),
        (lambda: Real("x", [0, float("nan")]), "unusable edge"),
        (lambda: Real("x", [0, 10**400]), "unusable edge"),
        (lambda: Real("x", [1, 0]), "the edge 0 follows 1"),
        (lambda: Real("x", [2**53, 2**53 + 1]), "follows"),
        (lambda: Date("x"), "start is not given"),
        (lambda: Date("x", start="2024-01-01", end="2023-01-01", every="day"), "later than end"),
        (lambda: Date("x", start="2024-01-01", end="2024-02-01", every="fortnight"), "unknown every"),
        (lambda: Date("x", start="0001-01-01", end="9999-12-31", every="day"), "more than 65535"),
        (lambda: Date("x", edges=[dt.datetime(2024, 1, 1), "2024-01-02"]), ": expected dates"),
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


# Types that a reader gives a column: how a record is coded depends on that record alone.
#
# A column's type is decided by all its records together: whole numbers become doubles as soon as one of them is null,
# decimals get the scale of the longest one, times the finest unit. If a type changed how other records are read, one
# record would change many counts.


LIMIT = 2**53
POLICIES = [{"other": "(other)"}, {"outside": "clip"}]
near = st.sampled_from([LIMIT, -LIMIT, 0, 2**62, -(2**62), 2**31, 2**63 - 40]).flatmap(
    lambda middle: st.integers(middle - 30, middle + 30)
)
wholes = near.filter(lambda x: -(2**63) < x < 2**63)


def codes(column: Column, values: Any) -> list[int]:
    """Codes, and -2 where a value has none (so that strict columns can be compared as well)."""
    chunk = values if isinstance(values, pa.Array) else pa.array(values)
    found = column.raw_codes(chunk, ("",))
    return np.where(found < -1, -2, found).tolist()


def accepted(column: Column) -> bool:
    try:
        Schema([column]).require_exact()
    except SchemaError:
        return False
    return True


def as_doubles(values: list[int | None]) -> Any:
    """What pandas makes of whole numbers as soon as one of them is null."""
    return pa.array(np.array([np.nan if v is None else v for v in values], np.float64))


@st.composite
def declarations(draw: Any) -> Column:
    kind = draw(st.sampled_from(["values", "texts", "edges", "each", "real", "coordinate"]))
    policy = {"missing": "(none)", "other": "(other)"}
    if kind in ("values", "texts"):
        values = draw(st.lists(near.filter(lambda x: abs(x) < 2**62), min_size=1, max_size=6, unique=True))
        return Categorical("x", values if kind == "values" else [str(v) for v in values], **policy)
    ends = sorted(draw(st.lists(near.filter(lambda x: abs(x) <= 2**62), min_size=2, max_size=6, unique=True)))
    top = min(ends[0] + 20, 2**62)  # no declaration goes beyond
    if kind == "each":
        return Integer("x", min=ends[0], max=top, **policy)
    if kind == "coordinate":
        return fine(Integer("x", edges=[ends[0], top], outside="clip"))
    policy = draw(st.sampled_from(POLICIES))
    if kind == "real":
        floats = sorted({float(end) for end in ends})
        return Real(
            "x", [*floats, floats[-1] * 2 + 1e19] if len(floats) < 2 else floats, missing="m", **policy
        )
    return Integer("x", edges=ends, missing="m", **policy)


@settings(max_examples=150, deadline=None)
@given(declarations(), st.lists(wholes, min_size=1, max_size=30))
@example(Categorical("x", [LIMIT - 1], other="o", missing="m"), [LIMIT - 1, LIMIT, LIMIT + 1])
@example(Integer("x", edges=[0, LIMIT - 1], outside="clip", missing="m"), [LIMIT - 2, LIMIT, LIMIT + 1])
def test_one_null_more_changes_no_other_code(column: Column, values: list[int]) -> None:
    if not accepted(column):
        with pytest.raises(SchemaError, match=r"2\^53"):
            Schema([column]).encode({"x": []})
        return
    ends = column.limits() if isinstance(column, Integer) else (0, 0)
    rows: list[int | None] = [*values, *(v for end in ends for v in (end - 1, end, end + 1))]
    if isinstance(column, Categorical) and column.reads() != column.expects:
        # A declared text that no double can hold: typed columns are refused for their type, whatever is in them.
        for typed in (pa.array(rows, pa.int64()), as_doubles([*rows, None]), pa.array([1.5])):
            assert Schema([column]).problems({"x": typed})[0].kind == "type"
        return
    expected = codes(column, pa.array(rows, pa.int64()))
    with_null = [*rows, None]
    ways: list[Any] = [
        pa.array(with_null, pa.int64()),
        as_doubles(with_null),
        pa.array([None if v is None else Decimal(v) for v in with_null], pa.decimal128(38, 4)),
        pa.array([None if v is None else Decimal(v) for v in with_null], pa.decimal256(60, 9)),
        pa.array(with_null, pa.int64()).cast(pa.string()),
        pa.array(with_null, pa.int64()).dictionary_encode(),
        pa.chunked_array([pa.array(with_null, pa.int64())]).cast(pa.large_string()).chunk(0),
        as_doubles(with_null).dictionary_encode(),
    ]
    for way in ways:
        found = codes(column, way)
        assert found[:-1] == expected, way.type
        assert found[-1] == -1, way.type


@pytest.mark.parametrize("build", [Categorical, Integer])
def test_where_the_border_is(build: type[Column]) -> None:
    def declared(value: int) -> Column:
        if build is Categorical:
            return Categorical("x", [7, value], missing="m", other="o")
        return Integer("x", edges=sorted([0, value]), missing="m", other="o")

    for sign in (1, -1):
        assert accepted(declared(sign * (LIMIT - 1)))
        assert not accepted(declared(sign * LIMIT))
        assert not accepted(declared(sign * (LIMIT + 1)))
    with pytest.raises(SchemaError, match=r"column 'x' .* as texts; .* init --after"):
        Schema([declared(LIMIT)]).encode({"x": [7]})
    # What is released stays readable, so that a successor can begin with it.
    assert declared(LIMIT).encode(pa.array([LIMIT if build is Categorical else 5])).tolist() is not None


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(POLICIES),
    st.lists(st.decimals(-3, 3, allow_nan=False, places=2), min_size=2, max_size=5, unique=True),
    st.lists(st.decimals(-4, 4, allow_nan=False, places=2), max_size=20),
)
@example({"outside": "clip"}, [Decimal("0.00"), Decimal("0.30"), Decimal("1.00")], [Decimal("0.30")])
def test_decimals_floats_and_texts_of_a_real_number(
    policy: dict[str, str], edges: list[Decimal], values: list[Decimal]
) -> None:
    column = Real("x", sorted(float(edge) for edge in edges), missing="m", **policy)
    rows = [*edges, *values]
    expected = codes(column, [float(v) for v in rows])
    for scale in (2, 5, 17):
        assert codes(column, pa.array(rows, pa.decimal128(38, scale))) == expected
        assert codes(column, pa.array(rows, pa.decimal256(60, scale))) == expected
    assert codes(column, [str(v) for v in rows]) == expected


TIMES = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)) | st.sampled_from(
    [dt.datetime(2024, 1, 2), dt.datetime(2024, 1, 1, 23, 59, 59, 999_999), dt.datetime(1969, 12, 31, 23)]
)
CALENDAR = [
    Date("x", edges=["1969-12-31", "1970-01-01", "2024-01-02", "2024-01-03"], other="o", missing="m"),
    Date("x", edges=["1970-01-01", "2024-01-02"], outside="clip", missing="m"),
    DateTime("x", edges=["1969-12-31", "1970-01-01", "2024-01-02", "2024-01-03"], other="o", missing="m"),
    DateTime("x", edges=["1970-01-01", "2024-01-02T12:00"], outside="clip", missing="m"),
]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(CALENDAR), st.lists(TIMES, min_size=1, max_size=12))
def test_times_of_every_unit_and_in_words(column: Column, times: list[dt.datetime]) -> None:
    rows = [*times, None]
    expected = codes(column, pa.array(rows, pa.timestamp("us")))
    assert codes(column, [None if t is None else t.isoformat() for t in rows]) == expected
    assert codes(column, [None if t is None else str(t) for t in rows]) == expected
    for unit, width in (("s", dt.timedelta(seconds=1)), ("ms", dt.timedelta(milliseconds=1))):
        rounded = [None if t is None else t - (t - dt.datetime.min) % width for t in rows]
        assert codes(column, pa.array(rounded, pa.timestamp(unit))) == codes(
            column, pa.array(rounded, pa.timestamp("us"))
        )
    short = [t if t is None or 1700 < t.year < 2200 else None for t in rows]
    assert codes(column, pa.array(short, pa.timestamp("ns"))) == codes(
        column, pa.array(short, pa.timestamp("us"))
    )


ODD = (
    "0000-01-01|0000-01-01T12:00|0001-01-01|2024-02-30|2024-01-01x07:00|soon|| 2024-01-01 |2024-01-01T24:00|"
    "2024-01-01T12:30:15,5|2024-01-01T12:30:15.1234567|2024-01-01 12|+5|07|2024-01-01T12:00Z|2024-01-01T12:00+01|"
    "1e3|7.0|7|-0.0|inf|nan|1_0|99999999999999999999999999999999999|"
    "2024-01-01 12:30:15|2024-01-01T12:30:15.123456|2024-W01-1|2024-01-01 12:30:15Z"
)
ODD_TEXTS = st.sampled_from(ODD.split("|"))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        [
            *CALENDAR,
            DateTime("x", edges=["2024-01-01", "2024-01-02"], timezone="UTC", outside="clip", missing="m"),
            Integer("x", edges=[-5, 0, 8], outside="clip", missing="m"),
            Real("x", [-5, 0, 8], outside="clip", missing="m"),
            Categorical("x", [7, 0, 1000], other="o", missing="m"),
            Categorical("x", ["7", "1e3", "07"], other="o", missing="m"),
            Boolean("x", other="o", missing="m"),
        ]
    ),
    st.lists(ODD_TEXTS, min_size=1, max_size=8),
)
def test_a_text_is_read_alike_in_any_company(column: Column, texts: list[str]) -> None:
    together = codes(column, texts)
    assert together == [codes(column, [text])[0] for text in texts]
    assert together == codes(column, pa.array(texts).dictionary_encode())


def test_whole_numbers_that_were_written_down_as_floats() -> None:
    column = Categorical("x", ["7", "8.0", "0"], other="o")
    assert column.encode(["7.0", "7.00", "8.0", "8", "-0.0", "07.0", "7.5"]).tolist() == [0, 0, 1, 3, 2, 3, 3]
    assert Boolean("x", other="o").encode(["1.0", "0.0", "True"]).tolist() == [1, 0, 1]


# Several files of one stream.


def test_a_null_in_another_file_stops_nothing(tmp_path: Path) -> None:
    """One file has whole numbers (one of them far away), the other the doubles that pandas makes of them."""
    times = pa.array([1, 1], pa.int64())
    for name, ids in {
        "a": pa.array([7, LIMIT + 1]),
        "b": pa.array([7.0, float("nan")], from_pandas=True),
    }.items():
        pq.write_table(pa.table({"when": times, "id": ids}), tmp_path / f"{name}.parquet")
    (step,) = source_of({"path": "*.parquet", "time_column": "when", "end": 1}, base=tmp_path).steps()
    column = Categorical("id", [7], other="o", missing="m")
    assert Schema([column]).encode(step.inserts).ravel().tolist() == [0, 1, 0, 2]


KINDS = [
    pa.int8(),
    pa.int64(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 2),
    pa.decimal128(20),
]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 120), max_size=5),
    st.lists(wholes | st.just(2**63), max_size=5),
)
def test_files_of_other_number_types_change_no_code(
    one: Any, two: Any, small: list[int], large: list[int]
) -> None:
    column = Integer("x", edges=[0, 60, LIMIT - 1], outside="clip", missing="m")

    def file(kind: Any, values: list[int]) -> Any:
        bits = 63 if pa.types.is_signed_integer(kind) else 64
        fits = [
            v
            for v in values
            if -(2 ** (kind.bit_width - 1)) <= v < 2**bits and (kind.bit_width > 32 or v < 121)
        ]
        fits = [v for v in fits if v >= 0 or not pa.types.is_unsigned_integer(kind)]
        if pa.types.is_decimal(kind):
            return pa.array([Decimal(v) for v in fits], kind)
        return pa.array([float(v) for v in fits] if pa.types.is_floating(kind) else fits, kind)

    cells = [file(one, small), file(two, large), pa.nulls(1)]
    joined = join([pa.table({"x": cell}) for cell in cells], "here")["x"]
    expected = [code for cell in cells for code in column.encode(cell).tolist()]
    assert column.encode(joined).tolist() == expected


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_files_of_other_time_units_change_no_code(zone: str | None) -> None:
    column = DateTime("x", edges=["1970-01-01", "2024-01-01"], timezone=zone, outside="clip", missing="m")
    units = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns")]
    ticks = [2**63 - 1, -(2**63), 0, -1, 1_704_067_199, None]
    cells = [pa.array(ticks, pa.int64()).cast(kind) for kind in units]
    joined = join([pa.table({"x": cell}) for cell in cells], "here")["x"]
    assert column.encode(joined).tolist() == [c for cell in cells for c in column.encode(cell).tolist()]
