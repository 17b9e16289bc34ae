"""Files of JSON lines, each with the SHA-256 of the line before: a later line vouches for all earlier ones.

The chain has no key: it shows edits to those who hold a copy or a later hash, and proves nothing to others.

Trusted base: kernel (what streams cost together).
"""

from __future__ import annotations

from typing import Any

from dpstream.core.paths import parse_json, sha256_hex
from dpstream.stream.identity import canonical_json


def chained(content: dict[str, Any], before: bytes | None) -> bytes:
    """The next line, without its end; ``before``: the line before."""
    return canonical_json({**content, "previous": None if before is None else sha256_hex(before)})


def as_file(lines: list[bytes]) -> bytes:
    """The bytes of a file of these lines."""
    return b"".join(line + b"\n" for line in lines)


def read_chain(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    """What is wrong with a chain, in a sentence each, and its lines up to the first one that cannot be read."""
    problems, lines = list[str](), list[dict[str, Any]]()
    before: bytes | None = None
    if data and not data.endswith(b"\n"):
        problems.append("the file ends within a line")
    for number, raw in enumerate(data.splitlines(), start=1):
        try:
            line = parse_json(raw)
            previous = line["previous"]
        except (ValueError, KeyError, TypeError):
            problems.append(f"line {number} cannot be read")
            break
        if previous != (None if before is None else sha256_hex(before)):
            problems.append(f"line {number} does not follow line {number - 1}: changed, or a line is missing")
        lines.append(line)
        before = raw
    return problems, lines
