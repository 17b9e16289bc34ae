"""A held table beside the last released one: what differs by more than noise explains comes first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.errors import InputError, StoreError
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks.release_reader import as_released
from dpstream.stream.release.estimates import Published
from dpstream.stream.release.fitness import unfit_rows
from dpstream.stream.release.released_verdicts import number_of_records
from dpstream.stream.release.verdicts import Verdict
from dpstream.tools.evaluate.run_folder import Accuracy

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from dpstream.core.schema import Schema
    from dpstream.service.desk import Held

#: A difference of so many of its standard errors is more than noise explains.
_BEYOND = 2.0
_SHOWN = 12


@dataclass(frozen=True)
class Difference:
    """One value of one column in both tables.

    Attributes:
        then, now: its share of the rows; ``then`` is None without an earlier table.
        error: one standard error of the difference, as a share; None where one of the tables does not tell its own.
    """

    column: str
    value: str
    then: float | None
    now: float
    error: float | None

    @property
    def change(self) -> float:
        """In points of the share, as a number from -1 to 1."""
        return 0.0 if self.then is None else self.now - self.then

    @property
    def matters(self) -> bool:
        """Whether it is more than noise explains."""
        return self.error is not None and abs(self.change) > _BEYOND * self.error


@dataclass(frozen=True)
class Preview:
    """What an approver looks at.

    Attributes:
        rows, last_rows: of the tables (``last_rows`` None: no earlier table); ``rows_error``: one standard
            error of the number of records, None where it is not known.
        verdicts, unfit: of the held table.
        first: the differences that matter most; ``columns``: every column with all its values.
        why_not: why the columns cannot be compared; empty where they can.
    """

    rows: int
    last_rows: int | None
    rows_error: float | None
    verdicts: tuple[Verdict, ...]
    unfit: str | None
    first: tuple[Difference, ...]
    columns: Mapping[str, tuple[Difference, ...]]
    why_not: str = ""


def preview(held: Held, schema: Schema, releases: Path) -> Preview:
    """Compare a held step with the last released one; both are results of the mechanism.

    Args:
        schema: the public columns of the configuration.
        releases: where manifests and measurements of earlier steps are.
    """
    manifest = held.manifest
    found, why = _compared(held, schema, releases)
    # Of two values the second one's share follows from the first one's.
    every = [one for column in found.values() for one in (column[-1:] if len(column) == 2 else column)]
    first = sorted(every, key=lambda one: (not one.matters, -_weight(one)))[:_SHOWN]
    return Preview(
        int(manifest["rows_in_table"]),
        None if held.last is None else held.last.num_rows,
        _rows_error(manifest),
        tuple(Verdict.from_dict(one) for one in manifest["accuracy"].get("verdicts", ())),
        _unfit(held, releases),
        tuple(first) if held.last is not None else (),
        found,
        why,
    )


def _rows_error(manifest: Mapping[str, Any]) -> float | None:
    if manifest["rows"] != manifest["rows_in_table"]:
        return None  # a person of a panel has several rows
    return number_of_records(manifest).error


def _weight(one: Difference) -> float:
    """Errors that are known by column make small columns and large ones comparable."""
    return abs(one.change) / one.error if one.matters and one.error else abs(one.change)


def _unfit(held: Held, releases: Path) -> str | None:
    def manifest_of(step: int) -> Mapping[str, Any]:
        return held.manifest if step == held.step else read_manifest(releases, step)

    try:
        return unfit_rows(manifest_of, held.step)
    except (StoreError, InputError, KeyError, TypeError, ValueError):
        return None  # the step that was measured last is not released itself


def _compared(held: Held, schema: Schema, releases: Path) -> tuple[dict[str, tuple[Difference, ...]], str]:
    if held.table is None:
        return {}, "The step lacks a table."
    try:
        now = _shares(held.table, schema)
        then = None if held.last is None else _shares(held.last, schema)
    except InputError:
        return (
            {},
            "The tables' columns differ from the configuration's.",
        )
    noise = _held_noise(held, schema)
    before = None if held.last_step is None else released_noise(releases, held.last_step, schema)
    found = {}
    for place, column in enumerate(schema.columns):
        old, new = None if then is None else then[place], now[place]
        found[column.name] = tuple(
            Difference(
                column.name,
                label,
                None if old is None else float(old[code]),
                float(new[code]),
                None
                if old is None
                else _error(before, noise, column.name, float(old[code]), float(new[code])),
            )
            for code, label in enumerate(column.labels())
        )
    return found, ""


def _shares(table: pa.Table, schema: Schema) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """Of the rows, by column and code; zero where the table is empty."""
    columns = tuple(as_released(column) for column in schema.columns)
    codes = replace(schema, columns=columns, constraints=None).encode(
        table, where="the table", extra="ignore"
    )
    sizes = [column.size for column in schema.columns]
    rows = max(1, len(codes))
    return [np.bincount(codes[:, place], minlength=size) / rows for place, size in enumerate(sizes)]


@dataclass(frozen=True)
class Noise:
    """Of one table, in records.

    Attributes:
        rows: its number of records; ``total``: one standard error of that.
        cells: one standard error of a count of one value, of the columns where that is known.
        drawn: rows that were drawn to be looked at, where that is not the table itself.
    """

    rows: int
    total: float
    cells: Mapping[str, float]
    drawn: int | None = None

    def error(self, column: str, share: float) -> float | None:
        """One standard error of a share of the rows, or a little more: a count and the number of records may share
        noise, so their errors are added as they are. None where it is not known."""
        cell = self.cells.get(column)
        if cell is None:
            return None
        drawing = 0.0 if self.drawn is None else share * (1 - share) / max(1, self.drawn)
        return math.sqrt(((cell + share * self.total) / self.rows) ** 2 + drawing)


def _noise(manifest: Mapping[str, Any], step: int, schema: Schema, drawn: int | None = None) -> Noise | None:
    """What a manifest alone says: of columns that are measured at every step."""
    rows, total = int(manifest["rows"]), _rows_error(manifest)
    accuracy = Accuracy.of({"step": step, **manifest})
    if rows <= 0 or total is None:
        return None
    sizes = {column.name: column.size for column in schema.columns}
    errors = {name: accuracy.column_error(name, sizes) for name in sizes}
    return Noise(rows, total, {name: error for name, error in errors.items() if error is not None}, drawn)


def _held_noise(held: Held, schema: Schema) -> Noise | None:
    drawn = held.table.num_rows if held.table is not None and not held.whole else None
    noise = _noise(held.manifest, held.step, schema, drawn)
    return None if noise is None else replace(noise, cells={**noise.cells, **held.errors})


def released_noise(releases: Path, step: int, schema: Schema) -> Noise | None:
    """Of a released table: from its measurements, as ``PublicRelease.answer`` tells it, or else from its manifest."""
    try:
        manifest = read_manifest(releases, step)
        known = _noise(manifest, step, schema)
        if known is None or "base" in manifest:
            return known
        exact = Published.read(releases, schema, step).column_errors(step)
    except (InputError, StoreError):
        return None
    return replace(known, cells={**known.cells, **exact})


def _error(before: Noise | None, noise: Noise | None, name: str, then: float, now: float) -> float | None:
    """Of a difference of two shares: both tables have noise, each its own, taken to be independent."""
    if before is None or noise is None:
        return None
    old, new = before.error(name, then), noise.error(name, now)
    return None if old is None or new is None else math.hypot(old, new)
