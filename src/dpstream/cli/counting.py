"""The ticks of ``dpstream count``: what comes in is cut and counted here, before any noise."""

from __future__ import annotations

import csv
import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.io.sources.calendar import Grid, day_number, period_grid

__all__ = ["Cells", "Tick", "by_calendar", "by_line", "calendar_of", "read_column"]

_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True)
class Tick:
    """One tick: its public name and its exact counts. Private."""

    name: str
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """The public categories that are counted apart; none: one number.

    Args:
        values: the categories.
        other: one of them takes all values that are none of them; None: such a value is an error.
    """

    values: tuple[str, ...]
    other: str | None = None

    @classmethod
    def parse(cls, text: str | None, other: str | None) -> Cells:
        """From ``--values a,b,c`` and ``--other``.

        Errors:
            ConfigError: empty or repeated categories, or a rest without categories.
        """
        if text is None:
            if other is not None:
                raise ConfigError(
                    "there are no categories", where="--other", allowed="together with --values"
                )
            return cls(())
        values = tuple(value.strip() for value in text.split(","))
        if other is not None and other not in values:
            values += (other,)
        if "" in values or len(set(values)) < len(values):
            raise ConfigError("a category is empty or there twice", where="--values", allowed="such as a,b,c")
        return cls(values, other)

    @property
    def width(self) -> int:
        """Numbers that are kept."""
        return max(1, len(self.values))

    def place(self, value: str, line: int) -> int:
        """The cell of a value.

        Errors:
            DataError: it is no category. The value itself is private and not told.
        """
        for known in (value, self.other):
            if known in self.values:
                return self.values.index(known)
        raise DataError(
            "a value is none of the categories",
            where=f"line {line}",
            allowed="the values of --values; --other NAME takes all others",
        )


def read_column(lines: Iterable[str], names: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line number and the values of some columns of a CSV with a header.

    Errors:
        DataError: a column that is not there, or a row that is too short or too long.
    """
    rows = csv.reader(lines)
    header = next(rows, [])
    for name in names:
        if header.count(name) != 1:
            raise DataError(
                f"the column {name!r} is {'not there' if name not in header else 'there twice'}",
                where="header",
                allowed=f"once, among the {counted(len(header), 'column')} of the first line",
            )
    places = [header.index(name) for name in names]
    for row in rows:
        if len(row) != len(header):
            raise DataError(
                "the row has another number of fields than the header", where=f"line {rows.line_num}"
            )
        yield rows.line_num, tuple(row[place].strip() for place in places)


def by_line(lines: Iterator[tuple[int, str]], cells: Cells) -> Iterator[Tick]:
    """Every line is a tick: a whole number, or with categories one of them.

    Errors:
        DataError: a line that is neither.
    """
    for number, (line, text) in enumerate(lines, 1):
        counts = np.zeros(cells.width, np.int64)
        if cells.values:
            counts[cells.place(text, line)] = 1
        elif _NUMBER.fullmatch(text):
            counts[0] = int(text)
        else:
            raise DataError(
                "it is not a whole number of at most ten digits",
                where=f"line {line}",
                allowed="such as 3, 0, -2",
            )
        yield Tick(str(number), counts)


def calendar_of(every: str | None, start: str | None, end: str | None) -> tuple[Grid, int]:
    """The public periods, and how many of them there are until the one with the last day.

    Errors:
        ConfigError: something is missing or unusable.
    """
    if every is None or start is None or end is None:
        raise ConfigError(
            "the periods are not known",
            where="--time-column",
            allowed="together with --every, --start and --end: public facts, not the first and last day of the data",
        )
    first, last = (_day(text, where) for text, where in ((start, "--start"), (end, "--end")))
    grid = period_grid(every, first, "--every")
    steps = grid.step(day_number(last))
    if steps < 1:
        raise ConfigError("the last day is before the first", where="--end", allowed=f"{first} or later")
    return grid, steps


def _day(text: str, where: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a day", where=where, allowed="such as 2026-01-05") from None


def by_calendar(
    rows: Iterator[tuple[int, tuple[str, ...]]], cells: Cells, grid: Grid, steps: int
) -> Iterator[Tick]:
    """Rows per period (and category), every period a tick, empty ones too. Rows may come in any order.

    Args:
        rows: line number, and the time (and the value).

    Errors:
        DataError: a time that is no day or outside of the periods, or a value that is no category.
    """
    counts = np.zeros((steps, cells.width), np.int64)
    for line, (time, *value) in rows:
        try:
            day = datetime.date.fromisoformat(time[:10])
        except ValueError:
            raise DataError(
                "its time is not a day", where=f"line {line}", allowed="such as 2026-01-05"
            ) from None
        step = grid.step(day_number(day))
        if not 1 <= step <= steps:
            raise DataError(
                "its time is outside of the periods", where=f"line {line}", allowed="from --start to --end"
            )
        counts[step - 1, cells.place(value[0], line) if value else 0] += 1
    for step in range(1, steps + 1):
        yield Tick(grid.batch_id(step), counts[step - 1])
