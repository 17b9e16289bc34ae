"""SmallDB: the exponential mechanism over all small databases, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations, combinations_with_replacement
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import Packed, check_whole, option
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.randomness import Randomness
from dpstream.core.tables import Workload
from dpstream.families.growing.blackbox import BlackBox, Counts, Database, Law, PowerLaw
from dpstream.families.growing.distributions import RowsTable, unpack_table
from dpstream.families.growing.options import SIZE
from dpstream.families.growing.run_schedule import MAX_RECORDS
from dpstream.families.tabular.options import WORKLOAD
from dpstream.families.tabular.selector import Selector

#: Small databases that are compared; each run goes through all of them.
MAX_CANDIDATES = 200_000
#: Kinds of records times queries.
MAX_TABLE = 4_000_000
_CHUNK = 1 << 22


@dataclass(frozen=True)
class TableLaw:
    """What a choice among all tables of ``size`` records promises for so many queries.

    Of ``m`` records drawn from the database a query's share is further than ``a`` from the true one with probability
    ``2 exp(-2 m a^2)`` at most (Hoeffding). So some table answers all k queries to within ``sqrt(log(2k) / (2m))``. The
    chosen one is worse by more than ``2 (log C + log(1/beta)) / (epsilon t)``, C being the number of tables, with
    probability beta at most (McSherry, Talwar 2007).
    """

    size: int
    queries: int
    tables: int

    def alpha(self, surprise: float, paid: float) -> float:
        """See ``Law``."""
        held = math.sqrt(math.log(2 * self.queries) / (2 * self.size))
        return held + 2 * (math.log(self.tables) + surprise) / paid


@dataclass(frozen=True)
class SmallDB(BlackBox[RowsTable]):
    """Choose one of all databases of ``m`` records: one that answers every query nearly as the private one does.

    Queries are the ``k`` cells of the workload's marginals. ``m = ceil(log k / alpha^2)``, with the ``alpha`` that the
    theorem gives for the first run (1 where it gives none). All runs have this ``m``, and each promises what a table of
    ``m`` records can hold: see ``TableLaw``.

    Guarantee: the budget, under replace-one with ``t`` public. The score of a database ``y`` is the largest
    ``|f(x) - f(y)|``, and a replaced record moves each ``f(x)`` by at most ``1/t``. Scores are integers, ``m t`` times
    that. Pure: permute-and-flip, never worse than the exponential mechanism; zCDP: the exponential mechanism.

    Args:
        workload: the marginals whose cells are asked.
        size: m, where it is given.

    Cost: a run compares all ``C(N + m - 1, m)`` databases, N being the cells of all columns.

    Errors: LimitError: more than ``MAX_CANDIDATES`` databases.

    Reference: Blum, Ligett, Roth (2008); (p, g) = (1/3, (64 log N log k)^(1/3)) as in Cummings et al., Section 3.1.
    """

    workload: Workload = option(of=WORKLOAD)
    size: int | None = option(None, SIZE)
    name = "smalldb"

    def __post_init__(self) -> None:
        if self.universe < 2 or self.workload.cells < 2:
            raise ConfigError(
                "a single cell leaves no databases to choose from", where="smalldb", allowed="2 cells or more"
            )
        if self.universe * self.workload.cells > MAX_TABLE:
            raise LimitError(
                f"{self.universe} kinds of records and {self.workload.cells} queries make a table of "
                f"{self.universe * self.workload.cells} entries",
                where="smalldb",
                allowed=f"up to {MAX_TABLE}; mwem and mwem-pgm have no such limit",
            )
        if self.size is not None:
            # How many there may be is checked by the number of databases.
            self._check(check_whole(self.size, "size", 1, MAX_RECORDS, "smalldb"))

    @property
    def universe(self) -> int:
        """N."""
        return self.workload.domain.cells(range(len(self.workload.domain)))

    @property
    def accuracy(self) -> PowerLaw:  # type: ignore[override]
        """``(1/3, (64 log N log k)^(1/3))``."""
        return PowerLaw(1 / 3, math.cbrt(64 * math.log(self.universe) * math.log(self.workload.cells)))

    @property
    def law(self) -> Law:
        """Of its size; the theorem's for the best size before it has one."""
        if self.size is None:
            return self.accuracy
        return TableLaw(self.size, self.workload.cells, self.candidates(self.size))

    @property
    def reads(self) -> Counts:
        """The workload's marginals."""
        return Counts(self.workload.domain, self.workload.cliques)

    def options(self) -> dict[str, Any]:
        """All options."""
        return {"workload": self.workload.as_option(), "size": self.size}

    def describe(self) -> str:
        """How many databases of how many records."""
        if self.size is None:
            return "SmallDB, of a size that follows from the promise of the first run"
        return f"SmallDB choosing among {self.candidates(self.size)} databases of {self.size} records"

    def candidates(self, size: int) -> int:
        """How many databases of ``size`` records there are."""
        return math.comb(self.universe + size - 1, size)

    def fitted(self, alpha: float | None) -> Self:
        """This black box with a size; see ``BlackBox.fitted``."""
        if self.size is not None:
            return self
        wanted = 1.0 if alpha is None else min(alpha, 1.0)
        size = math.ceil(math.log(self.workload.cells) / wanted**2)
        self._check(size)
        return replace(self, size=size)

    def run(self, budget: Budget, data: Database, randomness: Randomness) -> RowsTable:
        """See ``BlackBox.run``."""
        size = self.size
        assert size is not None  # fitted
        databases = _databases(self.universe, size)
        distances = self._distances(databases, np.concatenate(data.counts), data.t, size)
        ones = np.ones(len(distances), np.int64)
        # Scores are in units of 1 / (m t): a count moves by at most 1, so a score moves by at most m.
        chosen = self._selector(budget).choose(
            -distances, ones, range(len(distances)), Fraction(size), randomness
        )
        cells = np.repeat(np.arange(self.universe), _histogram(databases[chosen], self.universe, size))
        codes = np.column_stack(np.unravel_index(cells, self.workload.domain.sizes))
        return RowsTable(self.workload.domain, codes.astype(np.int32))

    def _selector(self, budget: Budget) -> Selector:
        """What makes the choice; audits put one there that follows a script."""
        return Selector(budget)

    def _distances(
        self, databases: NDArray[np.int32], counts: NDArray[np.int64], t: int, size: int
    ) -> NDArray[np.int64]:
        """The largest ``|m (f(x) t) - t (f(y) m)|`` over all queries, for each database ``y``."""
        holds = self._incidence()
        chunk = max(1, _CHUNK // holds.shape[1])
        distances = []
        for start in range(0, len(databases), chunk):
            part = databases[start : start + chunk]
            if self.universe <= size:
                answers = part.astype(np.int64) @ holds
            else:
                answers = sum(
                    (holds[column] for column in part.T), np.zeros((len(part), holds.shape[1]), np.int64)
                )
            distances.append(np.abs(size * counts - t * answers).max(axis=1))
        return np.concatenate(distances)

    def _incidence(self) -> NDArray[np.int64]:
        """Which queries count a record of each kind, shape (N, k)."""
        domain = self.workload.domain
        kinds = np.stack(np.unravel_index(np.arange(self.universe), domain.sizes))
        parts = []
        for clique in self.workload.cliques:
            place = np.ravel_multi_index(tuple(kinds[list(clique)]), domain.shape(clique))
            parts.append(place[:, None] == np.arange(domain.cells(clique)))
        return np.concatenate(parts, axis=1).astype(np.int64)

    def unpack(self, packed: Packed) -> RowsTable:
        """See ``BlackBox.unpack``."""
        table = unpack_table(packed)
        assert isinstance(table, RowsTable)
        return table

    def _check(self, size: int) -> None:
        # comb of absurd sizes would take long: with m records of N kinds there are at least m and N databases.
        least = max(self.universe, size)
        number = least if least > MAX_CANDIDATES else self.candidates(size)
        if number > MAX_CANDIDATES:
            raise LimitError(
                f"there are {'at least ' if number == least else ''}{number} databases of {size} records over "
                f"{self.universe} cells, and SmallDB compares all of them",
                where="smalldb",
                allowed=f"up to {MAX_CANDIDATES}: fewer cells or a smaller size; mwem and mwem-pgm have no such limit",
            )


def _databases(universe: int, size: int) -> NDArray[np.int32]:
    """All multisets of ``size`` of ``universe`` kinds: as histograms or as lists of kinds, whichever is shorter."""
    if universe <= size:
        # Stars and bars: the kinds' numbers of records are the gaps between universe - 1 bars.
        bars = _table(combinations(range(size + universe - 1), universe - 1), universe - 1)
        edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, size + universe - 1)))
        return (np.diff(edges, axis=1) - 1).astype(np.int32)
    return _table(combinations_with_replacement(range(universe), size), size)


def _histogram(database: NDArray[np.int32], universe: int, size: int) -> NDArray[np.int64]:
    """One of ``_databases`` as numbers of records."""
    whole = database if universe <= size else np.bincount(database, minlength=universe)
    return whole.astype(np.int64)


def _table(tuples: Iterator[tuple[int, ...]], width: int) -> NDArray[np.int32]:
    return np.fromiter(chain.from_iterable(tuples), dtype=np.int32).reshape(-1, width)
