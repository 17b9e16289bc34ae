"""Borders of epochs: a rule in step numbers. Public by construction: it knows no batch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Epochs"]


@dataclass(frozen=True)
class Epochs:
    """Epochs that grow in proportion to the steps so far.

    After a border at step ``c`` the next one is at the last step at which the open epoch holds more than ``staleness``
    of all steps: ``floor(c / (1 - staleness)) + 1``, so that at any step the steps not yet measured are at most
    that share of all steps, or a single one. The stream's last step is a border, too.

    >>> epochs, border, borders = Epochs(Fraction(1, 10), 40), 0, []
    >>> while border < 40:
    ...     border = epochs.after(border)
    ...     borders.append(border)
    >>> borders
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 19, 22, 25, 28, 32, 36, 40]
    """

    staleness: Fraction
    horizon: int | None

    def after(self, border: int) -> int:
        """The first border after one (0: before the first step)."""
        following = int(border // (1 - self.staleness)) + 1
        return following if self.horizon is None else min(following, self.horizon)

    def around(self, step: int) -> tuple[int, int]:
        """The last border up to a step (0 before the first), and the one after it."""
        last, following = 0, self.after(0)
        while following <= step and last != self.horizon:
            last, following = following, self.after(following)
        return last, following
