"""From columns to cells of the partition and back."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError, SchemaError
from dpstream.core.schema import Date, DateTime, Integer, Real
from dpstream.core.schema.fine import fine
from dpstream.families.points.space import Space

# --- coordinates ---------------------------------------------------------------------------------------------

AXES = {
    "real": fine(Real("c", [-3.5, 0, 8])),
    "circle": fine(Real("c", [0, 24]), periodic=True),
    "log": fine(Real("c", [0.1, 5, 1e6]), scale="log"),
    "whole": fine(Integer("c", min=-4, max=36)),
    "many": fine(Integer("c", edges=[-(10**12), 10**12])),
    "log whole": fine(Integer("c", min=1, max=1000), scale="log"),
    "day": fine(Date("c", start=dt.date(2020, 1, 1), end=dt.date(2021, 12, 31), every="month")),
    "instant": fine(DateTime("c", start=dt.datetime(2020, 1, 1), end=dt.date(2020, 1, 31), every="day")),
    "wide log": fine(Real("c", [1e-300, 1, 1e300]), scale="log"),
    "wide whole": fine(Integer("c", edges=[-(2**61), 0, 2**61 - 1])),
    "wide": fine(Real("c", [-1.7e308, 1.7e308])),
    "long": fine(DateTime("c", start=dt.datetime(1900, 1, 1), end=dt.date(2100, 1, 31), every="year")),
}


@pytest.mark.parametrize("name", AXES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_drawn_value_has_the_code_it_was_drawn_for(name: str, data: st.DataObject) -> None:
    """And lies within the bounds, in the column's own type. Where several codes share a whole number: a near one."""
    axis = AXES[name]
    ends = st.sampled_from([0, axis.size - 1])
    codes = np.array(data.draw(st.lists(ends | st.integers(0, axis.size - 1), min_size=1, max_size=20)))
    values = axis.decode(codes, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert values.type == axis.arrow_type()
    again = axis.encode(values)
    assert again.min() >= 0
    near = {"log whole": 2**27, "day": 0, "whole": 0, "instant": 0}.get(name, 1)
    assert np.abs(again - codes).max() <= near
    assert (np.diff(axis.encode(values.sort())) >= 0).all() if name != "circle" else True


def test_borders_of_coordinates() -> None:
    """Exactly the upper bound is in the last part, or, on a circle, in the first."""
    last = AXES["real"].size - 1
    assert AXES["real"].encode([-3.5, 8.0, np.nextafter(8.0, 0.0)]).tolist() == [0, last, last]
    assert AXES["circle"].encode([0.0, 24.0]).tolist() == [0, 0]
    assert AXES["whole"].encode([-4, 36]).tolist() == [0, 40]
    assert AXES["day"].encode([dt.date(2020, 1, 1), dt.date(2021, 12, 31)]).tolist() == [0, 730]
    clipped = fine(Real("c", [0, 1], outside="clip"))
    assert clipped.encode([-9.0, 9.0, -np.inf, np.inf]).tolist() == [0, clipped.size - 1] * 2


@pytest.mark.parametrize(
    ("column", "scale", "message"),
    [
        (Real("c", [0.0, 5e-324]), "linear", "too close for floating point"),
        (Real("c", [1e9, 1e9 + 1]), "log", "too close for a logarithmic scale"),
        (Integer("c", edges=[-(2**62), 0, 2**62]), "linear", "too far apart"),
    ],
    ids=["tiny", "log", "whole"],
)
def test_bounds_that_numbers_cannot_tell_apart_are_refused(column: Any, scale: Any, message: str) -> None:
    """Else every value, or the last one, would be taken to a wrong place, or to none."""
    with pytest.raises(SchemaError, match=message):
        fine(column, scale=scale)


def test_advice_is_given_where_it_helps() -> None:
    """Clipping takes what is beyond the bounds; no text, and nothing on a circle."""
    for axis, value, clipped in (
        (AXES["real"], 9.0, True),
        (AXES["real"], "x", False),
        (AXES["circle"], 25.0, False),
    ):
        with pytest.raises(DataError) as found:
            axis.encode([value])
        assert ("clip" in str(found.value)) == clipped


@settings(max_examples=60)
@given(st.data())
def test_the_partition_is_a_tree_of_boxes(data: st.DataObject) -> None:
    """Oracle: a recursive walk. Every record's cell is the box that holds it; boxes of a depth part all records."""
    sizes = tuple(data.draw(st.lists(st.integers(1, 9) | st.just(2**30), min_size=1, max_size=4)))
    first = (*(data.draw(st.booleans()) and size <= 9 for size in sizes[:-1]), False)
    sizes = (*sizes[:-1], data.draw(st.just(2**30) | st.integers(2, 9)))
    try:
        space = Space(sizes, first, data.draw(st.integers(1, 12)))
    except ConfigError:
        return  # more categories than cells
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    codes = np.column_stack([generator.integers(0, size, 40) for size in sizes]).astype(np.int32)
    cells = space.cells_of(codes)
    for row, cell in zip(codes, cells, strict=True):
        assert cell == _walked(row.tolist(), sizes, first, space.depth)
    for depth in range(space.depth + 1):
        above = cells >> (space.depth - depth)
        low, high = space.boxes(above, depth)
        assert ((low <= codes) & (codes < high)).all()
        drawn = space.draw(above, depth, generator)
        assert (space.cells_of(drawn) >> (space.depth - depth) == above).all()
        # Points in any cells are found again, by their codes, in the cells that they are gathered in.
        anywhere = np.bincount(generator.integers(0, 1 << depth, 30), minlength=1 << depth)
        drawn = space.draw(np.repeat(np.arange(1 << depth), anywhere), depth, generator)
        again = np.bincount(space.cells_of(drawn) >> (space.depth - depth), minlength=1 << depth)
        assert (space.gathered(anywhere) == again).all()


def _walked(row: list[int], sizes: tuple[int, ...], first: tuple[bool, ...], depth: int) -> int:
    boxes, cell, others = [(0, size) for size in sizes], 0, [a for a, c in enumerate(first) if not c]
    for _ in range(depth):
        able = [a for a, (low, high) in enumerate(boxes) if high - low > 1]
        wanted = [a for a in able if first[a]] or [a for a in others if a in able]
        if not wanted:
            cell *= 2
            continue
        axis = wanted[0]
        low, high = boxes[axis]
        middle = (low + high + 1) // 2
        cell = 2 * cell + (row[axis] >= middle)
        boxes[axis] = (middle, high) if row[axis] >= middle else (low, middle)
        if not first[axis]:
            at = others.index(axis)
            others = others[at + 1 :] + others[: at + 1]
    return cell


@pytest.mark.parametrize("size", [3, 100, 2**30 - 1])
def test_many_coordinates_of_any_size(size: int) -> None:
    """Their lengths differ in 2^64 ways; the first cuts do not."""
    space = Space((size,) * 64, (False,) * 64, 20)
    codes = np.random.default_rng(1).integers(0, size, (50, 64)).astype(np.int32)
    for row, cell in zip(codes, space.cells_of(codes), strict=True):
        assert cell == _walked(row.tolist(), space.sizes, space.categorical, space.depth)


def test_categories_are_whole_cells() -> None:
    """Each of five categories is one cell of depth 2 or 3, and no cell holds none."""
    space = Space((5, 2**30), (True, False), 10)
    low, high = space.boxes(np.arange(8), 3)
    categories = [tuple(range(a, b)) for a, b in zip(low[:, 0], high[:, 0], strict=True)]
    assert all(len(some) == 1 for some in categories)
    assert {some[0] for some in categories} == set(range(5))


def test_no_records_are_in_no_cells() -> None:
    space = Space((3, 2**30), (True, False), 8)
    none = np.zeros(0, np.int64)
    assert space.cells_of(np.zeros((0, 2), np.int32)).shape == (0,)
    assert [side.shape for side in space.boxes(none, 8)] == [(0, 2)] * 2
    assert space.draw(none, 8, np.random.default_rng(1)).shape == (0, 2)
