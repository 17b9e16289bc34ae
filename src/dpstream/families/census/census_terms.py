"""What a census is bound to before step 1: schedule, amounts, and what one census does. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.unit import Record
from dpstream.core.tables import Workload
from dpstream.families.census.amounts import Amounts
from dpstream.families.census.census_schedule import CensusSchedule
from dpstream.families.tabular.aim import AIM, AIMPlan

__all__ = ["Terms"]


@dataclass(frozen=True)
class Terms:
    """The terms of a plan.

    Args:
        turnover: in steps; None: hardly any record leaves.
        schedule: with the levels that can come within ``horizon``.
        census: what is run on the records of a census's window.
    """

    workload: Workload
    budget: Budget
    unit: Record
    horizon: int | None
    turnover: Fraction | None
    schedule: CensusSchedule
    amounts: Amounts
    census: AIM
    _runs: dict[int, AIMPlan] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def public_presence(self) -> bool:
        """Whether the owner has declared which keys are present when."""
        return self.unit.relation == "replace"

    def run_of(self, level: int) -> AIMPlan:
        """What one census of a level does."""
        if level not in self._runs:
            budget = self.amounts.of_level(level)
            self._runs[level] = self.census.calibrate(self.workload, budget, self.unit.counted)
        return self._runs[level]
