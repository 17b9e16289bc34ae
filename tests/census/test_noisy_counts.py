"""A census publishes what it drew, all of it and nothing else; it is about the records that it says it is about."""

from __future__ import annotations

import numpy as np
import pytest
from door_runs import drawn_and_published, only_drawn

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import PureDP, Randomness, Record
from dpstream.core.schema.domain import Domain
from dpstream_lab.audits.census_audit import ChosenTimes, KeyedStay, keyed_ends, rare_times, transcript_plan

DOMAIN = Domain(("a", "b", "c"), (2, 3, 2))
STEPS = 9


def stays(many: int) -> list[KeyedStay]:
    generator = np.random.default_rng(3)
    found = []
    for _ in range(many):
        comes = int(generator.integers(1, STEPS))
        values = tuple(int(generator.integers(0, size)) for size in DOMAIN.sizes)
        leaves = comes + 1 + int(generator.integers(0, STEPS))
        found.append(KeyedStay(comes, leaves if leaves <= STEPS else None, {comes: values}))
    return found


def test_where_presence_is_public_only_censuses_are_published() -> None:
    plan = transcript_plan(PureDP.of(2), Record("replace"))
    drawn, counts = drawn_and_published(plan, keyed_ends(stays(80), STEPS, DOMAIN), Randomness.seeded(1))
    assert only_drawn(drawn, counts)
    assert {one.counted for one in counts} == {"present"}


def exact(one: NoisyCounts, known: list[KeyedStay], since: int) -> np.ndarray:
    """What a query says of the records themselves; ``since``: the census before."""
    assert one.as_of is not None
    assert one.columns is not None
    own = [stay for stay in known if one.first <= stay.comes <= one.last]
    if one.counted == "left":
        gone = [stay for stay in own if stay.leaves is not None and since < stay.leaves <= one.as_of]
        return np.array([len(gone)])
    positions = [DOMAIN.names.index(name) for name in one.columns]
    table = np.zeros([DOMAIN.sizes[i] for i in positions], dtype=np.int64)
    for stay in own:
        values = stay.at(one.as_of)
        if values is not None:
            table[tuple(values[i] for i in positions)] += 1
    return table.ravel()


@pytest.mark.parametrize("times", [None, rare_times(STEPS)])
def test_windows_and_steps_are_those_of_the_records_that_were_counted(times: ChosenTimes | None) -> None:
    """Nearly without noise, so that a wrong window shows; with counts of departures between censuses, too."""
    known = stays(300)
    plan = transcript_plan(PureDP.of(900), Record(), times)
    _, counts = drawn_and_published(plan, keyed_ends(known, STEPS, DOMAIN), Randomness.seeded(1))
    censuses = sorted({one.as_of for one in counts if one.as_of is not None})
    assert len(censuses) > 3
    for one in counts:
        before = max((step for step in censuses if step < (one.as_of or 0)), default=0)
        assert np.abs(one.values - exact(one, known, before)).max() <= 2, one.draw
    assert len({one.draw.split(", ")[1] for one in counts}) == 4  # censuses and departures of two levels
