"""From scores to guesses, and from right guesses to a loss that is proved.

Each member is there by the toss of a coin. If one record costs at most epsilon, then whatever was released, and
whatever is known of the other coins, it was there with odds of ``e^epsilon : 1`` at most. So the number of right ones
among ``r`` guesses is, in any run with any number of members, at most what ``r`` tosses of a coin with ``p =
e^epsilon / (1 + e^epsilon)`` give (Steinke, Nasr, Jagielski 2023), and the lower Clopper-Pearson limit of the share
of right guesses is one of ``p``. Who guesses need not guess always. Of ``k`` values that are alike before: ``p = e^c
/ (e^c + k - 1)``, where ``c`` is what a changed value costs.

With (epsilon, delta) the number may be larger with probability ``2 m delta``, for ``m`` coins (their Theorem 5.2, more
roughly). zCDP is judged at a delta that is so small that this is half of the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.privacy import ZCDP, Budget, group, zcdp_to_delta, zcdp_to_epsilon
from dpstream.lab.audits.loss_bounds import clopper_pearson
from dpstream.tools.evaluate.array_types import Floats

#: The probability that chance alone accuses one honest attack's subject.
ERROR = 1e-7
#: Shares of all targets about which something is guessed.
_SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
#: The errors of the limits that choose among these: what proves most, and of equals what would with more runs.
_CHOOSING = (ERROR, 0.001)


@dataclass(frozen=True)
class Guesses:
    """Guesses that were judged.

    Attributes:
        right: how many were right, of ``made``. asked: about how many targets something could have been guessed.
        values: among how many possibilities.
        curve: false and true positive rates of members, from all scores; empty for values.
    """

    right: int
    made: int
    asked: int
    values: int = 2
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def share(self) -> float:
        """Of right guesses; by chance, where none were made."""
        return self.right / self.made if self.made else 1 / self.values

    def lower(self, error: float) -> float:
        """The lower limit of what the share could be."""
        return float(clopper_pearson(self.right, self.made, error)[0]) if self.made else 0.0

    def proved(self, error: float) -> float:
        """The loss of a changed value (of members: of a record) that is proved."""
        low = self.lower(error)
        if low <= 1 / self.values:
            return 0.0
        return math.log(low * (self.values - 1) / (1 - low))

    def hopes(self) -> tuple[float, ...]:
        """What shadow runs would prove: by this thresholds are chosen."""
        return tuple(self.proved(error) for error in _CHOOSING)

    def interval(self) -> tuple[float, float]:
        """The exact limits of 95 % of the share of right guesses."""
        if not self.made:
            return 0.0, 1.0
        low, high = clopper_pearson(self.right, self.made, 0.025)
        return float(low), float(high)


def claimed_loss(budget: Budget, coins: int, *, two: bool) -> tuple[float, float]:
    """The epsilon that is claimed, and the error that is left for the guesses.

    Args:
        coins: how many targets there are in all runs that are judged.
        two: a changed value is a removal and an insertion.
    """
    whole = group(budget, 2) if two else budget
    if isinstance(whole, ZCDP):
        return zcdp_to_epsilon(whole, f"{ERROR / (4 * max(1, coins)):.20f}"), ERROR / 2
    return float(whole.epsilon), ERROR


def needed_guesses(epsilon: float, error: float) -> int:
    """So many guesses, all of them right, prove a loss above ``epsilon``."""
    return math.ceil(math.log(1 / error) / math.log1p(math.exp(-epsilon)))


def guess_members(
    taught: Floats, there: NDArray[np.bool_], asked: Floats, truth: NDArray[np.bool_]
) -> Guesses:
    """Thresholds are chosen on scores of shadow runs (made by what was learnt on others of them), and judged on
    others."""
    best: tuple[float, ...] = (-1.0,)
    chosen = (-math.inf, math.inf)
    for share in _SHARES:
        for low, high in (
            (np.quantile(taught, share / 2), np.quantile(taught, 1 - share / 2)),
            (-math.inf, np.quantile(taught, 1 - share / 2)),
            (np.quantile(taught, share / 2), math.inf),
        ):
            right, made = _counted(taught, there, float(low), float(high))
            value = Guesses(right, made, taught.size).hopes()
            if value > best:
                best, chosen = value, (float(low), float(high))
    right, made = _counted(asked, truth, *chosen)
    return Guesses(right, made, asked.size, 2, _curve(asked, truth))


def _counted(scores: Floats, there: NDArray[np.bool_], low: float, high: float) -> tuple[int, int]:
    """Right guesses, and all: there from ``high`` on, not there up to ``low``. Both: a score that says nothing."""
    said_there, said_not = scores >= high, scores <= low
    both = said_there & said_not
    said_there, said_not = said_there & ~both, said_not & ~both
    return int((said_there & there).sum() + (said_not & ~there).sum()), int((said_there | said_not).sum())


def _curve(scores: Floats, there: NDArray[np.bool_]) -> tuple[tuple[float, float], ...]:
    """False and true positive rates at the thresholds, 40 points at most."""
    own, others = np.sort(scores[there]), np.sort(scores[~there])
    if not len(own) or not len(others):
        return ()
    levels = np.unique(np.quantile(scores, np.linspace(0, 1, 40)))
    true = 1 - np.searchsorted(own, levels) / len(own)
    false = 1 - np.searchsorted(others, levels) / len(others)
    return tuple((round(float(f), 4), round(float(t), 4)) for f, t in zip(false, true, strict=True))


def guess_values(
    taught: Floats, drawn: NDArray[np.int64], asked: Floats, truth: NDArray[np.int64]
) -> Guesses:
    """As for members, of values: the one with the highest score, where it leads by enough."""
    values = asked.shape[2]
    lead, first = _leads(taught)
    best: tuple[float, ...] = (-1.0,)
    least = 0.0
    for share in _SHARES:
        edge = float(np.quantile(lead, 1 - share))
        made = lead >= edge
        value = Guesses(int((made & (first == drawn)).sum()), int(made.sum()), lead.size, values)
        if (found := value.hopes()) > best:
            best, least = found, edge
    lead, first = _leads(asked)
    made = lead >= least
    return Guesses(int((made & (first == truth)).sum()), int(made.sum()), lead.size, values)


def _leads(scores: Floats) -> tuple[Floats, NDArray[np.int64]]:
    ordered = np.sort(scores, axis=2)
    return ordered[:, :, -1] - ordered[:, :, -2], scores.argmax(axis=2)


def region(budget: Budget, rates: Sequence[float]) -> list[float]:
    """The largest true positive rate that a budget allows at each false positive rate."""
    if isinstance(budget, ZCDP):
        rho = float(budget.rho)
        levels = [
            (e, zcdp_to_delta(budget, f"{e:.9f}")) for e in np.linspace(0.001, rho + 8 * math.sqrt(rho), 60)
        ]
    else:
        levels = [(float(budget.epsilon), 0.0)]
    return [
        min(
            1.0,
            *(min(math.exp(e) * f + d, 1 - math.exp(-e) * (1 - d - f)) for e, d in levels),
        )
        for f in rates
    ]
