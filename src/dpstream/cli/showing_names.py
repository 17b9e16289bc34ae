"""Long lists of columns in sentences, told in a few words."""

from __future__ import annotations

from collections.abc import Sequence

#: Lists of more columns are told by their number.
_MOST = 10
_BEFORE = "in columns "


def with_few_names(text: str, names: Sequence[str]) -> str:
    """The sentence with its first list of many columns, in the schema's order, replaced by how many they are.

    >>> names = [f"v{n}" for n in range(12)]
    >>> with_few_names(f"a null stops it in columns {', '.join(map(repr, names))}, visibly", names)
    'a null stops it in all 12 columns, visibly'
    >>> with_few_names(f"a null stops it in columns {', '.join(map(repr, names[1:]))}, visibly", names)
    "a null stops it in 11 of 12 columns ('v1', 'v2', ..., 'v11'), visibly"
    """
    head, before, rest = text.partition(_BEFORE)
    found: list[str] = []
    left = rest
    for name in names:
        word = repr(name)
        if before and left.startswith(word):
            found.append(word)
            left = left.removeprefix(word)
            if not left.startswith(", '") and not left.startswith(', "'):
                break
            left = left.removeprefix(", ")
    if len(found) <= _MOST:
        return text
    if len(found) == len(names):
        return f"{head}in all {len(names)} columns{left}"
    return f"{head}in {len(found)} of {len(names)} columns ({found[0]}, {found[1]}, ..., {found[-1]}){left}"
