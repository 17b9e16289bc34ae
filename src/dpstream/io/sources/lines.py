"""Reads text files as whole lines, and finds the lines of a csv file that are no records.

A record is a line, so the content of one record never decides how the next ones are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

Broken = Literal["error", "missing", "drop-and-count-nothing"]
BROKEN = ("error", "missing", "drop-and-count-nothing")
#: The most bytes of a line, so that one record cannot fill the memory. A longer line is broken.
MOST_BYTES = 2**26
_BOM = b"\xef\xbb\xbf"
#: Why a line is no record.
OPEN_QUOTE, OTHER_COUNT, TOO_LONG = 1, 2, 3


@dataclass(frozen=True)
class Rules:
    """How the records of text files are read.

    Attributes:
        broken: what happens to a line that is no record; ``SourceOptions.broken``.
        line_breaks: whether a quoted cell of a csv file may run over several lines.
        names: the columns of NDJSON files; None: the keys of a file's first records (about 4 MB).
        ignored: names that may occur and are not read.
        marks: columns of times and user ids, which are read as texts; numbers become texts.
        operations: columns of operations, which are read as texts; numbers are refused.
        all_keys: without ``names``: take the keys of all records as columns, which reads a file once more.
        tally: is called with the number of broken records, which is private.
    """

    broken: Broken = "error"
    line_breaks: bool = False
    names: tuple[str, ...] | None = None
    ignored: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    operations: frozenset[str] = frozenset()
    all_keys: bool = False
    tally: Callable[[int], None] | None = field(default=None, compare=False)

    def count(self, broken: int) -> None:
        """Call ``tally``, if there is one and there are broken records."""
        if self.tally is not None and broken:
            self.tally(broken)


@dataclass(frozen=True)
class Scan:
    """What ``scan`` finds in a block of csv text.

    Attributes:
        lines: the number of lines, with blank ones.
        records: the number of records, with broken ones.
        broken: int64[k, 6], for each broken record: its first byte, the byte after its last one (without the line's
            end), the reason (``OPEN_QUOTE``, ...), its index among the records, the number of its line, and its number
            of cells.
    """

    lines: int
    records: int
    broken: NDArray[np.int64]


def whole_lines(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Blocks of whole lines of about ``size`` bytes, without a byte order mark at the beginning.

    A line beyond ``MOST_BYTES`` is cut off, but stays long enough to be refused.
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
        elif held <= MOST_BYTES:
            rest.append(data)
            held += len(data)
    last = b"".join([*rest, half])
    if last:
        yield last


def scan(data: bytes, cells: int) -> Scan:
    """Find the lines of csv text that are no records of ``cells`` cells."""
    # Imported on use: the command line must start quickly.
    from dpstream.io.sources.line_scanning import scan_lines

    text, broken_records = np.frombuffer(data, np.uint8), np.zeros((0, 6), np.int64)
    lines, records, broken = scan_lines(text, cells, MOST_BYTES, broken_records)
    if broken:
        broken_records = np.zeros((broken, 6), np.int64)
        scan_lines(text, cells, MOST_BYTES, broken_records)
    return Scan(int(lines), int(records), broken_records)


def repaired(data: bytes, seen: Scan, cells: int) -> bytes:
    """The text with a line of empty cells in place of each broken line."""
    parts: list[bytes] = []
    # Never an empty line: the line ends around it could become one.
    empty = b"," * (cells - 1) or b'""'
    before = 0
    for start, end in seen.broken[:, :2].tolist():
        parts.append(data[before:start])
        parts.append(empty if end < len(data) else empty + b"\n")
        before = end
    parts.append(data[before:])
    return b"".join(parts)


def emptied(table: Any, rows: NDArray[np.int64], *, keep: bool) -> Any:
    """The table with nulls in all cells of the given rows; without ``keep``, the table without these rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(rows):
        return table
    mask = np.zeros(table.num_rows, np.bool_)
    mask[rows] = True
    if not keep:
        return table.filter(pa.array(~mask))
    columns = [
        pc.if_else(pa.array(mask), pa.scalar(None, column.type), column.combine_chunks())
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)
