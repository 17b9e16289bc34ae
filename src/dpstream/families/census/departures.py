"""How often departures are counted: a rule on public guesses, so that step numbers alone say when."""

from __future__ import annotations

import math
from fractions import Fraction

from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.noise import noise_for
from dpstream.families.census.census_schedule import gap_of

#: From one count to the next as many records leave as so many standard deviations of the counts' noise: less is hardly
#: seen.
_PER_NOISE = 10.0
#: The noise that all counts from one census to the next add to the number of records, as a part of that number.
_LARGEST_NOISE = 1 / 200
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
    parts = min(gap // math.ceil(_PER_NOISE * noise / leaving), int((_LARGEST_NOISE * size / noise) ** 2))
    # In equal parts: a count just before a census would be mostly noise.
    return -(-gap // parts) if parts > 1 else None
