"""What every record satisfies, publicly: columns that follow from others, and cells that no record is in.

Whether a record satisfies them, and what becomes of one that does not, depends on that record and on public facts
alone, as its codes do; so the sensitivity of every count stays what it is (docs/theory/constraints.md).

Trusted base: kernel (derives private columns).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import SchemaError
from dpstream.core.schema.arrow import first_repeated
from dpstream.core.schema.column import Column, Problem
from dpstream.core.schema.domain import Codes, Domain, Follows, Impossible, Mask, pack_mask

#: Most cells that the columns of one constraint have together.
MAX_CONSTRAINT_CELLS = 2**20
_WHERE = "schema.constraints"


@dataclass(frozen=True)
class Derived:
    """A column that follows from others: it is not measured, and computed for released records.

    Attributes:
        column: its declaration.
        sources: the columns that it follows from; they are measured.
        codes: its code for each cell of the sources, flat in C order.
        read: whether the data have the column. A record whose values contradict each other is a violation: where all
            its sources are ordinary values, and the column says neither what follows from them nor that it is missing.
        file, digest: the public file that it was read from, and a SHA-256 of what it says.
    """

    column: Column
    sources: tuple[str, ...]
    codes: tuple[int, ...]
    read: bool = True
    file: str | None = None
    digest: str | None = None

    @property
    def words(self) -> str:
        """For messages."""
        return f"{self.column.name} follows from {', '.join(self.sources)}"


@dataclass(frozen=True)
class Levels:
    """Columns of which each follows from the next one: regions, districts, zip codes. ``columns``: the coarsest first;
    the last is measured."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Excluded:
    """Cells of some columns that no record is in.

    Attributes:
        columns: in the order of the schema.
        cells: the packed bits of a mask over their cells in C order; 1 where no record is.
        words: what was declared, for messages.
        file, digest: the public file of allowed combinations that it was read from, and a SHA-256 of what it says.
    """

    columns: tuple[str, ...]
    cells: bytes
    words: str
    file: str | None = None
    digest: str | None = None


@dataclass(frozen=True)
class Constraints:
    """All public constraints of a schema.

    Attributes:
        derived: columns that follow from others.
        excluded: cells that no record is in.
        repair: what becomes of a private record that violates one: of each of these columns that the violated
            constraint reads, the record is counted in this declared bin (``other`` or ``missing``). Empty: such a
            record is an error.
        levels: trees of derived columns.
    """

    derived: tuple[Derived, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    repair: tuple[tuple[str, str], ...] = ()
    levels: tuple[Levels, ...] = ()

    def __post_init__(self) -> None:
        if not self.derived and not self.excluded:
            raise SchemaError("constraints are missing", where=_WHERE, allowed="derived, forbidden, allowed")

    @property
    def coarser_levels(self) -> tuple[str, ...]:
        """The derived columns that levels make."""
        return tuple(name for one in self.levels for name in one.columns[:-1])

    def spec(self) -> dict[str, Any]:
        """The declaration as plain values, without the declarations of columns: what fingerprint and codebook hold."""
        return {
            "derived": {
                one.column.name: {"from": list(one.sources), "codes": list(one.codes), "read": one.read}
                for one in self.derived
            },
            "excluded": [
                {
                    "columns": list(one.columns),
                    "words": one.words,
                    "cells": base64.b64encode(one.cells).decode(),
                }
                for one in self.excluded
            ],
            "violations": dict(self.repair) or "error",
            **self._named_levels(),
        }

    def _named_levels(self) -> dict[str, Any]:
        return {"levels": {one.name: list(one.columns) for one in self.levels}} if self.levels else {}

    def facts(self) -> dict[str, Any]:
        """What a stream is pinned to besides the schema's fingerprint: in words, and the contents of the files."""
        # Trees and combinations may be read from other columns of one file: each has a digest, and then a key.
        files = [(one.file, one.column.name, one.digest) for one in self.derived]
        files += [(one.file, ", ".join(one.columns), one.digest) for one in self.excluded]
        once = {file for file, _, _ in files if len({one[2] for one in files if one[0] == file}) == 1}
        return {
            "derived": {one.column.name: list(one.sources) for one in self.derived},
            "excluded": [one.words for one in self.excluded],
            "violations": dict(self.repair) or "error",
            "files": {
                file if file in once else f"{file}: {columns}": digest
                for file, columns, digest in files
                if file is not None
            },
            **self._named_levels(),
        }


def split_spec(spec: Mapping[str, Any], columns: Iterable[Column]) -> tuple[list[Column], Constraints]:
    """The inverse of ``Constraints.spec``: the measured columns, and the constraints.

    Args:
        columns: the measured ones and those that follow.

    Errors:
        KeyError, TypeError, ValueError: a malformed declaration. SchemaError: constraints and columns do not fit.
    """
    named = {column.name: column for column in columns}
    derived = [
        Derived(named.pop(name), tuple(one["from"]), tuple(map(int, one["codes"])), bool(one["read"]))
        for name, one in spec["derived"].items()
    ]
    excluded = [
        Excluded(tuple(one["columns"]), base64.b64decode(one["cells"], validate=True), str(one["words"]))
        for one in spec["excluded"]
    ]
    repair = () if spec["violations"] == "error" else tuple(spec["violations"].items())
    levels = tuple(Levels(name, tuple(columns)) for name, columns in spec.get("levels", {}).items())
    return list(named.values()), Constraints(tuple(derived), tuple(excluded), repair, levels)


@dataclass(frozen=True, eq=False)
class _Rule:
    """A constraint over codes.

    Attributes:
        places: the measured columns that it reads.
        table: for each of their cells the code of ``column``; or, where no column follows, whether no record is there.
    """

    words: str
    places: tuple[int, ...]
    table: NDArray[Any]
    column: Column | None = None


class Rules:
    """Constraints over the codes of a schema's measured columns.

    Errors (when made):
        SchemaError: the constraints name columns that are not there, or contradict the columns or each other.
    """

    def __init__(self, constraints: Constraints, columns: Sequence[Column]) -> None:
        self.constraints = constraints
        self._columns = tuple(columns)
        self._plain = domain_of(columns)
        twice = first_repeated((*self._plain.names, *(one.column.name for one in constraints.derived)))
        if twice is not None:
            raise _wrong(f"column {twice!r} stands twice", "each column once")
        self._derived = [self._follows(one) for one in constraints.derived]
        for one in constraints.levels:
            self._check_levels(one)
        self._excluded = [self._excludes(one) for one in constraints.excluded]
        given = zip(self._derived, constraints.derived, strict=True)
        self._checked = [*(rule for rule, one in given if one.read), *self._excluded]
        self._repair = {self._plain.index(name): self._bin(name, label) for name, label in constraints.repair}
        if self._repair:
            for rule in self._checked:
                self._check_repair(rule)

    @property
    def impossible(self) -> tuple[Impossible, ...]:
        """The excluded cells, as the domain has them."""
        return tuple(Impossible(rule.places, pack_mask(rule.table)) for rule in self._excluded)

    @property
    def follows(self) -> tuple[Follows, ...]:
        """The derived columns, as the domain has them."""
        found = zip(self._derived, self.constraints.derived, strict=True)
        return tuple(
            Follows(one.column.name, one.column.size, rule.places, rule.table.tobytes())
            for rule, one in found
        )

    @property
    def read(self) -> tuple[Column, ...]:
        """Derived columns that the data have."""
        return tuple(one.column for one in self.constraints.derived if one.read)

    def derive(self, codes: NDArray[Any]) -> list[Codes]:
        """The codes of the derived columns of some records."""
        return [self._looked_up(rule, codes) for rule in self._derived]

    def has_impossible(self, codes: NDArray[Any]) -> bool:
        """Whether some record is in a cell that no record is in."""
        return any(self._looked_up(rule, codes).any() for rule in self._excluded)

    def violated(self, codes: NDArray[Any], given: Sequence[NDArray[Any]]) -> list[tuple[str, Mask]]:
        """Which records violate which constraint. Private.

        Args:
            given: codes that the data have for the derived columns that are read.
        """
        return [(rule.words, broken) for rule, broken in self._broken(codes, given)]

    def settle(self, codes: NDArray[Any], given: Sequence[NDArray[Any]]) -> list[Problem]:
        """Put records that violate a constraint into the declared bins, in place; without such bins, say what is wrong.

        Each record is changed by itself.
        """
        violations = self._broken(codes, given)
        if not self._repair:
            return [self._problem(rule) for rule, _ in violations]
        for rule, broken in violations:
            for place in self._repair.keys() & set(rule.places):
                codes[broken, place] = self._repair[place]
        return []

    def _broken(self, codes: NDArray[Any], given: Sequence[NDArray[Any]]) -> list[tuple[_Rule, Mask]]:
        violations = []
        waiting = iter(given)
        for rule in self._checked:
            broken = self._looked_up(rule, codes)
            if rule.column is not None:
                said = next(waiting)
                broken = broken != said
                if rule.column.missing_code is not None:
                    broken &= said != rule.column.missing_code
                for place in rule.places:
                    broken &= codes[:, place] < self._columns[place].bins
            if broken.any():
                violations.append((rule, broken))
        return violations

    def _problem(self, rule: _Rule) -> Problem:
        what = f"holds values that the constraint {rule.words!r} excludes"
        allowed = 'records that satisfy it, or a rule other than violations = "error" in [schema.constraints]'
        return Problem(self._named(rule), f"constraint {rule.words}", what, allowed)

    def _named(self, rule: _Rule) -> str:
        return ", ".join(self._plain.names[place] for place in rule.places)

    def _looked_up(self, rule: _Rule, codes: NDArray[Any]) -> NDArray[Any]:
        """The table's entry for each record."""
        cell = np.zeros(len(codes), dtype=np.int64)
        for place in rule.places:
            cell *= self._plain.sizes[place]
            cell += codes[:, place]
        return rule.table[cell]

    def _places(self, names: tuple[str, ...], what: str) -> tuple[int, ...]:
        unknown = [name for name in names if name not in self._plain.names]
        if unknown or not names:
            raise _wrong(
                f"{what} reads {unknown[0]!r}, outside the measured columns"
                if unknown
                else f"{what} reads no column",
                ", ".join(self._plain.names),
            )
        places = tuple(map(self._plain.index, names))
        if len(set(places)) != len(places):
            raise _wrong(f"{what} names a column twice", "each column once")
        check_cells(self._plain.cells(places), _WHERE, f"the columns of {what} have")
        return places

    def _follows(self, one: Derived) -> _Rule:
        places = self._places(one.sources, f"column {one.column.name!r}")
        table = np.array(one.codes, dtype=np.int64)
        if len(table) != self._plain.cells(places) or table.min() < 0 or table.max() >= one.column.size:
            raise _wrong(
                f"column {one.column.name!r} needs one code per cell of {', '.join(one.sources)}",
                f"{self._plain.cells(places)} codes from 0 to {one.column.size - 1}",
            )
        return _Rule(one.words, places, table.astype(np.int32), one.column)

    def _check_levels(self, one: Levels) -> None:
        *coarser, finest = one.columns
        sources = {own.column.name: own.sources for own in self.constraints.derived}
        if not coarser or any(sources.get(name) != (finest,) for name in coarser):
            raise _wrong(
                f"the levels {one.name!r} do not follow from {finest!r}", "columns that follow from it"
            )
        if one.name in (*self._plain.names, *sources):
            raise _wrong(f"{one.name!r} is a column and the name of levels", "another name for the levels")

    def _excludes(self, one: Excluded) -> _Rule:
        places = self._places(one.columns, f"the constraint {one.words!r}")
        if list(places) != sorted(places) or len(one.cells) != -(-self._plain.cells(places) // 8):
            raise _wrong(f"the constraint {one.words!r} does not fit its columns", "a mask over their cells")
        mask = Impossible(places, one.cells).mask(self._plain)
        if mask.all():
            raise _wrong(
                f"the constraint {one.words!r} excludes all values of {', '.join(one.columns)}",
                "a constraint that some records satisfy",
            )
        if not mask.any():
            raise _wrong(
                f"the constraint {one.words!r} excludes nothing in {', '.join(one.columns)} (other and "
                "missing contradict nothing)",
                "a constraint that some declared values violate, or none",
            )
        return _Rule(one.words, places, mask)

    def _bin(self, name: str, label: str) -> int:
        column = self._columns[self._plain.index(name)]
        bins = {column.other: column.other_code, column.missing: column.missing_code}
        code = bins.get(label)
        if code is None:
            declared = [repr(x) for x in (column.other, column.missing) if x is not None]
            raise _wrong(
                f"violations puts column {name!r} into {label!r}, neither its other nor its missing bin",
                ", ".join(declared) or f"another column: {name!r} declares neither",
            )
        return code

    def _check_repair(self, rule: _Rule) -> None:
        """Whatever else a record holds, it satisfies a constraint once it is in one of the bins that stand for it."""
        inside = [place for place in rule.places if place in self._repair]
        if not inside:
            raise _wrong(
                f"violations names no column of the constraint {rule.words!r}",
                f"one of {self._named(rule)}",
            )
        if rule.column is not None:  # it contradicts ordinary values only
            return
        shaped = rule.table.reshape(self._plain.shape(rule.places))
        for place in inside:
            if shaped.take(self._repair[place], axis=rule.places.index(place)).any():
                name = self._plain.names[place]
                raise _wrong(
                    f"the constraint {rule.words!r} excludes records in the bin that violations names for {name!r}",
                    "a bin without violations",
                )


def domain_of(columns: Sequence[Column], impossible: tuple[Impossible, ...] = ()) -> Domain:
    """The names and sizes of some columns."""
    return Domain(tuple(c.name for c in columns), tuple(c.size for c in columns), impossible)


def check_cells(cells: int, where: str, subject: str = "its columns have") -> None:
    """SchemaError where the columns of a constraint have too many cells together."""
    if cells > MAX_CONSTRAINT_CELLS:
        raise SchemaError(
            f"{subject} {cells} cells together",
            where=where,
            allowed=f"at most {MAX_CONSTRAINT_CELLS}: fewer columns, or coarser bins",
        )


def _wrong(what: str, allowed: str) -> SchemaError:
    return SchemaError(what, where=_WHERE, allowed=allowed)
