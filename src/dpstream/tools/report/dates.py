"""What steps are called on a page: the dates of their periods where the stream knows them, else their numbers."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpstream.io.sources.calendar import period_grid
from dpstream.stream.release.flows import Span, days_of
from dpstream.tools.evaluate.run_folder import PublishedRun

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True)
class Calendar:
    """The periods of steps, as manifests write them: ``2002-12-23/2002-12-29``, or names of their own."""

    periods: Mapping[int, str]

    @cached_property
    def _days(self) -> dict[int, tuple[datetime.date, datetime.date]]:
        found = {step: days_of(text) for step, text in self.periods.items()}
        return {step: span for step, span in found.items() if span is not None}

    def name(self, step: int, *, long: bool = False) -> str:
        """The end of a step's period, or its whole month or year; else its name or its number.

        >>> dates = Calendar({1: "2002-12-23/2002-12-29", 2: "2003-01-01/2003-01-31", 3: "wave 3"})
        >>> [dates.name(step) for step in (1, 2, 3, 4)], dates.name(1, long=True)
        (['29 Dec 2002', 'Jan 2003', 'wave 3', 'step 4'], '29 December 2002')
        """
        if step not in self._days:
            return self.periods.get(step, f"step {step}")
        first, last = self._days[step]
        month = _MONTHS[last.month - 1] if long else _MONTHS[last.month - 1][:3]
        after = last + datetime.timedelta(days=1)
        if first.day == 1 and after.day == 1 and first != last:
            whole_year = (first.month, after.month, after.year - first.year) == (1, 1, 1)
            if whole_year or (first.year, first.month) == (last.year, last.month):
                return str(last.year) if whole_year else f"{month} {last.year}"
        return f"{last.day} {month} {last.year}"

    def ending(self, spans: Iterable[Span]) -> Calendar:
        """The same with the last days of some spans: pages of long streams read few manifests."""
        days = {span.last: str(span.last_day) for span in spans if span.last_day is not None}
        return Calendar(days | dict(self.periods))

    def day(self, step: int) -> str | None:
        """The last day of a step's period, as ``2002-12-29``; None where it has none."""
        return self._days[step][1].isoformat() if step in self._days else None

    def words(self, step: int) -> str:
        """For sentences: the name, and the number where the name is another.

        >>> Calendar({8: "2002-12-23/2002-12-29"}).words(8), Calendar({}).words(8)
        ('29 December 2002 (step 8)', 'step 8')
        """
        name = self.name(step, long=True)
        return name if name == f"step {step}" else f"{name} (step {step})"

    def every(self, steps: Sequence[int]) -> str:
        """How often: ``one a week``; empty where the dates do not tell."""
        spans = {(last - first).days + 1 for first, last in (self._days[s] for s in steps if s in self._days)}
        for word, least, most in (
            ("day", 1, 1),
            ("week", 7, 7),
            ("month", 28, 31),
            ("quarter", 90, 92),
            ("year", 365, 366),
        ):
            if spans and min(spans) >= least and max(spans) <= most:
                return f"one a {word}"
        return ""

    def ticks(self, steps: Sequence[int], most: int = 5) -> list[tuple[int, str]]:
        """A few steps of an axis and what they are called: where years, quarters or months begin, if steps have dates.

        >>> weeks = {i + 1: str(datetime.date(2001, 1, 1) + datetime.timedelta(weeks=i)) for i in range(104)}
        >>> Calendar(weeks).ticks(range(1, 105))
        [(1, 'Jan 2001'), (27, 'Jul 2001'), (54, 'Jan 2002'), (79, 'Jul 2002')]
        """
        if len(steps) > most and all(step in self._days for step in steps):
            for months in (1, 2, 3, 6, 12, 24, 60, 120):
                found = self._beginnings(steps, months)
                if 2 <= len(found) <= most:
                    return found
        last, gaps = len(steps) - 1, max(1, most - 2)
        chosen = steps if len(steps) <= most else [steps[round(i * last / gaps)] for i in range(gaps + 1)]
        plain = not self._days and not self.periods
        return [(step, str(step) if plain else self.name(step)) for step in chosen]

    def _beginnings(self, steps: Sequence[int], months: int) -> list[tuple[int, str]]:
        found, before = [], None
        for step in steps:
            day = self._days[step][0]
            part = (12 * day.year + day.month - 1) // months
            if part != before and (before is not None or day.day <= 7):
                name = str(day.year) if months >= 12 else f"{_MONTHS[day.month - 1][:3]} {day.year}"
                found.append((step, name))
            before = part
        return found


def period_name(span: Span, length: str) -> str:
    """What a measured period is called: by the calendar where that is how it is measured, else by its last day.

    >>> day = datetime.date.fromisoformat
    >>> span = Span(1, 12, day("2000-12-25"), day("2001-03-25"))
    >>> period_name(span, "quarter"), period_name(span, "12 steps"), period_name(Span(1, 12), "12 steps")
    ('Q1 2001', 'to 25 Mar 2001', 'steps 1 to 12')
    """
    last = span.last_day
    if last is None:
        return str(span)
    month = _MONTHS[last.month - 1][:3]
    calendar = {
        "month": f"{month} {last.year}",
        "quarter": f"Q{(last.month + 2) // 3} {last.year}",
        "year": str(last.year),
    }
    return calendar.get(length, f"to {last.day} {month} {last.year}")


def calendar_of(run: PublishedRun) -> Calendar:
    """Of a run: from its manifests, or from the names that a panel's owner gave its periods."""
    periods = {facts.step: facts.period for facts in run.shown if facts.period}
    source = run.manifest.get("source") or {}
    if periods and isinstance(source.get("start"), str) and source.get("every"):
        # A page names steps whose manifests it does not read: of a long stream, and those that were withdrawn.
        grid = period_grid(source["every"], datetime.date.fromisoformat(source["start"]), "report")
        for step, _ in run.states:
            first, after = grid.period(step)
            periods.setdefault(step, f"{first}/{after - datetime.timedelta(days=1)}")
    names = run.manifest["mechanism"].get("options", {}).get("period_names") or []
    return Calendar({i: str(name) for i, name in enumerate(names, 1)} | periods)
