"""Records that were read and wait for their step.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.foreign import shielded
from dpstream.core.schema.encoded_table import BlockEncoder, EncodedBlock, EncodedTable

#: An instant (int64, microseconds) beyond all that a schema can declare.
_FAR = 2**62
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
_ALLOWED = "one type per column"


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
        cells = [
            table.column(name) if name in table.column_names else pa.chunked_array([pa.nulls(table.num_rows)])
            for table in tables
        ]
        kind = _common([column.type for column in cells])
        if kind is None:
            raise DataError(
                f"column {number} has different types in different files",
                where=where,
                allowed=_ALLOWED,
            )
        columns[name] = pa.chunked_array(
            [chunk for column in cells for chunk in _converted(column, kind).chunks], kind
        )
    return pa.table(columns)


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


_WHERE = "[source]"


class StepRows:
    """Keeps small tables for each step, in the order of the files, with inserts and deletes apart.

    Args:
        empty: an Arrow table without rows, with the columns of the records.
        encoder: what encoded the pieces other than tables; steps are then ``EncodedTable``.
    """

    def __init__(self, empty: Any, encoder: BlockEncoder | None = None) -> None:
        self._empty = empty
        self._encoder = encoder
        self._waiting: dict[tuple[int, bool], list[tuple[int, Any]]] = {}

    def add(
        self, table: Any, deletes: NDArray[np.bool_], *, steps: NDArray[np.int64], source: int = 0
    ) -> None:
        """Sort a block's records by step and operation.

        Args:
            table: the records: an Arrow table, or an ``EncodedBlock``.
            deletes: bool[records].
            steps: int64[records].
            source: the number of their file.
        """
        if not len(steps):
            return
        if (steps == steps[0]).all() and (deletes == deletes[0]).all():
            self._keep(int(steps[0]), bool(deletes[0]), source, table)
            return
        order = np.lexsort((deletes, steps))
        borders = np.flatnonzero(np.diff(steps[order]) | np.diff(deletes[order])) + 1
        for rows in np.split(order, borders):
            # take copies, so a waiting record does not keep its whole block alive
            self._keep(int(steps[rows[0]]), bool(deletes[rows[0]]), source, table.take(rows))

    def _keep(self, step: int, deletes: bool, source: int, piece: Any) -> None:
        self._waiting.setdefault((step, deletes), []).append((source, piece))

    def take(self, step: int) -> tuple[Any, Any]:
        """The inserts and the deletes of a step, which are forgotten then.

        Errors:
            DataError: the types of a column have no common type.
        """
        return self._take(step, False), self._take(step, True)

    def _take(self, step: int, deletes: bool) -> Any:
        # One file may be read further ahead than another; a stable sort restores the order of the files.
        waiting = sorted(self._waiting.pop((step, deletes), []), key=lambda piece: piece[0])
        pieces = [piece for _, piece in waiting]
        with shielded("unjoinable records", where=_WHERE, allowed="sound files"):
            if self._encoder is None:
                return join([self._empty, *pieces], _WHERE)
            return self._encoded(self._encoder, pieces)

    def _encoded(self, encoder: BlockEncoder, pieces: list[Any]) -> EncodedTable:
        """What is encoded as it is, the rest with the types that it has in common with all."""
        rest: list[Any] = [self._empty]
        kept: list[Any] = [self._empty.select(encoder.kept)]
        parts: list[Any] = []
        for piece in pieces:
            if isinstance(piece, EncodedBlock):
                parts.append(piece.codes)
                kept.append(piece.kept)
                if not piece.empty.schema.equals(rest[-1].schema):
                    rest.append(piece.empty)
            else:
                parts.append(piece.num_rows)
                kept.append(piece.select(encoder.kept))
                rest.append(piece)
        columns = join(kept, _WHERE) if encoder.kept else None
        return EncodedTable(encoder, tuple(parts), join(rest, _WHERE), columns)
