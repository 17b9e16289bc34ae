"""Every way to ask for noise is handed on, and noted before it is served."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import CubeNoise, Randomness
from dpstream.stream.stream import WatchedRandomness


class Tape(Randomness):
    """Ones in place of joint noise."""

    def draw_joint(self, noise: CubeNoise) -> NDArray[np.int64]:
        return np.ones(noise.dimension, np.int64)


def test_joint_noise_is_that_of_the_inner_randomness_and_noted() -> None:
    watched = WatchedRandomness(Tape(bytes))
    assert not watched.used
    assert watched.draw_joint(CubeNoise(Fraction(5), 3)).tolist() == [1, 1, 1]
    assert watched.used
