"""W1 of point sets against brute force and known cases; what is no exact distance brackets it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream.tools.families.points.transport import assignment, grid_distance, line, sampled, w1

Floats = NDArray[np.float64]


def apart(x: Floats, y: Floats, periodic: tuple[int, ...]) -> float:
    steps = [abs(float(p) - float(q)) for p, q in zip(x, y, strict=True)]
    return max(min(s, 1 - s) if i in periodic else s for i, s in enumerate(steps))


def as_many(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The same two distributions, with points repeated until both sets have as many."""
    n = math.lcm(len(a), len(b))
    return np.repeat(a, n // len(a), axis=0), np.repeat(b, n // len(b), axis=0)


def by_hand(a: Floats, b: Floats, periodic: tuple[int, ...] = ()) -> float:
    """All assignments."""
    a, b = as_many(a, b)
    return min(
        sum(apart(x, b[j], periodic) for x, j in zip(a, order, strict=True)) / len(a)
        for order in itertools.permutations(range(len(a)))
    )


@st.composite
def two_sets(draw: st.DrawFn) -> tuple[Floats, Floats, tuple[int, ...]]:
    d = draw(st.integers(1, 3))
    sizes = draw(st.sampled_from([(1, 1), (1, 4), (2, 3), (3, 3), (2, 4), (5, 5), (6, 2)]))
    # Few places, so that ties, borders and equal points are common.
    place = st.integers(0, 16).map(lambda i: i / 16)
    a, b = (np.array(draw(st.lists(place, min_size=n * d, max_size=n * d))).reshape(n, d) for n in sizes)
    return a, b, tuple(i for i in range(d) if draw(st.booleans()))


@settings(max_examples=120, deadline=None)
@given(two_sets())
def test_distances_are_those_of_brute_force(sets: tuple[Floats, Floats, tuple[int, ...]]) -> None:
    a, b, periodic = sets
    true = by_hand(a, b, periodic)
    found = w1(*as_many(a, b), periodic=periodic)
    assert found.how == "exact"
    assert found.value == pytest.approx(true, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.booleans(),
)
def test_one_coordinate_at_any_size(a: list[float], b: list[float], periodic: bool) -> None:
    one, two = np.array(a), np.array(b)
    around = [0] if periodic else []
    exact = assignment(*as_many(one[:, None], two[:, None]), periodic=around)
    assert line(one, two, periodic=periodic) == pytest.approx(exact, abs=1e-7)


def test_known_cases() -> None:
    g = np.random.default_rng(1)
    cloud = g.random((50, 2)) * 0.5
    # A cloud that is shifted as a whole moves by the longer side of the shift.
    assert w1(cloud, cloud + np.array([0.1, 0.3])).value == pytest.approx(0.3)
    assert w1(cloud, cloud).value == 0.0
    # A uniform line against a point at its end, and against one half of it.
    even = (np.arange(10_000) + 0.5)[:, None] / 10_000
    assert w1(even, np.zeros((7, 1))).value == pytest.approx(0.5)
    assert w1(even, even[:5000]).value == pytest.approx(0.25, abs=1e-4)
    assert w1(even, even[:5000], periodic=[0]).value == pytest.approx(0.125, abs=1e-4)
    # Across midnight.
    assert w1(np.array([[0.99, 0.5]]), np.array([[0.01, 0.5]]), periodic=[0]).value == pytest.approx(0.02)


def test_samples_bracket_the_distance_of_large_sets() -> None:
    g = np.random.default_rng(2)
    a = g.random((20_000, 2)) * [0.8, 1.0]
    shifted = a + np.array([0.2, 0.0])
    found = w1(a, shifted, method="samples", sample=300, repeats=4, seed=3)
    assert found.how == "samples"
    assert found.lower == pytest.approx(0.2, abs=1e-9)
    assert found.lower <= found.value <= found.upper
    mean, floors = sampled(a, shifted, sample=300, repeats=4, seed=3)
    alone = [sampled(a, shifted, sample=300, repeats=1, seed=seed)[0] for seed in range(20)]
    assert mean - floors <= 0.2 <= np.mean(alone) + 4 * np.std(alone, ddof=1) / math.sqrt(20)
    assert (found.value, found.upper) == (max(mean - floors / 2, found.lower), max(mean, found.lower))
    assert w1(a, shifted, method="samples", sample=300, repeats=4, seed=3) == found
    # Two sets of one law: the floors explain all of it; without them one would see a distance that is not there.
    mean, floors = sampled(a, g.random((20_000, 2)) * [0.8, 1.0], sample=300, repeats=4)
    assert mean > 5 * abs(mean - floors / 2)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 3), st.integers(2, 6), st.integers(0, 7), st.integers(0, 2**20))
def test_the_grid_is_exact_from_middles_and_within_a_side(
    dimension: int, side: int, circles: int, seed: int
) -> None:
    g = np.random.default_rng(seed)
    a, b = g.random((12, dimension)) ** 2, g.random((12, dimension))
    periodic = [i for i in range(dimension) if circles >> i & 1]
    found = grid_distance(a, b, side, periodic=periodic)
    middles = [(np.floor(points * side) + 0.5) / side for points in (a, b)]
    assert found == pytest.approx(assignment(*middles, periodic=periodic), abs=1e-7)
    assert abs(found - assignment(a, b, periodic=periodic)) <= 1 / side + 1e-9


def test_a_grid_finds_what_samples_cannot() -> None:
    g = np.random.default_rng(2)
    a = 0.4 + 0.1 * g.random((20_000, 2))
    found = w1(a, a + np.array([0.2, 0.0]))
    assert found.how == "grid"
    assert found.value == pytest.approx(0.2, abs=0.002)
    assert found.lower - 1e-9 <= 0.2 <= found.upper
    near = w1(a, a + np.array([0.004, 0.0]))
    assert near.lower - 1e-9 <= 0.004 <= near.upper
    assert near.value < 0.01
