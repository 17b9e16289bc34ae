"""Mechanisms that are broken on purpose: an audit that does not catch them is worth nothing.

**Never use them on real data.** Each claims a guarantee that it does not give. No configuration file can name them, and
nothing outside the audits imports them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter, CounterState, TreeCounter
from dpstream.core.counters.counter import FactoredCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter, IntervalCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import (
    AnyNoise,
    Budget,
    CubeNoise,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    HistogramsNoise,
    Noise,
    PureDP,
    Randomness,
)
from dpstream.lab.audits.door import SameWords
from dpstream.mechanisms.selector import Selector

#: Noise of 2/3 of the right scale costs 3/2 of the epsilon and 9/4 of the rho.
_QUIET = Fraction(2, 3)


def _overspent(budget: Budget) -> Budget:
    """The true cost of 2/3 of the noise of ``budget``."""
    factor = 1 / _QUIET
    return budget.scaled(factor if isinstance(budget, PureDP) else factor**2)


class _QuietCounter(CalibratedIntervalCounter):
    """BROKEN: claims ``budget`` and draws 2/3 of its noise."""

    def noise(self, share: Fraction) -> Noise:
        return super().noise(share * _overspent(self.budget).amount / self.budget.amount)


def broken_quiet_counter(counter: CalibratedCounter) -> CalibratedCounter:
    """BROKEN: ``counter`` with 2/3 of its noise and the same claim. True loss: 3/2 epsilon, 9/4 rho.

    Errors:
        ConfigError: this function does not know how to reduce the noise of a counter of another package.
    """
    if isinstance(counter, CalibratedIntervalCounter):
        return _QuietCounter(counter.recipe, counter.budget, counter.unit)
    if isinstance(counter, FactoredCounter):
        return _quiet_halves(counter)
    raise ConfigError(
        "this counter is neither an interval counter nor a factored counter, so it has no broken version",
        where="audit",
        allowed="the counters that configuration files can name",
    )


def _quiet_halves(counter: FactoredCounter) -> FactoredCounter:
    """A counter of the same kind whose private half draws 2/3 of the noise."""
    kind = type(counter)

    def measure(
        self: FactoredCounter, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> NDArray[np.int64]:
        return kind.measure(self, state, increment, QuietNoise(randomness))

    quiet: FactoredCounter = object.__new__(type(f"Quiet{kind.__name__}", (kind,), {"measure": measure}))
    quiet.__dict__.update(counter.__dict__)
    return quiet


class QuietNoise(SameWords):
    """BROKEN: draws noise of 2/3 of the scale. True loss: 3/2 epsilon, 9/4 rho."""

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """Draw noise of 2/3 of the scale."""
        return self._inner.draw(_quieter(noise), size)

    def draw_joint(self, noise: CubeNoise | HistogramsNoise) -> NDArray[np.int64]:
        """As ``draw``, of a whole vector."""
        return self._inner.draw_joint(_quieter(noise))

    def measure(self, exact: NDArray[np.int64], noise: AnyNoise) -> NDArray[np.int64]:
        """Measure with 2/3 of the scale."""
        return self._inner.measure(exact, _quieter(noise))

    def limits(self, limit: int, noise: Noise, size: int) -> NDArray[np.int64]:
        """Noisy limits with 2/3 of the scale."""
        return self._inner.limits(limit, _quieter(noise), size)


def _quieter(noise: Any) -> Any:
    if isinstance(noise, DiscreteGaussian):
        return DiscreteGaussian(noise.sigma_squared * _QUIET**2)
    return replace(noise, scale=noise.scale * _QUIET)


class LoneHistograms(SameWords):
    """BROKEN: histograms of one joint draw get separate noise, each as if it were the only one.

    Args:
        only: the law of which this is so; None: of all.
    """

    def __init__(self, inner: Randomness, only: AnyNoise | None = None) -> None:
        super().__init__(inner)
        self._only = only

    def measure(self, exact: NDArray[np.int64], noise: AnyNoise) -> NDArray[np.int64]:
        """Measure with the loss of separate histograms."""
        if isinstance(noise, HistogramsNoise) and self._only in (None, noise):
            noise = _EachAlone(noise.scale, noise.sizes, noise.level)
        return self._inner.measure(exact, noise)


@dataclass(frozen=True)
class _EachAlone(HistogramsNoise):
    def norm(self, moved: NDArray[np.int64]) -> int:
        return int(np.abs(moved).sum())


class LoneSums(SameWords):
    """BROKEN: sums that share a joint draw get separate noise, each as if it were the only one that a record moves."""

    def measure(self, exact: NDArray[np.int64], noise: AnyNoise) -> NDArray[np.int64]:
        """Measure with separate noise."""
        return self._inner.measure(
            exact, DiscreteLaplace(noise.scale) if isinstance(noise, CubeNoise) else noise
        )


class ReusedNoise(SameWords):
    """BROKEN: gives the first draw of each law and size again and again, as if it were fresh."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(inner)
        self._kept: dict[tuple[Noise, int], NDArray[np.int64]] = {}

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """The first draw of this law and size."""
        if (noise, size) not in self._kept:
            self._kept[noise, size] = self._inner.draw(noise, size)
        return self._kept[noise, size].copy()


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
    return Selector(_overspent(selector.budget))
