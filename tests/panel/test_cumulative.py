"""The cumulative synthesizer: exact counts without noise, stated errors, bounds, and what holds in every run.

Seeds are fixed; the chance that a right program was given a failing one is below 1e-6 for the module.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.privacy import DiscreteGaussian, Individual, Randomness
from dpstream.families.panel.cumulative import proxies
from dpstream_lab.audits.panel_audit import cumulative_plan

REPLACE = Individual("replace")


class Scaled(Randomness):
    """Seeded; noise times a factor."""

    def __init__(self, seed, scale=1):
        super().__init__(Randomness.seeded(seed)._source)
        self.scale = Fraction(scale) ** 2

    def draw(self, noise, size):
        if not self.scale:
            return np.zeros(size, np.int64)
        return super().draw(DiscreteGaussian(noise.sigma_squared * self.scale), size)


def run(plan, panel, randomness):
    state = plan.start(len(panel))
    return [plan.advance(state, column, randomness) for column in panel.T]


def truth(panel, ones=(1,)):
    """People with at least b ones after t, shape (t, b) from 0."""
    so_far = np.cumsum(np.isin(panel, ones), axis=1)
    return np.array([[(column >= b).sum() for b in range(panel.shape[1] + 1)] for column in so_far.T])


@pytest.mark.parametrize("largest", [1, 3, 6])
@pytest.mark.parametrize("unit", [Individual(), REPLACE], ids=lambda u: u.relation)
def test_without_noise_the_people_are_as_the_panel(unit, largest):
    panel = np.random.default_rng(1).integers(0, 4, (40, 6))
    options = {"thresholds": largest, "counter": "tree", "counted": ("0", "3")}
    plan = cumulative_plan(6, 4, rho="0.1", unit=unit, **options)
    for release, counts in zip(run(plan, panel, Scaled(1, 0)), truth(panel, (0, 3)), strict=True):
        expected = [40 + plan.padding, *counts[1 : largest + 1]]
        assert release.counts.tolist() == release.estimates.tolist() == expected
        answer = release.answer(largest)
        assert answer.share == answer.count / 40
    ones = release.history.sum(axis=1)
    assert [(ones >= b).sum() for b in range(1, largest + 1)] == expected[1:]


@settings(max_examples=60)
@given(st.data())
def test_what_holds_in_every_run(data):
    periods = data.draw(st.integers(1, 7))
    largest = data.draw(st.integers(1, periods))
    people = data.draw(st.integers(0, 10))
    unit = data.draw(st.sampled_from([Individual(), REPLACE]))
    split = data.draw(st.sampled_from(["error", "levels"]))
    counter = data.draw(st.sampled_from(["best", "tree", "hybrid", "toeplitz"]))
    options = {"thresholds": largest, "counter": counter, "split": split}
    plan = cumulative_plan(periods, rho=data.draw(st.sampled_from(["0.02", "3"])), unit=unit, **options)
    panel = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 2, (people, periods))
    before, table_before = None, None
    for release in run(plan, panel, Randomness.seeded(data.draw(st.integers(0, 99)))):
        table = release.history
        if before is not None:
            assert np.array_equal(table[:, :-1], table_before)
            assert (release.counts >= before).all()  # never falls
            assert (release.counts[1:] <= before[:-1]).all()  # S_b <= S_{b-1} of the period before
        else:
            assert (release.counts[2:] == 0).all()
        assert (np.diff(release.counts) <= 0).all()
        ones = table.sum(axis=1)
        assert [(ones >= b).sum() for b in range(largest + 1)] == release.counts.tolist()
        assert ones.max(initial=0) <= largest
        if unit is REPLACE:
            assert release.people == len(table) == people
        before, table_before = release.counts, table
        # What is published of it: the estimates, with the law of their noise.
        measured = {one.query.get("times", 0): one for one in release.noisy_counts}
        private = unit is not REPLACE and release.period == 1
        assert sorted(measured) == [0] * private + list(range(1, min(release.period, largest) + 1))
        assert len(release.noisy_counts) == len(measured)
        for times, one in measured.items():
            if times:  # a decoded number is rounded
                stated = pytest.approx(plan.variance(times, release.period), rel=1e-3, abs=1 / 12 + 1e-3)
                assert (one.values.tolist(), one.variance) == ([release.estimates[times]], stated)
            else:
                assert one.noise == plan.total_noise
                assert max(0, one.values[0] + plan.padding) == release.estimates[0]
    assert release.answer(1).count == before[1]
    assert (one.first, one.last, one.series) == (1, periods, f"at least {largest}")
    assert one.query == {"kind": "at least", "columns": ["report"], "codes": [1], "times": largest}


@pytest.mark.parametrize(("counter", "unit"), [("tree", REPLACE), ("toeplitz", Individual())])
def test_estimates_are_unbiased_with_the_stated_error(counter, unit):
    from scipy.stats import chi2

    panel = np.random.default_rng(3).integers(0, 2, (50, 6))
    plan = cumulative_plan(6, rho="0.02", unit=unit, thresholds=3, counter=counter, split="levels")
    runs = 250
    for scale, control in ((1, False), (Fraction(2, 3), True)):
        errors = np.array(
            [
                [
                    r.estimates[b] - counts[b]
                    for r, counts in zip(made, truth(panel), strict=True)
                    for b in (1, 2, 3)
                ]
                for made in (run(plan, panel, Scaled(seed, scale)) for seed in range(runs))
            ]
        )
        stated = np.array([plan.variance(b, t) for t in range(1, 7) for b in (1, 2, 3)])
        assert (errors[:, stated == 0] == 0).all()  # nobody can have b ones before period b
        errors, stated = errors[:, stated > 0], stated[stated > 0]
        ratio = (errors**2).sum(axis=0) / stated
        if control:
            assert (ratio < chi2.ppf(1e-9, runs)).all()
        else:
            assert (ratio > chi2.ppf(1e-9, runs)).all()
            assert (ratio < chi2.isf(1e-9, runs)).all()
            assert (np.abs(errors.mean(axis=0)) < 6.5 * np.sqrt(stated / runs)).all()


@pytest.mark.parametrize(("unit", "rho"), [(Individual(), "1.5"), (REPLACE, "0.01")])
def test_counts_stay_within_their_bounds(unit, rho):
    panel = (np.random.default_rng(4).random((200, 5)) < 0.4).astype(np.int64)
    plan = cumulative_plan(5, rho=rho, unit=unit, failure="0.2")
    runs, failed, control = 200, 0, 0
    exact = truth(panel)

    def worst(randomness):
        return max(
            abs(release.counts[b] - counts[b]) / plan.bound(b, release.period)
            for release, counts in zip(run(plan, panel, randomness), exact, strict=True)
            for b in range(1, 6)
        )

    for seed in range(runs):
        failed += worst(Scaled(seed)) > 1
        control += worst(Scaled(seed, 4)) > 1
    assert failed <= 72  # P(Binomial(200, 0.2) > 72) < 1e-7
    assert control > 72
    # One number a period, no smaller than any threshold's.
    assert plan.bounds == tuple(max(plan.bound(b, t) for b in range(1, 6)) for t in range(1, 6))
    assert all(plan.bound(b, t) <= plan.bound(b, t + 1) for b in range(1, 6) for t in range(1, 5))


def test_bounds_of_very_little_noise_have_the_tails_of_sigma():
    """A narrow discrete Gaussian's variance is far below sigma^2, its tails are not."""
    plan = cumulative_plan(1, rho=8, unit=REPLACE)
    counter = plan.counters[0]
    sigma_squared = counter.materialize(1).scales[0].sigma_squared
    assert counter.variance(1) < float(sigma_squared) / 2
    assert proxies(counter, plan.shares[0], 1) == pytest.approx([float(sigma_squared)])
    wide = cumulative_plan(4, rho="0.1", unit=REPLACE)
    for share, counter in zip(wide.shares, wide.counters, strict=True):
        ticks = wide.horizon - wide.counters.index(counter)
        linear = counter.materialize(ticks)
        squares = np.array([float(noise.sigma_squared) for noise in linear.scales])
        assert proxies(counter, share, ticks) == pytest.approx(linear.decoder.astype(float) ** 2 @ squares)


def test_a_private_number_of_people_is_padded():
    from scipy.stats import chi2

    plan = cumulative_plan(2, rho="0.5", failure="0.02")
    assert plan.total.rho == Fraction(1, 40)
    assert plan.padding == math.ceil(math.sqrt(2 * 20 * math.log(100)))
    numbers = np.array(
        [
            len(run(plan, np.zeros((7, 1), np.int64), Randomness.seeded(seed))[0].history)
            for seed in range(600)
        ]
    )
    assert chi2.ppf(1e-8, 600) < ((numbers - 7 - plan.padding) ** 2).sum() / 20 < chi2.isf(1e-8, 600)
    assert (numbers < 7).mean() < 0.02


@pytest.mark.parametrize("unit", [Individual(), REPLACE], ids=lambda u: u.relation)
def test_shares_are_as_wrong_as_they_say(unit):
    """Where the number of people is private, a share hears its noise too; the counter's error alone is refused."""
    from scipy.stats import chi2

    people, runs = 2_000, 400
    # No count comes near its neighbours, so the order is never enforced.
    panel = (np.random.default_rng(5).random((people, 3)) < 0.6).astype(np.int64)
    plan = cumulative_plan(3, rho="0.05", unit=unit)
    # In units of the stated error, and of the error that leaves the number of people out.
    scores, controls = [], []
    last = truth(panel)[-1][1:]
    for seed in range(runs):
        made = run(plan, panel, Scaled(seed))[-1]
        found = [made.own_answer(f"at least {b} so far", lambda words: ()) for b in (1, 2, 3)]
        wrong = [one.share - count / people for count, one in zip(last, found, strict=True)]
        scores.append([x / one.share_error for x, one in zip(wrong, found, strict=True)])
        controls.append([x * made.total / one.count_error for x, one in zip(wrong, found, strict=True)])
    low, high = chi2.ppf(1e-8, runs), chi2.isf(1e-8, runs)
    squares = (np.array(scores) ** 2).sum(axis=0)
    assert (low < squares).all()
    assert (squares < high).all()
    within = (np.abs(scores) < 2).mean(axis=0)
    assert (within > 0.89).all()  # P(Binomial(400, 0.954) < 356) < 1e-7
    if unit is REPLACE:
        assert np.allclose(scores, controls)
    else:
        assert (np.array(controls) ** 2).sum(axis=0)[0] > high
        assert (np.abs(controls) < 2).mean(axis=0)[0] < 0.89
