"""Borders of epochs: a rule in step numbers. Public by construction: it knows no batch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Epochs:
    """Epochs that grow in proportion to the steps so far.

    After a border at step ``c`` the next one is at the last step at which the open epoch holds more than ``staleness``
    of all steps: ``floor(c / (1 - staleness)) + 1``, so that at any step the steps not yet measured are at most
    that share of all steps, or a single one. The stream's last step is a border, too: the horizon's, and the last one
    that the owner plans (``last``), which may be moved, also after a stream has passed it.

    >>> epochs, border, borders = Epochs(Fraction(1, 10), 40), 0, []
    >>> while border < 40:
    ...     border = epochs.after(border)
    ...     borders.append(border)
    >>> borders
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 32, 36, 40]
    """

    staleness: Fraction
    horizon: int | None
    last: int | None = None

    def after(self, border: int) -> int:
        """The first border after one (0: before the first step)."""
        following = int(border // (1 - self.staleness)) + 1
        if self.last is not None and border < self.last:
            following = min(following, self.last)
        return following if self.horizon is None else min(following, self.horizon)
