"""Tables of one source under each other: what a record's value means may not depend on who comes with it.

Files of one stream may type a column differently: a writer makes whole numbers doubles as soon as one of them is
null. Arrow joins such columns by a conversion that fails on single values, and quotes them. Here every pair of types
has one way together that fails on no value, or the types are refused for what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpstream.core.errors import DataError
from dpstream.core.schema.cells import as_cells, is_cells

__all__ = ["join"]

#: Beyond every declared instant, and an int64 in microseconds.
_FAR = 2**62
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
_ALLOWED = "one type for a column: numbers, times with a zone, times without one, texts, ..."


def join(tables: Sequence[Any], where: str) -> Any:
    """All records as one ``pyarrow.Table`` with the columns of all tables; what a table lacks is null in it.

    Whole numbers and floats become doubles (whole numbers from 2^53 on are rounded: no declared value lies there),
    times of different units microseconds (rounded down; far ones stay far), whole numbers with
    decimals of scale 0, or with unsigned 64-bit ones, decimals.

    Errors:
        DataError: a column whose types have nothing in common, or that occurs twice. No value decides.
    """
    import pyarrow as pa

    first = tables[0].schema
    if all(table.schema.equals(first) for table in tables):
        return pa.concat_tables(tables)
    if any(len(set(table.column_names)) != table.num_columns for table in tables):
        raise DataError("a column occurs twice", where=where, allowed="each name once")
    columns = {}
    # Records on standard input need not have every key: what a block lacks is null in it.
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    for number, name in enumerate(names, start=1):
        cells = _alike(
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


def _alike(columns: list[Any]) -> list[Any]:
    """Where one file's cells keep their own kinds (NDJSON), those of the others do too, if they can."""
    import pyarrow as pa

    kinds = [is_cells(column.type) for column in columns]
    if not any(kinds) or all(kinds):
        return columns
    made = [as_cells(column.combine_chunks()) for column in columns]
    return [
        column if own is None else pa.chunked_array([own]) for column, own in zip(columns, made, strict=True)
    ]


def _common(kinds: Sequence[Any]) -> Any:
    """The type that all values of these types are brought to; None where there is none."""
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
    """Rounded down, and far times stay far instead of coming round."""
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
