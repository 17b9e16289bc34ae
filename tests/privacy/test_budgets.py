"""Amounts of budgets, and conversions between them: exact, and rounded towards more noise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import BudgetError, ConfigError
from dpstream.core.privacy import (
    ZCDP,
    Budget,
    ExponentialMechanism,
    PureDP,
    approximate_to_zcdp,
    decimal_text,
    group,
    parse_unit,
    pure_to_zcdp,
    replace_from_add_remove,
    zcdp_to_delta,
    zcdp_to_epsilon,
)


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


# Conversions: against the Gaussian mechanism's exact profile, OpenDP, and their own inverses


RHOS = ["1/1000", "1/50", "1/2", "3", "40"]


def exact_gaussian_delta(rho: float, epsilon: float) -> float:
    """Delta of the continuous Gaussian mechanism with this rho (Balle, Wang 2018, Theorem 8)."""
    from scipy import stats

    shift = math.sqrt(2 * rho)
    first = stats.norm.logcdf(shift / 2 - epsilon / shift)
    second = epsilon + stats.norm.logcdf(-shift / 2 - epsilon / shift)
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("factor", [0.1, 1.0, 2.0, 5.0])
def test_delta_is_above_the_gaussians_and_the_best_order(rho: str, factor: float) -> None:
    budget = ZCDP.of(rho)
    amount = float(budget.rho)
    epsilon = amount + factor * math.sqrt(amount)
    found = zcdp_to_delta(budget, epsilon)
    assert found >= exact_gaussian_delta(amount, epsilon)
    a = np.exp(np.linspace(-12, 18, 200_001))  # alpha - 1
    bound = a * ((a + 1) * amount - epsilon) - (a + 1) * np.log1p(1 / a) - np.log(a)
    best = min(1.0, math.exp(float(bound.min())))
    assert best * (1 - 1e-6) <= found <= best * (1 + 1e-6) or found == best == 1.0
    # A bound with 2/3 of the loss would be caught by the Gaussian's own profile.
    if found < 0.01:
        assert zcdp_to_delta(budget.scaled(Fraction(4, 9)), epsilon) < exact_gaussian_delta(amount, epsilon)


@pytest.mark.parametrize("rho", ["1/50", "1/2", "2"])
@pytest.mark.parametrize("delta", ["1e-5", "1e-9"])
def test_epsilon_against_opendp(rho: str, delta: str) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    budget = ZCDP.of(rho)
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    scale = math.sqrt(1 / (2 * float(budget.rho)))
    curve = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale)).map(1)
    theirs = curve.epsilon(float(delta))
    assert zcdp_to_epsilon(budget, delta) == pytest.approx(theirs, rel=1e-4)


@settings(deadline=None, max_examples=60)
@given(epsilon=st.floats(min_value=1e-3, max_value=200), exponent=st.floats(min_value=-30, max_value=-0.5))
def test_inverses_are_on_the_safe_side(epsilon: float, exponent: float) -> None:
    delta = 10**exponent
    budget = approximate_to_zcdp(epsilon, delta)
    assert zcdp_to_delta(budget, epsilon) <= delta
    assert zcdp_to_delta(budget.scaled(Fraction(100001, 100000)), epsilon) > delta
    back = zcdp_to_epsilon(budget, delta)
    assert back <= epsilon * (1 + 1e-9)
    assert zcdp_to_delta(budget, back) <= delta


def test_pure_to_zcdp_holds_for_a_pure_mechanism() -> None:
    p = ExponentialMechanism(Fraction(2), 1).probabilities([0, 1], 1)
    q = p[::-1]
    loss = float(np.log(p / q).max())  # randomised response: pure with this loss
    rho = loss**2 / 2
    for alpha in (1.001, 2.0, 5.0, 50.0):
        divergence = math.log(float((p**alpha * q ** (1 - alpha)).sum())) / (alpha - 1)
        assert divergence <= alpha * rho * (1 + 1e-9)


def test_groups_and_relations() -> None:
    assert pure_to_zcdp(PureDP.of("0.1")) == ZCDP(Fraction(1, 200))
    assert group(PureDP.of("1/3"), 3) == PureDP(Fraction(1))
    assert group(ZCDP.of("1/3"), 3) == ZCDP(Fraction(3))
    assert replace_from_add_remove(PureDP.of(1)) == PureDP(Fraction(2))
    assert replace_from_add_remove(ZCDP.of(1)) == ZCDP(Fraction(4))
    bad: list[Any] = [0, -1, 1.5, True]
    for size in bad:
        with pytest.raises(ConfigError):
            group(PureDP.of(1), size)


@pytest.mark.parametrize("delta", [0, 1, 2, -1, math.nan, "x", "1e-400"])
def test_bad_deltas_are_refused(delta: Any) -> None:
    for convert in (lambda: zcdp_to_epsilon(ZCDP.of(1), delta), lambda: approximate_to_zcdp(1, delta)):
        with pytest.raises(BudgetError):
            convert()


def test_extremes_stay_on_the_safe_side() -> None:
    assert zcdp_to_delta(ZCDP.of("1e-9"), 1000) > 0  # far below all floats, yet not reported as 0
    assert zcdp_to_delta(ZCDP.of(500000), "1e-300") == 1.0
    assert zcdp_to_epsilon(ZCDP.of("1e-12"), 0.5) == 0.0
    assert zcdp_to_epsilon(ZCDP.of(500000), "1e-300") > 500000
    assert approximate_to_zcdp("1e-6", "1e-15").rho > 0
