"""Levels: a public tree over the values of a column, such as regions and districts over zip codes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpstream.core.errors import SchemaError
from dpstream.core.paths import sha256_hex
from dpstream.core.schema.column import Column
from dpstream.core.schema.constraints import Derived, Levels
from dpstream.core.schema.discrete import Categorical


@dataclass(frozen=True)
class Lines:
    """What is said of levels.

    Attributes:
        cells: for each level, the coarsest first, its value in every line. numbers: of the lines.
        where: for messages, as ``word``: what a line is called. file: its name, where it is one.
    """

    cells: Sequence[Sequence[str | None]]
    numbers: Sequence[int]
    where: str
    word: str = "line"
    file: str | None = None


def digest_of_lines(columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> str:
    """Of what a public file says, and not how: in another order of lines it is the same file."""
    said = [list(columns), sorted(set(rows))]
    return "sha256:" + sha256_hex(json.dumps(said).encode())


def read_levels(
    name: str, columns: Sequence[str], declared: Sequence[Column], lines: Lines
) -> tuple[Levels, tuple[Derived, ...]]:
    """The tree and its coarser columns: each value has one parent, whatever the order of lines.

    Args:
        declared: the measured columns; the last level is one of them.

    Errors:
        SchemaError: names what is wrong, in which line.
    """
    *coarser, finest = columns
    known = {column.name: column for column in declared}
    if not coarser or len(set(columns)) < len(columns):
        raise _wrong(lines, f"the levels are {', '.join(columns)}", "two columns or more, each once")
    if finest not in known:
        raise _wrong(lines, f"the finest level {finest!r} is not measured", ", ".join(known))
    for column in coarser:
        if column in known:
            what = f"{column!r} is a declared column and a coarser level"
            raise _wrong(lines, what, f"no declaration of {column}: the levels give its values")
    codes = _finest_codes(known[finest], lines)
    _check_parents(columns, lines)
    digest = digest_of_lines(columns, zip(*lines.cells, strict=True))
    derived = []
    for column, cells in zip(coarser, lines.cells, strict=False):
        values = sorted({str(cell) for cell in cells})
        place = {value: code for code, value in enumerate(values)}
        table = [place[str(cells[row])] for row in codes]
        made = Categorical(column, tuple(values))
        derived.append(Derived(made, (finest,), tuple(table), False, lines.file, digest))
    return Levels(name, tuple(columns)), tuple(derived)


def _finest_codes(column: Column, lines: Lines) -> list[int]:
    """For each code of the finest level, the line that says its parents."""
    import pyarrow as pa

    cells, found = lines.cells[-1], dict[int, int]()
    for row, code in enumerate(column.raw_codes(pa.array(cells, pa.string()), ()).tolist()):
        where = f"{lines.word} {lines.numbers[row]}"
        if code < 0:
            allowed = f"{column.describe()}, or the name of a declared bin"
            raise _wrong(lines, f"{where}: {column.name} = {cells[row]!r} is not declared", allowed)
        if code in found:
            first = f"{lines.word} {lines.numbers[found[code]]}"
            raise _wrong(
                lines, f"{where} gives {column.name} = {cells[row]!r} again, after {first}", "one each"
            )
        found[code] = row
    labels = column.labels()
    absent = [label for code, label in enumerate(labels) if code not in found]
    if absent:
        more = f" and {len(absent) - 1} more values" if absent[1:] else ""
        allowed = f"a {lines.word} for each value; also for the bins other and missing"
        raise _wrong(lines, f"a {lines.word} is missing for {column.name} = {absent[0]!r}{more}", allowed)
    return [found[code] for code in range(len(labels))]


def _check_parents(columns: Sequence[str], lines: Lines) -> None:
    for level, (upper, lower) in enumerate(zip(lines.cells, lines.cells[1:], strict=False)):
        first = dict[str | None, int]()
        for row, (parent, child) in enumerate(zip(upper, lower, strict=True)):
            where = f"{lines.word} {lines.numbers[row]}"
            if not parent:
                raise _wrong(lines, f"{where} has no {columns[level]}", "a value for each level")
            before = first.setdefault(child, row)
            if upper[before] != parent:
                what = f"{where} puts {columns[level + 1]} = {child!r} into {columns[level]} = {parent!r}"
                other = f"{lines.word} {lines.numbers[before]} into {upper[before]!r}"
                raise _wrong(lines, f"{what}, and {other}", "one parent for each value")


def _wrong(lines: Lines, what: str, allowed: str) -> SchemaError:
    return SchemaError(what, where=lines.where, allowed=allowed)
