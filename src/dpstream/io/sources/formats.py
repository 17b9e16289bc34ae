"""Reads csv, parquet and ndjson files block by block, with errors that name the file and no value.

pyarrow is imported inside functions, because the command line must start quickly. Its messages quote the data, so they
are replaced by dpstream's own.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from dpstream.core.errors import DataError
from dpstream.core.foreign import failures
from dpstream.core.paths import check_file
from dpstream.core.schema.arrow import first_repeated, valid_text
from dpstream.core.schema.cells import cells, is_cells, parse_record, texts, typed
from dpstream.io.sources.lines import (
    MOST_BYTES,
    OPEN_QUOTE,
    OTHER_COUNT,
    Rules,
    Scan,
    emptied,
    repaired,
    scan,
    whole_lines,
)

__all__ = [
    "FORMATS",
    "UnreadableError",
    "blocks",
    "column_names",
    "file_format",
    "fingerprint",
    "json_records",
    "json_table",
    "read_table",
]

FORMATS = ".csv, .csv.gz, .parquet, .ndjson, .ndjson.gz, .jsonl, .jsonl.gz"
_BLOCK_BYTES = 2**22
_BLOCK_ROWS = 2**16
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"

#: Column name -> Arrow type or its name.
Types = Mapping[str, Any]

#: Outside a stream a record may run over several lines: there no guarantee depends on how far one record reaches.
_SPANNING = Rules(line_breaks=True)


class UnreadableError(DataError):
    """A source cannot be read now; perhaps it can later. It has handed out nothing."""


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
    raise DataError("the file has an unknown format", where=str(path), allowed=FORMATS)


def read_table(path: str | Path, *, column_types: Types | None = None, infer: bool = False) -> Any:
    """A whole file as a ``pyarrow.Table``.

    Args:
        path: a file in one of the known formats.
        column_types: Arrow types (or their names) for some columns of csv and ndjson files.
        infer: give csv columns types by their values. Otherwise csv cells are text, as in a stream, where the schema
            gives the types (so a zip code keeps its zeros).

    Errors:
        DataError: the file is missing, damaged, half-written or inconsistent.
    """
    import pyarrow as pa

    file = Path(path)
    parts = list(blocks(file, column_types=column_types, infer=infer))
    with readable(file):
        table = pa.concat_tables(parts, promote_options="permissive")
    for i, name in enumerate(table.column_names):
        if is_cells(table.column(i).type):
            column = typed(table.column(i))
            if column is None:
                raise DataError(
                    "a column mixes types or holds lists or objects",
                    where=str(file),
                    allowed="texts, numbers or booleans, one kind in a column, and null",
                )
            table = table.set_column(i, name, column)
    return table


def column_names(path: Path, *, reveal: bool = False, rules: Rules = _SPANNING) -> list[str]:
    """The names of a file's columns, in order (ndjson: ``rules.names``, or the keys of its records).

    Errors:
        DataError: the file is missing, damaged or empty, or a name occurs twice.
    """
    kind = file_format(path)
    check_file(path)
    with readable(path):
        if kind == "parquet":
            import pyarrow.parquet

            with pyarrow.parquet.ParquetFile(path) as file:
                names = list(file.schema_arrow.names)
        elif kind == "csv":
            names = _csv_header(path, rules)
        elif rules.names is not None:
            names = list(rules.names)
        else:
            with _binary(path) as stream:
                quiet, keys, line = replace(rules, tally=None), dict[str, None](), 0
                for block in islice(whole_lines(stream, _BLOCK_BYTES), None if rules.all_keys else 1):
                    lines = block.splitlines()
                    records = json_records(str(path), lines, line if reveal else None, quiet)
                    keys |= dict.fromkeys(key for record in records for key in record)
                    line += len(lines)
            names = list(keys)
    if not names:
        raise DataError("the file is empty", where=str(path), allowed="a file that names its columns")
    twice = first_repeated(names)
    if twice is not None:
        shown = f"the column {twice!r}" if reveal else "a column"
        raise DataError(f"{shown} occurs twice", where=str(path), allowed="each name once")
    return names


def blocks(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    column_types: Types | None = None,
    infer: bool = False,
    reveal: bool = False,
    rules: Rules = _SPANNING,
) -> Iterator[Any]:
    """The file as small ``pyarrow.Table`` blocks, in order; at least one, maybe without rows.

    Args:
        columns: the columns to read; all by default.
        column_types, infer: as in ``read_table``.
        reveal: name the line in errors; its number is a lower bound of the private number of records.
        rules: how records are read.

    Errors:
        DataError: the file is missing, damaged, half-written or inconsistent.

    Memory: one block (about 4 MB of text, or 65,536 records).
    """
    kind = file_format(path)
    types = {name: _arrow_type(value) for name, value in (column_types or {}).items()}
    names = column_names(path, reveal=reveal, rules=rules)
    wanted = names if columns is None else list(columns)
    if kind == "parquet":
        return _parquet_blocks(path, wanted)
    if kind == "csv" and (infer or rules.line_breaks):
        return _csv_stream(path, names, wanted, types, infer, reveal)
    if kind == "csv":
        return _csv_blocks(path, names, wanted, types, reveal, rules)
    return _json_blocks(path, names, wanted, types, reveal, rules)


def fingerprint(path: Path, limit: int | None = None, *, key: bytes = b"") -> tuple[int, int]:
    """The length and the BLAKE2b-128 digest (as an integer) of a file's first ``limit`` bytes, after decompression.

    Private: equal files have equal digests, so whoever knows ``key`` can test a guess.
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
    """Replace what readers raise on a bad file by an UnreadableError about the file."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError):
        raise UnreadableError(
            "there is no such file", where=str(path), allowed="a file that exists"
        ) from None
    except PermissionError:
        raise UnreadableError(
            "the file may not be read", where=str(path), allowed="a readable file"
        ) from None
    except (OSError, *failures()):  # type: ignore[misc]
        # Readers' messages quote private values, so they are dropped.
        raise UnreadableError(
            f"the file cannot be read as {file_format(path)}: it is damaged, half-written or inconsistent",
            where=str(path),
            allowed="a complete file (write it under another name, then rename it)",
        ) from None


def _arrow_type(value: Any) -> Any:
    import pyarrow as pa

    return pa.type_for_alias(value) if isinstance(value, str) else value


def _binary(path: Path) -> IO[bytes]:
    # Python's gzip, because it notices a truncated file and reads concatenated members.
    if path.name.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return path.open("rb")


def _csv_header(path: Path, rules: Rules) -> list[str]:
    if rules.line_breaks:
        opened = gzip.open if path.name.lower().endswith(".gz") else open
        # Only the header is read here, so records that are no UTF-8 must not raise.
        with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            names = next(csv.reader(stream), [])
        return [name.encode("utf-8", "surrogateescape").decode("utf-8") for name in names]
    with _binary(path) as stream:
        first = next(whole_lines(stream, _BLOCK_BYTES), b"").splitlines()[:1]
    names = next(csv.reader([first[0].decode("utf-8")]), []) if first else []
    if first and scan(first[0], len(names)).broken.size:
        raise _open_quote(str(path))
    return names


def _csv_blocks(
    path: Path, names: list[str], wanted: list[str], types: Types, reveal: bool, rules: Rules
) -> Iterator[Any]:
    """The blocks of a csv file whose records are lines: the content of one line changes no other record."""
    import pyarrow as pa
    import pyarrow.csv

    convert = pyarrow.csv.ConvertOptions(
        column_types={**{name: pa.string() for name in names}, **types},
        include_columns=wanted,
        strings_can_be_null=False,
    )
    # An empty line is a record with an empty cell where there is one column, else nothing.
    parse = pyarrow.csv.ParseOptions(newlines_in_values=False, ignore_empty_lines=len(names) > 1)
    keep = rules.broken == "missing"
    with readable(path), _binary(path) as stream:
        yield pa.table({name: pa.array([], types.get(name, pa.string())) for name in wanted})
        before = 0
        for block in whole_lines(stream, _BLOCK_BYTES):
            # Drop the header, also where the file has nothing after it.
            data = block if before else (*_LINE_END.split(block, maxsplit=1), b"")[1]
            if rules.broken != "error" and not _is_utf8(data):
                data = data.decode("utf-8", "replace").encode()
            scanned = scan(data, len(names))
            if len(scanned.broken):
                if rules.broken == "error":
                    raise _broken_line(path, scanned, len(names), before + (not before) if reveal else None)
                data = repaired(data, scanned, len(names))
                rules.count(len(scanned.broken))
            before += scanned.lines + (not before)
            if not scanned.records:
                continue
            # Arrow drops a byte order mark at the beginning; here it is text of the first cell.
            data = _BOM + data if data.startswith(_BOM) else data
            read = pyarrow.csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False)
            table = pyarrow.csv.read_csv(
                pa.BufferReader(data), read_options=read, parse_options=parse, convert_options=convert
            )
            if table.num_rows != scanned.records:
                raise pa.ArrowInvalid("Arrow and scan disagree about the number of records")
            yield emptied(table, scanned.broken[:, 3], keep=keep)


def _is_utf8(data: bytes) -> bool:
    import pyarrow as pa

    try:
        pa.array([data], pa.binary()).cast(pa.string())
    except pa.ArrowException:
        return False
    return True


def _open_quote(where: str) -> DataError:
    return DataError(
        "a quote is not closed at the end of its line",
        where=where,
        allowed="a record on one line; line_breaks = true in [source] where quoted cells run over several lines "
        "(then the files are trusted to close every quote)",
    )


def _broken_line(path: Path, scanned: Scan, cells: int, before: int | None) -> DataError:
    """The error about the first broken line. ``before``: the number of lines before the block; None: name no line."""
    _, _, why, _, line, actual = scanned.broken[0].tolist()
    where = str(path) if before is None else f"{path}, line {before + line}"
    if why == OPEN_QUOTE:
        return _open_quote(where)
    if why == OTHER_COUNT:
        shown = "more or fewer columns" if before is None else f"{actual} columns"
        return DataError(
            f"a line has {shown} and the first line {cells}",
            where=where,
            allowed="the same number of columns in every line",
        )
    return DataError("a line is too long", where=where, allowed=f"at most {MOST_BYTES} bytes")


def _csv_stream(
    path: Path, names: list[str], wanted: list[str], types: Types, infer: bool, reveal: bool
) -> Iterator[Any]:
    """The blocks of a csv file whose quoted cells may run over several lines."""
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
                # The whole file decides the types; block by block each would get its own.
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
        amount = f"{actual} columns" if reveal else "more or fewer columns"
        raise DataError(
            f"a line has {amount} and the first line {expected}",
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
            table = pa.Table.from_batches([batch]).select(wanted)
            # A text that is no UTF-8 becomes valid: the schema has bins for it, so it must not stop the stream.
            yield pa.table([valid_text(column) for column in table.columns], names=table.column_names)


def _json_blocks(
    path: Path, names: list[str], wanted: list[str], types: Types, reveal: bool, rules: Rules
) -> Iterator[Any]:
    with readable(path), _binary(path) as stream:
        yield json_table([], wanted, rules, types, str(path))
        line = 0
        for block in whole_lines(stream, _BLOCK_BYTES):
            lines = block.splitlines()
            records = json_records(str(path), lines, line if reveal else None, rules, names)
            yield json_table(records, wanted, rules, types, str(path))
            line += len(lines)


def json_records(
    where: str,
    lines: Sequence[bytes],
    before: int | None,
    rules: Rules,
    names: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """The record of each line that is not blank. A broken line gives an empty record or none, as ``rules.broken`` says.

    Args:
        where: the file, for messages.
        before: the number of lines before these, so that errors can name the line; None: they do not.
        names: the keys that a record may have, besides ``rules.ignored``; None: any.

    Errors:
        DataError: with ``rules.broken = "error"``, a line that is no JSON object, or a key that is not declared.
    """
    known = None if names is None else rules.ignored.union(names)
    # Where nobody declared keys, those of the first records are private: messages neither name nor count them.
    allowed = ", ".join(names or ()) if rules.names is not None else "the keys of its first records"
    strict = rules.broken == "error"
    records: list[dict[str, Any]] = []
    broken = 0
    for number, line in enumerate(lines, start=(before or 0) + 1):
        place = where if before is None else f"{where}, line {number}"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            if strict:
                raise DataError("a line is not UTF-8 text", where=place, allowed="JSON in UTF-8") from None
            text = line.decode("utf-8", "replace")
        if not text.strip():
            continue
        record = parse_record(text) if len(line) <= MOST_BYTES else None
        if record is None:
            if strict:
                raise DataError("a line is not a JSON object", where=place, allowed="one object per line")
            broken += 1
            if rules.broken == "missing":
                records.append({})
            continue
        if strict and known is not None and not known.issuperset(record):
            raise DataError(
                "a record has a key that the file's first records do not have"
                if rules.names is None
                else "a record has a key that nobody declared",
                where=place,
                allowed=f"{allowed}, and those in the schema's ignore list",
            )
        records.append(record)
    rules.count(broken)
    return records


def json_table(
    records: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    rules: Rules,
    types: Types | None = None,
    where: str = "",
) -> Any:
    """Some columns of JSON records as a ``pyarrow.Table``. Each cell keeps its own kind, whatever the other cells of
    its column hold.

    Errors:
        DataError: a cell does not have the type that ``types`` declares for its column.
    """
    import pyarrow as pa

    columns = {}
    for name in names:
        values = [record.get(name) for record in records]
        if types and name in types:
            try:
                columns[name] = pa.array(values, types[name])
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise DataError(
                    f"the column {name!r} holds other values than its type",
                    where=where,
                    allowed=str(types[name]),
                ) from None
        elif name in rules.marks or name in rules.operations:
            columns[name] = texts(values, numbers=name in rules.marks)
        else:
            columns[name] = cells(values)
    return pa.table(columns)
