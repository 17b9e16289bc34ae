"""Which values a column may ever hold: public patterns, whose values are numbered, and what no column may publish.

Trusted base: kernel (which values may enter).
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from functools import cached_property

from dpstream.core.errors import SchemaError
from dpstream.core.schema.pattern_rows import read_row

#: Longer values never enter, in bytes of UTF-8.
MAX_BYTES = 200
#: Larger patterns are refused: nearly all of their values would have to be skipped.
MAX_VALUES = 1 << 60
#: Categories of characters that never enter: control, format, surrogate, line and paragraph ends.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


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
        SchemaError: a row that cannot be read, texts that may not enter or are in two rows, more than 2^60 texts.

    >>> zips = Pattern(("[0-9]{5}", "[A-C][0-9]"))
    >>> zips.size, zips.rank("00042"), zips.value(100001), zips.rank("D1")
    (100030, 42, 'A1', None)
    """

    rows: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise SchemaError("empty pattern", where="pattern", allowed="one row or more")
        read = self._signs
        longest = max(
            sum(max(len(sign.encode("utf-8", "replace")) for sign in p) for p in row) for row in read
        )
        if longest > MAX_BYTES or not all(may_enter(sign) for row in read for p in row for sign in p):
            raise SchemaError("a text may not enter", where="pattern", allowed=f"up to {MAX_BYTES} bytes")
        for place, row in enumerate(read):
            for other in read[:place]:
                if len(row) == len(other) and all(set(a) & set(b) for a, b in zip(row, other, strict=True)):
                    raise SchemaError("two rows have texts in common", where="pattern")
        if self.size > MAX_VALUES:
            raise SchemaError(f"{self.size:.0e} texts", where="pattern", allowed="up to 2^60")

    @cached_property
    def _signs(self) -> list[list[str]]:
        """For each row and place the characters that may stand there, in order."""
        return [read_row(row) for row in self.rows]

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
