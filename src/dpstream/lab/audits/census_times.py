"""Censuses and counts of departures at any steps, as any rule on released values might choose them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpstream.core.contracts import NoisyCounts
from dpstream.core.privacy import Randomness
from dpstream.families.census.census_plan import CensusPlan
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.census_terms import CensusSchedule, CensusTerms
from dpstream.lab.audits.census_stays import CountedPlan

_NEVER = 1 << 30


@dataclass(frozen=True)
class ChosenTimes(CensusSchedule):
    """A schedule without a rule.

    Args:
        level_at: step -> level of its census; step 1 has one.
        counts_at: steps at which departures are counted, besides.
    """

    level_at: Mapping[int, int] = field(default_factory=lambda: {1: 0})
    counts_at: frozenset[int] = frozenset()

    def level(self, step: int, last: Any) -> int | None:
        """As given."""
        return self.level_at.get(step)

    def last_count(self, step: int, last: Any) -> int:
        """The last given step up to this one."""
        return max((own for own in (*self.level_at, *self.counts_at) if own <= step), default=0)

    def counts_between(self, last: int, census: int) -> int:
        """As given, and the one at the census."""
        return len({own for own in self.counts_at if last < own < census}) + 1

    def after(self, last: int) -> int:
        """The next given census; beyond the last of them, never."""
        return min((own for own in self.level_at if own > last), default=_NEVER)


def random_times(seed: int, steps: int, levels: int) -> ChosenTimes:
    """Any steps, any levels: about one step in three is a census, and at about one in two departures are counted."""
    generator = np.random.default_rng(seed)
    taken = [1, *(step for step in range(2, steps + 1) if generator.random() < 0.35)]
    level_at = {step: int(generator.integers(levels)) if step > 1 else 0 for step in taken}
    counts = frozenset(step for step in range(2, steps + 1) if generator.random() < 0.5)
    return ChosenTimes(2, 2, levels, level_at=level_at, counts_at=counts)


def rare_times(steps: int) -> ChosenTimes:
    """A census at every third step, one in three of level 1, and counts of departures at all others."""
    level_at = {step: int(step % 9 == 4) for step in range(1, steps + 1, 3)}
    return ChosenTimes(2, 2, 2, level_at=level_at, counts_at=frozenset(range(1, steps + 1)))


def at_times(kind: type[Any], times: ChosenTimes) -> type[Any]:
    """A kind of plan with the steps of ``times``."""

    class Chosen(kind):  # type: ignore[misc]
        @cached_property
        def terms(self) -> CensusTerms:
            terms: CensusTerms = super().terms
            return replace(terms, schedule=times)

    return Chosen


class _KeepsWhatItCounted(CensusPlan):
    """BROKEN: what a count between censuses has read is read again by the next count."""

    def count_departures(self, state: CensusState, randomness: Randomness) -> list[NoisyCounts]:
        before = list(state.left)
        counts = super().count_departures(state, randomness)
        if self.schedule.level(state.step, state.last) is None:
            state.left[:] = before
        return counts


class CountedTwice(_KeepsWhatItCounted, CountedPlan):
    """BROKEN: a departure is read by a count between censuses, and by the census's count. For audits by integers."""


class PublishedTwice(_KeepsWhatItCounted):
    """BROKEN: the same. For transcripts."""
