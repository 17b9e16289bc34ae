"""Schedules: exact times, budgets that add up to at most the whole for ever, whatever sizes a stream goes through."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.privacy import ZCDP, Budget, PureDP
from dpstream.families.growing import PowerLaw
from dpstream.families.growing.run_schedule import Growth, Improvement, Schedule, down, promised

GAMMAS = [Fraction(1, 1000), Fraction(1, 20), Fraction(123, 1000), Fraction(1, 2), Fraction(999, 1000)]
#: What a rounded amount may lose.
ROUNDING = Fraction(1, 10**6)


def growth(gamma: Fraction, n: int = 100, budget: Budget | None = None, **more: object) -> Growth:
    whole = budget or PureDP(Fraction(1))
    return Growth(n=n, budget=whole, beta=Fraction(1, 20), accuracy=None, gamma=gamma, **more)  # type: ignore[arg-type]


def improvement(c: Fraction, n: int, **more: object) -> Improvement:
    return Improvement(n=n, budget=ZCDP(Fraction(1)), beta=Fraction(1, 20), accuracy=None, c=c, **more)  # type: ignore[arg-type]


def test_rounding_down_loses_less_than_a_millionth() -> None:
    for top, bottom in ((1, 3), (2**200 - 1, 7), (1, 2**300), (10**7, 1), (99999999, 10), (5, 2**31)):
        exact = Fraction(top, bottom)
        assert exact * (1 - ROUNDING) < down(top, bottom) <= exact


@settings(max_examples=60, deadline=None)
@given(
    st.fractions(Fraction(1, 1000), Fraction(999, 1000), max_denominator=1000),
    st.integers(1, 5000),
    st.data(),
)
def test_epochs_begin_exactly_where_the_growth_is_reached(
    gamma: Fraction, n: int, data: st.DataObject
) -> None:
    schedule = growth(gamma, n)
    epoch = data.draw(st.integers(0, 200))
    begins = schedule.time(epoch)
    assert begins - 1 < (1 + gamma) ** epoch * n <= begins
    assert schedule.epoch(begins) >= epoch
    assert schedule.epoch(begins - 1) < epoch
    t = data.draw(st.integers(n, 10**7))
    found = schedule.epoch(t)
    assert (1 + gamma) ** found * n <= t < (1 + gamma) ** (found + 1) * n


@pytest.mark.parametrize("pure", [True, False], ids=["pure", "zcdp"])
@pytest.mark.parametrize("gamma", GAMMAS, ids=str)
def test_budgets_are_the_papers_and_what_is_left_is_exact(gamma: Fraction, pure: bool) -> None:
    """Under zCDP the squares of the paper's, scaled to the whole."""
    schedule, spent = growth(gamma, budget=PureDP.of(1) if pure else ZCDP.of(1)), Fraction(0)
    q = 1 / (1 + gamma) ** 2
    whole = (1 + q) / (1 - q) ** 3  # the sum of (i+1)^2 q^i
    for epoch in range(60):
        paper = gamma**2 * (epoch + 1) / (1 + gamma) ** (epoch + 2)
        share = paper if pure else (epoch + 1) ** 2 * q**epoch / whole
        cost = schedule.run(epoch, epoch, 10**9).cost
        assert share * (1 - ROUNDING) < cost <= share
        spent += share
        # The closed form of the tail, against the sum: together they are the whole, exactly.
        top, bottom = schedule.quotient(epoch + 1)
        assert spent + Fraction(top, bottom) == 1
        assert Fraction(top, bottom) <= schedule.left(epoch)


@pytest.mark.parametrize(
    ("n", "c"), [(1, "1/2"), (2, "1"), (10, "1/1000"), (100, "1/10"), (3000, "1/4")], ids=str
)
def test_budgets_of_an_improver_add_up_and_are_never_below_the_rescaled_papers(n: int, c: str) -> None:
    schedule = improvement(Fraction(c), n)
    spent, exponent = Fraction(0), 2 * float(Fraction(c))
    scale = exponent * (n - 0.5) ** exponent
    for epoch in range(500):
        t = n + epoch
        cost = schedule.run(epoch, epoch, t).cost
        assert float(cost) >= scale * t ** (-1 - exponent) * (1 - 2e-6)
        spent += cost
    left = schedule.left(499)
    # Partial sums and the proved tail: never above the whole (but for the tail's rounding up), and not much below.
    assert spent + left <= 1 + 3 * ROUNDING
    assert spent + left >= 1 - ROUNDING
    integral = ((n - 0.5) / (n + 500 - 0.5)) ** exponent
    assert float(left) == pytest.approx(integral, rel=1e-5)


SCHEDULES: list[Schedule] = [
    growth(Fraction(1, 20)),
    growth(Fraction(1, 100), n=3),
    growth(Fraction(1, 2), budget=ZCDP(Fraction(1))),
    improvement(Fraction(1, 10), 100),
]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SCHEDULES), st.lists(st.integers(0, 400), min_size=1, max_size=60))
def test_whatever_arrives_no_epoch_is_used_twice_and_the_whole_is_not_passed(
    schedule: Schedule, arrivals: list[int]
) -> None:
    t, done, spent, beta = 0, -1, Fraction(0), Fraction(0)
    for arrived in arrivals:
        t += arrived
        run = schedule.due(done, t)
        if run is None:
            assert t < schedule.time(done + 1)
            continue
        assert t >= schedule.time(run.last)
        assert t < schedule.time(run.last + 1)
        assert run.first == done + 1
        done, spent, beta = run.last, spent + run.cost, beta + run.beta
    assert beta <= schedule.beta
    # What was skipped is not lost: all epochs so far are spent but for rounding, and the rest is left.
    assert spent <= schedule.budget.amount
    assert spent + schedule.left(done) >= schedule.budget.amount * (1 - 2 * ROUNDING)


def test_epochs_that_begin_at_one_size_are_one_run() -> None:
    schedule = growth(Fraction(1, 100), n=3)
    runs = list(islice(schedule.coming(), 5))
    assert [run.t for run in runs] == [3, 4, 5, 6, 7]
    assert [run.first for run in runs[1:]] == [run.last + 1 for run in runs[:-1]]
    assert all(schedule.time(run.last + 1) > run.t for run in runs)


def test_one_batch_over_several_epochs_has_their_budgets_together() -> None:
    schedule = growth(Fraction(1, 10), n=1000)
    run = schedule.due(-1, 5000)
    assert run is not None
    single = [schedule.run(i, i, 5000).cost for i in range(run.last + 1)]
    assert sum(single) <= run.cost + ROUNDING
    assert run.cost <= sum(single) * (1 + ROUNDING)
    # It may fail with the first one's probability: of all of them, this one alone was made.
    assert run.beta == schedule.failure(0)


def test_what_is_promised_falls_with_the_budget_and_a_zcdp_budget_promises_what_its_root_does() -> None:
    law, beta = PowerLaw(1 / 3, 8.0), Fraction(1, 20)
    by_hand = 8.0 * (math.log(20) / (0.5 * 1000)) ** (1 / 3)
    assert promised(law, PureDP(Fraction(1, 2)), beta, 1000) == pytest.approx(by_hand)
    assert promised(law, ZCDP(Fraction(1, 8)), beta, 1000) == pytest.approx(by_hand, rel=1e-6)


def test_the_accuracy_of_a_scheduler_is_the_same_for_ever() -> None:
    """Theorem 10: log(1/beta_i) and epsilon_i t_i both grow like i + 1."""
    law = PowerLaw(1 / 3, 4.0)
    for budget in (PureDP(Fraction(1)), ZCDP(Fraction(1, 10))):
        schedule = Growth(n=10**5, budget=budget, beta=Fraction(1, 20), accuracy=law, gamma=Fraction(1, 5))
        alphas = [run.alpha for run in islice(schedule.coming(), 40)]
        assert max(alphas) == pytest.approx(min(alphas), rel=1e-3)  # type: ignore[type-var]
