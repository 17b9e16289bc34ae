"""The tables of ``docs/reference/configuration.md``, made from the table of keys.

    python docs/key_tables.py docs/reference/configuration.md

Between the page's marks ``<!-- keys: stream source -->`` and ``<!-- end of keys -->`` it puts a table for each of the
sections that are named.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dpstream.project.keys import SECTIONS, keys_of

_MARKED = re.compile(r"(<!-- keys: ([a-z ]+) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """A page with its tables of keys made anew.

    >>> with_tables("<!-- keys: budget -->\\nold\\n<!-- end of keys -->").splitlines()[2]
    '## `[budget]`'
    """

    def made(found: re.Match[str]) -> str:
        tables = "\n\n".join(keys_table(name) for name in found[2].split())
        return f"{found[1]}\n{tables}\n\n{found[3]}"

    return _MARKED.sub(made, page)


def keys_table(section: str) -> str:
    """One section of ``dpstream.toml``: heading, purpose, and a row per key."""
    lines = [
        f"## `[{section}]`",
        "",
        SECTIONS[section],
        "",
        "| key | allowed, **default** | meaning |",
        "|---|---|---|",
    ]
    for key in keys_of(section).values():
        default = "required" if key.default is None else key.default
        only = f" ({key.mechanisms[0]})" if len(key.mechanisms) == 1 and section == "mechanism" else ""
        values = _values(key.allowed, default)
        cells = (f"`{key.name}`", values, key.meaning + only)
        lines.append("|" + "|".join(cell.replace("|", "\\|") for cell in cells) + "|")
    return "\n".join(lines)


def _values(allowed: str, default: str) -> str:
    """What a key may be, its default in bold; a default that cannot be chosen by a word stands behind."""
    if default in ("not set", ""):
        return allowed
    words = allowed.split(", ")
    if default in words:
        return ", ".join(f"**{word}**" if word == default else word for word in words)
    return f"{allowed}; **{default}**"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(with_tables(Path(name).read_text(encoding="utf-8")), encoding="utf-8")
