"""What a census promises: exact amounts, the same bits from the same noise, and a state that packs exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from census_stays import SMALL, Stay, batches, crowd, releases, scheduled
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.contracts import RecipeContext, build
from dpstream.core.errors import ConfigError, UnitError
from dpstream.core.privacy import Event, PureDP, Randomness, Record
from dpstream.core.tables import EncodedBatch, Workload
from dpstream.families.census import Census, CensusSchedule
from dpstream.families.census.census_report import accuracy_facts
from dpstream.families.census.schedule import last_of, with_census
from dpstream.project.keys import section_of
from dpstream.stream.identity import spent_per_step
from dpstream.stream.templates import words

PAIRS = Workload.all_k_way(SMALL, 2)
RECIPE = Census(PAIRS, turnover=6, iterations=5)


@pytest.mark.parametrize("budget", [{"epsilon": "1/3"}, {"rho": "1/7"}])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("horizon", [None, 1, 5, 11, 12, 48, 200])
def test_parts_add_up_to_the_budget_exactly(
    budget: dict[str, Any], relation: Any, horizon: int | None
) -> None:
    plan = RECIPE.calibrate(**budget, unit=Record(relation), horizon=horizon)
    assert spent_per_step(plan) == plan.budget.amount
    shares = [plan.amounts.of_level(g).amount for g in range(plan.schedule.levels)]
    # Nothing is kept for levels that cannot come.
    assert sum(shares, Fraction(0)) + plan.amounts.of_departures.amount == plan.budget.amount
    if relation == "replace":
        assert plan.amounts.of_departures.amount == 0


def test_records_that_stay_as_long_as_the_stream_are_counted_once() -> None:
    for turnover, horizon, levels in ((6, 6, 1), (6, 200, 2), ("none", None, 1), (6, None, 2)):
        plan = Census(PAIRS, turnover=turnover).calibrate(epsilon=1, horizon=horizon)
        assert plan.options()["levels"] == plan.schedule.levels == levels


def test_only_records_are_protected_and_only_present_ones_are_read() -> None:
    with pytest.raises(UnitError, match="cannot protect the unit 'event'"):
        RECIPE.calibrate(epsilon=1, unit=Event())
    plan = RECIPE.calibrate(epsilon=1)
    batch = EncodedBatch(SMALL, np.zeros((1, 3), np.int32))
    with pytest.raises(ConfigError, match="present"):
        plan.step(plan.start(), batch, Randomness.seeded(0))


@pytest.mark.parametrize("unit", [Record(), Record("replace")])
def test_a_stream_without_records_is_released_and_never_fails(unit: Record) -> None:
    plan = RECIPE.calibrate(epsilon=1, unit=unit)
    for stays in ([], [Stay(1, 15, 17, {15: (0, 0, 0)})]):
        assert len(list(releases(plan, batches(stays, 20), "census"))) == 20


@pytest.mark.parametrize("options", [{}, {"turnover": 3}, {"turnover": 12}])
def test_declared_public_presence_makes_every_number_of_records_exact(options: dict[str, Any]) -> None:
    plan = scheduled(replace(RECIPE, **options).calibrate(epsilon=1, unit=Record("replace")), ratio=2)
    ends = list(batches(crowd(3, 40), 40))
    for batch, release in zip(ends, releases(plan, ends, "public"), strict=True):
        assert release.total == len(batch.present.table)
        assert release.total_error == 0.0
        np.testing.assert_allclose(release.marginals([(0,)])[0].sum(), release.total)


def test_words_about_counts_follow_what_is_public() -> None:
    for unit, public in ((Record(), False), (Record("replace"), True)):
        plan = RECIPE.calibrate(epsilon=1, unit=unit)
        taken = plan.schedule.censuses(1, 40)
        lasts = [max(census for census, _ in taken if census <= step) for step in range(1, 40)]
        facts = [accuracy_facts(plan, step, [lasts[step - 1]], 1.0, None) for step in range(1, 40)]
        told = " ".join(words(plan, "accuracy", step=step, **one) for step, one in enumerate(facts, 1))
        assert ("arrivals and departures since are expected, not measured" in told) != public
        assert ("numbers of arrivals and departures since are public and exact" in told) == public


# The options of a census as a file says them.


def read(expected: Fraction | None = None, coming: int | None = None, **table: Any) -> Census:
    section = section_of("dpstream.toml", "mechanism", {"name": "census", **table})
    section.variant = "census"
    recipe: Census = build(
        section, Census, RecipeContext(SMALL, turnover=expected, budget=PureDP.of(1), records_per_step=coming)
    )
    return recipe


def test_a_file_says_the_turnover_or_what_it_expects() -> None:
    assert read(Fraction(12)).turnover == 12
    assert read(Fraction(12), turnover="5/2").turnover == Fraction(5, 2)
    assert read(turnover="none").turnover is None


def test_what_is_counted_and_measured_above_follows_what_a_file_expects() -> None:
    """Ten records that leave are less than noise; columns of 120 are."""
    for turnover, coming, every, columns in (
        (12, 5000, 1, True),
        (100, 100, 9, True),
        (12, 10, None, False),
        (12, None, None, False),
    ):
        plan = read(Fraction(turnover), coming).calibrate(epsilon=1)
        assert (plan.schedule.departures, bool(plan.upper[0])) == (every, columns)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "turnover"),
        ({"turnover": "often"}, "turnover"),
        ({"turnover": -1}, "turnover"),
        ({"turnover": 0}, "turnover"),
        ({"turnover": True}, "turnover"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        read(**table)
    assert "[mechanism]" in str(error.value)
    assert error.value.allowed


# Schedules


GAPS = st.one_of(st.none(), st.integers(1, 12))
SCHEDULES = st.builds(CensusSchedule, GAPS, st.integers(1, 4), ratio=st.integers(2, 5))


@given(SCHEDULES, st.integers(1, 400))
def test_the_first_step_is_a_census_and_none_is_later_than_allowed(
    schedule: CensusSchedule, until: int
) -> None:
    taken = schedule.censuses(1, until)
    assert taken[0] == (1, 0)
    for (step, _), (following, _) in pairwise(taken):
        most = following // 10 if schedule.gap is None else min(schedule.gap, following // 10)
        assert following - step <= max(1, most + 1)
        if schedule.gap is not None:
            assert following - step <= schedule.gap
    for level in {g for _, g in taken} - {0}:
        assert schedule.gap is not None
        assert level < schedule.levels
        steps = [0, *(step for step, g in taken if g >= level)]
        for step, following in pairwise(steps):
            assert following - step >= schedule.gap * schedule.ratio**level
    assert max(g for _, g in taken) < schedule.reachable(until)


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=30))
def test_a_record_is_in_at_most_one_census_of_each_level_whatever_the_schedule(
    levels: list[int | None],
) -> None:
    """Any steps, any levels: also a schedule that follows released values is one of these."""
    counted: dict[tuple[int, int], int] = {}
    last: list[int] = []
    for step, level in enumerate(levels, start=1):
        if level is None:
            continue
        for first in range(last_of(last, level) + 1, step + 1):
            counted[first, level] = counted.get((first, level), 0) + 1
        last = with_census(last, level, step)
    assert all(times == 1 for times in counted.values())


@given(SCHEDULES, st.integers(1, 300), st.integers(1, 300))
def test_all_ways_to_ask_for_censuses_agree(schedule: CensusSchedule, one: int, other: int) -> None:
    taken = schedule.censuses(1, max(one, other))
    last = schedule.censuses(1, one)[-1]
    following = schedule.after(last[0])
    assert [census for census in taken if census[0] <= one][-1] == last
    assert last[0] <= one < following
    assert [step for step, _ in schedule.censuses(last[0], following)] == [last[0], following]
    known: list[int] = []
    for step in range(1, one + 1):  # as a stream does it, step by step
        level = schedule.level(step, known)
        assert ([(step, level)] if level is not None else []) == schedule.censuses(step, step)
        known = known if level is None else with_census(known, level, step)
