"""Checks of options that every tabular recipe makes, and their defaults. All of them are public."""

from __future__ import annotations

from dpstream.core.contracts import PublicPrior, StartTable
from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Domain
from dpstream.core.tables import Workload

#: How far a prior may push a value down, in logarithms: to about 2 in 10^9, from where a few batches bring it back.
#: (A bound of 8 already leaks into rare values: the Eviction stream's AvgWE went from 0.011 to 0.017.)
PRIOR_BOUND = 20.0
#: Workloads measured at a step where nothing else is said.
DEFAULT_ROUNDS = 4


def default_rounds(workload: Workload) -> int:
    """``DEFAULT_ROUNDS``, or every marginal of a workload that has fewer."""
    return min(DEFAULT_ROUNDS, len(workload.cliques))


def check_fit(iterations: int, max_cells: int, prior_weight: float) -> None:
    """Check the options of a fit; the prior may weigh up to a hundred times what the data say."""
    if not 0.0 <= prior_weight <= 100.0:
        raise ConfigError(f"prior_weight = {prior_weight}", where="mechanism", allowed="0 to 100")
    if iterations < 1 or max_cells < 1:
        raise ConfigError("iterations or max_cells is too small", where="mechanism", allowed="1 or more each")


def check_domain(base: StartTable, domain: Domain) -> None:
    """Refuse a table over other columns.

    Errors:
        ConfigError: it was mapped to another domain than the plan's.
    """
    if base.domain != domain:
        raise ConfigError(
            "the table that the stream would begin with has other columns than the plan",
            where="base",
            allowed=", ".join(domain.names),
        )


def check_prior(prior: PublicPrior | None, domain: Domain) -> None:
    """Refuse a prior for another table.

    Errors:
        ConfigError: it was read in columns other than the workload's.
    """
    if prior is not None and prior.domain != domain:
        raise ConfigError(
            "the prior was read for a table with other columns than the workload's",
            where="prior",
            allowed=", ".join(domain.names),
        )
