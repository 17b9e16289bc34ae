"""The door for data frames: whatever the caller holds becomes Arrow columns, then plain numbers.

pyarrow is imported inside the functions: importing the schema must stay cheap. Messages of pyarrow
quote the value they stumbled over, so every one of them is replaced by a sentence without values.

Trusted base: kernel (takes in private tables).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import DataError
from dpstream.core.schema.domain import Mask

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity|nan)$"
_INTEGER = r"^[+-]?\d+$"
#: 18 digits always fit in 64 bits.
_SHORT_INTEGER = r"^-?\d{1,18}$"
#: Beyond every permitted edge (2**62) and still an int64.
FAR = 2**63 - 1024

#: From here on (in absolute value) a double cannot tell every whole number from its neighbours.
INEXACT = 2**53
#: Rows of a part of texts, and those among which its borders are chosen.
_PART_ROWS, _SAMPLE_ROWS = 1 << 20, 1 << 10

FRAMES = "a pyarrow Table or RecordBatch, a dict of arrays or lists, or a frame of pandas, Polars or DuckDB"


def to_table(data: Any, where: str) -> Any:
    """Any supported frame as a ``pyarrow.Table``.

    Errors: ``DataError`` for an unsupported object, a repeated column name, or values that fit no
    Arrow type (the message names no value). Unnamed pandas indexes are left out.
    """
    import pyarrow as pa

    table = None
    try:
        table = _convert(data, pa)
        failed = False
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        failed = True
    if failed:
        # Raised out here, so that the original text, which quotes values, is not even its context.
        raise DataError("no table of typed columns could be read", where=where, allowed=FRAMES)
    if table is None:
        raise DataError(f"expected a table, got {type(data).__name__}", where=where, allowed=FRAMES)
    names = table.column_names
    if first_repeated(names) is not None:
        raise DataError("a column name occurs twice", where=where, allowed="each name once")
    for place, column in enumerate(table.columns):
        if pa.types.is_string_view(column.type):
            # Texts of Polars are views, of which Arrow can take no rows.
            table = table.set_column(place, names[place], column.cast(pa.large_string()))
    keep = [name for name in names if not _PANDAS_INDEX.fullmatch(name)]
    return table if len(keep) == len(names) else table.select(keep)


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs a second time; None where all differ. One pass."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _convert(data: Any, pa: Any) -> Any:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, Mapping):
        return pa.table({str(name): _one_column(values, pa) for name, values in data.items()})
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if hasattr(data, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        return from_dataframe(data)
    return None


def _one_column(values: Any, pa: Any) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    # from_pandas: a NaN among Python objects is a null, as everywhere else in this package.
    return pa.array(values, from_pandas=True)


def plain(chunk: Any) -> Any:
    """An array without the encodings that carry no meaning (views, run ends, oversized dictionaries)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = chunk.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(chunk.storage)
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(chunk))
    if pa.types.is_dictionary(kind):
        # A small slice of a table may drag a large dictionary along: look at its own values only.
        return plain(chunk.dictionary_decode()) if len(chunk.dictionary) > len(chunk) else chunk
    if pa.types.is_string_view(kind):
        return chunk.cast(pa.large_string())
    return chunk


def valid_text(array: Any) -> Any:
    """An array (or a chunked one) with U+FFFD for bytes of its texts outside UTF-8; other cells are as they were.

    Files and buffers can hold such bytes in a column of texts, and Arrow fails on a whole column for one of them.
    """
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([valid_text(chunk) for chunk in array.chunks], array.type)
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = valid_text(array.dictionary)
        if values is array.dictionary:
            return array
        return pa.DictionaryArray.from_arrays(array.indices, values, ordered=kind.ordered)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        return array
    raw = array.cast(pa.large_binary())
    try:
        raw.cast(pa.large_string())
    except pa.ArrowException:
        cells = (None if cell is None else cell.decode("utf-8", "replace") for cell in raw.to_pylist())
        return pa.array(cells, kind)
    return array


def type_name(kind: Any) -> str:
    """A type in words for messages, without zones and names of fields: the writer of the data chose those."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return f"timestamp[{kind.unit}{'' if kind.tz is None else ', with a time zone'}]"
    if isinstance(kind, pa.BaseExtensionType):
        return "extension"
    name = str(kind)
    return name if kind.num_fields == 0 else name.partition("<")[0]


def is_text(kind: Any) -> bool:
    """Whether cells of a ``plain`` array are looked up by their distinct values: texts, dictionaries of any type."""
    import pyarrow as pa

    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def dictionary_parts(chunk: Any) -> tuple[Any, NDArray[np.int32]]:
    """Distinct values of an array and each row's position among them; a null row points one past the end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
    positions = coded.indices
    if positions.type != pa.int32():
        positions = positions.cast(pa.int32())
    if positions.null_count:
        positions = pc.fill_null(positions, pa.scalar(len(coded.dictionary), pa.int32()))
    return plain(coded.dictionary), positions.to_numpy(zero_copy_only=False)


def apart(chunks: Sequence[Any], longest: int) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Texts in parts that have none in common, with the numbers of their rows; of nulls and longer texts (bytes) none.

    A dictionary of different texts takes several times their memory; that of a part, several times the part's.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = np.cumsum([0, *map(len, chunks)])
    rows = [
        np.flatnonzero(pc.less_equal(pc.binary_length(chunk), longest).fill_null(False)) for chunk in chunks
    ]
    many = sum(map(len, rows))
    parts, every = 1 + many // _PART_ROWS, 1 + many // _SAMPLE_ROWS
    some = [chunk.take(pa.array(own[::every])) for chunk, own in zip(chunks, rows, strict=True)]
    sample = sorted(text for texts in some for text in texts.to_pylist())
    # Which part a text is in follows from its place among some of them.
    borders = pa.array([sample[len(sample) * part // parts] for part in range(1, parts)], pa.large_string())
    marks = [np.zeros(len(chunk), np.uint8) for chunk in chunks]
    for border in borders:
        for chunk, mark in zip(chunks, marks, strict=True):
            mark += pc.greater_equal(chunk, border).fill_null(False).to_numpy(zero_copy_only=False)
    for part in range(parts):
        own = [place[mark[place] == part] for place, mark in zip(rows, marks, strict=True)]
        texts = [chunk.take(pa.array(place)) for chunk, place in zip(chunks, own, strict=True)]
        if any(map(len, own)):
            numbers = [start + place for start, place in zip(starts[:-1], own, strict=True)]
            yield np.concatenate(numbers), pa.concat_arrays(texts)


def null_mask(chunk: Any) -> Mask | None:
    """True where the array is null; None when nothing is."""
    if chunk.null_count == 0:
        return None
    mask: Mask = chunk.is_null().to_numpy(zero_copy_only=False)
    return mask


def integers_of(chunk: Any) -> Int64:
    """An integer, date or time array as int64 (nulls read 0; unsigned values past int64 read as ``FAR``)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_uint64(chunk.type):
        filled = pc.fill_null(chunk, pa.scalar(0, chunk.type)).to_numpy(zero_copy_only=False)
        return np.asarray(np.minimum(filled, np.uint64(FAR)), dtype=np.int64)
    values = pc.fill_null(chunk.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.int64)


def floats_of(chunk: Any) -> Float64:
    """An integer, decimal or floating array as float64 (nulls read 0.0)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_decimal(chunk.type):
        # Arrow's own conversion misses the nearest double by one now and then; the way over text does not.
        chunk = chunk.cast(pa.string())
    # Not "safe": integers past 2**53 are rounded, which no public edge can tell apart.
    values = pc.fill_null(chunk.cast(pa.float64(), safe=False), 0.0)
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def is_inexact(text: str) -> bool:
    """Whether a whole number in decimal digits is ``INEXACT`` or more in absolute value."""
    digits = text.lstrip("-")
    return len(digits) > 16 or int(digits) >= INEXACT


def text_numbers(texts: Any) -> tuple[Mask, Int64, Mask, Float64]:
    """Texts read as numbers: (is written as an integer, its value, is any number, its value).

    Surrounding blanks do not count. ``1_000``, ``0x10`` and ``1,5`` are not numbers. Integers are exact,
    those beyond every edge read as ``FAR``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.fill_null(pc.utf8_trim_whitespace(texts), "")
    numeric = pc.match_substring_regex(texts, _NUMBER)
    short = pc.match_substring_regex(texts, _SHORT_INTEGER)
    is_number: Mask = numeric.to_numpy(zero_copy_only=False)
    is_short: Mask = short.to_numpy(zero_copy_only=False)
    is_integer: Mask = pc.match_substring_regex(texts, _INTEGER).to_numpy(zero_copy_only=False)
    floats = np.zeros(len(texts), dtype=np.float64)
    floats[is_number] = texts.filter(numeric).cast(pa.float64()).to_numpy(zero_copy_only=False)
    integers = np.zeros(len(texts), dtype=np.int64)
    integers[is_short] = texts.filter(short).cast(pa.int64()).to_numpy(zero_copy_only=False)
    for i in np.flatnonzero(is_integer & ~is_short):
        integers[i] = _long_integer(texts[int(i)].as_py())
    return is_integer, integers, is_number, floats


def _long_integer(text: str) -> int:
    # Python refuses to convert thousands of digits; those are far away whatever they say.
    digits = text.lstrip("+-").lstrip("0")
    value = int(digits or "0") if len(digits) < 20 else FAR
    return max(-FAR, min(FAR, -value if text.startswith("-") else value))
