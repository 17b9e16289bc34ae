"""What the runs say about the errors of one step: spread about the invented truth, cell by cell and together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpstream.tools.errors.contract import InventedTable, Observation
from dpstream.tools.errors.simulation import Simulation
from dpstream.tools.evaluate.array_types import Floats
from dpstream.tools.evaluate.metrics import total_variation

#: Classes of cells by their invented number of records: each begins here and ends before the next one.
SIZES = (0, 1, 5, 20, 100, 1000, 10_000, 100_000)


def root_mean_square(errors: Floats) -> float:
    """Over all entries; NaN of none."""
    return math.sqrt(float((errors**2).mean())) if errors.size else math.nan


@dataclass(frozen=True, eq=False)
class StepErrors:
    """Errors by simulation of one step.

    Attributes:
        truth: the invented one. observed: what each run released.
    """

    step: int
    truth: InventedTable
    observed: tuple[Observation, ...]

    @classmethod
    def of(cls, simulation: Simulation, step: int) -> StepErrors:
        """Those of one of the simulation's steps."""
        return cls(step, simulation.invented.truth[step], tuple(run[step] for run in simulation.runs))

    @cached_property
    def counts(self) -> list[Floats]:
        """The invented counts of each marginal, flat."""
        return self.truth.table.marginals(self.truth.domain, self.truth.cliques)

    @cached_property
    def errors(self) -> list[Floats]:
        """Released less invented counts of each marginal, shape (runs, cells)."""
        made = [one.marginals(self.truth.domain, self.truth.cliques) for one in self.observed]
        return [
            np.stack([run[i] for run in made]) - self.counts[i][None, :]
            for i in range(len(self.truth.cliques))
        ]

    @property
    def total_errors(self) -> Floats:
        """Released less invented number of records, of each run."""
        return np.array([one.total for one in self.observed]) - self.truth.table.total

    def names(self, clique: Sequence[int]) -> list[str]:
        """Of a marginal's columns."""
        return [self.truth.domain.names[i] for i in clique]

    def summary(self) -> dict[str, Any]:
        """Total, classes of cells, marginals and distances; JSON-able."""
        size = max(1.0, self.truth.table.total)
        marginals = []
        for clique, counts, errors in zip(self.truth.cliques, self.counts, self.errors, strict=True):
            variations = [total_variation(counts, counts + one) for one in errors]
            known = [value for value in variations if not math.isnan(value)]
            marginals.append(
                {
                    "columns": self.names(clique),
                    "cells": int(counts.size),
                    "standard_error": _short(root_mean_square(errors)),
                    "avg_we": _short(float(np.abs(errors).mean()) / size),
                    "total_variation": _short(float(np.mean(known))) if known else None,
                    "sizes": _classes(counts, errors),
                }
            )
        most = max(len(clique) for clique in self.truth.cliques)
        widest = [i for i, clique in enumerate(self.truth.cliques) if len(clique) == most]
        counts = np.concatenate([self.counts[i] for i in widest])
        errors = np.concatenate([self.errors[i] for i in widest], axis=1)
        return {
            "total": {**_spread(self.total_errors), "invented": _short(self.truth.table.total)},
            "avg_we": _short(float(np.mean([np.abs(self.errors[i]).mean() for i in widest])) / size),
            "sizes": _classes(counts, errors),
            "distances": self._distances(),
            "marginals": marginals,
        }

    def _distances(self) -> dict[str, Any]:
        names = sorted({name for one in self.observed for name in one.distances})
        found = {}
        for name in names:
            values = np.array([one.distances[name] for one in self.observed if name in one.distances])
            found[name] = {"mean": _short(float(values.mean())), "largest": _short(float(values.max()))}
        return found


def _spread(errors: Floats) -> dict[str, float]:
    return {"standard_error": _short(root_mean_square(errors)), "bias": _short(float(errors.mean()))}


def _classes(counts: Floats, errors: Floats) -> list[dict[str, Any]]:
    """The errors of cells, by the class of their size."""
    found: list[dict[str, Any]] = []
    for at, start in enumerate(SIZES):
        end = SIZES[at + 1] if at + 1 < len(SIZES) else None
        inside = (counts >= start) & (counts < (math.inf if end is None else end))
        if inside.any():
            own = errors[:, inside]
            found.append({"from": start, "below": end, "cells": int(inside.sum()), **_spread(own)})
    return found


def _short(value: float) -> float:
    """Five digits: more would be noise of the simulation."""
    return float(f"{value:.5g}")
