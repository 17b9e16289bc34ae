"""Every way to ask for noise is handed on, and noted before it is served."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpstream.core.privacy import AnyNoise, CubeNoise, DiscreteLaplace, PermuteAndFlip, Randomness, Relay
from dpstream.stream.stream import WatchedRandomness


class Tape(Randomness):
    """Ones in place of noise."""

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        return np.ones(size, np.int64)


LAW, COUNTS = DiscreteLaplace(Fraction(5)), np.array([4, 5, 6])
REQUESTS: dict[str, tuple[Callable[[Randomness], Any], Any]] = {
    "words": (lambda source: source.words(1).tolist(), [0]),
    "draw": (lambda source: source.draw(CubeNoise(Fraction(5), 3), 3).tolist(), [1, 1, 1]),
    "nothing drawn": (lambda source: source.draw(LAW, 0).tolist(), []),
    "measure": (lambda source: source.measure(COUNTS, LAW).tolist(), [5, 6, 7]),
    "measure what was drawn": (lambda source: source.measure(COUNTS, LAW, COUNTS).tolist(), [8, 10, 12]),
    "test": (lambda source: source.test(3, 4, LAW), True),
    "test, below": (lambda source: source.test(3, 5, LAW), False),
    "waiting times": (lambda source: source.waiting_times(COUNTS, LAW, 9).tolist(), [0, 0, 0]),
    "reaches": (lambda source: source.reaches(2, 3, LAW), True),
    "select": (lambda source: source.select([9, 1], 1, PermuteAndFlip(Fraction(1), 1)), 0),
    "coins": (lambda source: source.coins("a test", 2).tolist(), [0, 0]),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_is_served_by_the_inner_randomness_and_noted(name: str) -> None:
    watched = WatchedRandomness(Tape(bytes))
    assert not watched.used
    request, served = REQUESTS[name]
    assert request(watched) == served
    assert watched.used


def test_a_relay_hands_on_every_request_there_is() -> None:
    asked = {name for name in dir(Randomness) if not name.startswith("_")} - {"system", "seeded", "secure"}
    assert asked == {name for name in vars(Relay) if not name.startswith("_")}
