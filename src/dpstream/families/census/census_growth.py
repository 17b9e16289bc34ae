"""What is public of a census's memory, moved to columns with more values: ``other`` is shared out. Post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Model
from dpstream.core.schema.discrete import Found
from dpstream.families.census.census_state import CensusBook, CensusTerms
from dpstream.families.census.cohorts import Attrition, Cohort, PriorEvidence, ShapeTracker
from dpstream.mechanisms.discovery_plan import Discoveries
from dpstream.mechanisms.grown_tables import grown_model, shares_of_other, split_other

_Floats = NDArray[np.float64]
#: Of each column that grew: the code of ``other``, and the shares of it that its new values get.
Shares = Mapping[int, tuple[int, _Floats]]


def grow(
    state: CensusBook,
    own: Discoveries,
    before: CensusTerms,
    after: CensusTerms,
    new: Mapping[str, Sequence[Found]],
    begun: int,
) -> None:
    """Move all that a stream remembers to columns with the new values.

    Args:
        begun: the end of the discovery epoch before the one that found them.
    """
    domain, newest = before.workload.domain, state.levels[0].latest
    assert newest is not None, "a discovery epoch ends at a census"
    records = sum(cohort.size for cohort in state.cohorts)
    if begun:
        records = min(records, state.newcomers.expected(state.levels[0].total, state.step - begun)[0])
    others = {domain.index(name): own.other_code(name) for name in new}
    entries = {domain.index(name): values for name, values in new.items()}
    move = _Growth(before, after, shares_of_other(newest, others, entries, records))
    state.attrition = move.attrition(state.attrition)
    for level in state.levels:
        level.tracker = move.tracker(level.tracker)
        level.latest = None if level.latest is None else move.model(level.latest)
    state.cohorts = [move.cohort(cohort) for cohort in state.cohorts]
    state.newest = None if state.newest is None else move.model(state.newest)
    state.seen = None if state.seen is None else move.evidence(state.seen)


class _Growth:
    """From the followed marginals of some columns to those of columns with more values."""

    def __init__(self, before: CensusTerms, after: CensusTerms, shares: Shares) -> None:
        self._before, self._after = before.shapes.followed.cells, after.shapes.followed.cells
        self._shares, self._max_cells = shares, after.shapes.max_cells
        old = {clique: place for place, clique in enumerate(self._before.cliques)}
        #: Of each marginal now, its place before.
        self._places = [old[clique] for clique in self._after.cliques]
        self._models = dict[int, Model]()

    def model(self, model: Model) -> Model:
        """A model that several have is moved once."""
        if id(model) not in self._models:
            domain = self._after.workload.domain
            self._models[id(model)] = grown_model(model, domain, self._shares, self._max_cells)
        return self._models[id(model)]

    def cells(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Cells of all marginals (the last axis): what ``other`` has is shared out."""
        shape_of, parts = self._before.workload.domain.shape, list[NDArray[np.floating]]()
        for place in self._places:
            clique, part = self._before.cliques[place], values[..., self._before.part(place)]
            table = part.reshape(*values.shape[:-1], *shape_of(clique))
            for axis, column in enumerate(clique, start=values.ndim - 1):
                if column in self._shares:
                    table = split_other(table, axis, *self._shares[column])
            parts.append(table.reshape(*values.shape[:-1], -1))
        return np.concatenate(parts, axis=-1).astype(values.dtype)

    def tracker(self, tracker: ShapeTracker) -> ShapeTracker:
        """The same estimates."""
        own = self._places
        values, variances, fits = self.cells(tracker.values), tracker.variances[:, own], tracker.fits[:, own]
        return ShapeTracker(self._after, values, variances, tracker.steps[own], fits)

    def cohort(self, cohort: Cohort) -> Cohort:
        """The same records."""
        shares, variances = self.cells(cohort.shares), cohort.variances[self._places]
        shown = None if cohort.shown is None else self.model(cohort.shown)
        return replace(
            cohort, shares=shares, variances=variances, model=self.model(cohort.model), shown=shown
        )

    def evidence(self, seen: PriorEvidence) -> PriorEvidence:
        """The same measurements."""
        own, values = self._places, self.cells(seen.values).astype(np.float64)
        return PriorEvidence(self._after, values, seen.variances[own], seen.records[own])

    def attrition(self, attrition: Attrition) -> Attrition:
        """New values leave as ``other`` does."""
        sizes = np.cumsum((0, *attrition.domain.sizes))
        places = [
            (start + np.arange(end - start)).tolist() + [start + other] * len(shares)
            for column, (start, end) in enumerate(pairwise(sizes))
            for other, shares in [self._shares.get(column, (0, np.zeros(0)))]
        ]
        own = np.concatenate(places).astype(np.int64)
        domain = self._after.workload.domain
        return replace(
            attrition, domain=domain, pulls=attrition.pulls[:, own], variances=attrition.variances[:, own]
        )
