"""What a census is bound to before step 1: schedule, amounts, and what one census does. All of it is public."""

from __future__ import annotations

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
from dpstream.families.census.amounts import Amounts
from dpstream.families.census.census_schedule import CensusSchedule
from dpstream.families.tabular.aim import AIM, AIMPlan
from dpstream.families.tabular.headlines import headline_draws, split_budget
from dpstream.families.tabular.joint_groups import joint_noise


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
        each, unit = self._split(level)[1], self.unit.counted
        if each is None:
            return []
        sizes, changed = [self.workload.domain.cells(clique) for clique in self.headline], unit.changed_cells
        draws = headline_draws(sizes, each, level=self.public_presence)
        return [
            (
                group,
                noise_for(budget, changed, changed)
                if len(group) == 1
                else self.joint_noise(budget, [sizes[i] for i in group]),
            )
            for group, budget in draws
        ]

    def joint_noise(self, budget: Budget, sizes: Sequence[int]) -> HistogramsNoise:
        """The noise of several headlines that are drawn together; audits put another one there."""
        return joint_noise(budget, sizes, self.unit.counted)

    def _split(self, level: int) -> tuple[Budget, Budget | None]:
        return split_budget(self.amounts.of_level(level), len(self.headline), self.headline_share)
