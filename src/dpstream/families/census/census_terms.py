"""What a census is bound to before step 1: schedule, amounts, and what one census does. All of it is public.

Trusted base: kernel (what one census costs).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.joint import HistogramsNoise
from dpstream.core.privacy.noise import Noise
from dpstream.core.privacy.unit import Event, Record
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.families.census.cohorts import Shapes
from dpstream.families.census.schedule import Amounts, CensusSchedule
from dpstream.mechanisms.aim import AIM, AIMPlan
from dpstream.mechanisms.joint_groups import draws, noise_of, split_budget


@dataclass(frozen=True)
class CensusTerms:
    """The terms of a plan.

    Args:
        turnover: in steps; None: hardly any record leaves.
        schedule: with the levels that can come within ``horizon``.
        census: what is run on the records of a census's window.
        shapes: makes cohorts of what it measures.
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
    shapes: Shapes
    headline: tuple[Clique, ...]
    headline_share: Fraction

    @property
    def public_presence(self) -> bool:
        """Whether the owner has declared which keys are present when."""
        return self.unit.relation == "replace"

    def run_of(self, level: int) -> AIMPlan:
        """What one census of a level does."""
        return _calibrated(self.census, self.workload, self._split(level)[0], self.unit.counted)

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


@lru_cache(maxsize=32)
def _calibrated(census: AIM, workload: Workload, budget: Budget, unit: Event) -> AIMPlan:
    """Which marginals may be measured is worked out once, and not at every census."""
    return census.calibrate(workload, budget, unit)
