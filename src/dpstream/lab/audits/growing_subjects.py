"""The subjects of the audit of growing databases: honest plans, and plans that are broken on purpose.

**Never use the broken plans on real data.** No configuration file can name them, and nothing outside the audits imports
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpstream.core.privacy import ZCDP, Event, PureDP, Randomness
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload
from dpstream.families.growing import (
    MWEM,
    BBImprover,
    BBScheduler,
    GrowingPlan,
    MWEMPGMBox,
    ScheduledRun,
    SmallDB,
)
from dpstream.families.growing.run_schedule import Growth
from dpstream.families.tabular import MWEMPGM
from dpstream.families.tabular.mwem_pgm import MWEMPGMPlan
from dpstream.lab.audits.controls import LoneHistograms, QuietNoise
from dpstream.tools.evaluate.array_types import Codes

_ONE = Workload.all_k_way(Domain(("a",), (3,)), 1)
_THREE = Workload.all_k_way(Domain(("a", "b", "c"), (2, 2, 3)), 1)


@dataclass(frozen=True)
class GrowingSubject:
    """One plan to be audited, on a database that grows to ``steps``.

    Attributes:
        steps: the records that arrive at each step. The canary is the first record of the first or of the last step.
        wrap: replaces the randomness that the plan gets (for controls).
    """

    name: str
    plan: GrowingPlan
    steps: tuple[Codes, ...]
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness
    control: bool = False


def growing_subjects() -> tuple[GrowingSubject, ...]:
    """Honest plans, then controls."""
    return (*_honest(), *_controls())


def arrivals(domain: Domain, sizes: list[int]) -> tuple[Codes, ...]:
    """Invented records for steps of these sizes; nothing is random."""
    start, steps = 0, []
    for size in sizes:
        numbers = np.arange(start, start + size)[:, None] * np.arange(1, len(domain) + 1)
        steps.append((numbers % np.array(domain.sizes)).astype(np.int32))
        start += size
    return tuple(steps)


#: The first run is at 8 records. Some steps end no epoch, others several. At the end most of the budget is spent.
_SIZES = [5, 4, 2, 9, 1, 12, 40, 3, 60, 100, 500]


def _honest() -> Iterator[GrowingSubject]:
    one, two = MWEMPGMBox(_ONE), MWEMPGMBox(_THREE, MWEMPGM(k=2))
    few = MWEM(_THREE, 3, passes=2)
    yield _together("scheduler around MWEM+PGM, all marginals together")
    for name, box, workload in (
        ("MWEM+PGM, one marginal", one, _ONE),
        ("MWEM+PGM, two of three marginals", two, _THREE),
        ("MWEM, three of seven cells", few, _THREE),
        ("SmallDB", SmallDB(_ONE, size=4), _ONE),
    ):
        scheduler, improver = BBScheduler(box, 8, gamma="1/2"), BBImprover(box, 8, c="1/2")
        steps = arrivals(workload.domain, _SIZES)
        yield GrowingSubject(f"scheduler around {name}", scheduler.calibrate(PureDP.of(2)), steps)
        yield GrowingSubject(f"scheduler around {name}, zCDP", scheduler.calibrate(ZCDP.of(1)), steps)
        yield GrowingSubject(f"improver around {name}, zCDP", improver.calibrate(ZCDP.of(1)), steps)


def _controls() -> Iterator[GrowingSubject]:
    steps = arrivals(_ONE.domain, _SIZES)
    plan = BBScheduler(MWEMPGMBox(_ONE), 8, gamma="1/2").calibrate(PureDP.of(2))
    zcdp = BBScheduler(MWEMPGMBox(_ONE), 8, gamma="1/2").calibrate(ZCDP.of(1))

    def control(
        name: str,
        broken: GrowingPlan,
        wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness,
    ) -> GrowingSubject:
        return GrowingSubject(f"scheduler, {name}", broken, steps, wrap, control=True)

    yield control("budgets that do not decay", _with_growth(plan, _NotDecaying))
    yield control("a run at every step, each epoch charged once", _with_growth(plan, _EveryStep))
    yield control("budgets of past epochs given again", _with_growth(plan, _PastAgain))
    yield control("2/3 of the noise", plan, QuietNoise)
    yield control("2/3 of the noise, zCDP", zcdp, QuietNoise)
    added = replace(plan, box=MWEMPGMBox(_ONE, _AddedOnly()))
    yield control("noise for a record that is added", added)
    yield _together("scheduler, joint noise drawn apart", LoneHistograms, control=True)


def _together(
    name: str,
    wrap: Callable[[Randomness], Randomness] = lambda randomness: randomness,
    *,
    control: bool = False,
) -> GrowingSubject:
    box = MWEMPGMBox(_THREE, MWEMPGM(k=3))
    plan = BBScheduler(box, 8, gamma="1/2").calibrate(PureDP.of(2))
    return GrowingSubject(name, plan, arrivals(_THREE.domain, _SIZES), wrap, control=control)


# Broken plans.


def _with_growth(plan: GrowingPlan, kind: type[Growth]) -> GrowingPlan:
    own = plan.schedule
    assert isinstance(own, Growth)
    broken = kind(n=own.n, budget=own.budget, beta=own.beta, accuracy=own.accuracy, gamma=own.gamma)
    return replace(plan, schedule=broken)


class _NotDecaying(Growth):
    """BROKEN: every run has the budget of the first four epochs together."""

    def run(self, first: int, last: int, t: int) -> ScheduledRun:
        """A run whose budget does not decay."""
        return replace(super().run(0, 3, t), first=first, last=last)


class _EveryStep(Growth):
    """BROKEN: the black box runs at every step with the budget of its epoch, as if it ran once per epoch."""

    def due(self, done: int, t: int) -> ScheduledRun | None:
        """A run at every step."""
        epoch = self.epoch(t)
        return None if epoch < 0 else self.run(min(done + 1, epoch), epoch, t)


class _PastAgain(Growth):
    """BROKEN: a run gets the budgets of all epochs so far, which earlier runs have spent already."""

    def due(self, done: int, t: int) -> ScheduledRun | None:
        """The honest run, with the budgets from the first epoch on."""
        run = super().due(done, t)
        return None if run is None else self.run(0, run.last, t)


@dataclass(frozen=True)
class _AddedOnly(MWEMPGM):
    """BROKEN: noise for a record that is added or removed, which moves one cell instead of two."""

    def calibrate(self, workload: Workload, budget: Budget, unit: Event) -> MWEMPGMPlan:
        """A plan with the noise of twice the budget; the number of records stays public."""
        return super().calibrate(workload, budget.scaled(2), unit)
