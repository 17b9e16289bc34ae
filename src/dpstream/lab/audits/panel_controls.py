"""Panels that are broken on purpose: an audit that does not catch them is blind.

**Never use them on real data.** No configuration file can name them, and nothing outside the audits imports them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import DiscreteGaussian, Event
from dpstream.families.panel import CumulativePlan, FixedWindowPlan
from dpstream.families.panel.extension import extend, split_whole
from dpstream.families.panel.window import WindowRelease, WindowState
from dpstream.lab.audits.controls import broken_quiet_counter


class _Broken(FixedWindowPlan):
    @classmethod
    def of(cls, plan: FixedWindowPlan) -> Self:
        """``plan``, broken."""
        return cls(plan.recipe, plan.budget, plan.unit)


class BrokenPrivateSplit(_Broken):
    """BROKEN: groups the synthetic people by the histories of the private people, as the published listing does."""

    def _extend(
        self, state: WindowState, noisy: NDArray[np.int64], generator: np.random.Generator
    ) -> WindowRelease:
        assert state.synthetic is not None
        symbols = self.recipe.symbols
        groups = state.synthetic % (self.patterns // symbols)
        # The listing: I_z = {i | (x_i^{t-k+1}, ..., x_i^{t-1}) = z}, with x the private reports.
        private = (state.private // symbols)[: len(groups)]
        groups[: len(private)] = private
        available = np.bincount(groups, minlength=self.patterns // symbols).astype(np.int64)
        numbers, clipped = split_whole(noisy.reshape(-1, symbols), available, generator)
        column = extend(groups, numbers, generator)
        state.synthetic = groups * np.int32(symbols) + column
        state.clipped += clipped
        return WindowRelease(self, state.period, column[:, None], numbers.ravel(), state.clipped)


class BrokenUnpairedNoise(_Broken):
    """BROKEN: has the noise for one changed count, but a replaced person changes two. True loss: twice the claim."""

    @cached_property
    def noise(self) -> DiscreteGaussian:
        """Noise of half of the variance that replacement needs."""
        return DiscreteGaussian(super().noise.sigma_squared / 2)


def broken_unpaired_counters(plan: CumulativePlan) -> CumulativePlan:
    """BROKEN: counters with the noise for one changed increment, but a replaced person changes two."""
    counters = tuple(
        counter.recipe.calibrate(replace(plan.budget, rho=rho), Event())
        for counter, rho in zip(plan.counters, plan.shares, strict=True)
    )
    return replace(plan, counters=counters)


def broken_quiet(plan: CumulativePlan) -> CumulativePlan:
    """BROKEN: counters with 2/3 of the noise."""
    return replace(plan, counters=tuple(broken_quiet_counter(counter) for counter in plan.counters))
