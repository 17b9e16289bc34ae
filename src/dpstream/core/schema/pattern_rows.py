"""How a row of a pattern is written: characters, classes of characters, and how many of them. Public."""

from __future__ import annotations

import re

from dpstream.core.errors import SchemaError

_PART = re.compile(
    r"(?:\\(?P<escaped>.)|\[(?P<of>[^][\\^]+)\]|(?P<plain>[^][\\{}()|.*+?^$]))(?:\{(?P<times>[1-9][0-9]{0,2})\})?"
)
_ALLOWED = "characters, [A-Z0-9], [0-9]{5}, \\. for a dot"


def read_row(row: str) -> list[str]:
    """For each place the different characters that may stand there, in order.

    Errors:
        SchemaError: a row that cannot be read.

    >>> read_row("[0-2]{2}x")
    ['012', '012', 'x']
    """
    signs, at = list[str](), 0
    while at < len(row) or not row:
        part = _PART.match(row, at)
        if part is None:
            raise SchemaError(f"{row!r}: expected a row of characters", where="pattern", allowed=_ALLOWED)
        place = _class(part["of"]) if part["of"] else part["escaped"] or part["plain"]
        signs += [place] * int(part["times"] or 1)
        at = part.end()
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
