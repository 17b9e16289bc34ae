"""Keeping the graphical model within its size: public rules, decided before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence

from dpstream.core.errors import LimitError
from dpstream.core.graphical import tree_cells_each
from dpstream.core.tables import Workload

__all__ = ["check_each", "within"]


def check_each(workload: Workload, max_cells: int) -> None:
    """Refuse a workload with a marginal that could not be in the model even alone (all columns count)."""
    domain = workload.domain
    for clique in workload.cliques:
        # Of one marginal alone the tree has one table, and one for each other column. Asking ``tree_cells_each`` would
        # load the compiler for this sum, in commands that only look at a plan.
        others = sum(size for column, size in enumerate(domain.sizes) if column not in clique)
        if min((domain.cells(clique) if clique else 0) + others, 2**53) <= max_cells:
            continue
        raise LimitError(
            f"a model with the marginal {domain.label(clique)} has more cells than it may",
            where="workload",
            allowed=f"max_cells = {max_cells}; raise it, or use coarser bins or fewer columns",
        )


def within(workload: Workload, chosen: Sequence[int], candidates: Sequence[int], max_cells: int) -> list[int]:
    """The candidates with which the junction tree of all chosen marginals stays within ``max_cells``."""
    cliques = workload.cliques
    sizes = tree_cells_each(workload.domain, [cliques[i] for i in chosen], [cliques[i] for i in candidates])
    return [i for i, size in zip(candidates, sizes, strict=True) if size <= max_cells]
