"""Reading csv, parquet and ndjson files block by block, with errors that name the file but no value.

pyarrow is imported inside functions: the command line must start quickly. Its messages quote the data,
so each is replaced by a sentence of our own.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from dpstream.errors import DataError
from dpstream.files import check_file
from dpstream.schema.arrow import first_repeated

__all__ = [
    "FORMATS",
    "UnreadableError",
    "blocks",
    "column_names",
    "file_format",
    "fingerprint",
    "json_column",
    "json_records",
    "read_table",
]

FORMATS = ".csv, .csv.gz, .parquet, .ndjson, .ndjson.gz, .jsonl, .jsonl.gz"
_BLOCK_BYTES = 2**22
_BLOCK_ROWS = 2**16

#: Column name -> Arrow type or its name.
Types = Mapping[str, Any]


class UnreadableError(DataError):
    """A source that cannot be read now, and perhaps can later. Nothing was handed out of it."""


def file_format(path: Path) -> str:
    """``csv``, ``parquet`` or ``ndjson``, by the file's ending.

    Errors:
        DataError: an unknown ending.
    """
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    if name.endswith(".parquet"):
        return "parquet"
    if name.endswith((".ndjson", ".ndjson.gz", ".jsonl", ".jsonl.gz")):
        return "ndjson"
    raise DataError("the format of the file is not known", where=str(path), allowed=FORMATS)


def read_table(path: str | Path, *, column_types: Types | None = None, infer: bool = False) -> Any:
    """A whole file as a ``pyarrow.Table``.

    Args:
        path: a file in one of the known formats.
        column_types: Arrow types (or their names) for some columns of csv and ndjson files.
        infer: let csv columns get types by their values; otherwise csv cells are text, as in a stream (the
            schema says what they mean, so a zip code keeps its zeros).

    Errors:
        DataError: the file is missing, damaged, half-written or inconsistent.
    """
    import pyarrow as pa

    file = Path(path)
    parts = list(blocks(file, column_types=column_types, infer=infer))
    with readable(file):
        return pa.concat_tables(parts, promote_options="permissive")


def column_names(path: Path, *, reveal: bool = False) -> list[str]:
    """Names of a file's columns, in order (ndjson: the keys of its first records)."""
    kind = file_format(path)
    check_file(path)
    with readable(path):
        if kind == "parquet":
            import pyarrow.parquet

            with pyarrow.parquet.ParquetFile(path) as file:
                names = list(file.schema_arrow.names)
        elif kind == "csv":
            names = _csv_header(path)
        else:
            with _text(path) as stream:
                names = _keys(json_records(path, stream.readlines(_BLOCK_BYTES), 0 if reveal else None))
    if not names:
        raise DataError("the file is empty", where=str(path), allowed="a file that names its columns")
    twice = first_repeated(names)
    if twice is not None:
        raise DataError(f"the column {twice!r} occurs twice", where=str(path), allowed="each name once")
    return names


def blocks(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    column_types: Types | None = None,
    infer: bool = False,
    reveal: bool = False,
) -> Iterator[Any]:
    """The file as small ``pyarrow.Table`` blocks in order; at least one, maybe without rows.

    ``reveal``: errors say which line it is (a lower bound of the private number of records).
    Memory: one block (about 4 MB of text, or 65,536 records).
    """
    kind = file_format(path)
    types = {name: _arrow_type(value) for name, value in (column_types or {}).items()}
    names = column_names(path, reveal=reveal)
    wanted = names if columns is None else list(columns)
    if kind == "parquet":
        return _parquet_blocks(path, wanted)
    if kind == "csv":
        return _csv_blocks(path, names, wanted, types, infer, reveal)
    return _json_blocks(path, names, wanted, types, reveal)


def fingerprint(path: Path, limit: int | None = None, *, key: bytes = b"") -> tuple[int, int]:
    """Length and BLAKE2b-128 digest (as an integer) of a file's first ``limit`` bytes, after decompression.

    Private: equal files have equal digests, for everybody who knows ``key``.
    """
    digest, length = hashlib.blake2b(digest_size=16, key=key), 0
    with readable(path), _binary(path) as stream:
        while limit is None or length < limit:
            data = stream.read(_BLOCK_BYTES if limit is None else min(_BLOCK_BYTES, limit - length))
            if not data:
                break
            digest.update(data)
            length += len(data)
    return length, int.from_bytes(digest.digest())


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what readers raise on a bad file into one sentence about the file."""
    import pyarrow as pa

    try:
        yield
    except (FileNotFoundError, IsADirectoryError):
        raise UnreadableError("there is no such file", where=str(path)) from None
    except PermissionError:
        raise UnreadableError(
            "the file may not be read", where=str(path), allowed="a readable file"
        ) from None
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error):
        # Readers' messages quote private values: nothing of them is kept.
        raise UnreadableError(
            f"the file cannot be read as {file_format(path)}: it is damaged, half-written or inconsistent",
            where=str(path),
            allowed="a complete file (write it under another name, then rename it)",
        ) from None


def _arrow_type(value: Any) -> Any:
    import pyarrow as pa

    return pa.type_for_alias(value) if isinstance(value, str) else value


def _binary(path: Path) -> IO[bytes]:
    # Python's gzip notices a truncated stream and reads concatenated members.
    if path.name.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def _text(path: Path) -> IO[str]:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def _csv_header(path: Path) -> list[str]:
    with _text(path) as stream:
        return next(csv.reader(stream), [])


def _csv_blocks(
    path: Path, names: list[str], wanted: list[str], types: Types, infer: bool, reveal: bool
) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv

    bad: list[tuple[int | None, int, int]] = []

    def refuse(row: Any) -> str:
        bad.append((row.number, row.expected_columns, row.actual_columns))
        return "error"

    text = {} if infer else {name: pa.string() for name in names}
    convert = pyarrow.csv.ConvertOptions(
        column_types={**text, **types}, include_columns=wanted, strings_can_be_null=infer
    )
    # An empty line is a record with an empty cell where there is one column, else nothing.
    parse = pyarrow.csv.ParseOptions(
        newlines_in_values=True, invalid_row_handler=refuse, ignore_empty_lines=len(names) > 1
    )
    read = pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
    try:
        with readable(path), _binary(path) as stream:
            if infer:
                # Types from the whole file: blocks of a stream would each decide for themselves.
                yield pyarrow.csv.read_csv(
                    stream, read_options=read, parse_options=parse, convert_options=convert
                )
                return
            reader = pyarrow.csv.open_csv(
                stream, read_options=read, parse_options=parse, convert_options=convert
            )
            yield reader.schema.empty_table()
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except DataError:
        if not bad:
            raise
        number, expected, actual = bad[0]
        line = f", line {number}" if reveal and number is not None else ""
        found = f"{actual} columns" if reveal else "more or fewer columns"
        raise DataError(
            f"a line has {found} and the first line {expected}",
            where=f"{path}{line}",
            allowed="the same number of columns in every line",
        ) from None


def _parquet_blocks(path: Path, wanted: list[str]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet

    with readable(path), pyarrow.parquet.ParquetFile(path) as file:
        schema = pa.schema([file.schema_arrow.field(name) for name in wanted])
        yield schema.empty_table()
        for batch in file.iter_batches(batch_size=_BLOCK_ROWS, columns=wanted, use_threads=False):
            yield pa.Table.from_batches([batch]).select(wanted)


def _json_blocks(
    path: Path, names: list[str], wanted: list[str], types: Types, reveal: bool
) -> Iterator[Any]:
    import pyarrow as pa

    known = set(names)
    with readable(path), _text(path) as stream:
        yield pa.table({name: pa.array([], types.get(name, pa.null())) for name in wanted})
        line = 0
        while lines := stream.readlines(_BLOCK_BYTES):
            records = json_records(path, lines, line if reveal else None)
            for number, record in records:
                if not known.issuperset(record):
                    raise DataError(
                        "a record has a key that the file's first records do not have",
                        where=f"{path}, line {number}" if reveal else str(path),
                        allowed=", ".join(names),
                    )
            yield pa.table(
                {name: json_column(path, records, name, types.get(name), reveal) for name in wanted}
            )
            line += len(lines)


def json_records(path: Path, lines: list[str], before: int | None) -> list[tuple[int, dict[str, Any]]]:
    """Line number and record of each line that is not blank. Errors tell no number if ``before`` is None."""
    records = []
    for number, line in enumerate(lines, start=(before or 0) + 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            place = str(path) if before is None else f"{path}, line {number}"
            raise DataError("a line is not a JSON object", where=place, allowed="one object a line")
        records.append((number, record))
    return records


def _no_constant(_name: str) -> None:
    raise ValueError  # NaN and Infinity are not JSON


def _keys(records: list[tuple[int, dict[str, Any]]]) -> list[str]:
    return list(dict.fromkeys(key for _, record in records for key in record))


def json_column(
    path: Path, records: list[tuple[int, dict[str, Any]]], name: str, kind: Any, reveal: bool
) -> Any:
    import pyarrow as pa

    values = [record.get(name) for _, record in records]
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        column = None
    if column is None or pa.types.is_nested(column.type):
        lines = f", lines {records[0][0]} to {records[-1][0]}" if reveal else ""
        raise DataError(
            f"the column {name!r} mixes types or holds lists or objects",
            where=f"{path}{lines}",
            allowed="texts, numbers or booleans, one kind in a column, and null",
        )
    return column
