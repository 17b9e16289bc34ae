"""Errors of marginals and distances of points, against loops that spell them out; the true table, against a Counter."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.tools.evaluate import METRICS, TrueTable, churn, cramers_v, total_variation, workload_errors
from dpstream.tools.families.points.transport import assignment, grid_distance, line, sampled, w1

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
CLIQUES = ((0,), (1,), (0, 1), (0, 1, 2))


@st.composite
def marginals(draw):
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    counts = st.integers(-3, 50)
    truth = [draw(hnp.arrays(np.int64, size, elements=counts)) for size in sizes]
    made = [draw(hnp.arrays(np.float64, size, elements=st.floats(-5, 60))) for size in sizes]
    return truth, made, draw(st.integers(1, 200))


def spelled_out(truth, made, records):
    """The five errors of one workload, cell by cell."""
    gaps = [abs(float(t) - float(m)) for t, m in zip(truth, made, strict=True)]
    filled = [gap / t for gap, t in zip(gaps, truth.tolist(), strict=True) if t > 0]
    floored = [gap / max(t, 1) for gap, t in zip(gaps, truth.tolist(), strict=True)]
    return (
        sum(gaps) / len(gaps) / records,
        sum(gaps) / records,
        sum(filled) / len(filled) if filled else math.nan,
        sum(floored) / len(floored),
        # 1 where only the synthetic table is empty.
        total_variation(truth, made) if max(made, default=0) > 0 or max(truth, default=0) <= 0 else 1.0,
    )


@given(marginals())
@settings(max_examples=150, deadline=None)
def test_errors_are_those_of_the_definition(case):
    truth, made, records = case
    found = workload_errors(truth, made, records)
    expected = np.array([spelled_out(t, m, records) for t, m in zip(truth, made, strict=True)])
    for column, values in enumerate((found.we, found.l1, found.rel_we, found.rel_we_floor, found.tv)):
        np.testing.assert_allclose(values, expected[:, column], rtol=1e-9, atol=1e-12)
    summary = found.as_dict()
    assert tuple(summary) == METRICS
    for name, column in (("WE", 0), ("L1", 1), ("RelWE", 2), ("RelWEFloor", 3), ("TV", 4)):
        known = expected[~np.isnan(expected[:, column]), column]
        if known.size:
            assert summary[f"Avg{name}"] == pytest.approx(known.mean())
            assert summary[f"Max{name}"] == pytest.approx(known.max())
        else:
            assert math.isnan(summary[f"Avg{name}"])
            assert math.isnan(summary[f"Max{name}"])


def test_an_empty_truth_is_blank_and_never_infinite():
    truth, made = [np.array([0, 0])], [np.array([1.0, 2.0])]
    found = workload_errors(truth, made, 0)
    assert np.isnan([found.as_dict()["AvgWE"], found.as_dict()["MaxL1"], found.as_dict()["AvgRelWE"]]).all()
    assert found.as_dict()["AvgRelWEFloor"] == 1.5
    assert np.isnan(workload_errors(truth, made, -3).we).all()


@pytest.mark.parametrize(
    ("truth", "made"),
    [
        ([], []),
        ([np.array([1, 2])], [np.array([1.0])]),
        ([np.array([1])], []),
        ([np.array([], int)], [np.array([])]),
    ],
)
def test_marginals_that_do_not_fit_are_refused(truth, made):
    with pytest.raises(DataError, match="marginals differ in shape"):
        workload_errors(truth, made, 5)


def test_total_variation_is_half_the_distance_of_shares():
    assert total_variation(np.array([2, 2]), np.array([7, 7])) == 0
    assert total_variation(np.array([5, 0]), np.array([0, 1])) == 1
    assert total_variation(np.array([3, -4, 1]), np.array([1, 0, 1])) == 0.25
    assert math.isnan(total_variation(np.array([0, 0]), np.array([1, 0])))
    before, after = [np.array([1, 1]), np.array([0])], [np.array([2, 0]), np.array([3])]
    assert churn(before, after) == 0.5, "the empty marginal is left out"
    assert math.isnan(churn([np.array([0])], [np.array([1])]))


def bergsma(table):
    """The published formula, from scipy's chi-squared statistic."""
    from scipy.stats import chi2_contingency

    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    total, (rows, columns) = table.sum(), table.shape
    phi = chi2_contingency(table, correction=False).statistic / total
    phi = max(0, phi - (rows - 1) * (columns - 1) / (total - 1))
    rows, columns = (side - (side - 1) ** 2 / (total - 1) for side in (rows, columns))
    return min(1, np.sqrt(phi / (min(rows, columns) - 1)))


@given(hnp.arrays(np.int64, st.tuples(st.integers(2, 5), st.integers(2, 5)), elements=st.integers(0, 40)))
@settings(max_examples=150, deadline=None)
@example(np.array([[0, 2], [1, 1]]))
def test_cramers_v_is_the_corrected_one(table):
    found = cramers_v(table)
    assert np.isnan(found) or 0 <= found <= 1
    sides = [(table.sum(axis=axis) > 0).sum() for axis in (0, 1)]
    if min(sides) < 2:
        assert np.isnan(found)
    elif table.sum() > 2 * max(sides) ** 2:
        assert found == pytest.approx(bergsma(table), abs=1e-6)
    # A root of a rounded zero is 1e-8.
    assert found == pytest.approx(cramers_v(table.T), abs=1e-6, nan_ok=True)
    assert found == pytest.approx(cramers_v(np.pad(table, 1)), abs=1e-6, nan_ok=True), "empty rows"


def test_where_there_is_no_association():
    for table in ([[4, 5]], [[0, 0], [0, 0]], [[1, 0], [0, 0]], [[1, 0], [0, 1]]):
        assert np.isnan(cramers_v(np.array(table)))
    assert cramers_v(np.array([[50, -3], [0, 50]])) == 1, "negative counts are taken as none"


rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 1)), max_size=12)


def codes(records):
    return np.array(records, np.int32).reshape(-1, 3)


@given(st.lists(st.tuples(rows, st.none() | rows), max_size=6), st.sampled_from([1, 3, 2**18]))
@settings(max_examples=150, deadline=None)
def test_the_true_table_is_a_multiset_with_deletions(steps, block):
    """Against ``collections.Counter``; asked in between or only at the end, the answer is the same."""
    from dpstream.tools.evaluate import true_table as truth

    table, late = TrueTable(DOMAIN), TrueTable(DOMAIN)
    net: Counter = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truth, "_BLOCK_ROWS", block)
        for inserts, deletes in steps:
            batch = EncodedBatch(DOMAIN, codes(inserts), None if deletes is None else codes(deletes))
            table.add(batch)
            late.add(batch)
            net.update(inserts)
            net.subtract(deletes or [])
            assert table.records == sum(net.values())
            check(table, net)
        check(late, net)


def check(table: TrueTable, net: Counter) -> None:
    for clique, counts in zip(CLIQUES, table.marginals(CLIQUES), strict=True):
        expected = np.zeros(DOMAIN.shape(clique), np.int64)
        for record, count in net.items():
            expected[tuple(record[i] for i in clique)] += count
        assert counts.tolist() == expected.ravel().tolist()
    found = table.rows()
    assert found.dtype == np.int32
    assert Counter(map(tuple, found.tolist())) == +net
    assert table.unmatched_deletes == sum(-count for count in net.values() if count < 0)
    assert len(found) == table.records + table.unmatched_deletes


def test_rows_of_wide_tables_are_told_apart_beyond_one_word():
    """Codes that do not fit into one 64-bit word together: only the last column differs."""
    wide = Domain(tuple("abcdef"), (60000,) * 6)
    one, other = np.full((1, 6), 59999, np.int32), np.full((1, 6), 59999, np.int32)
    other[0, 5] = 0
    table = TrueTable(wide)
    table.add(EncodedBatch(wide, np.vstack([one, other, one]), other))
    assert table.rows().tolist() == [one[0].tolist()] * 2
    table.add(EncodedBatch(wide, np.empty((0, 6), np.int32), other))
    assert (table.records, table.unmatched_deletes) == (1, 1)


def test_answers_are_snapshots_and_many_questions_may_be_asked():
    table = TrueTable(DOMAIN)
    table.add(EncodedBatch(DOMAIN, codes([(0, 0, 0)])))
    first = table.marginals([(0,)])[0]
    for clique in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]:
        table.marginals([clique])
    table.add(EncodedBatch(DOMAIN, codes([(1, 2, 1)])))
    assert first.tolist() == [1, 0]
    first[:] = 99
    assert table.marginals([(0,)])[0].tolist() == [1, 1]
    assert "hidden" in repr(table)


# Distances of points


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
