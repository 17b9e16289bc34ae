"""How the budget of a stay is shared: exact amounts, all fixed before step 1."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.noise import Noise, noise_for

#: Of two levels, the lower one gets so much of what the departures leave.
_LOWER_OF_TWO = Fraction(2, 3)


@dataclass(frozen=True)
class Amounts:
    """What a stay pays for: one census of each level, and one count of departures.

    Guarantee: all amounts that ``of_level`` gives, and the one of the departures, add up to ``budget`` or less.

    Args:
        departures: share of the departures; 0 where presence is public.
        levels: how many levels there can be; None: no end. Then each gets half of what the levels below left.
        series: whether the shares halve from level to level, the last of a known number getting what is left.
    """

    budget: Budget
    departures: Fraction
    levels: int | None
    series: bool

    @property
    def of_departures(self) -> Budget:
        """Of one count."""
        return self.budget.scaled(self.departures)

    def of_level(self, level: int) -> Budget:
        """Of one census."""
        return self.budget.scaled((1 - self.departures) * self.share(level))

    def share(self, level: int) -> Fraction:
        """A level's share of what the departures leave."""
        if self.levels == 1:
            return Fraction(1)
        if self.series:
            halvings = level + 1 if self.levels is None or level < self.levels - 1 else level
            return Fraction(1, 2**halvings)
        return _LOWER_OF_TWO if level == 0 else 1 - _LOWER_OF_TWO

    def beyond(self, level: int) -> Budget:
        """What all levels from this one on have together."""
        return self.budget.scaled(
            (1 - self.departures) * (1 - sum((self.share(g) for g in range(level)), Fraction(0)))
        )

    @property
    def departure_noise(self) -> Noise | None:
        """Of one count of one level: one stay changes one of all counts, by 1. None: presence is public."""
        return None if not self.departures else noise_for(self.of_departures, 1, 1)
