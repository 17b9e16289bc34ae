"""What every recipe for tables checks, and how its graphical model is kept within its size: public rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import PublicPrior, StartTable
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.graphical import TreeSizes, tree_cells
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
            "the stream's first table has other columns than the plan",
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
            "prior and workload have other columns",
            where="prior",
            allowed=", ".join(domain.names),
        )


def check_each(workload: Workload, max_cells: int) -> None:
    """Refuse a workload with a marginal that could not be in the model even alone (all columns count)."""
    domain = workload.domain
    if domain.impossible:
        _check_with_constraints(workload, max_cells)
        return
    every = sum(domain.sizes)
    for clique in workload.cliques:
        # Of one marginal alone the tree has one table, and one for each other column. Asking ``tree_cells`` would
        # load the compiler for this sum, in commands that only look at a plan.
        others = every - sum(domain.sizes[column] for column in clique)
        if min((domain.cells(clique) if clique else 0) + others, 2**53) <= max_cells:
            continue
        raise LimitError(
            f"a model with the marginal {domain.label(clique)} exceeds its cells",
            where="workload",
            allowed=_fewer(max_cells),
        )


def _check_with_constraints(workload: Workload, max_cells: int) -> None:
    """``check_each`` where the columns of constraints are in the model, too."""
    domain = workload.domain
    if tree_cells(domain, ()) > max_cells:
        raise LimitError(
            "a model with the public constraints alone exceeds its cells",
            where="schema.constraints",
            allowed=f"{_fewer(max_cells)} in a constraint",
        )
    for clique in workload.cliques:
        if tree_cells(domain, [clique]) > max_cells:
            raise LimitError(
                f"a model with {domain.label(clique)} and the public constraints exceeds its cells",
                where="workload",
                allowed=_fewer(max_cells),
            )


def _fewer(max_cells: int) -> str:
    return f"max_cells = {max_cells}; raise it, or use coarser bins or fewer columns"


class TreeCapacity:
    """Which marginals of a workload may still be taken: for which of those not taken yet the junction tree has room.

    Args:
        max_cells: what the tree of all of them may have.
        chosen: marginals that are in it to begin with, by their positions in the workload.

    Attributes:
        left: which marginals are not taken.
    """

    def __init__(self, workload: Workload, max_cells: int, chosen: Sequence[int] = ()) -> None:
        self._cliques, self._max_cells = workload.cliques, max_cells
        self._tree = TreeSizes(workload.domain, workload.cliques, [self._cliques[i] for i in chosen])
        self.left = np.ones(len(self._cliques), dtype=bool)
        self.left[list(chosen)] = False

    def take(self, index: int) -> None:
        """Put one marginal in."""
        self._tree.add(self._cliques[index])
        self.left[index] = False

    def allowed(self) -> NDArray[np.int64]:
        """Those left (each by itself) for which there is room."""
        return self.within(np.flatnonzero(self.left))

    def within(self, candidates: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the candidates (each by itself) for which there is room, in their order."""
        asked = np.asarray(candidates, dtype=np.int64)
        return asked[self._tree.within(asked, self._max_cells)]

    def take_in_order(self, candidates: Sequence[int]) -> list[int]:
        """Put in one after the other, each for which there is room then; those that were put in."""
        waiting, taken, look = np.asarray(candidates, dtype=np.int64), list[int](), _FIRST_LOOK
        while len(waiting):
            fits = self._tree.within(waiting[:look], self._max_cells)
            if not fits.any():
                waiting, look = waiting[look:], 2 * look
                continue
            first = int(fits.argmax())
            taken.append(int(waiting[first]))
            self.take(taken[-1])
            waiting, look = waiting[first + 1 :], _FIRST_LOOK
        return taken


#: How many candidates are looked at together before one is put in; where none fits, twice as many the next time.
_FIRST_LOOK = 16
