"""The private side of a report: what the releases are compared with. For evaluation only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.errors import ConfigError, StepError
from dpstream.core.schema import Schema
from dpstream.core.schema.domain import Clique
from dpstream.tools.evaluate.metrics import WorkloadErrors, errors_or_blank
from dpstream.tools.evaluate.synthetic_side import alike_together
from dpstream.tools.evaluate.true_table import TrueStep, true_steps
from dpstream.tools.report.collect import ReportedRun


@dataclass(frozen=True, repr=False)
class Compared:
    """One step: errors of the released table, the true number of records."""

    step: int
    records: int
    errors: WorkloadErrors


@dataclass(frozen=True, repr=False)
class Truth:
    """Private. ``columns`` and ``pairs`` are true counts at the last table's step.

    ``workload`` holds the true and the released counts of the workload's marginals there.
    """

    steps: tuple[Compared, ...]
    columns: tuple[NDArray[np.int64], ...]
    pairs: dict[Clique, NDArray[np.int64]]
    workload: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]

    @property
    def last(self) -> Compared:
        """At the last table's step."""
        return self.steps[-1]


def collect_truth(run: ReportedRun, pairs: tuple[Clique, ...]) -> Truth:
    """Count the private table at every step whose released table was read.

    Guarantee: none; the result is private.

    Args:
        run: with its released marginals.

    Cost: reads the data once.

    Errors:
        ConfigError: a run without any table.
        StepError: data that end before the releases do. DataError, SchemaError: data that do not fit.
    """
    assert run.config is not None
    if run.last_table is None:
        raise ConfigError("no release has a full table to compare with", where=str(run.releases))
    wanted, done = set(run.tables), []
    domain, cliques = run.schema.domain, run.workload.cliques
    for true in true_steps(run.config, run.last_table):
        if true.step not in wanted:
            continue
        released = run.marginals[true.step]
        counts = _marginals(true, run.schema, cliques)
        errors = errors_or_blank(counts, [table.astype(np.float64) for table in released], true.table.records)
        done.append(Compared(true.step, true.table.records, errors))
        if true.step == run.last_table:
            singles = tuple((i,) for i in range(len(domain)))
            return Truth(
                tuple(done),
                tuple(_marginals(true, run.schema, singles)),
                dict(zip(pairs, _marginals(true, run.schema, pairs), strict=True)) if pairs else {},
                tuple(zip(counts, released, strict=True)),
            )
    raise StepError(
        f"the private data end before step {run.last_table}, which is released",
        where=str(run.config.path),
        allowed="the data that the run was fed",
    )


def _marginals(true: TrueStep, schema: Schema, cliques: tuple[Clique, ...]) -> list[NDArray[np.int64]]:
    """True counts, flat; values that released tables cannot tell apart are counted together."""
    counts = true.table.marginals(cliques)
    return [alike_together(table, clique, schema) for table, clique in zip(counts, cliques, strict=True)]
