"""What bounds on a user's events would leave out of private records: for the owner who chooses one.

Trusted base: owner (shows the owner counts of private records).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

#: A bound is shown that leaves so many of a hundred users whole.
PERCENTILES = (90, 95, 99)
_OUTSIDE = 'a bound read off these lines is outside the guarantee: write max_events_from = "data"'


def bound_sentences(events: Iterable[int], chosen: int | None = None, whose: str = "users") -> list[str]:
    """What bounds at percentiles of users leave out, and what noise they cost; empty without users. Private.

    Args:
        events: how many events each user has, or ``whose`` events they are.
        chosen: another bound, of the file.

    A bound of m divides the budget of each event by m (pure) or m^2 (zCDP): in both cases noise is m times as wide.
    """
    ascending = sorted(events)
    if not ascending:
        return []
    names = {chosen: ["this file"]} if chosen is not None else {}
    for percent in PERCENTILES:
        bound = ascending[math.ceil(len(ascending) * percent / 100) - 1]
        names.setdefault(bound, []).append(f"{percent}th percentile of {whose}")
    sentences = [_leaves_out(bound, ascending, ", ".join(which)) for bound, which in sorted(names.items())]
    return [*sentences, _OUTSIDE]


def yearly_sentence(events: Iterable[int]) -> str:
    """The same of the 95th percentile of users in a year, where the bound counts anew each year. Private.

    Args:
        events: how many events each user has in each year with one.
    """
    ascending = sorted(events)
    bound = ascending[math.ceil(len(ascending) * 95 / 100) - 1]
    return f'with per = "year", {_leaves_out(bound, ascending, "95th percentile of users in a year")}'


def _leaves_out(bound: int, events: Sequence[int], about: str) -> str:
    lost = _percent(sum(max(0, number - bound) for number in events) / sum(events))
    return f"a bound of {bound} ({about}) leaves out {lost} of the events, at {bound} times the noise"


def _percent(share: float) -> str:
    """
    >>> _percent(0.1207), _percent(0.0), _percent(0.0004)
    ('12.1 %', '0 %', 'under 0.1 %')
    """
    return "under 0.1 %" if 0 < share < 0.001 else f"{100 * share:.3g} %"
