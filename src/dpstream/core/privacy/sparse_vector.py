"""The sparse vector technique: is a private number above a threshold yet?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import BudgetError, ConfigError, StoreDamagedError
from dpstream.core.privacy.noise import DiscreteLaplace
from dpstream.core.privacy.randomness import Randomness


@dataclass(frozen=True)
class AboveThreshold:
    """Asks any number of questions "is this number at least the threshold?"; pays for the first yes.

    Guarantee: pure DP with ``epsilon`` for the whole sequence of answers up to and with the first yes
    (after which it refuses), questions and thresholds chosen adaptively. Precondition (the caller's):
    questions are integers, for example counts on a public grid, and between neighbours each of them
    changes by at most ``sensitivity``.

    Budget: ``epsilon * threshold_share`` pays ONE noise for the threshold, drawn at the start and kept
    for the run (fresh threshold noise at each question, as some listings have it, breaks the proof);
    the rest pays the noise of the question that answers yes. Questions get fresh noise each.

    Constants, d = sensitivity, ``e1 + e2 = epsilon``: threshold noise of scale ``d / e1``; question noise of
    scale ``2 d / e2``. Proof sketch: fix the questions' noise before the last one. Between neighbours move
    the threshold noise up by d (costs ``exp(e1)``): every "no" stays "no", as its number rose by at most
    d. For the last question to stay "yes" its noise must make up for the moved threshold and for its own
    number, 2 d (costs ``exp(e2)``). All moves are integers, so the discrete Laplace is as good as the
    continuous one. ``monotone=True``: if between any two neighbours all questions move the same way
    (say counts under insertion of one record), either the threshold need not move or the last
    question's own change is in its favour; scale ``d / e2`` suffices. It must hold for every pair of
    neighbours and all questions of the run; under ``event-replace``, or with numbers that subtract
    counts, it does not.

    Varying sensitivity d_t: put every question on the grid on which its sensitivity is ``sensitivity``
    (multiply number and threshold by ``sensitivity / d_t``); this is the threshold ``T + eta / xi_t``.

    Reference: Dwork, Roth 2014, Theorem 3.23; Lyu, Su, Li 2017, Algorithm 7 and Theorem 4 (c = 1).

    >>> test = AboveThreshold(Fraction(50), sensitivity=1)
    >>> state = test.start(Randomness.system())
    >>> [test.ask(state, count, 1000, Randomness.system()) for count in (3, 4, 2000)]
    [False, False, True]
    """

    epsilon: Fraction
    sensitivity: int
    threshold_share: Fraction = Fraction(1, 2)
    monotone: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, (int, Fraction)) or self.epsilon <= 0:
            raise BudgetError("epsilon is not an exact positive number", where="above-threshold")
        if (
            isinstance(self.sensitivity, bool)
            or not isinstance(self.sensitivity, int)
            or self.sensitivity < 1
        ):
            raise ConfigError("the sensitivity is not a positive integer", where="above-threshold")
        if not isinstance(self.threshold_share, Fraction) or not 0 < self.threshold_share < 1:
            raise ConfigError(
                "the threshold's share is not a fraction between 0 and 1", where="above-threshold"
            )
        # Fails here, before any data, where a scale is out of range.
        _ = (self.threshold_noise, self.question_noise)

    @property
    def threshold_noise(self) -> DiscreteLaplace:
        """The noise of the threshold, drawn once per run."""
        return DiscreteLaplace(self.sensitivity / (Fraction(self.epsilon) * self.threshold_share))

    @property
    def question_noise(self) -> DiscreteLaplace:
        """The noise of each question."""
        moves = 1 if self.monotone else 2
        return DiscreteLaplace(
            moves * self.sensitivity / (Fraction(self.epsilon) * (1 - self.threshold_share))
        )

    def describe(self) -> str:
        """Budget and noise in words, for plans and manifests."""
        return (
            f"above-threshold test until the first yes, epsilon = {self.epsilon}: threshold with "
            f"{self.threshold_noise.describe()}, each question with {self.question_noise.describe()}"
        )

    def start(self, randomness: Randomness) -> dict[str, Any]:
        """The state of a new run, JSON-able. Secret: the threshold noise must not be known to readers."""
        noise = int(randomness.draw(self.threshold_noise, 1)[0])
        return {"format": 1, "threshold_noise": noise, "asked": 0, "halted": False}

    def ask(self, state: dict[str, Any], value: int, threshold: int, randomness: Randomness) -> bool:
        """Whether ``value`` plus noise reaches ``threshold`` plus the run's noise; halts the run if so.

        Args:
            state: from ``start``; changed in place.
            value: the private number, an integer of the stated sensitivity.
            threshold: public, or a function of earlier answers.
            randomness: the entropy.

        Errors: BudgetError once the run has halted; StoreDamagedError for a state that is not one.
        """
        if state.get("format") != 1 or state.keys() != {"format", "threshold_noise", "asked", "halted"}:
            raise StoreDamagedError(
                "this is not the state of an above-threshold run", where="above-threshold"
            )
        if state["halted"]:
            raise BudgetError("the test has answered yes and its budget is spent", where="above-threshold")
        noise = int(randomness.draw(self.question_noise, 1)[0])
        above = int(value) + noise >= int(threshold) + int(state["threshold_noise"])
        state["asked"] += 1
        state["halted"] = above
        return above

    def halting_probabilities(
        self, values: Sequence[int], thresholds: Sequence[int] | int
    ) -> NDArray[np.float64]:
        """Probability of the first yes at question 0, 1, ..., and (last) of no yes; for audits and tests.

        A sum over the threshold noise, cut where ``exp(-40)`` of it is left. Cost: questions times 80 scales.
        """
        limits = [thresholds] * len(values) if isinstance(thresholds, int) else list(thresholds)
        reach = int(40 * self.threshold_noise.scale) + 40
        shift = np.arange(-reach, reach + 1, dtype=np.int64)
        running = np.asarray(self.threshold_noise.pmf(shift), dtype=np.float64)
        result = []
        for value, limit in zip(values, limits, strict=True):
            above = _at_least(self.question_noise, limit - value + shift)
            result.append(float((running * above).sum()))
            running = running * (1.0 - above)
        return np.array([*result, float(running.sum())])


def _at_least(noise: DiscreteLaplace, k: NDArray[np.int64]) -> NDArray[np.float64]:
    """``Pr[noise >= k]``: ``q^k / (1 + q)`` for k >= 1, and ``1 - q^(1 - k) / (1 + q)`` for k <= 0."""
    rate = float(1 / noise.scale)
    tail = np.exp(-rate * np.where(k >= 1, k, 1 - k)) / (1.0 + np.exp(-rate))
    result: NDArray[np.float64] = np.where(k >= 1, tail, 1.0 - tail)
    return result
