"""What a census is bound to before step 1: schedule, amounts, and what one census does. All of it is public.

Trusted base: kernel (amounts of censuses).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import HEADLINE_SHARE
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import Noise, noise_for
from dpstream.core.privacy.unit import Record
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.mechanisms.aim import AIM, AIMPlan
from dpstream.mechanisms.headlines import split_budget
from dpstream.mechanisms.joint_groups import draws, noise_of

# When a census is taken, and of which level: step numbers only.

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


# How the budget of a stay is shared: exact amounts, all fixed before step 1.

#: Of two levels, the lower one gets so much of what the departures leave.
_LOWER_OF_TWO = Fraction(2, 3)


@dataclass(frozen=True)
class Amounts:
    """What a stay pays for: one census of each level, and one count of departures.

    Guarantee: all amounts that ``of_level`` gives, and the one of the departures, add up to ``budget`` or less.

    Args:
        departures: share of the departures; 0 where presence is public.
        levels: how many levels there can be; None: no end. Then each gets half of what the levels below left.
        series: whether the shares halve from level to level, the last of a known number getting what is left.
    """

    budget: Budget
    departures: Fraction
    levels: int | None
    series: bool

    @property
    def of_departures(self) -> Budget:
        """Of one count."""
        return self.budget.scaled(self.departures)

    def of_level(self, level: int) -> Budget:
        """Of one census."""
        return self.budget.scaled((1 - self.departures) * self.share(level))

    def share(self, level: int) -> Fraction:
        """A level's share of what the departures leave."""
        if self.levels == 1:
            return Fraction(1)
        if self.series:
            halvings = level + 1 if self.levels is None or level < self.levels - 1 else level
            return Fraction(1, 2**halvings)
        return _LOWER_OF_TWO if level == 0 else 1 - _LOWER_OF_TWO

    def beyond(self, level: int) -> Budget:
        """What all levels from this one on have together."""
        return self.budget.scaled(
            (1 - self.departures) * (1 - sum((self.share(g) for g in range(level)), Fraction(0)))
        )

    @property
    def departure_noise(self) -> Noise | None:
        """Of one count of one level: one stay changes one of all counts, by 1. None: presence is public."""
        return None if not self.departures else noise_for(self.of_departures, 1, 1)


# How often departures are counted: a rule on public guesses, so that step numbers alone say when.

#: From one count to the next as many records leave as so many standard deviations of the counts' noise: less is hardly
#: seen.
_PER_NOISE = 10.0
#: The noise that all counts from one census to the next add to the number of records, as a part of that number.
_MAX_NOISE = 1 / 200
#: Levels that have an open cohort most of the time.
_OPEN_LEVELS = 2
#: Censuses that come sooner than this need no counts between them.
_SHORT_GAP = 4


def expected_wait(budget: Budget, share: Fraction, leaving: float, turnover: Fraction | None) -> int | None:
    """Steps from one count of departures to the next; None: they are counted at censuses only.

    Args:
        budget, share: of a whole stay, and the part of it that a count of departures costs.
        leaving: a public guess, how many records leave in a step; 0: none.
        turnover: in steps; None: hardly any record leaves.
    """
    gap = gap_of(turnover)
    if gap is None or gap < _SHORT_GAP or leaving <= 0:
        return None
    assert turnover is not None, "there is a gap"
    noise = math.sqrt(_OPEN_LEVELS * noise_for(budget.scaled(share), 1, 1).variance)
    size = float(turnover) * leaving
    parts = min(gap // math.ceil(_PER_NOISE * noise / leaving), int((_MAX_NOISE * size / noise) ** 2))
    # In equal parts: a count just before a census would be mostly noise.
    return -(-gap // parts) if parts > 1 else None


@dataclass
class NoiseOfCounts:
    """How noisy counts are at every census so far, at most; continued where the last call stopped.

    Attributes:
        steps: of the censuses; ``variances`` there: of the number of records, and of a cell of each column.
        levels: the same of each level's records after the last census.
    """

    steps: list[int] = field(default_factory=list)
    variances: list[NDArray[np.float64]] = field(default_factory=list)
    levels: list[NDArray[np.float64]] = field(default_factory=list)


@dataclass(frozen=True)
class CensusTerms:
    """The terms of a plan.

    Args:
        turnover: in steps; None: hardly any record leaves.
        schedule: with the levels that can come within ``horizon``.
        census: what is run on the records of a census's window.
        headline: marginals that every census measures by themselves, for ``headline_share`` of its amount.
    """

    workload: Workload
    budget: Budget
    unit: Record
    horizon: int | None
    turnover: Fraction | None
    schedule: CensusSchedule
    amounts: Amounts
    census: AIM
    headline: tuple[Clique, ...] = ()
    headline_share: Fraction = HEADLINE_SHARE
    noise_of_counts: NoiseOfCounts = field(
        default_factory=NoiseOfCounts, init=False, repr=False, compare=False
    )
    _runs: dict[int, AIMPlan] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def public_presence(self) -> bool:
        """Whether the owner has declared which keys are present when."""
        return self.unit.relation == "replace"

    def run_of(self, level: int) -> AIMPlan:
        """What one census of a level does."""
        if level not in self._runs:
            budget = self._split(level)[0]
            self._runs[level] = self.census.calibrate(self.workload, budget, self.unit.counted)
        return self._runs[level]

    def headline_noises(self, level: int) -> list[tuple[tuple[int, ...], Noise | HistogramsNoise]]:
        """Places of the headlines, in groups of one draw each in a census of a level, with their noise."""
        sizes, unit = self._headline_sizes, self.unit.counted
        groups = self.headline_draws(level)
        return [(group, noise_of(budget, [sizes[i] for i in group], unit)) for group, budget in groups]

    def headline_draws(self, level: int) -> list[tuple[tuple[int, ...], Budget]]:
        """The same groups, with their budgets."""
        each, sizes = self._split(level)[1], self._headline_sizes
        return [] if each is None else draws(sizes, each.scaled(len(sizes)), self.unit.counted)

    @property
    def _headline_sizes(self) -> list[int]:
        return [self.workload.domain.cells(clique) for clique in self.headline]

    def _split(self, level: int) -> tuple[Budget, Budget | None]:
        return split_budget(self.amounts.of_level(level), len(self.headline), self.headline_share)
