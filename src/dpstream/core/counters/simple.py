"""The simple counter: fresh noise on every increment (Chan, Shi and Song 2010, "Simple Counting II")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from dpstream.core.counters.intervals import Interval, IntervalCounter

_EACH = Interval(None, Fraction(1))


@dataclass(frozen=True)
class SimpleCounter(IntervalCounter):
    """Add noise of the full budget to every increment and sum up.

    Guarantee: each increment is in one noisy sum, so one share. No horizon.
    Error after ``t`` ticks: standard deviation ``sqrt(2 t)/epsilon`` (pure, add/remove), ``O(sqrt t)``.
    Memory: two arrays; the state holds nothing but the last released estimate and the clock.
    Best for a few ticks: hard to beat below about 10.
    """

    name = "simple"
    open_levels = 0  # everything settles at once
    smallest_share = _EACH.share

    def describe(self) -> str:
        """The rule in one sentence."""
        return "simple counter: fresh noise on every increment"

    def interval(self, t: int) -> Interval:
        """Each tick is an interval of its own."""
        return _EACH

    def tiling(self, t: int) -> Iterator[tuple[Fraction, int]]:
        """``t`` intervals of the full share."""
        yield _EACH.share, t
