"""Which marginals AIM may measure: those of the workload, and unions of three columns. Public."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy.unit import Event
from dpstream.core.schema.domain import Clique
from dpstream.core.tables import Workload
from dpstream.mechanisms.workload_cells import Cells

#: Unions of three columns that may be candidates. (All of them up to 23 columns.)
_MAX_UNIONS = 1800


@dataclass(frozen=True)
class CandidateMarginals:
    """The marginals that may be measured; see ``Candidates``."""

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
