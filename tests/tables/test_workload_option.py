"""A workload's short form reads back as the same workload."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))


@pytest.mark.parametrize(
    ("workload", "short"),
    [
        (Workload.all_k_way(DOMAIN, 1), "all-1-way"),
        (Workload.all_k_way(DOMAIN, 2), "all-2-way"),
        (Workload.all_k_way(DOMAIN, 3), "all-3-way"),
        (Workload(DOMAIN, ((0, 1), (0, 2)), (Fraction(1), Fraction(1))), None),
        (Workload(DOMAIN, ((0, 1), (0, 2), (1, 2)), (Fraction(1), Fraction(2), Fraction(1))), None),
        (Workload(DOMAIN, ((0,), (0, 1), (0, 1, 2)), (Fraction(1),) * 3), None),
    ],
)
def test_the_short_form_reads_back(workload, short):
    option = workload.as_option()
    assert option == (workload.as_spec() if short is None else short)
    assert Workload.parse(DOMAIN, option) == workload


def test_groups_of_pairs_and_weights() -> None:
    workload = Workload.parse(
        DOMAIN,
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
    again = Workload.parse(DOMAIN, option)
    assert again == workload
    assert again.as_option() == option
    # Groups that together are everything, each with the weight 1, have the short name.
    assert Workload.parse(DOMAIN, [{"pairs_with": ["a", "b"]}]).as_option() == "all-2-way"
    # The last group sets the weight.
    twice = Workload.parse(DOMAIN, ["all-2-way", {"pairs_with": ["a"], "weight": "1/2"}])
    assert twice.weights == (Fraction(1, 2), Fraction(1, 2), Fraction(1))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"pairs_with": []}, "not a list of column names"),
        ({"pairs_with": "a"}, "not a list of column names"),
        ({"pairs_with": ["x"]}, "unknown column 'x'"),
        ({"pairs_with": ["a", "a"]}, "a column occurs twice"),
        ({"pairs_with": ["a"], "columns": ["b"]}, "unknown key 'columns' beside pairs_with"),
        ({"pairs_with": ["a"], "weight": 0}, "the weight 0 is not usable"),
        ({"pairs_with": ["a"], "weight": "much"}, "the weight 'much' is not a number"),
        ("all-9-way", "all-9-way needs 9 columns"),
        ("some", "table 2: not a list of column names"),
        (["b", "a"], "the table 'a x b' occurs twice"),
    ],
)
def test_groups_that_cannot_be_read_are_refused_in_one_sentence(entry: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Workload.parse(DOMAIN, [["a", "b"], entry])
    assert "\n" not in str(caught.value)


def test_one_column_has_no_pairs() -> None:
    with pytest.raises(ConfigError, match="one column has no pairs"):
        Workload.parse(Domain(("a",), (2,)), [{"pairs_with": ["a"]}])
