"""Recognises the period columns of a table with one row a person: numbered ones, and ones called after dates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpstream.core.errors import ConfigError
from dpstream.core.schema.hints import words_in

#: A year; perhaps a quarter, a week or a month of it; perhaps a day.
_DATED = re.compile(
    r"(.*?)(?<![0-9])((?:19|20)[0-9]{2})([-_./ ]?)(Q[1-4]|W[0-5][0-9]|0[1-9]|1[0-2])?(?:\3(0[1-9]|[12][0-9]|3[01]))?"
    r"(?![0-9])(.*)",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,5})([^0-9]*)")
#: So many columns that are called after dates are a panel without anybody saying so.
_MANY = 3


@dataclass(frozen=True)
class Periods:
    """The columns of the periods.

    Attributes:
        columns: their names, in order.
        template: ``[source] period_columns``: a text with ``{period}``, or the names.
        variable: what the released column is called.
    """

    columns: tuple[str, ...]
    template: str | tuple[str, ...]
    variable: str

    def values(self, table: Any) -> Any:
        """What people report, of all periods."""
        import pyarrow as pa

        columns = [table.column(name) for name in self.columns]
        same = [column for column in columns if column.type == columns[0].type]
        return pa.chunked_array([chunk for column in same for chunk in column.chunks], columns[0].type)


def periods_of(table: Any, person_column: str) -> Periods:
    """The longest run of period columns of a table with one row a person.

    Errors:
        ConfigError: there is none.
    """
    names = [name for name in table.column_names if name != person_column]
    runs = [run for run in (*_dated(names), *_numbered(names)) if len(run.columns) > 1]
    single = [run for run in _numbered(names) if run.template != run.columns]
    if not (runs or single):
        raise ConfigError(
            "no columns are numbered as periods, or called after dates",
            where="person column",
            allowed="columns such as m1, m2, ... or 2005-04, 2005-05, ...; or a time column, with one row for each "
            "person and period",
        )
    return max(runs or single, key=lambda run: len(run.columns))


def dated_panel(table: Any, keys: Sequence[str]) -> str | None:
    """The column that says who a row is, of a table whose columns but one are called after dates; else None.

    Args:
        keys: columns that may say it.
    """
    whole = max(_dated(table.column_names), key=lambda run: len(run.columns), default=None)
    if whole is None or len(whole.columns) < _MANY:
        return None
    others = set(table.column_names) - set(whole.columns)
    for key in keys:
        column = table.column(key)
        if others == {key} and not column.null_count and len(column.unique()) == len(column):
            return key
    return None


def _dated(names: Sequence[str]) -> list[Periods]:
    runs: dict[tuple[Any, ...], dict[tuple[str, ...], str]] = {}
    for name in names:
        match = _DATED.fullmatch(name)
        if match:
            before, year, between, part, day, after = match.groups(default="")
            kind = (before, after, between, part[:1].upper() if part[:1].isalpha() else bool(part), bool(day))
            runs.setdefault(kind, {})[year, part.upper(), day] = name
    found = []
    for (before, *_), run in runs.items():
        columns = tuple(run[when] for when in sorted(run))
        found.append(Periods(columns, columns, _variable(before)))
    return found


def _numbered(names: Sequence[str]) -> list[Periods]:
    runs: dict[tuple[str, str], dict[int, str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            runs.setdefault((match[1], match[3]), {})[int(match[2])] = name
    found = []
    for (before, after), run in runs.items():
        columns = tuple(run[number] for number in sorted(run))
        template: str | tuple[str, ...] = columns
        if sorted(run) == list(range(1, len(run) + 1)):
            digits = len(run[1]) - len(before) - len(after)
            period = "{period}" if digits == 1 else f"{{period:0{digits}}}"
            if all(len(run[n]) - len(before) - len(after) == max(digits, len(str(n))) for n in run):
                template = f"{before}{period}{after}"
        found.append(Periods(columns, template, _variable(before)))
    return found


def _variable(before: str) -> str:
    """What stands before the period without what joins them; never the period itself, or a part of it."""
    name = re.sub(r"[^A-Za-z0-9]+$", "", before)
    return name if any(any(c.isalpha() for c in word) for word in words_in(name)) else "value"
