"""A public table that says what the private one may look like; a mechanism decides how far to believe it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError
from dpstream.core.schema.domain import Clique, Domain


@dataclass(frozen=True, eq=False)
class PublicPrior:
    """Records of a public table, or its counts: some columns of the private table's domain.

    Attributes:
        domain: of the private table.
        columns: which of its columns the prior has, in increasing order.
        codes: the prior's rows in these columns, shape (rows, columns).
        weights: how many records each row stands for.
        facts: where it comes from, JSON-able; they are part of what a stream is pinned to.
        other: by columns' names, the share of its records that hold another value than the declared ones, where any do.

    >>> domain = Domain(("zip", "district", "rent"), (3, 2, 4))
    >>> rows = np.array([[0, 0], [1, 0], [2, 1]], np.int32)
    >>> prior = PublicPrior(domain, (0, 1), rows, np.array([6.0, 3.0, 1.0]), {"sha256": "..."})
    >>> prior.marginal((0, 1)).reshape(3, 2).tolist()
    [[0.6, 0.0], [0.3, 0.0], [0.0, 0.1]]
    """

    domain: Domain
    columns: Clique
    codes: NDArray[np.int32]
    weights: NDArray[np.float64]
    facts: Mapping[str, Any]
    other: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """
        Errors:
            ConfigError: it holds no record.
        """
        if not self.total > 0.0:
            raise ConfigError("the prior holds no record", where="prior", allowed="at least one")

    @cached_property
    def total(self) -> float:
        """Number of its records."""
        return float(self.weights.sum())

    def describe(self) -> str:
        """What a plan says of it, in a sentence."""
        names = ", ".join(self.domain.names[i] for i in self.columns)
        return (
            f"A public table (columns {names}; {self.total:,.0f} records) joins the estimates that released "
            f"counts put it near to. It costs nothing.{self._told_of_other()}"
        )

    def _told_of_other(self) -> str:
        """How much of it says only that a value is another one."""
        shares = [f"{100 * share:.3g} % of {name}" for name, share in self.other.items()]
        return (
            f" In the bin other are {', '.join(shares)}; there it tells nothing of values." if shares else ""
        )

    def marginal(self, clique: Clique) -> NDArray[np.float64]:
        """The share of its records in every cell, flat in C order; the clique's columns are among its own.

        Cost: one pass over the rows.
        """
        axes = [self.columns.index(column) for column in clique]
        cells = np.ravel_multi_index(tuple(self.codes[:, axes].T), self.domain.shape(clique))
        return np.bincount(cells, self.weights, minlength=self.domain.cells(clique)) / self.total
