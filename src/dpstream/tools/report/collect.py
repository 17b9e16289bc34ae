"""What a report is made of: the public folder of a run, and the configuration if it was named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import InputError, StoreDamagedError
from dpstream.core.schema import Schema
from dpstream.core.tables import Workload
from dpstream.io.sinks import released_schema
from dpstream.io.sinks.release_reader import released_alike
from dpstream.io.sinks.simulated_errors import SimulatedErrors, simulated_errors
from dpstream.stream.release.estimates import Estimate, Published
from dpstream.stream.release.folding import Group, groups_of
from dpstream.tools.evaluate.run_folder import MAX_STEPS, Accuracy, Folder, PublishedRun, released_codes, thin

#: Tables that are read of a long stream, if its reader does not ask for more.
MAX_TABLES = 40


@dataclass(frozen=True, eq=False)
class ReportedRun(PublishedRun):
    """Everything public that a page shows.

    Attributes:
        releases: the folder.
        schema: the columns; from the configuration, or rebuilt from the codebook.
        tables: steps whose tables were read.
        counts: per column, rows by code in each of those tables; shape (tables, codes).
        workload: the marginals that the mechanism was asked to keep.
        codes: records of the last full table; None if there is none.
        before: step and records of the full table before it; None if there is none.
    """

    releases: Path
    schema: Schema
    tables: tuple[int, ...]
    workload: Workload
    counts: tuple[NDArray[np.int64], ...]
    codes: NDArray[np.int32] | None
    before: tuple[int, NDArray[np.int32]] | None

    @cached_property
    def published(self) -> Published | None:
        """The noisy counts of the steps up to the last table; None where none say how wrong its counts are."""
        if self.last_table is None or "base" in self.manifest:
            return None
        found = Published.read(self.releases, self.schema, self.last_table)
        return found if found.counts else None

    def measured(self, names: Sequence[str]) -> Estimate | None:
        """What was measured of a marginal, added up over all steps; None where it was not measured without a gap."""
        found = None if self.published is None else self.published.estimate(names)
        return found if isinstance(found, Estimate) else None

    @cached_property
    def simulated(self) -> SimulatedErrors | None:
        """What was published about the errors of the last table; None where they were not simulated."""
        return None if self.last_table is None else simulated_errors(self.releases, self.last_table)

    @property
    def last_table(self) -> int | None:
        """The step of ``codes``."""
        return self.tables[-1] if self.tables else None

    @property
    def accuracy(self) -> Accuracy | None:
        """Of the last table; None where its manifest does not say."""
        return next((facts.accuracy for facts in self.shown if facts.step == self.last_table), None)

    def rows(self) -> NDArray[np.int64]:
        """Rows of each read table."""
        total: NDArray[np.int64] = self.counts[0].sum(axis=1)
        return total

    def shares(self, column: int) -> NDArray[np.float64]:
        """Of each read table's rows, by code; NaN where a table is empty."""
        rows = self.rows().astype(np.float64)
        found: NDArray[np.float64] = self.counts[column] / np.where(rows > 0, rows, np.nan)[:, None]
        return found

    def labels(self, column: int) -> tuple[str, ...]:
        """Labels of a column's codes as the released table can tell them apart."""
        kind = self.schema.columns[column]
        labels = list(kind.labels())
        if released_alike(kind):
            labels[-1] = f"{kind.missing} or {kind.other}"
        return tuple(labels)

    def groups(self, column: int, counts: NDArray[np.int64], most: int) -> tuple[Group, ...]:
        """A column's codes in at most about ``most`` groups; codes that are released as the same null are in one."""
        kind = self.schema.columns[column]
        groups = groups_of(kind, self.labels(column), counts, most)
        if not released_alike(kind):
            return groups
        other, null = groups[-2:]
        return (*groups[:-2], Group(null.label, (*other.codes, *null.codes)))


def collect(folder: Folder) -> ReportedRun:
    """Read the tables of a stream of tables, each once. Reads nothing private.

    Errors:
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    releases, config, last = folder.releases, folder.config, folder.manifest
    schema = released_schema(releases, last) if config is None else config.schema()
    workload = _workload(schema, last, releases)
    # A line needs no more points than a small picture has room for; who asks for more steps gets their tables, too.
    tables = thin(folder.full, MAX_TABLES if folder.most == MAX_STEPS else folder.most)
    counts, codes = _count(schema, releases, tables)
    before = None
    if len(folder.full) > 1:
        step = folder.full[-2]
        before = step, released_codes(schema, releases, step)
    return ReportedRun(
        last,
        folder.states,
        folder.facts(tables[-1:]),
        releases,
        schema,
        tables,
        workload,
        counts,
        codes,
        before,
    )


def _workload(schema: Schema, manifest: dict[str, Any], releases: Path) -> Workload:
    """The mechanism's, or all single columns for a mechanism that has none."""
    try:
        options = manifest["mechanism"]["options"]
        # A scheduler or an improver asks its black box for marginals.
        own = {"workload": "all-1-way", **options.get("black_box", {}), **options}
        spec = own["workload"]
        return Workload.parse(schema.domain, spec)
    except (InputError, KeyError, TypeError, AttributeError):
        raise StoreDamagedError(
            "the manifest's workload does not fit the columns", where=str(releases)
        ) from None


def _count(
    schema: Schema, releases: Path, tables: Sequence[int]
) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.int32] | None]:
    """Single columns of every table, and the last table."""
    sizes = schema.domain.sizes
    counts = tuple(np.zeros((len(tables), size), dtype=np.int64) for size in sizes)
    codes = None
    for row, step in enumerate(tables):
        codes = released_codes(schema, releases, step)
        for column, size in enumerate(sizes):
            counts[column][row] = np.bincount(codes[:, column], minlength=size)
    return counts, codes
