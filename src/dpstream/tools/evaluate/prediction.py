"""Train on synthetic, test on real: does a classifier learn the same from the synthetic table?

Evaluation only: the test records are private. Needs scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema.numeric import Ordered
from dpstream.tools.evaluate.array_types import Codes

if TYPE_CHECKING:
    from dpstream.core.schema import Schema

#: Of the split and of the classifiers.
SEED: Final = 20240901
#: Training tables are cut to this many rows (drawn at random): more of them hardly change a score.
MAX_ROWS: Final = 50_000
#: From this accuracy on real records a target is told to be determined; up to this area there is nothing to learn.
_CERTAIN: Final = 0.999
_CHANCE: Final = 0.6
_TEST_SHARE: Final = 0.3
_MIN_RECORDS: Final = 10
#: Most categories of a feature that gradient boosting splits as a set; wider ones go by their codes.
_MAX_CATEGORIES: Final = 255
#: Trees in all: one per round and class (two classes share one).
_TREES: Final = 600

Trained = Literal["synthetic", "real"]


@dataclass(frozen=True)
class PredictionScore:
    """One classifier on the real test records.

    Attributes:
        model: name of the classifier.
        trained_on: ``synthetic`` or ``real``.
        accuracy: share of right answers.
        balanced_accuracy: mean, over the classes among the test records, of the share of right answers.
        macro_f1: mean F1 of these classes.
        roc_auc: mean, over these classes, of the area under the curve "this class or not"; NaN where the test
            records hold one class only.
        note: what is special about this number, or nothing.
    """

    model: str
    trained_on: Trained
    accuracy: float
    balanced_accuracy: float
    macro_f1: float
    roc_auc: float
    note: str = ""


@dataclass(frozen=True)
class Prediction:
    """Scores of all classifiers for one target column, all on the same real test records.

    ``classes``: labels of the target that occur in the true table. The majority class is the one of the real
    training records: what one scores without any feature.
    """

    target: str
    classes: tuple[str, ...]
    synthetic_rows: int
    real_rows: int
    test_rows: int
    seed: int
    scores: tuple[PredictionScore, ...]

    @property
    def remark(self) -> str:
        """Why these scores say little about the synthetic table; empty where they say something."""
        real = [score for score in self.scores if score.trained_on == "real"]
        trained, majority = real[:-1], real[-1]
        best = max(trained, key=lambda score: score.accuracy)
        if best.accuracy >= _CERTAIN:
            return (
                f"The other columns determine {self.target}: trained on real records, {best.model} is right in "
                f"{best.accuracy:.1%} of cases. High scores then show that this rule is in the synthetic table, and "
                "nothing else: name another target."
            )
        chance = (
            majority.accuracy + 1.5 / self.test_rows**0.5
        )  # three standard errors of an accuracy, at most
        if all(score.roc_auc <= _CHANCE and score.accuracy <= chance for score in trained):
            return (
                f"The other columns say next to nothing about {self.target}: trained on real records, no classifier "
                "does better than the majority class. Equal scores then show nothing: name another target."
            )
        return ""


def check_prediction_target(schema: Schema, target: str) -> int:
    """Position of the target column, before any long work.

    Errors:
        SchemaError: an unknown column. ConfigError: no other column to predict from, a target with one
            declared value, or scikit-learn is not installed.
    """
    position = schema.domain.index(target)
    if len(schema) < 2:
        raise ConfigError(
            "there is no other column to predict it from", where=f"target {target!r}", allowed="two columns"
        )
    if schema.columns[position].size < 2:
        raise ConfigError(
            "the column has one value only", where=f"target {target!r}", allowed="two values or more"
        )
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise ConfigError(
            "scikit-learn is not installed", where="target", allowed="pip install 'dpstream[evaluate]'"
        ) from None
    return position


def train_and_test(real: Codes, synthetic: Codes, schema: Schema, target: str) -> Prediction:
    """Train on synthetic and on real records, test both on the same held-out real records.

    The real records are split once (30 % for the test, stratified by class where every class has two
    records), with the fixed seed ``SEED``. Synthetic training uses all synthetic rows. Columns with bins are
    predicted, and used, by their bins.

    Errors:
        SchemaError, ConfigError: see ``check_prediction_target``.
        DataError: a true table with too few records or a single class of the target; no synthetic row.
    """
    position = check_prediction_target(schema, target)
    if len(real) < _MIN_RECORDS or not len(synthetic):
        empty = "the true table is too small to split" if len(synthetic) else "the synthetic table is empty"
        raise DataError(
            empty,
            where=f"target {target!r}",
            allowed=f"{_MIN_RECORDS} true records and one synthetic row, or more; or no target",
        )
    present = np.unique(real[:, position])
    if len(present) < 2:
        raise DataError(
            "all true records have the same value of the target",
            where=f"target {target!r}",
            allowed="a column that varies",
        )
    training, test = _split(real, position)
    scores = []
    tables: tuple[tuple[Trained, Codes], ...] = (("synthetic", _some(synthetic)), ("real", _some(training)))
    for model in ("gradient boosting", "logistic regression"):
        for name, table in tables:
            scores.append(_trained(model, name, table, test, position, schema))
    scores.append(_majority("majority class", "real", training, test, position, ""))
    labels = schema.columns[position].labels()
    return Prediction(
        target,
        tuple(labels[code] for code in present.tolist()),
        len(tables[0][1]),
        len(tables[1][1]),
        len(test),
        SEED,
        tuple(scores),
    )


def _split(real: Codes, position: int) -> tuple[Codes, Codes]:
    from sklearn.model_selection import train_test_split

    classes, counts = np.unique(real[:, position], return_counts=True)
    size = max(round(_TEST_SHARE * len(real)), 1)
    # Each part needs room for one record of every class.
    room = len(classes) <= min(size, len(real) - size)
    stratified = real[:, position] if counts.min() >= 2 and room else None
    training, test = train_test_split(real, test_size=size, random_state=SEED, stratify=stratified)
    return training, test


def _some(table: Codes) -> Codes:
    if len(table) <= MAX_ROWS:
        return table
    return table[np.sort(np.random.default_rng(SEED).choice(len(table), MAX_ROWS, replace=False))]


def _trained(
    model: str, trained_on: Trained, table: Codes, test: Codes, position: int, schema: Schema
) -> PredictionScore:
    """Fit one classifier; a table with a single class of the target teaches nothing but that class."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    features = [i for i in range(len(schema)) if i != position]
    known = np.unique(table[:, position])
    if len(known) < 2:
        return _majority(model, trained_on, table, test, position, "one class in the training table")
    make = _boosting if model == "gradient boosting" else _regression
    learner = make(schema, features, len(known))
    # One thread: the same numbers on every machine, and no threads that wait for each other on a busy one.
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always", ConvergenceWarning)
        learner.fit(table[:, features], table[:, position])
    stopped = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    shares = learner.predict_proba(test[:, features])
    note = "stopped before it converged" if stopped else ""
    return _score(model, trained_on, known, shares, test[:, position], note)


def _boosting(schema: Schema, features: Sequence[int], classes: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    columns = [schema.columns[i] for i in features]
    as_sets = [not isinstance(c, Ordered) and c.size <= _MAX_CATEGORIES for c in columns]
    rounds = min(100, max(10, _TREES // (1 if classes == 2 else classes)))
    return HistGradientBoostingClassifier(
        max_iter=rounds, categorical_features=as_sets, early_stopping=False, random_state=SEED
    )


def _regression(schema: Schema, features: Sequence[int], classes: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    categories = [np.arange(schema.columns[i].size) for i in features]
    return make_pipeline(OneHotEncoder(categories=categories), LogisticRegression(max_iter=300))


def _majority(
    model: str, trained_on: Trained, table: Codes, test: Codes, position: int, note: str
) -> PredictionScore:
    classes, counts = np.unique(table[:, position], return_counts=True)
    shares = np.tile((counts == counts.max()) / 1.0, (len(test), 1))
    return _score(model, trained_on, classes, shares, test[:, position], note)


def _score(
    model: str,
    trained_on: Trained,
    known: NDArray[np.int32],
    shares: NDArray[np.float64],
    truth: NDArray[np.int32],
    note: str,
) -> PredictionScore:
    """Scores over the classes that occur among the test records; a class unknown to the model has share 0."""
    from sklearn.metrics import f1_score, roc_auc_score

    answers = known[shares.argmax(axis=1)]
    classes = np.unique(truth)
    recalls = [float((answers[truth == label] == label).mean()) for label in classes]
    areas = []
    if len(classes) > 1:
        for label in classes:
            column = np.flatnonzero(known == label)
            guess = shares[:, column[0]] if column.size else np.zeros(len(truth))
            areas.append(float(roc_auc_score(truth == label, guess)))
    return PredictionScore(
        model,
        trained_on,
        accuracy=float((answers == truth).mean()),
        balanced_accuracy=float(np.mean(recalls)),
        macro_f1=float(f1_score(truth, answers, labels=classes, average="macro", zero_division=0)),
        roc_auc=float(np.mean(areas)) if areas else float("nan"),
        note=note,
    )
