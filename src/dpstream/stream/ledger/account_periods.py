"""What streams cost a user's records of one public period, by the records' own time: accounts with ``per``.

Guarantee: a stream costs a period of the account ``n`` times its budget (``n^2`` under zCDP), if the records of that
period, and what becomes of them later, can be in ``n`` of the stream's periods. Periods of one stream do not add up.
Proof: docs/theory/composition-over-streams.md.

Trusted base: kernel (what streams cost together).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dpstream.core.errors import ConfigError, UnitError
from dpstream.core.privacy.budget import Budget
from dpstream.core.privacy.convert import group
from dpstream.io.sources.calendar import CalendarPeriods, period_grid
from dpstream.stream.ledger.limit import Total, compose

#: Of the periods that an account can have, the first word.
_LENGTHS = ("month", "quarter", "year")
#: Rules for late records under which a record's own time gives its step.
_BY_TIME = ("error", "drop-and-count-nothing")


@dataclass(frozen=True)
class Span:
    """Which periods of a stream hold records of which time. Periods are numbered by the calendar.

    Attributes:
        start: the period of the first day.
        first, last: the stream's first and last period; None: no end is pinned.
        crosses: whether a step may begin in the period before its own.
        deletes: whether a record may be deleted in any later period.
    """

    start: int
    first: int
    last: int | None
    crosses: bool
    deletes: bool

    @classmethod
    def of(cls, facts: Mapping[str, Any], where: str) -> Self | None:
        """The span of a stream by its pinned facts; None where each period costs its whole budget.

        Errors:
            UnitError: a record's own time does not give its period.
        """
        if facts.get("per") is None:
            return None
        source = facts["source"] or {}
        by_time = source.get("time_column") and source.get("late") in _BY_TIME and "query" not in source
        if not by_time or not source["every"] or source.get("kind") == "stdin":
            raise UnitError(
                "a record's own time does not give its period in this stream",
                where=where,
                allowed="[source] time_column, every, and late = error or drop-and-count-nothing; no query, no stdin",
            )
        start = datetime.date.fromisoformat(source["start"])
        periods = CalendarPeriods.named(facts["per"], period_grid(source["every"], start, where))
        deletes = bool(source["op_column"]) or source.get("kind") == "postgres-changes"
        last = None if facts["horizon"] is None else periods.number(facts["horizon"])
        if deletes and last is None:
            raise UnitError(
                "with deletes, a record costs each later period, without an end",
                where=where,
                allowed="[budget] horizon, or a source without deletes",
            )
        return cls(periods.of_day(start), periods.number(1), last, periods.crossed, deletes)

    def times(self, period: int) -> int:
        """In how many of the stream's periods the records of a period can be."""
        after = self.last if self.deletes and self.last is not None else period + self.crosses
        last = after if self.last is None else min(after, self.last)
        return max(0, last - max(period, self.first) + 1) if period >= self.start or self.deletes else 0


def require_per(per: str) -> None:
    """Refuse what periods of an account are not called.

    Errors:
        ConfigError: names what is allowed.
    """
    if per.partition(",")[0] not in _LENGTHS:
        raise ConfigError(f"unknown per {per!r}", where="per", allowed=", ".join(_LENGTHS))


def totals(charges: Sequence[tuple[Budget, Span | None]]) -> list[Total]:
    """What all charges cost together, for each period that may differ from others.

    >>> from dpstream.core.privacy import PureDP
    >>> yearly = Span(2020, 2020, None, crosses=False, deletes=False)
    >>> print(*totals([(PureDP.of(1), yearly), (PureDP.of(2), None)]), sep="; ")
    epsilon = 2 (pure); as zCDP rho = 2; epsilon = 3 (pure); as zCDP rho = 2.5
    """
    spans = [span for _, span in charges if span is not None]
    begins = min((span.start for span in spans), default=1) - 1
    ends = max((span.first if span.last is None else span.last for span in spans), default=0) + 1
    several = {
        tuple(1 if span is None else span.times(period) for _, span in charges): None
        for period in range(begins, ends + 1)
    }
    return [
        compose(group(budget, times) for (budget, _), times in zip(charges, counts, strict=True) if times)
        for counts in several
    ]


def largest(several: Sequence[Total]) -> Total:
    """The largest epsilon and the largest rho; exceptions are those of all streams."""
    epsilons = [total.epsilon for total in several]
    pure = None if None in epsilons else max(epsilon for epsilon in epsilons if epsilon is not None)
    return Total(pure, max(total.rho for total in several), several[0].exceptions)
