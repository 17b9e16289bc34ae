"""The chooser: the smallest predicted error, by brute force; a reason for every counter; what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.counters import COUNTER_NAMES, BLTCounter, best, counter_by_name
from dpstream.core.errors import BudgetError, ConfigError, LimitError
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP

BUDGETS: list[Budget] = [PureDP.of(1), PureDP.of("0.05"), ZCDP.of("1/2")]


def errors(budget: Budget, horizon: int | None, ticks: int, unit: Event) -> dict[str, float]:
    """Every counter's error over all ticks, one by one."""
    found = {}
    for name in COUNTER_NAMES:
        try:
            known = ticks if horizon is None and name == "blt" else horizon
            counter = counter_by_name(name, horizon=known).calibrate(budget, unit)
            found[name] = math.sqrt(sum(counter.variance(t) for t in range(1, ticks + 1)) / ticks)
        except (BudgetError, ConfigError):
            continue
    return found


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(BUDGETS),
    st.one_of(st.none(), st.integers(1, 600)),
    st.integers(1, 600),
    st.sampled_from([Event(), Event("replace")]),
)
def test_the_choice_has_the_smallest_error(
    budget: Budget, horizon: int | None, ticks: int, unit: Event
) -> None:
    ticks = ticks if horizon is None else min(ticks, horizon)
    choice = best(budget, unit, horizon=horizon, expected_ticks=ticks)
    truth = errors(budget, horizon, ticks, unit)
    assert {one.name for one in choice.candidates if one.deviation is not None} == set(truth)
    # 1 % for names that come first, 2 % for sampling beyond 256 ticks.
    assert truth[choice.name] <= 1.03 * min(truth.values())
    for one in choice.candidates:
        if one.deviation is not None:
            assert one.deviation == pytest.approx(truth[one.name], rel=1e-12)
    counter = choice.recipe.calibrate(budget, unit)
    assert counter.horizon is None or counter.horizon == horizon


EPSILON, RHO = PureDP.of(1), ZCDP.of(1)
PICKED: dict[str, tuple[Budget, dict[str, Any]]] = {
    "simple": (EPSILON, {"expected_ticks": 8}),
    "block": (RHO, {"horizon": 100, "width": 10**7}),
    "unbounded-block": (RHO, {"width": 4 * 10**7}),
    "unbounded-block-closed": (EPSILON, {"width": 10**7}),
    "tree": (RHO, {"horizon": 1000, "width": 2 * 10**6}),
    "optimal-tree": (EPSILON, {"horizon": 100}),
    "optimal-epochs": (EPSILON, {}),
    "toeplitz": (RHO, {"horizon": 100}),
    "blt": (RHO, {}),
}
#: Kumar, Strohmer and Vershynin, and He, Vershynin and Zhu name the hybrid mechanism.
NAMED = {"hybrid"}


def test_every_counter_is_picked_or_a_paper_names_it() -> None:
    """Decision 0023."""
    assert set(COUNTER_NAMES) == set(PICKED) | NAMED
    assert {name: best(budget, **asked).name for name, (budget, asked) in PICKED.items()} == {
        name: name for name in PICKED
    }


def test_without_a_horizon_constants_are_for_the_expected_ticks() -> None:
    for ticks, constants in ((250, 1000), (1000, 1000), (5000, 10_000), (10**5, 10**6)):
        assert best(ZCDP.of("1/2"), expected_ticks=ticks).recipe == BLTCounter(constants)


def test_what_cannot_be_used_is_not_considered() -> None:
    pure = best(PureDP.of(1), expected_ticks=100)
    why = {one.name: one.why_not for one in pure.candidates}
    assert why["block"] == why["tree"] == "needs a horizon"
    assert why["toeplitz"] in ("for another kind of budget", "needs a horizon")
    assert why["blt"] == "for another kind of budget"
    wide = best(ZCDP.of("1/2"), horizon=1000, width=10**5, max_bytes=10**7)
    assert "MB" in next(one.why_not for one in wide.candidates if one.name == "toeplitz")
    assert wide.name != "toeplitz"
    with pytest.raises(LimitError, match="no usable counter: simple: its state would take"):
        best(PureDP.of(1), width=10**5, max_bytes=1)
    with pytest.raises(LimitError, match="noise beyond 64-bit sums"):
        best(PureDP.of("1e-12"))


def test_bad_numbers() -> None:
    one = PureDP.of(1)
    for arguments in (
        {"horizon": 0},
        {"expected_ticks": 0},
        {"expected_ticks": 2.5},
        {"width": 0},
        {"horizon": 5, "expected_ticks": 6},
    ):
        with pytest.raises(ConfigError):
            best(one, **arguments)  # type: ignore[arg-type]
    assert best(one, horizon=5).ticks == 5
    assert best(one).ticks == 250
