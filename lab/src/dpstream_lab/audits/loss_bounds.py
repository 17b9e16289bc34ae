"""Lower confidence bounds on a privacy loss from independent runs on two neighbouring inputs.

An event whose probabilities on the two inputs are known to lie in intervals proves a lower bound: for pure privacy
``epsilon >= log(P(S) / Q(S))``, for zCDP ``rho >= D_a(P(S), Q(S)) / a`` for each order a, because no function of an
output increases a Renyi divergence.

One part of the runs (training) chooses the event, a tail of a statistic, and the other runs (held out) judge it. There
is one event and one direction, so only two intervals can fail. Each is exact (Clopper and Pearson 1934) and has half of
the error. The runs of one side must be independent of each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.privacy import Budget, PureDP
from dpstream.tools.audit.attack import check_rate, clopper_pearson
from dpstream.tools.audit.finding import AuditFinding, Largest

Floats = NDArray[np.float64]

#: How many thresholds are tried: quantiles of the training scores.
_THRESHOLDS = 256
#: The largest error of the limits that compare events in training.
_TRAINING_ERROR = 1e-3
#: The part of the runs that trains.
_TRAIN = 0.3
_ORDERS = np.concatenate([np.linspace(1.01, 4.0, 40), np.geomspace(4.2, 64.0, 30)])


def lower_bound(
    scores_a: NDArray[Any],
    scores_b: NDArray[Any],
    *,
    confidence: float,
    pure: bool = True,
    train: float = 0.5,
) -> float:
    """A lower bound on epsilon, or on rho, from a statistic that was fixed beforehand; 0 where the runs show no loss.

    The probability that it exceeds the true loss is at most ``1 - confidence``. The events are both tails of the
    statistic at any threshold, each taken as more likely on a or on b.

    Args:
        scores_a, scores_b: the statistic of independent runs on two neighbouring inputs, shape (runs,).
        pure: bounds epsilon; otherwise rho (zCDP).
        train: the first runs of each side, which choose the event; the others judge it.

    Errors:
        DataError: a side has fewer than four runs, or a score is not a finite number. ConfigError: confidence or train
        is not strictly between 0 and 1.
    """
    check_rate(confidence, "confidence")
    check_rate(train, "train")
    sides = [np.asarray(scores, np.float64) for scores in (scores_a, scores_b)]
    if min(map(len, sides)) < 4:
        raise DataError("too few runs for a bound", where="audit", allowed="4 or more on each side")
    if not all(np.isfinite(scores).all() for scores in sides):
        raise DataError("a score is not a finite number", where="audit", allowed="finite numbers")
    cuts = [min(max(1, round(train * len(scores))), len(scores) - 1) for scores in sides]
    taught, held = ([s[:cut] for s, cut in zip(sides, cuts, strict=True)],
                    [s[cut:] for s, cut in zip(sides, cuts, strict=True)])  # fmt: skip
    quantiles = np.linspace(0.0, 1.0, _THRESHOLDS + 2)[1:-1]
    thresholds = np.unique(np.quantile(np.concatenate(taught), quantiles, method="higher"))
    alpha = (1.0 - confidence) / 2.0

    def losses(scores: Sequence[Floats], at: Floats, upper: bool, on_a: bool, error: float) -> Floats:
        counts = [np.count_nonzero(s[:, None] >= at, axis=0) for s in scores]
        counts = counts if upper else [len(s) - count for s, count in zip(scores, counts, strict=True)]
        (k, n), (j, m) = zip(counts, map(len, scores), strict=True)
        (k, n), (j, m) = ((k, n), (j, m)) if on_a else ((j, m), (k, n))
        low, high = clopper_pearson(k, n, error)[0], clopper_pearson(j, m, error)[1]
        return _epsilon(low, high) if pure else _rho(low, high)

    best = (-1.0, 0.0, True, True)
    for upper in (True, False):
        for on_a in (True, False):
            # A strict confidence in training: otherwise the best of many events would be one that was lucky.
            promised = losses(taught, thresholds, upper, on_a, min(alpha, _TRAINING_ERROR))
            at = int(np.argmax(promised))
            best = max(best, (float(promised[at]), float(thresholds[at]), upper, on_a))
    _, threshold, upper, on_a = best
    return float(losses(held, np.array([threshold]), upper, on_a, alpha)[0])


def _epsilon(low: Floats, high: Floats) -> Floats:
    ratio = np.where(low > 0.0, np.maximum(low, 1e-300) / high, 1.0)
    result: Floats = np.log(np.maximum(ratio, 1.0))
    return result


def _rho(low: Floats, high: Floats) -> Floats:
    """The largest ``D_a(p, q) / a`` over the orders, with p at its lower limit and q at its upper limit."""
    known = (high > 0) & (high < low) & (low < 1)
    return np.array(
        [
            divergence_rate(np.array([p, 1 - p]), np.array([q, 1 - q])) if sure else 0.0
            for p, q, sure in zip(low, high, known, strict=True)
        ]
    )


def divergence_rate(p: Floats, q: Floats) -> float:
    """The rho that two distributions on a finite set prove: the largest ``D_a(p, q) / a`` on a grid of orders ``a >
    1``.

    >>> round(divergence_rate(np.array([0.75, 0.25]), np.array([0.25, 0.75])), 4)
    0.5483
    """
    log_p, log_q = np.log(p)[:, None], np.log(q)[:, None]
    exponents = _ORDERS * log_p + (1 - _ORDERS) * log_q
    top = exponents.max(axis=0)
    divergences = (top + np.log(np.exp(exponents - top).sum(axis=0))) / (_ORDERS - 1)
    return float((divergences / _ORDERS).max())


def audit_outcomes(
    outcomes: Callable[[Sequence[int]], NDArray[np.int64]],
    pairs: Sequence[tuple[Sequence[int], Sequence[int], str]],
    claimed: Budget,
    subject: str,
    confidence: float,
    *,
    control: bool = False,
) -> AuditFinding:
    """A lower confidence bound on the loss of a mechanism with few outcomes. The pairs share the error.

    The training runs order the outcomes by the ratio of their frequencies on the two inputs: the statistic.

    Args:
        outcomes: gives the outcomes of many independent runs on one input, as non-negative integers.
        pairs: pairs of neighbouring inputs, each with a name.
    """
    began, worst, runs = time.perf_counter(), Largest(), 0
    for before, after, name in pairs:
        a, b = outcomes(before), outcomes(after)
        runs, taught = len(a), round(_TRAIN * len(a))
        # One run is added to each, so that unseen outcomes stay finite.
        counts = [np.bincount(side[:taught], minlength=max(a.max(), b.max()) + 1) + 1.0 for side in (a, b)]
        ratio = np.log(counts[0] / counts[1])
        each = 1 - (1 - confidence) / len(pairs)
        pure = isinstance(claimed, PureDP)
        worst.see(lower_bound(ratio[a], ratio[b], confidence=each, pure=pure, train=_TRAIN), name)
    return AuditFinding.of(
        began,
        subject=subject,
        claimed=claimed,
        found=worst.loss,
        confidence=confidence,
        runs=runs,
        control=control,
        detail=f"most with {worst.where}",
    )
