"""Drafts ``[schema]`` from a table: the part of a drafted ``dpstream.toml`` that is read off the data.

The draft holds values of the private table (its categories, its smallest and largest numbers). Every such
line is marked, and the schema says ``confirmed = false`` until the steward has confirmed each as public.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.schema.column import Column
from dpstream.core.schema.guess import Guess, guess_column
from dpstream.core.schema.numeric import Ordered
from dpstream.core.schema.toml import toml_key, toml_value

__all__ = ["MARK", "SAMPLE_ROWS", "draft_columns", "draft_periods"]

#: What stands at the end of every line that was read off the data.
MARK = "# CONFIRM: read off the data; confirm that it is public"
#: Rows that are looked at; the rest of a long file could still hold values that the draft lacks.
SAMPLE_ROWS = 1_000_000


def draft_columns(table: Any, names: Sequence[str]) -> str:
    """``[schema]`` for some columns of an Arrow table.

    Guarantee: none. The text is private until confirmed.
    Errors: ``DataError`` for values that cannot be read as what the file says they are.
    """
    return _schema_part({name: _guessed(name, table) for name in names})


def draft_periods(table: Any, person_column: str) -> tuple[str, str]:
    """Of a table with one row a person: how its numbered columns are called, and ``[schema]`` for their values.

    Guarantee: none. The text is private until confirmed.
    Errors: ``ConfigError`` where no columns are numbered from 1.
    """
    template, variable, values = _periods(table, person_column)
    return template, _schema_part({variable: guess_column(variable, values)})


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
        found = re.fullmatch(r"(.*?)([0-9]{1,5})([^0-9]*)", name)
        if found and name != person_column:
            runs.setdefault((found[1], found[3]), {})[int(found[2])] = name
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


def _schema_part(guesses: dict[str, Guess]) -> str:
    ignored = [name for name, guess in guesses.items() if guess.column is None]
    lines = [
        "",
        "[schema]",
        "confirmed = false           # true, once every line marked CONFIRM is known to be public",
    ]
    if ignored:
        lines.append(f"ignore = {toml_value(ignored)}  {MARK}")
    for name, guess in guesses.items():
        lines.append("")
        lines += _column(guess.column) if guess.column is not None else _left_out(name, guess.reason)
    return "\n".join(lines) + "\n"


def _column(column: Column) -> list[str]:
    lines = [f"[schema.columns.{toml_key(column.name)}]  {MARK}"]
    lines += [f"{key} = {toml_value(value)}  {MARK}" for key, value in column.spec().items()]
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
        f"# {json.dumps(name)} is left out: {reason}.  {MARK}",
        "# To use it, take it off the ignore list and declare what it may hold:",
        f"# [schema.columns.{toml_key(name)}]",
        '# type = "categorical"',
        '# values = ["...", "..."]',
        '# other = "other"',
    ]
