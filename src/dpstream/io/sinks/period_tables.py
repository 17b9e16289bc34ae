"""Released tables of people who persist: one report a person and period.

A wide table has the column ``person`` and one column for each period and variable (``poor_1``, ``poor_2``, ...); a long
one has ``person``, ``period`` and the variables. A table without people has no periods.

Where people have weights, a period has a weight for each: ``weight_3`` of a wide table, ``weight`` of a long one, after
the variables. A period without weights has no such column in a wide table, and nulls in a long one.

Periods are called by their numbers, 1, 2, 3, ..., or by names that are given to all of them: ``poor_2005-04`` of a wide
table, and ``2005-04`` in the column ``period`` of a long one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError

PERSON = "person"
PERIOD = "period"
#: Of people who stand for more or fewer people than one.
WEIGHT = "weight"


def has_periods(manifest: Mapping[str, Any]) -> bool:
    """Whether a release is one of a panel, whose changes are new periods of its people instead of records."""
    return bool(manifest.get("records", {}).get("kind") == "panel")


def called(period: int, names: Sequence[str] | None) -> int | str:
    """How a period is called in released tables: by its name, or by its number where periods have no names."""
    return period if names is None else names[period - 1]


def wide_name(column: str, period: int | str) -> str:
    """Name of one variable's column of one period in a wide table.

    >>> wide_name("poor", 3), wide_name("poor", "2005-04")
    ('poor_3', 'poor_2005-04')
    """
    return f"{column}_{period}"


def periods_of(columns: Sequence[str], variable: str, names: Sequence[str] | None = None) -> int:
    """How many periods a wide table with these columns has.

    Args:
        names: those of all periods; None where they are called by their numbers.

    >>> periods_of(["person", "poor_1", "poor_2", "weight_2"], "poor")
    2
    """
    there, period = set(columns), 0
    while (names is None or period < len(names)) and wide_name(variable, called(period + 1, names)) in there:
        period += 1
    return period


def add_periods(table: Any, rows: Any, weight: str | None = None) -> Any:
    """A wide table with the periods of a long one added to it. Nothing that is there is changed.

    Args:
        weight: name of the column of weights; None where people have none.

    >>> import pyarrow as pa
    >>> wide = pa.table({"person": [1, 2], "poor_1": [True, False]})
    >>> add_periods(wide, pa.table({"person": [1, 2], "period": [2, 2], "poor": [False, True]})).to_pydict()
    {'person': [1, 2], 'poor_1': [True, False], 'poor_2': [False, True]}

    Errors:
        DataError: periods that do not follow, or rows that are not one for each person and period, in their order.
    """
    import pyarrow as pa

    people = table.column(PERSON).to_numpy()
    variables = [name for name in rows.column_names if name not in (PERSON, PERIOD, weight)]
    periods = rows.column(PERIOD).to_numpy(zero_copy_only=False)
    for period in _new_periods(table.column_names, rows.column(PERIOD), variables):
        part = rows.filter(pa.array(periods == period))
        ids = part.column(PERSON).to_numpy()
        if not len(people) and table.num_columns == 1:
            people, table = ids, pa.table({PERSON: part.column(PERSON)})
        if not np.array_equal(ids, people):
            raise DataError("expected one new row per person", where="changes")
        for name in variables:
            table = table.append_column(wide_name(name, period), part.column(name))
        if weight is not None and not part.column(weight).null_count:
            table = table.append_column(wide_name(weight, period), part.column(weight))
    return table.combine_chunks()


def _new_periods(columns: Sequence[str], periods: Any, variables: Sequence[str]) -> Sequence[int | str]:
    """The periods of new rows that a wide table has no columns of, in their order."""
    import pyarrow as pa

    if not variables:
        return ()
    if pa.types.is_integer(periods.type):
        last = int(periods.to_numpy().max(initial=0))
        return range(periods_of(columns, variables[0]) + 1, last + 1)
    # Names are in the order of their rows. That none is missing, the table's hash tells.
    return [name for name in periods.unique().to_pylist() if wide_name(variables[0], name) not in columns]


def long_rows(frames: Sequence[tuple[int | str, Any]], people: int, empty: tuple[int | str, Any]) -> Any:
    """Rows of some periods, period after period: ``(period, table of the variables)``; ``empty`` has their types."""
    import pyarrow as pa

    ids = np.arange(1, people + 1, dtype=np.int64)
    parts = [_numbered(empty[1], ids[:0], empty[0])]
    parts += [_numbered(frame, ids, period) for period, frame in frames]
    return pa.concat_tables(parts).combine_chunks()


def wide_table(frames: Sequence[tuple[int | str, Any]], people: int, weight: str | None = None) -> Any:
    """The wide table of all periods so far: ``(period, table of the variables)``; ``weight`` as in ``add_periods``."""
    import pyarrow as pa

    arrays = {PERSON: pa.array(np.arange(1, people + 1, dtype=np.int64))}
    if people:
        arrays |= {
            wide_name(name, period): frame.column(name)
            for period, frame in frames
            for name in frame.column_names
            if not (name == weight and frame.column(name).null_count)
        }
    return pa.table(arrays).combine_chunks()


def _numbered(frame: Any, ids: NDArray[np.int64], period: int | str) -> Any:
    import pyarrow as pa

    kind = pa.string() if isinstance(period, str) else pa.int64()
    periods = pa.repeat(pa.scalar(period, kind), len(ids))
    return frame.add_column(0, PERIOD, periods).add_column(0, PERSON, pa.array(ids))
