"""When a census is taken, and of which level: step numbers only."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

#: Early on, no census is further away than this part of the steps so far.
_EARLY = 10


@dataclass(frozen=True)
class CensusSchedule:
    """Censuses of levels 0, 1, ...: a census of a higher level is one of all lower levels, too.

    A step is a census if ``max(1, min(gap, step // 10))`` steps have passed since the last one. Its level rises
    while the last census of the next level, g, is ``gap * ratio^g`` steps ago or more. Before step 1, all levels had
    their last census at step 0.

    The last step that the owner plans is a census, too; it may be moved, also after the stream has passed it.

    Args:
        gap: most steps between two censuses; None: a tenth of the steps so far, and one level.
        ratio: a level is that many times rarer than the one below.
        levels: how many there are; None: as many as time brings.
        departures: who left is counted at every census, and so many steps after the last count; None: at censuses only.
        last_step: the planned one; None: none is planned.
    """

    gap: int | None
    ratio: int
    levels: int | None
    departures: int | None = None
    last_step: int | None = None
    #: All censuses from step 1 on, as far as anybody asked.
    _known: list[tuple[int, int]] = field(default_factory=list, init=False, repr=False, compare=False)
    _last: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def level(self, step: int, last: Sequence[int]) -> int | None:
        """The level of the census at a step, given the last census of each level; None: there is none at this step."""
        early = step // _EARLY
        wait = max(1, early if self.gap is None else min(self.gap, early))
        if step - last_of(last, 0) < wait and step != self.last_step:
            return None
        level = 0
        while self._due(level + 1, step, last):
            level += 1
        return level

    def _due(self, level: int, step: int, last: Sequence[int]) -> bool:
        if self.gap is None or (self.levels is not None and level >= self.levels):
            return False
        wait: int = self.gap * self.ratio**level
        return step - last_of(last, level) >= wait

    def last_count(self, step: int, last: Sequence[int]) -> int:
        """The last step up to this one at which departures were counted, given the last census of each level."""
        census = last_of(last, 0)
        return step - (step - census) % self.departures if self.departures else census

    def counts(self, step: int, last: Sequence[int]) -> bool:
        """Whether departures are counted at a step at which no census is taken."""
        return self.last_count(step, last) == step

    def counts_between(self, last: int, census: int) -> int:
        """How often departures are counted after one census, up to the next one and at it."""
        return -(-(census - last) // self.departures) if self.departures else 1

    def reachable(self, horizon: int | None) -> int | None:
        """How many levels there can be within so many steps; None: no bound."""
        if self.gap is None:
            return 1
        if horizon is None:
            return self.levels
        found = 1
        while horizon >= self.gap * self.ratio**found and (self.levels is None or found < self.levels):
            found += 1
        return found

    def after(self, last: int) -> int:
        """The first census after one at step ``last``."""
        # ``step - step // 10`` never falls: the first step at which a tenth of the steps has passed is near this.
        step = last * _EARLY // (_EARLY - 1)
        while step > 0 and step - 1 - (step - 1) // _EARLY >= last:
            step -= 1
        while step - step // _EARLY < last:
            step += 1
        following = max(last + 1, step if self.gap is None else min(step, last + self.gap))
        ends = self.last_step is not None and last < self.last_step
        return min(following, self.last_step or 0) if ends else following

    def censuses(self, first: int, last: int) -> list[tuple[int, int]]:
        """Step and level of every census from one step to another, both included.

        Cost: the first time, proportional to the number of censuses up to ``last``.
        """
        while (step := self.after(self._known[-1][0] if self._known else 0)) <= last:
            level = self.level(step, self._last)
            assert level is not None, "a step at which a census is due"
            self._known.append((step, level))
            self._last[:] = with_census(self._last, level, step)
        return self._known[bisect_left(self._known, (first, 0)) : bisect_left(self._known, (last + 1, 0))]


def gap_of(turnover: Fraction | None) -> int | None:
    """Most steps between two censuses: half a turnover; None where hardly any record leaves."""
    return None if turnover is None else math.ceil(turnover / 2)


def last_of(last: Sequence[int], level: int) -> int:
    """The last census of a level; 0 where there was none."""
    return last[level] if level < len(last) else 0


def level_of(last: Sequence[int]) -> int:
    """The level of the last census, given the last census of each level (at least one)."""
    return sum(step == last[0] for step in last) - 1


def with_census(last: Sequence[int], level: int, step: int) -> list[int]:
    """The last censuses of all levels after one at a step."""
    return [step] * (level + 1) + list(last[level + 1 :])
