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
from dpstream.lab.audits.loss_bounds import clopper_pearson, distinguish, lower_bound


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


@pytest.mark.parametrize("probability", [0.0, 0.013, 0.4, 1.0])
def test_clopper_pearson_fails_at_most_as_often_as_it_says(probability):
    """Not by simulation: the exact probability of the outcomes whose limit is wrong."""
    from scipy.stats import binom

    outcomes = np.arange(51)
    low, high = clopper_pearson(outcomes, 50, 0.03)
    weights = binom.pmf(outcomes, 50, probability)
    assert weights[low > probability].sum() <= 0.03
    assert weights[high < probability].sum() <= 0.03


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

    def leaking(self, runs, epsilon, delta):
        """Randomised response that names its input with probability ``delta``: (epsilon, delta), never pure."""
        a, b = self.response(runs, epsilon)
        named = self.generator.random((2, runs)) < delta
        return np.where(named[0], 2, a), np.where(named[1], -1, b)


@pytest.mark.parametrize("kind", ["laplace", "response"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_bound_is_rarely_above_the_truth(kind, epsilon):
    from scipy.stats import binom

    pairs, repeats = Pairs(17), 250
    found = [lower_bound(*getattr(pairs, kind)(400, epsilon), confidence=0.8).epsilon for _ in range(repeats)]
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
    assert 0.9 * epsilon < found.epsilon <= epsilon
    assert found.runs == 100_000


def test_equal_laws_give_nothing():
    from scipy.stats import binom

    pairs = Pairs(5)
    found = [
        lower_bound(pairs.laplace(500, 1)[0], pairs.laplace(500, 1)[0], confidence=0.9).epsilon
        for _ in range(100)
    ]
    assert sum(bound > 0 for bound in found) <= binom.isf(1e-6, 100, 0.1)


def test_delta_is_taken_off():
    """With the true delta the loss is epsilon; asked for pure epsilon, the same runs prove more than that."""
    a, b = Pairs(8).leaking(20_000, 1.0, 0.05)
    assert lower_bound(a, b, confidence=1 - 1e-6).epsilon > 2.0
    assert 0.85 < lower_bound(a, b, confidence=1 - 1e-6, delta=0.05).epsilon <= 1.0
    assert lower_bound(a, b, confidence=1 - 1e-6, delta=0.9).epsilon == 0.0


def test_a_gaussian_mechanism_at_its_own_delta():
    """The exact curve of a Gaussian shift by one deviation (Balle, Wang 2018)."""
    from scipy.stats import norm

    generator = np.random.default_rng(4)
    a, b = generator.normal(size=50_000), generator.normal(size=50_000) + 1
    for epsilon in (0.5, 1.0, 1.5):
        delta = float(norm.cdf(0.5 - epsilon) - math.exp(epsilon) * norm.cdf(-0.5 - epsilon))
        found = lower_bound(a, b, confidence=1 - 1e-6, delta=delta).epsilon
        assert 0.7 * epsilon < found <= epsilon


def outputs(runs, columns, seed, planted):
    """Noise in every column; ``planted`` moves some of them by a fifth of a deviation."""
    table = np.random.default_rng(seed).normal(size=(runs, columns))
    table[:, planted] += 0.4
    return table


def test_a_difference_spread_over_columns_is_learned():
    """Each column alone is weak evidence; together they prove more than any of them could with endless runs."""
    a, b = outputs(6000, 30, 1, []), outputs(6000, 30, 2, range(12))
    found = distinguish(a, b, confidence=0.99, seed=0)
    assert found.statistic.startswith("logistic regression")
    single = lower_bound(a[:, 0], b[:, 0], confidence=0.99).epsilon
    assert found.epsilon > 2 * single
    assert found.epsilon > 1.0


def test_one_telling_column_is_found_by_name():
    a, b = outputs(2000, 20, 1, []), outputs(2000, 20, 2, [])
    a[:, 7], b[:, 7] = 4, 5  # exact counts
    found = distinguish(a, b, confidence=0.99, seed=0, names=tuple(f"c{i}" for i in range(20)))
    assert found.epsilon > 5.0
    assert found.statistic in ("c7", "logistic regression on 20 columns")


def test_learning_does_not_invent_a_difference():
    """Many columns, few runs, one law: a statistic judged on its own training runs would find a great loss."""
    from scipy.stats import binom

    found = [
        distinguish(
            outputs(300, 40, 2 * i, []), outputs(300, 40, 2 * i + 1, []), confidence=0.9, seed=i
        ).epsilon
        for i in range(60)
    ]
    assert sum(bound > 0 for bound in found) <= binom.isf(1e-6, 60, 0.1)


def test_nothing_moves():
    constant = np.ones((50, 3))
    assert distinguish(constant, constant, confidence=0.9, seed=1).epsilon == 0.0


def test_wrong_arguments():
    fine = np.zeros(10)
    with pytest.raises(ConfigError, match="confidence = 1"):
        lower_bound(fine, fine, confidence=1)
    with pytest.raises(ConfigError, match="train = 0"):
        lower_bound(fine, fine, confidence=0.9, train=0)
    with pytest.raises(ConfigError, match="delta = -1"):
        lower_bound(fine, fine, confidence=0.9, delta=-1)
    with pytest.raises(DataError, match="too few runs"):
        lower_bound(fine[:3], fine, confidence=0.9)
    with pytest.raises(DataError, match="finite"):
        lower_bound(fine * np.nan, fine, confidence=0.9)
    with pytest.raises(DataError, match="one side has 3 columns and the other 2"):
        distinguish(np.zeros((9, 3)), np.zeros((9, 2)), confidence=0.9, seed=0)
    with pytest.raises(DataError, match="not between 0 and trials"):
        clopper_pearson(3, 2, 0.1)
