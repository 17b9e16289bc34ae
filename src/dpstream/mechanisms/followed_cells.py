"""Which marginals a stream keeps counts of: all columns, the workload's wider marginals, and the headlines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.mechanisms.workload_cells import Cells


@dataclass(frozen=True)
class MeasuredCells:
    """The marginals whose counts are kept: every column of the workload, then its marginals of several columns.

    ``headline``: marginals that are measured in every run; they are followed, too.
    """

    workload: Workload
    headline: tuple[Clique, ...] = ()

    @cached_property
    def cells(self) -> Cells:
        """The marginals laid out as one vector. Columns weigh as little as the lightest marginal."""
        own, lightest = self.workload, min(self.workload.weights)
        columns = sorted({column for clique in (*own.cliques, *self.headline) for column in clique})
        wide = [(c, w) for c, w in zip(own.cliques, own.weights, strict=True) if len(c) > 1]
        wide += [(c, lightest) for c in self.headline if len(c) > 1 and c not in own.cliques]
        cliques = tuple((column,) for column in columns) + tuple(c for c, _ in wide)
        weights = (lightest,) * len(columns) + tuple(w for _, w in wide)
        return Cells(Workload(own.domain, cliques, weights))

    @cached_property
    def columns(self) -> int:
        """How many of the cliques are columns."""
        return sum(len(clique) == 1 for clique in self.cells.cliques)

    @cached_property
    def headlines(self) -> tuple[int, ...]:
        """Which of the cliques are headlines."""
        return tuple(self.cells.cliques.index(clique) for clique in self.headline)

    @cached_property
    def wide_headlines(self) -> tuple[int, ...]:
        """Those of several columns."""
        return tuple(index for index in self.headlines if index >= self.columns)

    @cached_property
    def choosable(self) -> int:
        """How many marginals of several columns are measured only where a run chooses them."""
        return len(self.cells.cliques) - self.columns - len(self.wide_headlines)

    @cached_property
    def freedom(self) -> NDArray[np.float64]:
        """Degrees of freedom that a marginal has beside its columns; columns have none here."""
        domain = self.workload.domain
        return np.array([
            domain.cells(c) - 1 - sum(domain.sizes[i] - 1 for i in c) if len(c) > 1 else 0
            for c in self.cells.cliques
        ], dtype=np.float64)  # fmt: skip
