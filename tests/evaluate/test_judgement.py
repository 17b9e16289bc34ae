"""The measures of an evaluation against SDMetrics, brute force and hand-made tables; both yardsticks; the words."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import tracemalloc
from collections import Counter
from statistics import median

import numpy as np
import pytest
from evaluated_runs import run, typical, write_run

from dpstream.core.errors import ConfigError, DataError, LimitError, SchemaError
from dpstream.core.schema import Boolean, Categorical, Domain, Integer, Schema
from dpstream.project.schema_file import read_schema
from dpstream.tools.evaluate import LABEL, evaluate_run, judgement
from dpstream.tools.evaluate.judgement import (
    broken_rules,
    check_target,
    compare_tables,
    compared_sets,
    judge,
    k_marginal_score,
    learn_targets,
    lost_share,
    propensity,
    split_records,
)
from dpstream.tools.evaluate.measures import Measure, measure_headings, measure_rows, verdict_words
from dpstream.tools.evaluate.tables_evaluation import result_of
from dpstream.tools.evaluate.trends import ColumnCounts, find_trends
from dpstream.tools.families.panel.panel_evaluation import PanelError, panel_measures
from dpstream.tools.families.points.point_evaluation import (
    CellError,
    PointEvaluation,
    PointStep,
    point_measures,
)
from dpstream.tools.report.evaluation_page import evaluation_page, measures_table

SCHEMA = Schema(
    [
        Categorical("kind", ["u", "v", "w"]),
        Boolean("paid"),
        Integer("rooms", min=1, max=4),
        Categorical("noise", ["x", "y", "z"]),
    ]
)
DOMAIN = SCHEMA.domain


def people(seed: int, rows: int = 1500, *, kept: float = 0.9) -> np.ndarray:
    """``rooms`` follows from ``kind`` and ``paid`` in most records; ``kept``: in how many."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    paid = (rng.random(rows) < np.array([0.2, 0.5, 0.9])[kind]).astype(int)
    rooms = np.where(rng.random(rows) < kept, kind + paid, rng.integers(0, 4, rows))
    return np.column_stack([kind, paid, rooms, rng.integers(0, 3, rows)]).astype(np.int32)


def shuffled(codes: np.ndarray) -> np.ndarray:
    """The same columns, independent of each other."""
    rng = np.random.default_rng(5)
    return np.column_stack([rng.permutation(column) for column in codes.T]).astype(np.int32)


REAL, MADE = people(1), people(2, 1200, kept=0.3)
FOUND = compare_tables(DOMAIN, REAL, MADE)


def test_columns_and_pairs_are_those_of_sdmetrics():
    import pandas as pd
    from sdmetrics.column_pairs import ContingencySimilarity
    from sdmetrics.single_column import TVComplement

    real, made = (
        pd.DataFrame({name: codes[:, i].astype(str) for i, name in enumerate(DOMAIN.names)})
        for codes in (REAL, MADE)
    )
    for i, name in enumerate(DOMAIN.names):
        theirs = TVComplement.compute(real_data=real[name], synthetic_data=made[name])
        assert FOUND.columns[i] == pytest.approx(1 - theirs, abs=1e-9)
    theirs = []
    for pair, ours in zip(compared_sets(DOMAIN, 2, 500), FOUND.pairs, strict=True):
        names = [DOMAIN.names[i] for i in pair]
        theirs.append(ContingencySimilarity.compute(real_data=real[names], synthetic_data=made[names]))
        assert ours == pytest.approx(1 - theirs[-1], abs=1e-9)
    assert k_marginal_score(FOUND.pairs) == pytest.approx(1000 * np.mean(theirs))
    assert max(FOUND.pairs) > 0.1, "these tables differ, and the comparison sees it"


def test_the_k_marginal_score_is_nists():
    differences = []
    for three in itertools.combinations(range(4), 3):
        one, other = (Counter(map(tuple, codes[:, three].tolist())) for codes in (REAL, MADE))
        cells = {*one, *other}
        differences.append(sum(abs(one[c] / len(REAL) - other[c] / len(MADE)) for c in cells))
    assert FOUND.score == pytest.approx(1000 * (2 - np.mean(differences)) / 2)
    assert compare_tables(DOMAIN, REAL, REAL, classify=False).score == 1000
    assert k_marginal_score([1.0, 1.0]) == 0
    assert math.isnan(k_marginal_score([math.nan]))


def test_many_sets_of_columns_are_drawn_once_for_all():
    wide = Domain(tuple(f"c{i}" for i in range(60)), (3,) * 60)
    drawn = compared_sets(wide, 3, 200)
    assert drawn == compared_sets(wide, 3, 200)
    assert len(set(drawn)) == 200
    assert len(compared_sets(wide, 2, 500)) == 500
    huge = Domain(("a", "b", "c"), (2**11, 2**11, 2))
    assert compared_sets(huge, 2, 500) == ((0, 2), (1, 2)), "a pair of 2^22 cells is left out"
    assert compared_sets(Domain(("a", "b"), (2, 2)), 3, 200) == ((0, 1),)


def test_propensity_is_the_mean_squared_error_of_a_tree_that_knows_every_cell():
    rng = np.random.default_rng(4)
    one = rng.choice(6, 3000, p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1])[:, None].astype(np.int32)
    other = rng.choice(6, 2000, p=[0.1, 0.1, 0.3, 0.1, 0.1, 0.3])[:, None].astype(np.int32)
    first, second = Counter(one[:, 0].tolist()), Counter(other[:, 0].tolist())
    share = 2000 / 5000
    both = first + second
    error = sum(both[c] * (second[c] / both[c] - share) ** 2 for c in range(6)) / 5000
    assert propensity(one, other) == pytest.approx(error / (share * (1 - share)))
    assert propensity(one, one) == 0
    assert propensity(np.zeros_like(one), np.ones_like(other)) == pytest.approx(1)
    assert math.isnan(propensity(one[:9], other))
    # Two samples of one law are hardly told apart, and two laws are.
    assert propensity(REAL, people(3)) < 0.05 < FOUND.propensity


def test_groups_and_strange_combinations_by_brute_force():
    sizes = ("1 to 9 records", "10 to 99", "100 to 999", "1,000 or more")
    errors: dict[str, list[float]] = {size: [] for size in sizes}
    lost = Counter[str]()
    strange, alone = np.zeros(len(MADE), bool), np.zeros(len(REAL), bool)
    for pair in itertools.combinations(range(4), 2):
        one, other = (Counter(map(tuple, codes[:, pair].tolist())) for codes in (REAL, MADE))
        for cell, true in one.items():
            size = sizes[min(3, int(math.log10(true)))]
            errors[size].append(abs(other[cell] * len(REAL) / len(MADE) - true) / true)
            lost[size] += other[cell] == 0
        strange |= np.array([one[cell] == 0 for cell in map(tuple, MADE[:, pair].tolist())])
        alone |= np.array([one[cell] == 1 for cell in map(tuple, REAL[:, pair].tolist())])
    for group in FOUND.groups:
        own = errors[group.words]
        assert group.groups == len(own)
        assert group.typical == pytest.approx(median(own))
        assert group.most == pytest.approx(np.quantile(own, 0.9))
        assert group.lost == lost[group.words] / len(own)
    assert [group.words for group in FOUND.groups] == [size for size, own in errors.items() if own]
    assert FOUND.unseen == strange.mean()
    assert FOUND.unique == alone.mean()
    odd = np.array([[0, 0], [0, 0], [1, 1], [1, 0]], np.int32)
    small = compare_tables(Domain(("a", "b"), (2, 2)), odd[:3], odd, classify=False)
    assert (small.unique, small.unseen) == (1 / 3, 0.25)


def test_learning_counts_what_is_ranked_right():
    training, test = split_records(REAL)
    assert len(training) + len(test) == len(REAL)
    tables = {"real": training, "synthetic": MADE, "nothing": shuffled(MADE)}
    found = {one.column: one for one in learn_targets(DOMAIN, test, tables)}
    assert list(found) == list(DOMAIN.names)
    # The area of a column of two values: the share of pairs of records that the tree ranks right.
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=judgement.SEED)
    tree.fit(MADE[:, [0, 2, 3]], MADE[:, 1])
    guess = tree.predict_proba(test[:, [0, 2, 3]])[:, 1]
    yes, no = guess[test[:, 1] == 1][:, None], guess[test[:, 1] == 0][None]
    assert found["paid"].areas["synthetic"] == pytest.approx(((yes > no) + 0.5 * (yes == no)).mean())
    assert found["noise"].areas["real"] < 0.6
    assert math.isnan(found["noise"].kept("synthetic"))
    targets = tuple(found.values())
    assert lost_share(targets, "real") == 0
    assert 0.0 < lost_share(targets, "synthetic") < 0.6 < lost_share(targets, "nothing")
    assert math.isnan(lost_share(targets, "offline"))


def test_a_named_target_is_judged_alone_and_one_that_cannot_be_learned_is_refused():
    found = judge(SCHEMA, 1, REAL, MADE, NO_TRENDS, target=2)
    assert [one.column for one in found.targets] == ["rooms"]
    (measure,) = (one for one in found.measures if one.name == "learning")
    assert measure.question == "predicting rooms"
    assert measure.value == pytest.approx(1 - found.targets[0].kept("synthetic"))
    constant = REAL * np.array([1, 1, 0, 1], np.int32)
    for real in (constant, REAL[:19]):
        with pytest.raises(DataError, match="target 'rooms'"):
            judge(SCHEMA, 1, real, MADE, NO_TRENDS, target=2)
    assert check_target(SCHEMA, "rooms") == 2
    with pytest.raises(SchemaError, match="unknown column 'rent'"):
        check_target(SCHEMA, "rent")
    with pytest.raises(ConfigError, match="other columns are missing"):
        check_target(Schema([Boolean("paid")]), "paid")
    with pytest.raises(ConfigError, match="one value only"):
        check_target(Schema([Categorical("fixed", ["x"]), Boolean("paid")]), "fixed")


def test_a_column_of_many_values_needs_no_more_room_than_one_of_fifty():
    rng = np.random.default_rng(9)
    many = rng.integers(0, 100_000, 4000)
    rows = np.column_stack([many, many % 2]).astype(np.int32)
    rows[:2000, 0] = rng.integers(0, 60, 2000) * 2 + rows[:2000, 1]
    training, test = split_records(rows)
    tracemalloc.start()
    found = learn_targets(Domain(("id", "odd"), (100_000, 2)), test, {"real": training})
    assert tracemalloc.get_traced_memory()[1] < 2e8
    tracemalloc.stop()
    assert [one.column for one in found] == ["id", "odd"]
    # Half of the ids are told by whether they are odd.
    assert 0.6 < found[0].areas["real"] < 0.9


def counts(step: int, true: list[int], made: list[int]) -> ColumnCounts:
    return ColumnCounts(step, np.array(true), np.array(made))


def test_changes_have_a_direction_and_a_size():
    schema = Schema([Boolean("paid"), Categorical("kind", ["u", "v", "w"])])
    steps = [
        counts(1, [500, 500, 400, 300, 300], [50, 50, 40, 30, 30]),
        counts(2, [400, 600, 400, 305, 295], [45, 55, 40, 30, 30]),
        counts(3, [280, 720, 300, 400, 300], [60, 40, 40, 32, 28]),
    ]
    found = find_trends(schema, steps)
    # paid: +10, +12 and +22 points, released +5, -15 and -10; u: -10 and -10 with 0 and 0; v: 9.5 and 10 with 2 and 2.
    true, made = [0.1, 0.12, 0.22, -0.1, -0.1, 0.095, 0.1], [0.05, -0.15, -0.1, 0, 0, 0.02, 0.02]
    assert found.changes == len(true)
    assert found.wrong == pytest.approx(4 / 7)
    assert found.size == pytest.approx(np.dot(true, made) / np.dot(true, true))
    assert found.floor < 0.3
    assert [one.name for one in found.moved] == ["paid = true", "kind = u"]
    assert found.moved[0].true.tolist() == [0.5, 0.6, 0.72]
    same = find_trends(schema, [counts(one.step, one.true.tolist(), one.true.tolist()) for one in steps])
    assert (same.wrong, same.size) == (0, 1)
    still = find_trends(schema, steps[:1])
    assert (still.changes, still.steps) == (0, (1,))
    assert math.isnan(still.wrong)
    nothing = find_trends(schema, [counts(1, [0] * 5, [1] * 5)])
    assert nothing.moved == ()


NO_TRENDS = find_trends(SCHEMA, [])


def test_a_sample_of_the_truth_is_at_the_floor_and_another_law_is_not():
    rng = np.random.default_rng(6)
    sample = judge(SCHEMA, 1, REAL, REAL[rng.integers(0, len(REAL), len(REAL))], NO_TRENDS)
    assert {one.word for one in sample.measures} <= {"good", "not known"}
    assert "Every measure is near" in sample.words
    for one in sample.measures:
        if one.name in ("columns", "pairs", "sets", "groups"):
            assert one.floor / 2 < one.value < 2 * one.floor
    other = judge(SCHEMA, 1, REAL, shuffled(REAL), NO_TRENDS)
    assert {one.name for one in other.measures if one.word in ("poor", "unfit")} >= {
        "learning",
        "sets",
        "rows",
    }
    assert all(one.value > 3 * one.floor for one in other.measures if one.name in ("pairs", "sets", "rows"))
    assert other.measures[0].value == 0, "its single columns are the true ones"
    assert "The weakest: " in other.words
    few = judge(SCHEMA, 1, REAL, REAL, dataclasses.replace(NO_TRENDS, changes=4, wrong=0.5, floor=0.1))
    assert few.measures[6].word == "not known", "of four changes a share says nothing"


def test_words_have_the_limits_of_verdicts_and_none_is_worse_than_two_samples():
    def word(value: float, floor: float = 0.0) -> str:
        return Measure("m", "", "", value, floor, 0.0, "").word

    assert [word(x) for x in (0.05, 0.051, 0.15, 0.3, 0.31)] == ["good", "usable", "usable", "poor", "unfit"]
    assert word(0.3, floor=0.3) == "good"
    assert word(0.31, floor=0.3) == "unfit"
    assert word(math.nan) == "not known"
    assert word(0.2, floor=math.nan) == "poor"


def test_where_two_real_samples_are_unfit_there_are_too_few_records_to_tell():
    few = Measure("changes", "change over time", "", 0.383, 0.32, math.nan, "", "changes over time")
    red = Measure("pairs", "pairs", "of the table", 0.61, 0.023, 0.1, "", "counts of pairs")
    fine = Measure("columns", "columns", "of the table", 0.1, 0.02, 0.1, "", "counts of columns")
    assert [one.word for one in (few, red, fine)] == ["not known", "unfit", "usable"]
    words = verdict_words([few, red, fine])
    assert words.startswith("Fit for: counts of columns; not fit for: counts of pairs. What helps: ")
    assert "Of 2 measures: 1 usable, 1 unfit. Too few records for: change over time." in words
    assert "The weakest: pairs (61.0 % of the table; two samples of real records: 2.3 %)" in words
    assert "What helps: more records, a larger epsilon, or fewer steps." in words
    assert "What helps" not in verdict_words([few, fine])
    page = measures_table([few])
    assert "38.3 %" in page
    assert "two real samples 32.0\N{NO-BREAK SPACE}%: too few records to tell" in page
    assert "band over" not in page


def test_without_scikit_learn_or_an_offline_run_a_sentence_says_so(monkeypatch):
    def refused(table: np.ndarray, rows: int) -> np.ndarray:
        raise LimitError("a pair has too many cells", where="workload")

    monkeypatch.setattr(judgement.importlib.util, "find_spec", lambda name: None)
    found = judge(SCHEMA, 1, REAL, MADE, NO_TRENDS, refused)
    assert {one.name for one in found.measures if one.word == "not known"} >= {"rows", "learning", "changes"}
    assert any("pip install 'dpstream[evaluate]'" in text for text in found.missing)
    assert any("a pair has too many cells" in text for text in found.missing)
    with pytest.raises(ConfigError, match=r"pip install 'dpstream\[evaluate\]'"):
        check_target(SCHEMA, "paid")
    assert found.as_dict()["k_marginal_score"] == pytest.approx(FOUND.score)


def test_rows_that_break_a_constraint_are_counted():
    document = {
        "columns": {"age": {"type": "integer", "min": 0, "max": 3}, "job": {"type": "boolean"}},
        "constraints": {"forbidden": ["age = 0 and job"]},
    }
    schema = read_schema({"schema": document})
    made = np.array([[0, 1], [0, 1], [1, 1], [0, 0]], np.int32)
    ((words, many),) = broken_rules(schema, made).items()
    assert many == 2
    assert "age" in words
    assert list(broken_rules(schema, made[2:]).values()) == [0]
    assert broken_rules(SCHEMA, REAL) == {}


@pytest.mark.parametrize(("epsilon", "near"), [("100", True), ("1/20", False)])
def test_the_offline_run_has_the_budget_of_the_stream(tmp_path, epsilon, near):
    config = write_run(tmp_path / "s", typical(6), epsilon=epsilon)
    run(config)
    found, again = (evaluate_run(config).judgement for _ in range(2))
    assert found is not None
    assert again is not None
    assert measure_rows(found.measures) == measure_rows(again.measures), "an evaluation can be repeated"
    columns = found.measures[0]
    assert (columns.ceiling < 0.05) == near
    without = evaluate_run(config, ceiling=False).judgement
    assert without is not None
    assert all(math.isnan(one.ceiling) for one in without.measures)
    assert [len(measure_headings(one.measures)) for one in (found, without)] == [5, 4]
    assert evaluate_run(config, judged=False).judgement is None


def test_panels_are_held_against_two_samples_of_people():
    found = [
        PanelError(3, "often", 130.0, 100.0, 20.0, 1000),
        PanelError(4, "often", 160.0, 200.0, 20.0, 1000),
    ]
    (one,) = panel_measures([*found])
    assert one.value == pytest.approx(math.sqrt((30**2 + 40**2) / 2) / 150)
    rng = np.random.default_rng(8)
    true = np.array([100.0, 200.0]) / 1000
    apart = rng.binomial(1000, true, (20_000, 2)) - rng.binomial(1000, true, (20_000, 2))
    assert one.floor == pytest.approx(math.sqrt((apart.astype(float) ** 2).mean()) / 150, rel=0.03)
    assert one.word == "poor"
    (never,) = panel_measures([PanelError(3, "never", 5.0, 0.0, 20.0, 1000)])
    assert never.word == "not known"


def test_points_are_held_against_points_that_are_spread_evenly():
    cells = tuple(CellError(depth, 2**depth, 1.0, depth / 100) for depth in range(1, 4))
    step = PointStep(1, None, 9, 9, 3, 0.02, 0.02, 0.02, "exact", 0.1, cells)
    found = point_measures(PointEvaluation("s", "g", (step,), 1, (), 0.01, cells[:2] + cells[:1]))
    assert [(one.name, one.value, one.floor) for one in found] == [
        ("distance", pytest.approx(0.2), pytest.approx(0.1)),
        ("cells 2", 0.02, 0.02),
    ]


def test_the_page_says_first_that_it_is_private_and_explains_each_short_name_once(finished):
    page = evaluation_page(result_of(evaluate_run(finished)))
    body = page[page.index("<body") :]
    assert (
        body.index(LABEL) < body.index("<h1>") < body.index('class="lead"') < body.index('class="verdicts"')
    )
    words = re.sub(r"<[^>]+>", "", body)
    for short, said in (
        ("(TV)", "total variation (TV)"),
        ("(pMSE)", "propensity score mean-squared error (pMSE)"),
        ("TSTR", "train on synthetic, test on real: TSTR"),
    ):
        assert words.count(short) == 1
        assert said in words
    for name in ("AvgWE", "RelWEFloor", "MaxL1"):
        assert name not in words
    assert not re.search(r"(?:src|href)=.(?!#)", page), "nothing is loaded"
    assert len(page.encode()) < 400_000
