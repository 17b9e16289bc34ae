"""Drafts ``[schema]`` from a table: the part of a drafted ``dpstream.toml`` that is read off the data.

The draft holds values of the private table (its categories, its smallest and largest numbers). A list at its head names
every one, each such line is marked, and the schema says ``confirmed = false`` until the steward has confirmed each as
public.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from dpstream.core.errors import DataError
from dpstream.core.schema.column import Column
from dpstream.core.schema.guess import Guess, guess_column
from dpstream.core.schema.hints import followers
from dpstream.core.schema.numeric import Ordered
from dpstream.core.schema.toml import toml_key, toml_value

#: What stands at the end of every line that was read off the data.
TO_CONFIRM = "# CONFIRM"
#: Rows that are looked at; the rest of a long file could still hold values that the draft lacks.
SAMPLE_ROWS = 1_000_000
#: Keys of a column whose values come from the data.
_READ_OFF = ("values", "min", "max", "edges", "start", "end", "timezone")

_BINS = """\
# `other` is a bin for all values that are not declared, and `missing` one for empty cells: with them no single cell can
# stop the stream. Each is one more value with noise of its own: take out those that a public rule excludes. Columns of
# numbers, dates, true and false are released with both as empty cells: take one out to tell the other one apart."""
_NO_BINS = """\
# No column has a bin for other values (`other = "other"`), and one for empty cells (`missing = "missing"`) stands only
# where a cell was empty: this mechanism takes no such bins, or pays for each with many patterns. Without them an empty
# cell or another value is an error that stops the stream."""
_BOUNDS = """\
# Of the edges of a column of numbers this mechanism uses the first and the last one, its bounds. Edges between them
# would be bins for questions only: draw them where readers want them, never where the data lie."""


def draft_columns(table: Any, names: Sequence[str], *, bins: bool = True, bounds_only: bool = False) -> str:
    """``[schema]`` for some columns of an Arrow table.

    Args:
        bins: with bins for nulls and for other values.
        bounds_only: with no edges between the first and the last one of a column.

    Guarantee: none. The text is private until confirmed.
    Errors: ``DataError`` for values that cannot be read as what the file says they are.
    """
    pairs = followers(table, names)
    guesses = {name: _guessed(name, table, bins, bounds_only) for name in names}
    return _schema_part(guesses, bins, pairs, bounds_only=bounds_only)


def draft_reports(variable: str, values: Any) -> str:
    """``[schema]`` for what people report, period by period: one column, with its values of all periods.

    Guarantee: none. The text is private until confirmed.
    """
    return _schema_part({variable: guess_column(variable, values, bins=False)}, False)


def _guessed(column: str, table: Any, bins: bool, bounds_only: bool) -> Guess:
    import pyarrow as pa

    if column.startswith("__"):
        return Guess(None, "its name says that it is a change feed's own column")
    try:
        return guess_column(column, table.column(column), bins=bins, bounds_only=bounds_only)
    except (pa.ArrowException, OverflowError):
        # A time zone that nobody knows, a day that no calendar has: the reader's message quotes it.
        place = table.column_names.index(column) + 1
        raise DataError(
            "its values cannot be read as what the file says they are",
            where=f"column {place} of the file",
            allowed="times of a known zone, days of the years 1 to 9999, texts, numbers",
        ) from None


def _schema_part(
    guesses: dict[str, Guess],
    bins: bool,
    pairs: Sequence[tuple[str, str]] = (),
    *,
    bounds_only: bool = False,
) -> str:
    ignored = [name for name, guess in guesses.items() if guess.column is None]
    lines = [
        "",
        "[schema]",
        *_read_off(guesses),
        "confirmed = false",
        "",
        *(_BINS if bins else _NO_BINS).splitlines(),
        *(_BOUNDS.splitlines() if bounds_only else ()),
    ]
    if ignored:
        lines += [
            "",
            "# Columns of the data that are no part of the stream. Each has its reason below.",
            f"ignore = {toml_value(ignored)}  {TO_CONFIRM}",
        ]
    for name, guess in guesses.items():
        lines.append("")
        lines += _column(guess.column) if guess.column is not None else _left_out(name, guess.reason)
    if pairs:
        lines += ["", *_followers(pairs)]
    return "\n".join(lines) + "\n"


def _read_off(guesses: dict[str, Guess]) -> list[str]:
    """What there is to confirm, and the switch for all of it."""
    lines = [
        "# One switch for this section. Set it to true when you have replaced each of these by what is publicly known,",
        "# or know that it is public. Read off the private data were: names and types of all columns, and",
    ]
    items = []
    for name, guess in guesses.items():
        if guess.column is None:
            items.append(f"that {toml_key(name)} is left out")
        elif keys := [key for key in guess.column.spec() if key in _READ_OFF]:
            items.append(f"{' and '.join(keys)} of {toml_key(name)}")
    listed = "; ".join(items) or "nothing else"
    return lines + textwrap.wrap(
        f"{listed}.", 110, initial_indent="#   ", subsequent_indent="#   ", break_on_hyphens=False
    )


def _column(column: Column) -> list[str]:
    lines = [f"[schema.columns.{toml_key(column.name)}]"]
    for key, value in column.spec().items():
        mark = f"  {TO_CONFIRM}" if key in _READ_OFF else ""
        lines.append(f"{key} = {toml_value(value)}{mark}")
    if isinstance(column, Ordered):
        clip = "or, in the place of other: what lies beyond the ends goes to the first or last bin"
        lines.append(f'# outside = "clip"  # {clip}')
    return lines


def _left_out(name: str, reason: str) -> list[str]:
    return [
        f"# {json.dumps(name)} is ignored: {reason}.  {TO_CONFIRM}",
        "# To use it, take it off the ignore list and declare what it may hold:",
        f"# [schema.columns.{toml_key(name)}]",
        '# type = "categorical"',
        '# values = ["...", "..."]',
        '# other = "other"',
        '# missing = "missing"',
    ]


def _followers(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """One section, as a comment, for all columns that follow from others."""
    seem = [
        f"# {json.dumps(part)} seems to follow from {json.dumps(whole)}.  {TO_CONFIRM}, or delete its lines"
        for whole, part in pairs
    ]
    files = [(whole, part, f"{whole}-{part}.csv") for whole, part in pairs]
    return [
        *seem,
        "# If a public list says which value belongs to which, tables can keep to it; never make it from these rows.",
        "# [schema.constraints.derived]",
        *(
            f"# {toml_key(part)} = {{ from = {toml_value(whole)}, file = {toml_value(file)} }}"
            for whole, part, file in files
        ),
    ]
