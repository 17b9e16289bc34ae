"""Least squares over the measurements of one epoch that overlap.

A table is the sum of its interactions: of the number of records, of what each column adds to it, of what each pair adds
to its columns, and so on. A marginal with equal noise in its cells measures the interactions of its columns with errors
that are not correlated with each other. So the best linear unbiased estimate of an interaction is the mean of what all
measurements say of it, weighted by the inverse of their variances, and that of a marginal is the sum of its
interactions. Proof: docs/theory/measurements.md.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpstream.core.contracts import NoisyCounts
from dpstream.core.errors import LimitError
from dpstream.core.privacy.joint import HistogramCells
from dpstream.stream.release.measured_parts import (
    Coefficients,
    Combined,
    Part,
    identity,
    sign_pattern,
    was_chosen,
)

#: Of a marginal that is found by least squares: it has 2 to this power interactions.
MOST_COLUMNS = 10

#: Some of a marginal's axes.
Axes = tuple[int, ...]


@dataclass(frozen=True)
class _Told(Part):
    """How one draw enters the interactions of an estimate.

    Attributes:
        common: the axes of the estimate whose columns the draw measured, where it is a marginal.
        shares: by interaction: its share in the weighted mean.
    """

    source: NoisyCounts
    common: Axes
    shares: tuple[tuple[Axes, float], ...]

    def coefficients(self, cells: NDArray[np.bool_]) -> Coefficients:
        found = Counter[float]()
        if self.source.columns is None:
            for axes, share in self.shares:
                found[share * abs(float((sign_pattern(cells.ndim, axes) * cells).sum())) / cells.size] += 1
            return Coefficients(self.source, tuple(found.items()))
        shape = [size if axis in self.common else 1 for axis, size in enumerate(cells.shape)]
        entering = np.zeros(shape)
        for axes, share in self.shares:
            entering += share * _interaction(cells.astype(np.float64), axes)
        each = self.source.values.size // entering.size
        sizes, counts = np.unique(np.round(np.abs(entering), 12), return_counts=True)
        return Coefficients(
            self.source,
            tuple((size, count * each) for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)),
            float(entering.sum()) * each,
        )


def least_squares(
    names: Sequence[str], counts: Sequence[NoisyCounts], sizes: Mapping[str, int], number: int | None
) -> Combined | None:
    """The best linear unbiased estimate of a marginal from the measurements of some steps; None where they miss one of
    its interactions.

    Args:
        number: of records, where it is public.

    Errors:
        LimitError: more than ``MOST_COLUMNS`` columns.
    """
    if len(names) > MOST_COLUMNS:
        raise LimitError(f"{len(names)} columns", where="least squares", allowed=f"{MOST_COLUMNS}")
    # Histograms of one joint draw have its name, and are different ones.
    sources = list({(identity(one), one.columns): one for one in counts}.values())
    shape = tuple(sizes[name] for name in names)
    values, cells = np.zeros(shape), math.prod(shape)
    shares: dict[int, list[tuple[Axes, float]]] = {}
    variance, chosen = 0.0, False
    for many in range(len(names) + 1):
        for axes in itertools.combinations(range(len(names)), many):
            if not axes and number is not None:
                values += number / cells
                continue
            told = _tellers([names[axis] for axis in axes], sources, sizes)
            if not told:
                return None
            # Of the cells of the interaction; those without noise know it.
            spreads = np.array([spread for _, _, spread in told])
            precision = (spreads == 0.0).astype(float) if (spreads == 0.0).any() else 1.0 / spreads
            weights = (precision / precision.sum()).tolist()
            others = cells // math.prod(shape[axis] for axis in axes)
            for (place, term, _), weight in zip(told, weights, strict=True):
                values += weight / others * _told(sources[place], term, axes, names, sizes)
                shares.setdefault(place, []).append((axes, weight))
                query = sources[place].query
                chosen |= was_chosen(sources[place], query["terms"][term] if "terms" in query else None)
            free = math.prod(1.0 - 1.0 / shape[axis] for axis in axes)
            variance += free * float(np.square(weights) @ spreads) / others**2
    parts = tuple(_Told(sources[i], _common(names, sources[i]), tuple(own)) for i, own in shares.items())
    return Combined(values, variance, parts, chosen)


def _tellers(
    wanted: Sequence[str], sources: Sequence[NoisyCounts], sizes: Mapping[str, int]
) -> list[tuple[int, int, float]]:
    """Who tells an interaction: (its place, its term where it is a sum of signs, the variance of a cell before the
    means are taken away)."""
    found, cells, summed = [], math.prod(sizes[name] for name in wanted), set[str]()
    for place, one in enumerate(sources):
        if one.columns is not None:
            if set(wanted) <= set(one.columns):
                each, spread = one.values.size // cells, one.variance
                if isinstance(one.noise, HistogramCells):
                    # All histograms of a joint draw have the same sum, with the same error: the first one tells it.
                    if not wanted and one.draw in summed:
                        continue
                    summed.add(one.draw)
                    sum_alone = one.noise.drawn.sum_variance / one.values.size
                    spread = one.noise.inner_variance if wanted else sum_alone
                found.append((place, -1, spread * each))
            continue
        for term, columns in enumerate(one.query["terms"]):
            if set(columns) == set(wanted):
                found.append((place, term, one.variance / cells))
    return found


def _told(
    one: NoisyCounts, term: int, axes: Axes, names: Sequence[str], sizes: Mapping[str, int]
) -> NDArray[np.float64]:
    """An interaction as one draw tells it, as a table that has the estimate's axes."""
    if one.columns is None:
        return sign_pattern(len(names), axes) * (float(one.values[term]) / float(2 ** len(axes)))
    table = one.values.reshape([sizes[name] for name in one.columns]).astype(np.float64)
    own = tuple(one.columns.index(names[axis]) for axis in axes)
    cells = math.prod(sizes[names[axis]] for axis in axes)
    inner = _interaction(table, own) * (one.values.size // cells)
    kept = inner.reshape([sizes[name] for axis, name in enumerate(one.columns) if axis in own])
    kept = kept.transpose([sorted(own).index(axis) for axis in own])
    shaped: NDArray[np.float64] = kept.reshape(
        [sizes[name] if axis in axes else 1 for axis, name in enumerate(names)]
    )
    return shaped


def _common(names: Sequence[str], one: NoisyCounts) -> Axes:
    return tuple(axis for axis, name in enumerate(names) if name in (one.columns or ()))


def _interaction(table: NDArray[np.float64], axes: Axes) -> NDArray[np.float64]:
    """What some axes add, on average over the others (which get the length 1)."""
    others = tuple(axis for axis in range(table.ndim) if axis not in axes)
    found = table.mean(axis=others, keepdims=True) if others else table
    for axis in axes:
        found = found - found.mean(axis=axis, keepdims=True)
    return found
