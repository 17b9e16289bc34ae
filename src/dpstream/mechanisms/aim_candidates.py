"""What each measurement of AIM would be worth: exact scores, and by how much a record moves them.

Trusted base: kernel (exact scores).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import LimitError
from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.mechanisms.workload_cells import MAX_RECORDS, Cells

#: Unions of three columns that may be candidates. (All of them up to 23 columns.)
_MAX_UNIONS = 1800


def parts_of(clique: Clique) -> list[Clique]:
    """All marginals that a clique contains, itself included."""
    return [part for size in range(1, len(clique) + 1) for part in itertools.combinations(clique, size)]


def _unions(workload: Workload) -> tuple[Clique, ...]:
    """Three columns with at least two of the workload's pairs, where one measurement beats one of each."""
    domain = workload.domain
    own, pairs = set(workload.cliques), [c for c in workload.cliques if len(c) == 2]
    beside: dict[int, set[int]] = {}
    for a, b in pairs:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    triples = {tuple(sorted((a, b, c))) for a, b in pairs for c in beside[a] | beside[b] if c not in (a, b)}
    judged: list[tuple[float, Clique]] = []
    for triple in sorted(triples - own):
        inside = [pair for pair in itertools.combinations(triple, 2) if pair in own]
        louder = np.mean([math.sqrt(domain.cells(triple) / domain.cells(pair)) for pair in inside])
        if louder <= len(inside):
            judged.append((float(louder) / len(inside), triple))
    return tuple(sorted(triple for _, triple in sorted(judged)[:_MAX_UNIONS]))


#: Grid of the distances in scores: 1/256 of a record. With ``_LARGEST`` no score passes 2^61.
_GRID_BITS = 8
#: Bound of the sum of a candidate's coefficients.
_LARGEST = 1 << 16
#: Mean absolute value of noise of standard deviation 1 (as if it were normal: only a correction).
_MEAN_NOISE = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True)
class Candidates:
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

    workload: Workload
    unit: Event
    unions: bool
    power: float = -0.25

    @cached_property
    def cells(self) -> Cells:
        """The workload's marginals as one vector."""
        return Cells(self.workload)

    @cached_property
    def columns(self) -> tuple[Clique, ...]:
        """Every column of the workload."""
        return tuple((column,) for column in sorted({i for c in self.workload.cliques for i in c}))

    @cached_property
    def groups(self) -> tuple[Clique, ...]:
        """The columns in groups of up to three that are measured together where that pays (as for unions).

        Greedily: the two whose joining lowers the sum of the columns' standard deviations most.
        """
        if not self.unions:
            return self.columns
        domain, own, current = self.workload.domain, set(self.cliques), list(self.columns)

        def noise(group: Clique) -> float:
            return sum(math.sqrt(domain.cells(group) / domain.sizes[i]) for i in group)

        while True:
            whole = sum(noise(group) for group in current)
            best, joined = len(current) * whole, None
            for a, b in itertools.combinations(current, 2):
                both = tuple(sorted(a + b))
                value = (len(current) - 1) * (whole - noise(a) - noise(b) + noise(both))
                if both in own and value < best:
                    best, joined = value, (a, b)
            if joined is None:
                return tuple(current)
            current = [group for group in current if group not in joined] + [
                tuple(sorted(joined[0] + joined[1]))
            ]

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """The candidates: the workload's own, then unions."""
        return self.workload.cliques + (_unions(self.workload) if self.unions else ())

    @cached_property
    def counted(self) -> tuple[Clique, ...]:
        """All marginals whose counts a run may read: the candidates, then columns that are none."""
        own = set(self.cliques)
        return self.cliques + tuple(c for c in self.columns if c not in own)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of cells of each candidate."""
        return np.array([self.workload.domain.cells(c) for c in self.cliques], dtype=np.int64)

    def parts(self, clique: Clique) -> list[int]:
        """The workload's marginals that a clique contains."""
        own = set(clique)
        return [i for i, c in enumerate(self.workload.cliques) if own.issuperset(c)]

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
