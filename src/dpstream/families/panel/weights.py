"""Weights of the synthetic people of one period, which take the padding out of weighted sums. All of it public.

Padding is invented people in known numbers: so many in every pattern of the window that ends with a period, or so many
who have had nothing so far. People who are alike in that share it: each of ``c`` of them has the weight
``1 - padding / c``, so that together they weigh ``c - padding``, which is the debiased count. It is negative where the
count is. Where ``c`` is 0 nobody carries the ``-padding``, and sums over such people are too large by it; it takes a
count that is wrong by at least the padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What readers of a table are told first.
WEIGHING = (
    "The rows hold padding (invented people) and are to be weighted: the sum of a period's weights over the synthetic "
    "people whom a question counts is its answer, without padding. A weight holds for questions that end with its "
    "period, and may be negative."
)


@dataclass(frozen=True)
class Weights:
    """The weights of a period.

    Attributes:
        values: one for each synthetic person, in their order.
        lost: how many invented people no weight takes out, because nobody is there to carry it.
    """

    values: NDArray[np.float64]
    lost: int

    def facts(self, column: str) -> dict[str, Any]:
        """For the manifest; JSON-able."""
        return {
            "column": column,
            "smallest": float(self.values.min()) if len(self.values) else None,
            "negative": int((self.values < 0).sum()),
            "padding_left": self.lost,
        }

    def describe(self, column: str) -> str:
        """What the manifest says first."""
        negative = int((self.values < 0).sum())
        words = f"{WEIGHING} Those of this period are in {column}; "
        words += f"{negative} of them are negative. " if negative else "none is negative. "
        if self.lost:
            words += (
                f"Nobody is there to carry the weight of {self.lost} of the invented people: sums over such people are "
                "too large by up to so many. "
            )
        return words


def window_weights(history: NDArray[np.uint8], window: int, symbols: int, padding: int) -> Weights:
    """Weights of the last period of a fixed window's people.

    Args:
        history: symbols, shape (people, periods), of at least ``window`` periods.
        padding: invented people of each pattern.
    """
    patterns = np.zeros(len(history), np.int64)
    for period in range(history.shape[1] - window, history.shape[1]):
        patterns = patterns * symbols + history[:, period]
    return _shared(patterns, np.full(symbols**window, padding, np.int64))


def zero_weights(history: NDArray[np.uint8], padding: int) -> Weights:
    """Weights of the last period of people of whom ``padding`` invented ones have only zeros."""
    return _shared(np.asarray(history.any(axis=1), np.int64), np.array([padding, 0], np.int64))


def _shared(groups: NDArray[np.int64], padding: NDArray[np.int64]) -> Weights:
    """Each group's padding, shared by those who are in it."""
    people = np.bincount(groups, minlength=len(padding))
    each = (people - padding) / np.maximum(people, 1)
    return Weights(each[groups], int(padding[people == 0].sum()))
