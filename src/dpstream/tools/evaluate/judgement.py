"""What a newest table is worth, in measures that statisticians know and in plain words, each beside two yardsticks.

Every measure is a share that is wrong: 0 is best. Beside it stand the same measure of two samples of real records (the
sampling floor), and of one offline run on the same table with the same budget (the ceiling: a mark, and no bound).
Evaluation only, not releasable.

Trusted base: owner (compares with the private table).
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, DpstreamError
from dpstream.core.schema import Clique, Domain, Schema
from dpstream.core.schema.constraints import Constraints, Rules
from dpstream.core.tables import count_marginals
from dpstream.tools.evaluate.array_types import Codes, Floats
from dpstream.tools.evaluate.measures import WORDS, Measure, verdict_words
from dpstream.tools.evaluate.metrics import SEED, total_variation
from dpstream.tools.evaluate.trends import Trends

_TEST_SHARE: Final = 0.3
#: Rows of each table that a classifier sees, and that are looked up one by one.
_MAX_ROWS: Final = 20_000
#: Columns that are predicted at most; values of a column that are told apart.
_MAX_TARGETS: Final = 40
_MAX_VALUES: Final = 50
#: Up to this area on real records there is nothing to learn about a column.
TEACHES: Final = 0.6


@dataclass(frozen=True)
class LearnedTarget:
    """How well one column is predicted from the others, on the same real test records.

    Attributes:
        column: its name.
        areas: by the name of the table that taught: the mean area under the ROC curve over the column's values, each
            counted as often as it occurs; 0.5 is guessing, 1 always right.
    """

    column: str
    areas: Mapping[str, float]

    def kept(self, table: str) -> float:
        """What a table teaches, as a share of what the real records teach; NaN where these teach next to nothing."""
        real = self.areas["real"]
        if not real > TEACHES or table not in self.areas:
            return math.nan
        return max(0.0, self.areas[table] - 0.5) / (real - 0.5)


def split_records(records: Codes) -> tuple[Codes, Codes]:
    """Training and test records, from a fixed seed: 70 and 30 %, each cut to 20,000."""
    order = np.random.default_rng(SEED).permutation(len(records))
    tested = round(_TEST_SHARE * len(records))
    test, training = order[:tested][:_MAX_ROWS], order[tested:]
    return records[np.sort(training)], records[np.sort(test)]


def check_target(schema: Schema, target: str) -> int:
    """Position of a column that is to be learned, before any long work.

    Errors:
        SchemaError: an unknown column. ConfigError: no other column to predict from, a target with one
            declared value, or scikit-learn is not installed.
    """
    position = schema.domain.index(target)
    where = f"target {target!r}"
    if len(schema) < 2:
        raise ConfigError("other columns are missing", where=where, allowed="two columns")
    if schema.columns[position].size < 2:
        raise ConfigError("the column has one value only", where=where, allowed="two values or more")
    if not _has_classifiers():
        raise ConfigError(
            "scikit-learn is not installed", where="target", allowed="pip install 'dpstream[evaluate]'"
        )
    return position


def _has_classifiers() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("sklearn", "threadpoolctl"))


def learn_targets(
    domain: Domain, test: Codes, tables: Mapping[str, Codes], target: int | None = None
) -> tuple[LearnedTarget, ...]:
    """Each column in turn predicted from the others by a decision tree, whichever table taught it.

    Args:
        test: real records that are in none of ``tables``, as far as the tables hold real ones.
        tables: by name, ``real`` among them; each is cut to 20,000 rows.
        target: the only column to predict; None: all of them.

    Columns of which the test records hold one value are left out; of more than 40, the others are too.

    Cost: a tree of up to 20,000 rows for each column and table.
    """
    rng = np.random.default_rng(SEED)
    training = {name: _some(table, rng) for name, table in tables.items() if len(table)}
    positions = range(len(domain) if len(domain) > 1 else 0) if target is None else (target,)
    varied = [i for i in positions if len(np.unique(test[:, i])) > 1][:_MAX_TARGETS]
    return tuple(
        LearnedTarget(domain.names[i], {name: _area(table, test, i) for name, table in training.items()})
        for i in varied
    )


def lost_share(targets: tuple[LearnedTarget, ...], table: str) -> float:
    """What a table does not teach of what the real records do, as a mean share; NaN where these teach nothing."""
    kept = [one.kept(table) for one in targets]
    known = [min(1.0, value) for value in kept if not math.isnan(value)]
    return 1.0 - sum(known) / len(known) if known else math.nan


def _area(table: Codes, test: Codes, position: int) -> float:
    """The area of one tree, as ``LearnedTarget.areas`` has it; a value that the table lacks is never expected."""
    from sklearn.metrics import roc_auc_score
    from sklearn.tree import DecisionTreeClassifier

    features = [i for i in range(table.shape[1]) if i != position]
    values, counts = np.unique(test[:, position], return_counts=True)
    values = np.sort(values[np.argsort(-counts, kind="stable")[:_MAX_VALUES]])
    # All other values are one: a column of a hundred thousand values would need as many columns of probabilities.
    taught = np.where(np.isin(table[:, position], values), table[:, position], -1)
    tree: Any = DecisionTreeClassifier(min_samples_leaf=max(5, len(table) // 400), random_state=SEED)
    tree.fit(table[:, features], taught)
    guessed = tree.predict_proba(test[:, features])
    expected = np.zeros((len(test), len(values)))
    known = np.isin(values, tree.classes_)
    expected[:, known] = guessed[:, np.searchsorted(tree.classes_, values[known])]
    really = test[:, position][:, None] == values
    return float(roc_auc_score(really, expected, average="weighted"))


# One table of records against another: how far columns, pairs and groups are off, and whether rows can be
# told apart.
#
# Both tables are codes. Evaluation only: one of them is private.

#: Groups by their true size: smallest, largest, and how that is said.
GROUPS: Final = (
    (1, 9, "1 to 9 records"),
    (10, 99, "10 to 99"),
    (100, 999, "100 to 999"),
    (1_000, None, "1,000 or more"),
)
#: Sets of columns that are compared at most; more of them are drawn from a public seed.
_MAX_PAIRS: Final = 500
_MAX_TRIPLES: Final = 200
_LARGEST: Final = 2**20
#: Cells of all sets that are counted at once.
_CELLS_AT_ONCE: Final = 2**22


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
    """How far one table is from another. Shares from 0 (alike); NaN where the number is not known.

    Attributes:
        columns: total variation of each column.
        pairs: total variation of each compared pair, in the order of ``compared_sets``.
        sets: total variation of each compared set of three columns (of all columns, where there are fewer).
        propensity: how well a classifier tells the rows apart; see ``propensity``.
        groups: errors of the counts of groups, by their size.
        unseen: share of rows with a pair of values that no record of the first table has.
        unique: share of the first table's rows with a pair of values that no other of its rows has.
    """

    columns: Floats
    pairs: Floats
    sets: Floats
    propensity: float
    groups: tuple[GroupError, ...]
    unseen: float
    unique: float

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
    pairs = compared_sets(domain, 2, _MAX_PAIRS)
    triples = compared_sets(domain, 3, _MAX_TRIPLES)
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
        _unseen(kept, domain, first, 1),
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
    if len(table) <= _MAX_ROWS:
        return table
    return table[np.sort(rng.choice(len(table), _MAX_ROWS, replace=False))]


#: Draws of samples of real records; of large tables fewer, whose errors hardly differ from draw to draw.
_DRAWS: Final = 5
_LARGE: Final = 200_000
#: Of fewer changes a share says nothing.
_MIN_CHANGES: Final = 5
#: Pairs that are told one by one.
_MAX_JUDGED_PAIRS: Final = 10


@dataclass(frozen=True)
class JudgedPair:
    """Total variation of a pair of columns, and its two yardsticks."""

    columns: tuple[str, str]
    value: float
    floor: float
    ceiling: float


@dataclass(frozen=True, eq=False)
class Judgement:
    """Everything that was found about the newest evaluated table.

    Attributes:
        step: which one.
        measures: in the order of their questions.
        columns: total variation, floor and ceiling of each column, by name.
        pairs: those that are furthest off.
        groups, floor_groups, ceiling_groups: errors of groups by their size; those of samples of real records, and of
            the offline run.
        targets: what can be learned, column by column.
        trends: change over time.
        broken: rows of the released table that break a declared constraint, by its words; empty without constraints.
        sets: how many sets of three columns (fewer, where the table has fewer) the k-marginal score is over.
        missing: why numbers are not known, in sentences.
    """

    step: int
    measures: tuple[Measure, ...]
    columns: Mapping[str, tuple[float, float, float]]
    pairs: tuple[JudgedPair, ...]
    groups: tuple[GroupError, ...]
    floor_groups: tuple[GroupError, ...]
    ceiling_groups: tuple[GroupError, ...]
    targets: tuple[LearnedTarget, ...]
    trends: Trends
    broken: Mapping[str, int]
    sets: int
    missing: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The verdict in two or three sentences."""
        return verdict_words(self.measures)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, but for NaN."""
        return {
            "verdict": self.words,
            "measures": [
                {
                    "name": one.name,
                    "question": one.question,
                    "word": one.word,
                    "released": one.value,
                    "two_real_samples": one.floor,
                    "one_offline_run": one.ceiling,
                    "meaning": one.meaning,
                }
                for one in self.measures
            ],
            "columns": self.columns,
            "worst_pairs": [vars(one) for one in self.pairs],
            "k_marginal_score": next(
                (1000.0 * (1.0 - one.value) for one in self.measures if one.name == "sets"), math.nan
            ),
            "groups": [vars(one) for one in self.groups],
            "learned": [{"column": one.column, **one.areas} for one in self.targets],
            "changes_compared": self.trends.changes,
            "size_of_changes": self.trends.size,
            "broken_constraints": dict(self.broken),
            "missing": list(self.missing),
        }


def judge(
    schema: Schema,
    step: int,
    real: Codes,
    made: Codes,
    trends: Trends,
    offline: Callable[[Codes, int], Codes] | None = None,
    target: int | None = None,
) -> Judgement:
    """Compare the newest table with the private one, and with both yardsticks.

    Args:
        real, made: the private and the released table, as codes that both can tell apart; neither is empty.
        offline: gives a synthetic table of so many rows, made of the private one at once.
        target: the only column whose prediction is compared; None: all of them.

    Errors:
        DataError: the target cannot be learned from the private records.

    Cost: three to seven comparisons of tables (``compare_tables``), four trees for each column, one offline run.
    """
    domain = schema.domain
    missing = []
    classify = _has_classifiers()
    if not classify:
        missing.append("Telling rows apart and learning need pip install 'dpstream[evaluate]'.")
    tables: dict[str, Codes] = {"synthetic": made}
    if offline is not None:
        try:
            tables["offline"] = offline(real, len(made))
        except DpstreamError as error:
            missing.append(f"The offline run is missing: {error.what}.")
    compared = {
        name: compare_tables(domain, real, table, classify=classify) for name, table in tables.items()
    }
    floors = _floors(schema, real, len(made), classify)
    targets: tuple[LearnedTarget, ...] = ()
    if classify and len(real) >= 20:
        training, test = split_records(real)
        draws = np.random.default_rng(SEED).integers(0, len(training), len(made))
        taught = {**tables, "real": training, "sample": training[draws]}
        targets = learn_targets(domain, test, taught, target)
    if target is not None and not targets:
        raise DataError(
            "too few records, or a constant target",
            where=f"target {domain.names[target]!r}",
            allowed="a column that varies",
        )
    own = compared["synthetic"]
    ceiling = compared.get("offline")
    named = None if target is None else domain.names[target]
    measures = _measures(own, floors, ceiling, targets, named, trends)
    names = domain.names
    pairs = compared_sets(domain, 2, 500) if len(domain) > 1 else ()
    worst = np.argsort(-np.nan_to_num(own.pairs, nan=-1.0), kind="stable")[
        : _MAX_JUDGED_PAIRS if pairs else 0
    ]
    nothing = np.full(max(len(pairs), len(domain)), math.nan)
    return Judgement(
        step,
        measures,
        {
            name: (float(a), float(b), float(c))
            for name, a, b, c in zip(
                names,
                own.columns,
                _mean([f.columns for f in floors]),
                nothing[: len(names)] if ceiling is None else ceiling.columns,
                strict=True,
            )
        },
        tuple(
            JudgedPair(
                (names[pairs[i][0]], names[pairs[i][1]]),
                float(own.pairs[i]),
                float(np.mean([f.pairs[i] for f in floors])),
                math.nan if ceiling is None else float(ceiling.pairs[i]),
            )
            for i in worst
        ),
        own.groups,
        floors[0].groups,
        () if ceiling is None else ceiling.groups,
        targets,
        trends,
        broken_rules(schema, made),
        len(own.sets),
        tuple(missing),
    )


def broken_rules(schema: Schema, made: Codes) -> dict[str, int]:
    """Rows of a released table that break each declared constraint on the measured columns; none is expected."""
    excluded = () if schema.constraints is None else schema.constraints.excluded
    if not excluded:
        return {}
    found = dict.fromkeys((one.words for one in excluded), 0)
    rules = Rules(Constraints(excluded=excluded), schema.columns)
    return {**found, **{words: int(rows.sum()) for words, rows in rules.violated(made, [])}}


def _floors(schema: Schema, real: Codes, rows: int, classify: bool) -> list[TableComparison]:
    """Pairs of samples of real records, as large as the private and the released table."""
    rng = np.random.default_rng(SEED)
    found = []
    for draw in range(_DRAWS if len(real) + rows <= _LARGE else 2):
        one, other = (real[rng.integers(0, len(real), size)] for size in (len(real), rows))
        found.append(compare_tables(schema.domain, one, other, classify=classify and draw < 2))
    return found


def _measures(
    own: TableComparison,
    floors: Sequence[TableComparison],
    ceiling: TableComparison | None,
    targets: tuple[LearnedTarget, ...],
    target: str | None,
    trends: Trends,
) -> tuple[Measure, ...]:
    def three(of: Callable[[TableComparison], float]) -> tuple[float, float, float]:
        known = [value for value in map(of, floors) if not math.isnan(value)]
        floor = float(np.mean(known)) if known else math.nan
        return of(own), floor, math.nan if ceiling is None else of(ceiling)

    columns = len(own.columns)
    learned = [lost_share(targets, table) for table in ("synthetic", "sample", "offline")]
    changed = (trends.wrong, trends.floor) if trends.changes >= _MIN_CHANGES else (math.nan, math.nan)
    values: dict[str, tuple[float, float, float]] = {
        "columns": three(lambda one: _average(one.columns)),
        "pairs": three(lambda one: _average(one.pairs)),
        "sets": three(lambda one: _average(one.sets)),
        "groups": three(_typical_group),
        "rows": three(lambda one: one.propensity),
        "learning": (learned[0], learned[1], learned[2]),
        "changes": (*changed, math.nan),
        "inconsistencies": (own.unseen, own.unique, math.nan if ceiling is None else ceiling.unseen),
    }
    width = {1: "one column", 2: "two columns"}.get(columns, "three columns")
    said = WORDS.paragraphs("measures", width=width, wide=columns > 2, target=target)
    rows = [row for table in said if not isinstance(table, str) for row in table]
    return tuple(
        Measure(name, question, unit, *values[name], meaning, use)
        for name, question, unit, meaning, use in rows
    )


def _typical_group(found: TableComparison) -> float:
    return next((one.typical for one in found.groups if one.words == "100 to 999"), math.nan)


def _average(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def _mean(parts: Sequence[Floats]) -> Floats:
    found: Floats = np.mean(parts, axis=0)
    return found
