"""What the theorems promise of PMWG's answers, and what public noise says about one answer. No cost rests on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dpstream.families.growing.pmwg_noise import RootNoise


@lru_cache(maxsize=1024)
def hard_limit(alpha: float, start: int, cells: int, t: int) -> int:
    """How many hard questions there may be up to time t: ``36/alpha^2 (log N + sum_(n < tau <= t) b_tau)``, rounded
    down.

    A limit for accuracy (Corollary 16): what is spent is charged besides, and exactly. ``b_tau = log N/tau +
    log(tau - 1)/tau + log(tau/(tau - 1))``; the two harmonic-like sums by Euler-Maclaurin, without a step per arrival.
    """
    if t <= start:
        inside = math.log(cells)
    else:
        grown = _harmonic(t) - _harmonic(start)
        inside = math.log(cells) * (1 + grown) + _logs(t) - _logs(start) + math.log(t / start)
    return math.floor(36 / alpha**2 * inside)


def _harmonic(t: int) -> float:
    """``1 + 1/2 + ... + 1/t`` up to a constant; off by less than 1e-6 from t = 5 on."""
    return math.log(t) + 1 / (2 * t) - 1 / (12 * t * t)


def _logs(t: int) -> float:
    """``sum_(tau <= t) log(tau - 1)/tau`` up to a constant; the summand's integral, with its expansion in 1/t.

    ``log(x - 1)/x`` integrates to ``log(x)^2/2 + Li_2(1/x)``; Euler-Maclaurin adds half the summand.
    """
    x = 1 / t
    dilogarithm = sum(x**k / k**2 for k in range(1, 30))
    slope = x / (t - 1) - math.log(t - 1) * x * x
    return math.log(t) ** 2 / 2 + dilogarithm + math.log(t - 1) * x / 2 + slope / 12


#: The probability that the theorems' promise may fail, which their condition for zCDP wants below 2^-7.5.
_BETA = 0.001


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


def promise(noise: RootNoise, alpha: Fraction, start: int, *, pure: bool, as_in_theory: bool) -> Promise:
    """Theorems 14 (pure) and 17 (zCDP) in one form: they need ``alpha c n^(1/2) >= 51 log(C n/beta)``.

    Args:
        as_in_theory: whether noise and learning are those of the theorems.
        pure: C = 192 and n >= 21; else C = 144 and n >= 17. ``c`` grows with the square of alpha, else with alpha: the
            smallest alpha that would do, run in the same way, follows.
    """
    constant, least, order = (192.0, 21, 2) if pure else (144.0, 17, 1)
    given = float(alpha) * float(noise.c) * float(start) ** 0.5
    wanted = 51 * math.log(constant * start / _BETA)
    smallest = float(alpha) * (wanted / given) ** (1 / (order + 1))
    allowed = start >= least
    holds = allowed and as_in_theory and given >= wanted
    questions = math.exp(min(700.0, given / 51))
    if not allowed:
        words = f"theory promises nothing: it needs start >= {least}"
    elif not as_in_theory:
        words = "no error bound is known for this combination of noise and learning"
    elif smallest > 1:
        words = f"theory promises nothing here: its alpha would be {smallest:.3g}, above 1"
    elif not holds:
        words = f"theory promises nothing for alpha = {float(alpha):g}; it would from {smallest:.3g} on"
    else:
        words = (
            f"with probability {1 - _BETA:g} every answer is within {float(alpha):g}, for {questions:.3g} questions or "
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
