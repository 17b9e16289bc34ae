"""How a stay's budget is shared, what an upper census measures, and how often departures are counted between censuses:
rules on public guesses, all fixed before step 1. Public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.privacy import Budget, HistogramsNoise, Record, noise_for
from dpstream.core.schema.domain import Clique, Domain
from dpstream.families.census.schedule import CensusSchedule, gap_of
from dpstream.mechanisms.joint_groups import draws, noise_of

#: What is tried for the departures; the first one that lets them be counted between censuses is taken, or the last.
_DEPARTURES = Fraction(1, 20), Fraction(1, 10)
#: Part of the budget for a census of level 1 that measures columns, which it does where their noise is such a part of a
#: cell, or less; on average.
_COLUMNS, _CLEAR = Fraction(1, 5), 1 / 8
#: The same where it measures nothing but the number of records: the first one is enough for noise that is such a part
#: of that number, or less.
_NUMBER, _ENOUGH = (Fraction(1, 10), Fraction(1, 5)), 1 / 20


@dataclass(frozen=True)
class Shares:
    """What is fixed before step 1.

    Attributes:
        departures, upper: as in ``Amounts``.
        measured: what a census of level 1 measures.
        wait: steps from one count of departures to the next; None: they are counted at censuses only.
    """

    departures: Fraction
    upper: Fraction
    measured: tuple[Clique, ...]
    wait: int | None


def choose_shares(
    domain: Domain,
    budget: Budget,
    unit: Record,
    schedule: CensusSchedule,
    turnover: Fraction | None,
    coming: int | None,
) -> Shares:
    """The shares of a plan.

    Args:
        turnover, coming: public guesses: in steps, and how many records come in a step; None: nobody guesses.
    """
    public, size = unit.relation == "replace", float(turnover or 0) * (coming or 0)
    upper, measured = Fraction(0), tuple[Clique, ...]([()])
    if schedule.levels > 1:
        if public or (size and _noise_of_cells(domain, budget.scaled(_COLUMNS), unit) <= _CLEAR * size):
            upper, measured = _COLUMNS, tuple((column,) for column in range(len(domain)))
        else:
            deviation = math.sqrt(noise_for(budget.scaled(_NUMBER[0]), 1, 1).variance)
            upper = _NUMBER[0] if deviation <= _ENOUGH * size else _NUMBER[1]
    if public:
        return Shares(Fraction(0), upper, measured, None)
    for departures in _DEPARTURES:
        wait = expected_wait(budget, departures, coming or 0, turnover)
        if wait is not None:
            break
    return Shares(departures, upper, measured, wait)


def _noise_of_cells(domain: Domain, budget: Budget, unit: Record) -> float:
    """The standard deviation of a column's cell times its cells, on average over the columns."""
    found = 0.0
    for group, share in draws(domain.sizes, budget, unit.counted):
        noise = noise_of(share, [domain.sizes[i] for i in group], unit.counted)
        variances = noise.variances if isinstance(noise, HistogramsNoise) else (noise.variance,)
        found += sum(domain.sizes[i] * math.sqrt(v) for i, v in zip(group, variances, strict=True))
    return found / len(domain)


# How often departures are counted: a rule on public guesses, so that step numbers alone say when.

#: From one count to the next as many records leave as so many standard deviations of the counts' noise: less is hardly
#: seen.
_PER_NOISE = 10.0
#: The noise that all counts from one census to the next add to the number of records, as a part of that number.
_MAX_NOISE = 1 / 200
#: Levels that have an open cohort most of the time.
_OPEN_LEVELS = 2
#: Censuses that come sooner than this need no counts between them.
_SHORT_GAP = 4


def expected_wait(budget: Budget, share: Fraction, leaving: float, turnover: Fraction | None) -> int | None:
    """Steps from one count of departures to the next; None: they are counted at censuses only.

    Args:
        budget, share: of a whole stay, and the part of it that a count of departures costs.
        leaving: a public guess, how many records leave in a step; 0: none.
        turnover: in steps; None: hardly any record leaves.
    """
    gap = gap_of(turnover)
    if gap is None or gap < _SHORT_GAP or leaving <= 0:
        return None
    assert turnover is not None, "there is a gap"
    noise = math.sqrt(_OPEN_LEVELS * noise_for(budget.scaled(share), 1, 1).variance)
    size = float(turnover) * leaving
    parts = min(gap // math.ceil(_PER_NOISE * noise / leaving), int((_MAX_NOISE * size / noise) ** 2))
    # In equal parts: a count just before a census would be mostly noise.
    return -(-gap // parts) if parts > 1 else None
