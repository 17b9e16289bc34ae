"""Joint noise: its law from the definition, also on the paths that ties take, and what it costs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from chi_square import P_CERTAIN, P_LOW, categorical

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import ZCDP, CubeNoise, DiscreteGaussian, PureDP, Randomness, noise_for_bounded
from dpstream.core.privacy.cube import _CubeSampler, _degrees, _differences

CASES = [("1/3", 4), ("3/2", 1), ("3/2", 2), ("7", 3), ("40", 24)]
DRAWS = 20_000


def largest_law(scale: Fraction, dimension: int, many: int) -> np.ndarray:
    """Probabilities of the largest absolute value 0, 1, ...: numbers of vectors times their weight."""
    r = np.arange(many, dtype=np.float64)
    shells = (2 * r + 1) ** dimension - np.where(r > 0, (2 * r - 1), 0) ** dimension
    weights = shells * np.exp(-r / float(scale))
    return np.asarray(weights / weights.sum())


def draws(scale: Fraction, dimension: int, word_bits: int) -> np.ndarray:
    sampler, randomness = _CubeSampler(scale, dimension, word_bits), Randomness.system()
    return np.array([sampler.sample(randomness.words) for _ in range(DRAWS)])


@pytest.mark.parametrize(("scale", "dimension"), CASES)
@pytest.mark.parametrize("word_bits", [63, 4])
def test_the_largest_value_follows_its_law_and_other_scales_do_not(
    scale: str, dimension: int, word_bits: int
) -> None:
    """4-bit words take the exact paths nearly always."""
    exact = Fraction(scale)
    largest = np.abs(draws(exact, dimension, word_bits)).max(axis=1)
    many = int(40 * float(exact) * (dimension + 3)) + 40
    assert categorical(largest, largest_law(exact, dimension, many)) > P_LOW
    other = largest_law(exact * Fraction(2, 3), dimension, many)
    assert categorical(largest, other) < P_CERTAIN


@pytest.mark.parametrize("word_bits", [63, 4])
def test_vectors_with_the_same_largest_value_are_equally_likely(word_bits: int) -> None:
    found = draws(Fraction(1), 2, word_bits)
    for largest in (1, 2):
        vectors = [
            v
            for v in itertools.product(range(-largest, largest + 1), repeat=2)
            if max(map(abs, v)) == largest
        ]
        place = {v: i for i, v in enumerate(vectors)}
        outcomes = np.array([place[v] for v in map(tuple, found.tolist()) if v in place])
        uniform = np.full(len(vectors), 1.0 / len(vectors))
        assert categorical(outcomes, uniform) > P_LOW


@pytest.mark.parametrize(("scale", "dimension"), [*CASES, ("1000000", 60), ("1/200", 5)])
def test_the_variance_is_that_of_the_law(scale: str, dimension: int) -> None:
    """By the definition where that can be summed; for large scales by the continuous law."""
    exact = Fraction(scale)
    found = CubeNoise(exact, dimension).variance
    if exact >= 1000:
        assert found == pytest.approx((dimension + 1) * (dimension + 2) / 3 * float(exact) ** 2, rel=1e-5)
        return
    r = np.arange(int(40 * float(exact) * (dimension + 3)) + 40, dtype=np.float64)
    weights = (2 * r + 1) ** dimension * np.exp(-r / float(exact))
    assert found == pytest.approx(float((weights * r * (r + 1)).sum() / weights.sum() / 3), rel=1e-9)


def test_a_polynomial_in_binomials() -> None:
    for dimension in (1, 5, 30):
        weights = _differences(dimension)
        assert min(weights) > 0
        for r in (0, 1, 7, 100):
            assert sum(w * math.comb(r, k) for k, w in enumerate(weights)) == (2 * r + 1) ** dimension


@pytest.mark.parametrize("rate", [Fraction(1, 10**9), Fraction(1, 7), Fraction(3), Fraction(500)])
def test_enclosures_of_the_degrees_hold_and_are_narrow(rate: Fraction) -> None:
    for dimension in (1, 6, 40):
        weights = _differences(dimension)
        odds = math.log(math.expm1(float(rate))) if rate < 100 else float(rate)
        logs = np.array([math.log(w) - k * odds for k, w in enumerate(weights)])
        law = np.cumsum(np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum())
        bounds = list(_degrees(rate, weights)(80))
        assert len(bounds) == dimension + 1
        assert bounds[-1] == (1 << 80, 1 << 80)
        for (low, high), value in zip(bounds, law, strict=True):
            assert low <= high <= low + 4
            assert low / 2**80 == pytest.approx(value, rel=1e-5, abs=1e-9)


def test_what_joint_noise_costs() -> None:
    assert noise_for_bounded(PureDP.of("1/2"), 7, 2) == CubeNoise(Fraction(4), 7)
    assert noise_for_bounded(ZCDP.of("1/8"), 7, 2) == DiscreteGaussian(Fraction(112))
    for wrong in ((0, 1), (3, 0)):
        with pytest.raises(ConfigError):
            noise_for_bounded(PureDP.of(1), *wrong)
    for scale, dimension, error in (
        (Fraction(0), 3, ConfigError),
        (Fraction(1), 0, ConfigError),
        (Fraction(1), 513, ConfigError),
        (Fraction(10**13), 3, LimitError),
    ):
        with pytest.raises(error):
            CubeNoise(scale, dimension)
