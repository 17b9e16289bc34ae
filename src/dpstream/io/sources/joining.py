"""Joins the tables of one source: the meaning of a value must not depend on the records beside it.

Files of one stream may have different types for a column; a writer may turn whole numbers into doubles as soon as one
of them is null. Arrow's conversion fails on single values, and quotes them. Here the types alone decide: two types have
a common type that takes every value, or they are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpstream.core.errors import DataError
from dpstream.core.schema.cells import as_cells, is_cells

#: An instant (int64, microseconds) beyond all that a schema can declare.
_FAR = 2**62
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
_ALLOWED = "one type for a column: numbers, times with a zone, times without one, texts, ..."


def join(tables: Sequence[Any], where: str) -> Any:
    """All records as one ``pyarrow.Table`` with the columns of all tables. A column that a table lacks is null there.

    Whole numbers and floats become doubles (whole numbers from 2^53 on are rounded; no schema declares such values).
    Times of different units become microseconds, rounded down; instants beyond their range stay far away. Whole numbers
    and decimals of scale 0, and unsigned 64-bit numbers, become decimals.

    Errors:
        DataError: the types of a column have no common type, or a column occurs twice.
    """
    import pyarrow as pa

    first = tables[0].schema
    if all(table.schema.equals(first) for table in tables):
        return pa.concat_tables(tables)
    if any(len(set(table.column_names)) != table.num_columns for table in tables):
        raise DataError("a column occurs twice", where=where, allowed="each name once")
    columns = {}
    # Records on standard input need not have every key, so a block may lack a column.
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    for number, name in enumerate(names, start=1):
        cells = _all_as_cells(
            [
                table.column(name)
                if name in table.column_names
                else pa.chunked_array([pa.nulls(table.num_rows)])
                for table in tables
            ]
        )
        kind = _common([column.type for column in cells])
        if kind is None:
            raise DataError(
                f"column {number} of the records has different types in different files",
                where=where,
                allowed=_ALLOWED,
            )
        columns[name] = pa.chunked_array(
            [chunk for column in cells for chunk in _converted(column, kind).chunks], kind
        )
    return pa.table(columns)


def _all_as_cells(columns: list[Any]) -> list[Any]:
    """Where the cells of one file keep their own kinds (NDJSON), turn the other columns into such cells, if
    possible."""
    import pyarrow as pa

    kinds = [is_cells(column.type) for column in columns]
    if not any(kinds) or all(kinds):
        return columns
    made = [as_cells(column.combine_chunks()) for column in columns]
    return [
        column if own is None else pa.chunked_array([own]) for column, own in zip(columns, made, strict=True)
    ]


def _common(kinds: Sequence[Any]) -> Any:
    """The common type of these types; None where they have none."""
    import pyarrow as pa

    is_whole, is_decimal = pa.types.is_integer, pa.types.is_decimal
    plain = {kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds}
    plain = {kind for kind in plain if not pa.types.is_null(kind)}
    if len(plain) < 2:
        return next(iter(plain), pa.null())
    if all(is_whole(kind) for kind in plain) and pa.uint64() not in plain:
        return pa.int64()
    if all(is_whole(kind) or (is_decimal(kind) and kind.scale == 0) for kind in plain):
        return pa.decimal256(76) if any(pa.types.is_decimal256(kind) for kind in plain) else pa.decimal128(38)
    if all(is_whole(kind) or is_decimal(kind) or pa.types.is_floating(kind) for kind in plain):
        return pa.float64()
    if all(pa.types.is_timestamp(kind) for kind in plain):
        zones = {kind.tz for kind in plain}
        return (
            None
            if None in zones and len(zones) > 1
            else pa.timestamp("us", min(zones, default=None, key=str))
        )
    if all(_is_text(kind) or _is_binary(kind) for kind in plain):
        return pa.large_string() if all(_is_text(kind) for kind in plain) else pa.large_binary()
    if all(pa.types.is_date(kind) for kind in plain):
        return pa.date64()
    return None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _converted(column: Any, kind: Any) -> Any:
    import pyarrow as pa

    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return _converted(column.cast(column.type.value_type), kind)
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
        chunks = [_microseconds(chunk, kind) for chunk in column.chunks]
        return pa.chunked_array(chunks, kind)
    if pa.types.is_decimal(column.type) and pa.types.is_floating(kind):
        column = column.cast(pa.string())
    return column.cast(kind, safe=False)


def _microseconds(times: Any, kind: Any) -> Any:
    """Instants in microseconds, rounded down. Those beyond the range are clipped far away; they must not wrap
    around."""
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = times.is_null().to_numpy(zero_copy_only=False)
    ticks = pc.fill_null(times.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    if times.type.unit == "ns":
        whole = ticks // 1000
    else:
        factor = _MICROSECONDS[times.type.unit]
        whole = np.clip(ticks, -(_FAR // factor), _FAR // factor) * factor
    return pa.array(whole, pa.int64(), mask=empty).cast(kind)
