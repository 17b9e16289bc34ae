"""Whether a step has drawn noise yet: decides what may happen after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.cube import CubeNoise
from dpstream.core.privacy.joint import AnyNoise, HistogramsNoise
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.randomness import Randomness


class WatchedRandomness(Randomness):
    """Hands every request on to ``inner``, and remembers that there was one.

    An exception after the first draw may depend on what was drawn, so its occurrence is an output.
    """

    def __init__(self, inner: Randomness) -> None:
        super().__init__(_no_source, secure=inner.secure)
        self._inner = inner
        #: Whether anything was asked for; set before the request is served.
        self.used = False

    def words(self, n: int) -> NDArray[np.uint64]:
        self.used = self.used or n > 0
        return self._inner.words(n)

    def below(self, bound: int) -> int:
        self.used = True
        return self._inner.below(bound)

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        # Of no size: a counter uses noise that it drew at an earlier step.
        self.used = True
        return self._inner.draw(noise, size)

    def draw_joint(self, noise: CubeNoise | HistogramsNoise) -> NDArray[np.int64]:
        self.used = True
        return self._inner.draw_joint(noise)

    def measure(self, exact: NDArray[np.int64], noise: AnyNoise) -> NDArray[np.int64]:
        self.used = True
        return self._inner.measure(exact, noise)

    def choose(self, choice: Callable[[], int], law: Callable[[], NDArray[np.float64]]) -> int:
        self.used = True
        return self._inner.choose(choice, law)


def _no_source(_n: int) -> Any:
    raise RuntimeError("a watched randomness has no words of its own")
