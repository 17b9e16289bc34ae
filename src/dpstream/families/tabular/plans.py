"""Checks that every tabular recipe makes when it is calibrated."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, get_args

from dpstream.core.contracts import CancellingBatch, PrivateBatch, StartTable
from dpstream.core.errors import BudgetError, ConfigError, HorizonError, UnitError
from dpstream.core.privacy.budget import ZCDP, Amount, Budget, PureDP, exact_amount
from dpstream.core.privacy.unit import Event, EventUnit, Unit, User
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload

#: How far a prior may push a value down, in logarithms: to about 2 in 10^9, from where a few batches bring it back.
#: (A bound of 8 already leaks into rare values: the Eviction stream's AvgWE went from 0.011 to 0.017.)
PRIOR_BOUND = 20.0

#: Workloads measured at a step where nothing else is said.
DEFAULT_ROUNDS = 4

__all__ = [
    "DEFAULT_ROUNDS",
    "PRIOR_BOUND",
    "ComeAndGo",
    "check_come_and_go",
    "check_domain",
    "check_fit",
    "check_horizon",
    "check_share",
    "default_rounds",
    "event_unit",
    "read_budget",
    "read_come_and_go",
    "refuse_deletes",
]

#: What is read of rows that come and go within a step.
ComeAndGo = Literal["counted", "cancelled"]


def default_rounds(workload: Workload) -> int:
    """``DEFAULT_ROUNDS``, or every marginal of a workload that has fewer."""
    return min(DEFAULT_ROUNDS, len(workload.cliques))


def read_budget(epsilon: Amount | None, rho: Amount | None) -> Budget:
    """Exactly one of the two amounts, read exactly."""
    if (epsilon is None) == (rho is None):
        raise BudgetError("give exactly one of epsilon and rho", where="budget")
    if epsilon is not None:
        return PureDP.of(epsilon)
    assert rho is not None
    return ZCDP.of(rho)


def event_unit(unit: Unit | None) -> EventUnit:
    """The unit of a tabular stream: an event, or the bounded events of a user."""
    if unit is None:
        return Event()
    if not isinstance(unit, Event | User):
        raise UnitError(
            f"a tabular stream cannot protect the unit {unit.name!r}: only the whole stream of a person tells "
            "that",
            where="unit",
            allowed="event, event-replace, user",
        )
    return unit


def check_horizon(horizon: int | None) -> int | None:
    """None, or a positive number of steps."""
    if horizon is not None and (isinstance(horizon, bool) or horizon < 1):
        raise HorizonError(f"horizon = {horizon}", where="budget", allowed="none, or 1 or more steps")
    return horizon


def check_share(value: Amount, name: str) -> Fraction:
    """A share of a budget, read exactly: above 0 and below 1."""
    share = exact_amount(value, where=name)
    if not share < 1:
        raise ConfigError(f"{name} = {share}", where="mechanism", allowed="between 0 and 1")
    return share


def check_fit(iterations: int, max_cells: int, prior_weight: float) -> None:
    """The options of a fit; the prior may weigh up to a hundred times what the data say."""
    if not 0.0 <= prior_weight <= 100.0:
        raise ConfigError(f"prior_weight = {prior_weight}", where="mechanism", allowed="0 to 100")
    if iterations < 1 or max_cells < 1:
        raise ConfigError("iterations and max_cells are positive numbers", where="mechanism")


def refuse_deletes(batch: PrivateBatch, *, deletions: bool) -> None:
    """Deletes that a plan does not read are refused, never dropped; decided by whether they were given at all."""
    if batch.declares_deletes and not deletions:
        raise ConfigError(
            "the batch comes with deletes, which this plan does not read",
            where="mechanism",
            allowed="deletions = true, or batches without deletes",
        )


def check_come_and_go(come_and_go: ComeAndGo, unit: EventUnit, *, deletions: bool) -> None:
    """Whether equal rows may cancel.

    Errors:
        ConfigError: an unknown word; nothing is deleted; or the numbers of inserts and deletes are public, which they
            are not any more when some have cancelled.
    """
    where, other = "mechanism come_and_go", "counted"
    if come_and_go not in get_args(ComeAndGo):
        raise ConfigError(
            f"come_and_go = {come_and_go!r}", where="mechanism", allowed=", ".join(get_args(ComeAndGo))
        )
    if come_and_go == other:
        return
    if not deletions:
        raise ConfigError(
            "nothing leaves this stream", where=where, allowed=f"{other}, or a source with deletes"
        )
    if unit.relation == "replace":
        what = "the numbers of inserts and deletes are declared public, and what is left of them is private"
        raise ConfigError(what, where=where, allowed=other)


def read_come_and_go(batch: PrivateBatch, come_and_go: ComeAndGo, *, deletions: bool) -> PrivateBatch:
    """The batch as the plan reads it; see ``refuse_deletes`` for deletes that it does not read."""
    refuse_deletes(batch, deletions=deletions)
    if come_and_go == "counted":
        return batch
    if not isinstance(batch, CancellingBatch):
        raise ConfigError(
            "what counts these records cannot leave out rows that come and go within a step",
            where="mechanism come_and_go",
            allowed="counted",
        )
    return batch.without_cancelled()


def check_domain(base: StartTable, domain: Domain) -> None:
    """Refuse a table over other columns.

    Errors:
        ConfigError: it was mapped to another domain than the plan's.
    """
    if base.domain != domain:
        raise ConfigError(
            "the table to begin with has other columns than the plan",
            where="base",
            allowed=", ".join(domain.names),
        )
