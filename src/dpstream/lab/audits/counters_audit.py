"""Empirical audits of counters: what an attacker who sees every output can really infer.

The cells of a histogram get independent noise, so one run of a counter with ``n`` cells is ``n`` runs. Two streams
differ by one in one increment. The attacker knows both, sees all outputs, and subtracts the known stream. The changed
step is in turn at borders, in the middle and at the ends, because a mistake in a counter often shows at one step only.

* Pure budgets: for every pair ``s < j <= t`` around the changed step ``j``, whether the sum over ``(s, t]`` looks one
  higher. The likelihood of Laplace noise is made of these indicators. Pilot runs choose the most informative ones, a
  logistic regression weighs them, and other runs judge the result (see ``loss_bounds``).
* zCDP budgets: the same sums, weighed by a linear discriminant (the likelihood of Gaussian noise is linear). One event
  S bounds rho, because no function of the output increases a Renyi divergence: for each order a, ``rho >= D_a(P(S),
  Q(S)) / a``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import (
    COUNTER_NAMES,
    CalibratedCounter,
    SimpleCounter,
    TreeCounter,
    counter_by_name,
)
from dpstream.core.errors import BudgetError, DataError
from dpstream.core.privacy import ZCDP, Budget, Event, PureDP, Randomness
from dpstream.lab.audits.controls import BrokenShortTree, broken_quiet_counter
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.loss_bounds import clopper_pearson, distinguish

#: Of every empirical finding: chance accuses one of the dozen honest counters and selectors with probability 6e-7 at
#: most.
COUNTERS_CONFIDENCE = 1 - 5e-8

#: Runs per side that only choose the sums to look at, and the number of these sums.
_PILOT, _COLUMNS = 6_000, 14
#: The part of the other runs that trains; the rest judges.
_TRAIN = 0.2
#: Public seed of the split into training and judging runs.
_SPLIT_SEED = 5
_ORDERS = np.concatenate([np.linspace(1.01, 4.0, 40), np.geomspace(4.2, 64.0, 30)])


@dataclass(frozen=True)
class _Size:
    ticks: int
    runs: int


_SIZES: dict[AuditLength, _Size] = {"short": _Size(16, 200_000), "long": _Size(32, 600_000)}


def audit_counters(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Every counter that a configuration file can name, through its public running code; then the controls."""
    size, one, half = _SIZES[length], PureDP.of(1), ZCDP.of("0.5")
    for name in COUNTER_NAMES:
        progress(f"counter {name}")
        counter = calibrated_by_name(name, size.ticks, one) or calibrated_by_name(name, size.ticks, half)
        assert counter is not None, name
        yield audit_counter(counter, size.ticks, size.runs, randomness, f"counter {name}, {size.ticks} ticks")
    others: list[tuple[str, CalibratedCounter]] = [
        ("counter tree, 4 ticks, replace", TreeCounter(4).calibrate(one, Event("replace"))),
        ("counter tree, 4 ticks, zCDP", TreeCounter(4).calibrate(half, Event())),
    ]
    for subject, counter in others:
        progress(subject)
        yield audit_counter(counter, 4, size.runs, randomness, subject)
    controls: list[tuple[str, CalibratedCounter]] = [
        (
            "counter simple with 2/3 of the noise",
            broken_quiet_counter(SimpleCounter().calibrate(one, Event())),
        ),
        ("counter tree with 2/3 of the noise", broken_quiet_counter(TreeCounter(4).calibrate(one, Event()))),
        (
            "counter tree with 2/3 of the noise, zCDP",
            broken_quiet_counter(TreeCounter(4).calibrate(half, Event())),
        ),
        ("counter tree, one level short", BrokenShortTree(4).calibrate(one, Event())),
    ]
    for subject, counter in controls:
        progress(f"control: {subject}")
        yield audit_counter(counter, 4, size.runs, randomness, subject, control=True)


def calibrated_by_name(
    name: str, horizon: int, budget: Budget, unit: Event | None = None
) -> CalibratedCounter | None:
    """The counter with this name in configuration files; None where it does not take this kind of budget."""
    recipe = counter_by_name(name, horizon=horizon)
    try:
        return recipe.calibrate(budget, unit or Event())
    except BudgetError:
        return None


def audit_counter(
    counter: CalibratedCounter,
    ticks: int,
    runs: int,
    randomness: Randomness,
    subject: str,
    *,
    control: bool = False,
    steps: Sequence[int] | None = None,
) -> AuditFinding:
    """A lower confidence bound on the loss of a counter's first ``ticks`` outputs.

    Args:
        counter: any counter; its claim is its budget.
        runs: runs per side and changed step.
        steps: the steps that are changed in turn, by default ``border_steps(ticks)``. They share the error.

    Cost: about ``runs * ticks * len(steps)`` draws and as many regressions as steps; 8 bytes for each output of a side.
    """
    began = time.perf_counter()
    steps = border_steps(ticks) if steps is None else steps
    confidence = 1 - (1 - COUNTERS_CONFIDENCE) / len(steps)
    cells = counter.unit.changed_cells
    pure = isinstance(counter.budget, PureDP)
    noise = _outputs(counter, ticks, None, _PILOT + runs, cells, randomness)
    best, detail = -1.0, ""
    for step in steps:
        moved = _outputs(counter, ticks, step, _PILOT + runs, cells, randomness)
        columns = _most_different(noise[:, :, :_PILOT], moved[:, :, :_PILOT], step, pure)
        a, b = (_sums(outputs[:, :, _PILOT:], columns, pure) for outputs in (moved, noise))
        if pure:
            bound = distinguish(a, b, confidence=confidence, seed=_SPLIT_SEED, train=_TRAIN).epsilon
        else:
            weights = _discriminant(*(_sums(x[:, :, :_PILOT], columns, pure) for x in (moved, noise)))
            bound = rho_lower_bound(a @ weights, b @ weights, confidence=confidence, train=_TRAIN)
        if bound > best:
            best, detail = bound, f"most at tick {step} of {_listing(steps)}"
    return AuditFinding.empirical(
        began,
        subject=subject,
        claimed=counter.budget,
        found=best,
        confidence=COUNTERS_CONFIDENCE,
        runs=runs,
        control=control,
        detail=detail,
    )


def border_steps(ticks: int) -> list[int]:
    """First and last tick, the middle, powers of two and their successors, borders of square-root and growing blocks.

    Between them these are the ticks at which mistakes in a counter show.

    >>> border_steps(16)
    [1, 2, 3, 4, 5, 8, 9, 13, 14, 15, 16]
    >>> border_steps(1)
    [1]
    """
    chosen = {1, ticks - 1, ticks, ticks // 2, ticks // 2 + 1}
    power = 1
    while power <= ticks:
        chosen |= {power, power + 1}
        power *= 2
    partition, size = 4, 2
    while partition <= ticks:
        chosen |= {partition, partition + 1}
        size += 1
        partition += size * size
    chosen -= {17, 33, 65} - {ticks}  # successors of higher powers show nothing that 9 does not show
    return sorted(step for step in chosen if 1 <= step <= ticks)


def _listing(steps: Sequence[int]) -> str:
    return f"{len(steps)} changed ticks ({', '.join(map(str, steps))})"


def _outputs(
    counter: CalibratedCounter, ticks: int, changed: int | None, runs: int, cells: int, randomness: Randomness
) -> NDArray[np.int64]:
    """The outputs less the known stream: int64[ticks + 1, cells, runs].

    Row 0 is the empty sum. At tick ``changed`` the increment is one higher in the first cell of each run, and one lower
    in the second cell where the unit is a replacement. The second cell has its sign turned, so both look one higher.
    """
    state = counter.init(cells * runs)
    result = np.zeros((ticks + 1, cells, runs), np.int64)
    known = np.zeros((), np.int64)
    for tick in range(1, ticks + 1):
        # Any public stream will do, but a constant one would hide a counter whose noise depends on its input.
        base = np.int64(7 * tick % 5 - 1)
        known = known + base
        increment = np.full((cells, runs), base)
        if tick == changed:
            increment[0] += 1
            increment[1:] -= 1
        result[tick] = counter.step(state, increment.ravel(), randomness).reshape(cells, runs) - known
    result[:, 1:] *= -1
    return result


@dataclass(frozen=True)
class _Columns:
    """Sums to look at: each over ``(start, end]`` in a cell."""

    cell: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def _sums(outputs: NDArray[np.int64], columns: _Columns, pure: bool) -> NDArray[np.float64]:
    """The chosen sums of each run (one row); with ``pure``, whether each looks one higher."""
    sums = outputs[columns.end, columns.cell] - outputs[columns.start, columns.cell]
    return (sums >= 1 if pure else sums).T.astype(np.float64)


def _most_different(
    noise: NDArray[np.int64], moved: NDArray[np.int64], step: int, pure: bool, most: int = _COLUMNS
) -> _Columns:
    """The sums around the changed step that differ most between the pilot runs of both sides."""
    ticks, cells = noise.shape[0] - 1, noise.shape[1]
    grid = np.meshgrid(np.arange(cells), np.arange(step), np.arange(step, ticks + 1), indexing="ij")
    cell, start, end = (axis.ravel() for axis in grid)
    effects = np.empty(len(cell))
    for i in range(len(cell)):
        one = _Columns(cell[i : i + 1], start[i : i + 1], end[i : i + 1])
        a, b = _sums(moved, one, pure), _sums(noise, one, pure)
        effects[i] = abs(a.mean() - b.mean()) / (np.concatenate([a, b]).std() + 1e-9)
    kept = np.argsort(-effects, kind="stable")[: most * cells]
    return _Columns(cell[kept], start[kept], end[kept])


def _discriminant(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights of Fisher's linear discriminant (with a pseudo-inverse, because sums may be linearly dependent)."""
    spread = np.atleast_2d(np.cov(np.concatenate([a - a.mean(axis=0), b - b.mean(axis=0)]).T))
    weights: NDArray[np.float64] = np.linalg.pinv(spread, rcond=1e-6) @ (a.mean(axis=0) - b.mean(axis=0))
    return weights


def rho_lower_bound(
    scores_a: NDArray[np.float64], scores_b: NDArray[np.float64], *, confidence: float, train: float = 0.5
) -> float:
    """A lower confidence bound on rho (zCDP) from a statistic that was fixed beforehand.

    The first ``train`` of the runs choose a tail of the statistic and the direction. The others judge it by two
    Clopper-Pearson limits, each with half of the error.

    Args:
        scores_a, scores_b: the statistic of independent runs on two neighbouring inputs, shape (runs,).

    Errors:
        DataError: fewer than four runs on a side.
    """
    if min(len(scores_a), len(scores_b)) < 4:
        raise DataError("too few runs for a bound", where="audit", allowed="4 or more on each side")
    first_a, first_b = round(train * len(scores_a)), round(train * len(scores_b))
    judge = (len(scores_a) - first_a, len(scores_b) - first_b)
    alpha = (1 - confidence) / 2
    thresholds = np.quantile(
        np.concatenate([scores_a[:first_a], scores_b[:first_b]]), np.linspace(0, 1, 130)[1:-1]
    )
    best = (-1.0, 0.0, True, True)
    for threshold in np.unique(thresholds):
        for upper in (True, False):
            rates = [_rate(s, float(threshold), upper) for s in (scores_a[:first_a], scores_b[:first_b])]
            for on_a in (True, False):
                promise = _rho(rates[0] * judge[0], judge[0], rates[1] * judge[1], judge[1], alpha, on_a)
                best = max(best, (promise, float(threshold), upper, on_a))
    _, threshold, upper, on_a = best
    counts = [_rate(s, threshold, upper) * len(s) for s in (scores_a[first_a:], scores_b[first_b:])]
    return _rho(round(counts[0]), judge[0], round(counts[1]), judge[1], alpha, on_a)


def _rate(scores: NDArray[np.float64], threshold: float, upper: bool) -> float:
    above = float(np.mean(scores >= threshold))
    return above if upper else 1 - above


def _rho(k: float, n: int, j: float, m: int, alpha: float, on_a: bool) -> float:
    """The largest ``D_a(p, q) / a`` over the orders, with p at its lower limit and q at its upper limit."""
    (k, n), (j, m) = ((k, n), (j, m)) if on_a else ((j, m), (k, n))
    low, high = float(clopper_pearson(k, n, alpha)[0]), float(clopper_pearson(j, m, alpha)[1])
    if not 0 < high < low < 1:
        return 0.0
    return divergence_rate(np.array([low, 1 - low]), np.array([high, 1 - high]))


def divergence_rate(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
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
