"""What black boxes release and promise: distributions over records that answer every linear query. All of it public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import UNPACKED
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.graphical import Measurement, Model, fit
from dpstream.core.schema.domain import Clique, Domain
from dpstream.core.tables import count_marginals

#: The largest universe (cells of all columns together) that is kept in memory: 80 MB of weights.
MAX_UNIVERSE = 10**7


@dataclass(frozen=True)
class PowerLaw:
    """What a (p, g)-black box promises (Definition 4): ``alpha = g (log(1/beta) / (epsilon t))^p``.

    With probability ``1 - beta`` every query of its class is answered to within ``alpha``, as a share of the records.
    """

    p: float
    g: float

    def __post_init__(self) -> None:
        if not (0.0 < self.p <= 1.0 and 0.0 < self.g < float("inf")):
            raise ConfigError(
                f"p = {self.p}, g = {self.g}", where="accuracy", allowed="p in (0, 1], g positive and finite"
            )

    def alpha(self, surprise: float, paid: float) -> float:
        """Every query of its class is answered to within this, as a share of the records.

        Args:
            surprise: ``log(1/beta)``, beta being the probability that it is not.
            paid: ``epsilon t``.
        """
        return self.g * math.pow(surprise / paid, self.p)


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
        """See ``PowerLaw.alpha``."""
        held = math.sqrt(math.log(2 * self.queries) / (2 * self.size))
        return held + 2 * (math.log(self.tables) + surprise) / paid


#: What a black box promises of its accuracy.
Law = PowerLaw | TableLaw


def check_universe(domain: Domain) -> int:
    """The number of cells of all columns together, N.

    Errors:
        LimitError: more than are kept in memory.
    """
    cells = math.prod(domain.sizes)
    if cells > MAX_UNIVERSE:
        raise LimitError(
            f"the columns have {cells} cells",
            where="schema",
            allowed=f'up to {MAX_UNIVERSE:.0e}: fewer columns or coarser bins, or [mechanism] name = "pooled" or '
            '"dpstabs"',
        )
    return cells


# Releases: a distribution over records that answers every linear query (``shares``: marginals, flat in C order; each
# adds up to 1 and has nothing below 0), and from which records can be drawn (``sample``: codes, repeatable by a seed).


@dataclass(frozen=True)
class ModelTable:
    """A graphical model."""

    model: Model

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.model.domain

    def shares(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Marginals of the distribution."""
        return self.model.with_total(1.0).marginals(cliques)

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Records as codes, shape (rows, columns)."""
        return self.model.sample(rows, seed)

    def moved(
        self, measured: Sequence[Measurement], records: float, iterations: int, max_cells: int
    ) -> ModelTable:
        """Towards noisy counts of so many records, by the part of the way that is signal (James, Stein 1961); what was
        not measured stays.

        Two distributions are never further apart than all records: noise beyond that never looks like signal.
        """
        known = self.model.with_total(records).marginals([one.clique for one in measured])
        found, noise, most = 0.0, 0.0, 0.0
        for one, last in zip(measured, known, strict=True):
            way = one.values - last
            found += float(((way - way.mean()) ** 2).sum()) / one.variance
            noise += len(way) - 1
            most += records**2 / one.variance
        signal = min(max(found - noise, 0.0), most)
        part = signal / max(signal + noise, 1.0)
        wanted = [
            replace(one, values=last + part * (one.values - last))
            for one, last in zip(measured, known, strict=True)
        ]
        model = fit(
            self.domain,
            wanted,
            total=records,
            warm=self.model,
            iterations=iterations,
            max_cells=max_cells,
        )
        return ModelTable(model)


@dataclass(frozen=True)
class WeightsTable:
    """A probability for every cell of the universe, in C order of the columns."""

    domain: Domain = field(metadata=UNPACKED)
    weights: NDArray[np.float64]

    def shares(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Marginals of the distribution."""
        cube = self.weights.reshape(self.domain.sizes)
        return [
            cube.sum(axis=tuple(i for i in range(cube.ndim) if i not in clique)).ravel() for clique in cliques
        ]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Records as codes, shape (rows, columns)."""
        steps = np.cumsum(self.weights)
        places = np.random.default_rng(seed).random(rows) * steps[-1]
        cells = np.minimum(np.searchsorted(steps, places, side="right"), len(steps) - 1)
        return np.column_stack(np.unravel_index(cells, self.domain.sizes)).astype(np.int32)


@dataclass(frozen=True)
class RowsTable:
    """Records as codes, shape (records, columns), each as likely as the others."""

    domain: Domain = field(metadata=UNPACKED)
    codes: NDArray[np.int32]

    def shares(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Marginals of the distribution."""
        return [counts / len(self.codes) for counts in count_marginals(self.codes, self.domain, cliques)]

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Whole copies of the table as far as they go, and some of its records; in random order."""
        generator = np.random.default_rng(seed)
        whole = np.tile(np.arange(len(self.codes)), rows // len(self.codes))
        rest = generator.permutation(len(self.codes))[: rows % len(self.codes)]
        drawn: NDArray[np.int32] = self.codes[generator.permutation(np.concatenate([whole, rest]))]
        return drawn


AnyTable = ModelTable | WeightsTable | RowsTable


def returned_table(domain: Domain, values: NDArray[Any]) -> AnyTable:
    """The function's result as a table, checked. The result is public, so errors may name it."""
    columns = len(domain)
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == columns and values.dtype.kind in "iu" and len(values):
        if (values < 0).any() or (values >= np.array(domain.sizes)).any():
            raise ConfigError("the function's codes leave the domain", where="own mechanism")
        return RowsTable(domain, values.astype(np.int32))
    if values.ndim == 1 and values.dtype.kind == "f":
        cells = check_universe(domain)
        total = float(values.sum())
        if len(values) == cells and (values >= 0.0).all() and 0.0 < total < float("inf"):
            return WeightsTable(domain, values / total)
    raise ConfigError(
        "the function must return a table",
        where="own mechanism",
        allowed=f"integer codes of shape (records, {columns}), or a float weight per cell",
    )
