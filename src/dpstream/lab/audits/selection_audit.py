"""Empirical audits of selections, by frequencies of their outcomes.

Every outcome is a number: the chosen candidate. The first part of the runs
orders the outcomes by the ratio of their frequencies on two neighbouring inputs. A tail of that order is a set of
outcomes, which the other runs judge (Clopper-Pearson, see ``loss_bounds``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import ZCDP, Budget, PureDP, Randomness
from dpstream.lab.audits.controls import broken_quiet_selector
from dpstream.lab.audits.counters_audit import COUNTERS_CONFIDENCE, rho_lower_bound
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.loss_bounds import lower_bound
from dpstream.mechanisms.selector import Selector

_RUNS: dict[AuditLength, int] = {"short": 20_000, "long": 300_000}
#: The part of the runs that orders the outcomes.
_TRAIN = 0.3

#: Neighbouring scores (numerators; denominator and sensitivity are 1) with a large loss: a tie that is broken against
#: one candidate, a reversed order, a tie of several.
_SCORES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((0, 0), (1, -1)),
    ((1, 0), (0, 1)),
    ((0, 0, 0, 0), (-1, 1, 1, 1)),
)


def audit_selection(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both selectors through their public running code; then the controls."""
    runs, one, half = _RUNS[length], PureDP.of(1), ZCDP.of("0.5")
    for budget in (one, half):
        selector = Selector(budget)
        subject = f"{selector.describe()}, frequencies"
        progress(subject)
        yield audit_selector(selector, budget, runs, randomness, subject)
    for budget in (one, half):
        selector = broken_quiet_selector(Selector(budget))
        subject = f"{selector.describe()} with 2/3 of the noise, frequencies"
        progress(f"control: {subject}")
        yield audit_selector(selector, budget, runs, randomness, subject, control=True)


def audit_selector(
    selector: Selector,
    claimed: Budget,
    runs: int,
    randomness: Randomness,
    subject: str,
    *,
    sensitivity: Fraction | int = 1,
    control: bool = False,
) -> AuditFinding:
    """A lower confidence bound on the loss of one choice.

    Args:
        selector: audited as it is.
        claimed: the claimed cost of a choice.
        runs: runs on each of the neighbouring score vectors.
        sensitivity: the sensitivity that the selector gets; neighbouring scores of the audit differ by so much.
    """
    scale = Fraction(sensitivity)

    def chosen(scores: Sequence[int]) -> NDArray[np.int64]:
        numerators = np.array([value * scale.numerator for value in scores], dtype=np.int64)
        denominators = np.full(len(scores), scale.denominator, dtype=np.int64)
        allowed = range(len(scores))
        picks = (selector.choose(numerators, denominators, allowed, scale, randomness) for _ in range(runs))
        return np.fromiter(picks, np.int64, runs)

    pairs = [(before, after, f"scores {before} against {after}") for before, after in _SCORES]
    return audit_outcomes(chosen, pairs, claimed, subject, control=control)


def audit_outcomes(
    outcomes: Callable[[Sequence[int]], NDArray[np.int64]],
    pairs: Sequence[tuple[Sequence[int], Sequence[int], str]],
    claimed: Budget,
    subject: str,
    *,
    control: bool = False,
) -> AuditFinding:
    """A lower confidence bound on the loss of a mechanism with few outcomes. The pairs share the error.

    Args:
        outcomes: gives the outcomes of many independent runs on one input, as non-negative integers.
        pairs: pairs of neighbouring inputs, each with a name.
    """
    began = time.perf_counter()
    confidence = 1 - (1 - COUNTERS_CONFIDENCE) / len(pairs)
    pure = isinstance(claimed, PureDP)
    best, detail, runs = -1.0, "", 0
    for before, after, name in pairs:
        a, b = outcomes(before), outcomes(after)
        runs = len(a)
        ratio = _log_ratios(a[: round(_TRAIN * runs)], b[: round(_TRAIN * runs)], max(a.max(), b.max()) + 1)
        if pure:
            bound = lower_bound(ratio[a], ratio[b], confidence=confidence, train=_TRAIN).epsilon
        else:
            bound = rho_lower_bound(ratio[a], ratio[b], confidence=confidence, train=_TRAIN)
        if bound > best:
            best, detail = bound, f"most with {name}"
    return AuditFinding.empirical(
        began,
        subject=subject,
        claimed=claimed,
        found=best,
        confidence=COUNTERS_CONFIDENCE,
        runs=runs,
        control=control,
        detail=detail,
    )


def _log_ratios(a: NDArray[np.int64], b: NDArray[np.int64], outcomes: int) -> NDArray[np.float64]:
    """The log-ratio of each outcome's frequencies, with one run added to each so that unseen outcomes stay finite."""
    counts = [np.bincount(side, minlength=outcomes) + 1.0 for side in (a, b)]
    result: NDArray[np.float64] = np.log(counts[0] / counts[1])
    return result
