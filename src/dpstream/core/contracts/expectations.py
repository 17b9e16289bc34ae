"""What a plan predicts for a table of a guessed size, before any data are read. Everything here is public."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpstream.core.errors import ConfigError, HorizonError
from dpstream.core.schema.domain import Clique, Domain

#: By which share the number of records that come differs from one step to the next, where nobody says
#: (docs/theory/pooled.md: .2 to .5 in months of real streams).
VARIES = 0.3
#: ``grows``: nothing leaves. ``turns-over``: records leave once the table has its size. ``steady``: the same people, or
#: records with keys, are there from the first step on.
Change = Literal["grows", "turns-over", "steady"]


@dataclass(frozen=True)
class ExpectedTable:
    """Public guesses about a table, or what a release tells of it.

    Attributes:
        size: records in the table; of one that only grows, in the end.
        records_per_step: records that come in a step.
        change: how the table comes to its size.
        ordered: whether records that come at one time are alike, because they come sorted by columns of the table.
        varies: by which share the number of records that come differs from one step to the next, as a rule.
    """

    size: int
    records_per_step: float
    change: Change
    ordered: bool = False
    varies: float = VARIES

    def came(self, step: int) -> float:
        """Records that came up to a step, that step included; of a steady table, all that are there."""
        return float(self.size) if self.change == "steady" else self.records_per_step * step

    def left(self, step: int) -> float:
        """Records that left up to a step, as events of their own."""
        return max(0.0, self.came(step) - self.size) if self.change == "turns-over" else 0.0

    def size_at(self, step: int) -> float:
        """Records in the table after a step."""
        return self.came(step) - self.left(step)


@dataclass(frozen=True)
class MarginalError:
    """The standard error of one cell of a marginal.

    Attributes:
        columns: the marginal's columns, by name.
        cells: how many cells it has.
        error: in records.
    """

    columns: tuple[str, ...]
    cells: int
    error: float


@dataclass(frozen=True)
class ExpectedErrors:
    """Standard errors that are predicted for one step, in records; of measured sums, from the law of the noise.

    Attributes:
        step: which step.
        size: expected number of records then; 0 where nobody guesses it.
        total: of the number of records, where all marginals take turns; 0 where the owner declared it public, None
            where it is not predicted.
        marginals: of marginals that are measured whatever the records are. Of all others nothing is predicted.
        at_most: whether those of marginals are bounds, which may be many times too large.
        every_step: one cell of a marginal that is measured at every step; None where the plan cannot say.
    """

    step: int
    size: float
    total: float | None
    marginals: tuple[MarginalError, ...] = ()
    at_most: bool = False
    every_step: float | None = None

    def of(self, columns: Iterable[str]) -> MarginalError | None:
        """The error of one marginal; None where it is not predicted."""
        wanted = set(columns)
        return next((one for one in self.marginals if set(one.columns) == wanted), None)


def with_columns(marginals: Iterable[MarginalError], sizes: dict[str, int]) -> tuple[MarginalError, ...]:
    """The marginals, and the columns that none of them is alone: sums of the cells of the best marginal that has them.

    Args:
        marginals: with independent noise in their cells.
        sizes: cells of every column.
    """
    known = tuple(marginals)
    alone = {one.columns[0] for one in known if len(one.columns) == 1}
    found = []
    for name, cells in sizes.items():
        sums = [one.error * (one.cells / cells) ** 0.5 for one in known if name in one.columns]
        if name not in alone and sums:
            found.append(MarginalError((name,), cells, min(sums)))
    return (*found, *known)


def with_table(
    errors: Iterable[ExpectedErrors],
    domain: Domain,
    cliques: Sequence[Clique],
    expected: ExpectedTable | None,
) -> tuple[ExpectedErrors, ...]:
    """The same for a table of a guessed size, with the marginals that are measured at every step, and their columns."""
    sizes, found = dict(zip(domain.names, domain.sizes, strict=True)), []
    for error in errors:
        cells = [
            MarginalError(tuple(domain.names[i] for i in clique), domain.cells(clique), error.every_step)
            for clique in cliques
            if error.every_step is not None
        ]
        size = 0.0 if expected is None else expected.size_at(error.step)
        found.append(replace(error, size=size, marginals=with_columns(cells, sizes)))
    return tuple(found)


def check_steps(steps: Sequence[int], horizon: int | None) -> tuple[int, ...]:
    """The numbers of steps, checked.

    Errors:
        ConfigError: not a number of a step. HorizonError: a step beyond the horizon.
    """
    for step in steps:
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)) or step < 1:
            raise ConfigError(f"step = {step!r}", where="predicted errors", allowed="1, 2, ...")
        if horizon is not None and step > horizon:
            raise HorizonError(
                f"step {step} lies beyond the horizon", where="predicted errors", allowed=f"up to {horizon}"
            )
    return tuple(int(step) for step in steps)
