"""What one stay can cost: every stay under every schedule, whole transcripts, and what must not change anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from census_stays import SMALL, Stay, batches, crowd, releases, scheduled

from dpstream.core.privacy import PureDP, Randomness, Record
from dpstream.core.tables import Workload
from dpstream.families.census import Census, CensusPlan, totals_filter
from dpstream.families.census.cohorts import levels_of_cohorts
from dpstream.families.census.schedule import last_of
from dpstream.tools.audit.transcripts import Subject
from dpstream_lab.audits import census_audit
from dpstream_lab.audits.census_audit import (
    all_stays,
    audit_census,
    counted_plan,
    neighbours,
    tables,
    transcript_plan,
)
from dpstream_lab.audits.subjects import transcripts_of

STEPS = 60


@pytest.mark.parametrize("levels", [1, 2])
def test_every_stay_pays_the_budget_at_most_under_every_schedule(levels: int) -> None:
    """All stays of up to 60 steps, by windows and homes of the schedule alone; the audit compares what passes the door,
    for fewer schedules."""
    stays = np.array([(a, STEPS + 1 if b is None else b) for a, b in all_stays(STEPS)])
    comes, leaves = stays.T
    for gap in range(1, 10):
        for ratio in (2, 4):
            plan = counted_plan(PureDP.of(1), gap, ratio, levels)
            state, homes, taken = plan.start(), list[np.ndarray](), list[tuple[int, int, int]]()
            for step, batch in enumerate(tables([], STEPS), start=1):
                level = plan.paced(state.gap).level(step, state.last)
                for own in range(0 if level is None else level + 1):
                    taken.append((step, own, last_of(state.last, own)))
                held = levels_of_cohorts(state.cohorts, np.arange(1, STEPS + 1, dtype=np.int32))
                assert len(held) == max((cohort.high for cohort in state.cohorts), default=0)
                homes.append(np.concatenate([[-1], held, np.full(STEPS - len(held), -1)]))
                plan.step(state, batch, Randomness.seeded("none"))
            read = np.zeros((max(g for _, g, _ in taken) + 1, len(stays)), np.int64)
            for step, level, after in taken:
                read[level] += (comes > after) & (comes <= step) & (leaves > step)
            assert read.max() == 1
            left = np.array([-1 if b > STEPS else homes[b - 1][a] for a, b in stays.tolist()])
            last = np.where(read.any(axis=0), len(read) - 1 - read[::-1].argmax(axis=0), -1)
            assert ((left == -1) | (left == last)).all(), "counted where it was counted last"
            amounts = [plan.amounts.of_level(g).amount for g in range(len(read))]
            departed = plan.amounts.of_departures.amount
            most = max(
                sum(
                    (amounts[g] for g, times in enumerate(one) if times),
                    departed if own >= 0 else Fraction(0),
                )
                for one, own in {(tuple(r), o) for r, o in zip(read.T.tolist(), left.tolist(), strict=True)}
            )
            assert most == 1


def test_the_audit_finds_the_budget_and_every_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """For fewer steps and plans, one fault of the schedule, and one transcript of each pair; ``make audit`` has all.

    Gaps follow what is learnt, however right the guess may be."""
    monkeypatch.setattr(totals_filter, "_DECISIVE", 1.0)
    plan = transcript_plan(PureDP.of(2), Record())
    state = plan.start()
    for batch in neighbours(plan, 1, 6, 60)[0]:
        plan.step(state, batch, Randomness.seeded("gaps"))
    assert state.gap not in (None, plan.schedule.gap)
    broken = census_audit._broken_stays

    def subjects() -> Iterator[Subject]:
        of = ", epsilon = 2 (pure), record,"
        return (one for one in census_audit.census_subjects() if one.control or of in one.name)

    monkeypatch.setitem(census_audit._GRIDS, "short", (12, (1, 3), (2,), (1, 2)))
    monkeypatch.setattr(census_audit, "_broken_stays", lambda told: islice(broken(told), 1))
    monkeypatch.setattr(census_audit, "_TRANSCRIPTS", transcripts_of(subjects, 1, 1))
    findings = list(audit_census("short", Randomness.seeded("audit"), lambda _: None))
    wrong = [(one.subject, one.found) for one in findings if not one.passed]
    assert wrong == []
    assert sum(one.control for one in findings) == 8
    exact = [one for one in findings if "nothing selected" in one.subject or "all stays" in one.subject]
    assert len(exact) == 3
    exact += [
        one for one in findings if "departures counted between censuses" in one.subject and not one.control
    ]
    assert len(exact) == 6
    for one in exact:
        assert one.found == pytest.approx(one.claimed), one.subject  # no budget is left unused


PLAN = Census(Workload.all_k_way(SMALL, 2), turnover=12, iterations=5).calibrate(epsilon=1)


def bits(plan: CensusPlan, stays: list[Stay], steps: int) -> list[str]:
    found = []
    for release in releases(plan, batches(stays, steps), "bits"):
        packed = release.pack()
        arrays = {name: own.tobytes().hex() for name, own in packed.arrays.items()}
        found.append(json.dumps([packed.meta, arrays], sort_keys=True))
    return found


def test_who_comes_and_goes_between_two_censuses_changes_no_bit() -> None:
    assert PLAN.schedule.censuses(35, 38) == [(35, 0), (38, 0)]
    stays = crowd(5, 40)
    passing = [Stay(10**6 + k, 36, 37, {36: (1, 2, 1)}) for k in range(30)]
    assert bits(PLAN, stays, 40) == bits(PLAN, [*stays, *passing], 40)
    counted = [Stay(10**6 + k, 36, 39, {36: (1, 2, 1)}) for k in range(30)]
    assert bits(PLAN, stays, 40) != bits(PLAN, [*stays, *counted], 40)


def test_order_and_names_of_keys_change_no_bit() -> None:
    stays = crowd(6, 20)
    renamed = [Stay(7919 * one.key % 104729, one.comes, one.leaves, one.values) for one in reversed(stays)]
    assert bits(PLAN, stays, 20) == bits(PLAN, renamed, 20)


def test_the_state_does_not_grow_with_steps() -> None:
    recipe = Census(Workload.all_k_way(SMALL, 1), turnover=3, iterations=2)
    plan = scheduled(recipe.calibrate(epsilon=1), ratio=2)
    state, randomness, sizes = plan.start(), Randomness.seeded("flat"), []
    for batch in batches(crowd(7, 300, size=8, stay=2.0, each=3.0), 300):
        plan.step(state, batch, randomness)
        packed = plan.pack_state(state)
        sizes.append(sum(own.nbytes for own in packed.arrays.values()) + len(json.dumps(packed.meta)))
    # What is open differs within a cycle of the two levels, not from cycle to cycle.
    assert max(sizes[200:]) <= 1.05 * max(sizes[50:150])
