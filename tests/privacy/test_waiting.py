"""Waiting times of tests with fresh noise: exact law, also with short words; the same as testing one by one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from chi_square import P_LOW, categorical

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import DiscreteLaplace, Randomness, waiting
from dpstream.core.privacy.waiting import _first, _no, _power, _Uniform, reaches, waiting_times


def waiting_time(
    noise: DiscreteLaplace, gap: int, limit: int, randomness: Randomness, *, word_bits: int = 64
) -> int | None:
    """One waiting time, by integers only; None where none of ``limit`` tests says yes."""
    return _first(_Uniform(noise, gap, randomness.words, word_bits), limit)


def probability(noise: DiscreteLaplace, gap: int) -> float:
    """Of a yes, summed up."""
    values = np.arange(gap, gap + 4000)
    return float(np.asarray(noise.pmf(values)).sum())


def geometric(yes: float, limit: int) -> np.ndarray:
    """Probabilities of the waiting times 1 to ``limit``, and of more tests."""
    return np.append(yes * (1 - yes) ** np.arange(limit), (1 - yes) ** limit)


@pytest.mark.parametrize("gap", [-3, 0, 1, 2, 9])
@pytest.mark.parametrize("word_bits", [64, 3])
def test_the_law_is_geometric(gap: int, word_bits: int) -> None:
    """With words of 3 bits ties are everyday. A neighbouring gap is told apart."""
    noise, limit, runs = DiscreteLaplace(Fraction(5, 2)), 12, 4000
    source = Randomness.seeded(gap)
    seen = [waiting_time(noise, gap, limit, source, word_bits=word_bits) or limit + 1 for _ in range(runs)]
    outcomes = np.array(seen) - 1
    assert categorical(outcomes, geometric(probability(noise, gap), limit)) > P_LOW
    other = geometric(probability(noise, gap + 1), limit)
    assert categorical(outcomes, other) < P_LOW


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


def test_many_at_once_follow_the_same_law_and_ends_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with a margin so wide that integers decide nearly everything."""
    noise, limit = DiscreteLaplace(Fraction(5, 2)), 30

    def drawn(gap: int, runs: int) -> np.ndarray:
        seen = waiting_times(noise, np.full(runs, gap), limit, Randomness.seeded(gap).words)
        return np.where(seen == 0, limit, seen - 1)

    for gap in (-2, 0, 1, 5, 12):
        law, other = (geometric(probability(noise, near), limit) for near in (gap, gap + 1))
        outcomes = drawn(gap, 20_000)
        assert categorical(outcomes, law) > P_LOW
        assert categorical(outcomes, other) < P_LOW
    monkeypatch.setattr(waiting, "_MARGIN", 0.5)
    law = geometric(probability(noise, 5), limit)
    assert categorical(drawn(5, 3000), law) > P_LOW

    words = np.array([0, 1, 2**64 - 1, 2**64 - 2, 2**63, 2**40], np.uint64)
    source = Randomness(lambda n: words.tobytes() if n == 48 else bytes(n))
    monkeypatch.setattr(source, "words", lambda n: words if n == 6 else np.zeros(n, np.uint64))
    far = waiting_times(noise, np.full(6, 40), 1000, source.words)
    # U next to 0: noes for ever. U next to 1: the first test says yes.
    assert far[[0, 1, 5]].tolist() == [0, 0, 0]
    assert far[[2, 3]].tolist() == [1, 1]
    assert not waiting_times(noise, np.full(3, 10**12), 2**60, Randomness.seeded(1).words).any()
    for bad in (0, 2**61, True):
        with pytest.raises(ConfigError, match="limit"):
            waiting_times(noise, np.zeros(1, np.int64), bad, Randomness.seeded(1).words)


def test_floating_point_agrees_with_the_enclosures_word_by_word() -> None:
    """The same words, decided by both: wherever floating point decides, integers decide the same."""
    generator = np.random.default_rng(5)
    for scale, gap, limit in ((Fraction(3), 2, 500), (Fraction(40), 300, 10**6), (Fraction(7, 3), -4, 9)):
        noise, words = DiscreteLaplace(scale), generator.integers(0, 2**64, 300, dtype=np.uint64)
        source = Randomness(lambda n, words=words: words.tobytes() + bytes(n - 8 * len(words)))
        seen = waiting_times(noise, np.full(300, gap), limit, source.words)
        alone = [
            waiting_time(
                noise, gap, limit, Randomness(lambda n, w=w: np.array([w], "<u8").tobytes() + bytes(n - 8))
            )
            for w in words
        ]
        assert seen.tolist() == [one or 0 for one in alone]


def test_thinning() -> None:
    """A noise known to reach 2 reaches 6 with probability q^4; six standard deviations of 20,000 coins."""
    noise, source = DiscreteLaplace(Fraction(5)), Randomness.seeded(4)
    p = math.exp(-4 / 5)
    seen = sum(reaches(noise, 2, 6, source.words) for _ in range(20000))
    assert abs(seen - 20000 * p) < 6 * math.sqrt(20000 * p * (1 - p))
    assert abs(seen - 20000 * math.exp(-5 / 5)) > 6 * math.sqrt(20000 * p * (1 - p))
    assert reaches(noise, -3, -3, source.words)
    for known, gap in ((-1, 3), (5, 3)):
        with pytest.raises(ConfigError, match="gap"):
            reaches(noise, known, gap, source.words)
