"""JSON values become texts: each is read as a column of its kind would be, whatever stands beside it."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import DataError
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.io.sources.json_records import cells

BINS = {"other": "none of them", "missing": "nothing there"}
SCHEMA = Schema(
    [
        Categorical("zip", ["north", "7", "0.5"], **BINS),
        Integer("age", min=0, max=120, **BINS),
        Boolean("paid", **BINS),
        Real("rent", [0, 500, 1000], **BINS),
        Date("filed", edges=["2026-01-01", "2026-02-01", "2026-03-01"], **BINS),
        DateTime("seen", edges=["2026-01-01T00:00", "2026-02-01T00:00"], **BINS),
    ]
)


#: Numbers whose text says something else than the number in a column with a type.
AS_TEXTS = ("0.5", "-9", "-9.0", "nan", "NaN", "-0.0", "-0")


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.lists(st.one_of(st.none(), kind), max_size=8)
        for kind in (
            st.one_of(st.integers(-10, 130), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.floats(), st.integers(-9, 9).map(float)),
            st.booleans(),
            st.one_of(
                st.text(),
                st.sampled_from(["north", "7", "7.0", "-9", "", "none of them", "true", "2026-01-05"]),
            ),
        )
    )
)
def test_values_of_one_kind_mean_what_a_typed_column_means(values: list[Any]) -> None:
    for column in SCHEMA.columns:
        mine = column.encode(cells(values), null_values=("", "-9"))
        try:
            theirs = column.encode(pa.array(values), null_values=("", "-9"))
        except DataError:  # the whole column has a type that cannot be read
            assert set(mine.tolist()) <= {column.other_code, column.missing_code}
            continue
        # Numbers are texts here, as in a csv file: some are a declared text, a null value, or no number.
        alike = [isinstance(value, str) or cells([value]).to_pylist()[0] not in AS_TEXTS for value in values]
        assert mine[alike].tolist() == theirs[alike].tolist()


def test_numbers_that_a_typed_column_reads_in_another_way() -> None:
    for column in SCHEMA.columns:
        codes = column.encode(cells([-9, -9.0, math.nan]), null_values=("", "-9")).tolist()
        assert codes[0] == column.missing_code
        assert codes[2] in (column.other_code, column.missing_code)
    assert SCHEMA.columns[0].encode(cells([0.5, 7])).tolist() == [2, 1]
    assert SCHEMA.columns[2].encode(cells([0, 1, -0.0])).tolist() == [0, 1, SCHEMA.columns[2].other_code]


def test_lists_and_objects_are_values_that_no_column_reads() -> None:
    for column in SCHEMA.columns:
        assert column.encode(cells([["7"], {"a": 7}])).tolist() == [column.other_code] * 2
