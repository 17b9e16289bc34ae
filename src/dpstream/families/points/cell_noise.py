"""The noise of the cells of points: of tests, of sums, of first counts; and up to how many points it fits.

Trusted base: kernel (noise of counts of points).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dpstream.core.errors import LimitError
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.families.points.cells import (
    MAX_TICK,
    CellRule,
    Design,
    Schedule,
    cell_rule,
)


@dataclass(frozen=True)
class CellNoise:
    """Levels and budgets as noise; frozen, without data."""

    schedule: Schedule

    def __post_init__(self) -> None:
        self.schedule.check()
        assert self.most_points

    @property
    def design(self) -> Design:
        """Public constants."""
        return self.schedule.design

    @cached_property
    def most_points(self) -> int:
        """2^38, or fewer where epsilon is tiny and later noise would not fit 64-bit sums.

        The largest noise is that of the highest cells (``d >= 2``) or of the deepest (``d = 1``).
        """
        level = max(1, self.schedule.level_of(MAX_TICK))
        while True:
            try:
                for depth in (1, self.schedule.depth(level)):
                    self.rule(depth, level)
                return min(MAX_TICK, self.schedule.start(level + 1) - 1)
            except LimitError:
                if level == 1:
                    raise LimitError(
                        "epsilon is so small that the first level's noise does not fit 64-bit sums",
                        where="budget",
                        allowed="a larger epsilon",
                    ) from None
                level -= 1

    def rule(self, depth: int, level: int) -> CellRule:
        """The noise and the threshold of the cells of a depth in a level; public."""
        schedule = self.schedule
        return cell_rule(schedule.spent(depth, level), max(1, schedule.ticks(level)), self.design)

    def first_levels(self, depth: int) -> list[list[int]]:
        """``d = 1``: the levels before cells of ``depth`` begin, those together that are counted in one sum."""
        levels = [level for level in range(-1, depth) if self.schedule.ticks(level)]
        return [levels] if self.design.history > 0 else [[level] for level in levels]

    def first_noise(self, depth: int) -> DiscreteLaplace:
        """Of the first counts of cells of a depth."""
        schedule = self.schedule
        scale = 2 if schedule.rereads_all and not self.design.history else 1
        return DiscreteLaplace(scale / schedule.reread(depth, depth - 1))

    def measured_variances(self, level: int) -> list[float]:
        """Of the sums of a finished level, by depth; also of the first counts of a depth that reads it."""
        schedule = self.schedule
        if not schedule.ticks(level):
            return []
        depths = range(1, schedule.depth(level) + 1)
        variances = [schedule.blocks(j, level) * self.rule(j, level).block.variance for j in depths]
        if not schedule.rereads_all and schedule.reread(level + 1, level):
            variances.append(self.first_noise(level + 1).variance)
        return variances
