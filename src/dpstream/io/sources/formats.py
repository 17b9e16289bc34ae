"""Reads csv, parquet and ndjson files block by block, with errors that name the file and no value.

Blocks of csv and parquet files are read in a few threads. JSON records are read by Python's own reader, which keeps
each cell's kind (other readers give a column one type), and lets no other thread run.

pyarrow is imported inside functions, because the command line must start quickly. Its messages quote the data, so they
are replaced by dpstream's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from dpstream.core.errors import DataError
from dpstream.core.objects import AnyPath
from dpstream.core.paths import check_file
from dpstream.core.schema.arrow import first_repeated
from dpstream.core.schema.cells import cells, is_cells, parse_record, texts, typed
from dpstream.io.sources.csv_files import csv_blocks, csv_header, csv_stream
from dpstream.io.sources.file_opening import (
    arrow_bytes,
    binary,
    file_format,
    readable,
)
from dpstream.io.sources.lines import MOST_BYTES, Rules, whole_lines
from dpstream.io.sources.parquet_files import parquet_blocks

_BLOCK_BYTES = 2**22
_BLOCK_ROWS = 2**16

#: Column name -> Arrow type or its name.
Types = Mapping[str, Any]

#: Outside a stream a record may run over several lines: there no guarantee depends on how far one record reaches.
_SPANNING = Rules(line_breaks=True)


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


def column_names(path: AnyPath, *, reveal: bool = False, rules: Rules = _SPANNING) -> list[str]:
    """The names of a file's columns, in order (ndjson: ``rules.names``, or the keys of its records).

    Errors:
        DataError: the file is missing, damaged or empty, or a name occurs twice.
    """
    kind = file_format(path)
    check_file(path)
    with readable(path):
        if kind == "parquet":
            import pyarrow.parquet

            with arrow_bytes(path) as opened, pyarrow.parquet.ParquetFile(opened) as file:
                names = list(file.schema_arrow.names)
        elif kind == "csv":
            names = csv_header(path, rules, _BLOCK_BYTES)
        elif rules.names is not None:
            names = list(rules.names)
        else:
            with binary(path) as stream:
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
    path: AnyPath,
    *,
    columns: Sequence[str] | None = None,
    column_types: Types | None = None,
    infer: bool = False,
    reveal: bool = False,
    rules: Rules = _SPANNING,
    each: Callable[[Any], Any] | None = None,
    coded: frozenset[str] = frozenset(),
) -> Iterator[Any]:
    """The file as small ``pyarrow.Table`` blocks, in order; at least one, maybe without rows.

    Args:
        columns: the columns to read; all by default.
        column_types, infer: as in ``read_table``.
        reveal: name the line in errors; its number is a lower bound of the private number of records.
        rules: how records are read.
        each: what to make of a block and hand out in its place; called in several threads.
        coded: columns whose texts csv and parquet files may give as dictionaries.

    Errors:
        DataError: the file is missing, damaged, half-written or inconsistent. The first one in the order of the file.

    Memory: one block (about 4 MB of text, or 65,536 records), and of csv files two for each thread. With ``each``: what
        it makes of two groups of rows of a parquet file for each thread, and a block of up to 262,144 of its records.
    """
    kind = file_format(path)
    types = {name: _arrow_type(value) for name, value in (column_types or {}).items()}
    names = column_names(path, reveal=reveal, rules=rules)
    wanted = names if columns is None else list(columns)
    if kind == "parquet":
        return parquet_blocks(path, wanted, _BLOCK_ROWS, each, coded)
    if kind == "csv" and not (infer or rules.line_breaks):
        made = _as_it_is if each is None else each
        return csv_blocks(path, names, wanted, types, reveal, rules, _BLOCK_BYTES, made, coded)
    if kind == "csv":
        tables = csv_stream(path, names, wanted, types, infer, reveal, _BLOCK_BYTES)
    else:
        tables = _json_blocks(path, names, wanted, types, reveal, rules)
    return tables if each is None else map(each, tables)


def _as_it_is(table: Any) -> Any:
    return table


def fingerprint(path: AnyPath, limit: int | None = None, *, key: bytes = b"") -> tuple[int, int]:
    """The length and the BLAKE2b-128 digest (as an integer) of a file's first ``limit`` bytes, after decompression.

    Private: equal files have equal digests, so whoever knows ``key`` can test a guess.
    """
    digest, length = hashlib.blake2b(digest_size=16, key=key), 0
    with readable(path), binary(path) as stream:
        while limit is None or length < limit:
            data = stream.read(_BLOCK_BYTES if limit is None else min(_BLOCK_BYTES, limit - length))
            if not data:
                break
            digest.update(data)
            length += len(data)
    return length, int.from_bytes(digest.digest())


def _arrow_type(value: Any) -> Any:
    import pyarrow as pa

    return pa.type_for_alias(value) if isinstance(value, str) else value


def _json_blocks(
    path: AnyPath, names: list[str], wanted: list[str], types: Types, reveal: bool, rules: Rules
) -> Iterator[Any]:
    with readable(path), binary(path) as stream:
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
                raise DataError(
                    "a line is not a JSON object, or names a key twice",
                    where=place,
                    allowed="one object per line, each key once",
                )
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
