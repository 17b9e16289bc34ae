"""Empirical audits of selections and of the above-threshold test, by frequencies of their outcomes.

Every outcome is a number: the chosen candidate, or the first question that was answered yes. The first part of the runs
orders the outcomes by the ratio of their frequencies on two neighbouring inputs. A tail of that order is a set of
outcomes, which the other runs judge (Clopper-Pearson, see ``loss_bounds``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import ZCDP, AboveThreshold, Budget, Noise, PureDP, Randomness
from dpstream.families.tabular.selector import Selector
from dpstream.lab.audits.controls import BrokenFreshThreshold, BrokenQuietThreshold, broken_quiet_selector
from dpstream.lab.audits.counters_audit import COUNTERS_CONFIDENCE, rho_lower_bound
from dpstream.lab.audits.finding import AuditFinding, AuditLength, AuditProgress
from dpstream.lab.audits.loss_bounds import lower_bound
from dpstream.lab.audits.transcript_tape import SameWords

_RUNS: dict[AuditLength, int] = {"short": 20_000, "long": 300_000}
#: More runs for the above-threshold test, because it is quicker and loses most in rare events.
_THRESHOLD_RUNS: dict[AuditLength, int] = {"short": 40_000, "long": 600_000}
#: The part of the runs that orders the outcomes.
_TRAIN = 0.3
_CHUNK = 1 << 14

#: Neighbouring scores (numerators; denominator and sensitivity are 1) with a large loss: a tie that is broken against
#: one candidate, a reversed order, a tie of several.
_SCORES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((0, 0), (1, -1)),
    ((1, 0), (0, 1)),
    ((0, 0, 0, 0), (-1, 1, 1, 1)),
)


@dataclass(frozen=True)
class Questions:
    """Two neighbouring sequences of numbers for an above-threshold test, and the public threshold."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    threshold: int


#: All numbers rise and the last one falls. This is the worst case of the proof, with events that are not too rare.
AGAINST = Questions((0, 0, 0, 0, 1), (1, 1, 1, 1, 0), 1)
#: All numbers rise, and probably many of them are answered "no".
TOGETHER = Questions((0,) * 48, (1,) * 48, 1)


def audit_selection(
    length: AuditLength, randomness: Randomness, progress: AuditProgress
) -> Iterator[AuditFinding]:
    """Both selectors and the above-threshold test through their public running code; then the controls."""
    runs, one, half = _RUNS[length], PureDP.of(1), ZCDP.of("0.5")
    for budget in (one, half):
        selector = Selector(budget)
        subject = f"{selector.describe()}, frequencies"
        progress(subject)
        yield audit_selector(selector, budget, runs, randomness, subject)
    # Settings at which a given number of runs sees most of the loss.
    two, share, many = Fraction(2), Fraction(1, 4), _THRESHOLD_RUNS[length]
    tests: tuple[tuple[AboveThreshold, Questions, str], ...] = (
        (AboveThreshold(two, 1, share), AGAINST, "above-threshold, frequencies"),
        (AboveThreshold(two, 1, monotone=True), TOGETHER, "above-threshold (monotone), frequencies"),
    )
    for test, questions, subject in tests:
        progress(subject)
        yield audit_threshold(test, (questions,), many, randomness, subject)
    for budget in (one, half):
        selector = broken_quiet_selector(Selector(budget))
        subject = f"{selector.describe()} with 2/3 of the noise, frequencies"
        progress(f"control: {subject}")
        yield audit_selector(selector, budget, runs, randomness, subject, control=True)
    quiet = BrokenQuietThreshold(two, 1, share)
    fresh = BrokenFreshThreshold(two, 1, monotone=True)
    controls: tuple[tuple[AboveThreshold, Questions, str], ...] = (
        (quiet, AGAINST, "above-threshold with 2/3 of the noise, frequencies"),
        (fresh, TOGETHER, "above-threshold, fresh threshold noise, frequencies"),
    )
    for test, questions, subject in controls:
        progress(f"control: {subject}")
        yield audit_threshold(test, (questions,), many, randomness, subject, control=True)


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


def audit_threshold(
    test: AboveThreshold,
    questions: Sequence[Questions],
    runs: int,
    randomness: Randomness,
    subject: str,
    *,
    control: bool = False,
) -> AuditFinding:
    """A lower confidence bound on the loss of a whole run of an above-threshold test."""
    noise = _BufferedNoise(randomness)
    thresholds = {item.before: item.threshold for item in questions}
    thresholds |= {item.after: item.threshold for item in questions}

    def first_yes(values: Sequence[int]) -> NDArray[np.int64]:
        threshold = thresholds[tuple(values)]
        halts = (_first_yes(test, values, threshold, noise) for _ in range(runs))
        return np.fromiter(halts, np.int64, runs)

    pairs = [
        (
            item.before,
            item.after,
            f"{_short(item.before)} against {_short(item.after)}, threshold {item.threshold}",
        )
        for item in questions
    ]
    return audit_outcomes(first_yes, pairs, PureDP.of(test.epsilon), subject, control=control)


def _short(values: Sequence[int]) -> str:
    """Numbers as a text, in which repeated ones are counted.

    >>> _short((1, 1, 1, -1))
    'numbers 3 x 1, -1'
    """
    groups = [(value, len(list(same))) for value, same in itertools.groupby(values)]
    return "numbers " + ", ".join(f"{n} x {value}" if n > 1 else f"{value}" for value, n in groups)


class _BufferedNoise(SameWords):
    """Draws many values of a noise at a time, because single draws cost thirty times as much."""

    def __init__(self, inner: Randomness) -> None:
        super().__init__(inner)
        self._ready: dict[Noise, Iterator[int]] = {}

    def draw(self, noise: Noise, size: int) -> NDArray[np.int64]:
        """The next ``size`` values."""
        return np.array([self._next(noise) for _ in range(size)], dtype=np.int64)

    def _next(self, noise: Noise) -> int:
        value = next(self._ready.get(noise, iter(())), None)
        if value is None:
            self._ready[noise] = iter(super().draw(noise, _CHUNK).tolist())
            value = next(self._ready[noise])
        return value


def _first_yes(test: AboveThreshold, values: Sequence[int], threshold: int, randomness: Randomness) -> int:
    state = test.start(randomness)
    for number, value in enumerate(values):
        if test.ask(state, value, threshold, randomness):
            return number
    return len(values)


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
