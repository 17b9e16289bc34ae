"""Distances, associations and predictions: against other programs, and where there is no number."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpstream.core.errors import ConfigError, DataError, SchemaError
from dpstream.core.schema import Boolean, Categorical, Integer, Schema
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import count_marginals
from dpstream.tools.evaluate import association, cramers_v, total_variation, train_and_test, utility
from dpstream.tools.evaluate.prediction import MAX_ROWS, _score, _split
from dpstream.tools.evaluate.utility import pairwise

DOMAIN = Domain(("a", "b", "c", "fixed"), (2, 3, 4, 2))
SCHEMA = Schema(
    [
        Categorical("kind", ["u", "v", "w"], other="other"),
        Integer("age", edges=[0, 20, 40, 60, 80]),
        Boolean("paid"),
        Categorical("noise", ["x", "y"]),
    ]
)


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Two hundred records need no hundred trees."""
    from dpstream.tools.evaluate import prediction

    monkeypatch.setattr(prediction, "_TREES", 16)


def counting(codes, domain=DOMAIN):
    return lambda cliques: count_marginals(np.asfortranarray(codes), domain, cliques)


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
    assert found == pytest.approx(cramers_v(np.pad(table, 1)), abs=1e-6, nan_ok=True), (
        "empty rows do not count"
    )


def test_independent_columns_have_no_association_and_copies_a_full_one():
    from scipy.stats import chi2_contingency

    assert cramers_v(np.outer([100, 300], [20, 30, 50])) == 0
    assert cramers_v(np.diag([5, 9, 30])) == pytest.approx(1)
    # The correction: 4 x 4 tables of independent columns and 100 records have a plain V of 0.17 on average.
    generator = np.random.default_rng(5)
    tables = [np.bincount(generator.integers(0, 16, 100), minlength=16).reshape(4, 4) for _ in range(200)]
    plain = [np.sqrt(chi2_contingency(table, correction=False).statistic / 100 / 3) for table in tables]
    assert np.mean(plain) > 0.15
    assert np.mean([cramers_v(table) for table in tables]) < 0.07


def test_where_there_is_no_association():
    for table in ([[4, 5]], [[0, 0], [0, 0]], [[1, 0], [0, 0]], [[1, 0], [0, 1]]):
        assert np.isnan(cramers_v(np.array(table)))
    assert cramers_v(np.array([[50, -3], [0, 50]])) == 1, "negative counts are taken as none"


def tables(seed=0, rows=400):
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 2, rows)
    b = np.where(generator.random(rows) < 0.8, a, generator.integers(0, 3, rows))
    return np.column_stack([a, b, generator.integers(0, 4, rows), np.ones(rows)]).astype(np.int32)


@pytest.mark.parametrize("at_once", [2**22, 5])
def test_pairwise_looks_at_every_column_and_every_pair(monkeypatch, at_once):
    monkeypatch.setattr(utility, "_CELLS_AT_ONCE", at_once)
    real, made = tables(0), tables(1, rows=150)
    found = pairwise(DOMAIN, counting(real), counting(made))
    for i, j in itertools.product(range(4), repeat=2):
        parts = []
        for codes in (real, made):
            table = np.zeros((DOMAIN.sizes[i], DOMAIN.sizes[j]))
            np.add.at(table, (codes[:, i], codes[:, j]), 1)
            parts.append(table)
        assert found.two_way[i, j] == pytest.approx(total_variation(*parts))
        assert found.true_association[i, j] == pytest.approx(cramers_v(parts[0]), nan_ok=True)
        assert found.synthetic_association[i, j] == pytest.approx(cramers_v(parts[1]), nan_ok=True)
    assert found.one_way.tolist() == found.two_way.diagonal().tolist()
    assert np.isnan(found.true_association[3]).all(), "a constant column"
    assert found.true_association[0, 1] > 0.5
    facts = found.as_dict()
    pairs = [found.two_way[i, j] for i, j in found.pairs]
    assert facts["mean_tv_two_way"] == pytest.approx(np.mean(pairs))
    assert facts["max_tv_two_way"] == pytest.approx(max(pairs))
    assert facts["max_association_difference"] == pytest.approx(
        np.nanmax(np.abs(np.triu(found.difference, 1)))
    )
    np.testing.assert_array_equal(association(DOMAIN, counting(made)), found.synthetic_association)


def test_pairs_that_are_too_large_and_single_columns_have_no_number(monkeypatch):
    monkeypatch.setattr(utility, "_MAX_PAIR", 7)
    found = pairwise(DOMAIN, counting(tables()), counting(tables(1)))
    assert np.isnan(found.two_way[1, 2])
    assert not np.isnan(found.two_way[0, 1])
    alone = Domain(("only",), (3,))
    single = pairwise(
        alone, counting(np.zeros((4, 1), np.int32), alone), counting(np.ones((4, 1), np.int32), alone)
    )
    assert single.one_way.tolist() == [1]
    assert np.isnan(single.as_dict()["max_tv_two_way"])


def people(rows, seed=0, link=0.9):
    """``paid`` follows ``age`` with probability ``link``."""
    generator = np.random.default_rng(seed)
    age = generator.integers(0, 4, rows)
    paid = np.where(generator.random(rows) < link, age >= 2, generator.integers(0, 2, rows))
    return np.asfortranarray(
        np.column_stack([generator.integers(0, 4, rows), age, paid, generator.integers(0, 2, rows)]).astype(
            np.int32
        )
    )


def by_name(prediction):
    return {(score.model, score.trained_on): score for score in prediction.scores}


def test_training_tables_that_are_equal_give_equal_scores_and_useless_ones_none():
    real = people(1500)
    training, _ = _split(real, 2)
    equal = by_name(train_and_test(real, training, SCHEMA, "paid"))
    for model in ("gradient boosting", "logistic regression"):
        first, second = equal[model, "synthetic"], equal[model, "real"]
        assert (first.accuracy, first.roc_auc) == (second.accuracy, second.roc_auc)
        assert first.accuracy > 0.9
    useless = train_and_test(real, people(1500, seed=1, link=0.0), SCHEMA, "paid")
    # Seeds are fixed, so this cannot fail by chance; 0.5 is a coin, and 450 test records give or take 0.03.
    assert by_name(useless)["logistic regression", "synthetic"].roc_auc < 0.6
    assert by_name(useless)["logistic regression", "real"] == equal["logistic regression", "real"]
    assert (useless.test_rows, useless.real_rows, useless.synthetic_rows) == (450, 1050, 1500)
    assert useless.classes == ("false", "true")


def test_a_target_that_shows_nothing_is_said():
    """Determined by the other columns, or by none of them: equal scores are no praise then."""
    real = people(1500)
    determined = real.copy()
    determined[:, 2] = determined[:, 1] >= 2
    assert "determine paid" in train_and_test(determined, people(800, seed=1), SCHEMA, "paid").remark
    alone = train_and_test(people(1500, link=0.0), people(800, seed=1), SCHEMA, "paid")
    assert "next to nothing about paid" in alone.remark
    assert train_and_test(real, people(800, seed=1), SCHEMA, "paid").remark == ""


def test_many_classes_and_a_synthetic_table_that_lacks_some():
    real, made = people(600), people(600, seed=1)
    made = made[made[:, 1] != 3]
    found = train_and_test(real, made, SCHEMA, "age")
    assert found.classes == SCHEMA["age"].labels()
    synthetic, trained = (by_name(found)["gradient boosting", side] for side in ("synthetic", "real"))
    assert synthetic.balanced_accuracy <= 0.75, "a class that nobody taught is never right"
    assert not np.isnan(synthetic.roc_auc)
    assert trained.macro_f1 > 0.2
    single = train_and_test(real, made[made[:, 1] == 0], SCHEMA, "age")
    for model in ("gradient boosting", "logistic regression"):
        score = by_name(single)[model, "synthetic"]
        assert score.note == "one class in the training table"
        assert (score.balanced_accuracy, score.roc_auc) == (0.25, 0.5)


def test_the_majority_class_is_the_floor():
    real = people(1000)
    real[:, 2] = (np.arange(1000) % 5 == 0).astype(np.int32)
    floor = by_name(train_and_test(real, real, SCHEMA, "paid"))["majority class", "real"]
    assert (floor.accuracy, floor.balanced_accuracy, floor.roc_auc) == (0.8, 0.5, 0.5)
    assert floor.macro_f1 == pytest.approx(0.8 / 1.8)


def test_scores_are_those_of_the_definitions():
    known, truth = np.array([0, 2], np.int32), np.array([0, 0, 2, 1], np.int32)
    shares = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]])
    score = _score("m", "real", known, shares, truth, "")
    assert score.accuracy == 0.5
    assert score.balanced_accuracy == pytest.approx((0.5 + 0 + 1) / 3)
    assert score.macro_f1 == pytest.approx((2 / 3 + 0 + 0.5) / 3)
    # Class 0 above the others in all four pairs; class 1 unknown: one half; class 2 above the three others.
    assert score.roc_auc == pytest.approx((1 + 0.5 + 1) / 3)
    alone = _score("m", "real", known, shares[:2], truth[:2], "")
    assert np.isnan(alone.roc_auc)


def test_long_training_tables_are_cut_by_a_fixed_draw(monkeypatch):
    from dpstream.tools.evaluate import prediction

    monkeypatch.setattr(prediction, "MAX_ROWS", 300)
    found = train_and_test(people(1000), people(800, seed=1), SCHEMA, "paid")
    assert (found.synthetic_rows, found.real_rows, found.test_rows) == (300, 300, 300)
    assert found == train_and_test(people(1000), people(800, seed=1), SCHEMA, "paid")
    assert MAX_ROWS == 50_000


@pytest.mark.parametrize(
    ("real", "made", "target", "error", "message"),
    [
        (people(100), people(50), "rent", SchemaError, "unknown column 'rent'"),
        (people(5), people(50), "paid", DataError, "too small to split"),
        (people(100), people(0), "paid", DataError, "synthetic table is empty"),
        (people(100) * np.array([1, 1, 0, 1], np.int32), people(50), "paid", DataError, "the same value"),
    ],
)
def test_what_cannot_be_predicted_is_said(real, made, target, error, message):
    with pytest.raises(error, match=message):
        train_and_test(real, made, SCHEMA, target)


def test_targets_that_no_data_can_help():
    fixed = Schema([Categorical("fixed", ["x"]), Boolean("paid")])
    with pytest.raises(ConfigError, match="one value only"):
        train_and_test(np.zeros((20, 2), np.int32), np.zeros((20, 2), np.int32), fixed, "fixed")
    with pytest.raises(ConfigError, match="no other column"):
        train_and_test(
            np.zeros((20, 1), np.int32), np.zeros((20, 1), np.int32), Schema([Boolean("paid")]), "paid"
        )


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match=r"pip install 'dpstream\[evaluate\]'"):
        train_and_test(people(100), people(100), SCHEMA, "paid")


def test_a_class_with_one_record_does_not_stop_the_split():
    real = people(60)
    real[:, 0] = 0
    real[0, 0] = 3
    found = train_and_test(real, people(60, seed=1), SCHEMA, "kind")
    assert found.classes == ("u", "other")
    assert all(0 <= score.accuracy <= 1 for score in found.scores)
