"""Cells that keep their own kinds: each is read as a column of that kind would be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import DataError
from dpstream.core.schema import Boolean, Categorical, Date, DateTime, Integer, Real, Schema
from dpstream.core.schema.cells import cells, holds_something

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
def test_cells_of_one_kind_mean_what_a_typed_column_means(values: list[Any]) -> None:
    for column in SCHEMA.columns:
        mine = column.encode(cells(values), null_values=("", "-9"))
        try:
            theirs = column.encode(pa.array(values), null_values=("", "-9"))
        except DataError:  # the whole column has a type that cannot be read
            assert set(mine.tolist()) <= {column.other_code, column.missing_code}
            continue
        assert mine.tolist() == theirs.tolist()


@given(
    st.lists(st.sampled_from(["7", "north", 7, 7.5, True, None]), max_size=8),
    st.integers(0, 8),
    st.integers(0, 8),
)
def test_a_slice_of_cells_reads_as_its_own_cells(values: list[Any], start: int, length: int) -> None:
    part = cells(values).slice(min(start, len(values)), length)
    alone = values[start : start + length]
    for column in SCHEMA.columns:
        assert column.encode(part).tolist() == column.encode(cells(alone)).tolist()
    assert holds_something(pa.chunked_array([part])) == any(value is not None for value in alone)
