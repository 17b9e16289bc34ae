"""Lower confidence bounds on a privacy loss from independent runs on two neighbouring inputs.

A mechanism with (epsilon, delta) differential privacy has ``P(S) <= e^epsilon Q(S) + delta`` for every event ``S``,
where P and Q are the distributions of its output on the two inputs, in either order. So an event whose probabilities
are known to lie in intervals proves a lower bound::

    epsilon >= log((P(S) - delta) / Q(S))

One part of the runs (training) chooses the event, and the other runs (held out) judge it. There is one event and one
direction, so only two intervals can fail. Each is exact (Clopper and Pearson 1934) and has half of the error. The runs
of one side must be independent of each other. Run ``i`` of one side may share randomness with run ``i`` of the other,
if both sides have the same number of runs: the two errors are added (a union bound), and both runs train or both judge.

No private noise is drawn here. The splits use a general-purpose generator with a public seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import from_extra

#: How many thresholds are tried per statistic: quantiles of the training scores.
_THRESHOLDS = 256
#: Fewer thresholds for each single column, because there are many columns.
_THRESHOLDS_PER_COLUMN = 32
#: Inverse strength of the ridge on standardised columns.
_RIDGE = 0.01
_ITERATIONS = 200
#: A column with a smaller relative spread counts as constant.
_STILL = 1e-12
#: The largest error of the limits that compare events in training.
_TRAINING_ERROR = 1e-3


@dataclass(frozen=True)
class Bound:
    """A proved lower bound on a privacy loss.

    Attributes:
        epsilon: the bound. The probability that it exceeds the true epsilon (at this ``delta``) is at most
            ``1 - confidence``. 0 where the runs show no loss.
        delta: the delta of the guarantee under test; 0 for a pure one.
        confidence: the confidence of the bound.
        runs: the number of independent runs on the smaller side, with those for training.
        statistic: the statistic of the event, in words.
    """

    epsilon: float
    delta: float
    confidence: float
    runs: int
    statistic: str


def clopper_pearson(
    successes: ArrayLike, trials: ArrayLike, alpha: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The exact lower and upper limits of binomial probabilities. Each fails with probability at most ``alpha``.

    Together they are a two-sided interval of confidence ``1 - 2 alpha``. Arguments may be arrays. ``successes`` may be
    fractions (for planning), but the guarantee holds for whole numbers only.

    >>> low, high = clopper_pearson(0, 10, 0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.2589)
    """
    with from_extra("evaluate", "audit"):
        from scipy.special import betaincinv

    _check_rate(alpha, "alpha")
    k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    if np.any(n < 1) or np.any(k < 0) or np.any(k > n):
        raise DataError(
            "successes are not between 0 and trials",
            where="clopper_pearson",
            allowed="0 <= successes <= trials",
        )
    # The limits solve P(X >= k) = alpha and P(X <= k) = alpha, which are incomplete beta functions. For k = 0 and k = n
    # the inverse is not defined, and the limit is 0 or 1.
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1e-300), n - k + 1, alpha), 0.0)
        high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-300), 1 - alpha), 1.0)
    return low, high


def lower_bound(
    scores_a: NDArray[Any],
    scores_b: NDArray[Any],
    *,
    confidence: float,
    delta: float = 0.0,
    train: float = 0.5,
) -> Bound:
    """A lower bound on epsilon from a statistic that was fixed beforehand.

    The events are both tails of the statistic at any threshold, each taken as more likely on a or on b. The first
    ``train`` of the runs choose one event; the others judge it.

    Args:
        scores_a: the statistic of independent runs on one input, shape (runs,).
        scores_b: the same on the neighbouring input.
        confidence: the confidence of the bound, for example ``1 - 1e-6``.
        delta: the delta of the guarantee under test.
        train: the part of the runs that chooses the event.

    Errors:
        DataError: a side has fewer than four runs, or a score is not a finite number. ConfigError: confidence, delta or
        train is not strictly between 0 and 1 (delta may be 0).

    Cost: a sort, and 4 x 256 evaluations of the incomplete beta function.
    """
    a, b = _columns(scores_a[:, None], "a"), _columns(scores_b[:, None], "b")
    split = _Split.of(len(a), len(b), confidence, delta, train)
    event = split.best(a, b, _THRESHOLDS)
    return split.judge(event, a[:, 0], b[:, 0], "a tail of the statistic")


def distinguish(
    features_a: NDArray[Any],
    features_b: NDArray[Any],
    *,
    confidence: float,
    seed: int,
    delta: float = 0.0,
    train: float = 0.5,
    names: tuple[str, ...] | None = None,
) -> Bound:
    """A lower bound on epsilon from whole outputs, with a statistic that is learned.

    The training runs compare the columns, each by itself, and a logistic regression of "a or b" on all standardised
    columns. The regression is the mean of two, one from each half of the training runs, and each half judges the
    regression of the other. The statistic with the best training bound is kept, with its best tail. The held-out runs
    judge that one event.

    Args:
        features_a: one row of numbers per run on one input, shape (runs, columns).
        features_b: the same on the neighbouring input.
        seed: the public seed of the shuffle that splits the runs.
        names: the names of the columns, for ``Bound.statistic``.

    Other arguments and errors as of ``lower_bound``. Needs scikit-learn (``dpstream[evaluate]``).
    Cost: two regressions, and 128 evaluations of the incomplete beta function per column.
    """
    a, b = _columns(features_a, "a"), _columns(features_b, "b")
    if a.shape[1] != b.shape[1]:
        raise DataError(
            f"one side has {a.shape[1]} columns and the other {b.shape[1]}",
            where="distinguish",
            allowed="the same columns on both sides",
        )
    split = _Split.of(len(a), len(b), confidence, delta, train)
    a, b = _shuffled(a, seed), _shuffled(b, seed)
    spread = np.concatenate([a[: split.train_a], b[: split.train_b]])
    # Columns that are constant in training cannot distinguish anything.
    moving = np.flatnonzero(spread.std(axis=0) > _STILL * (1.0 + np.abs(spread).max(axis=0)))
    if not len(moving):
        return Bound(0.0, delta, confidence, min(len(a), len(b)), "nothing moves")
    learned_a, learned_b, event = _learned(a[:, moving], b[:, moving], split)
    single = split.best(a[:, moving], b[:, moving], _THRESHOLDS_PER_COLUMN)
    if single.promise <= event.promise:
        return split.judge(event, learned_a, learned_b, f"logistic regression on {len(moving)} columns")
    column = int(moving[single.column])
    label = names[column] if names else f"column {column}"
    return split.judge(single, a[:, column], b[:, column], label)


def _shuffled(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The rows in a random order that depends on the seed only, so that runs that share randomness stay together."""
    return table[np.random.default_rng(seed).permutation(len(table))]


def _learned(
    a: NDArray[np.float64], b: NDArray[np.float64], split: _Split
) -> tuple[NDArray[np.float64], NDArray[np.float64], _Event]:
    """The scores of all runs by the mean of two regressions, and the event with the best training bound.

    For the training bound each half of the training runs is scored by the regression of the other half.
    """
    halves = [(slice(0, m // 2), slice(m // 2, m)) for m in (split.train_a, split.train_b)]
    if min(split.train_a, split.train_b) < 4:
        halves = [(slice(0, m), slice(0, m)) for m in (split.train_a, split.train_b)]
    centre = np.concatenate([a[: split.train_a], b[: split.train_b]]).mean(axis=0)
    a, b = a - centre, b - centre
    weights = [_regression(a[of_a], b[of_b]) for of_a, of_b in zip(*halves, strict=True)]
    scores_a, scores_b = (table @ np.mean(weights, axis=0) for table in (a, b))
    crossed = [scores_a.copy(), scores_b.copy()]
    for other in (0, 1):
        for table, scores, half in zip((a, b), crossed, halves, strict=True):
            scores[half[other]] = table[half[other]] @ weights[1 - other]
    event = split.best(crossed[0][:, None], crossed[1][:, None], _THRESHOLDS)
    return scores_a, scores_b, event


def _regression(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights of the columns (not standardised) in a ridge logistic regression."""
    try:
        from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ConfigError(
            "scikit-learn is not installed", where="audit", allowed="pip install 'dpstream[evaluate]'"
        ) from None
    both = np.concatenate([a, b])
    # Standardised, so that the ridge acts alike on every column. A column that is constant here gets the weight 0.
    deviation = both.std(axis=0)
    deviation[deviation <= _STILL * (1.0 + np.abs(both).max(axis=0))] = np.inf
    labels = np.repeat([1, 0], [len(a), len(b)])
    # Newton's method needs no tuning. The solution only chooses a statistic, so a bad one costs power, never validity.
    model = LogisticRegression(C=_RIDGE, solver="newton-cholesky", max_iter=_ITERATIONS)
    model.fit((both - both.mean(axis=0)) / deviation, labels)
    weights: NDArray[np.float64] = model.coef_[0] / deviation
    return weights


@dataclass(frozen=True)
class _Event:
    """``score >= threshold`` in a column, or its complement, expected to be likelier on a (or on b).

    Attributes:
        promise: its training bound on epsilon.
    """

    column: int
    threshold: float
    upper: bool
    likelier_on_a: bool
    promise: float

    def count(self, scores: NDArray[np.float64]) -> int:
        """The number of runs in which the event happened."""
        above = int(np.count_nonzero(scores >= self.threshold))
        return above if self.upper else len(scores) - above


@dataclass(frozen=True)
class _Split:
    """The numbers of runs that train and that judge, and the guarantee under test."""

    train_a: int
    train_b: int
    held_a: int
    held_b: int
    confidence: float
    delta: float

    @classmethod
    def of(cls, runs_a: int, runs_b: int, confidence: float, delta: float, train: float) -> _Split:
        _check_rate(confidence, "confidence")
        _check_rate(train, "train")
        if delta != 0:
            _check_rate(delta, "delta")
        if min(runs_a, runs_b) < 4:
            raise DataError("too few runs for a bound", where="audit", allowed="4 or more on each side")
        first, second = max(1, round(train * runs_a)), max(1, round(train * runs_b))
        first, second = min(first, runs_a - 1), min(second, runs_b - 1)
        return cls(first, second, runs_a - first, runs_b - second, confidence, delta)

    @property
    def alpha(self) -> float:
        """The error of one of the two limits."""
        return (1.0 - self.confidence) / 2.0

    def best(self, a: NDArray[np.float64], b: NDArray[np.float64], thresholds: int) -> _Event:
        """The event with the best training bound, over all columns, thresholds, tails and directions."""
        a, b = a[: self.train_a], b[: self.train_b]
        quantiles = np.linspace(0.0, 1.0, thresholds + 2)[1:-1]
        found = _Event(0, 0.0, True, True, -1.0)
        pooled = np.quantile(np.concatenate([a, b]), quantiles, axis=0, method="higher")
        # All columns in one call, because the beta function costs more than everything else here.
        rate_a = np.stack([_above(a[:, i], pooled[:, i]) for i in range(a.shape[1])], axis=1)
        rate_b = np.stack([_above(b[:, i], pooled[:, i]) for i in range(b.shape[1])], axis=1)
        for upper in (True, False):
            pa, pb = (rate_a, rate_b) if upper else (1.0 - rate_a, 1.0 - rate_b)
            for on_a in (True, False):
                promises = self._promises(pa, pb, on_a)
                row, column = np.unravel_index(int(np.argmax(promises)), promises.shape)
                if promises[row, column] > found.promise:
                    threshold = float(pooled[row, column])
                    found = _Event(int(column), threshold, upper, on_a, float(promises[row, column]))
        return found

    def judge(self, event: _Event, a: NDArray[np.float64], b: NDArray[np.float64], statistic: str) -> Bound:
        """The bound that the held-out runs prove through this event."""
        held_a, held_b = a[self.train_a :], b[self.train_b :]
        count_a, count_b = event.count(held_a), event.count(held_b)
        if event.likelier_on_a:
            epsilon = self._epsilon(count_a, self.held_a, count_b, self.held_b, self.alpha)
        else:
            epsilon = self._epsilon(count_b, self.held_b, count_a, self.held_a, self.alpha)
        return Bound(float(epsilon), self.delta, self.confidence, min(len(a), len(b)), statistic)

    def _promises(
        self, p: NDArray[np.float64], q: NDArray[np.float64], likelier_on_a: bool
    ) -> NDArray[np.float64]:
        """Bounds from the frequencies in training, with a strict confidence of their own; otherwise the best of many
        events would be one that was lucky."""
        n, m, alpha = self.train_a, self.train_b, min(self.alpha, _TRAINING_ERROR)
        if likelier_on_a:
            return self._epsilon(p * n, n, q * m, m, alpha)
        return self._epsilon(q * m, m, p * n, n, alpha)

    def _epsilon(self, k: ArrayLike, n: int, j: ArrayLike, m: int, alpha: float) -> NDArray[np.float64]:
        """``log((P - delta) / Q)`` with P at its lower and Q at its upper limit; 0 where it is negative."""
        low, _ = clopper_pearson(k, n, alpha)
        _, high = clopper_pearson(j, m, alpha)
        kept = low - self.delta
        ratio = np.where(kept > 0.0, np.maximum(kept, 1e-300) / high, 1.0)
        return np.log(np.maximum(ratio, 1.0))


def _above(scores: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of the scores that is at or above each threshold."""
    ordered = np.sort(scores)
    return 1.0 - np.searchsorted(ordered, thresholds, side="left") / len(ordered)


def _columns(values: NDArray[Any], side: str) -> NDArray[np.float64]:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise DataError(
            f"the runs of side {side} are not a table of finite numbers",
            where="audit",
            allowed="shape (runs, columns)",
        )
    return table


def _check_rate(value: float, name: str) -> None:
    if not 0.0 < value < 1.0:
        raise ConfigError(f"{name} = {value} is not a probability", where="audit", allowed="between 0 and 1")
