"""Noise that several numbers share, and sums of noise: their laws, their losses, and intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from chi_square import P_CERTAIN, P_LOW, categorical
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy import (
    ZCDP,
    CubeNoise,
    DiscreteGaussian,
    HistogramsNoise,
    PureDP,
    Randomness,
    noise_for_bounded,
)
from dpstream.core.privacy.cube import _CubeSampler, _degrees, _differences
from dpstream.core.privacy.joint import _HistogramsSampler, _shares, ball_series, block_vectors, dimension_of
from dpstream.core.privacy.law import NoiseSum, WeightedLaplace, unpack_law
from dpstream.core.privacy.noise import DiscreteLaplace

Vector = tuple[int, ...]
CASES = [
    (Fraction(1), (3, 3), False),
    (Fraction(1, 2), (1, 2, 3), False),
    (Fraction(2, 3), (2, 3), True),
    (Fraction(1), (4,), True),
]
DRAWS = 6_000
#: Vectors of at most this norm are looked at one by one.
REACH = 4


def blocks_of(vector: Vector, sizes: tuple[int, ...]) -> list[Vector]:
    ends = list(itertools.accumulate(sizes, initial=0))
    return [vector[a:b] for a, b in itertools.pairwise(ends)]


def norm(vector: Vector, sizes: tuple[int, ...], *, level: bool) -> int:
    return max(sum(map(abs, block)) for block in blocks_of(vector, sizes)) // (2 if level else 1)


@cache
def lattice(sizes: tuple[int, ...], level: bool, most: int) -> list[Vector]:
    """All vectors whose blocks have one sum, up to a norm: by enumeration."""
    blocks = []
    for cells in sizes:
        by_sum: dict[int, list[Vector]] = {}
        for block in itertools.product(range(-most, most + 1), repeat=cells):
            if sum(map(abs, block)) <= most * (2 if level else 1):
                by_sum.setdefault(sum(block), []).append(block)
        blocks.append(by_sum)
    found = []
    for total in [0] if level else range(-most, most + 1):
        every = itertools.product(*(block.get(total, []) for block in blocks))
        found += [tuple(itertools.chain.from_iterable(chosen)) for chosen in every]
    return found


def whole_weight(scale: Fraction, sizes: tuple[int, ...], *, level: bool) -> float:
    """``sum_z q^norm(z)``: the series of the balls times ``1 - q``."""
    q, power = math.exp(-1 / float(scale)), dimension_of(sizes, level=level)
    numerators = ball_series(sizes, level=level).vectors
    return sum(h * q**j for j, h in enumerate(numerators)) / (1 - q) ** power


def shifts(sizes: tuple[int, ...], *, level: bool) -> list[np.ndarray]:
    """What one record changes: it comes (or goes), or its values are replaced."""
    units = [np.eye(cells, dtype=int) for cells in sizes]
    records = [np.concatenate(rows) for rows in itertools.product(*units)]
    if not level:
        return [sign * record for record in records for sign in (1, -1)]
    return [a - b for a in records for b in records if (a != b).any()]


@pytest.mark.parametrize("level", [False, True])
@pytest.mark.parametrize("sizes", [(3, 3), (2, 2, 2), (4, 2), (3,), (5, 2)])
def test_numbers_of_vectors_and_sums_of_squares(sizes: tuple[int, ...], level: bool) -> None:
    """All three series against enumeration; each is a polynomial with numerators that are not negative."""
    series, power = ball_series(sizes, level=level), dimension_of(sizes, level=level)

    def at(numerators: tuple[int, ...], degree: int, radius: int) -> int:
        return sum(
            h * math.comb(radius - j + degree, degree) for j, h in enumerate(numerators) if j <= radius
        )

    most = 3
    every = [(norm(z, sizes, level=level), z) for z in lattice(sizes, level, most)]
    for radius in range(most + 1):
        ball = [z for own, z in every if own <= radius]
        assert at(series.vectors, power, radius) == len(ball)
        assert at(series.sums, power + 2, radius) == sum(sum(z[: sizes[0]]) ** 2 for z in ball)
        for place, cells in enumerate(sizes):
            first = sum(sizes[:place])
            assert at(series.squares[cells], power + 2, radius) == sum(z[first] ** 2 for z in ball)
    assert min(series.vectors) >= 0
    assert min(map(min, series.squares.values())) >= 0


def test_numbers_of_blocks_in_closed_form() -> None:
    for cells, total, most in itertools.product(range(1, 5), range(4), range(4)):
        every = itertools.product(range(-most, total + most + 1), repeat=cells)
        own = [x for x in every if sum(x) == total and sum(-v for v in x if v < 0) <= most]
        assert block_vectors(cells, total, most) == len(own)


@pytest.mark.parametrize("level", [False, True])
@pytest.mark.parametrize("sizes", [(12 * (3,)), (20 * (5,)), (2, 3, 5)])
def test_large_series_have_whole_numerators_that_are_not_negative(
    sizes: tuple[int, ...], level: bool
) -> None:
    series, power = ball_series(sizes, level=level), dimension_of(sizes, level=level)
    assert min(series.vectors) >= 0
    # Beyond the values that it was made from, as products of closed forms.
    radius, total = 2 * power, 0
    for s in [0] if level else range(radius + 1):
        most = radius if level else (radius - s) // 2
        total += math.prod(block_vectors(c, s, most) for c in sizes) * (2 if s else 1)
    assert total == sum(h * math.comb(radius - j + power, power) for j, h in enumerate(series.vectors))


@pytest.mark.parametrize(("scale", "sizes", "level"), CASES)
@pytest.mark.parametrize("word_bits", [63, 4])
def test_draws_follow_the_law_and_broken_ones_do_not(
    scale: Fraction, sizes: tuple[int, ...], level: bool, word_bits: int
) -> None:
    """4-bit words take the exact paths nearly always. Controls: 2/3 of the noise; the norm of a shell with a draw from
    its ball."""
    sampler, randomness = (
        _HistogramsSampler(scale, sizes, level=level, word_bits=word_bits),
        Randomness.system(),
    )
    place = {z: i for i, z in enumerate(lattice(sizes, level, REACH))}
    drawn = [tuple(sampler.sample(randomness.words).tolist()) for _ in range(DRAWS)]
    outcomes = np.array([place.get(z, len(place)) for z in drawn])

    def law(of: Fraction) -> np.ndarray:
        weights = np.array([math.exp(-norm(z, sizes, level=level) / float(of)) for z in place])
        shares = weights / whole_weight(of, sizes, level=level)
        return np.append(shares, 1.0 - shares.sum())

    assert categorical(outcomes, law(scale)) > P_LOW
    assert categorical(outcomes, law(scale * Fraction(2, 3))) < P_CERTAIN


@pytest.mark.parametrize(("scale", "sizes", "level"), [*CASES, (Fraction(40), (3,) * 12, False)])
def test_variances_and_covariances_are_those_of_the_law(
    scale: Fraction, sizes: tuple[int, ...], level: bool
) -> None:
    """By the definition for small scales; for the rest from draws, within six standard errors."""
    noise = HistogramsNoise(scale, sizes, level)
    if scale <= 1:
        q = math.exp(-1 / float(scale))
        power = dimension_of(sizes, level=level)

        def mean(numerators: tuple[int, ...], of: int) -> float:
            ways = [
                sum(h * math.comb(r - j + of, of) for j, h in enumerate(numerators) if j <= r)
                for r in range(400)
            ]
            return sum((w - b) * q**r for r, (b, w) in enumerate(itertools.pairwise([0, *ways])))

        whole = mean(ball_series(sizes, level=level).vectors, power)
        squares = mean(ball_series(sizes, level=level).squares[sizes[0]], power + 2)
        assert noise.variances[0] == pytest.approx(squares / whole, rel=1e-9)
        return
    randomness = Randomness.seeded("variances")
    drawn = np.array([randomness.draw(noise, sum(noise.sizes)) for _ in range(2000)], dtype=float)
    cells = sizes[0]
    for found, expected in (
        ((drawn[:, 0] ** 2), noise.variances[0]),
        ((drawn[:, 0] * drawn[:, 1]), noise.covariance_within(cells)),
        ((drawn[:, 0] * drawn[:, cells]), noise.sum_variance / cells**2),
        ((drawn[:, :cells].sum(axis=1) ** 2), noise.sum_variance),
    ):
        assert abs(found.mean() - expected) < 6 * found.std() / math.sqrt(len(drawn))


Law = Callable[[Vector], float]


def worst_loss(law: Law, sizes: tuple[int, ...], *, level: bool, most: int) -> float:
    """The largest log-ratio of probabilities between neighbours, both directions, over all vectors up to a norm."""
    worst = 0.0
    known = {z: law(z) for z in lattice(sizes, level, most + 1)}
    for shift in shifts(sizes, level=level):
        for z in lattice(sizes, level, most):
            worst = max(worst, abs(math.log(known[z] / known[tuple((np.array(z) + shift).tolist())])))
    return worst


@pytest.mark.parametrize("level", [False, True])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1)])
def test_the_loss_of_every_record_is_the_claim_and_controls_are_caught(
    epsilon: Fraction, level: bool
) -> None:
    """Exact probabilities of the law over a truncated lattice, and of three wrong ways to draw."""
    sizes, most, rate = (3, 3), 5, float(epsilon)
    size = cache(lambda radius: len(lattice(sizes, level, radius)))

    def own(z: Vector) -> float:
        return math.exp(-rate * norm(z, sizes, level=level))

    assert worst_loss(own, sizes, level=level, most=most) == pytest.approx(rate)

    @cache
    def shell(radius: int) -> int:
        return size(radius) - (size(radius - 1) if radius else 0)

    @cache
    def mixed(radius: int) -> float:
        # A shell's weight with a draw from its ball; the lattice ends where it is rare enough not to matter.
        return sum(shell(r) * math.exp(-rate * r) / size(r) for r in range(radius, 8))

    def single(z: Vector) -> float:
        return math.exp(-rate * max(map(abs, z)))

    def quiet(z: Vector) -> float:
        return math.exp(-1.5 * rate * norm(z, sizes, level=level))

    if rate == 1.0:
        wrong = worst_loss(lambda z: mixed(norm(z, sizes, level=level)), sizes, level=level, most=3)
        assert wrong > 1.05 * rate
    assert worst_loss(quiet, sizes, level=level, most=most) == pytest.approx(1.5 * rate)
    # Noise for one histogram, drawn for each of two.
    apart = worst_loss(
        lambda z: math.exp(-rate * sum(norm(b, (3,), level=level) for b in blocks_of(z, sizes))),
        sizes, level=level, most=most,
    )  # fmt: skip
    assert apart == pytest.approx(2 * rate)
    # The largest cell in place of the largest block.
    assert worst_loss(single, sizes, level=level, most=most) <= rate + 1e-9


def test_the_norm_bounds_every_record_by_one() -> None:
    for sizes in [(3, 3), (2, 4), (2, 3, 2)]:
        for level in (False, True):
            noise = HistogramsNoise(Fraction(1), sizes, level)
            assert {noise.norm(shift) for shift in shifts(sizes, level=level)} == {1}


@pytest.mark.parametrize("rate", [Fraction(1, 10**12), Fraction(1, 7), Fraction(500)])
def test_enclosures_of_the_first_radius_hold_and_are_narrow(rate: Fraction) -> None:
    numerators = ball_series((3,) * 6, level=False).vectors
    weights = np.array([float(h) * math.exp(-j * float(rate)) for j, h in enumerate(numerators)])
    law = np.cumsum(weights) / weights.sum()
    bounds = list(_shares(rate, numerators)(80))
    assert bounds[-1] == (1 << 80, 1 << 80)
    for (low, high), value in zip(bounds, law, strict=True):
        assert low <= high <= low + 4
        assert low / 2**80 == pytest.approx(value, rel=1e-9)


def test_a_scale_of_a_million_million_and_blocks_that_do_not_fit() -> None:
    noise = HistogramsNoise(Fraction(10**12), (3,) * 12)
    value = Randomness.seeded("large").draw(noise, sum(noise.sizes))
    assert len(set(value.reshape(12, 3).sum(axis=1).tolist())) == 1
    noise.check(value)
    value[0] += 1
    with pytest.raises(ConfigError, match="joint histograms must count the same records"):
        noise.check(value)
    with pytest.raises(ConfigError, match="differ in cells"):
        noise.check(value[1:])
    for scale, sizes, level, error in (
        (Fraction(0), (3,), False, ConfigError),
        (Fraction(1), (), False, ConfigError),
        (Fraction(1), (3, 1), True, ConfigError),
        (Fraction(1), (600,), False, ConfigError),
        (Fraction(10**13), (3,), False, LimitError),
    ):
        with pytest.raises(error):
            HistogramsNoise(scale, sizes, level)


# Joint noise: its law from the definition, also on the paths that ties take, and what it costs


CASES_OF_CUBE = [("1/3", 4), ("3/2", 1), ("3/2", 2), ("7", 3), ("40", 24)]
DRAWS_OF_CUBE = 20_000


def largest_law(scale: Fraction, dimension: int, many: int) -> np.ndarray:
    """Probabilities of the largest absolute value 0, 1, ...: numbers of vectors times their weight."""
    r = np.arange(many, dtype=np.float64)
    shells = (2 * r + 1) ** dimension - np.where(r > 0, (2 * r - 1), 0) ** dimension
    weights = shells * np.exp(-r / float(scale))
    return np.asarray(weights / weights.sum())


def draws(scale: Fraction, dimension: int, word_bits: int) -> np.ndarray:
    sampler, randomness = _CubeSampler(scale, dimension, word_bits), Randomness.system()
    return np.array([sampler.sample(randomness.words) for _ in range(DRAWS_OF_CUBE)])


@pytest.mark.parametrize(("scale", "dimension"), CASES_OF_CUBE)
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


@pytest.mark.parametrize(("scale", "dimension"), [*CASES_OF_CUBE, ("1000000", 60), ("1/200", 5)])
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


# Intervals of errors that are weighted sums of Laplace draws with unknown weights


_ANGLES = np.linspace(1e-6, 60.0, 24_001)
#: Far above one record, so that whole numbers do not matter.
_VARIANCE = 10**8


def _families() -> list[NDArray[np.float64]]:
    """How the draws share the variance: evenly, one large beside many small, and at random."""
    even = [np.full(n, 1.0 / n) for n in (1, 2, 3, 4, 6, 10, 20, 60)]
    uneven = [np.r_[x, np.full(m, (1.0 - x) / m)] for x in (0.3, 0.6, 0.9) for m in (2, 20)]
    generator = np.random.default_rng(5)
    return even + uneven + [generator.dirichlet(np.full(8, 0.5)) for _ in range(4)]


def _coverage(shares: NDArray[np.float64], width: float) -> float:
    """``Pr[|sum| <= width]`` for a sum of variance 1, by inverting its characteristic function."""
    characteristic = np.prod([1.0 / (1.0 + share * _ANGLES**2 / 2.0) for share in shares], axis=0)
    return float(2.0 / np.pi * np.trapezoid(characteristic * np.sin(width * _ANGLES) / _ANGLES, _ANGLES))


def _shortfall(factor: float) -> float:
    """The largest lack of coverage over all families and confidences; the integral is good to about 1e-4."""
    lacking = []
    for confidence in (0.3, 0.5, 0.8, 0.88, 0.9, 0.905, 0.91, 0.92, 0.95, 0.99, 0.999):
        width = factor * WeightedLaplace(Fraction(_VARIANCE)).half_width(confidence) / _VARIANCE**0.5
        lacking += [confidence - _coverage(shares, width) for shares in _families()]
    return max(lacking)


def test_intervals_hold_for_all_weights() -> None:
    assert _shortfall(1.0) < 2e-4
    # Negative control: 2 % narrower, and some sum is missed too often.
    assert _shortfall(0.98) > 3e-3


def test_several_cells_packing_and_refusals() -> None:
    law = WeightedLaplace(Fraction(1, 3))
    assert law.times(3) == WeightedLaplace(Fraction(1))
    assert unpack_law(law.pack()) == law
    exact = NoiseSum(((DiscreteLaplace(Fraction(2)), 3),))
    assert unpack_law(exact.pack()) == exact
    with pytest.raises(ConfigError, match="confidence"):
        law.half_width(1.0)
