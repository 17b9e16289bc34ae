"""The conformance suite rejects a counter for what is wrong with it, and for nothing else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.checks import check_counter
from dpstream.core.counters import BlockCounter, CalibratedCounter, Counter, SimpleCounter, TreeCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter, IntervalCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy.budget import ZCDP, Budget, PureDP
from dpstream.core.privacy.noise import DiscreteGaussian, DiscreteLaplace, Noise
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.privacy.unit import Event

ONE = PureDP.of(1)


def broken(base: IntervalCounter, **methods: object) -> Counter:
    """``base`` whose calibrated counter has some methods replaced."""
    kind = type("Broken", (CalibratedIntervalCounter,), methods)

    class Recipe(type(base)):  # type: ignore[misc]
        def calibrate(self, budget: Budget, unit: Event) -> CalibratedCounter:
            return kind(self, budget, unit)  # type: ignore[no-any-return]

    return Recipe(*(getattr(base, name) for name in base.__dataclass_fields__))


ORIGINAL = CalibratedIntervalCounter


class Thinner(Randomness):
    """Two thirds of the noise asked for."""

    def __init__(self, inner: Randomness) -> None:
        self.inner = inner

    def draw(self, noise: Noise, size: int) -> NDArray:
        thin: Noise
        if isinstance(noise, DiscreteLaplace):
            thin = DiscreteLaplace(noise.scale * Fraction(2, 3))
        else:
            thin = DiscreteGaussian(noise.sigma_squared * Fraction(4, 9))
        return self.inner.draw(thin, size)


def thin_step(self, state, increment, randomness):
    return ORIGINAL.step(self, state, increment, Thinner(randomness))


def cheating_step(self, state, increment, randomness):
    """Honest on a tape, two thirds of the noise otherwise."""
    honest = hasattr(randomness, "laws")
    return ORIGINAL.step(self, state, increment, randomness if honest else Thinner(randomness))


def doubling_step(self, state, increment, randomness):
    """Counts the last tick of each block twice."""
    last = (int(state["t"][0]) + 1) % 4 == 0
    return ORIGINAL.step(self, state, increment * 2 if last else increment, randomness)


def hoarding_step(self, state, increment, randomness):
    state["log"] = np.append(state.get("log", np.zeros(0, np.int64)), increment)
    return ORIGINAL.step(self, state, increment, randomness)


def casting_step(self, state, increment, randomness):
    return ORIGINAL.step(self, state, np.asarray(increment).astype(np.int64), randomness)


def forgetful_step(self, state, increment, randomness):
    """Keeps the noise of the last tick in the counter, not in the state."""
    carried = self._noise.setdefault("carried", np.zeros_like(increment))  # type: ignore[call-overload]
    estimate = ORIGINAL.step(self, state, increment, randomness)
    result = estimate + (carried if len(carried) == len(estimate) and state["t"][0] > 1 else 0)
    self._noise["carried"] = estimate - state["settled"]
    return result


def broadcast_step(self, state, increment, randomness):
    class One(Randomness):
        def __init__(self) -> None:
            return None

        def draw(self, noise: Noise, size: int) -> NDArray:
            return np.repeat(randomness.draw(noise, 1), size)

    return ORIGINAL.step(self, state, increment, One())


def check_state_loosely(self, state, width):
    return None


BLOCK = BlockCounter(24, 4)
LOOSE = {"check_state": check_state_loosely}


@pytest.mark.parametrize(
    ("recipe", "must_fail", "must_pass"),
    [
        (broken(BLOCK, step=thin_step), {"certificate", "matrix", "errors"}, {"exact-sums", "resume"}),
        (broken(BLOCK, step=cheating_step), {"errors"}, {"certificate", "matrix", "exact-sums"}),
        (broken(BLOCK, step=doubling_step), {"exact-sums", "matrix", "errors"}, {"resume", "cells"}),
        (broken(BLOCK, step=hoarding_step, **LOOSE), {"memory"}, {"certificate", "errors", "resume"}),
        (broken(BLOCK, step=casting_step), {"refusals"}, {"certificate", "errors", "resume"}),
        (broken(BLOCK, step=forgetful_step), {"resume", "clock"}, set()),
        (broken(BLOCK, step=broadcast_step), {"cells", "certificate"}, {"exact-sums", "resume"}),
        (
            broken(BLOCK, variance=lambda self, t: 2 * ORIGINAL.variance(self, t)),
            {"variance"},
            {"certificate", "errors", "matrix"},
        ),
        (
            broken(BLOCK, materialize=lambda self, n: SimpleCounter().calibrate(ONE, Event()).materialize(n)),
            {"matrix", "variance", "errors"},
            {"certificate", "resume"},
        ),
    ],
    ids=["2/3", "2/3-hidden", "biased", "hoards", "casts", "forgets", "broadcasts", "variance", "matrix"],
)
def test_the_suite_rejects(recipe: Counter, must_fail: set[str], must_pass: set[str]) -> None:
    report = check_counter(recipe, ticks=24)
    assert must_fail <= set(report.failures), str(report)
    assert not must_pass & set(report.failures), str(report)
    assert not report.passed
    assert "FAIL" in str(report)


@pytest.mark.parametrize("budget", [ONE, ZCDP.of("1/20"), PureDP.of("1/10")], ids=str)
def test_two_thirds_of_the_noise_is_rejected_by_the_errors_alone(budget: Budget) -> None:
    for base in (SimpleCounter(), TreeCounter(16)):
        report = check_counter(broken(base, step=cheating_step), budget=budget, ticks=16)
        assert report.failures == ("errors",), str(report)
        assert check_counter(base, budget=budget, ticks=16).passed


def test_sizes_of_the_suite() -> None:
    for bad in (0, 1.5, 10**4):
        with pytest.raises(ConfigError, match="ticks to check"):
            check_counter(SimpleCounter(), ticks=bad)  # type: ignore[arg-type]
    report = check_counter(TreeCounter(5), ticks=100)  # as far as the horizon
    assert report.passed
    assert "5 ticks" in str(report)
