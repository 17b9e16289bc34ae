"""Printed amounts are never smaller than what is spent."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.privacy import ZCDP, Budget, PureDP, decimal_text, parse_unit


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1", "1"),
        ("1000", "1000"),
        ("0.5", "0.5"),
        ("10.50", "10.5"),
        ("1.0000049", "1.0000049"),
        ("123456.789", "123456.789"),
        ("0.00000012", "1.2e-7"),
        ("333333333/1000000000", "0.333333333"),
        ("2/3", "2/3 (at most 0.666667)"),
        ("1/3", "1/3 (at most 0.333334)"),
    ],
)
def test_texts(amount: str, text: str) -> None:
    assert decimal_text(Fraction(amount)) == text
    assert str(ZCDP.of(amount)) == f"rho = {text} (zCDP)"


def test_a_budget_is_not_rounded_down() -> None:
    assert str(PureDP.of("0.1234564")) == "epsilon = 0.1234564 (pure)"
    assert str(PureDP.of("1.0000001")) == "epsilon = 1.0000001 (pure)"


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=1000))
def test_never_less_than_it_is(amount: Fraction) -> None:
    text = decimal_text(amount)
    bound = re.search(r"at most (.*)\)", text)
    if bound is None:
        assert Fraction(text) == amount
    else:
        assert amount < Fraction(bound[1]) <= amount * (1 + Fraction(1, 10**5))
        assert Fraction(text.split(" ")[0]) == amount


@given(
    st.sampled_from([PureDP.of, ZCDP.of]),
    st.fractions(min_value=Fraction(1, 10**9), max_value=1000),
    st.lists(st.fractions(min_value=Fraction(1, 1000), max_value=1000), min_size=1, max_size=5),
)
def test_parts_of_a_split_add_up_in_proportion(
    budget: Callable[[Fraction], Budget], amount: Fraction, weights: list[Fraction]
) -> None:
    whole = budget(amount)
    parts = [part.epsilon if isinstance(part, PureDP) else part.rho for part in whole.split(*weights)]
    assert sum(parts) == amount
    assert [part * sum(weights) for part in parts] == [amount * weight for weight in weights]


def test_replace_says_which_numbers_are_public() -> None:
    words = parse_unit("event-replace").describe()
    assert words.endswith("the numbers of inserts and of deletes at every step are public")
