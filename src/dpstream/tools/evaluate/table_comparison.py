"""One table of records against another: how far columns, pairs and groups are off, and whether rows can be told apart.

Both tables are codes. Evaluation only: one of them is private.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.tables import count_marginals
from dpstream.tools.evaluate.array_types import Codes, Floats
from dpstream.tools.evaluate.metrics import total_variation
from dpstream.tools.evaluate.prediction import SEED

if TYPE_CHECKING:
    from dpstream.core.schema.domain import Clique, Domain

#: Groups by their true size: smallest, largest, and how that is said.
GROUPS: Final = (
    (1, 9, "1 to 9 records"),
    (10, 99, "10 to 99"),
    (100, 999, "100 to 999"),
    (1_000, None, "1,000 or more"),
)
#: Sets of columns that are compared at most; more of them are drawn from a public seed.
_MOST_PAIRS: Final = 500
_MOST_TRIPLES: Final = 200
_LARGEST: Final = 2**20
#: Cells of all sets that are counted at once.
_CELLS_AT_ONCE: Final = 2**22
#: Rows that a classifier sees of each table, and that are looked up one by one.
_MOST_ROWS: Final = 20_000


@dataclass(frozen=True)
class GroupError:
    """How wrong the counts of groups of one size are.

    Attributes:
        words: the size.
        groups: how many there are: cells of pairs of columns.
        typical: the median of the errors of their counts, as shares of the true counts.
        most: nine of ten are off by no more.
        lost: share of them that the other table has no record of.
    """

    words: str
    groups: int
    typical: float
    most: float
    lost: float


@dataclass(frozen=True, eq=False)
class TableComparison:
    """How far one table is from another. Shares from 0 (alike); NaN where there is no number.

    Attributes:
        columns: total variation of each column.
        pairs: total variation of each compared pair, in the order of ``compared_sets``.
        sets: total variation of each compared set of three columns (of all columns, where there are fewer).
        propensity: how well a classifier tells the rows apart; see ``propensity``.
        groups: errors of the counts of groups, by their size.
        unseen: share of rows with a pair of values that no record of the first table has.
    """

    columns: Floats
    pairs: Floats
    sets: Floats
    propensity: float
    groups: tuple[GroupError, ...]
    unseen: float

    @property
    def score(self) -> float:
        """The k-marginal score, from 0 to 1,000."""
        return k_marginal_score(self.sets)


def k_marginal_score(variations: Sequence[float] | Floats) -> float:
    """NIST's k-marginal score: 1,000 where all marginals are equal, 0 where all are disjoint.

    Args:
        variations: total variation of each marginal of k columns.

    >>> k_marginal_score([0.0, 0.05])
    975.0
    """
    known = np.asarray(variations, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(1000.0 * (1.0 - known.mean())) if known.size else math.nan


def compared_sets(domain: Domain, many: int, most: int) -> tuple[Clique, ...]:
    """All sets of so many columns with at most 2^20 cells; ``most`` of them from a public seed where there are more."""
    size = min(many, len(domain))
    total = math.comb(len(domain), size)
    if total <= 20 * most:
        found = [c for c in itertools.combinations(range(len(domain)), size) if domain.cells(c) <= _LARGEST]
        if len(found) <= most:
            return tuple(found)
        chosen = np.random.default_rng(SEED).choice(len(found), most, replace=False)
        return tuple(found[i] for i in np.sort(chosen))
    rng, drawn = np.random.default_rng(SEED), set[tuple[int, ...]]()
    for _ in range(20 * most):
        one = tuple(sorted(int(i) for i in rng.choice(len(domain), size, replace=False)))
        if domain.cells(one) <= _LARGEST:
            drawn.add(one)
        if len(drawn) == most:
            break
    return tuple(sorted(drawn))


def compare_tables(domain: Domain, first: Codes, second: Codes, *, classify: bool = True) -> TableComparison:
    """Everything of ``TableComparison``.

    Args:
        first: the table that the other one has to be like; its groups and pairs are the true ones.
        classify: whether to train the classifier of ``propensity`` (needs scikit-learn).

    Cost: one count of the compared sets on each side; a decision tree over up to 40,000 rows.
    """
    pairs = compared_sets(domain, 2, _MOST_PAIRS)
    triples = compared_sets(domain, 3, _MOST_TRIPLES)
    errors = _GroupErrors(len(first), len(second))
    variations: dict[Clique, float] = {}
    kept: dict[Clique, NDArray[np.int64]] = {}
    # A table of one or two columns has no sets of three, and its own are among the others.
    wanted = dict.fromkeys([*((i,) for i in range(len(domain))), *pairs, *triples])
    for cliques in _bundles(domain, list(wanted)):
        counts = (count_marginals(np.asfortranarray(table), domain, cliques) for table in (first, second))
        for clique, real, made in zip(cliques, *counts, strict=True):
            variations[clique] = total_variation(real, made)
            if len(clique) == min(2, len(domain)):
                errors.add(real, made)
                kept[clique] = real
    return TableComparison(
        np.array([variations[i,] for i in range(len(domain))]),
        np.array([variations[one] for one in pairs]),
        np.array([variations[one] for one in triples]),
        propensity(first, second) if classify else math.nan,
        errors.summary(),
        _unseen(kept, domain, second, 0),
    )


def propensity(first: Codes, second: Codes) -> float:
    """The propensity score mean-squared error (pMSE) of a decision tree, divided by its largest value: from 0 (the
    tree cannot tell the two tables' rows apart) to 1 (it always can).

    The tree (at most 200 leaves, each of 25 rows or more) learns which table a row is from, and is asked about the
    same rows. Even two samples of one table give more than 0. NaN where a table has fewer than 10 rows.

    Source: Snoke, Raab, Nowok, Dibben, Slavkovic, "General and specific utility measures for synthetic data" (2018),
    with CART. Needs scikit-learn.
    """
    from sklearn.tree import DecisionTreeClassifier

    if min(len(first), len(second)) < 10:
        return math.nan
    rng = np.random.default_rng(SEED)
    parts = [_some(table, rng) for table in (first, second)]
    rows = np.concatenate(parts)
    of_second = np.repeat([0, 1], [len(part) for part in parts])
    tree = DecisionTreeClassifier(min_samples_leaf=max(25, len(rows) // 200), random_state=SEED)
    tree.fit(rows, of_second)
    share = len(parts[1]) / len(rows)
    found = tree.predict_proba(rows)[:, 1]
    return float(((found - share) ** 2).mean() / (share * (1.0 - share)))


def unseen_share(domain: Domain, first: Codes, second: Codes) -> float:
    """Share of the second table's rows with a pair of values that no row of the first one has."""
    return _unseen(_counted_pairs(domain, first), domain, second, 0)


def unique_share(domain: Domain, table: Codes) -> float:
    """Share of a table's rows with a pair of values that no other of its rows has."""
    return _unseen(_counted_pairs(domain, table), domain, table, 1)


def _counted_pairs(domain: Domain, table: Codes) -> dict[Clique, NDArray[np.int64]]:
    found: dict[Clique, NDArray[np.int64]] = {}
    for cliques in _bundles(domain, compared_sets(domain, 2, _MOST_PAIRS)):
        found.update(zip(cliques, count_marginals(np.asfortranarray(table), domain, cliques), strict=True))
    return found


def _unseen(counts: dict[Clique, NDArray[np.int64]], domain: Domain, table: Codes, most: int) -> float:
    """Share of rows that are in a cell with at most so many records; of large tables of 20,000 rows."""
    if not len(table):
        return math.nan
    rows = _some(table, np.random.default_rng(SEED))
    strange = np.zeros(len(rows), dtype=bool)
    for clique, real in counts.items():
        cells = np.ravel_multi_index(tuple(rows[:, i] for i in clique), domain.shape(clique))
        strange |= real[cells] <= most
    return float(strange.mean())


class _GroupErrors:
    """Collects the errors of all cells that hold a true record."""

    def __init__(self, first: int, second: int) -> None:
        # Counts are compared at the size of the first table.
        self._scale = first / second if second else math.nan
        self._parts: list[list[Floats]] = [[] for _ in GROUPS]
        self._lost = [0] * len(GROUPS)

    def add(self, real: NDArray[np.int64], made: NDArray[np.int64]) -> None:
        errors = np.abs(made * self._scale - real) / np.maximum(real, 1)
        for place, (least, largest, _) in enumerate(GROUPS):
            chosen = (real >= least) & (real <= (largest or np.iinfo(np.int64).max))
            self._parts[place].append(errors[chosen])
            self._lost[place] += int((made[chosen] == 0).sum())

    def summary(self) -> tuple[GroupError, ...]:
        found = []
        for (_, _, words), parts, lost in zip(GROUPS, self._parts, self._lost, strict=True):
            errors = np.concatenate(parts) if parts else np.zeros(0)
            if len(errors):
                typical, most = np.quantile(errors, [0.5, 0.9])
                found.append(GroupError(words, len(errors), float(typical), float(most), lost / len(errors)))
        return tuple(found)


def _bundles(domain: Domain, cliques: Sequence[Clique]) -> list[tuple[Clique, ...]]:
    """The cliques a bounded number of cells at a time."""
    made: list[list[Clique]] = [[]]
    cells = 0
    for clique in cliques:
        size = domain.cells(clique)
        if made[-1] and cells + size > _CELLS_AT_ONCE:
            made.append([])
            cells = 0
        made[-1].append(clique)
        cells += size
    return [tuple(part) for part in made if part]


def _some(table: Codes, rng: np.random.Generator) -> Codes:
    if len(table) <= _MOST_ROWS:
        return table
    return table[np.sort(rng.choice(len(table), _MOST_ROWS, replace=False))]
