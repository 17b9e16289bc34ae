"""Mechanisms that are broken on purpose: an audit that does not catch them is worth nothing.

**Never use them on real data.** Each claims a guarantee that it does not give. No configuration file can name them, and
nothing outside the audits imports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import TreeCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter, IntervalCounter
from dpstream.core.privacy import (
    AnyNoise,
    Budget,
    CubeNoise,
    DiscreteLaplace,
    Event,
    HistogramsNoise,
    Noise,
    Noisy,
    Randomness,
    Relay,
)
from dpstream.mechanisms.engine import Selector
from dpstream.tools.audit.controls import overspent
from dpstream.tools.evaluate.array_types import Ints


class LoneHistograms(Relay):
    """BROKEN: histograms of one joint draw get separate noise, each as if it were the only one.

    Args:
        only: the law of which this is so; None: of all.
    """

    def __init__(self, inner: Randomness, only: AnyNoise | None = None) -> None:
        super().__init__(inner)
        self._only = only

    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        """Measure with the loss of separate histograms."""
        if isinstance(law, HistogramsNoise) and self._only in (None, law):
            law = _EachAlone(law.scale, law.sizes, law.level)
        return self._inner.measure(exact, law, drawn)


@dataclass(frozen=True)
class _EachAlone(HistogramsNoise):
    def norm(self, moved: NDArray[np.int64]) -> int:
        return int(np.abs(moved).sum())


class LoneSums(Relay):
    """BROKEN: sums that share a joint draw get separate noise, each as if it were the only one that a record moves."""

    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        """Measure with separate noise."""
        lone = DiscreteLaplace(law.scale) if isinstance(law, CubeNoise) else law
        return self._inner.measure(exact, lone, drawn)


class ReusedNoise(Relay):
    """BROKEN: gives the first draw of each law and size again and again, as if it were fresh."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(inner)
        self._kept: dict[tuple[AnyNoise, int], Ints] = {}

    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        """Measure with the first draw of this law and size."""
        if (law, len(exact)) not in self._kept:
            self._kept[law, len(exact)] = self._inner.draw(law, len(exact))
        return self._inner.measure(exact, law, self._kept[law, len(exact)])


class MeasuredTwice(Relay):
    """BROKEN: measures everything twice, and gives the mean, rounded: less noise, for twice the loss."""

    def measure(self, exact: Ints, law: AnyNoise, drawn: Ints | None = None) -> Noisy:
        """The mean of two measurements."""
        first = self._inner.measure(exact, law, drawn)
        return Noisy((first + self._inner.measure(exact, law)) // 2)


class _ShortTreeCalibrated(CalibratedIntervalCounter):
    def noise(self, share: Fraction) -> Noise:
        """A share of one part in ``L`` becomes one part in ``L - 1``."""
        return super().noise(1 / (1 / share - 1))


class BrokenShortTree(TreeCounter):
    """BROKEN: a tree that divides its budget by ``log2 T`` levels, although an increment is in ``log2 T + 1``.

    Its true loss is ``L / (L - 1)`` times the claim, where ``L`` is the number of levels. Published listings contain
    this mistake. For horizons that are powers of two, at least 2.
    """

    def calibrate(self, budget: Budget, unit: Event) -> CalibratedIntervalCounter:
        """A counter that claims ``budget`` and costs more."""
        recipe: IntervalCounter = self
        return _ShortTreeCalibrated(recipe, budget, unit)


def broken_quiet_selector(selector: Selector) -> Selector:
    """BROKEN: a selector with 2/3 of the noise of ``selector``, to be audited against the claim of ``selector``."""
    return Selector(overspent(selector.budget))
