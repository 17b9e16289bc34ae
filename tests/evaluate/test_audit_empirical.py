"""Empirical audits of counters and of few outcomes: near the truth, never above it, and blind to no control.

Each bound of an honest mechanism passes its claim with probability 5e-8 at most (``COUNTERS_CONFIDENCE``); about ten
are looked at, so the false-alarm rate of this module is below 1e-6. Words are fixed, so it fails always or never.
Frequencies of wrong bounds are compared with binomial quantiles at 1e-6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.counters import SimpleCounter, TreeCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import ZCDP, DiscreteLaplace, Event, PureDP, Randomness
from dpstream.tools.audit.binomial import clopper_pearson
from dpstream.tools.audit.controls import quiet_counter
from dpstream_lab.audits import controls
from dpstream_lab.audits.counters_audit import COUNTERS_CONFIDENCE, audit_counter, border_steps
from dpstream_lab.audits.loss_bounds import audit_outcomes, divergence_rate, lower_bound

ONE, HALF = PureDP.of(1), ZCDP.of("0.5")


@given(st.integers(1, 200))
def test_the_changed_steps_cover_borders(ticks):
    steps = border_steps(ticks)
    assert steps == sorted(set(steps))
    assert steps[0] == 1
    assert steps[-1] == ticks
    assert all(1 <= step <= ticks for step in steps)
    assert all(2**i in steps for i in range(8) if 2**i <= ticks)
    # Last and first ticks of the partitions of the unbounded block counter.
    assert all(step in steps for step in (4, 5, 13, 14, 29, 30) if step <= ticks)


@pytest.mark.parametrize(
    ("counter", "least"),
    [
        (SimpleCounter().calibrate(ONE, Event()), 0.8),
        (TreeCounter(4).calibrate(ONE, Event()), 0.7),
        (TreeCounter(2).calibrate(ONE, Event("replace")), 0.5),
        (TreeCounter(2).calibrate(HALF, Event()), 0.2),
    ],
    ids=["simple", "tree", "replace", "zCDP"],
)
def test_honest_counters_hold_and_much_of_their_loss_is_seen(counter, least):
    found = audit_counter(counter, 4 if counter.horizon != 2 else 2, 40_000, Randomness.seeded(1), "x")
    assert found.passed
    assert least < found.found <= found.claimed
    assert (found.confidence, found.runs) == (COUNTERS_CONFIDENCE, 40_000)


@pytest.mark.parametrize(
    "counter",
    [
        quiet_counter(SimpleCounter().calibrate(ONE, Event())),
        quiet_counter(TreeCounter(4).calibrate(ONE, Event())),
        quiet_counter(TreeCounter(4).calibrate(HALF, Event())),
        controls.BrokenShortTree(4).calibrate(ONE, Event()),
    ],
    ids=["simple", "tree", "zCDP", "short tree"],
)
def test_broken_counters_are_caught(counter):
    found = audit_counter(counter, 4, 60_000, Randomness.seeded(2), "x", control=True)
    assert found.passed
    assert found.found > found.claimed


@dataclass(frozen=True)
class _OnceQuiet(SimpleCounter):
    """Half of the noise at one tick only."""

    at: int = 5

    def calibrate(self, budget, unit):
        return _OnceQuietCalibrated(self, budget, unit)


class _OnceQuietCalibrated(CalibratedIntervalCounter):
    def step(self, state, increment, randomness):
        quiet = int(state["t"][0]) + 1 == self.recipe.at
        twin = CalibratedIntervalCounter(SimpleCounter(), self.budget.scaled(2 if quiet else 1), self.unit)
        return twin.step(state, increment, randomness)


def test_a_slip_at_one_tick_is_seen_by_the_sweep_only():
    counter = _OnceQuiet().calibrate(ONE, Event())
    assert 5 in border_steps(8)
    swept = audit_counter(counter, 8, 25_000, Randomness.seeded(3), "x", control=True)
    assert swept.passed
    assert "at tick 5" in swept.detail
    first = audit_counter(counter, 8, 25_000, Randomness.seeded(3), "x", steps=[1])
    assert first.passed


def rho(a, b, **more):
    return lower_bound(a, b, pure=False, **more)


def test_bounds_on_rho_are_right_as_often_as_they_say():
    """Two-point and Gaussian laws whose rho is known; wrong bounds against a binomial quantile at 1e-6."""
    from scipy.stats import binom, norm

    generator = np.random.default_rng(6)
    truth = divergence_rate(np.array([0.6, 0.4]), np.array([0.4, 0.6]))
    wrong = 0
    for _ in range(120):
        a, b = generator.random(400) < 0.6, generator.random(400) < 0.4
        wrong += lower_bound(a.astype(float), b.astype(float), confidence=0.8, pure=False) > truth
    assert wrong <= binom.ppf(1 - 1e-6, 120, 0.2)
    # N(1, 1) against N(0, 1) has rho 1/2; many runs see half of it, and 2/3 of the noise shows.
    a, b = norm.rvs(loc=1, size=(2, 40_000), random_state=generator) - [[0], [1]]
    assert 0.2 < rho(a, b, confidence=COUNTERS_CONFIDENCE) <= 0.5
    assert rho(1.5 * a, 1.5 * b, confidence=COUNTERS_CONFIDENCE) <= 0.5  # scaling tells nothing
    quieter = norm.rvs(size=40_000, random_state=generator) * 2 / 3 + 1
    assert rho(quieter, quieter - 1, confidence=COUNTERS_CONFIDENCE) > 0.5
    assert rho(b, b, confidence=COUNTERS_CONFIDENCE) == 0.0


def test_the_error_is_shared_out_among_pairs():
    """The same runs prove less when more pairs could have been chosen."""
    generator = np.random.default_rng(9)

    def outcomes(values):
        return (generator.random(4_000) < values[0] / 10).astype(np.int64)

    one = audit_outcomes(outcomes, [((2,), (8,), "a")], ONE, "x", COUNTERS_CONFIDENCE)
    generator = np.random.default_rng(9)
    many = audit_outcomes(
        outcomes, [((2,), (8,), "a")] + [((5,), (5,), "b")] * 4, ONE, "x", COUNTERS_CONFIDENCE
    )
    assert 0.5 < many.found < one.found
    assert many.detail == "most with a"


# Lower bounds from runs


@given(st.integers(1, 400), st.data(), st.sampled_from([0.3, 0.05, 1e-7]))
@settings(max_examples=60, deadline=None)
def test_clopper_pearson_is_the_exact_interval(trials, data, alpha):
    from scipy.stats import beta, binom

    successes = data.draw(st.integers(0, trials))
    low, high = (float(limit) for limit in clopper_pearson(successes, trials, alpha))
    assert low <= successes / trials <= high
    if successes:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(alpha, rel=1e-6)
        assert low == pytest.approx(beta.ppf(alpha, successes, trials - successes + 1), rel=1e-9)
    else:
        assert low == 0.0
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(alpha, rel=1e-6)
    else:
        assert high == 1.0


class Pairs:
    """Samplers of two neighbouring laws whose loss is known."""

    def __init__(self, seed):
        self.words = Randomness.seeded(seed)
        self.generator = np.random.default_rng(seed)

    def laplace(self, runs, epsilon):
        law = DiscreteLaplace(1 / Fraction(epsilon))
        return self.words.draw(law, runs), 1 + self.words.draw(law, runs)

    def response(self, runs, epsilon):
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        return self.generator.random(runs) < truth, self.generator.random(runs) < 1 - truth


@pytest.mark.parametrize("kind", ["laplace", "response"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_bound_is_rarely_above_the_truth(kind, epsilon):
    from scipy.stats import binom

    pairs, repeats = Pairs(17), 250
    found = [lower_bound(*getattr(pairs, kind)(400, epsilon), confidence=0.8) for _ in range(repeats)]
    assert sum(bound > epsilon for bound in found) <= binom.isf(1e-6, repeats, 0.2)
    # A check that can fail: taken at its word, the same frequencies are above the truth about half of the time.
    sampled = [getattr(pairs, kind)(400, epsilon) for _ in range(repeats)]
    plain = [np.log(np.mean(a <= 0) / np.mean(b <= 0)) for a, b in sampled]
    if kind == "laplace":
        assert sum(value > epsilon for value in plain) > binom.isf(1e-6, repeats, 0.2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda fine: lower_bound(fine, fine, confidence=1), "confidence = 1"),
        (lambda fine: lower_bound(fine, fine, confidence=0.9, train=0), "train = 0"),
        (lambda fine: lower_bound(fine[:3], fine, confidence=0.9), "too few runs"),
        (lambda fine: lower_bound(fine * np.nan, fine, confidence=0.9), "finite"),
        (lambda fine: clopper_pearson(3, 2, 0.1), "not between 0 and trials"),
    ],
)
def test_wrong_arguments(call, words):
    with pytest.raises((ConfigError, DataError), match=words):
        call(np.zeros(10))
