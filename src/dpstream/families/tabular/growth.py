"""What the open epoch lets expect: how a table goes on as it went. Public: it reads what closed epochs gave."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Ahead:
    """What the open epoch lets expect, from its first step up to each further one: sums over steps. Public.

    Attributes:
        events: of each side, shape (sides, steps).
        columns: of the inserts (or all events), the counts of all columns side by side: shape (steps, cells).
    """

    events: NDArray[np.float64]
    columns: NDArray[np.float64]

    def growth(self, since: int) -> float:
        """Of the table, in so many steps."""
        first, *others = self.events[:, since - 1].tolist()
        return float(first - sum(others))


def clear_part(growth: Any, variance: float) -> NDArray[np.float64]:
    """What of a noisy growth is expected to go on: nothing below two standard errors, nearly all of it far above."""
    growth = np.asarray(growth, dtype=np.float64)
    within = growth**2 <= 4.0 * variance
    return np.where(within, 0.0, growth - 4.0 * variance / np.where(within, 1.0, growth))


def growth_error(growth: float, newest: float, share: float) -> tuple[float, float]:
    """The variance that an expected growth adds to a total, and the part of the growth that is expected on average.

    The noise is taken to be normal; it is in the total and, ``share`` of it, in the growth.

    Args:
        growth: the true one. newest: the variance of the noise in the newest epoch's number.
        share: steps since the border, by those of the newest epoch.
    """
    deviations = np.linspace(-6.0, 6.0, 481)
    chances = np.exp(-(deviations**2) / 2)
    chances /= chances.sum()
    noise = deviations * math.sqrt(newest)
    kept = clear_part(growth + share * noise, share**2 * newest)
    added = float(chances @ (noise + kept - growth) ** 2) - newest
    went_on = float(chances @ kept) / growth if growth else 0.0
    return max(added, 0.0), min(1.0, max(0.0, went_on))
