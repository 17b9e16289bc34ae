"""Above-threshold: privacy loss by summation on small streams, and the listing that breaks it."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.errors import BudgetError, ConfigError, StoreDamagedError
from dpstream.core.privacy import AboveThreshold, DiscreteLaplace, Noise, Randomness
from dpstream.core.privacy.sparse_vector import _at_least


def fresh_threshold_probabilities(test: AboveThreshold, values: list[int], limit: int) -> NDArray[np.float64]:
    """Outcome probabilities of the wrong listing, which draws new threshold noise at each question."""
    reach = int(40 * test.threshold_noise.scale) + 40
    shift = np.arange(-reach, reach + 1)
    noise = np.asarray(test.threshold_noise.pmf(shift))
    above = [float((noise * _at_least(test.question_noise, limit - v + shift)).sum()) for v in values]
    result, alive = [], 1.0
    for p in above:
        result.append(alive * p)
        alive *= 1 - p
    return np.array([*result, alive])


def worst_loss(test: AboveThreshold, moves: Any, law: Any, questions: int = 4) -> float:
    worst = 0.0
    for base in itertools.product((0, 4), repeat=questions):
        before = law(test, list(base))
        for move in moves:
            after = law(test, [b + m for b, m in zip(base, move, strict=True)])
            worst = max(worst, float(np.abs(np.log(before / after)).max()))
    return worst


def correct(test: AboveThreshold, values: list[int]) -> NDArray[np.float64]:
    return test.halting_probabilities(values, 3)


ANY = list(itertools.product((-1, 0, 1), repeat=4))
SAME_WAY = list(itertools.product((0, 1), repeat=4))


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(1, 3)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_privacy_loss_of_the_whole_run(epsilon: Fraction, share: Fraction) -> None:
    test = AboveThreshold(epsilon, sensitivity=1, threshold_share=share)
    assert worst_loss(test, ANY, correct) <= float(epsilon) * (1 + 1e-9)
    monotone = AboveThreshold(epsilon, sensitivity=1, threshold_share=share, monotone=True)
    assert worst_loss(monotone, SAME_WAY, correct) <= float(epsilon) * (1 + 1e-9)


def test_two_thirds_of_the_noise_are_rejected() -> None:
    # Far below the threshold until the last question, which jumps the other way: the proof's worst case.
    loud = AboveThreshold(Fraction(3, 2), sensitivity=1)
    sound = AboveThreshold(Fraction(1), sensitivity=1)
    before, after = [1] * 40 + [-1], [0] * 40 + [0]

    def loss(test: AboveThreshold) -> float:
        ratio = np.log(test.halting_probabilities(before, 4) / test.halting_probabilities(after, 4))
        return float(np.abs(ratio).max())

    assert loss(sound) <= 1
    assert loss(loud) > 1


def test_fresh_threshold_noise_breaks_the_guarantee() -> None:
    test = AboveThreshold(Fraction(1), sensitivity=1)
    before, after = [0] * 60, [1] * 60
    one = np.log(test.halting_probabilities(before, 3) / test.halting_probabilities(after, 3))
    fresh = np.log(
        fresh_threshold_probabilities(test, before, 3) / fresh_threshold_probabilities(test, after, 3)
    )
    assert np.abs(one).max() <= 1
    assert np.abs(fresh).max() > 5


def test_the_monotone_precondition_matters() -> None:
    test = AboveThreshold(Fraction(1), sensitivity=1, monotone=True)
    before, after = [1] * 40 + [-1], [0] * 40 + [0]
    loss = np.abs(np.log(test.halting_probabilities(before, 4) / test.halting_probabilities(after, 4))).max()
    assert loss > 1
    rising = [0] * 40 + [0], [1] * 40 + [1]
    for a, b in (rising, rising[::-1]):
        ratio = np.log(test.halting_probabilities(a, 4) / test.halting_probabilities(b, 4))
        assert np.abs(ratio).max() <= 1 + 1e-9


def test_runs_follow_the_probabilities(statistics: Any) -> None:
    test = AboveThreshold(Fraction(2), sensitivity=2)
    values, thresholds = [0, 5, 3, 9], [4, 6, 3, 8]
    source = Randomness.system()

    def run() -> int:
        state = test.start(source)
        for i, (value, threshold) in enumerate(zip(values, thresholds, strict=True)):
            state = json.loads(json.dumps(state))  # saved and restored between questions
            if test.ask(state, value, threshold, source):
                return i
        return len(values)

    outcomes = np.array([run() for _ in range(6_000)])
    law = test.halting_probabilities(values, thresholds)
    assert law.sum() == pytest.approx(1)
    assert statistics.categorical(outcomes, law) > statistics.p_low
    wrong = AboveThreshold(Fraction(3), sensitivity=2).halting_probabilities(values, thresholds)
    assert statistics.categorical(outcomes, wrong) < statistics.p_low


def test_one_threshold_noise_per_run_and_fresh_question_noise() -> None:
    class Tape(Randomness):
        def __init__(self) -> None:
            super().__init__(lambda n: bytes(n))
            self.asked: list[Noise] = []

        def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
            self.asked.append(noise)
            return np.zeros(size, dtype=np.int64)

    tape = Tape()
    test = AboveThreshold(Fraction(1), sensitivity=3, threshold_share=Fraction(1, 4))
    state = test.start(tape)
    assert [test.ask(state, v, 10, tape) for v in (9, 9, 10)] == [False, False, True]
    assert tape.asked == [DiscreteLaplace(Fraction(12))] + 3 * [DiscreteLaplace(Fraction(8))]
    assert state == {"format": 1, "threshold_noise": 0, "asked": 3, "halted": True}
    with pytest.raises(BudgetError):
        test.ask(state, 9, 10, tape)
    assert test.question_noise == DiscreteLaplace(Fraction(8))
    assert AboveThreshold(Fraction(1), 3, monotone=True).question_noise == DiscreteLaplace(Fraction(6))
    assert "until the first yes" in test.describe()


def test_bad_input_is_refused() -> None:
    with pytest.raises(BudgetError):
        AboveThreshold(Fraction(0), sensitivity=1)
    with pytest.raises(BudgetError):
        AboveThreshold(0.5, sensitivity=1)  # type: ignore[arg-type]
    for bad in (0, Fraction(1, 2), True):
        with pytest.raises(ConfigError):
            AboveThreshold(Fraction(1), sensitivity=bad)  # type: ignore[arg-type]
    for share in (Fraction(0), Fraction(1), 0.5):
        with pytest.raises(ConfigError):
            AboveThreshold(Fraction(1), sensitivity=1, threshold_share=share)  # type: ignore[arg-type]
    test = AboveThreshold(Fraction(1), sensitivity=1)
    with pytest.raises(StoreDamagedError):
        test.ask({"format": 2}, 1, 1, Randomness.system())
    assert math.isfinite(test.threshold_noise.variance)
