"""The public histogram of PMWG: what it learns from answers, and what a step gives of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpstream.families.growing.growing_facts import TableSynthesis

if TYPE_CHECKING:
    pass

#: A query's values are whole numbers of ``2^-WEIGHT_BITS``: private sums of them are exact integers.
WEIGHT_BITS = 20
#: Weights are kept above 0: the smallest normal number is near 1e-308.
_MIN_WEIGHT = 1e-300
#: The largest slope that ``matched`` tries; values closer than 1/40 of it cannot be told apart any more.
_STEEPEST_SLOPE = 1e4


def mixed(y: NDArray[np.float64], since: int, t: int) -> None:
    """``y <- (t'/t) y + ((t - t')/t)/N`` in place: what arrived since is taken to be uniform."""
    y *= since / t
    y += (t - since) / t / len(y)


def multiplied(y: NDArray[np.float64], weights: NDArray[np.int64], *, down: bool, rate: float) -> None:
    """``y ~ exp(-rate r) y`` in place, ``r`` the query (``down``) or 1 minus it. Linear in N, vectorised."""
    # exp(-rate (1 - f)) and exp(rate f) differ by a constant, which the sum takes out.
    y *= np.exp(weights * ((-rate if down else rate) / 2**WEIGHT_BITS))
    np.maximum(y, _MIN_WEIGHT * y.max(), out=y)
    y /= y.sum()


def matched(y: NDArray[np.float64], weights: NDArray[np.int64], answer: float, margin: float) -> None:
    """The distribution nearest to ``y`` (relative entropy) that gives ``answer`` to the query, in place.

    It is ``y ~ exp(s f) y`` for one ``s``, found by bisection, which the answer's being public allows.

    Args:
        margin: the answer is taken at least so far inside of what the query can give at all.
    """
    values, places = np.unique(weights, return_inverse=True)
    shares, f = np.bincount(places, y), values / 2**WEIGHT_BITS
    if len(f) == 1:
        return
    wanted = min(max(answer, f[0] + margin * (f[-1] - f[0])), f[-1] - margin * (f[-1] - f[0]))
    low, high = -_STEEPEST_SLOPE, _STEEPEST_SLOPE
    for _ in range(60):
        middle = (low + high) / 2
        tilted = shares * np.exp(middle * (f - (f[-1] if middle > 0 else f[0])))
        low, high = (middle, high) if tilted @ f < wanted * tilted.sum() else (low, middle)
    y *= np.exp(low * (f - (f[-1] if low > 0 else f[0])))[places]
    # What is left may be as small as the floor: relative to it, another floor would be 0, and nothing comes back.
    y /= y.max()
    np.maximum(y, _MIN_WEIGHT, out=y)
    y /= y.sum()


@dataclass(frozen=True)
class HistogramSynthesis(TableSynthesis):
    """``y`` as a step gives it: what the answers so far have taught, as a table. Public."""

    def accuracy(self) -> dict[str, Any]:
        """What the manifest says."""
        return {
            "total_standard_error": 0.0,
            "measured_every_step": {"standard_error": None, "marginals": []},
        }
