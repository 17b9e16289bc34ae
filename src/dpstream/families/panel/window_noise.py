"""The noise of a fixed-window synthesizer: so many histograms over patterns, each with an equal part of the budget.

Trusted base: kernel (what a person's history costs).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpstream.core.privacy.budget import ZCDP
from dpstream.core.privacy.noise import DiscreteGaussian, noise_for
from dpstream.families.panel.people_facts import PeopleFacts


@dataclass(frozen=True)
class WindowNoise(PeopleFacts):
    """The noise of a calibrated fixed-window synthesizer; see ``WindowPlan``."""

    window: int
    name = "panel-window"
    so_far = False

    @property
    def first_release(self) -> int:  # type: ignore[override]
        """The first full window."""
        return self.window

    @property
    def histograms(self) -> int:
        """R, how many noisy histograms are released: ``T - k + 1``."""
        return self.horizon - self.window + 1

    @property
    def each(self) -> ZCDP:
        """The budget of each histogram."""
        return self.budget.scaled(Fraction(1, self.histograms))

    @property
    def patterns(self) -> int:
        """Patterns of a window: ``q^k``."""
        return int(self.codes**self.window)

    @cached_property
    def noise(self) -> DiscreteGaussian:
        """The noise of each cell of each histogram; all have equal parts of the budget."""
        cells = 1 if self.unit.relation == "add-remove" else 2
        noise = noise_for(self.each, cells, cells)
        assert isinstance(noise, DiscreteGaussian)
        return noise
