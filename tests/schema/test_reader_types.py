"""How a record is coded depends on that record alone, whatever type a reader gives its column.

A column's type is decided by all its records together: whole numbers become doubles as soon as one of them is null,
decimals get the scale of the longest one, times the finest unit. If a type changed how other records are read, one
record would change many counts.
"""

from __future__ import annotations

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

from dpstream.core.errors import SchemaError
from dpstream.core.schema import Boolean, Categorical, Column, Date, DateTime, Integer, Real, Schema
from dpstream.core.schema.fine import fine
from dpstream.io.sources import FileSource, SourceOptions
from dpstream.io.sources.pieces import join
from dpstream.io.sources.source import ReadOptions

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
    options = SourceOptions.parse({"path": "*.parquet", "time_column": "when", "end": 1})
    (step,) = FileSource(options, ReadOptions(base=tmp_path)).steps()
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
