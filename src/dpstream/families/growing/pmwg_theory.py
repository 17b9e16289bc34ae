"""What the theorems promise, and what public noise says about one answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpstream.families.growing.pmwg_noise import PowerNoise

#: ``exp(-2^(15/2))``-free form of the theorems' condition on beta; p = 1/2 under pure DP does without it.
_MOST_BETA = 2.0**-7.5


@dataclass(frozen=True)
class Promise:
    """What accuracy theory promises.

    Attributes:
        alpha: the smallest alpha for which the theorem holds; above 1 it promises nothing.
        holds: whether it holds for the alpha that was chosen.
        questions: how many questions there may be at the start size, at least; the number grows with t.
        words: all of that, for people.
    """

    alpha: float
    holds: bool
    questions: float
    words: str


def promise(
    noise: PowerNoise,
    alpha: Fraction,
    order: int,
    start: int,
    *,
    kappa: float,
    beta: float,
    published_half: bool,
    as_in_theory: bool,
) -> Promise:
    """Theorems 14, 17, 22 and 24 in one form: they need ``alpha c n^p >= 51 log(C kappa n/beta)``.

    Args:
        order: how ``c`` grows with alpha: 2 (pure) or 1 (zCDP). The smallest alpha that would do, run in the same way,
            follows.
        kappa, beta: factor of the number of questions; probability that the promise fails.
        as_in_theory: whether noise, learning and arrivals are those of the theorems.
        published_half: pure DP with p = 1/2: C = 192 and n >= 21; else C = 144, n >= 17 and beta < 2^-7.5.
    """
    constant, least = (192.0, 21) if published_half else (144.0, 17)
    given = float(alpha) * float(noise.c) * float(start) ** float(noise.p)
    wanted = 51 * math.log(constant * kappa * start / beta)
    smallest = float(alpha) * (wanted / given) ** (1 / (order + 1))
    allowed = start >= least and (published_half or beta < _MOST_BETA)
    holds = allowed and as_in_theory and given >= wanted
    questions = kappa * math.exp(min(700.0, given / 51))
    if not allowed:
        words = f"theory promises nothing: it needs start >= {least}" + (
            "" if published_half else f" and beta < {_MOST_BETA:.2g}"
        )
    elif not as_in_theory:
        words = "theory promises nothing: its noise, learning or arrivals are not what was chosen"
    elif smallest > 1:
        words = f"theory promises nothing here: its alpha would be {smallest:.3g}, above 1"
    elif not holds:
        words = f"theory promises nothing for alpha = {float(alpha):g}; it would from {smallest:.3g} on"
    else:
        words = (
            f"with probability {1 - beta:g} every answer is within {float(alpha):g}, for {questions:.3g} questions or "
            "more"
        )
    return Promise(smallest if allowed else math.inf, holds, questions, words)


def hard_half_width(xi: float, confidence: float) -> float:
    """A given number is within this of the truth: noise of scale ``8/xi``."""
    return 8 / xi * math.log(1 / (1 - confidence))


@lru_cache(maxsize=1024)
def easy_half_width(xi: float, threshold: float, confidence: float) -> float:
    """``f(y)`` is within this of the truth, or the question turns out hard: threshold, and both noises of the test.

    For a question that does not depend on earlier answers. ``Pr[Lap(4) + Lap(2) > s] = (16 e^(-s/4) - 4 e^(-s/2))/24``,
    in units of ``1/xi``.
    """
    wrong = 1 - confidence
    low, high = 0.0, 4 * math.log(2 / wrong) + 8
    for _ in range(60):
        middle = (low + high) / 2
        tail = (16 * math.exp(-middle / 4) - 4 * math.exp(-middle / 2)) / 24
        low, high = (middle, high) if tail > wrong else (low, middle)
    return threshold + high / xi
