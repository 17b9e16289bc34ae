"""The messages of PostgreSQL's plugin ``pgoutput``, protocol version 1 (text values, whole transactions).

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


class Unchanged:
    """The type of ``UNCHANGED``: a large value that the update left as it was, and that the log does not repeat."""


UNCHANGED = Unchanged()
#: The cells of a row: texts, None for nulls, ``UNCHANGED``.
Tuple = list["str | Unchanged | None"]


@dataclass(frozen=True)
class Begin:
    """The begin of a transaction: the place of its commit in the log, and its time (microseconds since 2000 UTC)."""

    commit: int
    moment: int


@dataclass(frozen=True)
class Described:
    """The description of a table: sent before its first change, and again after the table was altered.

    Attributes:
        columns: name and type number of each column.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, repr=False)
class Change:
    """A change of one row.

    Attributes:
        oid: the table's number.
        kind: ``I`` (insert), ``U`` (update) or ``D`` (delete).
        old: the whole old row; None where the log does not have it.
        new: the new row; None for a delete.
        key: the columns of the replica identity in the old row, with nulls in all others. Only where the log has these
            alone: for a delete, and for an update that changes them.
    """

    oid: int
    kind: str
    old: Tuple | None
    new: Tuple | None
    key: Tuple | None = None


@dataclass(frozen=True)
class Truncate:
    """A truncation, with the numbers of the tables that it emptied."""

    oids: tuple[int, ...]


class _Bytes:
    """Reads a message from left to right. Numbers are big-endian."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError("the message is cut short")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def text(self) -> str:
        taken = self.take(self._data.index(b"\0", self._at) - self._at)
        self.take(1)
        return taken.decode()

    def tuple(self) -> Tuple:
        return list(self._cells())

    def _cells(self) -> Iterator[str | Unchanged | None]:
        for _ in range(self.number(2)):
            kind = self.take(1)
            if kind == b"t":
                yield self.take(self.number(4)).decode()
            elif kind == b"n":
                yield None
            elif kind == b"u":
                yield UNCHANGED
            else:
                raise ValueError("the message has an unknown kind of cell")


def head(data: bytes) -> Begin | Described | Truncate | int | None:
    """Read the first bytes of a message: the begin of a transaction, a table without its columns, a truncation, or (for
    a change) the number of its table. None for all other messages."""
    kind, rest = data[:1], _Bytes(data[1:])
    if kind == b"R":
        return _named(rest)
    if kind == b"B":
        return Begin(rest.number(8), rest.number(8))
    if kind in (b"I", b"U", b"D"):
        return rest.number(4)
    if kind == b"T":
        return _truncate(rest)
    return None


def parse(data: bytes) -> Begin | Described | Change | Truncate | None:
    """Read one message; None for messages that are not about rows (commits, origins, types).

    Errors:
        ValueError: this is no message of the protocol. The text repeats no value of a row.
    """
    kind, rest = data[:1], _Bytes(data[1:])
    if kind == b"B":
        return Begin(rest.number(8), rest.number(8))
    if kind == b"R":
        return _described(rest)
    if kind in (b"I", b"U", b"D"):
        return _change(kind, rest)
    if kind == b"T":
        return _truncate(rest)
    if kind in (b"C", b"O", b"Y", b"M"):
        return None
    raise ValueError("the message is of an unknown kind")


def _named(rest: _Bytes) -> Described:
    # The schema pg_catalog is sent as an empty name.
    return Described(rest.number(4), rest.text() or "pg_catalog", rest.text(), ())


def _described(rest: _Bytes) -> Described:
    table = _named(rest)
    rest.take(1)  # the replica identity, which is not needed: the changes show whether they have the old row
    columns = []
    for _ in range(rest.number(2)):
        rest.take(1)
        column, kind = rest.text(), rest.number(4)
        rest.take(4)
        columns.append((column, kind))
    return replace(table, columns=tuple(columns))


def _change(kind: bytes, rest: _Bytes) -> Change:
    oid, old, key, part = rest.number(4), None, None, rest.take(1)
    if part in (b"K", b"O"):
        cells = rest.tuple()
        old, key = (cells, None) if part == b"O" else (None, cells)
        part = b"" if kind == b"D" else rest.take(1)
    new = rest.tuple() if part == b"N" else None
    return Change(oid, kind.decode(), old, new, key)


def _truncate(rest: _Bytes) -> Truncate:
    count = rest.number(4)
    rest.take(1)
    return Truncate(tuple(rest.number(4) for _ in range(count)))
