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
from dpstream.tools.evaluate.run_folder import Accuracy, Folder, PublishedRun, released_codes

#: Tables that are read of a long stream, if its reader does not ask for more.
MAX_TABLES = 40


@dataclass(frozen=True, eq=False)
class ReportedRun(PublishedRun):
    """Everything public that a page shows.

    Attributes:
        releases: the folder.
        schema: the columns; from the configuration, or rebuilt from the codebook.
        last_table: the step of the last full table; None if there is none.
        codes: its records.
        workload: the marginals that the mechanism was asked to keep.
    """

    releases: Path
    schema: Schema
    last_table: int | None
    codes: NDArray[np.int32] | None
    workload: Workload

    @cached_property
    def counts(self) -> tuple[NDArray[np.int64], ...]:
        """By column, the last table's rows by code."""
        assert self.codes is not None
        return tuple(
            np.bincount(self.codes[:, column], minlength=size)
            for column, size in enumerate(self.schema.domain.sizes)
        )

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
    def can_be_simulated(self) -> bool:
        """Whether ``dpstream errors`` would say more: not of discovered values, nor twice."""
        return self.simulated is None and not self.schema.open_columns

    @property
    def accuracy(self) -> Accuracy:
        """Of the last table; without one, of the last step."""
        tables = (facts.accuracy for facts in self.shown if facts.step == self.last_table)
        return next(tables, self.shown[-1].accuracy)

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
    """Read the last table of a stream of tables. Reads nothing private.

    Errors:
        StoreDamagedError, StoreFormatError: files that differ from their published hashes, or cannot be read.
    """
    releases, last = folder.releases, folder.manifest
    schema = released_schema(releases, last)
    step = folder.full[-1] if folder.full else None
    codes = None if step is None else released_codes(schema, releases, step)
    facts = folder.facts(folder.full[-1:])
    workload = _workload(schema, last, releases)
    return ReportedRun(last, folder.states, facts, releases, schema, step, codes, workload)


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
