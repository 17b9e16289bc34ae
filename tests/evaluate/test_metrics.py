"""Errors of marginals, against loops that spell out their definitions; the true table, against a Counter."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpstream.core.errors import DataError
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import EncodedBatch
from dpstream.tools.evaluate import METRICS, TrueTable, churn, cramers_v, total_variation, workload_errors

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
