"""Columns of days and instants: public edges, or calendar bins from a start to an end.

Trusted base: kernel (encodes private times).
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from dpstream.core.schema import arrow
from dpstream.core.schema.column import MAX_CODES, UNREADABLE
from dpstream.core.schema.domain import Codes
from dpstream.core.schema.numeric import Ordered, check_edges

PERIODS_ALLOWED = "day, week, month, quarter, year, or days such as 14 days"
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DAYS = {"day": 1, "week": 7}
_EPOCH = dt.datetime(1970, 1, 1)
_SECOND = 1_000_000


def parse_every(text: str) -> tuple[int, int] | None:
    """(months, days) of a period, one of them 0; None if it is none.

    >>> parse_every("quarter"), parse_every("14 days"), parse_every("0 days")
    ((3, 0), (0, 14), None)
    """
    if text in _MONTHS:
        return _MONTHS[text], 0
    if text in _DAYS:
        return 0, _DAYS[text]
    match = re.fullmatch(r"([1-9]\d{0,4}) days?", text)
    return (0, int(match[1])) if match else None


def borders(start: dt.date, every: tuple[int, int]) -> Iterator[dt.date]:
    """Left ends of calendar bins: ``start``, then each later border.

    Days and weeks are counted from ``start``. Months, quarters and years are cut at the calendar's own
    borders, so the first bin may be shorter. Ends with the calendar (year 9999).

    >>> import itertools
    >>> [str(d) for d in itertools.islice(borders(dt.date(2024, 2, 10), (3, 0)), 3)]
    ['2024-02-10', '2024-04-01', '2024-07-01']
    """
    months, days = every
    yield start
    if days:
        for ordinal in range(start.toordinal() + days, dt.date.max.toordinal() + 1, days):
            yield dt.date.fromordinal(ordinal)
        return
    month = (start.year * 12 + start.month - 1) // months * months + months
    while month // 12 <= dt.MAXYEAR:
        yield dt.date(month // 12, month % 12 + 1, 1)
        month += months


@dataclass(frozen=True)
class _Calendar(Ordered):
    """What ``Date`` and ``DateTime`` share: either ``edges``, or ``start``, ``end`` and ``every``."""

    beyond: ClassVar[tuple[str, str]] = ("earlier", "later")

    edges: tuple[Any, ...] | None = None
    start: Any = None
    end: Any = None
    every: str | None = None

    @abstractmethod
    def _canonical(self, value: Any, key: str) -> Any:
        """A date or time of the column's kind; ``SchemaError`` for anything else."""

    @abstractmethod
    def _calendar_lower(self) -> Iterator[int]:
        """Left ends of the calendar bins up to ``end``, on the integer line."""

    @abstractmethod
    def _number(self, value: Any) -> int:
        """A canonical value on the integer line (days or microseconds)."""

    @abstractmethod
    def _read(self, text: str) -> int | None:
        """A text on the integer line; None where it is another kind of value."""

    def _validate_bins(self) -> None:
        calendar = {key: getattr(self, key) for key in ("start", "end", "every")}
        given = [key for key, value in calendar.items() if value is not None]
        if self.edges is not None:
            if given:
                raise self._wrong(f"give edges or {given[0]}, not both", allowed="one of the two")
            edges = self.edges
            if isinstance(edges, Iterable) and not isinstance(edges, str):
                edges = tuple(self._canonical(edge, "edges") for edge in edges)
            edges = check_edges(self, edges, self.noun, self._number)
            object.__setattr__(self, "edges", edges)
            return
        lacking = [key for key in calendar if key not in given]
        if lacking:
            raise self._wrong(f"{lacking[0]} is not given", allowed="start, end and every; or edges")
        _ = self._every
        for key in ("start", "end"):
            object.__setattr__(self, key, self._canonical(calendar[key], key))
        if self._number(self.start) > self.last:
            raise self._wrong("start is later than end", allowed="start <= end")

    @property
    def _every(self) -> tuple[int, int]:
        period = parse_every(self.every) if isinstance(self.every, str) else None
        if period is None:
            raise self._wrong(f"unknown every = {self.every!r}", allowed=PERIODS_ALLOWED)
        return period

    @cached_property
    def lower(self) -> NDArray[np.int64]:
        if self.edges is not None:
            return np.array([self._number(edge) for edge in self.edges[:-1]], dtype=np.int64)
        lower = np.fromiter(itertools.islice(self._calendar_lower(), MAX_CODES + 1), dtype=np.int64)
        if len(lower) > MAX_CODES:
            raise self._wrong(f"the domain has more than {MAX_CODES} codes", allowed=f"at most {MAX_CODES}")
        if (np.diff(lower) <= 0).any():
            raise self._wrong("two borders fall on one instant", allowed="longer bins, or edges")
        return lower

    def limits(self) -> tuple[str, str]:
        return self._text(int(self.lower[0])), self._text(self.last)

    def _codes_of_text(self, texts: Any) -> Codes:
        numbers = [self._read(text) for text in texts.to_pylist()]
        known = np.array([number is not None for number in numbers], dtype=np.bool_)
        codes = np.full(len(numbers), UNREADABLE, dtype=np.int32)
        codes[known] = self._codes_of_values(
            np.array([number for number in numbers if number is not None], dtype=np.int64)
        )
        return codes


@dataclass(frozen=True)
class Date(_Calendar):
    """Days, in bins.

    Either ``start``, ``end`` (both included) and ``every`` (day, week, month, quarter, year, or "14 days"):
    days and weeks are counted from ``start``; months, quarters and years follow the calendar, the first
    and last bin possibly shorter. Or ``edges``: a day on an edge opens the next bin, a day on the last edge
    belongs to the last bin. Reads dates, timestamps without time zone (their day), and ISO texts of both.
    Decodes to date32, drawn uniformly from the days of the bin; ``other`` becomes null.

    >>> filed = Date("filed", start=dt.date(2024, 1, 1), end=dt.date(2024, 3, 15), every="month")
    >>> filed.labels()
    ('2024-01-01..2024-01-31', '2024-02-01..2024-02-29', '2024-03-01..2024-03-15')
    """

    type_name: ClassVar[str] = "date"
    expects: ClassVar[str] = "dates"
    noun: ClassVar[str] = "dates"

    def _canonical(self, value: Any, key: str) -> dt.date:
        if isinstance(value, str):
            value = read_date(value)
        if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
            raise self._wrong(f"{key}: expected dates", allowed="dates such as 2024-01-31")
        return value

    def _number(self, value: Any) -> int:
        return day_number(value)

    @cached_property
    def last(self) -> int:
        return day_number(self.end if self.edges is None else self.edges[-1])

    def _calendar_lower(self) -> Iterator[int]:
        for day in borders(self.start, self._every):
            if day_number(day) > self.last:
                return
            yield day_number(day)

    def _text(self, value: int) -> str:
        return dt.date.fromordinal(value + _EPOCH.toordinal()).isoformat()

    def _codes_of_array(self, chunk: Any) -> Codes | None:
        import pyarrow as pa

        kind = chunk.type
        if pa.types.is_date32(kind):
            return self._codes_of_values(arrow.integers_of(chunk.cast(pa.int32())))
        if pa.types.is_date64(kind):
            return self._codes_of_values(arrow.integers_of(chunk) // 86_400_000)
        if pa.types.is_timestamp(kind) and kind.tz is None:
            return self._codes_of_values(_microseconds_of(chunk) // (86_400 * _SECOND))
        return None

    def _read(self, text: str) -> int | None:
        """The day of an ISO date, or of an ISO time without an offset: as of a typed timestamp."""
        day = read_date(text) or read_time(text)
        return None if day is None or getattr(day, "tzinfo", None) is not None else day_number(day)

    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.date32()

    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        import pyarrow as pa

        days = generator.integers(self.lower[codes], self.upper[codes], endpoint=True)
        return pa.array(np.asarray(days, dtype=np.int32), pa.int32(), mask=empty).cast(pa.date32())


@dataclass(frozen=True)
class DateTime(_Calendar):
    """Instants, in bins, at microsecond resolution.

    ``edges``, ``start`` and ``end`` are local times without an offset. With ``timezone`` (a name such as
    "Europe/Zurich") they are times of that zone and the data must carry a zone (any: instants are compared);
    without it the data must not. ``start``, ``end``, ``every`` work as for ``Date``, at the start's time of
    day; an ``end`` that is a bare date includes the whole day, an instant on ``end`` or on the last edge
    belongs to the last bin. Reads timestamps, dates (their midnight; only without ``timezone``), ISO texts.
    Decodes to timestamp[us], drawn uniformly inside the bin, on whole seconds when all borders are;
    ``other`` becomes null.

    >>> DateTime("seen", edges=["2024-01-01T00:00", "2024-01-01T12:00", "2024-01-02T00:00"]).labels()
    ('[2024-01-01T00:00:00, 2024-01-01T12:00:00)', '[2024-01-01T12:00:00, 2024-01-02T00:00:00]')
    """

    type_name: ClassVar[str] = "datetime"
    expects: ClassVar[str] = "times, with a zone exactly if the column has one"
    noun: ClassVar[str] = "times"

    timezone: str | None = None

    def _validate_bins(self) -> None:
        if self.timezone is not None:
            _ = self._zone
        super()._validate_bins()

    @cached_property
    def _zone(self) -> ZoneInfo | None:
        if self.timezone is None:
            return None
        try:
            return ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            raise self._wrong(
                f"unknown timezone {self.timezone!r}", allowed="such as UTC or Europe/Zurich"
            ) from None

    def _canonical(self, value: Any, key: str) -> dt.date:
        if isinstance(value, str):
            value = read_date(value) or read_time(value)
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime) and key != "end":
            value = dt.datetime.combine(value, dt.time())
        if not isinstance(value, dt.date) or (isinstance(value, dt.datetime) and value.tzinfo is not None):
            raise self._wrong(
                f"{key}: expected local times",
                allowed="local times such as 2024-01-31T12:00:00",
            )
        return value

    def _number(self, value: Any) -> int:
        local = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
        if self._zone is not None:
            local = local.replace(tzinfo=self._zone)
        return microseconds(local)

    @cached_property
    def last(self) -> int:
        end = self.end if self.edges is None else self.edges[-1]
        if isinstance(end, dt.datetime):
            return self._number(end)
        return self._number(dt.datetime.combine(end, dt.time.max))

    def _calendar_lower(self) -> Iterator[int]:
        months = self._every[0]
        for day in borders(self.start.date(), self._every):
            # Calendar borders lie at midnight; counted days keep the start's time of day.
            midnight = months and day != self.start.date()
            local = dt.datetime.combine(day, dt.time() if midnight else self.start.time())
            left = self._number(local)
            if left > self.last or (left == self.last and left != self._number(self.start)):
                return
            yield left

    def _text(self, value: int) -> str:
        instant = _EPOCH + dt.timedelta(microseconds=value)
        if self._zone is None:
            return instant.isoformat()
        return instant.replace(tzinfo=dt.UTC).astimezone(self._zone).isoformat()

    def _spans(self) -> list[str]:
        return self._half_open_spans()

    def _codes_of_array(self, chunk: Any) -> Codes | None:
        import pyarrow as pa

        kind = chunk.type
        if pa.types.is_timestamp(kind) and (kind.tz is None) == (self._zone is None):
            return self._codes_of_values(_microseconds_of(chunk))
        if self._zone is None and (pa.types.is_date32(kind) or pa.types.is_date64(kind)):
            return self._codes_of_values(_microseconds_of(chunk.cast(pa.timestamp("ms"))))
        return None

    def _codes_of_text(self, texts: Any) -> Codes:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pc.utf8_trim_whitespace(texts)
        # Arrow has a year 0 and Python has none: one way of reading for all texts, whoever comes with them.
        if pc.any(pc.starts_with(texts, "0000")).as_py():
            return super()._codes_of_text(texts)
        try:
            # A hundred times faster, and stricter: what else Arrow reads, Python reads as the same instant.
            kind = pa.timestamp("us", None if self._zone is None else "UTC")
            return self._codes_of_values(_microseconds_of(texts.cast(kind)))
        except pa.ArrowInvalid:
            return super()._codes_of_text(texts)

    def _read(self, text: str) -> int | None:
        """The same rule as for typed data: with a zone exactly if the column declares one."""
        time = read_time(text)
        return None if time is None or (time.tzinfo is None) != (self._zone is None) else microseconds(time)

    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.timestamp("us", tz=self.timezone)

    def _draw(self, codes: Codes, generator: np.random.Generator, empty: NDArray[np.bool_] | None) -> Any:
        import pyarrow as pa

        low, high = self.lower[codes], self.upper[codes]
        if (self.lower % _SECOND).any():
            drawn = generator.integers(low, high, endpoint=True)
        else:
            drawn = low + generator.integers(0, (high - low) // _SECOND, endpoint=True) * _SECOND
        return pa.array(np.asarray(drawn, dtype=np.int64), pa.int64(), mask=empty).cast(self.arrow_type())


def _microseconds_of(chunk: Any) -> NDArray[np.int64]:
    """Timestamps as microseconds since 1970 (rounded down; far values stay far)."""
    values = arrow.integers_of(chunk)
    if chunk.type.unit == "ns":
        return values // 1000
    factor = {"s": _SECOND, "ms": 1000, "us": 1}[chunk.type.unit]
    return np.clip(values, -(arrow.FAR // factor), arrow.FAR // factor) * factor


def microseconds(value: dt.datetime) -> int:
    """Since 1970."""
    epoch = _EPOCH if value.tzinfo is None else _EPOCH.replace(tzinfo=dt.UTC)
    return (value - epoch) // dt.timedelta(microseconds=1)


def day_number(value: dt.date) -> int:
    """Days since 1970."""
    return value.toordinal() - _EPOCH.toordinal()


def read_date(text: str) -> dt.date | None:
    """An ISO date (2024-01-31, blanks around it do not count), or None."""
    text = text.strip()
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def read_time(text: str) -> dt.datetime | None:
    """An ISO date or time, with or without an offset, or None."""
    text = text.strip()
    if not re.match(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        return None
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None
