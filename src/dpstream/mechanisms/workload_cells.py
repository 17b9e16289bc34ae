"""A workload laid out as one long vector of cells, and exact selection scores on it.

Model marginals are real numbers; selection must be exact. Both sides of a score are therefore put on
one public grid of step ``2**-GRID_BITS`` records, after which scores are integers over a common
denominator. Rounding happens to public numbers only, so it cannot change a sensitivity.

Trusted base: kernel (exact scores).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.unit import EventUnit
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload

#: Model marginals are put on a grid of 2^-20 records in scores: about a millionth of a record.
GRID_BITS = 20

#: Declared bound on the events of one batch. It is the same for every plan and far above what fits into memory,
#: so that refusing a larger batch says nothing about a private size that could occur. Counters have the same bound.
MAX_RECORDS = 1 << 32

ScoreName = Literal["mean-cells", "sum-cells", "sum-noise"]
SCORES: tuple[ScoreName, ...] = ("mean-cells", "sum-cells", "sum-noise")


@dataclass(frozen=True)
class Cells:
    """All marginals of a workload, one after the other (flat, C order)."""

    workload: Workload

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """The workload's cliques, in order."""
        return self.workload.cliques

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Cells per clique."""
        domain = self.workload.domain
        return np.array([domain.cells(clique) for clique in self.cliques], dtype=np.int64)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First cell of each clique."""
        return np.concatenate(([0], np.cumsum(self.sizes)[:-1])).astype(np.int64)

    @cached_property
    def total(self) -> int:
        """Number of cells."""
        return int(self.sizes.sum())

    def part(self, index: int) -> slice:
        """The slice of a clique's cells."""
        start = int(self.starts[index])
        return slice(start, start + int(self.sizes[index]))

    @cached_property
    def of_shape(self) -> dict[tuple[int, ...], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The cliques of each shape, by their positions, and their columns, shape (cliques, axes)."""
        domain, found = self.workload.domain, dict[tuple[int, ...], list[int]]()
        for i, clique in enumerate(self.cliques):
            found.setdefault(domain.shape(clique), []).append(i)
        return {
            shape: (np.array(own), np.array([self.cliques[i] for i in own]).reshape(len(own), len(shape)))
            for shape, own in found.items()
        }

    @cached_property
    def weights(self) -> tuple[list[int], list[int]]:
        """Numerators and denominators of the cliques' weights."""
        return [w.numerator for w in self.workload.weights], [w.denominator for w in self.workload.weights]

    @cached_property
    def kinds(self) -> list[tuple[int, int, int]]:
        """What occurs of weights and sizes: (numerator, denominator, cells)."""
        return sorted(set(zip(*self.weights, self.sizes.tolist(), strict=True)))

    def mask(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which cells belong to some cliques."""
        chosen = np.zeros(len(self.cliques), dtype=bool)
        chosen[np.asarray(indices, dtype=np.int64)] = True
        return np.repeat(chosen, self.sizes)


@dataclass(frozen=True)
class Score:
    """How badly a model explains a batch, per workload, as exact rationals.

    With ``S_i`` the L1 distance between the batch's marginal and what the model expects of it
    (records), ``w_i`` the weight and ``|q_i|`` the cells of workload ``i``:

    ===============  ===============================  ======================================  ================
    name             score                            correction                              sensitivity
    ===============  ===============================  ======================================  ================
    mean-cells       w_i S_i / \\|q_i\\| - \\|q_i\\|      as printed by Kumar et al., 7.2 (3)     max w_i/\\|q_i\\|
    sum-cells        w_i (S_i - \\|q_i\\|)              one record a cell, usual with MWEM+PGM  max w_i
    sum-noise        w_i (S_i - b \\|q_i\\|)            b: expected absolute noise of a cell    max w_i
    ===============  ===============================  ======================================  ================

    Sensitivity: one inserted or deleted record moves one cell of each ``S_i`` by 1 (two cells under
    replacement, which doubles it). Corrections depend on public numbers only.
    """

    cells: Cells
    name: ScoreName
    unit: EventUnit
    noise_bias: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in SCORES:
            raise ConfigError(f"unknown score {self.name!r}", where="score", allowed=", ".join(SCORES))

    @cached_property
    def sensitivity(self) -> Fraction:
        """The largest change of any score under one neighbouring change."""
        by_sum = self.name.startswith("sum-")
        largest = max(Fraction(w, d if by_sum else d * n) for w, d, n in self.cells.kinds)
        return largest * self.unit.changed_cells

    @property
    def grid_sensitivity(self) -> Fraction:
        """Sensitivity in the units of ``numerators``: records times ``2**GRID_BITS``."""
        return self.sensitivity * (1 << GRID_BITS)

    def evaluate(
        self, batch: NDArray[np.int64], expected: NDArray[np.float64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scores as (numerators, denominators), in units of ``2**-GRID_BITS`` records.

        Args:
            batch: the private counts of one batch, all cells.
            expected: what the model expects of the batch, all cells (public).
        """
        events = np.add.reduceat(np.abs(batch), self.cells.starts).max()
        if events > MAX_RECORDS:
            raise LimitError("too many events in a batch", where="score", allowed=f"up to {MAX_RECORDS}")
        # Public, so it may be clipped; with the bound above no distance passes 2^54.
        bound = np.repeat(MAX_RECORDS / self.cells.sizes, self.cells.sizes)
        expected = np.clip(expected, -bound, bound)
        grid = np.rint(np.ldexp(expected, GRID_BITS)).astype(np.int64)
        distance = np.add.reduceat(np.abs((batch << GRID_BITS) - grid), self.cells.starts)
        distance = distance.astype(self._weights.dtype)
        if self.name == "mean-cells":
            numerators = self._weights * distance - self._denominators * self._sizes * (1 << GRID_BITS)
        else:
            cell = 1.0 if self.name == "sum-cells" else self.noise_bias
            numerators = self._weights * (distance - self._sizes * round(cell * (1 << GRID_BITS)))
        return numerators, self._denominators

    @cached_property
    def _exact(self) -> Any:
        """int64 where no score can pass 2^62, else Python integers: slower, and never wraps around."""
        bias = max(1, round(self.noise_bias) + 1)
        worst = 0
        for numerator, denominator, size in self.cells.kinds:
            largest = (4 * MAX_RECORDS + size * bias) << GRID_BITS
            score = numerator * largest + denominator * size * (size << GRID_BITS)
            worst = max(worst, score, denominator * size)
        return np.int64 if worst < 1 << 62 else object

    @cached_property
    def _weights(self) -> NDArray[Any]:
        return np.array(self.cells.weights[0], dtype=self._exact)

    @cached_property
    def _sizes(self) -> NDArray[Any]:
        return np.array(self.cells.sizes.tolist(), dtype=self._exact)

    @cached_property
    def _denominators(self) -> NDArray[Any]:
        own = np.array(self.cells.weights[1], dtype=self._exact)
        return own if self.name.startswith("sum-") else own * self._sizes
