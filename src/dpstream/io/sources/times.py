"""Time and operation columns as arrays of numbers and booleans, with errors that name file and column and no value.

Trusted base: source (reads private records).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.foreign import shielded
from dpstream.core.schema.arrow import type_name
from dpstream.io.sources.operations import plain_texts, refuse_rows
from dpstream.io.sources.source_options import SourceOptions

_DATE = r"^\d{4}-\d{2}-\d{2}$"
_CLOCK = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
_ZONE = r"(Z|[+-]\d{2}:?\d{2})$"
_NUMBER = r"^-?\d{1,18}$"
_DAYS = "such as 2026-01-31 or 2026-01-31T12:00:00 (offsets: taken in UTC)"
#: By whether times have an offset. Of one moment the two forms may name two days, and a stream counts in one of them.
_OTHER_FORM = {False: "a time has an offset", True: "a time lacks an offset"}
_FORMS = {
    False: ("such as 2026-01-31 or 2026-01-31T12:00:00; [source] offsets = true where all have an offset"),
    True: "such as 2026-01-31T12:00:00Z ([source] offsets = true)",
}
NUMBERS = "whole step numbers"


def deletes_of(rows: Any, options: SourceOptions, where: str, before: int | None = None) -> NDArray[np.bool_]:
    """Whether each row of a table is a delete; arguments and errors as of ``Operations.read``."""
    name = options.delete_column
    if name is None:
        return np.zeros(rows.num_rows, np.bool_)
    return options.op_values.deletes(rows.column(name), name=name, where=where, before=before)


def times_of(
    column: Any, options: SourceOptions, *, name: str, where: str, before: int | None = None
) -> NDArray[np.int64]:
    """A block of a time column as days since 1970 (or step numbers), int64.

    Args:
        column: an Arrow array.
        options: whether these are step numbers or days, and in files whether times have an offset.
        name: the column's name, for messages.
        where: the file, for messages.
        before: how many records of the file come before the block, so that messages can name the record. None: they do
            not, because its number bounds the private number of records.

    Errors:
        DataError: a null or unreadable time, or one of the other form, naming file and column.
    """
    import pyarrow as pa

    numbers = options.cut == "numbers"
    offsets = options.offsets if options.kind == "files" and not numbers else None
    allowed = NUMBERS if numbers else _DAYS if offsets is None else _FORMS[offsets]
    where = f"{where}, column {name!r}"
    with shielded("unreadable times", where=where, allowed=allowed):
        values = plain_texts(column)
        kind = values.type
        if not len(values):
            return np.zeros(0, np.int64)
        refuse_rows(values.is_null(), "a time is missing", where, before, allowed)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            values = _from_text(values, numbers, where, before, allowed, offsets)
        elif not (
            pa.types.is_integer(kind) if numbers else pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        ):
            raise DataError(f"time column of type {type_name(kind)}", where=where, allowed=allowed)
        elif offsets is not None and offsets != (pa.types.is_timestamp(kind) and kind.tz is not None):
            raise DataError(_OTHER_FORM[offsets], where=where, allowed=allowed)
        return _plain(values, numbers, where, allowed)


def _plain(values: Any, numbers: bool, where: str, allowed: str) -> NDArray[np.int64]:
    import pyarrow as pa

    try:
        if numbers:
            integers = values.cast(pa.int64())
        elif pa.types.is_timestamp(values.type):
            # Round down and not towards zero: 1969-12-31 18:00 is day -1.
            unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[values.type.unit] * 86400
            ticks = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
            return np.asarray(ticks // unit, np.int64)
        else:
            integers = values.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    except pa.ArrowException:
        raise DataError("a time is out of range", where=where, allowed=allowed) from None
    return np.asarray(integers.to_numpy(zero_copy_only=False), np.int64)


def _from_text(
    texts: Any, numbers: bool, where: str, before: int | None, allowed: str, offsets: bool | None
) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    if numbers:
        good = pc.match_substring_regex(texts, _NUMBER)
        refuse_rows(pc.invert(good), "expected step numbers", where, before, allowed)
        return texts.cast(pa.int64())
    zoned = pc.match_substring_regex(texts, _CLOCK + _ZONE)
    plain = pc.match_substring_regex(texts, f"{_DATE}|{_CLOCK}$")
    refuse_rows(
        pc.invert(pc.or_(zoned, plain)), "expected a date or a time in every row", where, before, allowed
    )
    if offsets is not None:
        refuse_rows(plain if offsets else zoned, _OTHER_FORM[offsets], where, before, allowed)
    days = np.empty(len(texts), np.int64)
    for chosen, kind in ((plain, pa.timestamp("us")), (zoned, pa.timestamp("us", "UTC"))):
        part = texts.filter(chosen)
        try:
            parsed = part.cast(kind)
        except pa.ArrowException:
            # The text has the right form, so it is something like 31 February or 25:00.
            raise DataError("a time does not exist", where=where, allowed=allowed) from None
        days[chosen.to_numpy(zero_copy_only=False)] = _plain(parsed, False, where, allowed)
    return pa.array(days.astype("datetime64[D]"))
