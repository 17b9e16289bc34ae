"""What a newest table is worth, in measures that statisticians know and in plain words, each beside two yardsticks.

Every measure is a share that is wrong: 0 is best. Beside it stand the same measure of two samples of real records (the
sampling floor), and of one offline run on the same table with the same budget (the ceiling: a mark, and no bound).
Evaluation only, not releasable.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpstream.core.errors import DpstreamError
from dpstream.core.schema.constraints import Constraints, Rules
from dpstream.tools.evaluate.array_types import Codes, Floats
from dpstream.tools.evaluate.learning import LearnedTarget, learn_targets, lost_share, split_records
from dpstream.tools.evaluate.measures import Measure, verdict_words
from dpstream.tools.evaluate.prediction import SEED
from dpstream.tools.evaluate.table_comparison import (
    GroupError,
    TableComparison,
    compare_tables,
    compared_sets,
    unique_share,
)
from dpstream.tools.evaluate.trends import Trends

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

#: Draws of samples of real records; of large tables fewer, whose errors hardly differ from draw to draw.
_DRAWS: Final = 5
_LARGE: Final = 200_000
#: Of fewer changes a share says nothing.
_FEWEST_CHANGES: Final = 5
#: Pairs that are told one by one.
_MOST_PAIRS: Final = 10


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
        sets: how many sets of three columns (fewer, where there are no three) the k-marginal score is over.
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
) -> Judgement:
    """Compare the newest table with the private one, and with both yardsticks.

    Args:
        real, made: the private and the released table, as codes that both can tell apart; neither is empty.
        offline: gives a synthetic table of so many rows, made of the private one at once.

    Cost: three to seven comparisons of tables (``compare_tables``), four trees for each column, one offline run.
    """
    domain = schema.domain
    missing = []
    classify = all(importlib.util.find_spec(name) is not None for name in ("sklearn", "threadpoolctl"))
    if not classify:
        missing.append(
            "Telling rows apart and learning from them need scikit-learn: pip install 'dpstream[evaluate]'."
        )
    tables: dict[str, Codes] = {"synthetic": made}
    if offline is not None:
        try:
            tables["offline"] = offline(real, len(made))
        except DpstreamError as error:
            missing.append(f"There is no offline run to compare with: {error.what}.")
    compared = {
        name: compare_tables(domain, real, table, classify=classify) for name, table in tables.items()
    }
    floors = _floors(schema, real, len(made), classify)
    targets: tuple[LearnedTarget, ...] = ()
    if classify and len(real) >= 20:
        training, test = split_records(real)
        draws = np.random.default_rng(SEED).integers(0, len(training), len(made))
        taught = {**tables, "real": training, "sample": training[draws]}
        targets = learn_targets(domain, test, taught)
    own = compared["synthetic"]
    ceiling = compared.get("offline")
    measures = _measures(own, floors, ceiling, targets, trends, unique_share(domain, real))
    names = domain.names
    pairs = compared_sets(domain, 2, 500) if len(domain) > 1 else ()
    worst = np.argsort(-np.nan_to_num(own.pairs, nan=-1.0), kind="stable")[: _MOST_PAIRS if pairs else 0]
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
    trends: Trends,
    unique: float,
) -> tuple[Measure, ...]:
    def three(of: Callable[[TableComparison], float]) -> tuple[float, float, float]:
        known = [value for value in map(of, floors) if not math.isnan(value)]
        floor = float(np.mean(known)) if known else math.nan
        return of(own), floor, math.nan if ceiling is None else of(ceiling)

    width = {0: "no", 1: "one column", 2: "two columns"}.get(min(len(own.columns), 3), "three columns")
    rows = [
        Measure(
            "columns",
            "columns one by one",
            "of the table at a wrong value",
            *three(lambda one: _average(one.columns)),
            "Share of the table that stands at a wrong value, in the mean over the columns: total variation (TV), half "
            "the sum of all differences of shares.",
            "counts of one column",
        ),
        Measure(
            "pairs",
            "two columns together",
            "of the table at a wrong pair of values",
            *three(lambda one: _average(one.pairs)),
            "The same for all combinations of two columns' values.",
            "counts of two columns together",
        ),
        Measure(
            "sets",
            f"{width} together",
            "by NIST's k-marginal score",
            *three(lambda one: _average(one.sets)),
            f"NIST's k-marginal score, from 0 to 1,000: 1,000 times one less the mean total variation over sets of "
            f"{width}.",
            f"counts of {width} together" if len(own.columns) > 2 else "",
        ),
        Measure(
            "groups",
            "groups of 100 to 999 records",
            "off, typically",
            *three(_typical_group),
            "By how much the typical count of such a group (a combination of two columns' values) is off, as a share "
            "of its true count.",
            "counts of groups of 100 to 999 records",
        ),
        Measure(
            "rows",
            "telling rows from real ones",
            "of the way from a coin to certainty",
            *three(lambda one: one.propensity),
            "How well a decision tree tells released rows from real ones: 0 % is a coin, 100 % always. It is the "
            "propensity score mean-squared error (pMSE) as a share of its largest value.",
        ),
        Measure(
            "learning",
            "what can be learned from it",
            "of what real records teach is lost",
            lost_share(targets, "synthetic"),
            lost_share(targets, "sample"),
            lost_share(targets, "offline"),
            "What a classifier does not learn from the released rows, of what it learns from real ones: each column in "
            "turn is predicted from the others, on real records that it has not seen (train on synthetic, test on "
            "real: TSTR).",
            "learning from it",
        ),
        Measure(
            "changes",
            "change over time",
            "of the changes go another way",
            *((trends.wrong, trends.floor) if trends.changes >= _FEWEST_CHANGES else (math.nan, math.nan)),
            math.nan,
            "Share of the changes of 1 % of the table or more, between evaluated steps, that go another way in the "
            "released tables or do not show.",
            "changes over time",
        ),
        Measure(
            "inconsistencies",
            "combinations that nobody has",
            "of the rows have one",
            own.unseen,
            unique,
            math.nan if ceiling is None else ceiling.unseen,
            "Share of the released rows with two values that no real record has together. Of real records: those with "
            "two values that no other record has together.",
        ),
    ]
    return tuple(rows)


def _typical_group(found: TableComparison) -> float:
    return next((one.typical for one in found.groups if one.words == "100 to 999"), math.nan)


def _average(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def _mean(parts: Sequence[Floats]) -> Floats:
    found: Floats = np.mean(parts, axis=0)
    return found
