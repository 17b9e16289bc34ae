"""Online points that are broken on purpose: an audit that does not catch them is blind.

**Never use them on real data.** No configuration file can name them, and nothing outside the audits imports them. Only
``FarPlan`` is not broken: its thresholds are out of reach, and no guarantee depends on them.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Self

from dpstream.core.privacy import DiscreteLaplace, Randomness
from dpstream.families.points.cells import CellRule, PointCells, PointsState, Schedule, noisy
from dpstream.families.points.online import OnlinePointsPlan
from dpstream.lab.audits.controls import broken_quiet_counter

_QUIET = Fraction(2, 3)
#: A threshold that no count reaches, and that fits into 64-bit sums.
_FAR = 2**30


class FarPlan(OnlinePointsPlan):
    """Online points whose thresholds are out of reach, so that no segment ever ends."""

    @classmethod
    def of(cls, plan: OnlinePointsPlan) -> Self:
        """``plan`` as a plan of this class."""
        return cls(plan.recipe, plan.budget, plan.unit, plan.design)

    def rule(self, depth: int, level: int) -> CellRule:
        """The honest rule with another threshold."""
        return replace(super().rule(depth, level), threshold=_FAR)


class BrokenQuiet(FarPlan):
    """BROKEN: 2/3 of the noise of all cells, except in the first sums of depths. True loss of the rest: 3/2 epsilon."""

    def rule(self, depth: int, level: int) -> CellRule:
        """A rule with too little noise."""
        return quiet_rule(super().rule(depth, level))


def quiet_rule(rule: CellRule) -> CellRule:
    """BROKEN: 2/3 of the noise that ``rule`` claims."""
    tests, block = (DiscreteLaplace(noise.scale * _QUIET) for noise in (rule.tests, rule.block))
    return CellRule(tests, rule.threshold, broken_quiet_counter(rule.segments), block)


class BrokenTwiceStored(FarPlan):
    """BROKEN: a level draws its last noisy sums twice, and stores the mean of both."""

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
        """The honest share, enlarged as if depths that begin later read no history."""
        charged = [j for j in range(1, self.max_depth + 1) if not self.rereads_all or j <= 3]
        level_cost = sum((super(_Unpaid, self).spent(j, self.max_depth) for j in charged), Fraction(0))
        return super().spent(depth, level) * (self.epsilon / 2) / level_cost


class BrokenFreeHistory(_Rescheduled):
    """BROKEN: depths that begin later read the history without a charge."""

    KIND = _Unpaid


class _Flat(Schedule):
    def spent(self, depth: int, level: int) -> Fraction:
        """The share of the depth's first level, for all levels."""
        return super().spent(depth, min(level, depth))


class BrokenLateLevels(_Rescheduled):
    """BROKEN: every level spends as much as a depth's first level, so late arrivals spend too much."""

    KIND = _Flat


class BrokenKeptThreshold(PointCells):
    """BROKEN: one threshold noise for all segments of a cell."""

    def _end_segment(self, cell: int, rule: CellRule, randomness: Randomness) -> None:
        kept = int(self.limit[cell])
        super()._end_segment(cell, rule, randomness)
        self.limit[cell] = kept
