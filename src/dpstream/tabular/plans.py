"""Checks that every tabular recipe makes when it is calibrated."""

from __future__ import annotations

from dpstream.errors import BudgetError, ConfigError, HorizonError, UnitError
from dpstream.privacy.budget import ZCDP, Amount, Budget, PureDP
from dpstream.privacy.unit import Event, Unit

#: How far a prior may push a value down, in logarithms: to about 2 in 10^9, from where a few batches bring it back.
#: (A bound of 8 already leaks into rare values: the Eviction stream's AvgWE went from 0.011 to 0.017.)
PRIOR_BOUND = 20.0

__all__ = ["PRIOR_BOUND", "check_horizon", "check_prior_weight", "event_unit", "read_budget"]


def read_budget(epsilon: Amount | None, rho: Amount | None) -> Budget:
    """Exactly one of the two amounts, read exactly."""
    if (epsilon is None) == (rho is None):
        raise BudgetError("give exactly one of epsilon and rho", where="budget")
    if epsilon is not None:
        return PureDP.of(epsilon)
    assert rho is not None
    return ZCDP.of(rho)


def event_unit(unit: Unit | None) -> Event:
    """The unit of a tabular stream: an event."""
    if unit is None:
        return Event()
    if not isinstance(unit, Event):
        raise UnitError(
            f"a tabular stream cannot protect the unit {unit.name!r}: it does not know whose record is whose",
            where="unit",
            allowed="event, event-replace",
        )
    return unit


def check_horizon(horizon: int | None) -> int | None:
    """None, or a positive number of steps."""
    if horizon is not None and (isinstance(horizon, bool) or horizon < 1):
        raise HorizonError(f"horizon = {horizon}", where="budget", allowed="none, or 1 or more steps")
    return horizon


def check_prior_weight(weight: float) -> None:
    """A number between nothing and a hundred times what the data say."""
    if not 0.0 <= weight <= 100.0:
        raise ConfigError(f"prior_weight = {weight}", where="mechanism", allowed="0 to 100")
