"""Waiting times of tests with fresh noise: exact law, also with short words; the same as testing one by one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from dpstream.errors import ConfigError
from dpstream.privacy import DiscreteLaplace, Randomness
from dpstream.privacy.waiting import _no, _power, waiting_time


def probability(noise: DiscreteLaplace, gap: int) -> float:
    """Of a yes, summed up."""
    values = np.arange(gap, gap + 4000)
    return float(np.asarray(noise.pmf(values)).sum())


@pytest.mark.parametrize("gap", [-3, 0, 1, 2, 9])
@pytest.mark.parametrize("word_bits", [64, 3])
def test_the_law_is_geometric(gap: int, word_bits: int) -> None:
    """Chi-square at 1e-8 each; with words of 3 bits ties are everyday. A neighbouring gap is told apart."""
    noise, limit, runs = DiscreteLaplace(Fraction(5, 2)), 12, 4000
    source = Randomness.seeded(gap)
    seen = [waiting_time(noise, gap, limit, source, word_bits=word_bits) or limit + 1 for _ in range(runs)]
    counts = np.bincount(seen, minlength=limit + 2)[1:]

    def fits(yes: float) -> bool:
        law = runs * np.append(yes * (1 - yes) ** np.arange(limit), (1 - yes) ** limit)
        last = max(int(np.argmax(law.cumsum() > runs - 30)), 1)
        folded = np.append(law[:last], law[last:].sum()), np.append(counts[:last], counts[last:].sum())
        return bool(((folded[1] - folded[0]) ** 2 / folded[0]).sum() < chi2.isf(1e-8, last))

    assert fits(probability(noise, gap))
    assert not fits(probability(noise, gap + 1))


def test_enclosures_hold_the_power_and_are_narrow() -> None:
    """Against decimal logarithms; and powers of exact fractions."""
    for scale, gap, k in (
        (Fraction(2), 40, 10**6),
        (Fraction(1, 3), 1, 7),
        (Fraction(50), -3, 3),
        (Fraction(7), 0, 1),
    ):
        noise, bits = DiscreteLaplace(scale), 160
        low, high = _power(*_no(noise, gap, bits), k, bits)
        assert low < high < low + 2**40
        assert low / 2**bits == pytest.approx((1 - probability(noise, gap)) ** k, rel=1e-7)
    third = (1 << 40) // 3, (1 << 40) // 3 + 1
    for k in range(30):
        low, high = _power(*third, k, 40)
        assert low <= Fraction(1, 3) ** k * 2**40 <= high


def test_far_ends() -> None:
    source, noise = Randomness.seeded(2), DiscreteLaplace(Fraction(3))
    assert [waiting_time(noise, 10**5, 10**6, source) for _ in range(20)] == [None] * 20
    assert [waiting_time(noise, -(10**5), 10, source) for _ in range(20)] == [1] * 20
    # A mean of 5,000 tests: the mean of 2,000 draws is within 6 of its standard deviations (2e-9).
    gap = next(g for g in range(100) if probability(noise, g) < 1 / 5000)
    mean = 1 / probability(noise, gap)
    seen = [waiting_time(noise, gap, 10**6, source) for _ in range(2000)]
    assert abs(np.mean([x for x in seen if x]) - mean) < 6 * mean / math.sqrt(2000)
    for limit in (0, -1, 2.5, True):
        with pytest.raises(ConfigError, match="limit"):
            waiting_time(noise, 1, limit, source)  # type: ignore[arg-type]
