"""Points: the space and its partition, counts of cells, releases."""

from __future__ import annotations

import copy
import datetime as dt
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.core.errors import BudgetError, ConfigError, DataError, HorizonError, SchemaError
from dpstream.core.privacy import Randomness
from dpstream.core.schema import Date, DateTime, Integer, Real
from dpstream.core.schema.fine import fine
from dpstream.families.points import PointsPlan, PointsState
from dpstream.families.points.cells import (
    DEFAULT,
    MAX_TICK,
    PAPER,
    Design,
    Schedule,
    cell_rule,
    default_design,
)
from dpstream.families.points.estimates import Splits, split_evenly
from dpstream.families.points.points_release import kept as staying
from dpstream.families.points.pooling import pool
from dpstream.families.points.space import Space
from dpstream_lab.audits.points_audit import cube_cells, cube_plan, cube_points

PLANS = [(1, "paper"), (1, "default"), (2, "paper"), (2, "default"), (3, "default"), (8, "default")]


def plan_of(dimension: int, variant: str, epsilon: str = "1", depth: int = 10) -> PointsPlan:
    return cube_plan(dimension, variant, depth, Fraction(epsilon))


def released(plan: PointsPlan, state: PointsState) -> NDArray[np.float64]:
    """Synthetic points in the unit cube."""
    generator = np.random.default_rng([state.seed, state.points])
    return cube_points(plan.counts(state), plan.schedule.dimension, generator)


# --- budgets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dimension", "variant"), [*PLANS, (64, "paper"), (64, "default")])
@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(50)])
@pytest.mark.parametrize("most", [1, 7, 24, 60])
def test_budgets_add_up_on_every_path(dimension: int, variant: str, epsilon: Fraction, most: int) -> None:
    """From the noise scales of the cells themselves, over all depths and levels; and nearly all is used."""
    design = PAPER if variant == "paper" else default_design(dimension)
    schedule = Schedule(dimension, epsilon, design, most)
    costs = []
    for level in range(-1, 45):
        total = Fraction(0)
        for depth in range(1, most + 1):
            spent = schedule.spent(depth, level)
            if spent and level <= 12:
                rule = cell_rule(spent, 1000, design)
                assert 1 / rule.tests.scale + rule.segments.budget.amount + 1 / rule.block.scale == spent
            total += spent
            total += schedule.reread(depth, level)
        assert total == schedule.path_cost(level)
        costs.append(total / (epsilon / 2))
    assert max(costs) <= 1
    if most == 60:
        assert float(max(costs)) > (0.37 if (dimension, variant) == (1, "paper") else 0.96)


def _geometric(dimension: int, design: Design, levels: int) -> Fraction:
    """A bound of what a path of ``d >= 2`` costs in any level, however late, in parts of epsilon; exact.

    With ``1/a`` rounded up to a fraction ``q``, and ``C`` to a fraction ``c``: depth ``j`` costs at most ``c q^(r-j)``.
    """
    schedule = Schedule(dimension, Fraction(1), design, 60)
    q, c = (Fraction(math.ceil(x * 2**50) + 1, 2**50) for x in (schedule._decay, schedule._constant))
    for level in range(levels):
        for depth in range(1, level + 1):
            assert schedule.spent(depth, level) <= c * q ** (level - depth)
    return c / (1 - q) + c * design.history


def test_the_infinite_horizon_is_paid() -> None:
    """No level, however late, costs more than half of epsilon: d >= 2 by the geometric series, d = 1 by telescoping."""
    for dimension in (2, 3, 8, 64):
        for design in (PAPER, default_design(dimension)):
            assert _geometric(dimension, design, 25) <= Fraction(1, 2)
            assert _geometric(
                dimension, replace(design, history=design.history + Fraction(1, 4)), 25
            ) <= Fraction(1, 2)
    # The text, d = 1: sum of c/(j+1)^2 over all j >= 1, depths without end; 1/(j+1)^2 < 1/j - 1/(j+1) from the 60th on.
    schedule = Schedule(1, Fraction(1), PAPER, 60)
    tail = Fraction(math.ceil(schedule._constant * 2**50), 2**50) * Fraction(1, 61)
    assert schedule.path_cost(60) + tail < Fraction(1, 5)
    # The default, d = 1: whatever comes in any level pays all depths, each once.
    schedule = Schedule(1, Fraction(1), default_design(1), 20)
    assert len({schedule.path_cost(level) for level in range(-1, 60)}) == 1


def test_a_budget_too_large_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Schedule.spent
    monkeypatch.setattr(Schedule, "spent", lambda self, j, r: real(self, j, r) * Fraction(3, 2))
    for dimension in (1, 2):
        with pytest.raises(BudgetError, match="exceed epsilon"):
            plan_of(dimension, "default")


# --- partition ---------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 17), st.integers(0, 2**32))
def test_cells_halve_the_cube_again_and_again(dimension: int, depth: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    # Borders are frequent: multiples of 2^-6, both ends included.
    points = generator.integers(0, 65, (20, dimension)) / 64
    low, side, cells = np.zeros((20, dimension)), np.ones(dimension), np.zeros(20, np.int64)
    for level in range(depth):
        axis = level % dimension
        side[axis] /= 2.0
        upper = points[:, axis] >= low[:, axis] + side[axis]
        low[:, axis] += side[axis] * upper
        cells = 2 * cells + upper
    assert (cube_cells(points, depth) == cells).all()
    assert depth == 1 or (cube_cells(points, depth - 1) == cells >> 1).all()


def test_a_stream_that_is_full_changes_nothing() -> None:
    plan, source = plan_of(2, "default"), Randomness.seeded(1)
    state = plan.start()
    cells = cube_cells(np.random.default_rng(1).random((100, 2)), 10)
    plan.read(state, cells, source)
    before = plan.counts(state)
    plan.read(state, cells[:0], source)
    assert (plan.counts(state) == before).all()
    assert plan.schedule.most_points == MAX_TICK
    state.points = plan.schedule.most_points
    kept = copy.deepcopy(state.cells.total)
    with pytest.raises(HorizonError):
        plan.read(state, cells, source)
    assert (state.cells.total == kept).all()


# --- consistency -------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_children_add_up_and_move_the_same_way(seed: int) -> None:
    generator = np.random.default_rng(seed)
    parents = generator.integers(0, 30, 50)
    left, right = generator.integers(-20, 40, (2, 50))
    moved = split_evenly(parents, left, right)
    ups = moved - np.maximum(left, 0), parents - moved - np.maximum(right, 0)
    assert ((np.minimum(*ups) >= 0) | (np.maximum(*ups) <= 0)).all()
    shared = Splits().split(parents, (left - right).astype(float), 25.0, generator)
    for chosen in (moved, shared):
        assert ((chosen >= 0) & (chosen <= parents)).all()


def test_splits_are_drawn_to_halves_as_far_as_they_are_noise() -> None:
    """Against the best linear rule where it is known: equal halves, splits of one width, and a few among many."""
    generator, parents = np.random.default_rng(6), np.full(4000, 1000)

    def error(differences: np.ndarray, noise: float) -> float:
        seen = differences + generator.normal(0, noise, len(parents))
        chosen = Splits().split(parents, seen, noise**2, generator)
        return float(np.sqrt(np.mean((2.0 * chosen - parents - differences) ** 2)))

    chance = generator.normal(0, math.sqrt(1000), 4000)
    assert error(chance, 300.0) < 1.25 * math.sqrt(1000)
    wide = np.clip(generator.normal(0, 250, 4000), -1000, 1000)
    assert error(wide, 250.0) < 1.1 * 250 / math.sqrt(2)
    few = np.where(np.arange(4000) < 40, 1000.0, chance)
    assert error(few, 100.0) < 0.5 * 100
    assert error(few, 1.0) < 1.3


def test_pooling_is_least_squares() -> None:
    """Against a solver, with the root as a constraint of weight 10^6; and what is given is not changed."""
    from scipy.optimize import lsq_linear

    generator = np.random.default_rng(2)
    counts = [generator.normal(10, 5, 1 << j) for j in (1, 2, 3)]
    kept = copy.deepcopy(counts)
    variances = [1.0, 4.0, 0.5]
    pooled, bounds = pool(counts, variances, 37.0)
    assert all((one == two).all() for one, two in zip(counts, kept, strict=True))
    rows = [
        np.repeat(np.eye(1 << j), 1 << (3 - j), axis=1) / np.sqrt(v)
        for j, v in zip((1, 2, 3), variances, strict=True)
    ]
    values = [one / np.sqrt(v) for one, v in zip(counts, variances, strict=True)]
    solved = lsq_linear(np.vstack([np.full((1, 8), 1e6), *rows]), np.concatenate([[37e6], *values])).x
    assert pooled[2] == pytest.approx(solved, abs=1e-6)
    assert pooled[0] == pytest.approx(solved.reshape(2, 4).sum(axis=1), abs=1e-6)
    assert all(bound <= variance for bound, variance in zip(bounds, variances, strict=True))


# --- releases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dimension", "variant"), PLANS)
@pytest.mark.parametrize("epsilon", ["1", "30", "0.001"])
def test_releases_at_any_time(dimension: int, variant: str, epsilon: str) -> None:
    """As many points as were read, in the cube and in the counted cells; repeatable, and the state is left alone."""
    plan, source = plan_of(dimension, variant, epsilon), Randomness.seeded(5)
    points = np.random.default_rng(3).random((700, dimension))
    points[::7] = 1.0
    state = plan.start(int(source.coins("a seed")[0]))
    for part in np.split(points, [1, 2, 9, 10, 100, 333]):
        plan.read(state, cube_cells(part, 10), source)
        kept = copy.deepcopy(state)
        counts, synthetic = plan.counts(state), released(plan, state)
        assert (counts == plan.counts(state)).all()
        assert all((a == b).all() for a, b in zip(kept.stored, state.stored, strict=True))
        assert synthetic.shape == (state.points, dimension)
        assert ((synthetic >= 0) & (synthetic <= 1)).all()
        assert counts.min() >= 0
        depth = state.cells.depth
        cells = cube_cells(synthetic, depth) if depth else np.zeros(len(synthetic), np.int64)
        assert (np.bincount(cells, minlength=1 << depth) == counts).all()
    assert depth == (0 if epsilon == "0.001" else min(plan.schedule.level_of(700), 10))
    assert plan.schedule.most_points > 10**7


@pytest.mark.parametrize("variant", ["paper", "default"])
def test_much_budget_finds_where_the_points_are(variant: str) -> None:
    """All points in one corner cell: nearly all synthetic points are near it, and not with a thousandth of epsilon."""
    near = {}
    for epsilon in ("200", "0.2"):
        plan, source = plan_of(2, variant, epsilon, 12), Randomness.seeded(2)
        state = plan.start(int(source.coins("a seed")[0]))
        plan.read(state, cube_cells(np.ones((6000, 2)), 12), source)
        near[epsilon] = float((released(plan, state) > 0.9).all(axis=1).mean())
    assert near["200"] > 0.97
    assert near["0.2"] < 0.9


def test_batches_of_any_size_give_the_same_counts() -> None:
    """What a level holds does not depend on how points were cut into batches."""
    points = np.random.default_rng(9).random((900, 2))
    totals = []
    for size in (1, 13, 900):
        plan, source = plan_of(2, "default"), Randomness.seeded(1)
        state = plan.start(int(source.coins("a seed")[0]))
        for first in range(0, 900, size):
            plan.read(state, cube_cells(points[first : first + size], 10), source)
        totals.append(state.cells.total.tolist())
        assert (state.cells.pending <= state.cells.total).all()
    assert totals[0] == totals[1] == totals[2]


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_new_cells_split_earlier_points_like_those_they_know(dimension: int) -> None:
    """Right after a depth began its cells know less than half of the points; those are all in one corner."""
    plan, source = plan_of(dimension, "default", "8"), Randomness.seeded(2)
    state = plan.start(int(source.coins("a seed")[0]))
    plan.read(state, np.zeros(plan.schedule.start(10) + 1, np.int64), source)
    assert state.cells.depth == 10
    counts = plan.counts(state)
    assert counts[0] / counts.sum() > 0.9


def test_a_moving_crowd_is_followed() -> None:
    """Blocks: within a level the default sees that all new points are elsewhere; without them it does not."""
    generator = np.random.default_rng(4)
    points = np.concatenate([generator.random((4096, 2)) * 0.5, 0.5 + generator.random((3000, 2)) * 0.5])
    far = {}
    for blocks in (1, 8):
        design = replace(DEFAULT, blocks=blocks)
        plan = cube_plan(2, epsilon=2, design=design)
        source = Randomness.seeded(7)
        state = plan.start(int(source.coins("a seed")[0]))
        plan.read(state, cube_cells(points, 20), source)
        far[blocks] = float((released(plan, state) > 0.5).all(axis=1).mean())
    assert far[8] > 0.33
    assert far[1] < 0.25


# --- what is published of the counts -------------------------------------------------------------------------


def crowd(count: int, depth: int) -> NDArray[np.int64]:
    """Cells; half of all points are in one of them."""
    generator = np.random.default_rng(1)
    some = generator.integers(0, 1 << depth, count)
    some[generator.random(count) < 0.5] = 3
    return some


def judged(errors: NDArray[np.float64]) -> bool:
    """Whether independent errors, each over its stated standard deviation, have mean 0 and variance 1.

    False alarms: below 1e-6. Laplace noise has a kurtosis of 6 at most (narrow discrete noise has more, and is not
    drawn here); both statistics are within six standard deviations.
    """
    mean = abs(float(errors.mean())) < 6.0 / np.sqrt(errors.size)
    return mean and abs(float((errors**2).mean()) - 1.0) < 6.0 * np.sqrt(5.0 / errors.size)


def test_noisy_counts_of_cells_are_unbiased_and_have_the_stated_variance() -> None:
    """False alarms below 1e-6; the control states half of the variance."""
    made, arrived = cube_plan(2, depth=7, epsilon=4), crowd(20_000, 7)
    state, source = made.start(), Randomness.system()
    errors, variances = [], []
    for first in range(0, len(arrived), 1000):
        made.read(state, arrived[first : first + 1000], source)
        for one in state.measured:
            cells = arrived[one.first - 1 : one.last] >> (7 - one.depth)
            errors.append(one.values - np.bincount(cells, minlength=1 << one.depth))
            variances.append(np.full(len(one.values), one.noise.variance))
    stated = np.concatenate(variances)
    assert stated.size > 3000
    assert stated.min() > 4
    assert judged(np.concatenate(errors) / np.sqrt(stated))
    assert not judged(np.concatenate(errors) / np.sqrt(stated / 2))


@pytest.mark.parametrize("variant", ["default", "paper"])
@pytest.mark.parametrize("dimension", [1, 3])
def test_a_plan_says_how_many_numbers_it_publishes(variant: str, dimension: int) -> None:
    made = cube_plan(dimension, variant, 7, 8)
    state = made.start()
    made.read(state, crowd(made.schedule.start(9) - 1, 7), Randomness.seeded(1))
    numbers = sum(len(one.values) for one in state.measured)
    assert numbers == sum(made.schedule.measured(level) for level in range(9))


# --- from one release to the next: as many points stay as their cells may hold, whichever they are ------------


@given(
    st.lists(st.integers(0, 7), max_size=12),
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.integers(0, 9),
)
def test_changes_are_the_fewest(cells: list[int], counts: list[int], seed: int) -> None:
    before = np.array(cells, np.int64)
    stays, added = staying(before, np.array(counts), np.random.default_rng(seed))
    held = np.bincount(before, minlength=8)
    assert stays.sum() == np.minimum(held, counts).sum()
    assert np.bincount(np.concatenate([before[stays], added]), minlength=8).tolist() == counts


def test_every_point_is_as_likely_to_stay() -> None:
    cells, counts = np.repeat(np.arange(4), 10), np.array([5, 15, 10, 12])
    stayed = np.zeros(40)
    for seed in range(2000):
        stays, added = staying(cells, counts, np.random.default_rng(seed))
        assert len(added) == 7
        stayed += stays
    assert (stayed[10:] == 2000).all()
    # Ten binomials of probability 1/2 within seven standard deviations: false alarm below 1e-10.
    assert np.abs(stayed[:10] - 1000).max() < 7 * np.sqrt(500)


# From columns to cells of the partition and back


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
