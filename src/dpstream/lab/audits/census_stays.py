"""The loss of one stay in a census stream, from the private integers that the stream reads.

The plan's own code runs on a table without the stay and on the same table with it. Each census is replaced by a reader
that records the number of records in its window. The noise of departures is replaced by a reader that records the exact
count and gives the same output in both runs. The loss of the stay is the sum over all parts: the difference of the two
numbers times the budget of the part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PresentRecords, PrivateBatch
from dpstream.core.graphical import Model
from dpstream.core.privacy import Event, Noise, Randomness, Record
from dpstream.core.privacy.budget import Budget
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import Workload
from dpstream.families.census.census_plan import Census, CensusPlan
from dpstream.families.census.census_state import CensusState
from dpstream.families.census.cohorts import Cohort
from dpstream.families.tabular.aim import AIMRun
from dpstream.families.tabular.pooled_run import Followed

_DOMAIN = Domain(("a",), (2,))
_NOTHING = np.zeros(1)
_NO_SHARES = np.zeros(1, dtype=np.float32)

#: (comes, leaves): the first step with the record, and the first step without it afterwards (None: it never leaves).
Stay = tuple[int, int | None]
#: How a source turns the true stays into the stays that the plan sees.
ReadRule = Callable[[Sequence[Stay], int], Sequence[Stay]]


@dataclass(frozen=True)
class PartRead:
    """A census or a count of departures, with its budget and with the private number that it read."""

    kind: str
    step: int
    level: int
    amount: Fraction
    number: int

    @property
    def public(self) -> tuple[str, int, int, Fraction]:
        """The facts that must be the same in both streams."""
        return self.kind, self.step, self.level, self.amount


def as_written(stays: Sequence[Stay], steps: int) -> Sequence[Stay]:
    """The honest rule: the plan sees every stay as it is."""
    return stays


@dataclass(frozen=True)
class _Table:
    """The ``PresentRecords`` at the end of a step."""

    first: NDArray[np.int32]
    departed: NDArray[np.int32]

    def count(self, cliques: Sequence[Clique], after: int) -> list[NDArray[np.int64]]:
        return [np.array([int((self.first > after).sum())], dtype=np.int64) for _ in cliques]


@dataclass(frozen=True)
class _Batch:
    present: PresentRecords


def tables(stays: Sequence[Stay], steps: int) -> Iterator[PrivateBatch]:
    """The batches of all steps."""
    first = np.array([comes for comes, _ in stays], dtype=np.int32)
    last = np.array([steps + 1 if leaves is None else leaves for _, leaves in stays], dtype=np.int64)
    for step in range(1, steps + 1):
        here = (first <= step) & (last > step)
        gone = (first < step) & (last == step)
        yield cast(PrivateBatch, _Batch(_Table(first[here], first[gone])))


@lru_cache(maxsize=1)
def _model() -> Model:
    """A model of nothing. Not made at import: that would compile junction trees for whoever only looks at audits."""
    return Model.uniform(_DOMAIN, 1.0)


@dataclass
class _Reader:
    """Stands in for a census, and records the number of records in its window."""

    plan: CountedPlan
    level: int
    counted: tuple[Clique, ...] = ((0,),)
    unit: Event = field(default_factory=lambda: Event("replace"))

    def run_on(self, counts: Sequence[NDArray[np.int64]], randomness: Randomness, prior: Any) -> AIMRun:
        log, amount = self.plan.log, self.plan.amount_of(self.level).amount
        log.append(PartRead("census", self.plan.steps_done(), self.level, amount, int(counts[0].sum())))
        return AIMRun(_model(), (), 1.0, 1.0, 0, Fraction(0))


@dataclass(frozen=True)
class _NoShapes:
    """Stands in for the fits, which these audits do not need."""

    followed: Followed

    def measured(self, measurements: Any, records: float) -> tuple[Any, Any]:
        return np.zeros(2), np.full(1, np.inf)

    def cohort(self, level: int, window: tuple[int, int], size: float, known: Any, seen: Any) -> Cohort:
        return Cohort(level, *window, size, _NO_SHARES, _NOTHING, _model())

    def renewed(self, cohort: Cohort, model: Model) -> Cohort:
        return cohort

    def folded(self, first: Cohort, second: Cohort, seen: Any) -> Cohort:
        return Cohort(first.level, first.low, second.high, 1.0, _NO_SHARES, _NOTHING, _model())


class CountedPlan(CensusPlan):
    """The plan's own code, with readers in place of censuses and noise."""

    log: list[PartRead]
    state: CensusState

    def amount_of(self, level: int) -> Budget:
        """The budget of a census of a level."""
        return self.amounts.of_level(level)

    def steps_done(self) -> int:
        """The current step."""
        return self.state.step

    def run_of(self, level: int) -> Any:
        """A reader in place of a census."""
        return _Reader(self, level)

    @property
    def shapes(self) -> Any:
        """A stand-in for the fits."""
        return _NoShapes(self.followed)

    def noisy(self, exact: int, noise: Noise | None, randomness: Randomness) -> int:
        """Record the exact count; the output is always 0."""
        amount = self.amounts.of_departures.amount
        self.log.append(PartRead("departures", self.state.step, len(self.log), amount, exact))
        return 0


def counted_plan(
    kind: type[CountedPlan], budget: Budget, gap: int, ratio: int, levels: Any, unit: Record | None = None
) -> CountedPlan:
    """A plan that records its parts.

    Args:
        kind: ``CountedPlan``, or a broken one.
        gap: the most steps between two censuses.
    """
    recipe = Census(
        Workload.all_k_way(_DOMAIN, 1),
        turnover=2 * gap,
        levels=levels,
        ratio=ratio,
    )
    return kind(recipe, budget, unit or Record(), None)


def parts_read(
    plan: CountedPlan, stays: Sequence[Stay], steps: int, rule: ReadRule = as_written
) -> list[PartRead]:
    """The parts of a stream with these stays, with the numbers that they read."""
    state, randomness = plan.start(), Randomness.seeded("no noise")
    object.__setattr__(plan, "log", [])
    object.__setattr__(plan, "state", state)
    for batch in tables(rule(stays, steps), steps):
        plan.step(state, batch, randomness)
    return plan.log


def loss_of(one: list[PartRead], other: list[PartRead]) -> Fraction | float:
    """The sum over all parts of budget times difference of the numbers; infinite where public facts differ."""
    if [part.public for part in one] != [part.public for part in other]:
        return float("inf")
    pairs = zip(one, other, strict=True)
    return sum((a.amount * abs(a.number - b.number) for a, b in pairs), Fraction(0))
