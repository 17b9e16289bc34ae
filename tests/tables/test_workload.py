"""Workloads, and tables of present records."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpstream import Workload
from dpstream.core.errors import ConfigError, DataError, LimitError
from dpstream.core.schema import Domain
from dpstream.core.tables import KeyedChanges, PresentBatch, PresentTable, PresentView, count_marginals

DOMAIN = Domain(("zip", "paid", "rent", "const"), (29, 2, 4, 1))
SMALL = Domain(("a", "b", "c"), (2, 3, 4))


def test_all_k_way() -> None:
    pairs = Workload.parse(DOMAIN, "all-2-way")
    assert len(pairs) == 6
    assert pairs == Workload.all_k_way(DOMAIN, 2)
    assert pairs.cells == 29 * 2 + 29 * 4 + 29 + 8 + 2 + 4
    assert set(pairs.weights) == {Fraction(1)}
    assert Workload.all_k_way(DOMAIN, 4).cliques == ((0, 1, 2, 3),)


def test_chosen_tables_with_exact_weights() -> None:
    spec = [
        ["rent", "zip"],
        {"columns": ["paid"], "weight": "1/2"},
        {"columns": ["paid", "zip"], "weight": 0.1},
        {"columns": ["const"], "weight": Decimal("0.5")},
    ]
    workload = Workload.parse(DOMAIN, spec)
    assert workload.cliques == ((0, 2), (1,), (0, 1), (3,))
    assert workload.weights == (Fraction(1), Fraction(1, 2), Fraction(1, 10), Fraction(1, 2))


@given(
    st.lists(st.sets(st.sampled_from(DOMAIN.names), min_size=1), min_size=1, unique_by=frozenset), st.data()
)
def test_a_workload_survives_its_written_form(tables: list[set[str]], data: st.DataObject) -> None:
    weights = [data.draw(st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6)) for _ in tables]
    workload = Workload.of(DOMAIN, [sorted(table) for table in tables], weights)
    assert Workload.parse(DOMAIN, workload.as_spec()) == workload
    for short in (workload, *(Workload.all_k_way(SMALL, k) for k in (1, 2, 3))):
        assert Workload.parse(short.domain, short.as_option()) == short


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("all-5-way", "needs 5 columns and the domain has 4 (allowed: all-1-way to all-4-way)"),
        ("all-0-way", "needs 0 columns"),
        ("all-two-way", "unknown workload 'all-two-way'"),
        ([], "tables are missing"),
        (7, "expected a workload"),
        ([["zip"], ["zip", "colour"]], "workload, table 2: unknown column 'colour' (allowed: zip, paid"),
        ([["zip", "zip"]], "table 1: a column occurs twice"),
        ([["zip", "paid"], ["paid", "zip"]], "the table 'zip x paid' occurs twice"),
        (["zip"], "table 1: expected column names"),
        (
            [{"columns": ["zip"], "wieght": 2}],
            "table 1: unknown key 'wieght' (allowed: columns, weight; or pairs_with, weight)",
        ),
        ([{"weight": 2}], "key 'columns' missing"),
        ([["zip"], {"pairs_with": []}], "table 2: expected column names"),
        ([["zip"], {"pairs_with": ["x"]}], "unknown column 'x'"),
        ([["zip"], {"pairs_with": ["zip", "zip"]}], "a column occurs twice"),
        ([["zip"], {"pairs_with": ["zip"], "columns": ["paid"]}], "unknown key 'columns' beside pairs_with"),
        ([["zip"], {"pairs_with": ["zip"], "weight": "much"}], "weight 'much': expected a number"),
        ([["zip"], "all-9-way"], "all-9-way needs 9 columns"),
        ([["zip"], "some"], "table 2: expected column names"),
    ],
)
def test_unusable_specifications(spec: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Workload.parse(DOMAIN, spec)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "weight",
    [0, -1, "0", "-1/2", "x", "1/0", float("nan"), float("inf"), True, None, 10**9, "1/10000019", [1]],
)
def test_unusable_weights(weight: Any) -> None:
    with pytest.raises(ConfigError, match=r"unusable weight|weight .*: expected"):
        Workload.parse(DOMAIN, [{"columns": ["zip"], "weight": weight}])


def test_one_column_points_to_all_1_way() -> None:
    single = Domain(("zip",), (29,))
    with pytest.raises(ConfigError, match=r"needs 2 columns and the domain has 1 \(allowed: all-1-way\)"):
        Workload.parse(single, "all-2-way")
    assert Workload.parse(single, "all-1-way").cliques == ((0,),)
    with pytest.raises(ConfigError, match="a column has no pairs"):
        Workload.parse(single, [{"pairs_with": ["zip"]}])


def test_enormous_workloads_are_refused_before_they_are_listed() -> None:
    wide = Domain(tuple(f"c{i}" for i in range(60)), (2,) * 60)
    with pytest.raises(LimitError, match="75394027566 tables"):
        Workload.parse(wide, "all-10-way")
    deep = Domain(("a", "b"), (10**6, 10**6))
    with pytest.raises(LimitError, match="1000000000000 cells"):
        Workload.parse(deep, "all-2-way")


def test_positions_are_checked_too() -> None:
    for clique in ((1, 0), (0, 0), (4,), (-1,), ()):
        with pytest.raises(ConfigError, match="expected a table"):
            Workload(DOMAIN, (clique,), (Fraction(1),))
    with pytest.raises(ConfigError, match="unusable weight"):
        Workload(DOMAIN, ((0,),), (1.0,))
    with pytest.raises(ConfigError, match="differ in number"):
        Workload.of(DOMAIN, [["zip"]], [1, 2])


def test_groups_of_pairs_and_weights() -> None:
    workload = Workload.parse(
        SMALL,
        [["b", "a"], {"pairs_with": ["c", "a"], "weight": 2}, "all-1-way", {"columns": ["b"], "weight": 3}],
    )
    assert workload.labels == ("a x b", "a x c", "b x c", "a", "b", "c")
    assert workload.weights == tuple(map(Fraction, (1, 2, 2, 1, 3, 1)))
    option = workload.as_option()
    assert option == [
        {"columns": ["a", "b"], "weight": "1"},
        {"pairs_with": ["a", "c"], "weight": "2"},
        "all-1-way",
        {"columns": ["b"], "weight": "3"},
    ]
    again = Workload.parse(SMALL, option)
    assert again == workload
    assert again.as_option() == option
    assert Workload.all_k_way(SMALL, 3).as_option() == "all-3-way"
    # Groups that together are everything, each with the weight 1, have the short name.
    assert Workload.parse(SMALL, [{"pairs_with": ["a", "b"]}]).as_option() == "all-2-way"
    # The last group sets the weight.
    twice = Workload.parse(SMALL, ["all-2-way", {"pairs_with": ["a"], "weight": "1/2"}])
    assert twice.weights == (Fraction(1, 2), Fraction(1, 2), Fraction(1))


# Present records against a dict of keys


DOMAIN_OF_PRESENT_TABLE = Domain(("zip", "paid"), (300, 2))
CLIQUES = [(), (0,), (1,), (0, 1)]


def changes(events: dict[tuple[int, int], tuple[int, int] | None]) -> KeyedChanges:
    keys = np.array(sorted(events), np.uint64).reshape(-1, 2)
    present = np.array([events[int(a), int(b)] is not None for a, b in keys], np.bool_)
    codes = np.array([events[int(a), int(b)] for a, b in keys[present]], np.int32).reshape(-1, 2)
    return KeyedChanges(keys, present, codes)


KEY = st.tuples(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]), st.integers(0, 3))
STEP = st.dictionaries(KEY, st.none() | st.tuples(st.integers(0, 299), st.integers(0, 1)), max_size=12)


@given(st.lists(STEP, max_size=8))
def test_a_table_is_the_dict_of_its_keys(steps: list[dict[tuple[int, int], tuple[int, int] | None]]) -> None:
    table, known = (
        PresentTable.empty(DOMAIN_OF_PRESENT_TABLE),
        dict[tuple[int, int], tuple[int, tuple[int, int]]](),
    )
    for step, events in enumerate(steps, start=1):
        before, old = table, dict(known)
        table, departed = table.after(changes(events), step)
        left = []
        for key, value in events.items():
            if value is None:
                left += [known.pop(key)[0]] if key in known else []
            else:
                known[key] = (known[key][0] if key in known else step, value)
        assert sorted(departed.tolist()) == sorted(left)
        assert contents(table) == known
        assert contents(before) == old, "a step may not change the table that was committed"
        for after in range(step + 1):
            codes = np.array([v for f, v in known.values() if f > after], np.int32).reshape(-1, 2)
            expected = count_marginals(codes, DOMAIN_OF_PRESENT_TABLE, CLIQUES)
            view = PresentBatch(PresentView(table, departed)).present
            assert all(
                np.array_equal(a, b) for a, b in zip(view.count(CLIQUES, after), expected, strict=True)
            )


def contents(table: PresentTable) -> dict[tuple[int, int], tuple[int, tuple[int, int]]]:
    rows = zip(table.keys.tolist(), table.first.tolist(), table.codes.tolist(), strict=True)
    return {(a, b): (first, (zip_code, paid)) for (a, b), first, (zip_code, paid) in rows}


def test_what_does_not_fit_is_refused() -> None:
    table = PresentTable.empty(DOMAIN_OF_PRESENT_TABLE)
    twice = KeyedChanges(np.ones((2, 2), np.uint64), np.zeros(2, np.bool_), np.zeros((0, 2), np.int32))
    with pytest.raises(DataError, match="ascend"):
        table.after(twice, 1)
    with pytest.raises(DataError):
        table.after(changes({(0, 0): (300, 0)}), 1)
    with pytest.raises(ConfigError, match="a mechanism of present records cannot have the"):
        PresentBatch(PresentView(table, np.zeros(0, np.int32))).count(CLIQUES)
    assert "hidden" in repr(PresentBatch(PresentView(table, np.zeros(0, np.int32))))
