"""Train on synthetic, test on real, for every column in turn: what can still be learned from the synthetic table?

Evaluation only: the test records are private. Needs scikit-learn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpstream.tools.evaluate.array_types import Codes
from dpstream.tools.evaluate.prediction import SEED

if TYPE_CHECKING:
    from dpstream.core.schema.domain import Domain

_TEST_SHARE: Final = 0.3
#: Records that train and that test, at most; columns that are predicted; values of a column that are told apart.
_MOST_ROWS: Final = 20_000
_MOST_TARGETS: Final = 40
_MOST_VALUES: Final = 50
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
    test, training = order[:tested][:_MOST_ROWS], order[tested:]
    return records[np.sort(training)], records[np.sort(test)]


def learn_targets(domain: Domain, test: Codes, tables: Mapping[str, Codes]) -> tuple[LearnedTarget, ...]:
    """Each column in turn predicted from the others by a decision tree, whichever table taught it.

    Args:
        test: real records that are in none of ``tables``, as far as the tables hold real ones.
        tables: by name, ``real`` among them; each is cut to 20,000 rows.

    Columns of which the test records hold one value are left out; of more than 40, the others are too.

    Cost: a tree of up to 20,000 rows for each column and table.
    """
    rng = np.random.default_rng(SEED)
    trained = {}
    for name, table in tables.items():
        few = len(table) <= _MOST_ROWS
        trained[name] = table if few else table[rng.choice(len(table), _MOST_ROWS, replace=False)]
    found: list[LearnedTarget] = []
    for position, column in enumerate(domain.names):
        if len(found) == _MOST_TARGETS or len(domain) < 2 or len(np.unique(test[:, position])) < 2:
            continue
        areas = {name: _area(table, test, position) for name, table in trained.items() if len(table)}
        found.append(LearnedTarget(column, areas))
    return tuple(found)


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
    values = np.sort(values[np.argsort(-counts, kind="stable")[:_MOST_VALUES]])
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
