"""When censuses are taken: the lemma on which the guarantee rests, for rules and for any other schedule."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dpstream.families.census.schedule import CensusSchedule, last_of, with_census

GAPS = st.one_of(st.none(), st.integers(1, 12))
LEVELS = st.one_of(st.none(), st.integers(1, 4))
SCHEDULES = st.builds(CensusSchedule, GAPS, LEVELS, ratio=st.integers(2, 5))


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
        assert schedule.levels is None or level < schedule.levels
        steps = [0, *(step for step, g in taken if g >= level)]
        for step, following in pairwise(steps):
            assert following - step >= schedule.gap * schedule.ratio**level
    assert max(g for _, g in taken) < (schedule.reachable(until) or 1 << 30)


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
