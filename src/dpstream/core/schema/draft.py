"""Drafts a whole ``dpstream.toml`` from a data file: what ``dpstream init`` writes.

The draft holds values of the private table (its categories, its smallest and largest numbers). Every such
line is marked, and the schema says ``confirmed = false`` until the steward has confirmed each as public.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dpstream.core.errors import ConfigError, DataError, counted
from dpstream.core.schema import arrow
from dpstream.core.schema.column import Column
from dpstream.core.schema.guess import Guess, guess_column
from dpstream.core.schema.numeric import Ordered
from dpstream.core.schema.sample import read_sample
from dpstream.core.schema.toml import toml_key, toml_value

__all__ = ["TO_CONFIRM", "draft_config"]

#: What stands at the end of every line that was read off the data.
TO_CONFIRM = "# CONFIRM: read off the data; confirm that it is public"
#: Rows that are looked at; the rest of a long file could still hold values that the draft lacks.
SAMPLE_ROWS = 1_000_000

_HEAD = """\
# Drafted by `dpstream init`. Lines marked CONFIRM were read off private data: names, types, values,
# smallest and largest numbers. Replace them by what is publicly known (a code list, a form, a law), or
# confirm that they are public; fill in the lines marked FILL IN; then set confirmed = true. Until then
# nothing runs, and this file is as private as the data.
format = 1

[stream]
name = {name}
{unit}

[source]
path = {path}
"""

_RECORDS = """\
unit = "event"              # event (add/remove) | event-replace | user
total = "private"           # or "public": batch sizes are declared public, and the relation becomes replace\
"""

_PEOPLE = """\
unit = "individual"         # all that one person reports
total = "private"           # or "public": the number of people is declared public (individual-replace)\
"""

_TABLES = """
[mechanism]
name = "pooled"             # or dpstabs, which measures every step: see the guide on choosing a method
workload = "all-2-way"      # or a list of column tuples with weights
# staleness = "1/10"        # so large a share of the steps may wait to be measured: see `dpstream plan`

[budget]
epsilon = "1"               # exact decimal
horizon = "none"            # or a number of steps
"""

_PANELS = """
[mechanism]
name = "panel-window"       # right about every few periods in a row; or panel-cumulative: about all periods so far
window = 3                  # each further period multiplies the patterns

[budget]
rho = "0.005"               # exact decimal, or epsilon and delta
horizon = 12                # FILL IN: how many periods there will be
"""

_TAIL = """
[output]
dir = "releases"
format = "parquet"          # or csv
keep = "all"                # or a number of full tables; manifests are always kept

[state]
dir = "state"               # SECRET: private counts; never among the releases
# key_file = "..."          # encrypts them with a key of `dpstream store key`, kept somewhere else
"""


def draft_config(
    data: Any,
    time_column: str | None = None,
    *,
    person_column: str | None = None,
    name: str | None = None,
    path: str | None = None,
    rows: int = SAMPLE_ROWS,
) -> str:
    """The text of a drafted configuration file.

    Parameters
    ----------
    data : a path (csv, csv.gz, parquet, ndjson; a folder; a pattern), or any table ``Schema.encode`` takes.
    time_column : the column that cuts the data into steps; it becomes no attribute.
    person_column : the column that says who a row is, for a panel. Without a time column the data are wide: one row
        a person, and columns that end in the number of their period, from 1.
    name, path : the stream's name and the source's path; by default taken from ``data``.
    rows : how many rows are looked at, at most.

    Guarantee: none. The text is private until confirmed.
    Errors: ``ConfigError`` for an unknown time or person column or path, and for wide data without numbered columns;
    ``DataError`` for a file that cannot be read.
    """
    if isinstance(data, (str, Path)):
        path = str(data) if path is None else path
        table = read_sample(data, rows)
    else:
        table = arrow.to_table(data, "draft").slice(0, rows)
    path = "data.parquet" if path is None else path
    columns = table.column_names
    for what, column in (("time column", time_column), ("person column", person_column)):
        if column is not None and column not in columns:
            raise ConfigError(
                f"there is no column {column!r}",
                where=what,
                allowed=f"a column of the data, which have {counted(len(columns), 'column')}",
            )
    unit = _RECORDS if person_column is None else _PEOPLE
    head = _HEAD.format(name=toml_value(name or _stream_name(path)), path=toml_value(path), unit=unit)
    if person_column is not None:
        head += f"user_column = {toml_value(person_column)}  # who it is\n"
    mechanism = _TABLES if person_column is None else _PANELS
    if person_column is not None and time_column is None:
        template, variable, values = _periods(table, person_column)
        steps = f"period_columns = {toml_value(template)}  # one column, one period\n"
        return head + steps + _schema_part({variable: guess_column(variable, values)}) + mechanism + _TAIL
    names = [column for column in columns if column not in (time_column, person_column)]
    guesses = {column: _guessed(column, table) for column in names}
    return head + _steps(time_column) + _schema_part(guesses) + mechanism + _TAIL


def _guessed(column: str, table: Any) -> Any:
    import pyarrow as pa

    try:
        return guess_column(column, table.column(column))
    except (pa.ArrowException, OverflowError):
        # A time zone that nobody knows, a day that no calendar has: the reader's message quotes it.
        place = table.column_names.index(column) + 1
        raise DataError(
            "its values cannot be read as what the file says they are",
            where=f"column {place} of the file",
            allowed="times of a known zone, days of the years 1 to 9999, texts, numbers",
        ) from None


def _periods(table: Any, person_column: str) -> tuple[str, str, Any]:
    """The longest run of numbered columns: their common name, the variable's name, and the values of all."""
    import pyarrow as pa

    runs: dict[tuple[str, str], dict[int, str]] = {}
    for name in table.column_names:
        match = re.fullmatch(r"(.*?)([0-9]{1,5})([^0-9]*)", name)
        if match and name != person_column:
            runs.setdefault((match[1], match[3]), {})[int(match[2])] = name
    whole = {key: run for key, run in runs.items() if sorted(run) == list(range(1, len(run) + 1))}
    if not whole:
        raise ConfigError(
            "no columns are numbered as periods, from 1 on",
            where="person column",
            allowed="columns such as m1, m2, ...; or a time column, with one row for each person and period",
        )
    (before, after), run = max(whole.items(), key=lambda item: len(item[1]))
    digits = len(run[1]) - len(before) - len(after)
    period = "{period}" if digits == 1 else f"{{period:0{digits}}}"
    columns = [table.column(run[number]) for number in sorted(run)]
    same = [column for column in columns if column.type == columns[0].type]
    values = pa.chunked_array([chunk for column in same for chunk in column.chunks], columns[0].type)
    variable = re.sub(r"[^A-Za-z0-9]+$", "", before) or "value"
    return f"{before}{period}{after}", variable, values


def _stream_name(path: str) -> str:
    stem = Path(path).name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "stream"


def _steps(time_column: str | None) -> str:
    if time_column is None:
        return (
            'every = "files"             # one file, one step; '
            'or a time_column and day | week | month | "14 days"\n'
        )
    return (
        f"time_column = {toml_value(time_column)}\n"
        'every = "week"              # day | week | month | "14 days"\n'
        'start = "YYYY-MM-DD"        # FILL IN: the public first day; never read it off the data\n'
        'end = "YYYY-MM-DD"          # FILL IN: the public last day, or "today"; it may be moved later\n'
        'late = "error"              # error | next-step | drop-and-count-nothing\n'
    )


def _schema_part(guesses: dict[str, Guess]) -> str:
    ignored = [name for name, guess in guesses.items() if guess.column is None]
    lines = [
        "",
        "[schema]",
        "confirmed = false           # true, once every line marked CONFIRM is known to be public",
    ]
    if ignored:
        lines.append(f"ignore = {toml_value(ignored)}  {TO_CONFIRM}")
    for name, guess in guesses.items():
        lines.append("")
        lines += _column(guess.column) if guess.column is not None else _left_out(name, guess.reason)
    return "\n".join(lines) + "\n"


def _column(column: Column) -> list[str]:
    lines = [f"[schema.columns.{toml_key(column.name)}]  {TO_CONFIRM}"]
    lines += [f"{key} = {toml_value(value)}  {TO_CONFIRM}" for key, value in column.spec().items()]
    lines.append(
        '# other = "other"           # a bin for all other values; without it such a value is an error'
    )
    if isinstance(column, Ordered):
        lines.append(
            '# outside = "clip"          # or: what lies beyond the ends goes to the first or last bin'
        )
    if column.missing is None:
        lines.append('# missing = "missing"       # a bin for nulls; without it a null is an error')
    return lines


def _left_out(name: str, reason: str) -> list[str]:
    return [
        f"# {json.dumps(name)} is left out: {reason}.  {TO_CONFIRM}",
        "# To use it, take it off the ignore list and declare what it may hold:",
        f"# [schema.columns.{toml_key(name)}]",
        '# type = "categorical"',
        '# values = ["...", "..."]',
        '# other = "other"',
    ]
