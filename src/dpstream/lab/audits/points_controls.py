"""Online points that break their promise on purpose: an audit that does not catch them is blind.

**Never use anything here on real data.** None of it can be reached from a configuration, and nothing outside the
audits imports it. ``FarPlan`` alone is not broken: its thresholds are out of reach, which no guarantee rests on.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Self

from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.families.points.blocks import noisy
from dpstream.families.points.cell_counters import CellRule, PointCells
from dpstream.families.points.cell_schedule import Schedule
from dpstream.families.points.online import OnlinePointsPlan, PointsState
from dpstream.lab.audits.controls import broken_quiet_counter

__all__ = [
    "BrokenFreeHistory",
    "BrokenKeptThreshold",
    "BrokenLateLevels",
    "BrokenQuiet",
    "BrokenTwiceStored",
    "FarPlan",
    "quiet_rule",
]

_QUIET = Fraction(2, 3)
#: Nothing reaches it, and 64-bit sums hold it.
_FAR = 2**30


class FarPlan(OnlinePointsPlan):
    """Online points whose thresholds are out of reach, so that no segment ever ends."""

    @classmethod
    def of(cls, plan: OnlinePointsPlan) -> Self:
        """``plan`` with thresholds that are out of reach."""
        return cls(plan.recipe, plan.budget, plan.unit, plan.design)

    def rule(self, depth: int, level: int) -> CellRule:
        """The honest one but for the threshold."""
        return replace(super().rule(depth, level), threshold=_FAR)


class BrokenQuiet(FarPlan):
    """BROKEN: 2/3 of the noise of all cells. True loss: 3/2 epsilon, but for the first sums of depths."""

    def rule(self, depth: int, level: int) -> CellRule:
        """A rule with too little noise."""
        return quiet_rule(super().rule(depth, level))


def quiet_rule(rule: CellRule) -> CellRule:
    """BROKEN: 2/3 of the noise that ``rule`` claims."""
    tests, block = (DiscreteLaplace(noise.scale * _QUIET) for noise in (rule.tests, rule.block))
    return CellRule(tests, rule.threshold, broken_quiet_counter(rule.segments), block)


class BrokenTwiceStored(FarPlan):
    """BROKEN: at its end a level gives noisy sums a second time, and the mean of both is stored."""

    def _store_level(self, state: PointsState, randomness: Randomness) -> None:
        for depth, rule in enumerate(state.cells.rules, start=1):
            again = noisy(state.cells.total[1 << depth : 2 << depth], rule.block, randomness)
            state.blocks.sums[depth - 1] = (state.blocks.sums[depth - 1] + again) / 2.0
        super()._store_level(state, randomness)


class _Rescheduled(FarPlan):
    KIND: type[Schedule] = Schedule

    def __post_init__(self) -> None:
        super().__post_init__()
        honest = self.schedule
        broken = self.KIND(honest.dimension, honest.epsilon, honest.design, honest.max_depth)
        object.__setattr__(self, "schedule", broken)


class _Unpaid(Schedule):
    def spent(self, depth: int, level: int) -> Fraction:
        """As if depths that begin later read nothing."""
        charged = [j for j in range(1, self.max_depth + 1) if not self.rereads_all or j <= 3]
        level_cost = sum((super(_Unpaid, self).spent(j, self.max_depth) for j in charged), Fraction(0))
        return super().spent(depth, level) * (self.epsilon / 2) / level_cost


class BrokenFreeHistory(_Rescheduled):
    """BROKEN: what depths read when they begin later is not charged."""

    KIND = _Unpaid


class _Flat(Schedule):
    def spent(self, depth: int, level: int) -> Fraction:
        """What the depth pays in its first level."""
        return super().spent(depth, min(level, depth))


class BrokenLateLevels(_Rescheduled):
    """BROKEN: every level pays like a depth's first one, so that late arrivals pay for each depth in full."""

    KIND = _Flat


class BrokenKeptThreshold(PointCells):
    """BROKEN: one threshold noise for all segments of a cell."""

    def _end_segment(self, cell: int, rule: CellRule, randomness: Randomness) -> None:
        kept = int(self.limit[cell])
        super()._end_segment(cell, rule, randomness)
        self.limit[cell] = kept
