"""Which values a column may ever hold: public patterns, whose values are numbered, and what no column may publish.

Trusted base: kernel (which values may enter).
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property

from dpstream.core.errors import SchemaError

#: Longer values never enter, in bytes of UTF-8.
MAX_BYTES = 200
#: Larger patterns are refused: nearly all of their values would have to be skipped.
MAX_VALUES = 1 << 60
#: Categories of characters that never enter: control, format, surrogate, line and paragraph ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_PART = re.compile(
    r"(?:\\(?P<escaped>.)|\[(?P<of>[^][\\^]+)\]|(?P<plain>[^][\\{}()|.*+?^$]))(?:\{(?P<times>[1-9][0-9]{0,2})\})?"
)
_ALLOWED = "characters, classes such as [A-Z0-9], numbers of them such as [0-9]{5}; \\. for a dot"


def may_enter(value: str) -> bool:
    """Whether a value may be published by discovery: a rule that depends on the value alone.

    >>> may_enter("Zürich"), may_enter("a\\nb"), may_enter("x" * 201)
    (True, False, False)
    """
    if len(value) > MAX_BYTES or any(unicodedata.category(sign) in _HIDDEN for sign in value):
        return False
    return len(value.encode()) <= MAX_BYTES


@dataclass(frozen=True)
class Pattern:
    """A finite set of texts, numbered from 0: all that match one of several rows.

    A row is a sequence of characters and classes of characters, so its texts have one length. Two rows of equal length
    must not have a text in common.

    Errors:
        SchemaError: a row that cannot be read, rows with common texts, more than 2^60 texts.

    >>> zips = Pattern(("[0-9]{5}", "[A-C][0-9]"))
    >>> zips.size, zips.rank("00042"), zips.value(100001), zips.rank("D1")
    (100030, 42, 'A1', None)
    """

    rows: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise SchemaError("empty pattern", where="pattern", allowed="one row or more")
        read = self._signs
        for place, row in enumerate(read):
            for other in read[:place]:
                if len(row) == len(other) and all(set(a) & set(b) for a, b in zip(row, other, strict=True)):
                    raise SchemaError("two rows have texts in common", where="pattern")
        if self.size > MAX_VALUES:
            raise SchemaError(f"{self.size:.0e} texts", where="pattern", allowed="up to 2^60")

    @cached_property
    def _signs(self) -> list[list[str]]:
        """For each row and place the characters that may stand there, in order."""
        return [_read(row) for row in self.rows]

    @cached_property
    def _places(self) -> list[tuple[int, list[dict[str, int]]]]:
        """For each row the number of its first text, and at each place the number of each character."""
        first, found = 0, []
        for row in self._signs:
            found.append((first, [{sign: n for n, sign in enumerate(signs)} for signs in row]))
            first += math.prod(map(len, row))
        return found

    @cached_property
    def size(self) -> int:
        """How many texts there are."""
        return sum(math.prod(map(len, row)) for row in self._signs)

    def rank(self, value: str) -> int | None:
        """The number of a text; None where no row has it."""
        for first, row in self._places:
            if len(row) == len(value) and all(sign in signs for sign, signs in zip(value, row, strict=True)):
                rank = 0
                for sign, signs in zip(value, row, strict=True):
                    rank = rank * len(signs) + signs[sign]
                return first + rank
        return None

    def value(self, rank: int) -> str:
        """The text of a number from 0 to ``size - 1``."""
        for row in self._signs:
            count = math.prod(map(len, row))
            if rank < count:
                text = ""
                for signs in reversed(row):
                    rank, place = divmod(rank, len(signs))
                    text = signs[place] + text
                return text
            rank -= count
        raise IndexError(rank)


def _read(row: str) -> list[str]:
    signs, at = list[str](), 0
    while at < len(row):
        part = _PART.match(row, at)
        if part is None:
            raise SchemaError(f"{row!r}: expected a row of characters", where="pattern", allowed=_ALLOWED)
        signs += [_class(part["of"]) if part["of"] else part["escaped"] or part["plain"]] * int(
            part["times"] or 1
        )
        at = part.end()
    if not signs or not all(may_enter(sign) for place in signs for sign in place):
        raise SchemaError(f"{row!r}: a text that may not enter", where="pattern", allowed=_ALLOWED)
    if sum(max(len(sign.encode()) for sign in place) for place in signs) > MAX_BYTES:
        raise SchemaError(f"{row!r}: texts too long", where="pattern", allowed=f"up to {MAX_BYTES} bytes")
    return signs


def _class(text: str) -> str:
    """The characters of a class: a-z is a range; a dash at an end is itself."""
    signs, at = set[str](), 0
    while at < len(text):
        length = 3 if text[at + 1 : at + 2] == "-" and at + 2 < len(text) else 1
        first, last = text[at], text[at + length - 1]
        if last < first:
            raise SchemaError(f"[{text}]: a range runs backwards", where="pattern", allowed=_ALLOWED)
        signs |= set(map(chr, range(ord(first), ord(last) + 1)))
        at += length
    return "".join(sorted(signs))
