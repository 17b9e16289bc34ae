"""When a census counts and what a stay pays for it: step numbers and exact shares, all fixed before step 1. Public.

Trusted base: kernel (amounts of censuses).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.errors import ConfigError
from dpstream.core.privacy import Budget, Noise, noise_for

# When a census is taken, and of which level: step numbers only.

#: Early on, no census is further away than this part of the steps so far.
_EARLY = 10
#: A level is so many times rarer than the one below; 2, 3, 6 and 8 were as good within a few per cent.
RATIO = 4


@dataclass(frozen=True)
class CensusSchedule:
    """Censuses of levels 0, 1, ...: a census of a higher level is one of all lower levels, too.

    A step is a census if ``max(1, min(gap, step // 10))`` steps have passed since the last one. Its level rises
    while the last census of the next level, g, is ``gap * ratio^g`` steps ago or more. Before step 1, all levels had
    their last census at step 0.

    The last step that the owner plans is a census, too; it may be moved, also after the stream has passed it.

    Args:
        gap: most steps between two censuses; None: a tenth of the steps so far, and one level.
        levels: how many there are.
        departures: who left is counted at every census, and so many steps after the last count; None: at censuses only.
        last_step: the planned one; None: none is planned.
        ratio: a level is that many times rarer than the one below.
    """

    gap: int | None
    levels: int
    departures: int | None = None
    last_step: int | None = None
    ratio: int = RATIO

    def level(self, step: int, last: Sequence[int]) -> int | None:
        """The level of the census at a step, given the last census of each level; None: there is none at this step."""
        early = step // _EARLY
        wait = max(1, early if self.gap is None else min(self.gap, early))
        if step - last_of(last, 0) < wait and step != self.last_step:
            return None
        level = 0
        while self._exists(level + 1) and step - last_of(last, level + 1) >= self._wait(level + 1):
            level += 1
        return level

    def _exists(self, level: int) -> bool:
        return self.gap is not None and level < self.levels

    def _wait(self, level: int) -> int:
        """Steps from one census of a level to the next one, at least."""
        return (self.gap or 0) * int(self.ratio**level)

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

    def reachable(self, horizon: int | None) -> int:
        """How many levels there can be within so many steps; None: no end is planned."""
        if self.gap is None:
            return 1
        early = (
            level for level in range(1, self.levels) if horizon is not None and horizon < self._wait(level)
        )
        return next(early, self.levels)

    def after(self, last: int) -> int:
        """The first census after one at step ``last``."""
        # The first step of which a tenth has passed since: the least one with ``step - step // 10 >= last``.
        step = max(_EARLY * (last - 1) // (_EARLY - 1), last) + 1
        if self.gap is not None:
            step = min(step, last + self.gap)
        return min(step, self.last_step) if self.last_step is not None and last < self.last_step else step

    def taken(self, until: int) -> Iterator[tuple[int, int, list[int]]]:
        """Every census up to a step: its step, its level, and the last census of each level before it."""
        last: list[int] = []
        while (step := self.after(last_of(last, 0))) <= until:
            level = self.level(step, last)
            assert level is not None, "a step where a census is due"
            yield step, level, last
            last = with_census(last, level, step)

    def censuses(self, first: int, last: int) -> list[tuple[int, int]]:
        """Step and level of every census from one step to another, both included."""
        return [(step, level) for step, level, _ in self.taken(last) if step >= first]


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


# How the budget of a stay is shared: exact amounts, all fixed before step 1.


@dataclass(frozen=True)
class Amounts:
    """What a stay pays for: one census of each of two levels at most, and one count of departures.

    Guarantee: what the levels and the departures get adds up to ``budget``.

    Args:
        departures: share of one count of departures; 0 where presence is public.
        upper: share of a census of level 1; 0 where there is none.
    """

    budget: Budget
    departures: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        if min(self.departures, self.upper) < 0 or self.departures + self.upper >= 1:
            raise ConfigError("shares of a stay's budget", where="amounts", allowed="0 to 1 in sum")

    @property
    def of_departures(self) -> Budget:
        """Of one count."""
        return self.budget.scaled(self.departures)

    def of_level(self, level: int) -> Budget:
        """Of one census."""
        return self.budget.scaled(1 - self.departures - self.upper if level == 0 else self.upper)

    @property
    def departure_noise(self) -> Noise | None:
        """Of one count of one level: one stay changes one of all counts, by 1. None: presence is public."""
        return None if not self.departures else noise_for(self.of_departures, 1, 1)
