"""How well columns are known together: what was measured of them, from the published noisy counts. All public.

A simulation cannot see what the releases have lost. The noisy counts can: they say which columns were measured
together, in which steps, and with how much noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpstream.core.contracts import NoisyCounts
from dpstream.core.schema.domain import Clique, Domain
from dpstream.tools.evaluate.array_types import Floats

#: Kinds of counts that say how columns go together in a table; those of deletes are a part of it that is left out.
_OF_TABLES = ("inserts", "net", "present")


@dataclass(frozen=True)
class Relation:
    """What was measured of some columns together.

    Attributes:
        columns: their places, in order.
        share: of the table's records, those that came in steps in which it was measured; 0: never.
        variance: of the noise in one cell, in records, summed over these steps.
    """

    columns: Clique
    share: float
    variance: float

    def spread(self, influence: Floats, counts: Floats) -> Floats:
        """Standard errors that what was measured leaves to a statistic.

        The noise, and that records of other steps are only taken to be like these: those are a sample.

        Args:
            influence: what one record more in a cell does to each number, shape (numbers, cells).
            counts: released records in each cell.
        """
        squares = influence**2
        noise = squares.sum(axis=1) * self.variance / self.share**2
        others = squares @ counts * (1.0 / self.share - 1.0)
        found: Floats = np.sqrt(noise + others)
        return found


def known_together(
    counts: Iterable[NoisyCounts],
    rows: Mapping[int, float],
    domain: Domain,
    wanted: Sequence[Clique],
    step: int,
) -> list[Relation]:
    """What was measured of columns together up to a step; of each group of steps the newest and most precise counts.

    Args:
        counts: as published. rows: released number of records by step.
        wanted: places of columns, in order.
    """
    every = (marginal for one in counts for marginal in one.marginals)
    usable = [one for one in every if one.counted in _OF_TABLES and one.last <= step]
    usable.sort(key=lambda one: (-_as_of(one), one.variance))
    steps = np.array(sorted(rows))
    known = np.interp(np.arange(step + 1), np.append(0, steps), np.append(0.0, [rows[int(s)] for s in steps]))
    return [_relation(usable, np.maximum(np.diff(known), 0.0), domain, clique) for clique in wanted]


def _relation(usable: Sequence[NoisyCounts], gains: Floats, domain: Domain, clique: Clique) -> Relation:
    free = np.ones(len(gains) + 1, bool)
    variance, measured, unmeasured = 0.0, 0.0, 0.0
    for one in usable:
        own = _variance(one, domain, clique)
        if own is None or not free[one.first : one.last + 1].all():
            continue
        free[one.first : one.last + 1] = False
        variance += own
        # Of present records, how many came in which step is known from their own counts only.
        present = one.counted == "present" and one.columns is not None
        measured += max(0.0, float(one.values.sum())) if present else gains[one.first - 1 : one.last].sum()
    if any(one.counted == "present" for one in usable):
        unmeasured = _present(usable, free)
    else:
        unmeasured = float(gains[free[1:]].sum())
    total = measured + unmeasured
    return Relation(clique, measured / total if total > 0 else 0.0, variance)


def _present(usable: Sequence[NoisyCounts], free: np.ndarray) -> float:
    """Present records that came in steps that are still free, by the newest counts of anything."""
    left, found = free.copy(), 0.0
    for one in usable:
        if one.counted == "present" and one.columns is not None and left[one.first : one.last + 1].all():
            left[one.first : one.last + 1] = False
            found += max(0.0, float(one.values.sum()))
    return found


def _variance(one: NoisyCounts, domain: Domain, clique: Clique) -> float | None:
    """Of the noise in one cell of the columns together; None where the counts do not say them."""
    names = {domain.names[i] for i in clique}
    if one.columns is not None:
        if not names <= set(one.columns):
            return None
        wide = domain.cells([domain.names.index(name) for name in one.columns])
        return one.variance * wide / domain.cells(clique)
    if one.query["kind"] != "signs" or not any(set(term) == names for term in one.query["terms"]):
        return None
    # A cell is the mean of as many sums of signs as there are cells, each with this noise (docs/theory/pooled.md).
    return one.variance / domain.cells(clique)


def _as_of(one: NoisyCounts) -> int:
    return one.last if one.as_of is None else one.as_of
