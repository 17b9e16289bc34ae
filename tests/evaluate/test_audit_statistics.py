"""Lower bounds from runs: right as often as they say, near the truth with many runs, and blind to nothing planted.

The laws of the samplers here are known exactly, and so is their loss. Frequencies of wrong bounds are compared with
binomial quantiles at 1e-6 (all seeds are fixed).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.tools.audit.binomial import clopper_pearson
from dpstream_lab.audits.loss_bounds import lower_bound


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


@pytest.mark.parametrize(("kind", "epsilon"), [("laplace", 1.0), ("response", 1.0), ("laplace", 2.0)])
@pytest.mark.parametrize("swap", [False, True])
def test_many_runs_come_near(kind, epsilon, swap):
    a, b = getattr(Pairs(3), kind)(100_000, epsilon)
    found = lower_bound(*((b, a) if swap else (a, b)), confidence=1 - 1e-6)
    assert 0.9 * epsilon < found <= epsilon


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
