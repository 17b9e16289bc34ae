"""What each measurement of AIM would be worth: exact scores, and by how much a record moves them.

Trusted base: kernel (exact scores).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import LimitError
from dpstream.mechanisms.candidate_marginals import CandidateMarginals, parts_of
from dpstream.mechanisms.workload_cells import MAX_RECORDS

#: Grid of the distances in scores: 1/256 of a record. With ``_LARGEST`` no score passes 2^61.
_GRID_BITS = 8
#: Bound of the sum of a candidate's coefficients.
_LARGEST = 1 << 16
#: Mean absolute value of noise of standard deviation 1 (as if it were normal: only a correction).
_MEAN_NOISE = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Candidates(CandidateMarginals):
    """The marginals that may be measured: those of the workload, and unions of three columns.

    One record lies in one cell of a union as it does in one cell of a pair, so that one measurement of a union tells
    of three pairs at the price of one, with the noise of several cells in each of theirs. Under pure DP, where ``m``
    measurements have ``m`` times the noise each, that pays where ``mean sqrt(cells of the union / cells of a pair) <=
    m``; under zCDP (``sqrt(m)`` times the noise) hardly ever.

    Score of candidate ``r``, over the workload's marginals ``s`` that it contains, with ``S`` the L1 distance between
    the private marginal and what the model expects (records)::

        sum_s  c_s max(0, S_s - E_s(r))      c_s: integers proportional to w_s |s|^power

    ``E_s(r)`` is the expected L1 error that ``s`` would have after measuring ``r``, by public noise scales, with what
    is known of ``s`` already. One record moves every ``S_s`` by at most 1 (a replaced one by 2), ``max(0, .)`` does
    not enlarge that, so the score's sensitivity is the largest ``sum_s c_s`` (twice that).

    ``power``: -1 judges by the mean cell, 0 by the sum. In between, small marginals are not forgotten and large ones
    not left to chance: the noise of a selection is that of the smallest. Where choosing is dear (pure), nearer to 0.
    """

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Candidate and workload marginal in it, for every such pair; where each candidate's begin."""
        place = {clique: i for i, clique in enumerate(self.workload.cliques)}
        parts_of_each = [
            [place[part] for part in parts_of(clique) if part in place] for clique in self.cliques
        ]
        owners = np.repeat(np.arange(len(parts_of_each)), [len(parts) for parts in parts_of_each])
        starts = np.concatenate(([0], np.cumsum([len(parts) for parts in parts_of_each])[:-1])).astype(
            np.int64
        )
        return owners, np.array([s for parts in parts_of_each for s in parts], dtype=np.int64), starts

    @cached_property
    def coefficients(self) -> NDArray[np.int64]:
        """The coefficients ``c_s``, at least 1 each."""
        _, inside, starts = self._pairs
        weights = np.array([float(w) for w in self.workload.weights])
        raw = weights * self.cells.sizes.astype(np.float64) ** self.power
        widest = float(np.add.reduceat(raw[inside], starts).max())
        return np.maximum(np.rint(raw / widest * (_LARGEST // 4)).astype(np.int64), 1)

    @cached_property
    def sensitivity(self) -> int:
        """The sensitivity of every score, in its own units."""
        _, inside, starts = self._pairs
        largest = int(np.add.reduceat(self.coefficients[inside], starts).max())
        if largest > _LARGEST:
            raise LimitError(
                "a marginal of the workload contains too many others",
                where="workload",
                allowed="fewer columns each",
            )
        return (largest << _GRID_BITS) * self.unit.changed_cells

    def scores(
        self,
        counts: NDArray[np.int64],
        expected: NDArray[np.float64],
        variance: float,
        precision: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """All candidates' scores, exact.

        Args:
            counts: private, all cells of the workload's marginals.
            expected: public, what the model says of them.
            variance: of the noise that a measured cell would get.
            precision: inverse variance of a cell of each workload marginal, as far as it is known.
        """
        cells = self.cells
        events = int(np.add.reduceat(np.abs(counts), cells.starts).max())
        if events > MAX_RECORDS:
            raise LimitError("too many events in one batch", where="score", allowed=f"up to {MAX_RECORDS}")
        # Public, so it may be clipped; with the bound above no distance passes 2^34 records.
        bound = np.repeat(MAX_RECORDS / cells.sizes, cells.sizes)
        grid = np.rint(np.ldexp(np.clip(expected, -bound, bound), _GRID_BITS)).astype(np.int64)
        distance = np.add.reduceat(np.abs((counts << _GRID_BITS) - grid), cells.starts)
        owners, inside, starts = self._pairs
        size = cells.sizes[inside].astype(np.float64)
        known = size / (variance * self.sizes[owners]) + precision[inside]
        noise = np.minimum(_MEAN_NOISE * size / np.sqrt(known), 4.0 * MAX_RECORDS)
        error = np.rint(np.ldexp(noise, _GRID_BITS)).astype(np.int64)
        gains = self.coefficients[inside] * np.maximum(distance[inside] - error, 0)
        summed: NDArray[np.int64] = np.add.reduceat(gains, starts)
        return summed

    @cached_property
    def cover(self) -> tuple[int, ...]:
        """Candidates that contain the whole workload: always the one with the most that is not contained yet."""
        owners, inside, _ = self._pairs
        left = np.ones(len(self.cells.cliques), dtype=bool)
        chosen: list[int] = []
        while left.any():
            gained = np.bincount(owners, weights=left[inside], minlength=len(self.cliques))
            best = int(np.lexsort((self.sizes, -gained))[0])
            chosen.append(best)
            left[inside[owners == best]] = False
        return tuple(chosen)

    @cached_property
    def covered(self) -> float:
        """Share of the workload's marginals that are in a union."""
        owners, inside, _ = self._pairs
        own = len(self.workload.cliques)
        return len(set(inside[owners >= own].tolist())) / own
