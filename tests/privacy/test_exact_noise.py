"""Exact noise: enclosures against decimal arithmetic, ties against the definition, laws by chi-square."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import pytest
from chi_square import P_CERTAIN, P_LOW, categorical, one_sample, two_samples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpstream import ZCDP, PureDP
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import DiscreteGaussian, DiscreteLaplace, Noise, Randomness, noise_for
from dpstream.core.privacy._samplers import (
    Distribution,
    InversionTable,
    _exp_series,
    _LargeGaussian,
    _LargeLaplace,
    build_gaussian,
    build_laplace,
    coins,
    exp_bounds,
    gaussian_magnitude,
    geometric,
    geometric_digit,
    laplace_magnitude,
    negative_sign,
)

LAPLACES = ["1/2", "3/2", "10", "256", "300", "20000", "1000000000000"]
GAUSSIANS = ["1/2", "5", "100", "1048576", "1050625", "1000000000000000000000000"]
CASES: list[Noise] = [
    *(DiscreteLaplace(Fraction(s)) for s in LAPLACES),
    *(DiscreteGaussian(Fraction(s)) for s in GAUSSIANS),
]


def cdf_of(noise: Noise, factor: Fraction | int = 1) -> Any:
    """A distribution function written down independently of the program; the scale times ``factor``."""
    from scipy import stats

    if isinstance(noise, DiscreteLaplace):
        rate = float(1 / (noise.scale * factor))

        def laplace(k: NDArray[np.int64]) -> NDArray[np.float64]:
            q = math.exp(-rate)
            above = 1 - np.exp(-rate * (np.maximum(k, 0) + 1.0)) / (1 + q)
            below = np.exp(rate * np.minimum(k, -1)) / (1 + q)
            return np.where(k >= 0, above, below)

        return laplace
    sigma = math.sqrt(noise.sigma_squared * factor * factor)
    if sigma > 50:  # the sum and the integral agree to 1e-4 standard errors of these tests
        return lambda k: stats.norm.cdf((np.asarray(k) + 0.5) / sigma)
    grid = np.arange(-int(40 * sigma) - 40, int(40 * sigma) + 41)
    sums = np.cumsum(np.exp(-(grid**2) / (2 * sigma**2)))
    return lambda k: np.interp(k, grid, sums / sums[-1])


def draw_with(noise: Noise, size: int, word_bits: int, randomness: Randomness) -> NDArray[np.int64]:
    if isinstance(noise, DiscreteLaplace):
        return build_laplace(noise.scale, word_bits).sample(size, randomness.words)
    return build_gaussian(noise.sigma_squared, word_bits).sample(size, randomness.words)


@pytest.mark.parametrize("noise", CASES, ids=str)
def test_samples_follow_the_law(noise: Noise) -> None:
    samples = Randomness.system().draw(noise, 200_000)
    assert one_sample(samples, cdf_of(noise)) > P_LOW


@pytest.mark.parametrize("factor", [Fraction(2, 3), Fraction(3, 2)])
@pytest.mark.parametrize("noise", CASES, ids=str)
def test_the_same_check_rejects_another_scale(noise: Noise, factor: Fraction) -> None:
    samples = Randomness.system().draw(noise, 200_000)
    assert one_sample(samples, cdf_of(noise, factor)) < P_CERTAIN


@pytest.mark.parametrize("word_bits", [1, 3, 8])
@pytest.mark.parametrize("noise", CASES, ids=str)
def test_forced_ties_follow_the_law(noise: Noise, word_bits: int) -> None:
    # Scale 256 at 8 bits: every entry of the table is a tie; at 1 bit all samples are refined.
    samples = draw_with(noise, 6_000, word_bits, Randomness.system())
    assert one_sample(samples, cdf_of(noise)) > P_LOW


@pytest.mark.parametrize("word_bits", [3, 63])
@pytest.mark.parametrize("scale", ["3/2", "40", "100"])
def test_large_scale_paths_at_scales_where_zero_counts(scale: str, word_bits: int) -> None:
    # At the scales that use them a doubled zero would drown in the noise of the test.
    size = 100_000 if word_bits == 63 else 8_000
    laplace = DiscreteLaplace(Fraction(scale))
    paths: list[tuple[Noise, Any]] = [(laplace, _LargeLaplace(laplace.scale, word_bits))]
    if laplace.scale >= 32:
        gaussian = DiscreteGaussian(laplace.scale**2)
        paths.append((gaussian, _LargeGaussian(gaussian.sigma_squared, word_bits)))
    for noise, path in paths:
        samples = path.sample(size, Randomness.system().words)
        assert one_sample(samples, cdf_of(noise)) > P_LOW
        zeros = np.array([1 - float(noise.pmf(0)), float(noise.pmf(0))])
        assert categorical((samples == 0).astype(np.int64), zeros) > P_LOW


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_sizes_and_independence(size: int) -> None:
    # Every path by size (search, guide, chunks); neighbouring samples are uncorrelated (6 standard errors).
    samples = Randomness.system().draw(DiscreteLaplace(Fraction(10)), size)
    assert samples.shape == (size,)
    assert samples.dtype == np.int64
    if size > 1000:
        correlation = float(np.corrcoef(samples[1:], samples[:-1])[0, 1])
        assert abs(correlation) < 7 / math.sqrt(size)


def test_guided_lookup_equals_plain_search() -> None:
    table = InversionTable(laplace_magnitude(Fraction(100)))
    words = Randomness.system().words(20_000)
    no_more = Randomness.seeded(0).words
    guided = table.sample(words, no_more)
    plain = np.concatenate([table.sample(part, no_more) for part in np.array_split(words, 200)])
    assert (guided == plain).all()


def test_tiny_scales_are_almost_always_zero() -> None:
    for noise in (DiscreteLaplace(Fraction(1, 1000)), DiscreteGaussian(Fraction(1, 10**9))):
        assert not Randomness.system().draw(noise, 10_000).any()
        assert noise.pmf(0) == pytest.approx(1)
        assert noise.variance == 0


@pytest.mark.entropy(
    "false alarms below 1e-8: four comparisons with OpenDP, which draws its own noise, at 1e-9"
)
@pytest.mark.parametrize("oracle", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [Fraction(7, 2), Fraction(40)])
def test_agrees_with_opendp(oracle: str, scale: Fraction) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    size = 20_000
    space = (
        dp.vector_domain(dp.atom_domain(T=int)),
        (dp.l1_distance(T=int) if oracle == "laplace" else dp.l2_distance(T=float)),
    )
    make = dp.m.make_laplace if oracle == "laplace" else dp.m.make_gaussian
    theirs = np.array(make(*space, scale=float(scale))([0] * size))
    noise: Noise = DiscreteLaplace(scale) if oracle == "laplace" else DiscreteGaussian(scale**2)
    ours = Randomness.system().draw(noise, size)
    assert two_samples(ours, theirs) > P_LOW
    less = scale * Fraction(2, 3)
    quiet: Noise = DiscreteLaplace(less) if oracle == "laplace" else DiscreteGaussian(less**2)
    wrong = Randomness.system().draw(quiet, size)
    assert two_samples(wrong, theirs) < P_CERTAIN


# --- the integers behind the samplers -------------------------------------------------------------


def decimal_cdf(law: str, parameter: Fraction, count: int) -> list[Decimal]:
    """F(0), F(1), ... in 120-digit decimal arithmetic, straight from the definition."""
    value = Decimal(parameter.numerator) / Decimal(parameter.denominator)
    if law == "laplace":
        q = (-1 / value).exp()
        return [1 - 2 * q ** (k + 1) / (1 + q) for k in range(count)]
    if law == "geometric":
        return [1 - (-(k + 1) * value).exp() for k in range(count)]
    if law == "digit":
        return [(1 - (-(k + 1) * value).exp()) / (1 - (-8 * value).exp()) for k in range(8)]
    if law == "sign":
        q = (-1 / value).exp()
        return [1 / (1 + q), Decimal(1)]
    terms = [(-(Decimal(k) ** 2) / (2 * value)).exp() for k in range(max(count, 200 + 20 * int(value)))]
    weight = 2 if law == "gaussian" else 1
    sums = [1 + weight * sum(terms[1 : k + 1], Decimal(0)) for k in (*range(count), len(terms))]
    return [part / sums[-1] for part in sums[:-1]]


LAWS: dict[str, Any] = {
    "laplace": laplace_magnitude,
    "geometric": geometric,
    "digit": lambda rate: geometric_digit(rate, 8),
    "sign": negative_sign,
    "gaussian": gaussian_magnitude,
    "half gaussian": lambda s: gaussian_magnitude(s, folded=False),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("parameter", [Fraction(1, 30), Fraction(2, 3), Fraction(17, 4)])
@pytest.mark.parametrize("bits", [5, 63, 200])
def test_enclosures_hold_the_distribution(law: str, parameter: Fraction, bits: int) -> None:
    with decimal.localcontext() as context:
        context.prec = 120
        distribution: Distribution = LAWS[law](parameter)
        found = list(islice(distribution(bits), 40))
        exact = decimal_cdf(law, parameter, len(found))
        error = Decimal(10) ** -100
        for (low, high), value in zip(found, exact, strict=True):
            assert low <= (value + error) * 2**bits
            assert high >= (value - error) * 2**bits
            assert high - low <= 4


@given(
    x=st.fractions(min_value=0, max_value=400, max_denominator=10**12),
    bits=st.integers(min_value=1, max_value=300),
)
def test_exponential_is_enclosed(x: Fraction, bits: int) -> None:
    low, high = exp_bounds(x, bits)
    with decimal.localcontext() as context:
        context.prec = 330
        value = (-Decimal(x.numerator) / Decimal(x.denominator)).exp() * 2**bits
        error = Decimal(10) ** -120
        assert low - error <= value <= high + error
        assert high - low <= 3


@given(
    y=st.fractions(min_value=0, max_value=Fraction(1, 2), max_denominator=10**9),
    work=st.integers(min_value=1, max_value=200),
)
def test_series_is_enclosed_to_its_last_unit(y: Fraction, work: int) -> None:
    # The series itself: in exp_bounds further bits hide whether its rounding error is counted.
    low, high = _exp_series(y.numerator, y.denominator, work)
    with decimal.localcontext() as context:
        context.prec = 120
        value = (Decimal(y.numerator) / Decimal(y.denominator)).exp() * 2**work
        assert low <= value + Decimal(10) ** -40
        assert value - Decimal(10) ** -40 <= high


@settings(max_examples=200, deadline=None)
@given(
    law=st.sampled_from(sorted(LAWS)),
    parameter=st.fractions(min_value=Fraction(1, 50), max_value=20, max_denominator=60),
    word_bits=st.sampled_from([1, 2, 7, 63]),
    k=st.integers(min_value=0, max_value=12),
    below=st.booleans(),
    bits=st.integers(min_value=10, max_value=250),
)
def test_ties_are_decided_as_the_definition_says(
    law: str, parameter: Fraction, word_bits: int, k: int, below: bool, bits: int
) -> None:
    """A uniform that agrees with F(k) in ``bits`` binary digits, and then is surely below or above."""
    with decimal.localcontext() as context:
        context.prec = 120
        exact = decimal_cdf(law, parameter, 14)
        k = min(k, len(exact) - 2)
        target = int(exact[k] * 2**bits) + (0 if below else 1)  # floor, or the next multiple
        if not 0 <= target < 2**bits:
            return
        pieces = -(-bits // word_bits) + 1
        total = pieces * word_bits
        uniform = target << (total - bits)
        words = [
            ((uniform >> (total - (i + 1) * word_bits)) & ((1 << word_bits) - 1)) << (64 - word_bits)
            for i in range(pieces)
        ]
        words += [0] * 20
        stream = iter(words[1:])
        table = InversionTable(LAWS[law](parameter), word_bits)
        first = np.array(words[:1], dtype=np.uint64)
        found = table.sample(first, lambda n: np.array([next(stream) for _ in range(n)], dtype=np.uint64))
        value = Decimal(target) / Decimal(2) ** bits
        margin = Decimal(10) ** -100
        expected = sum(1 for f in exact if f + margin < value)
        allowed = (
            {expected}
            if abs(exact[min(expected, len(exact) - 1)] - value) > margin
            else {expected, expected + 1}
        )
        if expected < len(exact):
            assert int(found[0]) in allowed


@pytest.mark.parametrize("word_bits", [2, 8, 63])
@pytest.mark.parametrize("x", ["0", "1/1000000", "1/3", "1", "5", "70"])
def test_coins_show_heads_with_the_stated_probability(x: str, word_bits: int) -> None:
    exponent = Fraction(x)
    size = 20_000 if word_bits == 63 else 3_000
    near = np.full(size, float(exponent))
    heads = coins(near, lambda _: exponent, Randomness.system().words, word_bits)
    probability = math.exp(-float(exponent))
    found = heads.astype(np.int64)
    assert categorical(found, np.array([1 - probability, probability])) > P_LOW
    if x in ("1/3", "1"):
        wrong = math.exp(-float(exponent) * 3 / 2)
        assert categorical(found, np.array([1 - wrong, wrong])) < P_LOW


# --- parameters, moments, calibration -------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        *(DiscreteLaplace(Fraction(s)) for s in ("1/20", "1/2", "1", "37/3")),
        *(DiscreteGaussian(Fraction(s)) for s in ("1/20", "1/2", "1", "399/100", "4", "37")),
    ],
    ids=str,
)
def test_probabilities_and_variance(noise: Noise) -> None:
    k = np.arange(-1500, 1501)
    pmf = np.asarray(noise.pmf(k))
    assert pmf.sum() == pytest.approx(1, rel=1e-12)
    assert (pmf * k**2).sum() == pytest.approx(noise.variance, rel=1e-11)
    assert noise.pmf(3) == pmf[1503]
    ratio = math.exp(-1 / noise.scale) if isinstance(noise, DiscreteLaplace) else None
    assert pmf[1501] / pmf[1500] == pytest.approx(ratio or math.exp(-1 / (2 * noise.sigma_squared)))  # type: ignore[union-attr]


def test_calibration_is_exact() -> None:
    assert noise_for(PureDP.of("0.3"), 2, 4) == DiscreteLaplace(Fraction(20, 3))
    assert noise_for(ZCDP.of("1/7"), 2, 4) == DiscreteGaussian(Fraction(14))
    noise = noise_for(PureDP.of("0.1"), Fraction(1, 3), 1)
    assert isinstance(noise, DiscreteLaplace)
    # The privacy loss of a shift by the sensitivity, on the noise's own law.
    assert math.log(float(noise.pmf(0)) / float(noise.pmf(1))) == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize("bad", [0, -1, Fraction(-1, 3), 0.5, True, "1"])
def test_bad_parameters_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigError):
        DiscreteLaplace(bad)
    with pytest.raises(ConfigError):
        DiscreteGaussian(bad)


def test_parameters_that_could_overflow_are_refused() -> None:
    with pytest.raises(LimitError):
        DiscreteLaplace(Fraction(10**12 + 1))
    with pytest.raises(LimitError):
        DiscreteGaussian(Fraction(10**24 + 1))
    with pytest.raises(ConfigError):
        noise_for(PureDP.of(1), 0, 0)
    with pytest.raises(ConfigError):
        Randomness.system().draw(DiscreteLaplace(Fraction(1)), -1)
