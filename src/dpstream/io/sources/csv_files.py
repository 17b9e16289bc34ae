"""Reads csv files block by block, in a few threads where a record is a line.

pyarrow is imported inside functions, because the command line must start quickly.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpstream.core.errors import DataError
from dpstream.core.foreign import arrow_input
from dpstream.core.objects import AnyPath
from dpstream.core.threads import in_order
from dpstream.io.sources.file_opening import arrow_file, binary, readable
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

#: What Arrow says of a row with more or fewer cells; the row itself, which follows, is not read.
_OTHER_CELLS = re.compile(r"CSV parse error: (?:Row #([0-9]+): )?Expected ([0-9]+) columns, got ([0-9]+)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"

Types = Mapping[str, Any]


def csv_header(path: AnyPath, rules: Rules, size: int) -> list[str]:
    """The names in a csv file's first line."""
    if rules.line_breaks:
        # Only the header is read here, so records that are no UTF-8 must not raise.
        with (
            binary(path) as opened,
            io.TextIOWrapper(opened, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream,
        ):
            names = next(csv.reader(stream), [])
        return [name.encode("utf-8", "surrogateescape").decode("utf-8") for name in names]
    with binary(path) as stream:
        first = next(whole_lines(stream, size), b"").splitlines()[:1]
    names = next(csv.reader([first[0].decode("utf-8")]), []) if first else []
    if first and scan(first[0], len(names)).broken.size:
        raise _open_quote(str(path))
    return names


@dataclass(frozen=True)
class _Lines:
    """How blocks of lines are read; several threads use one.

    Attributes:
        coded: columns of texts that are read as dictionaries.
    """

    names: list[str]
    wanted: list[str]
    types: Types
    coded: frozenset[str]
    rules: Rules

    def read(self, data: bytes) -> tuple[Scan, Any]:
        """What a block holds, and its records; None where it has no record, or one that stops the reading."""
        rules, names = self.rules, self.names
        if rules.broken != "error" and not _is_utf8(data):
            data = data.decode("utf-8", "replace").encode()
        scanned = scan(data, len(names))
        if len(scanned.broken):
            if rules.broken == "error":
                return scanned, None
            data = repaired(data, scanned, len(names))
        if not scanned.records:
            return scanned, None
        table = self._parsed(data, frozenset() if len(scanned.broken) else self.coded)
        if table.num_rows != scanned.records:
            import pyarrow as pa

            raise pa.ArrowInvalid("Arrow and scan disagree about the number of records")
        return scanned, emptied(table, scanned.broken[:, 3], keep=rules.broken == "missing")

    def kinds(self, coded: frozenset[str]) -> dict[str, Any]:
        """The type of each column."""
        import pyarrow as pa

        text, dictionary = pa.string(), pa.dictionary(pa.int32(), pa.string())
        return {**{name: dictionary if name in coded else text for name in self.names}, **self.types}

    def _parsed(self, data: bytes, coded: frozenset[str]) -> Any:
        import pyarrow.csv

        convert = pyarrow.csv.ConvertOptions(
            column_types=self.kinds(coded), include_columns=self.wanted, strings_can_be_null=False
        )
        # An empty line is a record with an empty cell where there is one column, else nothing.
        parse = pyarrow.csv.ParseOptions(newlines_in_values=False, ignore_empty_lines=len(self.names) > 1)
        # Arrow drops a byte order mark at the beginning; here it is text of the first cell.
        data = _BOM + data if data.startswith(_BOM) else data
        read = pyarrow.csv.ReadOptions(column_names=self.names, block_size=len(data) + 1, use_threads=False)
        return pyarrow.csv.read_csv(
            arrow_input(data), read_options=read, parse_options=parse, convert_options=convert
        )


def csv_blocks(
    path: AnyPath,
    names: list[str],
    wanted: list[str],
    types: Types,
    reveal: bool,
    rules: Rules,
    size: int,
    each: Callable[[Any], Any],
    coded: frozenset[str],
) -> Iterator[Any]:
    """What ``each`` makes of the blocks of a csv file whose records are lines: the content of one line changes no
    other record."""
    import pyarrow as pa

    lines = _Lines(names, wanted, types, coded, rules)

    def work(data: bytes) -> tuple[Scan, Any]:
        scanned, table = lines.read(data)
        return scanned, None if table is None else each(table)

    with readable(path), binary(path) as stream:
        kinds = lines.kinds(coded)
        yield each(pa.table({name: pa.array([], kinds[name]) for name in wanted}))
        before = 0
        for scanned, made in in_order(work, _without_header(whole_lines(stream, size))):
            if len(scanned.broken):
                if rules.broken == "error":
                    raise _broken_line(path, scanned, len(names), before + (not before) if reveal else None)
                rules.count(len(scanned.broken))
            before += scanned.lines + (not before)
            if made is not None:
                yield made


def _without_header(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks without the first line, also where the file has nothing after it."""
    for number, block in enumerate(blocks):
        yield block if number else (*_LINE_END.split(block, maxsplit=1), b"")[1]


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


def _broken_line(path: AnyPath, scanned: Scan, cells: int, before: int | None) -> DataError:
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


def csv_stream(
    path: AnyPath, names: list[str], wanted: list[str], types: Types, infer: bool, reveal: bool, size: int
) -> Iterator[Any]:
    """The blocks of a csv file whose quoted cells may run over several lines."""
    import pyarrow as pa
    import pyarrow.csv

    text = {} if infer else {name: pa.string() for name in names}
    convert = pyarrow.csv.ConvertOptions(
        column_types={**text, **types}, include_columns=wanted, strings_can_be_null=infer
    )
    # An empty line is a record with an empty cell where there is one column, else nothing.
    # No handler of invalid rows in Python: a thread of Arrow that lets go of it late could abort the program.
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) > 1)
    read = pyarrow.csv.ReadOptions(block_size=size, use_threads=False)
    with readable(path), arrow_file(path) as stream:
        try:
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
        except pa.ArrowInvalid as error:
            found = _OTHER_CELLS.match(str(error))
            if found is None:
                raise
            number, expected, actual = found.groups()
            line = f", line {number}" if reveal and number is not None else ""
            amount = f"{actual} columns" if reveal else "more or fewer columns"
            raise DataError(
                f"a line has {amount} and the first line {expected}",
                where=f"{path}{line}",
                allowed="the same number of columns in every line",
            ) from None
