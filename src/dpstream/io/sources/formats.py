"""Reads csv, parquet and ndjson files block by block, with errors that name the file and no value.

Blocks of csv and parquet files are read in a few threads. JSON records are read by Python's own reader (other readers
give a column one type), which lets no other thread run.

pyarrow is imported inside functions, because the command line must start quickly. Its messages quote the data, so they
are replaced by dpstream's own.

Trusted base: source (reads private records).
"""

from __future__ import annotations

import csv
import glob
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from dpstream.core.errors import ConfigError, DataError
from dpstream.core.foreign import arrow_input
from dpstream.core.paths import check_file
from dpstream.core.schema.arrow import first_repeated, valid_text
from dpstream.core.threads import in_order
from dpstream.io.objects import AnyPath
from dpstream.io.sources.file_opening import (
    FORMATS,
    arrow_bytes,
    binary,
    file_format,
    format_of,
    other_encoding,
    other_separator,
    readable,
)

#: Deeper records are refused: Python's reader would use up its stack on them.
MAX_DEPTH = 200
# Possessive: a text is matched in one way, and its characters are not kept to go back to.
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_LONGEST = 400


def parse_record(line: str) -> dict[str, Any] | None:
    """The JSON object of one line; None for anything else, and where a key stands twice. What it answers depends on the
    line only."""
    if line.count("[") + line.count("{") > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        return None
    try:
        record = _READER.decode(line)
    except ValueError:
        try:
            # Python refuses whole numbers of thousands of digits; they lie beyond every declared value.
            record = _LONG_READER.decode(line)
        except ValueError:
            return None
    return record if isinstance(record, dict) else None


def _no_constant(_name: str) -> None:
    raise ValueError  # NaN and Infinity are not JSON


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError  # of two values of one key nobody knows which is meant
    return record


def _whole(digits: str) -> int | float:
    if len(digits) <= _LONGEST:
        return int(digits)
    return float("-inf") if digits.startswith("-") else float("inf")


#: Made once: a reader for each line would take a third of the time.
_READER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_each_once)
_LONG_READER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_whole, object_pairs_hook=_each_once)


def _depth(line: str) -> int:
    """How deep lists and objects lie in each other; brackets inside texts do not count."""
    deepest = depth = 0
    for bracket in _BRACKETS.finditer(line):
        first = bracket[0][0]
        depth += (first in "[{") - (first in "]}")
        deepest = max(deepest, depth)
    return deepest


def plain_text(text: str) -> str:
    """The text, with U+FFFD for half a character (a lone surrogate), which UTF-8 cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


#: Stands for a list or an object: a text that no column declares.
_NESTED = "\x00list or object"


def marks(values: Sequence[object], *, numbers: bool = True) -> Any:
    """Texts as they are, whole numbers as texts. Others become empty texts, which are invalid as times,
    operations and user ids."""
    kinds = (str, int) if numbers else (str,)
    return _text_array(None if v is None else str(v) if type(v) in kinds else "" for v in values)


def cells(values: Sequence[object]) -> Any:
    """JSON values as an Arrow array of texts; a list or an object is one that no column reads.

    >>> cells(["7", 7, 7.5, True, None]).to_pylist()
    ['7', '7', '7.5', 'true', None]
    """
    return _text_array(map(_cell, values))


def _cell(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else _NESTED


def _text_array(values: Iterable[str | None]) -> Any:
    import pyarrow as pa

    listed = list(values)
    try:
        return pa.array(listed, pa.string())
    except (pa.ArrowException, UnicodeEncodeError):
        return pa.array([None if value is None else plain_text(value) for value in listed], pa.string())


_BLOCK_BYTES = 2**22
_BLOCK_ROWS = 2**16
#: The most bytes of a line, so that one record cannot fill the memory. A longer line is broken.
MAX_BYTES = 2**26
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
#: A cell of a line, with the comma after it.
_CELL = re.compile(rb'(?:"(?:[^"]|"")*+"[^,]*+|(?!")[^,]*+)(?:,|\Z)')
#: A group of more rows is read by one thread, so that what was read of it does not wait for its end.
_GROUP_ROWS = 2**21
#: A block that something is made of has up to so many times the rows, while it has no more cells and bytes (as the file
#: has them before compression).
_LARGER, _MAX_CELLS, _MAX_BYTES = 4, 2**23, 2**25


@dataclass(frozen=True)
class JsonKeys:
    """The keys of the records of NDJSON files.

    Attributes:
        names: the columns; None: the keys of a file's first records (about 4 MB).
        ignored: names that may occur and are not read.
        marks: columns of times and user ids, which are read as texts; numbers become texts.
        operations: columns of operations, which are read as texts; numbers are refused.
        all_keys: without ``names``: take the keys of all records as columns, which reads a file once more.
    """

    names: tuple[str, ...] | None = None
    ignored: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    operations: frozenset[str] = frozenset()
    all_keys: bool = False


#: Of files outside a stream.
_ANY_KEYS = JsonKeys()


def read_table(path: str | Path) -> Any:
    """A whole file as a ``pyarrow.Table``. The cells of csv and NDJSON files are texts, as in a stream, where the
    schema gives the types (so a zip code keeps its zeros).

    Errors:
        DataError: the file is missing, damaged, half-written or inconsistent.
    """
    import pyarrow as pa

    file = Path(path)
    parts = list(blocks(file))
    with readable(file):
        return pa.concat_tables(parts, promote_options="permissive")


def read_sample(path: str | Path, rows: int) -> Any:
    """At most ``rows`` rows of a file, of all files of a folder, or of a pattern such as ``data/*.csv``: for drafting a
    schema. Empty cells of csv files are nulls.

    Text files are read as text: a reader that guesses types would turn the code 02139 into the number 2139.

    Errors:
        ConfigError: a path without readable files. DataError: a file that is not what its ending says (without quoting
        it).
    """
    import pyarrow as pa

    tables: list[Any] = []
    for file in files_of(path):
        left = rows - sum(table.num_rows for table in tables)
        for table in _sampled(file, left) if left > 0 else ():
            tables.append(table.slice(0, left))
            left -= table.num_rows
            if left <= 0:
                break
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, IndexError):
        raise DataError("different columns", where=str(path), allowed=FORMATS) from None


def files_of(path: str | Path) -> list[Path]:
    """The file, all files of a folder, or those of a pattern, in the order of their names; ConfigError without one."""
    place = Path(path)
    if place.is_dir():
        names = sorted(file for file in place.iterdir() if format_of(file.name) is not None)
    else:
        names = [place] if place.exists() else sorted(Path(name) for name in glob.glob(str(path)))
    if not names:
        what = "no data file"
        raise ConfigError(what, where=str(path), allowed=f"file, folder or pattern: {FORMATS}")
    for name in names:
        if format_of(name.name) is None:
            raise ConfigError("unknown file ending", where=str(name), allowed=FORMATS)
    return names


def _sampled(file: Path, rows: int) -> Iterator[Any]:
    """The first rows of a file, in tables."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = file_format(file)
    try:
        if kind == "ndjson":
            yield _sampled_json(file, rows)
            return
        separated = other_separator(column_names(file), file.name) if kind == "csv" else None
        if separated is not None:
            raise DataError(separated[0], where=str(file), allowed=separated[1])
        for table in blocks(file):
            if kind == "csv":
                columns = [
                    pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells) for cells in table
                ]
                table = pa.table(columns, table.column_names)
            yield table
    except DataError as error:
        encoded = None if kind == "parquet" else other_encoding(partial(binary, file))
        if encoded is None:
            raise
        raise DataError(encoded[0], where=error.where, allowed=encoded[1]) from None


def _sampled_json(file: Path, rows: int) -> Any:
    """The first records. Arrow's own reader ends the process at some lines without objects."""
    import pyarrow as pa

    records: list[dict[str, Any]] = []
    check_file(file)
    with readable(file), binary(file) as stream:
        for block in whole_lines(stream, _BLOCK_BYTES):
            records += json_records(str(file), block.splitlines(), None, _ANY_KEYS)
            if len(records) >= rows:
                break
    names = dict.fromkeys(key for record in records[:rows] for key in record)
    if not names:
        raise DataError("empty file", where=str(file), allowed="a JSON object per line")
    return pa.table({plain_text(name): _one_type([r.get(name) for r in records[:rows]]) for name in names})


def _one_type(values: list[Any]) -> Any:
    """A column of a sample: of one type where it can be, or of texts."""
    import pyarrow as pa

    if any(isinstance(value, list | dict) for value in values):
        return pa.array([None if value is None else [] for value in values], pa.list_(pa.null()))
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return cells([v if v is None or isinstance(v, str) else json.dumps(v) for v in values])


def column_names(path: AnyPath, *, reveal: bool = False, keys: JsonKeys = _ANY_KEYS) -> list[str]:
    """The names of a file's columns, in order (ndjson: ``keys.names``, or the keys of its records).

    Errors:
        DataError: the file is missing, damaged or empty, or a name occurs twice.
    """
    kind = file_format(path)
    if isinstance(path, Path):
        check_file(path)
    with readable(path):
        if kind == "parquet":
            import pyarrow.parquet

            with arrow_bytes(path) as opened, pyarrow.parquet.ParquetFile(opened) as file:
                names = list(file.schema_arrow.names)
        elif kind == "csv":
            names = _csv_names(path)
        elif keys.names is not None:
            names = list(keys.names)
        else:
            with binary(path) as stream:
                seen, line = dict[str, None](), 0
                for block in islice(whole_lines(stream, _BLOCK_BYTES), None if keys.all_keys else 1):
                    lines = block.splitlines()
                    records = json_records(str(path), lines, line if reveal else None, keys)
                    seen |= dict.fromkeys(key for record in records for key in record)
                    line += len(lines)
            names = list(seen)
    if not names:
        raise DataError("empty file", where=str(path), allowed="a file with column names")
    twice = first_repeated(names)
    if twice is not None:
        shown = f"the column {twice!r}" if reveal else "a column"
        raise DataError(f"{shown} occurs twice", where=str(path), allowed="each name once")
    return names


def blocks(
    path: AnyPath,
    *,
    columns: Sequence[str] | None = None,
    reveal: bool = False,
    keys: JsonKeys = _ANY_KEYS,
    each: Callable[[Any], Any] | None = None,
    coded: frozenset[str] = frozenset(),
) -> Iterator[Any]:
    """The file as small ``pyarrow.Table`` blocks, in order; at least one, maybe without rows.

    Args:
        columns: the columns to read; all by default.
        reveal: name the line in errors; its number is a lower bound of the private number of records.
        keys: of the records of ndjson files.
        each: what to make of a block and hand out in its place; called in several threads.
        coded: columns whose texts csv and parquet files may give as dictionaries.

    Errors:
        DataError: the file is missing, damaged, half-written or inconsistent. The first one in the order of the file.

    Memory: one block (about 4 MB of text, or 65,536 records), and of csv files two for each thread. With ``each``: what
        it makes of two groups of rows of a parquet file for each thread, and a block of up to 262,144 of its records.
    """
    kind = file_format(path)
    names = column_names(path, reveal=reveal, keys=keys)
    wanted = names if columns is None else list(columns)
    if kind == "parquet":
        return _parquet_blocks(path, wanted, each, coded)
    if kind == "csv":
        return _csv_blocks(path, _CsvReader(names, wanted, coded, each or (lambda table: table)), reveal)
    tables = _json_blocks(path, names, wanted, reveal, keys)
    return tables if each is None else map(each, tables)


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


def whole_lines(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Blocks of whole lines of about ``size`` bytes, without a byte order mark at the beginning.

    A line beyond ``MAX_BYTES`` is cut off, but stays long enough to be refused.
    """
    rest: list[bytes] = []
    held, begun, half = 0, False, b""
    while data := stream.read(size):
        if not begun:
            data, begun = data.removeprefix(_BOM), True
        data = half + data
        # A carriage return at the very end may be the first half of a line's end, so it waits for the next bytes.
        half = b"\r" if data.endswith(b"\r") else b""
        data = data.removesuffix(half)
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if cut:
            yield b"".join([*rest, data[:cut]])
            rest = [data[cut:]]
            held = len(rest[0])
        elif held <= MAX_BYTES:
            rest.append(data)
            held += len(data)
    last = b"".join([*rest, half])
    if last:
        yield last


# CSV. A record is a line, so the content of one record never decides how the next ones are read.


def _csv_names(path: AnyPath) -> list[str]:
    """The names in a csv file's first line."""
    with binary(path) as stream:
        first = next(whole_lines(stream, _BLOCK_BYTES), b"").splitlines()[:1]
    if first and _cells_of_line(first[0]) is None:
        raise _broken_line(str(path), None)
    return next(csv.reader([first[0].decode("utf-8")]), []) if first else []


def _cells_of_line(line: bytes) -> int | None:
    """The number of cells of a line, in the way in which Arrow splits lines; None where a quote stays open."""
    count = at = 0
    while (cell := _CELL.match(line, at)) is not None:
        count, at = count + 1, cell.end()
        if not cell[0].endswith(b","):
            return count
    return None


class _BrokenLine(Exception):
    """The number of the first line of a block without a record, and its content."""


@dataclass(frozen=True)
class _CsvReader:
    """How blocks of lines are read; several threads use one.

    Attributes:
        names: the columns of the file.
        wanted: those that are read.
        coded: columns of texts that are read as dictionaries.
        each: what to make of the records of a block.
    """

    names: list[str]
    wanted: list[str]
    coded: frozenset[str]
    each: Callable[[Any], Any]

    def empty(self) -> Any:
        """What is made of no records."""
        import pyarrow as pa

        kinds = self._kinds()
        return self.each(pa.table({name: pa.array([], kinds[name]) for name in self.wanted}))

    def read(self, data: bytes) -> tuple[int, Any]:
        """How many lines there are, and what is made of their records; None where there are none.

        Errors: _BrokenLine; ArrowInvalid, also where a line is fine and its text is not UTF-8."""
        import pyarrow as pa

        if not data:
            return 0, None
        ends = int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))
        if b"\r" in data:
            ends += data.count(b"\r") - data.count(b"\r\n")
        lines = ends + (not data.endswith((b"\n", b"\r")))
        text = data.rstrip(b"\r\n")
        if not text and len(self.names) > 1:
            return lines, None
        failed: Any = None
        table: Any = None
        try:
            table = self._parsed(data)
        except pa.ArrowInvalid as error:
            failed = error
        last = text[max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 :]
        # Arrow takes the lines after an open quote into one cell, so that there are fewer records than lines.
        if table is None or table.num_rows != lines or _cells_of_line(last) is None or len(data) > MAX_BYTES:
            self._refuse_broken(data)
            if failed is not None:
                raise failed
            if table.num_rows != sum(map(self._is_record, data.splitlines())):
                raise pa.ArrowInvalid("lines and records differ in number")
        return lines, self.each(table)

    def _is_record(self, line: bytes) -> bool:
        # An empty line is a record with an empty cell where there is one column, else nothing.
        return bool(line) or len(self.names) == 1

    def _refuse_broken(self, data: bytes) -> None:
        for number, line in enumerate(data.splitlines(), start=1):
            too_long = len(line) > MAX_BYTES
            if too_long or (self._is_record(line) and _cells_of_line(line) != len(self.names)):
                raise _BrokenLine(number, line)

    def _kinds(self) -> dict[str, Any]:
        import pyarrow as pa

        text, dictionary = pa.string(), pa.dictionary(pa.int32(), pa.string())
        return {name: dictionary if name in self.coded else text for name in self.names}

    def _parsed(self, data: bytes) -> Any:
        import pyarrow.csv

        convert = pyarrow.csv.ConvertOptions(
            column_types=self._kinds(), include_columns=self.wanted, strings_can_be_null=False
        )
        parse = pyarrow.csv.ParseOptions(newlines_in_values=False, ignore_empty_lines=len(self.names) > 1)
        # Arrow drops a byte order mark at the beginning; here it is text of the first cell.
        data = _BOM + data if data.startswith(_BOM) else data
        read = pyarrow.csv.ReadOptions(column_names=self.names, block_size=len(data) + 1, use_threads=False)
        return pyarrow.csv.read_csv(
            arrow_input(data), read_options=read, parse_options=parse, convert_options=convert
        )


def _csv_blocks(path: AnyPath, reader: _CsvReader, reveal: bool) -> Iterator[Any]:
    """What is made of the blocks of a csv file: the content of one line changes no other record."""
    with readable(path), binary(path) as stream:
        yield reader.empty()
        before = 1  # the header
        try:
            for lines, made in in_order(reader.read, _without_header(whole_lines(stream, _BLOCK_BYTES))):
                before += lines
                if made is not None:
                    yield made
        except _BrokenLine as broken:
            number, line = broken.args
            where = f"{path}, line {before + number}" if reveal else str(path)
            raise _broken_line(where, line, len(reader.names), reveal) from None


def _without_header(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks without the first line, also where the file has nothing after it."""
    for number, block in enumerate(blocks):
        yield block if number else (*_LINE_END.split(block, maxsplit=1), b"")[1]


def _broken_line(where: str, line: bytes | None, cells: int = 0, reveal: bool = False) -> DataError:
    """The error about a line without a record; None: a quote of the header stays open."""
    if line is not None and len(line) > MAX_BYTES:
        return DataError("line too long", where=where, allowed=f"at most {MAX_BYTES} bytes")
    count = None if line is None else _cells_of_line(line)
    if count is None:
        return DataError(
            "a line ends inside a quote",
            where=where,
            allowed="a record a line; Parquet or NDJSON for texts with line breaks",
        )
    return DataError(
        f"a line has {f'{count} columns' if reveal else 'other columns'}, the first line {cells}",
        where=where,
        allowed="equal columns in every line",
    )


# Parquet.


def _parquet_blocks(
    path: AnyPath, wanted: list[str], each: Callable[[Any], Any] | None, coded: frozenset[str]
) -> Iterator[Any]:
    """What ``each`` makes of the blocks of a Parquet file.

    With ``each`` a block may have four times as many rows: each call into Arrow or NumPy gives up Python's lock and
    waits for it again, which costs threads more than their work on small blocks.

    Args:
        each: what is kept of a block; it is called in several threads. None: the blocks are handed out as they are,
            and none is read ahead.
        coded: columns of texts that are read as dictionaries.
    """
    import pyarrow as pa
    import pyarrow.parquet

    # Opened once: another file of that name may take its place meanwhile, and its bytes do not belong to this metadata.
    # Reads at an offset may come from several threads at once.
    with (
        readable(path),
        arrow_bytes(path) as opened_once,
        pyarrow.parquet.ParquetFile(opened_once) as file,
    ):
        facts = file.metadata
        rows = _BLOCK_ROWS if each is None else _larger(_BLOCK_ROWS, facts, len(wanted))
        kinds = file.schema_arrow
        texts = [name for name in wanted if name in coded and _is_plain_text(kinds.field(name).type)]

        def opened() -> Any:
            return pyarrow.parquet.ParquetFile(opened_once, metadata=facts, read_dictionary=texts)

        def group(number: int) -> list[Any]:
            with opened() as own:
                return [work(batch) for batch in _batches(own, wanted, rows, number)]

        def work(batch: Any) -> Any:
            table = pa.Table.from_batches([batch]).select(wanted)
            # A text outside UTF-8 becomes valid: the schema has bins for it, so it must not stop the stream.
            table = pa.table([valid_text(column) for column in table.columns], names=table.column_names)
            return table if each is None else each(table)

        with opened() as first:
            empty = first.schema_arrow.empty_table().select(wanted)
        yield empty if each is None else each(empty)
        if each is None:
            yield from map(work, file.iter_batches(batch_size=rows, columns=wanted, use_threads=False))
        elif all(facts.row_group(i).num_rows <= _GROUP_ROWS for i in range(facts.num_row_groups)):
            for made in in_order(group, range(facts.num_row_groups)):
                yield from made
        else:
            with opened() as whole:
                yield from in_order(work, _batches(whole, wanted, rows))


def _larger(rows: int, facts: Any, columns: int) -> int:
    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    # The metadata gives the size of a group's columns together.
    widest = max((-(-group.total_byte_size // max(group.num_rows, 1)) for group in groups), default=1)
    return max(rows, min(_LARGER * rows, _MAX_CELLS // max(columns, 1), _MAX_BYTES // max(widest, 1)))


def _batches(file: Any, wanted: list[str], rows: int, *groups: int) -> Iterator[Any]:
    chosen = {"row_groups": list(groups)} if groups else {}
    yield from file.iter_batches(batch_size=rows, columns=wanted, use_threads=False, **chosen)


def _is_plain_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


# NDJSON.


def _json_blocks(
    path: AnyPath, names: list[str], wanted: list[str], reveal: bool, keys: JsonKeys
) -> Iterator[Any]:
    with readable(path), binary(path) as stream:
        yield json_table([], wanted, keys)
        line = 0
        for block in whole_lines(stream, _BLOCK_BYTES):
            lines = block.splitlines()
            records = json_records(str(path), lines, line if reveal else None, keys, names)
            yield json_table(records, wanted, keys)
            line += len(lines)


def json_records(
    where: str,
    lines: Sequence[bytes],
    before: int | None,
    keys: JsonKeys,
    names: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """The record of each line that is not blank.

    Args:
        where: the file, for messages.
        before: the number of lines before these, so that errors can name the line; None: they do not.
        names: the keys that a record may have, besides ``keys.ignored``; None: any.

    Errors:
        DataError: a line without a JSON object, or a key that is not declared.
    """
    known = None if names is None else keys.ignored.union(names)
    # Where nobody declared keys, those of the first records are private: messages neither name nor count them.
    allowed = ", ".join(names or ()) if keys.names is not None else "the keys of its first records"
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=(before or 0) + 1):
        place = where if before is None else f"{where}, line {number}"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError("a line is not UTF-8 text", where=place, allowed="JSON in UTF-8") from None
        if not text.strip():
            continue
        record = parse_record(text) if len(line) <= MAX_BYTES else None
        if record is None:
            raise DataError(
                "expected JSON objects", where=place, allowed="one object per line, each key once"
            )
        if known is not None and not known.issuperset(record):
            raise DataError(
                "a key is missing in the first records"
                if keys.names is None
                else "a record has an undeclared key",
                where=place,
                allowed=f"{allowed}, and the schema's ignore list",
            )
        records.append(record)
    return records


def json_table(records: Sequence[Mapping[str, Any]], names: Sequence[str], keys: JsonKeys) -> Any:
    """Some columns of JSON records as a ``pyarrow.Table`` of texts."""
    import pyarrow as pa

    columns = {}
    for name in names:
        values = [record.get(name) for record in records]
        if name in keys.marks or name in keys.operations:
            columns[name] = marks(values, numbers=name in keys.marks)
        else:
            columns[name] = cells(values)
    return pa.table(columns)
