"""Controls of the audit of a configuration: its counter and its noise with two thirds of the scale.

They claim what they do not keep, and an audit that does not accuse them is worth nothing. They wrap the randomness of
runs on invented records, or copy the plan's counter; no configuration file can name them.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter, CounterState, FactoredCounter
from dpstream.core.counters.intervals import CalibratedIntervalCounter
from dpstream.core.errors import ConfigError
from dpstream.core.privacy import (
    AnyNoise,
    Budget,
    DiscreteGaussian,
    DiscreteLaplace,
    Noise,
    Noisy,
    PureDP,
    Randomness,
    Relay,
)

#: Noise of 2/3 of the right scale costs 3/2 of the epsilon and 9/4 of the rho.
_QUIET = Fraction(2, 3)


def overspent(budget: Budget) -> Budget:
    """The true cost of 2/3 of the noise of ``budget``."""
    factor = 1 / _QUIET
    return budget.scaled(factor if isinstance(budget, PureDP) else factor**2)


class _QuietCounter(CalibratedIntervalCounter):
    """A control: claims ``budget`` and draws 2/3 of its noise."""

    def noise(self, share: Fraction) -> Noise:
        return super().noise(share * overspent(self.budget).amount / self.budget.amount)


def quiet_counter(counter: CalibratedCounter) -> CalibratedCounter:
    """A control: ``counter`` with 2/3 of its noise and the same claim. True loss: 3/2 epsilon, 9/4 rho.

    Errors:
        ConfigError: this function does not know how to reduce the noise of a counter of another package.
    """
    if isinstance(counter, CalibratedIntervalCounter):
        return _QuietCounter(counter.recipe, counter.budget, counter.unit)
    if isinstance(counter, FactoredCounter):
        return _quiet_halves(counter)
    raise ConfigError(
        "unknown kind of counter",
        where="audit",
        allowed="counters of configuration files",
    )


def _quiet_halves(counter: FactoredCounter) -> FactoredCounter:
    """A counter of the same kind whose private half draws 2/3 of the noise."""
    kind = type(counter)

    def measure(
        self: FactoredCounter, state: CounterState, increment: NDArray[np.int64], randomness: Randomness
    ) -> Noisy:
        return kind.measure(self, state, increment, QuietNoise(randomness))

    quiet: FactoredCounter = object.__new__(type(f"Quiet{kind.__name__}", (kind,), {"measure": measure}))
    quiet.__dict__.update(counter.__dict__)
    return quiet


class QuietNoise(Relay):
    """A control: noise of 2/3 of the scale. True loss: 3/2 epsilon, 9/4 rho."""

    def draw(self, law: AnyNoise, size: int) -> NDArray[np.int64]:
        """Draw noise of 2/3 of the scale."""
        return self._inner.draw(_quieter(law), size)

    def measure(
        self, exact: NDArray[np.int64], law: AnyNoise, drawn: NDArray[np.int64] | None = None
    ) -> Noisy:
        """Measure with 2/3 of the scale."""
        return self._inner.measure(exact, _quieter(law), drawn)

    def test(self, exact: int, limit: int, law: DiscreteLaplace) -> bool:
        """Test with 2/3 of the scale."""
        return self._inner.test(exact, limit, _quieter(law))


class HeldTexts(Relay):
    """A control: of a pattern's texts only those get noise that somebody holds."""

    def exceeding(self, law: DiscreteLaplace, above: int, size: int) -> list[tuple[int, int]]:
        """None."""
        return []


def _quieter(noise: Any) -> Any:
    if isinstance(noise, DiscreteGaussian):
        return DiscreteGaussian(noise.sigma_squared * _QUIET**2)
    return replace(noise, scale=noise.scale * _QUIET)
