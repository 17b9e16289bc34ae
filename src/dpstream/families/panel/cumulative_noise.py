"""The counters of a cumulative panel: which ones, and what one person's history costs there.

Everything here is public: it depends on numbers of ticks, names and the relation only.

Trusted base: kernel (what a person's history costs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpstream.core.counters import CalibratedCounter, best, counter_by_name
from dpstream.core.counters.counter import MAX_NOISE_SCALE, LinearMap
from dpstream.core.errors import ConfigError, LimitError
from dpstream.core.privacy.budget import ZCDP
from dpstream.core.privacy.noise import DiscreteGaussian, noise_for
from dpstream.core.privacy.unit import Event, Individual
from dpstream.families.panel.people_facts import PeopleFacts

#: At this budget all noise is so large that variances are in proportion to one over the budget.
_SMALL_BUDGET = ZCDP(Fraction(1, 1000))
#: A counter that is later in the list of names is chosen only if it is better by this part.
_BETTER_BY = 0.01
#: Up to this number of ticks the worst moved change is searched for in the matrix; beyond it, twice is charged.
_MAX_SEARCHED_TICKS = 512
_REMEMBERED = 8192


@lru_cache(maxsize=_REMEMBERED)
def chosen_counter(ticks: int, unit: Individual) -> str:
    """The counter with the smallest error; public: it depends on the number of ticks and the relation only."""
    choice = best(_SMALL_BUDGET, Event(), horizon=ticks)
    if unit.relation == "add-remove":
        return choice.name
    chosen, least = choice.name, choice.deviation**2 * float(person_factor(choice.name, ticks, unit))
    for other in choice.candidates:
        # A factor is 1 at least: most candidates are out without looking at their matrices.
        if other.deviation is None or other.deviation**2 >= (1 - _BETTER_BY) * least:
            continue
        error = other.deviation**2 * float(person_factor(other.name, ticks, unit))
        if error < (1 - _BETTER_BY) * least:
            chosen, least = other.name, error
    return chosen


@lru_cache(maxsize=_REMEMBERED)
def spread(name: str, ticks: int) -> float:
    """Sum of the variances over all ticks."""
    counter = counter_by_name(name, horizon=ticks).calibrate(_SMALL_BUDGET, Event())
    return math.fsum(counter.variance(t) for t in range(1, ticks + 1))


@lru_cache(maxsize=_REMEMBERED)
def person_factor(name: str, ticks: int, unit: Individual) -> Fraction:
    """How many times the cost of one changed increment one person has: from the counter's own matrix.

    A replaced person has at most twice, where no entry of the matrix is negative (as in all counters by name).
    """
    if unit.relation == "add-remove":
        return Fraction(1)
    if ticks > _MAX_SEARCHED_TICKS:
        return Fraction(2)
    counter = counter_by_name(name, horizon=ticks).calibrate(_SMALL_BUDGET, Event())
    return max(Fraction(1), moved_loss(counter.materialize(ticks)) / _SMALL_BUDGET.rho)


def moved_loss(linear: LinearMap) -> Fraction:
    """The worst loss (rho) of an increment that falls by 1 while another one rises by 1, or of either alone; exact."""
    if not all(isinstance(noise, DiscreteGaussian) for noise in linear.scales):
        raise ConfigError("a counter's noise is not Gaussian", where="panel", allowed="counters for zCDP")
    each = [1 / (2 * noise.sigma_squared) for noise in linear.scales if isinstance(noise, DiscreteGaussian)]
    common = math.lcm(*(loss.denominator for loss in each))
    ticks = linear.encoder.shape[1]
    total, alone = np.zeros((ticks, ticks), dtype=object), np.zeros(ticks, dtype=object)
    for loss in set(each):
        part = linear.encoder[[i for i, one in enumerate(each) if one == loss]]
        # Whole numbers below 2^53 are exact as floats, whose product is far quicker than that of integers.
        exact = np.float64 if 4 * int(np.abs(part).max()) ** 2 * len(part) < 2**53 else object
        part = part.astype(exact)
        squares = (part**2).sum(axis=0)
        distance = squares[:, None] + squares[None, :] - 2 * (part.T @ part)
        total += _whole(distance) * int(loss * common)
        alone += _whole(squares) * int(loss * common)
    return Fraction(int(max(total.max(), alone.max())), common)


def _whole(values: NDArray[Any]) -> NDArray[Any]:
    """The same as Python's integers."""
    return values if values.dtype == object else values.astype(np.int64).astype(object)


def proxies(counter: CalibratedCounter, rho: Fraction, ticks: int) -> NDArray[np.float64]:
    """Variance proxy of each estimate: how wide a Gaussian is that has heavier tails.

    It is the variance itself where every ``sigma^2`` is 4 or more, which a budget up to 1/8 makes sure of; narrow
    discrete Gaussians have a smaller variance than ``sigma^2``, and tails like it.
    """
    if rho <= Fraction(1, 8):
        return np.array([counter.variance(t) for t in range(1, ticks + 1)])
    linear = counter.materialize(ticks)
    squares = [float(noise.sigma_squared) for noise in linear.scales if isinstance(noise, DiscreteGaussian)]
    result: NDArray[np.float64] = linear.decoder.astype(np.float64) ** 2 @ np.array(squares)
    return result


#: How the budget is shared among the thresholds: by the error it causes, or as in the text.
Split = Literal["error", "levels"]
#: Share of the budget for the number of people, where it is private.
_TOTAL_SHARE = Fraction(1, 20)


@lru_cache(maxsize=16)
def calibrated_counters(
    periods: int, largest: int, counter: str, split: Split, budget: ZCDP, unit: Individual
) -> dict[str, Any]:
    """The noise with which all releases together cost one person's whole history the budget: ``total``, ``shares`` and
    ``counters`` of a ``CumulativePlan``. Remembered: choosing counters for hundreds of thresholds takes seconds.

    A person who is added or removed changes one increment of a threshold's counter by 1. One who is replaced changes
    two (the period at which the threshold is reached moves), so the cost of one change is that of the worst pair.

    Errors:
        BudgetError: an amount that cannot be used. LimitError: a threshold's share is too small for 64-bit sums.
    """
    total = budget.scaled(_TOTAL_SHARE) if unit.relation == "add-remove" else None
    left = budget.rho - (total.rho if total else 0)
    ticks = range(periods, periods - largest, -1)
    names = [chosen_counter(n, unit) if counter == "best" else counter for n in ticks]
    factors = [person_factor(name, n, unit) for name, n in zip(names, ticks, strict=True)]
    if split == "levels":
        weights = [Fraction(n.bit_length() ** 3) for n in ticks]
    else:
        # A variance is in proportion to one over its share, so square roots make the sum of variances the smallest.
        difficulties = (
            spread(name, n) * float(factor) for name, n, factor in zip(names, ticks, factors, strict=True)
        )
        weights = [Fraction(f"{difficulty**0.5:.6g}") for difficulty in difficulties]
    shares = tuple(left * weight / sum(weights) for weight in weights)
    counters = tuple(
        counter_by_name(name, horizon=n).calibrate(ZCDP(share).scaled(1 / factor), Event())
        for name, n, share, factor in zip(names, ticks, shares, factors, strict=True)
    )
    # The number of people may have the smallest budget of all: its noise has to fit, too.
    if total is not None and noise_for(total, 1, 1).variance > MAX_NOISE_SCALE**2:
        raise LimitError(
            f"a budget of {budget} needs noise that does not fit 64-bit sums",
            where="panel",
            allowed="a larger rho",
        )
    return {"total": total, "shares": shares, "counters": counters}


@dataclass(frozen=True)
class CumulativeNoise(PeopleFacts):
    """The noise of a calibrated cumulative synthesizer; see ``CumulativePlan``."""

    counted: tuple[int, ...]
    split: Split
    total: ZCDP | None
    shares: tuple[Fraction, ...]
    counters: tuple[CalibratedCounter, ...]
    name = "panel-cumulative"
    so_far = True

    @cached_property
    def total_noise(self) -> DiscreteGaussian | None:
        """The noise of the number of people, where it is private."""
        if self.total is None:
            return None
        noise = noise_for(self.total, 1, 1)
        assert isinstance(noise, DiscreteGaussian)
        return noise
