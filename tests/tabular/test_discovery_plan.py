"""What discovery costs a pooled stream, when its epochs end, and what its plan says of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from dpstream.core.contracts import StepPeriods
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness, User
from dpstream.core.schema import Domain
from dpstream.core.schema.pattern import Pattern
from dpstream.core.tables import Workload
from dpstream.families.tabular import Pooled
from dpstream.mechanisms.discovery_plan import Discoveries, Discovery, OpenColumn
from dpstream.stream.templates import words

CITY = OpenColumn("city", other=2, known=("a", "b", "rest"))
ZIP = OpenColumn("zip", other=0, known=("rest",), pattern=Pattern(("[0-9]{5}",)))
DOMAIN = Domain(("city", "zip", "paid"), (3, 1, 2))
DISCOVERY = Discovery((CITY, ZIP), delta=Fraction(1, 10**9), year=52)
RECIPE = Pooled(Workload.all_k_way(DOMAIN, 2), number=StepPeriods(3), discovery=DISCOVERY)


@pytest.mark.parametrize("budget", [PureDP(1), ZCDP("1/8")])
@pytest.mark.parametrize("unit", [Event(), Event("replace"), User(3, cut_share=Fraction(0))])
def test_a_tenth_pays_for_all_columns_and_the_rest_for_all_else(budget, unit) -> None:
    plan = replace(RECIPE, headline=(("city",),)).calibrate(budget, unit)
    costs = {part.name: part.total / budget.amount for part in plan.all_parts()}
    assert sum(costs.values()) == 1
    assert costs["discover"] == (1 - getattr(unit, "cut_share", 0)) * Fraction(1, 10)
    assert costs["headline"] <= Fraction(9, 10) / 5
    city, zips = plan.discovery.thresholds["city"], plan.discovery.thresholds["zip"]
    assert city.budget == budget.scaled(Fraction(1, 20)) == zips.budget
    # Only one column needs the delta.
    assert (city.delta, zips.universe, plan.delta) == (Fraction(1, 10**9), 10**5, Fraction(1, 10**9))
    both = replace(DISCOVERY, columns=(CITY, replace(CITY, name="paid")))
    halves = replace(RECIPE, discovery=both).calibrate(budget, unit).discovery.thresholds
    assert [law.delta for law in halves.values()] == [Fraction(1, 2 * 10**9)] * 2


def test_without_discovery_nothing_changes() -> None:
    plan = replace(RECIPE, discovery=None).calibrate(epsilon=1)
    assert plan.delta == 0
    assert "discovery" not in plan.options()
    assert "discovery" not in plan.facts()
    assert "(pure)" in str(plan)
    assert "epsilon = 1, delta = 1e-9" in str(RECIPE.calibrate(epsilon=1))


def test_epochs_grow_up_to_a_year_and_end_at_common_borders() -> None:
    own = Discoveries(DISCOVERY, PureDP(1), Event())
    assert list(own.ends(range(1, 200))) == [1, 3, 9, 27, 79, 131, 183]
    always = Discoveries(replace(DISCOVERY, year=None), PureDP(1), Event())
    assert list(always.ends(range(1, 1100)))[-3:] == [81, 243, 729]
    assert list(own.ends(range(5, 200, 5))) == [5, 15, 45, 100, 155]
    plan = replace(RECIPE, headline=(("city",),), periods=StepPeriods(4)).calibrate(epsilon=1, horizon=500)
    ends = plan.facts()["discovery"]["ends"]
    borders, border = [], 0
    while border < 500:
        border = plan.epochs.after(border)
        borders.append(border)
    assert ends[0] == 4
    assert all(end in borders and end % 4 == 0 for end in ends)
    assert all(later - end >= min(2 * end, 52) for end, later in pairwise(ends))


def test_a_plan_says_how_often_a_value_must_occur() -> None:
    plan = RECIPE.calibrate(epsilon=5)
    text = words(plan, "further", **plan.facts())
    assert "city enters with probability 1/2 where 82 records" in text
    assert "(0.99: 98)" in text
    assert "published as it stands" in text
    assert "discover" in {part.name for part in plan.parts()}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Discovery((CITY,)), "delta is missing"),
        (lambda: Discovery((ZIP,), delta=Fraction(1, 10**9)), "delta has no use"),
        (lambda: Discovery((), delta=Fraction(1, 10**9)), "column is missing"),
        (lambda: replace(DISCOVERY, share=Fraction(1)), "share"),
        (lambda: replace(DISCOVERY, at_most=0), "at_most"),
        (lambda: replace(RECIPE, deletions=True), "records leave"),
    ],
)
def test_bad_options_are_refused(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_at_most_counts_all_values_of_a_column() -> None:
    """By their noisy counts; values that are there are not found again."""
    own = Discoveries(replace(DISCOVERY, at_most=6), PureDP(1000), Event())
    counts = [(f"v{n}", 100 * n) for n in range(1, 9)] + [("a", 10**6)]
    entered = own.rule("city", ["v8"]).publish(counts, Randomness.seeded(1))
    assert [value for value, _ in entered] == ["v6", "v7"]
    assert own.rule("city", ["x", "y", "z"]).publish(counts, Randomness.seeded(1)) == []
