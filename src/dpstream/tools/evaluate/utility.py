"""What users of a synthetic table look at: distances of marginals, and associations between columns.

Evaluation only: everything that compares with the true table touches private data.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema.domain import Clique, Domain
from dpstream.tools.evaluate.metrics import total_variation

if TYPE_CHECKING:
    from dpstream.tools.evaluate.prediction import Prediction

#: Counts of some cliques, flat in C order: of a table, of a model, or of the truth.
Marginals = Callable[[Sequence[Clique]], Sequence[NDArray[Any]]]

#: Cells of pairs that are counted together, and the largest pair that is looked at.
_CELLS_AT_ONCE = 2**22
_MAX_PAIR = 2**26


@dataclass(frozen=True, eq=False)
class Utility:
    """How well one synthetic table stands in for the true one.

    Attributes:
        columns: names.
        one_way: total variation of each column's marginal.
        two_way: total variation of each pair's marginal, shape (columns, columns), symmetric; the diagonal
            holds ``one_way``.
        true_association, synthetic_association: bias-corrected Cramer's V of each pair, same shape; NaN for
            columns with a single value.
        prediction: train on synthetic, test on real, if a target was named.

    NaN stands where there is no number: an empty table, a constant column, or a pair of more than 2^26 cells.
    """

    columns: tuple[str, ...]
    one_way: NDArray[np.float64]
    two_way: NDArray[np.float64]
    true_association: NDArray[np.float64]
    synthetic_association: NDArray[np.float64]
    prediction: Prediction | None

    @property
    def difference(self) -> NDArray[np.float64]:
        """Synthetic minus true association."""
        return self.synthetic_association - self.true_association

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Positions of the pairs of columns."""
        return tuple(itertools.combinations(range(len(self.columns)), 2))

    def as_dict(self) -> dict[str, float]:
        """The summary in six numbers; NaN where every pair lacks one."""
        pairs = tuple(np.array(self.pairs, dtype=np.int64).reshape(-1, 2).T)
        two_way, gaps = self.two_way[pairs], np.abs(self.difference[pairs])
        return {
            "mean_tv_one_way": _of(np.mean, self.one_way),
            "max_tv_one_way": _of(np.max, self.one_way),
            "mean_tv_two_way": _of(np.mean, two_way),
            "max_tv_two_way": _of(np.max, two_way),
            "mean_association_difference": _of(np.mean, gaps),
            "max_association_difference": _of(np.max, gaps),
        }


def pairwise(
    domain: Domain, truth: Marginals, synthetic: Marginals, prediction: Prediction | None = None
) -> Utility:
    """Compare all one-way and two-way marginals.

    Args:
        truth, synthetic: give the counts of cliques (``TrueTable.marginals``, a model's ``marginals``, ...).

    Cost: one count of all pairs on each side, about 4 million cells at a time.
    """
    size = len(domain)
    two_way = np.full((size, size), np.nan)
    true_v, made_v = np.full((size, size), np.nan), np.full((size, size), np.nan)
    for cliques in _bundles(domain):
        for clique, real, made in zip(cliques, truth(cliques), synthetic(cliques), strict=True):
            shape = domain.shape(clique)
            a, b = clique[0], clique[-1]
            two_way[a, b] = two_way[b, a] = total_variation(real, made)
            for matrix, counts in ((true_v, real), (made_v, made)):
                table = np.diag(counts) if a == b else counts.reshape(shape)
                matrix[a, b] = matrix[b, a] = cramers_v(table)
    return Utility(domain.names, two_way.diagonal().copy(), two_way, true_v, made_v, prediction)


def association(domain: Domain, marginals: Marginals) -> NDArray[np.float64]:
    """Bias-corrected Cramer's V of every pair of columns, shape (columns, columns).

    On released tables alone it is public.
    """
    return pairwise(domain, marginals, marginals).synthetic_association


def cramers_v(table: NDArray[Any]) -> float:
    """Bias-corrected Cramer's V of a table of counts, shape (rows, columns): 0 (independent) to 1.

    Source: Bergsma, "A bias-correction for Cramer's V and Tschuprow's T" (2013). Empty rows and columns do
    not count; negative counts are taken as 0; what exceeds 1 (tiny tables) is cut to 1. NaN where a side
    has a single value (or the correction leaves none), and for tables of at most one record.

    >>> cramers_v(np.array([[50, 0], [0, 50]])), cramers_v(np.array([[5, 5], [0, 0]]))
    (1.0, nan)
    """
    counts = np.maximum(np.asarray(table, dtype=np.float64), 0.0)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    total, (rows, columns) = counts.sum(), counts.shape
    if total <= 1 or min(rows, columns) < 2:
        return float("nan")
    # In two steps: the product of the margins of a large table can pass what a float holds exactly.
    expected = counts.sum(axis=1)[:, None] / total * counts.sum(axis=0)[None, :]
    phi = float(((counts - expected) ** 2 / expected).sum() / total)
    corrected = max(0.0, phi - (rows - 1) * (columns - 1) / (total - 1))
    sides = [side - (side - 1) ** 2 / (total - 1) for side in (rows, columns)]
    if min(sides) <= 1:
        return float("nan")
    return float(min(1.0, np.sqrt(corrected / (min(sides) - 1))))


def _bundles(domain: Domain) -> Iterator[tuple[Clique, ...]]:
    """All columns, then all pairs that can be counted, a bounded number of cells at a time."""
    single = [(i,) for i in range(len(domain))]
    waiting: list[Clique] = []
    cells = 0
    for clique in itertools.chain(single, itertools.combinations(range(len(domain)), 2)):
        size = domain.cells(clique)
        if size > _MAX_PAIR:
            continue
        if waiting and cells + size > _CELLS_AT_ONCE:
            yield tuple(waiting)
            waiting, cells = [], 0
        waiting.append(clique)
        cells += size
    yield tuple(waiting)


def _of(summary: Callable[[NDArray[np.float64]], Any], values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(summary(known)) if known.size else float("nan")
