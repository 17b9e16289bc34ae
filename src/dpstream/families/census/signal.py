"""How much of a census's table is signal, and not noise. Public post-processing.

A table that is mostly noise is further from the records than the uniform one. So a release is a mixture of the
estimated table and of a calmer one: the product of its columns, each moved towards the uniform one as far as it is
noise by itself. What censuses measure says how much of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpstream.core.graphical import Measurement, Model
from dpstream.core.schema.domain import Domain
from dpstream.families.census.cohorts import Cohort, projected
from dpstream.mechanisms.workload_cells import Cells

_Floats = NDArray[np.float64]

#: A part that is too small costs more than one that is too large.
_LENIENT = 1.25
#: Evidence for noise that there is before any census: few measurements say nothing surely.
_DOUBT = 4.0


@dataclass
class Signal:
    """The part of the way from the uniform table to the estimated one that is signal.

    Along this way a census finds, with fresh noise, how far the records are; so neither drift nor wrong variances can
    make noise look like signal. Column by column, added up over all censuses.

    Attributes:
        tested: <measured, way> and <way, way> of each column, over the variance of the noise; shape (2, columns).
        present: the same of what is known at the last census, less what its own noise adds (``agreement``).
    """

    tested: _Floats
    present: _Floats

    @classmethod
    def fresh(cls, columns: int) -> Signal:
        """Before any census."""
        return cls(np.zeros((2, columns)), np.zeros((2, columns)))

    @property
    def part(self) -> float:
        """Of all columns together."""
        return float(_parts((self.tested + self.present).sum(axis=1, keepdims=True))[0])

    def calmer(self, domain: Domain, estimated: Sequence[tuple[Model, float]]) -> Model:
        """The product of the columns of some models, each as far from the uniform one as is signal by itself.

        Args:
            estimated: models, with their numbers of records.
        """
        columns, whole = [(column,) for column in range(len(domain))], sum(size for _, size in estimated)
        model, flat = Model.uniform(domain, 1.0), np.zeros(sum(domain.sizes))
        for own, size in estimated:
            flat += (size / whole if whole > 0.0 else 0.0) * own.with_total(1.0).flat_marginals(columns)
        ends, parts = np.cumsum(domain.sizes)[:-1], _parts(self.tested + self.present)
        for column, (part, shares) in enumerate(zip(parts.tolist(), np.split(flat, ends), strict=True)):
            if part > 0.0 and whole > 0.0:
                model = model.with_column(column, part * shares + (1.0 - part) / len(shares))
        return model

    def backtest(
        self, cells: Cells, released: Sequence[tuple[Model, float]], measured: Sequence[Measurement]
    ) -> None:
        """Compare what a census measured with what was released before it.

        Args:
            released: models, with their numbers of records.
        """
        whole = sum(size for _, size in released)
        if whole <= 0.0:
            return
        even = _even(cells)
        known = [(size / whole, model.with_total(1.0)) for model, size in released]
        for index, values, variance in projected(cells, measured):
            clique, uniform = cells.cliques[index], even[cells.part(index)]
            if len(clique) == 1:
                shares = sum(weight * model.marginals([clique])[0] for weight, model in known)
                records = float(values.sum())
                way = max(records, 1.0) * (shares - uniform)
                found = float((values - uniform * records) @ way)
                self.tested[:, clique[0]] += np.array([found, float(way @ way)]) / variance

    def look(self, cells: Cells, cohorts: Sequence[Cohort]) -> None:
        """Take what is known of the present records.

        Errors of cohorts are added up as if all were alike: they come from one tracker.
        """
        whole = max(sum(cohort.size for cohort in cohorts), 1.0)
        even, self.present = _even(cells), np.zeros_like(self.present)
        for index, clique in enumerate(cells.cliques):
            deviation = sum(cohort.size * math.sqrt(cohort.variances[index]) for cohort in cohorts) / whole
            if len(clique) == 1 and deviation > 0.0:
                part = cells.part(index)
                shares = np.sum([cohort.size * cohort.shares[part] for cohort in cohorts], axis=0) / whole
                self.present[:, clique[0]] = agreement(shares, even[part], deviation**2)


def _parts(evidence: _Floats) -> _Floats:
    """Of some ways, each with what was found and its length; all of one without evidence. Shape (2, ways)."""
    found, length = evidence
    parts = np.clip(_LENIENT * found / (length + _DOUBT), 0.0, 1.0)
    return np.where(length > 0.0, parts, 1.0)


def agreement(shares: _Floats, even: _Floats, variance: float) -> tuple[float, float]:
    """<true - even, way> and <way, way> over the variance of noisy shares; the way leads from the even distribution to
    the nearest one. Unbiased for normal noise (Stein 1981): as many free cells as noise turns the way."""
    nearest = nearest_distribution(shares)
    way = nearest - even
    found = float(way @ (shares - even)) / variance - (np.count_nonzero(nearest) - 1)
    return found, float(way @ way) / variance


def nearest_distribution(shares: _Floats) -> _Floats:
    """By least squares."""
    falling = np.sort(shares)[::-1]
    over = (np.cumsum(falling) - 1.0) / np.arange(1, len(shares) + 1)
    return np.asarray(np.maximum(shares - over[np.flatnonzero(falling > over)[-1]], 0.0))


@lru_cache(maxsize=8)
def _even(cells: Cells) -> _Floats:
    """The shares of all cells in the uniform table."""
    return np.concatenate(Model.uniform(cells.workload.domain, 1.0).marginals(cells.cliques))
