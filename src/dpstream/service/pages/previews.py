"""A held table beside the last released one: what differs by more than noise explains comes first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstream.core.contracts.verdicts import Verdict
from dpstream.core.errors import InputError, StoreError
from dpstream.io.sinks import read_manifest
from dpstream.io.sinks.release_reader import as_released
from dpstream.stream.release.fitness import unfit_rows
from dpstream.tools.evaluate.run_folder import Accuracy

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from dpstream.core.schema import Schema
    from dpstream.service.desk import Held

__all__ = ["Difference", "Preview", "preview"]

#: A difference of so many of its standard errors is more than noise explains.
_BEYOND = 2.0
_SHOWN = 12


@dataclass(frozen=True)
class Difference:
    """One value of one column in both tables.

    Attributes:
        then, now: its share of the rows; ``then`` is None where there is no earlier table.
        error: one standard error of the difference, as a share; None where it is not known.
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
        releases: where manifests of earlier steps are.
    """
    manifest = held.manifest
    told = manifest.get("accuracy") or {}
    found, why = _compared(held, schema)
    # Of two values the second one's share follows from the first one's.
    every = [one for column in found.values() for one in (column[-1:] if len(column) == 2 else column)]
    first = sorted(every, key=lambda one: (not one.matters, -_weight(one)))[:_SHOWN]
    return Preview(
        int(manifest["rows_in_table"]),
        None if held.last is None else held.last.num_rows,
        _rows_error(manifest),
        tuple(Verdict(**one) for one in told.get("verdicts", ())),
        _unfit(held, releases),
        tuple(first) if held.last is not None else (),
        found,
        why,
    )


def _rows_error(manifest: Mapping[str, Any]) -> float | None:
    told = manifest.get("accuracy") or {}
    if manifest["rows"] != manifest["rows_in_table"]:
        return None  # a person of a panel has several rows
    if told.get("total_standard_error") is not None:
        return float(told["total_standard_error"])
    share = _share_of("totals", manifest)
    return None if share is None else share * int(manifest["rows"])


def _share_of(use: str, manifest: Mapping[str, Any]) -> float | None:
    """One standard error of a use, as its verdict tells it."""
    told = (manifest.get("accuracy") or {}).get("verdicts", ())
    found = next((one["share"] for one in told if one["use"] == use), None)
    return None if found is None else float(found)


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


def _compared(held: Held, schema: Schema) -> tuple[dict[str, tuple[Difference, ...]], str]:
    if held.table is None:
        return {}, "The step has no table of records."
    try:
        now = _shares(held.table, schema)
        then = None if held.last is None else _shares(held.last, schema)
    except InputError:
        return (
            {},
            "The columns of the tables are not those of the configuration, so they are not compared one by one.",
        )
    accuracy = Accuracy.of({"step": held.step, **held.manifest})
    found = {}
    for place, column in enumerate(schema.columns):
        error = _error(held.manifest, accuracy, column.name, column.size)
        before = None if then is None else then[place]
        found[column.name] = tuple(
            Difference(
                column.name, label, None if before is None else float(before[code]), float(share), error
            )
            for code, (label, share) in enumerate(zip(column.labels(), now[place], strict=True))
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


def _error(manifest: Mapping[str, Any], accuracy: Accuracy | None, name: str, cells: int) -> float | None:
    """Of a difference of two shares: both tables have about the same noise, taken to be independent."""
    rows = int(manifest["rows"])
    if accuracy is None or rows <= 0:
        return None
    cell = accuracy.cell if frozenset([name]) in accuracy.marginals else None
    if cell is None:
        typical = _share_of("columns", manifest)
        cell = None if typical is None else typical * rows / cells
    return None if cell is None else math.sqrt(2) * cell / rows
