"""Every cell of a schema, kept in memory: the private counts, and the public histogram ``y``.

Trusted base: kernel (holds exact counts).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import CellEstimate, Packed, SyntheticTable
from dpstream.core.errors import ConfigError, LimitError, StoreDamagedError
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.growing.blackbox import MAX_UNIVERSE, LinearQuery, WeightsTable

#: A query's values are whole numbers of ``2^-WEIGHT_BITS``: private sums of them are exact integers.
WEIGHT_BITS = 20
#: Weights are kept above 0: the smallest normal number is near 1e-308.
_MIN_WEIGHT = 1e-300
#: The largest slope that ``matched`` tries; values closer than 1/40 of it cannot be told apart any more.
_STEEPEST_SLOPE = 1e4


@dataclass(frozen=True)
class Universe:
    """The cells of a domain, in C order.

    Errors:
        LimitError: more than ``MAX_UNIVERSE`` cells.
    """

    domain: Domain

    def __post_init__(self) -> None:
        if self.cells > MAX_UNIVERSE:
            raise LimitError(
                f"the columns have {self.cells:.3g} cells together, and every one has a weight in memory",
                where="schema",
                allowed=f"up to {MAX_UNIVERSE:.0e}: fewer columns or coarser bins, or the tabular family "
                '([mechanism] name = "pooled" or "dpstabs")',
            )

    @property
    def cells(self) -> int:
        """N."""
        return math.prod(self.domain.sizes)

    @property
    def clique(self) -> Clique:
        """All columns."""
        return tuple(range(len(self.domain)))

    def weights(self, query: LinearQuery) -> NDArray[np.int64]:
        """The query's value in every cell, rounded to the nearest ``2^-WEIGHT_BITS``, in these units.

        The rounded query is the one that is asked, of the private data and of ``y`` alike; 0 and 1 stay exact.

        Errors:
            ConfigError: the query is none of these columns.
        """
        scaled = self._grid_values(query)
        if len(query.clique) == len(self.domain):
            return scaled
        shape = [size if i in query.clique else 1 for i, size in enumerate(self.domain.sizes)]
        return np.broadcast_to(scaled.reshape(shape), self.domain.sizes).reshape(-1)

    def _grid_values(self, query: LinearQuery) -> NDArray[np.int64]:
        """The values of the query's own columns in units of ``2^-WEIGHT_BITS``."""
        clique = query.clique
        if list(clique) != sorted(set(clique)) or (
            clique and not 0 <= clique[0] <= clique[-1] < len(self.domain)
        ):
            raise ConfigError(
                "the query names columns that are not there",
                where="query",
                allowed="sorted positions of columns",
            )
        if len(query.weights) != self.domain.cells(clique):
            raise ConfigError(
                f"the query has {len(query.weights)} values",
                where="query",
                allowed=f"{self.domain.cells(clique)}, one for every cell of its columns",
            )
        scaled: NDArray[np.int64] = np.rint(query.weights * 2**WEIGHT_BITS).astype(np.int64)
        return scaled

    def uniform(self) -> NDArray[np.float64]:
        """``y`` before anything was asked."""
        return np.full(self.cells, 1 / self.cells)


def mixed(y: NDArray[np.float64], since: int, t: int) -> None:
    """``y <- (t'/t) y + ((t - t')/t)/N`` in place: what arrived since is taken to be uniform."""
    y *= since / t
    y += (t - since) / t / len(y)


def multiplied(y: NDArray[np.float64], weights: NDArray[np.int64], *, down: bool, rate: float) -> None:
    """``y ~ exp(-rate r) y`` in place, ``r`` the query (``down``) or 1 minus it. Linear in N, vectorised."""
    # exp(-rate (1 - f)) and exp(rate f) differ by a constant, which the sum takes out.
    y *= np.exp(weights * ((-rate if down else rate) / 2**WEIGHT_BITS))
    np.maximum(y, _MIN_WEIGHT * y.max(), out=y)
    y /= y.sum()


def matched(y: NDArray[np.float64], weights: NDArray[np.int64], answer: float, margin: float) -> None:
    """The distribution nearest to ``y`` (relative entropy) that gives ``answer`` to the query, in place.

    It is ``y ~ exp(s f) y`` for one ``s``, found by bisection, which the answer's being public allows.

    Args:
        margin: the answer is taken at least so far inside of what the query can give at all.
    """
    values, places = np.unique(weights, return_inverse=True)
    shares, f = np.bincount(places, y), values / 2**WEIGHT_BITS
    if len(f) == 1:
        return
    wanted = min(max(answer, f[0] + margin * (f[-1] - f[0])), f[-1] - margin * (f[-1] - f[0]))
    low, high = -_STEEPEST_SLOPE, _STEEPEST_SLOPE
    for _ in range(60):
        middle = (low + high) / 2
        tilted = shares * np.exp(middle * (f - (f[-1] if middle > 0 else f[0])))
        low, high = (middle, high) if tilted @ f < wanted * tilted.sum() else (low, middle)
    y *= np.exp(low * (f - (f[-1] if low > 0 else f[0])))[places]
    # What is left may be as small as the floor: relative to it, another floor would be 0, and nothing comes back.
    y /= y.max()
    np.maximum(y, _MIN_WEIGHT, out=y)
    y /= y.sum()


@dataclass(frozen=True)
class HistogramSynthesis(SyntheticTable):
    """``y`` as a step gives it: what the answers so far have taught, as a table. Public.

    Attributes:
        columns: the domain.
        records: their number, which is public.
        shares: ``y``, flat.
    """

    columns: Domain
    records: int
    shares: NDArray[np.float64]
    #: The number of records is public.
    total_error = 0.0

    @property
    def domain(self) -> Domain:
        """The columns."""
        return self.columns

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.records)

    def marginal(self, clique: Clique) -> CellEstimate:
        """What ``y`` says; how far it is from the truth is known only where a question was asked."""
        (share,) = self._table.shares([clique])
        return CellEstimate(share.reshape(self.columns.shape(clique)) * self.records, None)

    def marginals(self, cliques: Sequence[Clique]) -> list[NDArray[np.float64]]:
        """Many marginals at once, flat."""
        return [share * self.records for share in self._table.shares(cliques)]

    @property
    def _table(self) -> WeightsTable:
        return WeightsTable(self.columns, self.shares)

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says."""
        return {
            "total_standard_error": 0.0,
            "measured_every_step": {"standard_error": None, "marginals": []},
            "words": "The number of records is declared public and has no noise. The table is drawn from the public "
            "histogram, which knows what the answers to questions have taught it and nothing else: no count of it has "
            "an error bar. Each answer says how noisy it is.",
        }

    def sample(self, rows: int, seed: int) -> NDArray[np.int32]:
        """Records drawn from ``y``, shape (rows, columns)."""
        return self._table.sample(rows, seed)

    def pack(self) -> Packed:
        """Arrays and JSON."""
        return Packed({"records": self.records}, {"shares": self.shares})

    @classmethod
    def unpack(cls, columns: Domain, packed: Packed) -> HistogramSynthesis:
        """The inverse of ``pack``.

        Errors:
            StoreDamagedError: it belongs to other columns.
        """
        shares = packed.arrays.get("shares", np.zeros(0))
        if shares.shape != (math.prod(columns.sizes),):
            raise StoreDamagedError("a histogram has another size than the columns", where="pmwg")
        return cls(columns, int(packed.meta["records"]), shares)
