"""The state of a pooled stream.

Trusted base: kernel (holds exact counts).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import (
    Packed,
    unpack_fields,
)
from dpstream.core.errors import StoreDamagedError
from dpstream.core.graphical import Model
from dpstream.families.tabular.pooled_book import PooledBook, PublicSide
from dpstream.families.tabular.pooled_estimates import Estimates
from dpstream.mechanisms.workload_cells import Cells


@dataclass
class PooledSide(PublicSide):
    """The same, and private: the open epoch's counts of all followed marginals."""

    counts: NDArray[np.int64] = field(kw_only=True)


@dataclass
class PooledState(PooledBook):
    """All that a pooled stream remembers. The sides hold private counts: the state is secret."""

    sides: tuple[PooledSide, ...]


def fresh_state(
    cells: Cells, sides: int, border: int, season: float | None = None, first: int = 0
) -> PooledState:
    """The state before the first step: nothing is counted, and models are uniform.

    Args:
        first: how many events the first step lets expect, but for deletes; 0: nobody guesses.
    """
    domain = cells.workload.domain
    return PooledState(
        step=0,
        closed=0,
        border=border,
        sides=tuple(
            PooledSide(
                Estimates.fresh(cells, season), 0.0, 0.0, rate, counts=np.zeros(cells.total, dtype=np.int64)
            )
            for rate in (float(first), *[0.0] * (sides - 1))
        ),
        open_total=0.0,
        models=tuple(Model.uniform(domain, 1.0) for _ in range(sides)),
        latest=Model.uniform(domain, 1.0),
        table=Model.uniform(domain, 0.0),
        base=np.zeros(cells.total),
        base_total=0.0,
        base_variance=0.0,
    )


def unpack(packed: Packed, cells: Cells, season: float | None = None) -> PooledState:
    """The inverse of ``pack_fields``; StoreDamagedError if the arrays do not fit the workload."""
    state = unpack_fields(PooledState, packed, cells=cells, season=season)
    for side in state.sides:
        if len(side.counts) != cells.total:
            raise StoreDamagedError("the counts of an epoch do not fit the workload", where="state")
        side.estimates.check()
    return state


@dataclass(frozen=True)
class Epochs:
    """Epochs that grow in proportion to the steps so far.

    After a border at step ``c`` the next one is at the last step at which the open epoch holds more than ``staleness``
    of all steps: ``floor(c / (1 - staleness)) + 1``, so that at any step the steps not yet measured are at most
    that share of all steps, or a single one. The stream's last step is a border, too: the horizon's, and the last one
    that the owner plans (``last``), which may be moved, also after a stream has passed it.

    >>> epochs, border, borders = Epochs(Fraction(1, 10), 40), 0, []
    >>> while border < 40:
    ...     border = epochs.after(border)
    ...     borders.append(border)
    >>> borders
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 32, 36, 40]
    """

    staleness: Fraction
    horizon: int | None
    last: int | None = None

    def after(self, border: int) -> int:
        """The first border after one (0: before the first step)."""
        following = int(border // (1 - self.staleness)) + 1
        if self.last is not None and border < self.last:
            following = min(following, self.last)
        return following if self.horizon is None else min(following, self.horizon)
