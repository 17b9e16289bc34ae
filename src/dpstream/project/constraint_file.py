"""``[schema.constraints]`` and ``[schema.levels]`` in TOML, and the public files that they name."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpstream.core.errors import ConfigError, SchemaError
from dpstream.core.paths import read_text
from dpstream.core.schema import Column, parse_predicate
from dpstream.core.schema.constraints import Constraints, Derived, Excluded, Rules, check_cells
from dpstream.core.schema.domain import pack_mask
from dpstream.core.schema.levels import Lines, digest_of_lines
from dpstream.core.schema.schema import Schema, unknown_key

_KEYS = ("allowed", "derived", "forbidden", "violations")


class _Measured(NamedTuple):
    """The columns that a condition may be about."""

    columns: tuple[Column, ...]
    constraints: Constraints | None

    def named(self, names: Sequence[str], place: str) -> list[Column]:
        """Some of the measured columns."""
        known = {column.name: column for column in self.columns}
        _require(names, known, "is not measured", place)
        return [known[name] for name in names]


def _require(names: Iterable[str], known: Iterable[str], what: str, place: str) -> None:
    for name in names:
        if name not in known:
            raise SchemaError(f"{name!r} {what}", where=place, allowed=", ".join(known))


def read_constraints(
    table: Any, columns: Sequence[Column], place: str, base: Path | None
) -> tuple[tuple[Column, ...], Constraints]:
    """The measured columns, and the constraints.

    Args:
        columns: all that are declared.
        base: the folder that files are relative to.

    Errors:
        SchemaError: names key and value, or file and line, and what is allowed.
    """
    inside = "[schema.constraints]"
    place = place.replace("[schema]", inside) if "[schema]" in place else f"{place} {inside}"
    table = _table(table, "constraints", place, ", ".join(_KEYS))
    for key in table:
        if key not in _KEYS:
            raise unknown_key(key, table[key], _KEYS, place)
    named = _table(table.get("derived", {}), "derived", place, 'COLUMN = { from = "COLUMN", file = "FILE" }')
    known = {column.name: column for column in columns}
    _require(named, known, "under derived is unknown", place)
    measured = _Measured(tuple(column for column in columns if column.name not in named), None)
    if not measured.columns:
        raise SchemaError(
            "every column follows from others", where=place, allowed="a measured column, or more"
        )
    derived = tuple(
        _derived(known[name], spec, measured, f"{place}.derived {name!r}", base)
        for name, spec in named.items()
    )
    asked = _Measured(measured.columns, Constraints(derived) if derived else None)
    excluded = [_forbidden(text, asked, place) for text in _list(table, "forbidden", place)]
    excluded += [_allowed(spec, measured, place, base) for spec in _list(table, "allowed", place)]
    repair = _violations(table.get("violations", "error"), place)
    try:
        constraints = Constraints(derived, tuple(excluded), repair)
        Rules(constraints, measured.columns)
    except SchemaError as error:
        raise SchemaError(error.what, where=place, allowed=error.allowed) from None
    return measured.columns, constraints


def _table(value: Any, name: str, place: str, allowed: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SchemaError(f"{name} has to be a table", where=place, allowed=allowed)
    return value


def _list(table: Mapping[str, Any], key: str, place: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise SchemaError(f"{key} has to be a list", where=place, allowed=f"{key} = [ ... ]")
    return value


def _violations(value: Any, place: str) -> tuple[tuple[str, str], ...]:
    if value == "error":
        return ()
    if isinstance(value, Mapping) and value and all(isinstance(label, str) for label in value.values()):
        return tuple(value.items())
    allowed = '"error", or { COLUMN = "its other or missing bin" }'
    raise SchemaError(f"violations = {value!r} cannot be used", where=place, allowed=allowed)


def _forbidden(text: Any, columns: _Measured, place: str) -> Excluded:
    where = f"{place} forbidden = {text!r}"
    if not isinstance(text, str):
        raise SchemaError(
            "a condition has to be a text", where=place, allowed='forbidden = ["age < 15 and employed"]'
        )
    try:
        predicate = parse_predicate(text, columns)
        check_cells(math.prod(predicate.shape), where)
        mask = predicate.mask()
    except (ConfigError, SchemaError) as error:
        raise SchemaError(error.what, where=where, allowed=error.allowed) from None
    names = tuple(columns.columns[place].name for place in predicate.columns)
    return Excluded(names, pack_mask(mask), text)


class _File(NamedTuple):
    """A public file of combinations: for each line its number, and the codes of some columns.

    ``digest``: SHA-256 of the combinations, in any order.
    """

    name: str
    digest: str
    rows: list[tuple[int, tuple[int, ...]]]


def _derived(column: Column, spec: Any, measured: _Measured, place: str, base: Path | None) -> Derived:
    allowed = 'from = "COLUMN" (or a list), file = "FILE.csv", and read = false where the data lack it'
    if not isinstance(spec, Mapping) or not {"from", "file"} <= spec.keys() <= {"from", "file", "read"}:
        raise SchemaError("the keys cannot be used", where=place, allowed=allowed)
    sources = [spec["from"]] if isinstance(spec["from"], str) else spec["from"]
    read = spec.get("read", True)
    if not _names(sources) or not isinstance(read, bool):
        raise SchemaError("from or read cannot be used", where=place, allowed=allowed)
    columns = measured.named(sources, place)
    shape = tuple(one.size for one in columns)
    check_cells(math.prod(shape), place)
    file = _read(spec["file"], [*columns, column], place, base)
    codes = np.full(shape, -1, dtype=np.int64)
    for line, found in file.rows:
        if codes[found[:-1]] not in (-1, found[-1]):
            raise SchemaError(
                f"line {line} gives a second {column.name} for {_shown(columns, found)}",
                where=f"{place} {file.name}",
                allowed="one for each combination",
            )
        codes[found[:-1]] = found[-1]
    for cell in np.argwhere(codes < 0):
        codes[tuple(cell)] = _of_bins(column, columns, tuple(cell.tolist()), f"{place} {file.name}")
    return Derived(column, tuple(sources), tuple(codes.reshape(-1).tolist()), read, file.name, file.digest)


def _of_bins(column: Column, sources: Sequence[Column], cell: tuple[int, ...], place: str) -> int:
    """The code where the file has no line: ``missing`` follows from missing, ``other`` from other."""
    is_missing = any(code == one.missing_code for one, code in zip(sources, cell, strict=True))
    is_other = any(code == one.other_code for one, code in zip(sources, cell, strict=True))
    own = column.missing_code if is_missing else column.other_code if is_other else None
    if own is None:
        kind = "missing" if is_missing else "other"
        declare = f", or a bin {kind} of {column.name}" if is_missing or is_other else ""
        raise SchemaError(
            f"a line is missing for {_shown(sources, cell)}",
            where=place,
            allowed=f"a line with its {column.name}{declare}",
        )
    return own


def _shown(columns: Sequence[Column], cell: Sequence[int]) -> str:
    pairs = zip(columns, cell, strict=False)
    return ", ".join(f"{column.name} = {column.labels()[code]!r}" for column, code in pairs)


def _allowed(spec: Any, measured: _Measured, place: str, base: Path | None) -> Excluded:
    allowed = '{ columns = ["COLUMN", "COLUMN"], file = "FILE.csv" }'
    if not isinstance(spec, Mapping) or spec.keys() != {"columns", "file"} or not _names(spec["columns"]):
        raise SchemaError("an entry of allowed cannot be used", where=place, allowed=allowed)
    place = f"{place} allowed"
    named = measured.named(spec["columns"], place)
    columns = [column for column in measured.columns if column in named]
    shape = tuple(column.size for column in columns)
    check_cells(math.prod(shape), place)
    file = _read(spec["file"], columns, place, base)
    excluded = np.ones(shape, dtype=np.bool_)
    for _, found in file.rows:
        excluded[found] = False
    for axis, column in enumerate(columns):  # a value that nobody knows excludes nothing
        np.moveaxis(excluded, axis, 0)[column.bins :] = False
    names = tuple(column.name for column in columns)
    return Excluded(
        names, pack_mask(excluded), f"{' x '.join(names)} as in {file.name}", file.name, file.digest
    )


def _names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


def _read(name: Any, columns: Sequence[Column], place: str, base: Path | None) -> _File:
    if not isinstance(name, str) or not name:
        raise SchemaError("file cannot be used", where=place, allowed='file = "FILE.csv"')
    numbers, cells = _cells(name, [column.name for column in columns], place, base)
    place = f"{place} {name}"
    codes = [_codes(column, numbers, own, place) for column, own in zip(columns, cells, strict=True)]
    rows = list(zip(numbers, zip(*codes, strict=True), strict=True))
    digest = digest_of_lines([column.name for column in columns], (codes for _, codes in rows))
    return _File(name, digest, rows)


def read_levels(table: Any, schema: Schema, place: str, base: Path | None) -> Schema:
    """``[schema.levels]``: the schema with its trees.

    Errors:
        SchemaError: names key and value, or file and line, and what is allowed.
    """
    place = (
        place.replace("[schema]", "[schema.levels]") if "[schema]" in place else f"{place} [schema.levels]"
    )
    allowed = 'NAME = { columns = ["COARSE", "FINE"], file = "FILE.csv" }'
    for name, spec in _table(table, "levels", place, allowed).items():
        if not isinstance(spec, Mapping) or spec.keys() != {"columns", "file"} or not _names(spec["columns"]):
            raise SchemaError(f"levels {name!r} cannot be used", where=place, allowed=allowed)
        columns, file = spec["columns"], spec["file"]
        if not isinstance(file, str) or not file:
            raise SchemaError(f"levels {name!r}: file cannot be used", where=place, allowed=allowed)
        numbers, cells = _cells(file, columns, place, base)
        try:
            schema = schema.with_lines(name, columns, Lines(cells, numbers, f"{place} {file}", file=file))
        except SchemaError as error:
            where = error.where if file in (error.where or "") else place
            raise SchemaError(error.what, where=where, allowed=error.allowed) from None
    return schema


def _cells(
    name: str, columns: Sequence[str], place: str, base: Path | None
) -> tuple[list[int], list[list[str]]]:
    """The numbers of a file's lines, and for each column its cells."""
    place = f"{place} {name}"
    try:
        text = read_text((base or Path()) / name)
    except OSError as error:
        raise ConfigError(
            f"the file cannot be read: {error.strerror or 'expected text'}", where=place, allowed="a CSV file"
        ) from None
    except ValueError:
        raise ConfigError("the file is not UTF-8 text", where=place, allowed="a CSV file") from None
    return _lines(text, columns, place)


def _lines(text: str, names: Sequence[str], place: str) -> tuple[list[int], list[list[str]]]:
    rows: Iterator[list[str]] = csv.reader(text.splitlines(), strict=True)
    try:
        header = next(rows, [])
        if not set(names) <= set(header) or len(set(header)) != len(header):
            raise SchemaError(
                "the first line does not name each column once",
                where=place,
                allowed=f"a first line with {', '.join(names)}",
            )
        where = [header.index(name) for name in names]
        numbers: list[int] = []
        cells: list[list[str]] = [[] for _ in names]
        for number, row in enumerate(rows, 2):
            if not row:
                continue
            if len(row) != len(header):
                raise SchemaError(
                    f"line {number} has {len(row)} cells",
                    where=place,
                    allowed=f"{len(header)}, as the first line",
                )
            numbers.append(number)
            for i, k in enumerate(where):
                cells[i].append(row[k])
    except csv.Error:
        raise SchemaError("the file is not CSV", where=place, allowed="one combination a line") from None
    if not numbers:
        raise SchemaError("the file has no combination", where=place, allowed="one combination a line")
    return numbers, cells


def _codes(column: Column, numbers: Sequence[int], cells: list[str], place: str) -> list[int]:
    import pyarrow as pa

    codes: list[int] = column.raw_codes(pa.array(cells, pa.string()), ()).tolist()
    for number, code, cell in zip(numbers, codes, cells, strict=True):
        if code < 0:
            raise SchemaError(
                f"line {number}: {column.name} = {cell!r} is not declared",
                where=place,
                allowed=f"{column.describe()}, or the name of a declared bin",
            )
    return codes
