"""Histories of people in a panel: where each is counted, and what each costs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from door_runs import run_loss
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.checks import certify
from dpstream.core.counters import COUNTER_NAMES, LinearMap, counter_by_name
from dpstream.core.errors import BudgetError
from dpstream.core.privacy import ZCDP, DiscreteGaussian, Event, Individual, Randomness
from dpstream.core.schema import Boolean, Schema
from dpstream.core.tables import EncodedReports
from dpstream.families.panel import PanelWindow, people
from dpstream.families.panel.cumulative import moved_loss, person_factor
from dpstream.families.panel.people import seat
from dpstream.tools.audit.controls import QuietNoise
from dpstream.tools.audit.door import as_it_is
from dpstream.tools.audit.transcripts import audit_subject
from dpstream_lab.audits.panel_audit import (
    broken_unpaired_counters,
    cumulative_plan,
    panel_run,
    panel_subjects,
    window_plan,
)

PERIODS = 4
SCHEMA = Schema((Boolean("poor", missing="absent"),))
ABSENT = 2
#: What each of up to eight people reports in each period; None: no report.
History = list[int | None]
histories = st.lists(
    st.lists(st.sampled_from([0, 1, None]), min_size=PERIODS, max_size=PERIODS), min_size=2, max_size=8
)


def batches(panel: dict[int, History]) -> Iterator[EncodedReports]:
    """One batch a period; a person's mark is unrelated to the order in which people come."""
    for period in range(PERIODS):
        here = {(37 * p) % 251: h[period] for p, h in panel.items() if h[period] is not None}
        marks = np.array([[mark] + [0] * 15 for mark in sorted(here)], np.uint8).reshape(-1, 16)
        codes = np.array([[here[mark]] for mark in sorted(here)], np.int32).reshape(-1, 1)
        yield EncodedReports(SCHEMA.domain, codes, marks)


def seen(panel: dict[int, History], relation: str) -> Counter[int]:
    """What reaches the noise: with a window of all periods, how many people have each whole history."""
    places = 10 if relation == "replace" else None
    plan = PanelWindow(SCHEMA, PERIODS, people=places).calibrate(
        rho="1", unit=Individual(relation), horizon=PERIODS
    )
    state: Any = plan.start()
    for batch in batches(panel):
        plan.step(state, batch, Randomness.seeded(1))
    return Counter(state.private.tolist())


def moved(one: Counter[int], other: Counter[int]) -> int:
    """L1 distance of two histograms."""
    return sum(abs(one[code] - other[code]) for code in one | other)


def code(history: History) -> int:
    result = 0
    for report in history:
        result = 3 * result + (ABSENT if report is None else report)
    return result


@settings(max_examples=60)
@given(histories, st.lists(st.sampled_from([0, 1, None]), min_size=PERIODS, max_size=PERIODS))
def test_one_history_is_one_place_of_a_panel_with_places(found: list[History], other: History) -> None:
    """Late, early, now and then: everybody's whole history arrives, and a change of one moves one person."""
    panel = dict(enumerate(found))
    counts = seen(panel, "replace")
    never = 10 - sum(any(report is not None for report in history) for history in found)
    expected = Counter(code(h) for h in found if any(report is not None for report in h))
    expected[code([None] * PERIODS)] += never
    assert counts == +expected
    assert moved(counts, seen({**panel, 0: other}, "replace")) <= 2
    # Who never joins is no change at all beside an empty place.
    assert moved(counts, seen({key: panel[key] for key in panel if key}, "replace")) <= 2


@settings(max_examples=40)
@given(histories)
def test_one_person_more_is_one_count_more(found: list[History]) -> None:
    """Add/remove: everybody is there in the first period; later periods may lack reports."""
    panel: dict[int, History] = {key: [1, *history[1:]] for key, history in enumerate(found)}
    counts = seen(panel, "add-remove")
    assert counts == Counter(code(history) for history in panel.values())
    assert moved(counts, seen({key: panel[key] for key in panel if key}, "add-remove")) == 1


def test_people_who_are_mixed_up_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: reports read as if people came in the order of their marks."""

    def mixed_up(*given: Any, **options: Any) -> Any:
        marks, seats = seat(*given, **options)
        return marks, np.sort(seats)

    panel: dict[int, History] = {1: [1, 1, 1, 1], 2: [None, None, 0, 0], 5: [0, 0, 1, 1], 7: [None, 1, 0, 1]}
    right = seen(panel, "replace")
    monkeypatch.setattr(people, "seat", mixed_up)
    assert seen(panel, "replace") != right


# What one person's whole history costs: transcripts of the running code meet oracles and broken mechanisms


REPLACE = Individual("replace")
SUBJECTS = {subject.name: subject for subject in panel_subjects(24)}


def history_loss(plan, base, neighbour, randomness, wrap=as_it_is):
    runs = panel_run(plan, base), panel_run(plan, neighbour)
    return run_loss(*runs, randomness, pure=False, wrap=wrap).total


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_of_the_audit_is_as_it_must_be(name):
    finding = audit_subject(SUBJECTS[name], 1, Randomness.seeded(1))
    assert finding.passed, finding


@pytest.mark.parametrize("unit", [Individual(), REPLACE], ids=lambda u: u.relation)
def test_the_window_spends_exactly_its_budget_on_the_worst_history(unit):
    plan = window_plan(5, 2, 3, rho="0.3", unit=unit)
    others = np.random.default_rng(1).integers(0, 3, (4, 5))
    one, other = np.array([[0] * 5]), np.array([[1] * 5])
    base = others if unit is not REPLACE else np.vstack([others, one])
    found = history_loss(plan, base, np.vstack([others, other]), Randomness.seeded(2))
    assert found == pytest.approx(0.3)
    # Of a history changed at the first period only, the first histogram alone tells.
    if unit is REPLACE:
        changed = one.copy()
        changed[0, 0] = 2
        found = history_loss(plan, base, np.vstack([others, changed]), Randomness.seeded(2))
        assert found == pytest.approx(0.3 / 4)
    quiet = history_loss(plan, base, np.vstack([others, other]), Randomness.seeded(2), QuietNoise)
    assert quiet == pytest.approx(0.3 * 9 / 4)


@settings(max_examples=40)
@given(st.data())
def test_no_history_costs_more_than_the_budget(data):
    unit = data.draw(st.sampled_from([Individual(), REPLACE]))
    generator = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    periods, people = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 4))
    if data.draw(st.booleans()):
        symbols = data.draw(st.integers(2, 4))
        window = data.draw(st.integers(1, min(3, periods)))
        plan = window_plan(periods, window, symbols, rho="1", unit=unit)
    else:
        symbols = 2
        largest = data.draw(st.integers(1, periods))
        split = data.draw(st.sampled_from(["error", "levels"]))
        plan = cumulative_plan(periods, rho="1", unit=unit, thresholds=largest, split=split)
    panel = generator.integers(0, symbols, (people + 2, periods))
    base, neighbour = panel[:-1], np.delete(panel, -2, axis=0)
    if unit is not REPLACE:
        base = base[:-1]
    loss = history_loss(plan, base, neighbour, Randomness.seeded(int(generator.integers(10**6))))
    assert loss <= 1 + 1e-12
    # Added or removed, in whichever order.
    assert history_loss(plan, neighbour, base, Randomness.seeded(1)) == pytest.approx(loss)


def zcdp_counters(ticks):
    budget = ZCDP.of("1/3")
    for name in COUNTER_NAMES:
        try:
            yield name, counter_by_name(name, horizon=ticks).calibrate(budget, Event())
        except BudgetError:
            continue


@pytest.mark.parametrize("ticks", [1, 2, 5, 13])
def test_the_cost_of_a_moved_change_by_pairs(ticks):
    """The worst of all pairs of columns, in fractions; and no matrix has a negative entry (twice is enough)."""
    for name, counter in zcdp_counters(ticks):
        linear = counter.materialize(ticks)
        assert linear.encoder.min() >= 0, name
        each = [1 / (2 * noise.sigma_squared) for noise in linear.scales]
        columns = [list(map(int, column)) for column in linear.encoder.T]
        losses = [sum(c * c * rate for c, rate in zip(column, each, strict=True)) for column in columns]
        for one, other in itertools.combinations(columns, 2):
            losses.append(sum((a - b) ** 2 * rate for a, b, rate in zip(one, other, each, strict=True)))
        assert moved_loss(linear) == max(losses), name
        assert max(losses) <= 2 * linear.loss(Event())
        # The factor is taken at another budget than the plan's: it must hold at this one.
        assert person_factor(name, ticks, REPLACE) * counter.budget.rho >= max(losses)
        assert person_factor(name, ticks, Individual()) == 1
        # The same from the running code instead of its matrix; and a change may be picked while watching.
        proofs = [certify(counter, ticks), *([certify(counter, ticks, pairs=True)] if ticks > 1 else [])]
        assert max(proof.certified for proof in proofs) == pytest.approx(float(moved_loss(linear)))
        assert all(proof.adaptive for proof in proofs)


def test_a_moved_change_where_columns_oppose_each_other():
    """Not nested, two scales, negative entries: four times, as the triangle inequality has it."""
    encoder = np.array([[1, -1], [2, -2]])
    scales = (DiscreteGaussian(Fraction(3)), DiscreteGaussian(Fraction(5)))
    linear = LinearMap(encoder, np.zeros((2, 2)), scales)
    assert moved_loss(linear) == Fraction(4, 6) + Fraction(16, 10)
    assert moved_loss(linear) == 4 * linear.loss(Event())
    large = LinearMap(encoder * 2**30, np.zeros((2, 2)), scales)  # squares beyond 64 bits
    assert moved_loss(large) == 2**60 * moved_loss(linear)


@pytest.mark.parametrize("unit", [Individual(), REPLACE], ids=lambda u: u.relation)
@pytest.mark.parametrize("split", ["error", "levels"])
@pytest.mark.parametrize("periods", [1, 2, 12, 30])
def test_the_parts_of_a_cumulative_budget_add_up(unit, split, periods):
    plan = cumulative_plan(periods, rho="0.005", unit=unit, split=split)
    spent = sum(plan.shares) + (plan.total.rho if plan.total else 0)
    assert spent == Fraction(5, 1000)
    assert (plan.total is None) == (unit is REPLACE)
    assert len(plan.shares) == periods
    for b, (share, counter) in enumerate(zip(plan.shares, plan.counters, strict=True), start=1):
        linear = counter.materialize(periods - b + 1)
        cost = moved_loss(linear) if unit is REPLACE else linear.loss(Event())
        assert cost <= share
    if split == "levels":
        levels = [(periods - b + 1).bit_length() ** 3 for b in range(1, periods + 1)]
        assert [share / plan.shares[0] for share in plan.shares] == [Fraction(n, levels[0]) for n in levels]
    if unit is REPLACE and periods > 1:
        # Left out, a counter that reaches its claim passes its share.
        broken = broken_unpaired_counters(
            cumulative_plan(periods, rho="0.005", unit=unit, counter="toeplitz", split=split)
        )
        assert moved_loss(broken.counters[0].materialize(periods)) > 1.1 * broken.shares[0]


def test_the_best_counter_depends_on_public_things_only():
    plans = [cumulative_plan(9, rho="0.1", unit=REPLACE) for _ in range(2)]
    assert [c.name for c in plans[0].counters] == [c.name for c in plans[1].counters]
    tree = cumulative_plan(60, rho="0.1", unit=REPLACE, counter="tree")
    best = cumulative_plan(60, rho="0.1", unit=REPLACE)
    assert best.bounds[-1] < tree.bounds[-1] / 2
    assert certify(best.counters[0], 60).certified <= float(best.shares[0])
