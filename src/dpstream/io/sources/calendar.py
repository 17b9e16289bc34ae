"""Public step borders: calendar periods counted from a public first day, or step numbers.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpstream.core.durations import length
from dpstream.core.errors import ConfigError

#: First day, and the day after the last one.
Period = tuple[datetime.date, datetime.date]

EVERY = '"day", "week", "month", "14 days", "2 weeks", "3 months" or "files"'
#: Unit -> days of a period; None for months.
_DAYS = {"d": 1, "w": 7, "month": None}
_EPOCH = datetime.date(1970, 1, 1)


class Grid(ABC):
    """Step borders. Steps are numbered from 1; the step of a record depends on its own time and on public facts
    only."""

    @abstractmethod
    def steps(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The step of each time (int64: days since 1970, or step numbers); below 1 for times before the start."""

    def step(self, time: int) -> int:
        """The step of one time."""
        return int(self.steps(np.array([time], np.int64))[0])

    def closed(self, today: datetime.date) -> int | None:
        """The last step that is over on ``today``; None without a calendar."""
        return self.step(day_number(today)) - 1

    @abstractmethod
    def batch_id(self, step: int) -> str:
        """The public name of a step."""

    def period_name(self, step: int) -> str:
        """The same for the columns of a table."""
        return self.batch_id(step)

    @abstractmethod
    def period(self, step: int) -> Period | None:
        """The first day and the day after the last one; None without a calendar."""


@dataclass(frozen=True)
class DayPeriods(Grid):
    """Periods of a fixed number of days, counted from ``start``.

    >>> weeks = DayPeriods(datetime.date(2020, 1, 6), 7)
    >>> weeks.batch_id(1), weeks.period(2)[0].isoformat(), weeks.closed(datetime.date(2020, 1, 19))
    ('2020-W02', '2020-01-13', 1)
    """

    start: datetime.date
    days: int

    def steps(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        return (times - day_number(self.start)) // self.days + 1

    def batch_id(self, step: int) -> str:
        first = self.period(step)[0]
        if self.days == 1:
            return first.isoformat()
        if self.days == 7 and first.weekday() == 0:
            year, week, _ = first.isocalendar()
            return f"{year}-W{week:02d}"
        return f"{first.isoformat()}_P{self.days}D"

    def period(self, step: int) -> Period:
        try:
            first = self.start + datetime.timedelta(days=self.days * (step - 1))
            return first, first + datetime.timedelta(days=self.days)
        except OverflowError:
            raise _beyond(step) from None


@dataclass(frozen=True)
class MonthPeriods(Grid):
    """Periods of whole months, counted from ``start`` (whose day is at most 28).

    >>> quarters = MonthPeriods(datetime.date(1997, 1, 1), 3)
    >>> quarters.batch_id(2), quarters.step(day_number(datetime.date(1998, 1, 1)))
    ('1997-04_P3M', 5)
    """

    start: datetime.date
    months: int

    def steps(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        month = times.astype("datetime64[D]").astype("datetime64[M]")
        day = times - month.astype("datetime64[D]").astype(np.int64) + 1
        whole = month.astype(np.int64) - (day < self.start.day)
        first = (self.start.year - 1970) * 12 + self.start.month - 1
        return (whole - first) // self.months + 1

    def batch_id(self, step: int) -> str:
        first = self.period(step)[0]
        name = first.isoformat() if first.day > 1 else first.isoformat()[:7]
        return name if self.months == 1 and first.day == 1 else f"{name}_P{self.months}M"

    def period(self, step: int) -> Period:
        return self._first(step), self._first(step + 1)

    def _first(self, step: int) -> datetime.date:
        months = self.start.year * 12 + self.start.month - 1 + self.months * (step - 1)
        try:
            return datetime.date(months // 12, months % 12 + 1, self.start.day)
        except (OverflowError, ValueError):
            raise _beyond(step) from None


@dataclass(frozen=True)
class StepNumbers(Grid):
    """Every record has a step number already; ``start`` is the number of step 1."""

    start: int

    def steps(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        # A number so large is a misprint, but must not overflow.
        return np.clip(times, -(2**62), 2**62) - self.start + 1

    def closed(self, today: datetime.date) -> None:
        return None

    def batch_id(self, step: int) -> str:
        return f"step-{self.start + step - 1}"

    def period_name(self, step: int) -> str:
        return str(self.start + step - 1)

    def period(self, step: int) -> None:
        return None


#: Periods of the calendar, in months; a week is the one that begins on Monday.
CALENDAR_PERIODS = {"week": 0, "month": 1, "quarter": 3, "year": 12}


def period_number(length: str, day: datetime.date, begins: int = 1) -> int:
    """Which week, month, quarter or year holds a day; years begin with the month ``begins``."""
    months = CALENDAR_PERIODS[length]
    if not months:
        return (day_number(day) + 3) // 7
    return (12 * day.year + day.month - begins) // months


#: In names of periods, before the month.
_BEGINS = ", years from month "


@dataclass(frozen=True)
class CalendarPeriods:
    """Weeks, months, quarters or years: a step belongs to the one that holds its last day.

    Args:
        begins: the month in which a year begins; quarters follow from it.

    >>> quarters = CalendarPeriods("quarter", DayPeriods(datetime.date(2020, 1, 6), 7))
    >>> [step for step in range(1, 30) if quarters.number(step) != quarters.number(step + 1)]
    [12, 25]
    """

    length: str
    grid: DayPeriods | MonthPeriods
    begins: int = 1

    @classmethod
    def named(cls, name: str, grid: DayPeriods | MonthPeriods) -> CalendarPeriods:
        """The inverse of ``name``."""
        length, _, begins = name.partition(_BEGINS)
        return cls(length, grid, int(begins or 1))

    @property
    def name(self) -> str:
        """The length, and where years begin."""
        return self.length if self.begins == 1 else f"{self.length}{_BEGINS}{self.begins}"

    @property
    def related(self) -> tuple[CalendarPeriods, ...]:
        """All lengths that no step is longer than."""
        lengths = (replace(self, length=length) for length in CALENDAR_PERIODS)
        return tuple(periods for periods in lengths if periods.fits)

    def number(self, step: int) -> int:
        """See ``dpstream.core.contracts.Periods``."""
        return self.of_day(self.grid.period(step)[1] - datetime.timedelta(days=1))

    def label(self, step: int) -> str:
        """See ``dpstream.core.contracts.Periods``."""
        months = CALENDAR_PERIODS[self.length]
        year, month = divmod(self.number(step) * months + self.begins - 1, 12)
        return f"{self.length} from {year}-{month + 1:02d}" if months else self.grid.period_name(step)

    def of_day(self, day: datetime.date) -> int:
        """Which period holds a day."""
        return period_number(self.length, day, self.begins)

    @property
    def crossed(self) -> bool:
        """Whether a step may begin in one period and end in the next one."""
        if isinstance(self.grid, DayPeriods):
            return self.grid.days > 1
        return any(self.of_day(self.grid.period(step)[0]) != self.number(step) for step in range(1, 13))

    @property
    def fits(self) -> bool:
        """Whether no period is shorter than a step."""
        most = self.number(_COMPARED) - self.number(1)
        return most < _COMPARED


#: So many steps show how long they are beside a period.
_COMPARED = 60


def _beyond(step: int) -> ConfigError:
    return ConfigError(
        f"step {step} lies beyond the year 9999",
        where="[source]",
        allowed="an earlier start or end",
    )


def day_number(day: datetime.date) -> int:
    """Days since 1970-01-01."""
    return (day - _EPOCH).days


def period_grid(every: str, start: datetime.date, where: str) -> DayPeriods | MonthPeriods:
    """The calendar named by ``every``.

    Errors:
        ConfigError: an unknown length, or periods of months whose first day some months lack.
    """
    number, unit = length(every) or ("", "")
    if unit not in _DAYS or not number.isdigit() or not 1 <= int(number) <= 9999:
        raise ConfigError(f"unknown every = {every!r}", where=where, allowed=EVERY)
    count, days = int(number), _DAYS[unit]
    if days is not None:
        return DayPeriods(start, count * days)
    if start.day > 28:
        raise ConfigError(
            "some months lack this day",
            where=f"{where} start",
            allowed="day 1 to 28",
        )
    return MonthPeriods(start, count)
