"""Text files as whole lines, and which lines of a csv file are no records.

A record is a line: what one holds never decides how the next ones are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BROKEN",
    "MOST_BYTES",
    "OPEN_QUOTE",
    "OTHER_COUNT",
    "Broken",
    "Rules",
    "Scan",
    "emptied",
    "repaired",
    "scan",
    "whole_lines",
]

Broken = Literal["error", "missing", "drop-and-count-nothing"]
BROKEN = ("error", "missing", "drop-and-count-nothing")
#: A longer line is no record: one record must not fill the memory.
MOST_BYTES = 2**26
_BOM = b"\xef\xbb\xbf"
#: Why a line is no record.
OPEN_QUOTE, OTHER_COUNT, TOO_LONG = 1, 2, 3


@dataclass(frozen=True)
class Rules:
    """How the records of text files are read.

    Attributes:
        broken: what becomes of a record that cannot be taken apart; ``SourceOptions.broken``.
        line_breaks: a quoted cell of a csv file may run over several lines.
        names: the columns of NDJSON files; None: the keys of a file's first records (about 4 MB).
        ignored: names that are known, and not read.
        marks: columns that are read as texts: times and user ids.
        words: columns that are read as texts, and hold no numbers: operations.
        all_keys: without ``names``: the keys of all records, for which a file is read once more.
        tally: told how many records are broken; private.
    """

    broken: Broken = "error"
    line_breaks: bool = False
    names: tuple[str, ...] | None = None
    ignored: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    all_keys: bool = False
    tally: Callable[[int], None] | None = field(default=None, compare=False)

    def count(self, broken: int) -> None:
        """Tell the tally, if there is one."""
        if self.tally is not None and broken:
            self.tally(broken)


@dataclass(frozen=True)
class Scan:
    """What the lines of a block of csv text are.

    Attributes:
        lines: all of them, blank ones included.
        records: those that are records.
        broken: int64[k, 6], of each broken record: first byte, the byte after its last one (without the line's
            end), why, its number among the records, its line's number, and how many cells it has.
    """

    lines: int
    records: int
    broken: NDArray[np.int64]


def whole_lines(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Blocks of whole lines of about ``size`` bytes, without a byte order mark at the beginning.

    Of a line beyond ``MOST_BYTES`` only the beginning is kept: enough to see that it is too long.
    """
    rest: list[bytes] = []
    held, begun, half = 0, False, b""
    while data := stream.read(size):
        if not begun:
            data, begun = data.removeprefix(_BOM), True
        data = half + data
        # A carriage return at the very end may be half of a line's end: it waits for what follows.
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
    """Which lines of csv text are no records of ``cells`` cells."""
    # Imported on use: the command line must start quickly.
    from dpstream.io.sources.line_scanning import scan_lines

    text, broken_records = np.frombuffer(data, np.uint8), np.zeros((0, 6), np.int64)
    lines, records, broken = scan_lines(text, cells, MOST_BYTES, broken_records)
    if broken:
        broken_records = np.zeros((broken, 6), np.int64)
        scan_lines(text, cells, MOST_BYTES, broken_records)
    return Scan(int(lines), int(records), broken_records)


def repaired(data: bytes, seen: Scan, cells: int) -> bytes:
    """The text with a line of empty cells in place of each broken one."""
    parts: list[bytes] = []
    # Never a line of no bytes: the ends of the lines around it could become one end.
    empty = b"," * (cells - 1) or b'""'
    before = 0
    for start, end in seen.broken[:, :2].tolist():
        parts.append(data[before:start])
        parts.append(empty if end < len(data) else empty + b"\n")
        before = end
    parts.append(data[before:])
    return b"".join(parts)


def emptied(table: Any, rows: NDArray[np.int64], *, keep: bool) -> Any:
    """The table with a null in every cell of some rows; or, unless ``keep``, without them."""
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
